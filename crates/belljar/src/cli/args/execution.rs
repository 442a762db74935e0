//! The arguments of `run` and `exec`.

use std::path::PathBuf;

use belljar::{Control, Language, NetworkPolicy, ProviderName};
use clap::Args;

use super::super::words::Words;
use super::examples;

/// Run a program in a sandbox of its own
///
/// Output is shown as it comes and the program's exit code is passed on. Only what is named here
/// goes in: no variable, file, descriptor or network of this machine reaches the program otherwise.
/// A piped standard input is passed on to it; a terminal is not, unless --stdin - says so.
#[derive(Debug, Default, Args)]
#[command(
    override_usage = "belljar run [OPTIONS] <FILE | -c CODE | -> [-- ARGS...]",
    after_help = examples::RUN,
    after_long_help = examples::run_long()
)]
pub(crate) struct RunArgs {
    /// The program to run, or - to read it from standard input
    #[arg(value_name = "FILE", conflicts_with = "code")]
    pub(crate) program: Option<PathBuf>,

    /// Code to run instead of a file; Python unless --lang says otherwise
    #[arg(short, long, value_name = "CODE", allow_hyphen_values = true)]
    pub(crate) code: Option<String>,

    /// The language; otherwise the file's ending or its #! line says
    #[arg(short, long, value_name = "LANGUAGE", value_parser = Words(|| words(Language::ALL, Language::word)))]
    pub(crate) lang: Option<String>,

    /// Arguments of the program, after --
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) args: Vec<String>,

    #[command(flatten)]
    pub(crate) execution: ExecutionArgs,
}

/// Run a command in a sandbox of its own
///
/// There is no shell between: a command is a program and its arguments. Written as one word it is
/// split as a shell would split it, and what only a shell could do is refused.
#[derive(Debug, Default, Args)]
#[command(
    override_usage = "belljar exec [OPTIONS] -- CMD [ARGS...]\n       belljar exec [OPTIONS] 'CMD ARGS...'",
    after_help = examples::EXEC,
    after_long_help = examples::exec_long()
)]
pub(crate) struct ExecArgs {
    /// The whole command in one word, quoted as for a shell
    #[arg(value_name = "LINE", conflicts_with = "argv")]
    pub(crate) line: Option<String>,

    /// The program and its arguments, after --
    #[arg(last = true, value_name = "CMD")]
    pub(crate) argv: Vec<String>,

    /// A program that may be started; no other may, once one is named (repeatable)
    #[arg(long, value_name = "NAME", help_heading = "Policy")]
    pub(crate) allow_command: Vec<String>,

    #[command(flatten)]
    pub(crate) execution: ExecutionArgs,
}

/// What both have in common.
#[derive(Debug, Default, Args)]
pub(crate) struct ExecutionArgs {
    /// Feed the program's standard input from a file, or from our own with -
    #[arg(long, value_name = "FILE|-", help_heading = "What goes in and out")]
    pub(crate) stdin: Option<PathBuf>,

    /// Set a variable; NAME alone copies that one from this environment (repeatable)
    #[arg(
        short,
        long,
        value_name = "NAME[=VALUE]",
        help_heading = "What goes in and out"
    )]
    pub(crate) env: Vec<String>,

    /// Copy a file into the work directory as PATH, from HOST or from the same name here (repeatable)
    #[arg(long, value_name = "PATH[=HOST]", help_heading = "What goes in and out")]
    pub(crate) file: Vec<String>,

    /// Unpack a .tar, .tar.gz or .zip into the work directory (repeatable)
    #[arg(long, value_name = "ARCHIVE", help_heading = "What goes in and out")]
    pub(crate) unpack: Vec<PathBuf>,

    /// Take PATH out of the work directory afterwards, to HOST or to its last name here (repeatable)
    #[arg(long, value_name = "PATH[=HOST]", help_heading = "What goes in and out")]
    pub(crate) out: Vec<String>,

    /// The environment to run in, as `belljar env create` made it [default: host]
    #[arg(short = 'E', long, value_name = "NAME", help_heading = "What goes in and out")]
    pub(crate) environment: Option<String>,

    /// Show a host directory or file to the program, read-only unless :rw (repeatable)
    #[arg(
        long,
        value_name = "HOST:GUEST[:ro|rw]",
        help_heading = "What goes in and out"
    )]
    pub(crate) mount: Vec<String>,

    /// What of the network it may reach: nothing, unless said
    #[arg(long, value_name = "NETWORK", value_parser = Words(|| words(NetworkPolicy::ALL, NetworkPolicy::word)),
          help_heading = "What goes in and out")]
    pub(crate) network: Option<String>,

    /// A host that it may reach by name, or all below one, on the ports of HTTP and HTTPS unless said (repeatable)
    #[arg(long, value_name = "HOST[:PORT]", help_heading = "What goes in and out")]
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

    /// Run nothing unless this control is in force (repeatable)
    #[arg(long, value_name = "CONTROL", value_parser = Words(|| words(Control::ALL, Control::word)),
          help_heading = "Policy")]
    pub(crate) require: Vec<String>,

    /// Refuse arguments that name places outside the work directory
    #[arg(long, help_heading = "Policy")]
    pub(crate) check_paths: bool,

    /// Print one JSON object at the end instead of the program's output as it comes
    #[arg(long, help_heading = "Report")]
    pub(crate) json: bool,

    /// Show on standard error which controls were in force
    #[arg(long, help_heading = "Report")]
    pub(crate) receipt: bool,

    #[command(flatten)]
    pub(crate) caller: CallerArgs,
}

/// What it runs behind.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Wall")]
pub(crate) struct WallArgs {
    /// The wall to run behind; venv is none. `belljar providers` lists those that are here [default: native, unless
    /// the policy wants more]
    #[arg(long, value_name = "PROVIDER", value_parser = Words(|| words(ProviderName::ALL, ProviderName::word)))]
    pub(crate) provider: Option<String>,

    /// The image to make the sandbox of, such as python:3.12-slim; for the provider docker
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,

    /// I have read this code: run it although there is no wall, or the policy wants it approved
    #[arg(long)]
    pub(crate) trust: bool,
}

/// Limits. Sizes take K, M, G; times take ms, s, m, h.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Memory of the whole sandbox [default: 256M]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) memory: Option<String>,

    /// Time on the clock [default: 30s, at most 300s without a policy]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) timeout: Option<String>,

    /// CPU time of all processes together [default: as long as the clock]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) cpu_seconds: Option<String>,

    /// Processes alive at once [default: 10]
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pub(crate) processes: Option<String>,

    /// Open files of one process [default: 256]
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pub(crate) open_files: Option<String>,

    /// Size of one file [default: 10M]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) file_size: Option<String>,

    /// Size of the sandbox's own file systems [default: 64M]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) disk: Option<String>,

    /// Bytes kept of each output stream, and of all files taken out [default: 16M]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) output_limit: Option<String>,

    /// Share of one CPU in percent [default: no share]
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    pub(crate) cpu_percent: Option<String>,
}

/// Who is asking, for the record.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Record")]
pub(crate) struct CallerArgs {
    /// The tenant to note in the record
    #[arg(long, value_name = "ID")]
    pub(crate) tenant: Option<String>,

    /// The user to note in the record
    #[arg(long, value_name = "ID")]
    pub(crate) user: Option<String>,

    /// The run to note in the record
    #[arg(long, value_name = "ID")]
    pub(crate) run_id: Option<String>,
}

pub(super) fn words<T: Copy>(all: &[T], word: fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().map(|value| word(*value)).collect()
}

/// Who does it, where that is not this machine.
#[derive(Debug, Default, Args)]
pub(crate) struct ByArgs {
    /// Have a service do it, such as http://127.0.0.1:8377; BELLJAR_URL says the same. Its policies hold then
    #[arg(long, value_name = "URL", help_heading = "Service")]
    pub(crate) url: Option<String>,

    /// The key for the service; better in BELLJAR_KEY, where other users cannot see it
    #[arg(long, value_name = "KEY", help_heading = "Service")]
    pub(crate) key: Option<String>,
}
