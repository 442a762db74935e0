//! What `belljar serve` is to do.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use belljar::{Bytes, Policy, Seconds, load};
use belljar_server::http;
use belljar_server::service::{Callers, GateSettings, Settings, Webhook};
use belljar_server::store::Place;

use super::super::args::ServeArgs;
use super::super::config::{Config, Valued};
use super::super::problem::Problem;

/// All that `serve` needs to go ahead.
#[derive(Debug)]
pub(crate) struct ServeSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) service: Settings,
    pub(crate) limits: http::Limits,
    pub(crate) largest_body: usize,
    /// Names by which callers address it, beside those of loopback.
    pub(crate) allowed_hosts: Vec<http::AllowedHost>,
    pub(crate) log: LogForm,
    /// Who gets traces.
    pub(crate) otlp: Option<String>,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogForm {
    Text,
    Json,
}

pub(crate) fn serve(args: &ServeArgs) -> Result<ServeSettings, Problem> {
    let config = Config::load(args.config.as_deref())?;
    let get = |name: &str, option: &Option<String>| config.get(name, option.as_deref());
    let listen: SocketAddr = needed("listen", get("listen", &args.listen), "--listen 127.0.0.1:8377")?;
    if args.dev && !listen.ip().is_loopback() {
        return Err(
            Problem::usage(format!("--dev lets in everybody who reaches {listen}"))
                .hint("listen on 127.0.0.1, or leave --dev away and use keys"),
        );
    }
    let places = read("places", get("places", &args.places), "--places 16")?;
    let ordinary = places.map_or_else(GateSettings::default, GateSettings::of);
    let gate = GateSettings {
        share: read("share", get("share", &args.share), "--share 12")?.unwrap_or(ordinary.share),
        queue: needed("queue", get("queue", &args.queue), "--queue 1000")?,
        ..ordinary
    };
    for (name, value) in [("places", gate.places), ("share", gate.share)] {
        if value == 0 {
            return Err(Problem::usage(format!("{name} must be 1 or more")).hint("nothing would ever run"));
        }
    }
    let drain: Seconds = needed("drain", get("drain", &args.drain), "--drain 30s")?;
    let keep_results: Seconds = needed(
        "keep_results",
        get("keep_results", &args.keep_results),
        "--keep-results 1h",
    )?;
    let largest_body: Bytes = needed("max_body", get("max_body", &args.max_body), "--max-body 32M")?;
    let approval_time: Seconds = needed(
        "approval_time",
        get("approval_time", &args.approval_time),
        "--approval-time 1h",
    )?;
    let retention: Option<Seconds> = read(
        "retention",
        get("retention", &args.retention),
        "--retention 2160h",
    )?;
    let webhook = webhook(get("webhook", &args.webhook), get("webhook_secret", &None))?;
    let log = match get("log", &args.log).map(|valued| valued.text).as_deref() {
        Some("json") => LogForm::Json,
        Some("text") | None => LogForm::Text,
        Some(other) => {
            let message = format!("log: `{other}` is not a form that the log has");
            return Err(Problem::usage(message).hint("use text or json"));
        }
    };
    let policies = match get("policies", &args.policies) {
        Some(directory) => policy_files(Path::new(&directory.text))?,
        None => Vec::new(),
    };
    let allowed = (!args.allowed_host.is_empty()).then(|| args.allowed_host.join(","));
    Ok(ServeSettings {
        listen,
        otlp: get("otlp", &args.otlp).map(|valued| valued.text),
        service: Settings {
            store: store(get("store", &args.store))?,
            gate,
            callers: if args.dev {
                Callers::Anyone
            } else {
                Callers::WithKeys
            },
            policies,
            keep_results: keep_results.duration(),
            retention: retention.map(Seconds::duration),
            sessions: needed("sessions", get("sessions", &args.sessions), "--sessions 1000")?,
            approval_time: approval_time.duration(),
            webhook,
        },
        limits: http::Limits {
            ending: drain.duration(),
            ..http::Limits::default()
        },
        allowed_hosts: allowed_hosts(config.get("allowed_host", allowed.as_deref()))?,
        largest_body: usize::try_from(largest_body.get()).unwrap_or(usize::MAX),
        log,
    })
}

/// The names that `Host` may have, from a list with commas.
fn allowed_hosts(valued: Option<Valued>) -> Result<Vec<http::AllowedHost>, Problem> {
    let Some(Valued { text, origin }) = valued else {
        return Ok(Vec::new());
    };
    let read = |name: &str| {
        name.trim().parse().map_err(|error: http::AllowedHostError| {
            Problem::usage(format!(
                "allowed_host ({origin}): `{}`: {error}",
                name.escape_debug()
            ))
            .hint("for example --allowed-host api.example.com")
        })
    };
    text.split(',').map(read).collect()
}

/// Who is told of what waits for approval.
fn webhook(url: Option<Valued>, secret: Option<Valued>) -> Result<Option<Webhook>, Problem> {
    match (url, secret) {
        (None, _) => Ok(None),
        (Some(url), Some(secret)) => Ok(Some(Webhook {
            url: url.text,
            secret: secret.text.into(),
        })),
        (Some(_), None) => Err(Problem::usage("a webhook needs a secret that signs its messages")
            .hint("set BELLJAR_WEBHOOK_SECRET, or webhook_secret in belljar.toml")),
    }
}

/// Where the store is: a file in the data directory unless said.
pub(crate) fn store(said: Option<Valued>) -> Result<Place, Problem> {
    match said {
        Some(valued) => valued
            .text
            .parse()
            .map_err(|error: belljar_server::store::StoreError| {
                let problem = Problem::usage(format!("store ({}): {error}", valued.origin));
                match error.hint() {
                    Some(hint) => problem.hint(hint),
                    None => problem,
                }
            }),
        None => {
            let home = belljar_engine::home().ok_or_else(|| {
                Problem::usage("there is no place for a store")
                    .hint("set HOME or BELLJAR_HOME, or name one with --store")
            })?;
            Ok(Place::Sqlite(home.join("belljar.db")))
        }
    }
}

fn read<T>(name: &str, valued: Option<Valued>, example: &str) -> Result<Option<T>, Problem>
where
    T: FromStr,
    T::Err: Display,
{
    let Some(Valued { text, origin }) = valued else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|error: T::Err| {
        Problem::usage(format!("{name} ({origin}): `{text}`: {error}")).hint(format!("for example {example}"))
    })
}

fn needed<T>(name: &str, valued: Option<Valued>, example: &str) -> Result<T, Problem>
where
    T: FromStr,
    T::Err: Display,
{
    read(name, valued, example)?.ok_or_else(|| Problem::usage(format!("{name} is not said")))
}

/// Every policy file of a directory.
fn policy_files(directory: &Path) -> Result<Vec<Policy>, Problem> {
    let unreadable = |error: std::io::Error| {
        Problem::usage(format!("cannot read {}: {error}", directory.display()))
            .hint("name a directory of policy files")
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut policies: Vec<Policy> = Vec::new();
    for path in paths {
        let policy = load::policy_file(&path)?;
        let taken = policies.iter().any(|other| other.policy_id == policy.policy_id);
        if taken || Policy::BUILTIN.contains(&policy.policy_id.as_str()) {
            let message = format!(
                "{}: there is a policy `{}` already",
                path.display(),
                policy.policy_id
            );
            return Err(Problem::usage(message).hint("give it a policy_id of its own"));
        }
        policies.push(policy);
    }
    Ok(policies)
}
