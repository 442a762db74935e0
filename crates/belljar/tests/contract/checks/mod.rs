//! The checks, by what they are about.

mod escapes;
mod files;
mod lifecycle;
mod limits;
mod network;
mod programs;
mod receipts;
mod sessions;

use std::pin::Pin;

use belljar::{ExecuteIo, Execution, Language, Policy, Request};

use super::subject::{Promise, Subject};

pub(crate) type Outcome = Result<(), String>;
type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// One thing that a user can count on.
pub(crate) struct Check {
    pub name: &'static str,
    pub promise: Promise,
    /// Whether it is about something that is held back: then a wall that holds nothing must fail it.
    pub holds_back: bool,
    pub run: for<'a> fn(&'a Subject) -> Running<'a>,
}

/// Declares checks: `name => promise, holds | tells, function;`
macro_rules! checks {
    ($($name:literal => $promise:ident, $kind:ident, $path:path;)+) => {
        pub(crate) const CHECKS: &[Check] = &[$(Check {
            name: $name,
            promise: Promise::$promise,
            holds_back: checks!(@ $kind),
            run: |subject| Box::pin($path(subject)),
        }),+];
    };
    (@ holds) => { true };
    (@ tells) => { false };
}

checks! {
    "exit code 0 is completed" => Always, tells, programs::completed;
    "another exit code is failed, and told" => Always, tells, programs::exit_code;
    "a signal is told" => Always, tells, programs::signal;
    "a program that is not there is told" => Always, tells, programs::not_there;
    "stdin arrives whole" => Always, tells, programs::stdin;
    "no stdin is at its end" => Always, tells, programs::no_stdin;
    "arguments and variables arrive as they are" => Always, tells, programs::arguments;
    "nothing of the host's environment is there" => Always, holds, programs::clean_environment;
    "output is bytes" => Always, tells, programs::bytes;
    "output beyond its limit is dropped and marked" => Always, holds, limits::output;
    "a shell script runs" => Always, tells, programs::shell;
    "JavaScript runs" => Always, tells, programs::javascript;
    "files go in, with directories and modes" => Always, tells, files::go_in;
    "files come out, and nothing else does" => Always, tells, files::come_out;
    "links out of the work directory are not followed" => Always, holds, files::links;
    "a large file goes both ways" => Always, tells, files::large;
    "a read-only policy lets nothing be written" => Wall, holds, files::read_only;
    "a mount can be read and not written" => Mounts, holds, files::mount_read_only;
    "a writable mount is written to" => Mounts, tells, files::mount_writable;
    "the clock ends a program" => Always, holds, limits::wall_time;
    "CPU time ends a program, its children's with it" => Always, holds, limits::cpu_time;
    "memory ends a program" => Bounds, holds, limits::memory;
    "processes are bounded" => Bounds, holds, limits::processes;
    "a file's size is bounded" => Always, holds, limits::file_size;
    "open files are bounded" => Always, holds, limits::open_files;
    "the disk is bounded" => Disk, holds, limits::disk;
    "what was used is told" => Always, tells, limits::usage;
    "network none reaches nothing" => Wall, holds, network::none;
    "network local is a loopback of its own" => Wall, holds, network::local;
    "a session keeps its state" => Always, tells, sessions::state;
    "exceptions are typed" => Always, tells, sessions::exceptions;
    "host tools are called, also many at once" => Always, tells, sessions::tools;
    "displays come with the outcome" => Always, tells, sessions::displays;
    "large values go both ways" => Always, tells, sessions::large_values;
    "an interrupt leaves the state" => Always, tells, sessions::interrupt;
    "a reset forgets variables and keeps files" => Always, tells, sessions::reset;
    "a cell beyond its time is ended, and the session goes on" => Always, holds, sessions::timeout;
    "an interpreter that dies is told, and the next one starts" => Always, tells, sessions::death;
    "a session's files can be put, read, listed, deleted" => Always, tells, sessions::files;
    "JavaScript has sessions" => Always, tells, sessions::javascript;
    "a program that is stopped is killed" => Always, tells, lifecycle::stopped;
    "what a program leaves running is ended" => Always, holds, lifecycle::left_running;
    "a sandbox that is dropped ends" => Always, holds, lifecycle::dropped;
    "sandboxes do not meet" => Wall, holds, lifecycle::apart;
    "many run at once" => Always, tells, lifecycle::many;
    "a sandbox that is kept runs one thing after another" => Always, tells, lifecycle::kept;
    "the receipt names the provider and what held" => Always, tells, receipts::names;
    "what is required and missing is a denial" => Always, holds, receipts::required;
    "the host's files are not there" => Wall, holds, escapes::host_files;
    "the host's processes are not there" => Wall, holds, escapes::host_processes;
    "what runs the guest cannot be ended or looked into" => Wall, holds, escapes::keeper;
    "no privileges are left" => Wall, holds, escapes::privileges;
    "the root cannot be written" => Wall, holds, escapes::root;
    "kernel surfaces are closed" => Wall, holds, escapes::kernel;
}

/// Fails a check with a text.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}
pub(crate) use ensure;

/// Runs a request as its own owner would.
pub(crate) async fn run_with(
    subject: &Subject,
    request: Request,
    change: impl FnOnce(&mut Policy),
    io: ExecuteIo<'_>,
) -> Result<Execution, String> {
    let request = subject.asked(request);
    let mut policy = Policy::for_owner(&request).map_err(|error| error.to_string())?;
    change(&mut policy);
    let run = subject.engine.execute(&policy, &request, io).await;
    run.map_err(|error| format!("it did not run: {error}"))
}

pub(crate) async fn run(subject: &Subject, request: Request) -> Result<Execution, String> {
    run_with(subject, request, |_| {}, ExecuteIo::default()).await
}

pub(crate) fn python(code: &str) -> Request {
    Request::code(Language::Python, code.as_bytes())
}

/// What a Python program printed, where it ended well.
pub(crate) async fn printed(subject: &Subject, code: &str) -> Result<String, String> {
    printed_by(subject, python(code)).await
}

pub(crate) async fn printed_by(subject: &Subject, request: Request) -> Result<String, String> {
    let run = run(subject, request).await?;
    let outcome = &run.outcome;
    ensure!(
        outcome.exit_code == Some(0),
        "it ended with {:?} {:?} {:?}: {}",
        outcome.status,
        outcome.exit_code,
        outcome.error,
        outcome.stderr.text()
    );
    Ok(outcome.stdout.text())
}
