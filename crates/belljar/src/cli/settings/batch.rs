//! What `belljar batch …` means.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use belljar::batch::{Batch, Lines};
use belljar::{Demand, Policy, Request, narrow_commands};

use belljar_server::client::Client;
use rustix::process::{Resource, getrlimit};

use super::super::args::BatchArgs;
use super::super::problem::Problem;
use super::{Here, caller, commands_are_for_us, inputs, limits, own_stdin, service, trust_is_for_us};

/// The most lines that may run at once.
const MOST_JOBS: usize = 1024;
/// Descriptors that belljar itself needs, and those for each line that runs: about six, more while
/// its sandbox is made.
const OWN_DESCRIPTORS: u64 = 64;
const JOB_DESCRIPTORS: u64 = 16;

/// All that `batch` needs to go ahead.
#[derive(Debug)]
pub(crate) struct BatchSettings {
    pub(crate) batch: Batch,
    /// Who runs it instead of this machine, and under which of their policies.
    pub(crate) service: Option<(Client, Option<String>)>,
    /// How many files this process must be able to have open.
    pub(crate) descriptors: u64,
    pub(crate) lines: Lines<File>,
    /// How large the input is, where that can be known.
    pub(crate) size: Option<u64>,
    pub(crate) output: PathBuf,
    pub(crate) restart: bool,
    pub(crate) quiet: bool,
}

pub(crate) fn batch(args: &BatchArgs, here: &Here) -> Result<BatchSettings, Problem> {
    let mut defaults = Request::command(Vec::new());
    defaults.env = inputs::variables(&args.env)?;
    defaults.mounts = inputs::mounts(&args.mount, &here.directory)?;
    defaults.limits = limits::read(&args.limits)?;
    defaults.network = args
        .network
        .as_deref()
        .map(|word| inputs::word(word, "--network"))
        .transpose()?;
    defaults.hosts = inputs::hosts(&args.allow_host)?;
    inputs::wall(&args.wall, &mut defaults)?;
    for word in &args.require {
        defaults
            .controls
            .insert(inputs::word(word, "--require")?, Demand::Require);
    }
    defaults.check_paths = args.check_paths;
    defaults.caller = caller(&args.caller);
    let jobs = jobs(args.jobs.as_deref(), most_jobs())?;
    let service = service(&args.by)?;
    let batch = Batch::new().jobs(jobs);
    let batch = match &service {
        Some(_) if !args.allow_command.is_empty() => return Err(commands_are_for_us()),
        Some(_) if defaults.approved => return Err(trust_is_for_us()),
        Some(_) => batch.defaults(defaults),
        None => by_us(batch, defaults, args)?,
    };
    let (input, size) = input(&args.input)?;
    same_file(&input, args)?;
    Ok(BatchSettings {
        batch,
        service: service.map(|client| (client, args.policy.clone())),
        descriptors: OWN_DESCRIPTORS + JOB_DESCRIPTORS * jobs as u64,
        lines: Lines::new(input),
        size,
        output: args.output.clone(),
        restart: args.restart,
        quiet: args.quiet,
    })
}

fn by_us(batch: Batch, defaults: Request, args: &BatchArgs) -> Result<Batch, Problem> {
    // What no line could have is better told once than on every line.
    let mut narrowed = match &args.policy {
        Some(name) => belljar::load::policy(name)?,
        None => Policy::for_owner(&defaults).map_err(|error| limits::beyond(&error))?,
    };
    let policy = args.policy.is_some().then(|| narrowed.clone());
    narrow_commands(&mut narrowed, args.allow_command.clone())?;
    let batch = batch
        .allowed_commands(args.allow_command.clone())
        .defaults(defaults);
    Ok(match policy {
        Some(policy) => batch.policy(policy),
        None => batch,
    })
}

/// As many lines at once as this process may have files open for.
fn most_jobs() -> usize {
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let jobs = files.saturating_sub(OWN_DESCRIPTORS) / JOB_DESCRIPTORS;
    usize::try_from(jobs).unwrap_or(usize::MAX).clamp(1, MOST_JOBS)
}

fn jobs(text: Option<&str>, most: usize) -> Result<usize, Problem> {
    let Some(text) = text else {
        return Ok(std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(most));
    };
    match text.parse() {
        Ok(jobs) if (1..=most).contains(&jobs) => Ok(jobs),
        Ok(jobs) if (1..=MOST_JOBS).contains(&jobs) => Err(Problem::usage(format!(
            "--jobs: {jobs} lines at once need more open files than this process may have"
        ))
        .hint(format!("ask for at most {most}, or allow more with `ulimit -Hn`"))),
        _ => Err(
            Problem::usage(format!("--jobs: `{text}` is not a number from 1 to {MOST_JOBS}"))
                .hint("for example --jobs 8"),
        ),
    }
}

fn input(path: &Path) -> Result<(File, Option<u64>), Problem> {
    if path.as_os_str() == "-" {
        return own_stdin().map(|file| (file, None));
    }
    let unreadable = |why: String| {
        Problem::usage(format!("cannot read {}: {why}", path.display()))
            .hint("name a file with one JSON object on each line, or - for standard input")
    };
    let mut file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let found = file.metadata().map_err(|error| unreadable(error.to_string()))?;
    if found.is_dir() {
        return Err(unreadable("it is a directory".to_owned()));
    }
    // What cannot be read at all shows here rather than in the middle.
    file.read(&mut [])
        .map_err(|error| unreadable(error.to_string()))?;
    Ok((file, found.is_file().then_some(found.len())))
}

/// Answers written over the requests would leave neither.
fn same_file(input: &File, args: &BatchArgs) -> Result<(), Problem> {
    use std::os::unix::fs::MetadataExt;
    let identity = |found: std::fs::Metadata| (found.is_file(), found.dev(), found.ino());
    let input = input.metadata().map(identity).ok();
    let output = std::fs::metadata(&args.output).map(identity).ok();
    if input.is_some_and(|(is_file, ..)| is_file) && input == output {
        return Err(Problem::usage(format!(
            "{} is both the input and the output",
            args.output.display()
        ))
        .hint("give -o another name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_bounded_by_what_may_be_open() {
        assert_eq!(jobs(Some("7"), 1024), Ok(7));
        assert!(jobs(None, 1).is_ok_and(|jobs| jobs == 1));
        for bad in ["0", "-1", "x", "", "1025", "1.5"] {
            assert!(
                jobs(Some(bad), 1024)
                    .unwrap_err()
                    .message
                    .contains("from 1 to 1024"),
                "{bad}"
            );
        }
        let error = jobs(Some("8"), 7).unwrap_err();
        assert!(error.message.contains("need more open files"));
        assert!(error.hint.is_some_and(|hint| hint.contains("at most 7")));
    }
}
