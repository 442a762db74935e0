//! What was meant: names looked up, sizes read, files found, the policy loaded.
//!
//! Every usage error is found here, before anything is made, and each carries a hint.

mod batch;
pub(crate) mod environments;
mod inputs;
mod limits;
mod program;
mod serve;
mod session;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use belljar::environment::EnvironmentError;
use belljar::{
    Bytes, Caller, DEFAULT_TIMEOUT, Demand, EnvironmentName, Error, Policy, Request, Stdin, narrow_commands,
};
use belljar_engine::archive;
use belljar_server::client::Client;

use super::args::{ByArgs, CallerArgs, ExecArgs, ExecutionArgs, RunArgs};
use super::config::Config;
use super::problem::Problem;
pub(crate) use batch::{BatchSettings, batch};
pub(crate) use inputs::{Output, image};
pub(crate) use serve::{LogForm, ServeSettings, serve, store};
pub(crate) use session::{Directory, Mode, SessionSettings, session};

/// The most that is sent to a service of files that were packed.
const LARGEST_SENT: Bytes = Bytes::from_mib(24);

/// All that `run` and `exec` need to go ahead.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) request: Request,
    pub(crate) by: By,
    /// What the guest's standard input is fed from.
    pub(crate) input: Option<File>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) json: bool,
    pub(crate) receipt: bool,
}

/// Who runs it.
#[derive(Debug)]
pub(crate) enum By {
    /// This machine, held against a policy.
    Us(Box<Policy>),
    /// A service, held against a policy of its own.
    Service {
        client: Box<Client>,
        policy_id: Option<String>,
    },
}

/// Where the command was typed.
#[derive(Debug)]
pub(crate) struct Here {
    pub(crate) directory: PathBuf,
    pub(crate) stdin_is_terminal: bool,
}

impl Here {
    pub(crate) fn find() -> Result<Self, Problem> {
        let directory = std::env::current_dir().map_err(|error| {
            Problem::usage(format!("cannot tell the current directory: {error}"))
                .hint("cd into one that is there")
        })?;
        Ok(Self {
            directory,
            stdin_is_terminal: std::io::stdin().is_terminal(),
        })
    }
}

/// What `belljar run …` means.
pub(crate) fn run(args: Box<RunArgs>, here: &Here) -> Result<Settings, Problem> {
    let RunArgs {
        program,
        code,
        lang,
        execution,
        args,
    } = *args;
    let program = program::find(program, code, lang.as_deref(), execution.stdin.as_deref())?;
    let mut request = Request::code(program.language, program.code);
    request.args = args;
    resolve(request, execution, Vec::new(), program.came_from_stdin, here)
}

/// What `belljar exec …` means.
pub(crate) fn exec(args: Box<ExecArgs>, here: &Here) -> Result<Settings, Problem> {
    let ExecArgs {
        line,
        allow_command,
        execution,
        argv,
    } = *args;
    let argv = match line {
        None if argv.is_empty() => {
            return Err(
                Problem::usage("there is no command to run").hint("for example: belljar exec -- ls -la")
            );
        }
        None => argv,
        Some(line) => belljar_core::command::split(&line).map_err(Error::from)?,
    };
    resolve(Request::command(argv), execution, allow_command, false, here)
}

fn resolve(
    mut request: Request,
    args: ExecutionArgs,
    allow_command: Vec<String>,
    stdin_is_taken: bool,
    here: &Here,
) -> Result<Settings, Problem> {
    request.env = inputs::variables(&args.env)?;
    request.files = inputs::files(&args.file)?;
    request.mounts = inputs::mounts(&args.mount, &here.directory)?;
    request.environment = args
        .environment
        .as_deref()
        .map_or(Ok(None), EnvironmentName::unless_host)
        .map_err(|error| Error::from(EnvironmentError::from(error)))?;
    inputs::wall(&args.wall, &mut request)?;
    let outputs = inputs::outputs(&args.out)?;
    request.outputs = outputs.iter().map(|output| output.guest.clone()).collect();
    request.limits = limits::read(&args.limits)?;
    request.network = args
        .network
        .as_deref()
        .map(|word| inputs::word(word, "--network"))
        .transpose()?;
    request.hosts = inputs::hosts(&args.allow_host)?;
    for word in &args.require {
        request
            .controls
            .insert(inputs::word(word, "--require")?, Demand::Require);
    }
    request.check_paths = args.check_paths;
    request.caller = caller(&args.caller);

    let by = match service(&args.by)? {
        Some(_) if !allow_command.is_empty() => {
            return Err(commands_are_for_us());
        }
        Some(_) if request.approved => return Err(trust_is_for_us()),
        Some(client) => By::Service {
            client: Box::new(client),
            policy_id: args.policy.clone(),
        },
        None => By::Us(Box::new(policy_for(&args, &mut request, allow_command)?)),
    };
    let disk = match &by {
        By::Us(policy) => policy.limits.lowered(&request.limits).disk(),
        // Its policy decides; this keeps what is sent within what is read.
        By::Service { .. } => LARGEST_SENT,
    };
    unpack(&args.unpack, disk, &mut request)?;
    inputs::check_code_name(&request)?;

    let input = input(args.stdin.as_deref(), stdin_is_taken, here)?;
    if input.is_some() {
        request.stdin = Stdin::Stream;
    }
    Ok(Settings {
        request,
        by,
        input,
        outputs,
        json: args.json,
        receipt: args.receipt,
    })
}

/// The policy of this machine to hold it against.
fn policy_for(
    args: &ExecutionArgs,
    request: &mut Request,
    allow_command: Vec<String>,
) -> Result<Policy, Problem> {
    let mut policy = match &args.policy {
        Some(name) => belljar::load::policy(name)?,
        None => {
            request.limits.wall_time.get_or_insert(DEFAULT_TIMEOUT);
            Policy::for_owner(request).map_err(|error| limits::beyond(&error))?
        }
    };
    narrow_commands(&mut policy, allow_command)?;
    Ok(policy)
}

/// The service that was named, by an option, a variable or the configuration.
fn service(by: &ByArgs) -> Result<Option<Client>, Problem> {
    let config = Config::load(None)?;
    let Some(url) = config.get("url", by.url.as_deref()) else {
        return Ok(None);
    };
    let key = config.get("key", by.key.as_deref());
    let client = Client::remote(&url.text, key.as_ref().map(|key| key.text.as_str()))?;
    Ok(Some(client))
}

fn commands_are_for_us() -> Problem {
    Problem::usage("--allow-command is for runs on this machine")
        .hint("have it in a policy of the service, as allowed_commands")
}

fn trust_is_for_us() -> Problem {
    Problem::usage("--trust is for runs on this machine")
        .hint("leave it out: whoever may approve for the service is asked where that is needed")
}

/// Adds what is in the archives; together with everything else it must fit on the sandbox's disk.
fn unpack(archives: &[PathBuf], disk: Bytes, request: &mut Request) -> Result<(), Problem> {
    for path in archives {
        let files = archive::read(path, disk.get())
            .map_err(|error| Problem::usage(format!("--unpack: {error}")).hint(error.hint()))?;
        for (guest, file) in files {
            if request.files.insert(guest.clone(), file).is_some() {
                return Err(inputs::twice(guest.as_str()));
            }
        }
    }
    Ok(())
}

/// Where the guest's standard input comes from. A terminal is passed on only when asked for: one
/// that is read in the background stops the reader, and keys typed ahead are for the shell.
fn input(asked: Option<&Path>, stdin_is_taken: bool, here: &Here) -> Result<Option<File>, Problem> {
    match asked {
        Some(path) if path.as_os_str() == "-" => own_stdin().map(Some),
        Some(path) => {
            let unusable = |why: String| {
                Problem::usage(format!("--stdin: cannot read {}: {why}", path.display()))
                    .hint("name a file, or - for our own standard input")
            };
            let file = File::open(path).map_err(|error| unusable(error.to_string()))?;
            match file.metadata() {
                Ok(metadata) if metadata.is_dir() => Err(unusable("it is a directory".to_owned())),
                _ => Ok(Some(file)),
            }
        }
        None if stdin_is_taken || here.stdin_is_terminal => Ok(None),
        None => own_stdin().map(Some),
    }
}

fn own_stdin() -> Result<File, Problem> {
    std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map(File::from)
        .map_err(|error| Problem::engine(format!("cannot connect standard input: {error}")))
}

fn caller(args: &CallerArgs) -> Caller {
    Caller {
        tenant_id: args.tenant.clone(),
        user_id: args.user.clone(),
        run_id: args.run_id.clone(),
        ..Caller::default()
    }
}
