//! Programs that must be contained, named by threat; they live in `tests/escape`.
//!
//! Each test runs its program as everyone the harness knows and checks what it was told. A test
//! that cannot fail proves nothing, so next to it stands what happens when its control is taken
//! away: `…_gets_through_without_…`, or a wider limit in the same test. Those that need a control
//! switched off need the `weaken` feature.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod files;
mod kernel;
mod neighbours;
mod outputs;
mod privileges;
mod protocol;
mod resources;
mod shared_kernel;
mod stress;
mod times;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::harness::{Done, Run, Who, belljar, finish, spawn};

/// A program of `tests/escape`.
#[derive(Clone, Copy, Debug)]
struct Program {
    name: &'static str,
    code: &'static str,
}

macro_rules! program {
    ($name:literal) => {
        $crate::escape::Program {
            name: $name,
            code: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/escape/", $name)),
        }
    };
}
use program;

impl Program {
    fn language(self) -> &'static str {
        match self.name.rsplit_once('.') {
            Some((_, "py")) => "python",
            Some((_, ending)) => ending,
            None => "python",
        }
    }

    /// In a sandbox, with options of belljar and arguments of its own.
    fn run(self, who: Who, options: &[&str], args: &[&str]) -> Run {
        let mut all = vec!["run", "--json", "--lang", self.language()];
        all.extend(options);
        all.extend(["-c", self.code, "--"]);
        all.extend(args);
        belljar(who, all)
    }

    /// A Python program without any sandbox, as whoever runs the tests: to see what it would do.
    fn outside(self, args: &[&str]) -> String {
        let mut command = Command::new("python3");
        command
            .args(["-c", self.code])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        String::from_utf8_lossy(&finish(spawn(&mut command)).stdout).into_owned()
    }
}

/// What a program said: `name: answer` on each line.
fn answers(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, answer)| (name, answer.trim()))
        .collect()
}

/// One answer of a run.
#[track_caller]
fn answer(done: &Done, name: &str) -> String {
    let stdout = done.guest_stdout();
    let found = answers(&stdout).get(name).map(|answer| (*answer).to_owned());
    found.unwrap_or_else(|| panic!("no answer `{name}`: {done:#?}"))
}

#[track_caller]
fn number(done: &Done, name: &str) -> u64 {
    answer(done, name)
        .parse()
        .unwrap_or_else(|_| panic!("`{name}` is not a number: {done:#?}"))
}

/// Fails unless there are answers and all of them are among `fine`.
#[track_caller]
fn expect_only(done: &Done, fine: &[&str]) {
    let stdout = done.guest_stdout();
    let answers = answers(&stdout);
    assert!(!answers.is_empty(), "no answers: {done:#?}");
    let wrong: Vec<_> = answers
        .iter()
        .filter(|(_, answer)| !fine.contains(answer))
        .collect();
    assert!(wrong.is_empty(), "got through: {wrong:?} in {done:#?}");
}

/// `outcome.error.type`, or an empty word.
fn error_kind(done: &Done) -> String {
    done.json()["outcome"]["error"]["type"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Whether the receipt says that a control was in force.
#[track_caller]
fn enforced(done: &Done, control: &str) -> bool {
    let receipt = &done.json()["outcome"]["receipt"]["controls"][control];
    match receipt["state"].as_str() {
        Some("enforced") => true,
        Some("absent") => {
            assert_ne!(receipt["why"], "", "an absent control says why");
            false
        }
        _ => panic!("no word about {control}: {done:#?}"),
    }
}
