//! Runs of every kind and end, many at once. Part of the tests, and of `examples/soak.rs`, which does it for
//! longer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use belljar::{
    Bytes, Engine, ExecuteIo, FailureKind, Language, Outcome, Policy, Request, SandboxStatus, Seconds,
};

/// What came of them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Those that ended as they should, by what they are and where their sandbox came from.
    pub(crate) right: BTreeMap<String, usize>,
    /// The others: what they are and how they ended.
    pub(crate) wrong: Vec<String>,
}

impl Tally {
    /// How many requests had an answer.
    pub(crate) fn answered(&self) -> usize {
        self.right.values().sum::<usize>() + self.wrong.len()
    }
}

/// One kind of run.
struct Kind {
    name: &'static str,
    language: Language,
    code: &'static str,
    right: fn(&Outcome) -> bool,
}

const KINDS: [Kind; 12] = [
    kind("python", Language::Python, "print('fine')", fine),
    kind("node", Language::Javascript, "console.log('fine')", fine),
    kind("bash", Language::Bash, "echo fine", fine),
    kind(
        "python that fails",
        Language::Python,
        "raise SystemExit(3)",
        failed,
    ),
    kind("node that fails", Language::Javascript, "process.exit(3)", failed),
    kind("bash that fails", Language::Bash, "exit 3", failed),
    kind(
        "python that crashes",
        Language::Python,
        "import os; os.kill(os.getpid(), 11)",
        crashed,
    ),
    kind("bash that crashes", Language::Bash, "kill -SEGV $$", crashed),
    kind(TOO_LONG, Language::Python, "while True: pass", late),
    kind(
        TOO_LARGE,
        Language::Python,
        "held = []\nwhile True: held.append(b'x' * (1 << 20))",
        large,
    ),
    kind(
        "python with a daemon",
        Language::Python,
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(60)\n    os._exit(0)\n\
         print('fine')",
        fine,
    ),
    kind(
        "bash with a daemon",
        Language::Bash,
        "(setsid sleep 60 &) ; sleep 60 & echo fine",
        fine,
    ),
];

const TOO_LONG: &str = "python that takes too long";
const TOO_LARGE: &str = "python that needs too much";

const fn kind(
    name: &'static str,
    language: Language,
    code: &'static str,
    right: fn(&Outcome) -> bool,
) -> Kind {
    Kind {
        name,
        language,
        code,
        right,
    }
}

fn fine(outcome: &Outcome) -> bool {
    outcome.success() && outcome.stdout.bytes() == b"fine\n"
}

fn failed(outcome: &Outcome) -> bool {
    outcome.status == SandboxStatus::Failed && outcome.exit_code == Some(3)
}

fn crashed(outcome: &Outcome) -> bool {
    outcome.status == SandboxStatus::Failed && outcome.signal == Some(11)
}

fn late(outcome: &Outcome) -> bool {
    outcome.status == SandboxStatus::Timeout
}

/// Where memory is not accounted for, Python itself may notice.
fn large(outcome: &Outcome) -> bool {
    let error = outcome.error.as_ref().map(|error| error.kind);
    error == Some(FailureKind::OutOfMemory) || outcome.stderr.text().contains("MemoryError")
}

impl Kind {
    fn request(&self) -> Request {
        let mut request = Request::code(self.language, self.code.as_bytes());
        request.limits.wall_time = Some(Seconds::whole(60));
        if self.name == TOO_LONG {
            request.limits.wall_time = Seconds::new(0.05).ok();
        }
        if self.name == TOO_LARGE {
            request.limits.memory = Some(Bytes::from_mib(48));
        }
        request
    }
}

/// Has `runs` of all kinds in turn run by `engine`, so many at once.
pub(crate) async fn run(engine: &Engine, runs: usize, at_once: usize) -> Tally {
    let next = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..at_once)
        .map(|_| {
            let (engine, next) = (engine.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                let mut ends = Vec::new();
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    if turn >= runs {
                        return ends;
                    }
                    ends.push(one(&engine, &KINDS[turn % KINDS.len()]).await);
                }
            })
        })
        .collect();
    let mut tally = Tally::default();
    for worker in workers {
        // A worker that broke off leaves its runs unanswered, which the count shows.
        for end in worker.await.unwrap_or_default() {
            match end {
                Ok(right) => *tally.right.entry(right).or_default() += 1,
                Err(wrong) => tally.wrong.push(wrong),
            }
        }
    }
    tally
}

async fn one(engine: &Engine, kind: &Kind) -> Result<String, String> {
    let request = kind.request();
    let policy = Policy::for_owner(&request).map_err(|error| error.to_string())?;
    let run = engine.execute(&policy, &request, ExecuteIo::default()).await;
    let outcome = run.map_err(|error| format!("{}: {error}", kind.name))?.outcome;
    if (kind.right)(&outcome) {
        Ok(format!("{}, {}", kind.name, outcome.receipt.origin))
    } else {
        Err(format!(
            "{}, {}: {} {:?}\n{}{}",
            kind.name,
            outcome.receipt.origin,
            outcome.status,
            outcome.error,
            outcome.stdout.text(),
            outcome.stderr.text()
        ))
    }
}
