//! The arguments of commands that look at a service and manage it.

use clap::{Args, Subcommand, ValueEnum};

use super::examples;

/// Which service: one that is reached by its URL, or this machine's own store.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServiceArgs {
    /// The service to ask, such as http://127.0.0.1:8377; without it or BELLJAR_URL, the store of this machine
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The key for it; better in BELLJAR_KEY, where other users cannot see it
    #[arg(long, global = true, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// The store to open where there is no URL: a file, or a postgres:// URL
    #[arg(long, global = true, value_name = "FILE|URL", conflicts_with = "url")]
    pub(crate) store: Option<String>,
    /// The configuration file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<String>,
    /// Print JSON instead of a table
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Make, list and revoke keys of a service
///
/// A key has roles: `run` runs code, `read` sees records and policies, `approve` decides about what waits, `admin` does
/// all of that and manages keys. It is for one tenant, or without one for all.
#[derive(Debug, Args)]
#[command(after_help = examples::KEYS)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) command: KeysCommand,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key; it is shown this once
    Create {
        /// What it may do: run, read, approve or admin; can be given more than once
        #[arg(long = "role", required = true, value_name = "ROLE")]
        roles: Vec<String>,
        /// The tenant that it is for; all without it
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// A policy that it may name; any without it
        #[arg(long = "policy", value_name = "POLICY")]
        policies: Vec<String>,
        /// How long it is valid, such as 12h
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        /// What it is for, to tell it from others
        #[arg(long, default_value = "", value_name = "TEXT")]
        name: String,
    },
    /// List the keys, without their secrets
    List,
    /// Revoke a key: from then on it opens nothing
    Revoke {
        /// Its id, as `list` shows it
        id: String,
    },
}

/// Add and list the tenants of a service
#[derive(Debug, Args)]
pub(crate) struct TenantsArgs {
    #[command(subcommand)]
    pub(crate) command: TenantsCommand,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantsCommand {
    /// Add a tenant
    Create {
        /// Its id: letters, digits, `-`, `_` and `.`, and neither `.` nor `-` first
        id: String,
        /// What it is called
        #[arg(long, default_value = "", value_name = "TEXT")]
        name: String,
    },
    /// List the tenants
    List,
}

/// Which records.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RecordFilterArgs {
    /// Of this tenant
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// Of this user
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Of this run
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Under this policy
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Option<String>,
    /// In this language
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) language: Option<String>,
    /// With this status: completed, failed, timeout or killed
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<String>,
    /// Not older than this, such as 24h
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
}

/// Look at what a service ran and refused
#[derive(Debug, Args)]
#[command(after_help = examples::RECORDS)]
pub(crate) struct RecordsArgs {
    /// One record, by its id
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) filter: RecordFilterArgs,
    /// How many at most
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

/// Show figures over what a service ran
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) filter: RecordFilterArgs,
    /// Divide the time into pieces of this length, such as 1h
    #[arg(long, value_name = "TIME")]
    pub(crate) bucket: Option<String>,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

/// See what waits for approval, and decide
#[derive(Debug, Args)]
#[command(after_help = examples::APPROVALS)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ApprovalsCommand>,
    /// Keep looking, and tell what comes and what becomes of it
    #[arg(long)]
    pub(crate) watch: bool,
    /// In this state: pending, granted, denied, expired, withdrawn, or all
    #[arg(long, default_value = "pending", value_name = "STATE")]
    pub(crate) state: String,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// Show one, with its code and what it asks for
    Show {
        /// The approval
        id: String,
    },
    /// Say yes: what waits goes on
    Grant {
        /// The approval
        id: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Say no: what waits is refused
    Deny {
        /// The approval
        id: String,
        /// Why not
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

/// Verify, export and shorten the audit of a service
///
/// Every execution, denial, decision and change of keys and policies is an entry, and each entry is bound to the one
/// before by a hash. Who keeps the head elsewhere can tell later whether anything before it was changed.
#[derive(Debug, Args)]
#[command(after_help = examples::AUDIT)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) command: AuditCommand,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Read all entries; the first that was changed, removed or moved is named, and the exit code is 1
    Verify {
        /// A head that was kept elsewhere, which must be part of the chain
        #[arg(long, value_name = "SEQ:HASH")]
        expect: Option<String>,
    },
    /// Print the last entry's place and hash, to be kept elsewhere
    Head,
    /// Print all entries
    Export {
        /// jsonl: entries as they were hashed, one on each line; csv: one row for each record
        #[arg(long, value_enum, default_value_t = ExportForm::Jsonl)]
        format: ExportForm,
    },
    /// Remove entries that are older than a time; what stays can still be proved
    Forget {
        /// How old, such as 2160h
        #[arg(long, value_name = "TIME")]
        older_than: String,
    },
}

/// The form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportForm {
    Jsonl,
    Csv,
}
