//! The arguments of `belljar env`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples;

/// Make, list, show and remove environments
///
/// An environment is a Python with packages under a name. It is built once, in sandboxes, is never
/// changed afterwards, and programs see it read-only: `belljar run -E NAME`. Without one, a program
/// runs in `host`, with what this machine itself has.
#[derive(Debug, Args)]
#[command(after_help = examples::ENV)]
pub(crate) struct EnvArgs {
    #[command(subcommand)]
    pub(crate) command: EnvCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EnvCommand {
    Create(CreateArgs),
    Import(ImportArgs),
    /// List the environments
    List {
        /// Print a JSON array instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Show what is in an environment
    Show {
        /// The environment
        name: String,
        /// Read every file of it and compare with what was built
        #[arg(long)]
        verify: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove environments; one that something runs in is not removed
    Remove {
        /// The environments
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Make an environment of a root file system
///
/// Its programs and libraries are then all that a program sees: nothing of this machine's own. It works behind every wall: natively, with
/// gVisor, and with Docker as an image. Nothing in it is run while it is imported. What not everyone may read in it, and devices, are left out.
#[derive(Debug, Default, Args)]
#[command(after_help = examples::ENV_IMPORT)]
pub(crate) struct ImportArgs {
    /// Its name: letters, digits, -, _ and .
    pub(crate) name: String,

    /// A tar file with a root file system, gzip or not, or `-` for standard input; else the name of an image that Docker or Podman has
    pub(crate) source: String,

    /// The most that it may come to unpacked, such as 500M or 40G [default: 20G]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) max_size: Option<String>,

    /// The most files, links and directories that it may hold [default: 1000000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_entries: Option<String>,

    /// Put it in the place of the one that has the name
    #[arg(long)]
    pub(crate) replace: bool,

    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
}

/// Build an environment
#[derive(Debug, Default, Args)]
#[command(after_help = examples::ENV_CREATE)]
pub(crate) struct CreateArgs {
    /// Its name: letters, digits, -, _ and .
    pub(crate) name: String,

    /// The Python to base it on: a version, or the path of one [default: the one that host has]
    #[arg(long, value_name = "VERSION|PATH")]
    pub(crate) python: Option<String>,

    /// Packages, separated by commas: names with versions and extras, or wheel files (repeatable)
    #[arg(short, long, value_name = "PACKAGES", allow_hyphen_values = true)]
    pub(crate) packages: Vec<String>,

    /// Packages from a file, one on each line (repeatable)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) requirements: Vec<PathBuf>,

    /// Take packages from the wheels in this directory, and from nowhere else
    #[arg(long, value_name = "DIR")]
    pub(crate) wheels: Option<PathBuf>,

    /// Modules to import ahead of time, separated by commas; the build tries them (repeatable)
    #[arg(long, value_name = "MODULES", allow_hyphen_values = true)]
    pub(crate) preload: Vec<String>,

    /// Build the source archives among the packages, in a sandbox
    ///
    /// Building runs the package's own code. It gets no network and nothing of this machine; what it
    /// makes becomes part of the environment. From the index, wheels alone are taken all the same:
    /// even to ask a source archive what it needs is to run it.
    #[arg(long)]
    pub(crate) allow_build: bool,

    /// Put it in the place of the one that has the name
    #[arg(long)]
    pub(crate) replace: bool,

    /// Show all that the build prints
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
}

impl EnvCommand {
    pub(super) const fn wants_json(&self) -> bool {
        match self {
            Self::Create(args) => args.json,
            Self::Import(args) => args.json,
            Self::List { json } | Self::Show { json, .. } | Self::Remove { json, .. } => *json,
        }
    }
}
