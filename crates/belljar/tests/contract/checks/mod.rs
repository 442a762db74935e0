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
    pub kind: Kind,
    pub run: for<'a> fn(&'a Subject) -> Running<'a>,
}

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Something is told as it is.
    Tells,
    /// Something is held back: a wall that holds nothing must fail it.
    Holds,
    /// The same, but a wall that holds nothing would let it hurt the machine. The tests of escapes show each with its wall removed.
    Hurts,
}

/// Declares checks: `name => promise, Holds | Tells | Hurts, function;`
macro_rules! checks {
    ($($name:literal => $promise:ident, $kind:ident, $path:path;)+) => {
        pub(crate) const CHECKS: &[Check] = &[$(Check {
            name: $name,
            promise: Promise::$promise,
            kind: Kind::$kind,
            run: |subject| Box::pin($path(subject)),
        }),+];
    };
}

checks! {
    "exit code 0 is completed" => Always, Tells, programs::completed;
    "another exit code is failed, and told" => Always, Tells, programs::exit_code;
    "a signal is told" => Always, Tells, programs::signal;
    "a program that is not there is told" => Always, Tells, programs::not_there;
    "stdin arrives whole" => Always, Tells, programs::stdin;
    "no stdin is at its end" => Always, Tells, programs::no_stdin;
    "arguments and variables arrive as they are" => Always, Tells, programs::arguments;
    "nothing of the host's environment is there" => Always, Holds, programs::clean_environment;
    "output is bytes" => Always, Tells, programs::bytes;
    "output beyond its limit is dropped and marked" => Always, Holds, limits::output;
    "a shell script runs" => Always, Tells, programs::shell;
    "JavaScript runs" => Always, Tells, programs::javascript;
    "files go in, with directories and modes" => Always, Tells, files::go_in;
    "files come out, and nothing else does" => Always, Tells, files::come_out;
    "links out of the work directory are not followed" => Always, Holds, files::links;
    "a large file goes both ways" => Always, Tells, files::large;
    "a read-only policy lets nothing be written" => Wall, Holds, files::read_only;
    "a mount can be read and not written" => Mounts, Holds, files::mount_read_only;
    "a mount leads nowhere else by a link" => Mounts, Holds, files::mount_link;
    "a writable mount is written to" => Mounts, Tells, files::mount_writable;
    "the clock ends a program" => Always, Holds, limits::wall_time;
    "CPU time ends a program, its children's with it" => Always, Holds, limits::cpu_time;
    "CPU time of children that nobody waits for counts" => Counts, Holds, limits::hidden_cpu_time;
    "memory ends a program" => Bounds, Holds, limits::memory;
    "processes are bounded" => Bounds, Holds, limits::processes;
    "a file's size is bounded" => Always, Holds, limits::file_size;
    "open files are bounded" => Always, Holds, limits::open_files;
    "the disk is bounded" => Disk, Holds, limits::disk;
    "what was used is told" => Always, Tells, limits::usage;
    "network none reaches nothing" => Wall, Holds, network::none;
    "network local is a loopback of its own" => Wall, Holds, network::local;
    "named hosts are reached and no others" => Hosts, Holds, network::hosts;
    "a session keeps its state" => Always, Tells, sessions::state;
    "exceptions are typed" => Always, Tells, sessions::exceptions;
    "host tools are called, also many at once" => Always, Tells, sessions::tools;
    "displays come with the outcome" => Always, Tells, sessions::displays;
    "large values go both ways" => Always, Tells, sessions::large_values;
    "an interrupt leaves the state" => Always, Tells, sessions::interrupt;
    "a reset forgets variables and keeps files" => Always, Tells, sessions::reset;
    "a cell beyond its time is ended, and the session goes on" => Always, Holds, sessions::timeout;
    "an interpreter that dies is told, and the next one starts" => Always, Tells, sessions::death;
    "a session's files can be put, read, listed, deleted" => Always, Tells, sessions::files;
    "JavaScript has sessions" => Always, Tells, sessions::javascript;
    "a program that is stopped is killed" => Always, Tells, lifecycle::stopped;
    "what a program leaves running is ended" => Always, Holds, lifecycle::left_running;
    "a sandbox that is dropped ends" => Always, Holds, lifecycle::dropped;
    "sandboxes do not meet" => Wall, Holds, lifecycle::apart;
    "many run at once" => Always, Tells, lifecycle::many;
    "a sandbox that is kept runs one thing after another" => Always, Tells, lifecycle::kept;
    "the receipt names the provider and what held" => Always, Tells, receipts::names;
    "what is required and missing is a denial" => Always, Holds, receipts::required;
    "the host's files are not there" => Wall, Holds, escapes::host_files;
    "the host's processes are not there" => Wall, Holds, escapes::host_processes;
    "what runs the guest cannot be ended or looked into" => Wall, Hurts, escapes::keeper;
    "no privileges are left" => Wall, Hurts, escapes::privileges;
    "the root cannot be written" => Wall, Hurts, escapes::root;
    "kernel surfaces are closed" => Wall, Hurts, escapes::kernel;
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
