//! Values from options, variables and belljar.toml, in that order, each with where it came from.

use std::fmt;
use std::path::{Path, PathBuf};

use super::problem::Problem;

/// What can be configured: its name in the file, what is built in, and what it is for.
pub(crate) const KNOWN: [Known; 19] = [
    Known::new(
        "listen",
        Some("127.0.0.1:8377"),
        "the address and port that `serve` listens on",
    ),
    Known::new(
        "allowed_host",
        None,
        "host names by which callers address the service, with commas between them",
    ),
    Known::new("store", None, "where `serve` keeps records, keys and policies"),
    Known::new("policies", None, "a directory of policy files"),
    Known::new("places", None, "executions at the same time"),
    Known::new("share", None, "how many of them one tenant may have"),
    Known::new("queue", Some("1000"), "requests of one tenant that may wait"),
    Known::new(
        "sessions",
        Some("1000"),
        "sessions that one tenant may have at once",
    ),
    Known::new("max_body", Some("32M"), "the largest request that is read"),
    Known::new(
        "drain",
        Some("30s"),
        "what running work gets when the service ends",
    ),
    Known::new("keep_results", Some("1h"), "how long results are kept"),
    Known::new(
        "approval_time",
        Some("1h"),
        "how long something waits for approval",
    ),
    Known::new("webhook", None, "a URL that is told what waits for approval"),
    Known::new("webhook_secret", None, "what signs its messages"),
    Known::new("otlp", None, "a collector that gets traces"),
    Known::new("log", Some("text"), "the form of the log: text or json"),
    Known::new(
        "retention",
        None,
        "how long the audit is kept; for ever unless said",
    ),
    Known::new("url", None, "the service that commands use"),
    Known::new("key", None, "the key for it"),
];

/// One thing that can be configured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    pub(crate) builtin: Option<&'static str>,
    pub(crate) about: &'static str,
}

impl Known {
    const fn new(name: &'static str, builtin: Option<&'static str>, about: &'static str) -> Self {
        Self { name, builtin, about }
    }

    /// Its variable.
    pub(crate) fn variable(&self) -> String {
        format!("BELLJAR_{}", self.name.to_uppercase())
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Option,
    Variable(String),
    File(PathBuf),
    BuiltIn,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option => f.write_str("option"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::BuiltIn => f.write_str("built in"),
        }
    }
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Valued {
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

/// The configuration of this process.
#[derive(Debug, Default)]
pub(crate) struct Config {
    file: Option<(PathBuf, toml::Table)>,
}

impl Config {
    /// Reads the file that is named, or the one that is there.
    pub(crate) fn load(named: Option<&str>) -> Result<Self, Problem> {
        let variable = std::env::var_os("BELLJAR_CONFIG").filter(|value| !value.is_empty());
        let named = named.map(PathBuf::from).or_else(|| variable.map(PathBuf::from));
        let found = match &named {
            Some(path) => Some(path.clone()),
            None => usual_places().into_iter().find(|path| path.is_file()),
        };
        let Some(path) = found else {
            return Ok(Self::default());
        };
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Problem::usage(format!("cannot read {}: {error}", path.display()))
                .hint("check that the path is right and may be read")
        })?;
        let table = read(&path, &text)?;
        Ok(Self {
            file: Some((path, table)),
        })
    }

    /// The value of `name`: the option's, the variable's, the file's, or the one that is built in.
    pub(crate) fn get(&self, name: &str, option: Option<&str>) -> Option<Valued> {
        let known = KNOWN.iter().find(|known| known.name == name)?;
        let valued = |text: String, origin| Valued { text, origin };
        if let Some(text) = option {
            return Some(valued(text.to_owned(), Origin::Option));
        }
        let variable = known.variable();
        if let Ok(text) = std::env::var(&variable)
            && !text.is_empty()
        {
            return Some(valued(text, Origin::Variable(variable)));
        }
        if let Some((path, table)) = &self.file
            && let Some(value) = table.get(name)
        {
            let text = match value {
                toml::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            return Some(valued(text, Origin::File(path.clone())));
        }
        Some(valued(known.builtin?.to_owned(), Origin::BuiltIn))
    }
}

fn usual_places() -> Vec<PathBuf> {
    let own = belljar_engine::home().map(|home| home.join("belljar.toml"));
    own.into_iter()
        .chain([PathBuf::from("/etc/belljar/belljar.toml")])
        .collect()
}

fn read(path: &Path, text: &str) -> Result<toml::Table, Problem> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
        Problem::usage(format!("{}:{line}: {}", path.display(), error.message()))
            .hint("for example listen = \"127.0.0.1:9000\"")
    })?;
    for (name, value) in &table {
        if !KNOWN.iter().any(|known| known.name == name) {
            let known: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
            let message = format!("{}: `{name}` is not a known setting", path.display());
            return Err(Problem::usage(message).hint(format!("the known ones are {}", known.join(", "))));
        }
        if value.is_table() || value.is_array() {
            let message = format!("{}: `{name}` must be text or a number", path.display());
            return Err(Problem::usage(message).hint("`belljar config show` tells what each setting is for"));
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_strictly() {
        let path = Path::new("belljar.toml");
        assert!(read(path, "listen = \"x\"\nplaces = 4").is_ok());
        for (text, shown) in [
            ("listen = ", "belljar.toml:1: "),
            ("\nlisen = \"x\"", "belljar.toml: `lisen` is not a known setting"),
            ("listen = [1]", "belljar.toml: `listen` must be text or a number"),
        ] {
            let problem = read(path, text).unwrap_err();
            assert!(problem.message.starts_with(shown), "{problem:?}");
            assert!(problem.hint.is_some());
        }
    }

    #[test]
    fn an_option_comes_before_the_file_and_the_file_before_what_is_built_in() {
        let config = Config {
            file: Some(("f".into(), "queue = 7".parse().unwrap())),
        };
        let queue = config.get("queue", Some("9")).unwrap();
        assert_eq!((&*queue.text, queue.origin), ("9", Origin::Option));
        let queue = config.get("queue", None).unwrap();
        assert_eq!((&*queue.text, queue.origin), ("7", Origin::File("f".into())));
        let body = config.get("max_body", None).unwrap();
        assert_eq!((&*body.text, body.origin), ("32M", Origin::BuiltIn));
        assert_eq!(config.get("store", None), None);
    }
}
