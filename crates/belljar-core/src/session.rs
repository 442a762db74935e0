//! What a policy says about sessions and host tools, and what a request may wish of it.

use crate::limits::LimitError;
use crate::units::Seconds;

/// The most that can be written for a number of tool calls.
pub const MOST_TOOL_CALLS: i64 = 1_000_000;
/// The most host tools that may run for one session at the same time.
pub const MOST_CONCURRENT_TOOLS: i64 = 1_000;

/// What a session may do. Part of a policy, and of a plan once wishes are settled.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SessionRules {
    /// Calls of host tools in one execution (R45).
    pub max_tool_calls: u32,
    /// Host tools that run at the same time; further calls wait.
    pub max_concurrent_tools: u32,
    /// Modules that Python code may import (R39); `None` permits all. A policy for honest code: the
    /// walls do not depend on it.
    pub allowed_imports: Option<Vec<String>>,
    /// Names that Python code may not call. For honest code as well.
    pub forbidden_calls: Vec<String>,
    /// Host tools of which every call waits until somebody approves it. Where nobody can be asked, it is refused.
    pub approve_tools: Vec<String>,
    /// How long a session may do nothing.
    pub max_idle: Seconds,
    /// How long a session may live.
    pub max_age: Seconds,
}

impl Default for SessionRules {
    /// Document 002's numbers, and ours where it is silent.
    fn default() -> Self {
        Self {
            max_tool_calls: 100,
            max_concurrent_tools: 5,
            allowed_imports: None,
            forbidden_calls: Vec::new(),
            approve_tools: Vec::new(),
            max_idle: Seconds::whole(1800),
            max_age: Seconds::whole(86_400),
        }
    }
}

impl SessionRules {
    /// Whether code may import `module`: it is on the list, or below a package that is.
    pub fn permits_import(&self, module: &str) -> bool {
        let Some(allowed) = &self.allowed_imports else {
            return true;
        };
        allowed.iter().any(|name| {
            module
                .strip_prefix(name.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// The same rules, each narrowed where `wishes` asks for less. What asks for more is the guard's
    /// business and is not applied here.
    #[must_use]
    pub fn narrowed(&self, wishes: &SessionWishes) -> Self {
        let mut forbidden_calls = self.forbidden_calls.clone();
        for call in &wishes.forbidden_calls {
            if !forbidden_calls.contains(call) {
                forbidden_calls.push(call.clone());
            }
        }
        let allowed_imports = match &wishes.imports {
            Some(imports) => Some(
                imports
                    .iter()
                    .filter(|module| self.permits_import(module))
                    .cloned()
                    .collect(),
            ),
            None => self.allowed_imports.clone(),
        };
        Self {
            max_tool_calls: lower(self.max_tool_calls, wishes.tool_calls),
            max_concurrent_tools: lower(self.max_concurrent_tools, wishes.concurrent_tools),
            allowed_imports,
            forbidden_calls,
            approve_tools: self.approve_tools.clone(),
            max_idle: wishes.idle.map_or(self.max_idle, |idle| idle.min(self.max_idle)),
            max_age: wishes.age.map_or(self.max_age, |age| age.min(self.max_age)),
        }
    }
}

fn lower(permitted: u32, asked: Option<u32>) -> u32 {
    asked.map_or(permitted, |asked| asked.min(permitted))
}

/// What a request wishes for its session; what is unset stays as the policy has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionWishes {
    pub tool_calls: Option<u32>,
    pub concurrent_tools: Option<u32>,
    /// Only these modules.
    pub imports: Option<Vec<String>>,
    /// These calls are forbidden as well.
    pub forbidden_calls: Vec<String>,
    pub idle: Option<Seconds>,
    pub age: Option<Seconds>,
}

/// A whole number of a policy file, named by its field where it is out of range.
pub(crate) fn count(field: &'static str, value: i64, least: i64, most: i64) -> Result<u32, LimitError> {
    u32::try_from(value)
        .ok()
        .filter(|_| (least..=most).contains(&value))
        .ok_or_else(|| LimitError {
            field,
            expected: match (least, most) {
                (0, MOST_TOOL_CALLS) => "from 0 to 1000000",
                _ => "from 1 to 1000",
            },
            value: value.to_string(),
        })
}

/// Whether `name` is a Python module or attribute path: identifiers with dots between.
pub(crate) fn is_dotted_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 256 && name.split('.').all(is_identifier)
}

/// Whether `name` can stand in code as a name.
pub fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && characters.all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_only_narrow() {
        let rules = SessionRules {
            allowed_imports: Some(vec!["json".to_owned(), "os.path".to_owned()]),
            forbidden_calls: vec!["eval".to_owned()],
            ..SessionRules::default()
        };
        assert!(rules.permits_import("json") && rules.permits_import("json.decoder"));
        assert!(!rules.permits_import("jsonx") && !rules.permits_import("os"));
        let narrowed = rules.narrowed(&SessionWishes {
            tool_calls: Some(1_000),
            concurrent_tools: Some(2),
            imports: Some(vec!["json.decoder".to_owned(), "os".to_owned()]),
            forbidden_calls: vec!["exec".to_owned(), "eval".to_owned()],
            idle: Some(Seconds::whole(5)),
            age: None,
        });
        assert_eq!(narrowed.max_tool_calls, 100);
        assert_eq!(narrowed.max_concurrent_tools, 2);
        assert_eq!(narrowed.allowed_imports.unwrap(), ["json.decoder"]);
        assert_eq!(narrowed.forbidden_calls, ["eval", "exec"]);
        assert_eq!(narrowed.max_idle, Seconds::whole(5));
        assert_eq!(narrowed.max_age, Seconds::whole(86_400));
    }

    #[test]
    fn names_are_names() {
        for name in ["a", "_x1", "os.path", "größe"] {
            assert!(is_dotted_name(name), "{name}");
        }
        for name in ["", "1a", "a..b", "a b", ".a", "a\0"] {
            assert!(!is_dotted_name(name), "{name}");
        }
    }
}
