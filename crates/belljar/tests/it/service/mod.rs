//! `belljar serve` as a process: started, used, killed, started again.

mod browser;
mod commands;
mod full;
mod killed;
mod log;
mod remote;
mod serving;
mod traces;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{TempDir, Who, become_who, executable, finish, kill_and_wait, output_of, spawn};
use crate::machine::absent;

#[path = "../../../../../tests/postgres.rs"]
mod postgres;

/// A service that is up.
pub(crate) struct Serving {
    /// None once it was ended.
    child: Option<Child>,
    pub(crate) address: String,
    pub(crate) key: Option<String>,
    /// From the start to the first line that says so.
    pub(crate) started_in: Duration,
    /// What it said before that.
    pub(crate) said: Vec<String>,
    rest: Option<std::thread::JoinHandle<String>>,
}

impl Serving {
    /// Starts one, with its data in `home`.
    pub(crate) fn start(who: Who, home: &TempDir, args: &[&str]) -> Self {
        Self::of(spawn(&mut Self::command(who, home, args)))
    }

    /// Waits until a process that was started serves.
    pub(crate) fn of(mut child: Child) -> Self {
        let began = Instant::now();
        let mut errors = BufReader::new(child.stderr.take().expect("its messages"));
        let mut said = Vec::new();
        let address = loop {
            let mut line = String::new();
            let read = errors.read_line(&mut line).expect("a line");
            assert!(read > 0, "it ended at once: {said:?}");
            if let Some((_, rest)) = line.split_once("serving on http://") {
                break rest.split([',', ' ']).next().expect("an address").to_owned();
            }
            said.push(line);
        };
        let started_in = began.elapsed();
        let key = said.iter().any(|line| line.contains("admin key")).then(|| {
            let mut line = String::new();
            let output = child.stdout.take().expect("its output");
            BufReader::new(output).read_line(&mut line).expect("a line");
            line.trim().to_owned()
        });
        let rest = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            text
        });
        Self {
            child: Some(child),
            address,
            key,
            started_in,
            said,
            rest: Some(rest),
        }
    }

    fn command(who: Who, home: &TempDir, args: &[&str]) -> Command {
        let mut command = Command::new(executable());
        command.arg("serve");
        if !args.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command
            .args(args)
            .env("BELLJAR_HOME", home.path())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        become_who(&mut command, who);
        command
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Ends it without a warning.
    pub(crate) fn kill(mut self) -> String {
        let mut child = self.child.take().expect("a process");
        child.kill().expect("a kill");
        finish(child);
        self.rest
            .take()
            .expect("its messages")
            .join()
            .expect("its messages")
    }

    /// Asks it to end, and gives what it said and its exit code.
    pub(crate) fn end(mut self) -> (String, Option<i32>) {
        let child = self.child.take().expect("a process");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
        let status = finish(child).status;
        let text = self
            .rest
            .take()
            .expect("its messages")
            .join()
            .expect("its messages");
        (text, status.code())
    }

    /// Asks something of it. None where it hung up.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: &str,
    ) -> Option<(u16, Value)> {
        ask(&self.address, method, path, key, body)
    }
}

impl Drop for Serving {
    /// A test that failed leaves nothing either.
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            kill_and_wait(child);
        }
    }
}

/// One request on a connection of its own.
pub(crate) fn ask(
    address: &str,
    method: &str,
    path: &str,
    key: Option<&str>,
    body: &str,
) -> Option<(u16, Value)> {
    ask_with(address, method, path, key, "Host: localhost", body)
}

/// One request on a connection of its own, with these lines in its head.
pub(crate) fn ask_with(
    address: &str,
    method: &str,
    path: &str,
    key: Option<&str>,
    headers: &str,
    body: &str,
) -> Option<(u16, Value)> {
    let mut socket = TcpStream::connect(address).ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    let authorization = key.map_or_else(String::new, |key| format!("Authorization: Bearer {key}\r\n"));
    let head = format!(
        "{method} {path} HTTP/1.1\r\n{headers}\r\nConnection: close\r\n{authorization}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).ok()?;
    socket.write_all(body.as_bytes()).ok()?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).ok()?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1)?.parse().ok()?;
    let (_, body) = text.split_once("\r\n\r\n")?;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

/// Where a PostgreSQL listens that ends with this process. None where the machine has none.
pub(crate) fn postgres() -> Option<PathBuf> {
    static PLACE: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let started = postgres::start(spawn);
        started.inspect_err(|why| absent("PostgreSQL", why)).ok()
    });
    PLACE.clone()
}

/// The URL of a new database there.
pub(crate) fn database(directory: &Path) -> String {
    let name = belljar_engine::fresh_id("t").replace('-', "_");
    let bin = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let psql = bin
        .map(|entry| entry.path().join("bin/psql"))
        .find(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("psql"));
    let mut command = Command::new(psql);
    command.args([
        "-qU",
        "belljar",
        "-d",
        "postgres",
        "-c",
        &format!("CREATE DATABASE {name}"),
        "-h",
    ]);
    let made = output_of(command.arg(directory));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    postgres::url(directory, &name)
}
