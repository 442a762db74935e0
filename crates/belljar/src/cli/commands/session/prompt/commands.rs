//! What the commands of the prompt do.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use belljar::{Bytes, EntryKind, ErrorKind, GuestPath, Limits};

use super::super::colon::{Colon, HELP};
use super::super::harmless::harmless;
use super::super::live::Live;
use super::super::signals::{Heard, told_to_end};
use super::{Opening, Prompt};
use crate::cli::commands::receipt;
use crate::cli::messages;
use crate::cli::problem::Problem;
use crate::cli::stdout;
use crate::cli::table::Table;

impl Prompt<'_> {
    pub(super) async fn command(&mut self, command: Colon) -> Result<(), Problem> {
        match command {
            Colon::Help => return stdout::print(HELP),
            Colon::Limits => {
                match self.settings.limits() {
                    Some(held) => stdout::print(&limits(&held))?,
                    None => messages::tell("the policy of the service says; `belljar policy show` shows it"),
                }
                return Ok(());
            }
            Colon::Receipt => {
                match &self.receipt {
                    Some(held) => receipt::show(held),
                    None => messages::tell("no cell has run yet"),
                }
                return Ok(());
            }
            _ => {}
        }
        if !self.ready().await? {
            return Ok(());
        }
        let Opening::Done(session) = &self.session else {
            return Ok(());
        };
        let work = async {
            match command {
                Colon::Files => files(session).await,
                Colon::Put { host, guest } => put(session, &host, guest).await,
                Colon::Get { guest, host } => get(session, &guest, &host).await,
                Colon::Logs => logs(session).await,
                Colon::Reset => reset(session).await,
                _ => Ok(()),
            }
        };
        let done = tokio::select! {
            done = work => done,
            heard = self.signals.next() => match heard {
                Heard::Interrupt => Err(Problem::new(ErrorKind::Killed, "interrupted")),
                Heard::Terminate => return Err(told_to_end()),
            },
        };
        // What a command could not do leaves the session as it was.
        if let Err(problem) = done {
            problem.report(false);
        }
        Ok(())
    }
}

async fn files(session: &Live) -> Result<(), Problem> {
    let mut table = Table::default();
    let entries = session.list().await?;
    for entry in &entries {
        let size = match entry.kind {
            EntryKind::File => Bytes::new(entry.size).to_string(),
            EntryKind::Directory => "directory".to_owned(),
            EntryKind::Other => "no file".to_owned(),
        };
        table.row([entry.path.clone(), size]);
    }
    if entries.is_empty() {
        messages::tell("the work directory is empty");
    }
    stdout::print(&table.render())
}

async fn put(session: &Live, host: &Path, guest: GuestPath) -> Result<(), Problem> {
    let unreadable = |why: String| {
        Problem::usage(format!("cannot read {}: {why}", host.display())).hint("name a file of this machine")
    };
    let found = std::fs::metadata(host).map_err(|error| unreadable(error.to_string()))?;
    if !found.is_file() {
        return Err(unreadable("it is not a plain file".to_owned()));
    }
    let host = std::path::absolute(host).map_err(|error| unreadable(error.to_string()))?;
    let shown = guest.as_str().to_owned();
    session.put(&host, guest).await?;
    messages::tell(&format!("put `{shown}` ({})", Bytes::new(found.len())));
    Ok(())
}

async fn get(session: &Live, guest: &GuestPath, host: &Path) -> Result<(), Problem> {
    let mut source = session.get(guest).await?;
    let unwritable = |error: &io::Error| {
        let problem = Problem::usage(format!("cannot write {}: {error}", host.display()));
        problem.hint("nothing is written over; name another file: :get GUEST HOST")
    };
    let mut target = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(host)
        .map_err(|error| unwritable(&error))?;
    let size = io::copy(&mut source, &mut target).map_err(|error| unwritable(&error))?;
    messages::tell(&format!("got {} ({})", host.display(), Bytes::new(size)));
    Ok(())
}

async fn logs(session: &Live) -> Result<(), Problem> {
    let logs = session.logs().await?;
    if logs.dropped > 0 {
        messages::tell(&format!(
            "{} before this are no longer held",
            Bytes::new(logs.dropped)
        ));
    }
    let lines = |text: &str| {
        let text = harmless(text);
        let end = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        text + end
    };
    stdout::print(&lines(&logs.stdout))?;
    // A closed standard error leaves nobody to show it to.
    let _ = io::stderr().lock().write_all(lines(&logs.stderr).as_bytes());
    Ok(())
}

async fn reset(session: &Live) -> Result<(), Problem> {
    session.reset().await?;
    messages::tell("a new interpreter is ready: variables are gone, files are kept");
    Ok(())
}

fn limits(limits: &Limits) -> String {
    let mut table = Table::default();
    for (name, value) in [
        ("memory", limits.memory().to_string()),
        ("time on the clock", limits.wall_time().to_string()),
        ("CPU time", limits.cpu_time().to_string()),
        ("processes", limits.processes().to_string()),
        ("open files", limits.open_files().to_string()),
        ("one file", limits.file_size().to_string()),
        ("all files", limits.disk().to_string()),
        ("output kept", limits.output().to_string()),
    ] {
        table.row([name.to_owned(), value]);
    }
    if let Some(percent) = limits.cpu_percent() {
        table.row(["share of a CPU".to_owned(), format!("{percent} %")]);
    }
    table.render()
}
