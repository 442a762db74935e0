//! A terminal of our own with belljar on it, and a person who types.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::harness::{Done, Run, expect_nothing_left, finish, kill_and_wait, spawn};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const PROMPT: &str = ">>> ";
pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_D: &str = "\x04";

pub(crate) struct Terminal {
    child: Option<Child>,
    keys: File,
    seen: Arc<Mutex<Vec<u8>>>,
    /// How much of it was waited for already.
    mark: usize,
}

impl Terminal {
    /// Starts `run` on a terminal and waits for its first prompt.
    pub(crate) fn start(run: Run) -> Self {
        let mut terminal = Self::open(run);
        terminal.expect(PROMPT);
        terminal
    }

    pub(crate) fn open(run: Run) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("grantpt");
        unlockpt(&master).expect("unlockpt");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let side = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().expect("a path"))
            .expect("its other side");
        let end = || Stdio::from(side.try_clone().expect("a descriptor"));
        // A session of its own, whose terminal this is: else Ctrl-C would be a byte like any other.
        let run = run.within(&["setsid", "--ctty"]).env("TERM", "xterm");
        let mut command = run.command();
        command.stdin(end()).stdout(end()).stderr(end());
        let child = spawn(&mut command);
        drop((command, side));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let keys = File::from(master);
        let mut screen = keys.try_clone().expect("a descriptor");
        let kept = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            // Reading fails when the last who had the terminal open is gone.
            while let Ok(size @ 1..) = screen.read(&mut buffer) {
                kept.lock()
                    .expect("the screen")
                    .extend_from_slice(&buffer[..size]);
            }
        });
        Self {
            child: Some(child),
            keys,
            seen,
            mark: 0,
        }
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).expect("type");
    }

    /// Waits until `text` is on the screen, after everything waited for before; what came up to it.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) -> String {
        let started = Instant::now();
        loop {
            {
                let seen = self.seen.lock().expect("the screen");
                let new = &seen[self.mark..];
                let found = new.windows(text.len()).position(|part| part == text.as_bytes());
                if let Some(at) = found {
                    let shown = String::from_utf8_lossy(&new[..at]).into_owned();
                    self.mark += at + text.len();
                    return shown;
                }
                assert!(
                    started.elapsed() < PATIENCE,
                    "{text:?} did not come: {:?}",
                    String::from_utf8_lossy(&new[new.len().saturating_sub(4000)..])
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Types a line and waits for the next prompt; what was shown up to it, without escape sequences of
    /// the editor, which come before the echo's last line end.
    #[track_caller]
    pub(crate) fn cell(&mut self, line: &str) -> String {
        self.type_in(line);
        self.type_in("\r");
        // The editor ends its line before anything is executed.
        self.expect("\x1b[?2004l");
        let shown = self.expect("\x1b[?2004h");
        self.expect_either();
        shown.trim_start_matches(['\r', '\n']).replace("\r\n", "\n")
    }

    /// Either prompt.
    #[track_caller]
    fn expect_either(&mut self) {
        let started = Instant::now();
        loop {
            {
                let seen = self.seen.lock().expect("the screen");
                let new = &seen[self.mark..];
                let found = |prompt: &str| new.windows(4).position(|part| part == prompt.as_bytes());
                if let Some(at) = found(PROMPT).or(found("... ")) {
                    self.mark += at + PROMPT.len();
                    return;
                }
                let new = String::from_utf8_lossy(new);
                assert!(started.elapsed() < PATIENCE, "no prompt came: {new:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Everything that was ever shown.
    pub(crate) fn all(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("the screen")).into_owned()
    }

    /// Waits for the end, which must leave nothing; the exit code.
    #[track_caller]
    pub(crate) fn end(mut self) -> i32 {
        let started = Instant::now();
        let mut child = self.child.take().expect("a child");
        let pid = child.id();
        while child.try_wait().expect("wait").is_none() {
            if started.elapsed() > PATIENCE {
                kill_and_wait(child);
                panic!("it did not end: {:?}", self.all());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let code = finish(child).status.code();
        let done = Done {
            code,
            stdout: self.all(),
            stderr: String::new(),
            took: started.elapsed(),
        };
        expect_nothing_left(pid, &done);
        code.unwrap_or_else(|| panic!("ended by a signal: {done:#?}"))
    }

    /// Leaves with Ctrl-D.
    #[track_caller]
    pub(crate) fn leave(mut self) {
        self.type_in(CTRL_D);
        assert_eq!(self.end(), 0);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            kill_and_wait(child);
        }
    }
}
