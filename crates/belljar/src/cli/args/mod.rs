//! What was typed, as clap reads it. Nothing is looked up or judged here.

mod batch;
mod config;
mod environments;
pub(crate) mod examples;
mod execution;
mod serve;
mod service;
mod session;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use batch::BatchArgs;
pub(crate) use config::{ConfigArgs, ConfigCommand};
pub(crate) use environments::{CreateArgs, EnvArgs, EnvCommand, ImportArgs};
pub(crate) use execution::{ByArgs, CallerArgs, ExecArgs, ExecutionArgs, LimitArgs, RunArgs, WallArgs};
pub(crate) use serve::ServeArgs;
pub(crate) use service::{
    ApprovalsArgs, ApprovalsCommand, AuditArgs, AuditCommand, ExportForm, KeysArgs, KeysCommand,
    RecordFilterArgs, RecordsArgs, ServiceArgs, StatsArgs, TenantsArgs, TenantsCommand,
};
pub(crate) use session::SessionArgs;

/// Run code that nobody has read yet, under glass
///
/// belljar runs a program in a sandbox of its own: no network, no files but its own, bounded
/// memory, time and processes. It shows what the program did and lets nothing out.
#[derive(Debug, Parser)]
#[command(name = "belljar", version, after_help = examples::TOP, after_long_help = examples::top_long())]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
    Exec(Box<ExecArgs>),
    Session(Box<SessionArgs>),
    Batch(Box<BatchArgs>),
    Doctor(DoctorArgs),
    Providers(ProvidersArgs),
    Env(EnvArgs),
    Policy(PolicyArgs),
    Serve(ServeArgs),
    Keys(KeysArgs),
    Tenants(TenantsArgs),
    Records(RecordsArgs),
    Stats(StatsArgs),
    Approvals(ApprovalsArgs),
    Audit(AuditArgs),
    Config(ConfigArgs),
    Languages(LanguagesArgs),
    Completions(CompletionsArgs),
    Embedded(EmbeddedArgs),
    /// Print the whole command line as Markdown
    #[command(hide = true)]
    Reference,
}

/// Show what this machine gives, control by control
///
/// Each control is shown with its version or form; a missing one with what that means and how to
/// get it. Ends with 0 when sandboxes can be made here, with 1 when something essential is missing.
#[derive(Debug, Args)]
#[command(after_help = examples::DOCTOR)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the walls: which are here, how long a start takes, what each holds
///
/// A policy says how strong a wall has to be, and which it prefers; --provider names one. What a wall does not
/// hold is shown with what that means. Each that is here runs `print(1)` two times, and the second is shown.
#[derive(Debug, Args)]
#[command(after_help = examples::PROVIDERS)]
pub(crate) struct ProvidersArgs {
    /// Print a JSON array instead of a table
    #[arg(long)]
    pub(crate) json: bool,

    /// Run nothing, and show no times
    #[arg(long)]
    pub(crate) no_measure: bool,

    /// The image to measure docker with; without one it is not measured
    #[arg(long, value_name = "IMAGE", conflicts_with = "no_measure")]
    pub(crate) image: Option<String>,
}

/// List, show and check policies
///
/// A policy says what a run may do: its limits, languages, network, files and controls. Four are
/// built in; your own are TOML files.
#[derive(Debug, Args)]
#[command(after_help = examples::POLICY)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// List the built-in policies
    List {
        /// Print a JSON array instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Print a policy as TOML, complete, to read or to start your own from
    Show {
        /// The name of a built-in policy, or a TOML file
        #[arg(value_name = "NAME|FILE")]
        policy: String,
        /// Print one JSON object instead of TOML
        #[arg(long)]
        json: bool,
    },
    /// Check a policy file; an error names file, line and field
    Check {
        /// The TOML file
        file: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Define a policy of a service, or a new version of it, from a file
    Define {
        /// The TOML file
        file: PathBuf,
        #[command(flatten)]
        service: ServiceArgs,
    },
    /// Delete a policy of a service; records can still name its versions
    Delete {
        /// Its id
        policy: String,
        #[command(flatten)]
        service: ServiceArgs,
    },
}

/// List the languages, and what of them this machine has
#[derive(Debug, Args)]
#[command(after_help = examples::LANGUAGES)]
pub(crate) struct LanguagesArgs {
    /// Print a JSON array instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// The engine of another program, which started it with a socket as its standard input
///
/// For SDKs. It serves the same as `belljar serve`, on connections that come over that socket and nowhere else, for
/// as long as the program lives.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct EmbeddedArgs {
    /// The process that it belongs to
    #[arg(long)]
    pub(crate) parent: u32,
}

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = examples::COMPLETIONS)]
pub(crate) struct CompletionsArgs {
    /// The shell to complete in
    pub(crate) shell: Shell,
}

impl Command {
    /// Whether errors, too, are to be told as JSON.
    pub(crate) const fn wants_json(&self) -> bool {
        match self {
            Self::Run(args) => args.execution.json,
            Self::Exec(args) => args.execution.json,
            Self::Doctor(args) => args.json,
            Self::Providers(args) => args.json,
            Self::Languages(args) => args.json,
            Self::Env(args) => args.command.wants_json(),
            Self::Keys(args) => args.service.json,
            Self::Tenants(args) => args.service.json,
            Self::Records(args) => args.service.json,
            Self::Stats(args) => args.service.json,
            Self::Approvals(args) => args.service.json,
            Self::Audit(args) => args.service.json,
            Self::Config(args) => match args.command {
                ConfigCommand::Show { json, .. } => json,
            },
            Self::Policy(args) => match &args.command {
                PolicyCommand::Define { service, .. } | PolicyCommand::Delete { service, .. } => service.json,
                PolicyCommand::List { json }
                | PolicyCommand::Show { json, .. }
                | PolicyCommand::Check { json, .. } => *json,
            },
            // A session tells its errors itself, as JSON on one line.
            Self::Session(_)
            | Self::Batch(_)
            | Self::Serve(_)
            | Self::Embedded(_)
            | Self::Completions(_)
            | Self::Reference => false,
        }
    }
}
