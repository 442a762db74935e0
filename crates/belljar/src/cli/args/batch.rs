//! The arguments of `batch`.

use std::path::PathBuf;

use belljar::{Control, NetworkPolicy};
use clap::Args;

use super::super::words::Words;
use super::execution::words;
use super::{ByArgs, CallerArgs, LimitArgs, WallArgs, examples};

/// Run many requests, one JSON object on each line
///
/// Every line runs in a sandbox of its own, some at a time, and has its answer on a line of OUT, in
/// the same order. A line with cases is compiled once and run once for each of them, each in a fresh
/// sandbox, with a verdict each. What is finished in OUT is kept: after an interruption the same
/// command goes on where it stopped. Memory stays bounded, however long the input is.
#[derive(Debug, Default, Args)]
#[command(after_help = examples::BATCH, after_long_help = examples::batch_long())]
pub(crate) struct BatchArgs {
    /// The requests, or - to read them from standard input
    #[arg(value_name = "FILE")]
    pub(crate) input: PathBuf,

    /// Where the answers go, or - for standard output, which cannot be resumed
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,

    /// How many lines run at once [default: one for each CPU]
    #[arg(short, long, value_name = "COUNT", allow_hyphen_values = true)]
    pub(crate) jobs: Option<String>,

    /// Begin anew and overwrite what is in OUT
    #[arg(long)]
    pub(crate) restart: bool,

    /// Show no progress and no summary
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Set a variable for every line; NAME alone copies that one from this environment (repeatable)
    #[arg(
        short,
        long,
        value_name = "NAME[=VALUE]",
        help_heading = "What every line has, unless it says otherwise"
    )]
    pub(crate) env: Vec<String>,

    /// Show a host directory or file to every line, read-only unless :rw (repeatable)
    #[arg(
        long,
        value_name = "HOST:GUEST[:ro|rw]",
        help_heading = "What every line has, unless it says otherwise"
    )]
    pub(crate) mount: Vec<String>,

    /// What of the network lines may reach: nothing, unless said
    #[arg(long, value_name = "NETWORK", value_parser = Words(|| words(NetworkPolicy::ALL, NetworkPolicy::word)),
          help_heading = "What every line has, unless it says otherwise")]
    pub(crate) network: Option<String>,

    /// A host that it may reach by name, or all below one, on the ports of HTTP and HTTPS unless said (repeatable)
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        help_heading = "What every line has, unless it says otherwise"
    )]
    pub(crate) allow_host: Vec<String>,

    #[command(flatten)]
    pub(crate) wall: WallArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    /// Hold everything that lines ask for against this policy; otherwise asking is enough
    #[arg(long, value_name = "NAME|FILE", help_heading = "Policy")]
    pub(crate) policy: Option<String>,

    #[command(flatten)]
    pub(crate) by: ByArgs,

    /// A program that commands may start; no other may, once one is named (repeatable)
    #[arg(long, value_name = "NAME", help_heading = "Policy")]
    pub(crate) allow_command: Vec<String>,

    /// Run nothing unless this control is in force (repeatable)
    #[arg(long, value_name = "CONTROL", value_parser = Words(|| words(Control::ALL, Control::word)),
          help_heading = "Policy")]
    pub(crate) require: Vec<String>,

    /// Refuse arguments that name places outside the work directory
    #[arg(long, help_heading = "Policy")]
    pub(crate) check_paths: bool,

    #[command(flatten)]
    pub(crate) caller: CallerArgs,
}
