//! The arguments of `belljar config`.

use clap::{Args, Subcommand};

use super::examples;

/// Show the configuration, and where each value came from
///
/// A value is looked for among the options of a command, then in its variable, then in belljar.toml, and else is the
/// one that is built in. The file is the one that --config or BELLJAR_CONFIG names, else belljar.toml in the data
/// directory, else /etc/belljar/belljar.toml. The current directory does not count: whoever wrote what lies there need
/// not be you.
#[derive(Debug, Args)]
#[command(after_help = examples::CONFIG)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every value and where it came from
    Show {
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
        /// The configuration file
        #[arg(long, value_name = "FILE")]
        config: Option<String>,
    },
}
