//! Runs many sandboxes in one process and counts what is left: `soak [RUNS]`.
//!
//! Also measures how far past a one-second deadline runs end, and how much memory the engine needs
//! while a guest prints ten gigabytes: `soak deadline [RUNS]`, `soak output [GIGABYTES]`. Many at once, with
//! sandboxes of every kind and end: `soak mixed [RUNS] [AT ONCE]`.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use belljar::blocking::execute_code;
use belljar::{Bytes, Language, Seconds};

#[path = "../tests/it/warm/mixture.rs"]
mod mixture;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some("deadline") => deadline(number(words.next(), 100)?),
        Some("output") => output(number(words.next(), 10)?),
        Some("mixed") => mixed(number(words.next(), 10_000)?, number(words.next(), 64)?),
        runs => leaks(number(runs.map(str::to_owned), 10_000)?),
    }
}

fn number(word: Option<String>, otherwise: usize) -> Outcome<usize> {
    Ok(word.map_or(Ok(otherwise), |word| word.parse())?)
}

/// What this process and the machine hold.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    processes: usize,
    mounts: usize,
    control_groups: usize,
}

fn held() -> Held {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    Held {
        descriptors: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        processes: descendants(std::process::id()),
        mounts: mounts.lines().count(),
        control_groups: groups(Path::new("/sys/fs/cgroup"), 0),
    }
}

/// Processes below `pid`: the launcher is one.
fn descendants(pid: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<u32> = children
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect();
    pids.iter().map(|pid| 1 + descendants(*pid)).sum()
}

/// Control groups of this process: their names hold its pid.
fn groups(dir: &Path, depth: usize) -> usize {
    let mark = format!("-{}-", std::process::id());
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| {
            let ours = usize::from(entry.file_name().to_string_lossy().contains(&mark));
            let below = if depth < 6 {
                groups(&entry.path(), depth + 1)
            } else {
                0
            };
            ours + below
        })
        .sum()
}

fn leaks(runs: usize) -> Outcome<()> {
    let once = |turn: usize| -> Outcome<()> {
        // Success, failure, crash and timeout take turns.
        let code = match turn % 20 {
            7 => "kill -SEGV $$",
            13 => "exit 3",
            17 => "sleep 9 & (setsid sleep 9 &) ; exit 0",
            _ => "echo hello",
        };
        let mut run = execute_code(code).language(Language::Shell);
        if turn.is_multiple_of(50) {
            run = execute_code("sleep 9")
                .language(Language::Shell)
                .timeout(Seconds::new(0.05)?);
        }
        run.run()?;
        Ok(())
    };
    for turn in 0..20 {
        once(turn)?;
    }
    let before = held();
    let started = Instant::now();
    for turn in 0..runs {
        once(turn)?;
    }
    let took = started.elapsed();
    let after = held();
    report(&format!(
        "{runs} runs in {:.1} s, {:.2} ms each\nbefore {before:?}\nafter  {after:?}\nmemory {} KiB at its most\n{}",
        took.as_secs_f64(),
        took.as_secs_f64() * 1000.0 / runs as f64,
        peak_kib(),
        if before == after {
            "nothing left"
        } else {
            "SOMETHING WAS LEFT"
        },
    ))?;
    if before == after {
        Ok(())
    } else {
        Err("something was left".into())
    }
}

/// Runs of every kind and end, so many at once, by an engine that is gone afterwards.
fn mixed(runs: usize, at_once: usize) -> Outcome<()> {
    let around = |runs: usize| -> Outcome<mixture::Tally> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let engine = belljar::native_engine();
        Ok(runtime.block_on(mixture::run(&engine, runs, at_once)))
    };
    // What is made once for the whole process is made here.
    around(at_once)?;
    let before = held();
    let started = Instant::now();
    let tally = around(runs)?;
    let took = started.elapsed();
    let after = held();
    let lost = runs.saturating_sub(tally.answered());
    report(&format!(
        "{runs} runs, {at_once} at once, in {:.1} s, {:.0} each second\n{tally:#?}\nlost {lost}\nbefore {before:?}\n\
         after  {after:?}\nmemory {} KiB at its most",
        took.as_secs_f64(),
        runs as f64 / took.as_secs_f64(),
        peak_kib(),
    ))?;
    match (before == after, lost, tally.wrong.is_empty()) {
        (true, 0, true) => report("nothing left, nobody lost"),
        (false, ..) => Err("something was left".into()),
        (_, 1.., _) => Err("somebody was lost".into()),
        (.., false) => Err("some did not end as they should".into()),
    }
}

fn deadline(runs: usize) -> Outcome<()> {
    let mut late: Vec<Duration> = Vec::new();
    for _ in 0..runs {
        let execution = execute_code("while True: pass")
            .timeout(Seconds::whole(1))
            .run()?;
        late.push(
            execution
                .outcome
                .duration
                .duration()
                .saturating_sub(Duration::from_secs(1)),
        );
    }
    late.sort();
    let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    report(&format!(
        "past a 1 s deadline over {runs} runs: p50 {:.2} ms, p99 {:.2} ms, most {:.2} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    ))
}

fn output(gigabytes: usize) -> Outcome<()> {
    execute_code("print(1)").run()?;
    let before = peak_kib();
    let code = format!("head -c {gigabytes}G /dev/zero; head -c {gigabytes}G /dev/zero >&2");
    let run = execute_code(code)
        .language(Language::Bash)
        .timeout(Seconds::whole(300));
    let started = Instant::now();
    let outcome = run.run()?.outcome;
    report(&format!(
        "{gigabytes} GiB to each stream in {:.1} s ({}): kept {} + {}, dropped {} + {}; engine memory {before} KiB \
         before, {} KiB at its most",
        started.elapsed().as_secs_f64(),
        outcome.status,
        Bytes::new(outcome.stdout.bytes().len() as u64),
        Bytes::new(outcome.stderr.bytes().len() as u64),
        Bytes::new(outcome.stdout.dropped()),
        Bytes::new(outcome.stderr.dropped()),
        peak_kib()
    ))
}

fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn report(text: &str) -> Outcome<()> {
    use std::io::Write;
    Ok(writeln!(std::io::stdout(), "{text}")?)
}
