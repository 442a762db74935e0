//! The policy of someone who runs code on their own machine and names no policy.

use super::Policy;
use crate::language::Language;
use crate::limits::{LimitError, LimitNumbers, Limits};
use crate::request::Request;
use crate::session::SessionRules;
use crate::status::{NetworkPolicy, ProviderName};
use crate::units::{Bytes, Seconds};

/// R21: without a policy that says more, no run may take longer.
const LONGEST: Seconds = Seconds::whole(300);

impl Policy {
    /// `standard`, widened by what the request itself asks for.
    ///
    /// Whoever starts belljar without naming a policy is the one who would write it, so asking is
    /// enough; where a policy is named, the same wish is held against it instead. The wall-clock
    /// limit still ends at 300 seconds.
    pub fn for_owner(request: &Request) -> Result<Self, LimitError> {
        let Some(mut policy) = Self::builtin("standard") else {
            unreachable!("`standard` is built in");
        };
        let asked = &request.limits;
        let mut numbers = policy.limits.numbers();
        raise_mb(&mut numbers.max_memory_mb, asked.memory);
        raise_mb(&mut numbers.max_file_size_mb, asked.file_size);
        raise_mb(&mut numbers.max_disk_mb, asked.disk);
        raise_mb(&mut numbers.max_output_mb, asked.output);
        raise(&mut numbers.max_processes, asked.processes.map(i64::from));
        raise(&mut numbers.max_open_files, asked.open_files.map(i64::from));
        raise(&mut numbers.max_cpu_seconds, asked.cpu_time.map(Seconds::get));
        raise(
            &mut numbers.max_wall_time_seconds,
            asked.wall_time.map(|wall| wall.min(LONGEST).get()),
        );
        numbers.max_cpu_percent = asked.cpu_percent.map(i64::from);
        widen_derived(&mut numbers, request);
        policy.limits = Limits::new(&numbers)?;
        widen_session(&mut policy.session, request);
        if let Some(provider) = request.provider {
            policy.providers = vec![provider];
            policy.isolation_level = policy.isolation_level.min(provider.isolation());
            if provider == ProviderName::Venv {
                // Without a wall it has the host's; what it has is said, not what is wished.
                policy.network = NetworkPolicy::Full;
                policy.allow_network = true;
            }
        }
        policy.allowed_languages = Language::ALL.iter().copied().collect();
        policy.allowed_images.extend(request.image.clone());
        policy.allowed_mounts.clone_from(&request.mounts);
        if let Some(network) = request.network.filter(|network| *network != NetworkPolicy::None) {
            policy.network = network;
            policy.allow_network = true;
        }
        if let Some(hosts) = request.hosts.as_ref().filter(|hosts| !hosts.is_empty()) {
            policy.allowed_hosts.clone_from(hosts);
            policy.network = policy.permitted_network().max(NetworkPolicy::Restricted);
            policy.allow_network = true;
        }
        Ok(policy)
    }
}

/// A run that may take longer on the clock may as well compute for that long, and a file that may
/// be large needs a disk to be large on, unless the request says otherwise.
fn widen_derived(numbers: &mut LimitNumbers, request: &Request) {
    if let (None, Some(wall)) = (request.limits.cpu_time, request.limits.wall_time) {
        raise(&mut numbers.max_cpu_seconds, Some(wall.min(LONGEST).get()));
    }
    if request.limits.disk.is_none() {
        numbers.max_disk_mb = numbers.max_disk_mb.max(numbers.max_file_size_mb);
    }
}

fn widen_session(rules: &mut SessionRules, request: &Request) {
    let asked = &request.session;
    raise(&mut rules.max_tool_calls, asked.tool_calls);
    raise(&mut rules.max_concurrent_tools, asked.concurrent_tools);
    raise(&mut rules.max_idle, asked.idle);
    raise(&mut rules.max_age, asked.age);
}

fn raise<T: PartialOrd>(target: &mut T, asked: Option<T>) {
    if let Some(asked) = asked.filter(|asked| *asked > *target) {
        *target = asked;
    }
}

fn raise_mb(target: &mut i64, asked: Option<Bytes>) {
    raise(
        target,
        asked.map(|bytes| i64::try_from(bytes.mib_ceil()).unwrap_or(i64::MAX)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_is_enough_without_a_named_policy() {
        let mut request = Request::code(Language::Rust, *b"fn main() {}");
        request.limits.memory = Some(Bytes::from_mib(1024));
        request.limits.processes = Some(2);
        request.network = Some(NetworkPolicy::Local);
        let policy = Policy::for_owner(&request).unwrap();
        assert_eq!(policy.limits.memory(), Bytes::from_mib(1024));
        assert_eq!(policy.limits.processes(), 10);
        assert_eq!(policy.permitted_network(), NetworkPolicy::Local);
        assert!(policy.allowed_languages.contains(&Language::Rust));
    }

    /// R21: at most 300 seconds unless a policy says more.
    #[test]
    fn the_wall_clock_ends_at_300_seconds() {
        let mut request = Request::code(Language::Python, *b"1");
        request.limits.wall_time = Some(Seconds::whole(3600));
        assert_eq!(
            Policy::for_owner(&request).unwrap().limits.wall_time(),
            Seconds::whole(300)
        );
    }

    #[test]
    fn an_absurd_wish_is_refused_by_name() {
        let mut request = Request::code(Language::Python, *b"1");
        request.limits.memory = Some(Bytes::new(u64::MAX));
        assert_eq!(Policy::for_owner(&request).unwrap_err().field, "max_memory_mb");
    }
}
