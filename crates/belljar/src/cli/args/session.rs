//! The arguments of `session`.

use std::path::PathBuf;

use belljar::{Control, NetworkPolicy};
use clap::Args;

use super::super::words::Words;
use super::execution::words;
use super::{ByArgs, CallerArgs, LimitArgs, WallArgs, examples};

/// Type code cell by cell, in an interpreter that stays
///
/// Variables and files stay from one cell to the next, in one sandbox that ends with the command. On a terminal there
/// is a prompt: Ctrl-C interrupts a cell and keeps its state, pictures are saved and named, `:help` lists
/// the commands. From a pipe or a file, all of standard input is one cell; with --json, other programs
/// drive the session line by line. Limits hold for each cell anew.
#[derive(Debug, Default, Args)]
#[command(after_help = examples::SESSION, after_long_help = examples::session_long())]
pub(crate) struct SessionArgs {
    /// The language [default: python]
    #[arg(short, long, value_name = "LANGUAGE", value_parser = Words(|| vec!["python", "javascript"]))]
    pub(crate) lang: Option<String>,

    /// Where pictures that cells show are saved [default: the current directory]
    #[arg(long, value_name = "DIR", conflicts_with = "json")]
    pub(crate) pictures: Option<PathBuf>,

    /// Neither read nor write what was typed in earlier sessions
    #[arg(long)]
    pub(crate) no_history: bool,

    /// Read one JSON object on each line, and answer with JSON lines as things happen
    #[arg(long)]
    pub(crate) json: bool,

    /// Set a variable; NAME alone copies that one from this environment (repeatable)
    #[arg(short, long, value_name = "NAME[=VALUE]", help_heading = "What goes in")]
    pub(crate) env: Vec<String>,

    /// Copy a file into the work directory as PATH, from HOST or from the same name here (repeatable)
    #[arg(long, value_name = "PATH[=HOST]", help_heading = "What goes in")]
    pub(crate) file: Vec<String>,

    /// Unpack a .tar, .tar.gz or .zip into the work directory (repeatable)
    #[arg(long, value_name = "ARCHIVE", help_heading = "What goes in")]
    pub(crate) unpack: Vec<PathBuf>,

    /// The environment to run in, as `belljar env create` made it [default: host]
    #[arg(short = 'E', long, value_name = "NAME", help_heading = "What goes in")]
    pub(crate) environment: Option<String>,

    /// Show a host directory or file to the code, read-only unless :rw (repeatable)
    #[arg(long, value_name = "HOST:GUEST[:ro|rw]", help_heading = "What goes in")]
    pub(crate) mount: Vec<String>,

    /// What of the network it may reach: nothing, unless said
    #[arg(long, value_name = "NETWORK", value_parser = Words(|| words(NetworkPolicy::ALL, NetworkPolicy::word)),
          help_heading = "What goes in")]
    pub(crate) network: Option<String>,

    /// A host that it may reach by name, or all below one, on the ports of HTTP and HTTPS unless said (repeatable)
    #[arg(long, value_name = "HOST[:PORT]", help_heading = "What goes in")]
    pub(crate) allow_host: Vec<String>,

    #[command(flatten)]
    pub(crate) wall: WallArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    /// Hold everything asked for against this policy; otherwise asking is enough
    #[arg(long, value_name = "NAME|FILE", help_heading = "Policy")]
    pub(crate) policy: Option<String>,

    #[command(flatten)]
    pub(crate) by: ByArgs,

    /// The only modules that Python code may import, with commas between; for honest code (repeatable)
    #[arg(long, value_name = "MODULES", value_delimiter = ',', help_heading = "Policy")]
    pub(crate) allow_import: Vec<String>,

    /// Run nothing unless this control is in force (repeatable)
    #[arg(long, value_name = "CONTROL", value_parser = Words(|| words(Control::ALL, Control::word)),
          help_heading = "Policy")]
    pub(crate) require: Vec<String>,

    #[command(flatten)]
    pub(crate) caller: CallerArgs,
}
