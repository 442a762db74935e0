//! The arguments of `belljar serve`.

use clap::Args;

use super::examples;

/// Serve many callers over HTTP: keys, policies, quotas, records
///
/// Listens on this machine alone unless told otherwise, and makes an admin key when it starts for the first time: the
/// key is shown once. /docs of the service shows every request. Each option can also stand in belljar.toml or in a
/// variable, as `belljar config show` tells.
#[derive(Debug, Default, Args)]
#[command(after_help = examples::SERVE)]
pub(crate) struct ServeArgs {
    /// The address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
    /// Accept this host name in `Host`, such as api.example.com; can be repeated. localhost and loopback addresses are
    /// always accepted [default: no other name on a loopback address, every name on another one]
    #[arg(long, value_name = "NAME[:PORT]")]
    pub(crate) allowed_host: Vec<String>,
    /// Where records, keys and policies are kept: a file, or a postgres:// URL
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) store: Option<String>,
    /// A directory of policy files; callers can use them and not change them
    #[arg(long, value_name = "DIR")]
    pub(crate) policies: Option<String>,
    /// How many executions run at the same time
    #[arg(long, value_name = "N")]
    pub(crate) places: Option<String>,
    /// How many of them one tenant may have
    #[arg(long, value_name = "N")]
    pub(crate) share: Option<String>,
    /// How many requests of one tenant may wait; the next ones are told to come again
    #[arg(long, value_name = "N")]
    pub(crate) queue: Option<String>,
    /// How many sessions one tenant may have at once
    #[arg(long, value_name = "N")]
    pub(crate) sessions: Option<String>,
    /// The largest request that is read
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_body: Option<String>,
    /// How long what is running may take after the service was told to end
    #[arg(long, value_name = "TIME")]
    pub(crate) drain: Option<String>,
    /// How long results are kept that somebody comes for later
    #[arg(long, value_name = "TIME")]
    pub(crate) keep_results: Option<String>,
    /// How long entries of the audit are kept, such as 2160h; for ever unless said
    #[arg(long, value_name = "TIME")]
    pub(crate) retention: Option<String>,
    /// How long something waits for approval
    #[arg(long, value_name = "TIME")]
    pub(crate) approval_time: Option<String>,
    /// A URL that is told what waits for approval; BELLJAR_WEBHOOK_SECRET signs the messages
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,
    /// A collector that gets traces by OTLP over HTTP, such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// The log on standard error: text or json
    #[arg(long, value_name = "FORM")]
    pub(crate) log: Option<String>,
    /// Let everybody on this machine do everything without a key; only for trying it out
    #[arg(long)]
    pub(crate) dev: bool,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<String>,
}
