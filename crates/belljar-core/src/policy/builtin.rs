//! The four policies that are always there (R7).

use super::Policy;
use crate::language::Language;
use crate::limits::{LimitNumbers, Limits};
use crate::status::{IsolationLevel, NetworkPolicy};

impl Policy {
    /// The names of the built-in policies, the default first.
    pub const BUILTIN: [&'static str; 4] = ["standard", "restricted", "permissive", "high_security"];

    /// The built-in policy of that name.
    pub fn builtin(name: &str) -> Option<Self> {
        use Language::{Bash, Javascript, Python, Shell, Typescript};
        Some(match name {
            "restricted" => Self {
                isolation_level: IsolationLevel::Container,
                allowed_languages: [Python, Javascript].into(),
                ..Self::named(name, "Restricted", numbers(10.0, 128, 30.0, 5))
            },
            "standard" => Self {
                allowed_languages: [Python, Javascript, Bash].into(),
                allow_file_write: true,
                ..Self::named(name, "Standard", numbers(30.0, 256, 60.0, 10))
            },
            "permissive" => Self {
                network: NetworkPolicy::Local,
                allow_network: true,
                allowed_languages: [Python, Javascript, Bash, Typescript, Shell].into(),
                allow_file_write: true,
                ..Self::named(name, "Permissive", numbers(60.0, 512, 120.0, 20))
            },
            "high_security" => Self {
                isolation_level: IsolationLevel::Container,
                allowed_languages: [Python].into(),
                require_approval: true,
                ..Self::named(name, "High Security", numbers(5.0, 64, 15.0, 3))
            },
            _ => return None,
        })
    }
}

fn numbers(cpu: f64, memory: i64, wall: f64, processes: i64) -> Limits {
    let numbers = LimitNumbers {
        max_cpu_seconds: cpu,
        max_memory_mb: memory,
        max_wall_time_seconds: wall,
        max_processes: processes,
        ..LimitNumbers::default()
    };
    match Limits::new(&numbers) {
        Ok(limits) => limits,
        // The numbers above are constants and the tests build all four.
        Err(error) => unreachable!("a built-in policy is invalid: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R7: the four built-in policies, number by number.
    #[test]
    fn builtin_policies_are_the_documents() {
        let rows: Vec<String> = Policy::BUILTIN
            .iter()
            .map(|name| {
                let policy = Policy::builtin(name).unwrap();
                let n = policy.limits.numbers();
                let languages: Vec<_> = policy.allowed_languages.iter().map(|l| l.word()).collect();
                format!(
                    "{name}: {} {} {}/{}/{}/{} {} write={} approval={}",
                    policy.isolation_level,
                    policy.permitted_network(),
                    n.max_cpu_seconds,
                    n.max_memory_mb,
                    n.max_wall_time_seconds,
                    n.max_processes,
                    languages.join(","),
                    policy.allow_file_write,
                    policy.require_approval
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                "standard: process none 30/256/60/10 python,javascript,bash write=true approval=false",
                "restricted: container none 10/128/30/5 python,javascript write=false approval=false",
                "permissive: process local 60/512/120/20 python,javascript,typescript,bash,shell write=true \
                 approval=false",
                "high_security: container none 5/64/15/3 python write=false approval=true",
            ]
        );
        assert_eq!(Policy::builtin("nope"), None);
    }
}
