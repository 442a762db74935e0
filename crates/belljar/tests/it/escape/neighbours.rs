//! P55, P56, P58 to P61 and the rest of the inventory (`tests/resources.toml`): a guest holds all of one resource that its
//! limits give, and a neighbour of another tenant still starts, forks, opens descriptors and has memory.
//!
//! What the attack takes is bounded by its program, so that a missing control costs the machine nothing. How long the
//! neighbour takes is measured by `tests/neighbours/run`; nothing here depends on time.

use std::io::{BufRead, BufReader};
use std::process::Child;

use super::{Done, answers};
use crate::harness::{Run, Who, belljar, everyone, expect_nothing_left, finish, spawn};

const ATTACK: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/neighbours/attack.py"
));
const VICTIM: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/neighbours/victim.py"
));

/// A guest that holds a resource until its standard input ends.
struct Attack {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    held: u64,
    stopped_by: String,
}

impl Attack {
    #[track_caller]
    fn start(who: Who, before: &[&str], args: &[&str]) -> Self {
        let mut all = vec![
            "run", "--lang", "python", "--tenant", "attacker", "--memory", "128M",
        ];
        all.extend(["-c", ATTACK, "--"]);
        all.extend(args);
        let mut command = belljar(who, all).within(before).command();
        let mut child = spawn(&mut command);
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let (mut text, mut line) = (String::new(), String::new());
        while line != "holding\n" {
            line.clear();
            let read = output.read_line(&mut line).expect("a line");
            text.push_str(&line);
            if read == 0 {
                let rest = finish(child);
                panic!(
                    "{args:?} as {who:?}: {text} {}",
                    String::from_utf8_lossy(&rest.stderr)
                );
            }
        }
        let said = answers(&text);
        Self {
            child,
            output,
            held: said["held"].parse().expect("a number"),
            stopped_by: said["stopped by"].to_owned(),
        }
    }

    /// Ends it, as it would end by itself.
    #[track_caller]
    fn end(mut self) {
        drop(self.child.stdin.take());
        std::io::copy(&mut self.output, &mut std::io::sink()).expect("the rest of its output");
        let pid = self.child.id();
        let output = finish(self.child);
        let done = Done {
            code: output.status.code(),
            stdout: String::new(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            took: std::time::Duration::ZERO,
        };
        expect_nothing_left(pid, &done);
    }
}

fn victim(who: Who) -> Run {
    belljar(
        who,
        [
            "run", "--json", "--lang", "python", "--tenant", "victim", "-c", VICTIM,
        ],
    )
}

/// Fails unless the neighbour got everything that it asked for.
#[track_caller]
fn expect_unharmed(who: Who, before: &[&str], resource: &str) {
    let done = victim(who).within(before).go();
    assert_eq!(done.code, Some(0), "{resource} as {who:?}: {done:#?}");
    let stdout = done.guest_stdout();
    let said = answers(&stdout);
    assert_eq!(said.len(), 10, "{resource} as {who:?}: {done:#?}");
    // Guests of an ordinary user share the kernel's count of descriptors in flight, also with tests beside this one.
    let shared = ("passes_descriptor", "ETOOMANYREFS");
    let fine = |said: (&str, &str)| said.1 == "ok" || (who == Who::User && said == shared);
    let failed: Vec<_> = said.into_iter().filter(|said| !fine(*said)).collect();
    assert!(failed.is_empty(), "{resource} as {who:?}: {failed:?}");
}

/// Holds the resource as everyone, both guests below `before`, and has a neighbour run meanwhile. Fails if nothing was held and
/// nothing refused it. Returns how much was held.
#[track_caller]
fn neighbour_works_below(before: &[&str], resource: &str) -> Vec<u64> {
    let hold = |who| {
        let attack = Attack::start(who, before, &[resource]);
        expect_unharmed(who, before, resource);
        let held = attack.held;
        assert!(held > 0 || attack.stopped_by != "none", "{resource} as {who:?}");
        attack.end();
        held
    };
    everyone().into_iter().map(hold).collect()
}

#[track_caller]
fn neighbour_works(resource: &str) -> Vec<u64> {
    neighbour_works_below(&[], resource)
}

/// At most 24 filters, whether they are refused or not: more could cost the machine.
#[test]
fn p55_neighbour_starts_beside_filters() {
    assert!(neighbour_works("filters").iter().all(|held| *held <= 24));
}

#[test]
fn p56_neighbour_starts_beside_access_lists() {
    neighbour_works("acls");
}

/// Seen failing where the launcher passed descriptors under the guests' limit: as an ordinary user the neighbour did not start
/// (`Too many references`).
#[test]
fn p58_neighbour_starts_beside_descriptors_in_flight() {
    neighbour_works("in-flight");
}

#[test]
fn p59_neighbour_locks_beside_many_locks() {
    neighbour_works("locks");
}

/// The kernel counts pending signals and timers of all sandboxes of an engine's user. The soft limit here has room for one
/// sandbox. Seen failing where the launcher left it as it was: the neighbour's signals and timers got EAGAIN, also as root.
#[test]
fn p60_neighbour_queues_signals_beside_signals_and_timers() {
    for resource in ["signals", "timers"] {
        let held = neighbour_works_below(&["prlimit", "--sigpending=1024:"], resource);
        assert!(held.iter().all(|held| *held > 0), "{held:?}");
    }
}

#[test]
fn p60_neighbour_forks_beside_processes() {
    assert!(neighbour_works("processes").iter().all(|held| *held == 9));
}

/// As an ordinary user pipes above `fs.pipe-user-pages-soft` get two pages, with which the neighbour still works.
#[test]
fn p61_neighbour_has_pipes_beside_full_pipes() {
    neighbour_works("pipes");
}

#[test]
fn neighbour_works_while_threads_are_held() {
    neighbour_works("threads");
}

#[test]
fn neighbour_works_while_descriptors_are_held() {
    neighbour_works("descriptors");
}

#[test]
fn neighbour_works_while_memory_is_held() {
    neighbour_works("memory");
}

#[test]
fn neighbour_works_while_files_are_held() {
    neighbour_works("files");
}

#[test]
fn neighbour_works_while_symlinks_are_held() {
    neighbour_works("symlinks");
}

#[test]
fn neighbour_works_while_watches_are_held() {
    neighbour_works("watches");
}

#[test]
fn neighbour_works_while_sockets_are_held() {
    neighbour_works("sockets");
}

#[test]
fn neighbour_works_while_cycles_are_held() {
    neighbour_works("cycles");
}

#[test]
fn neighbour_works_while_queues_are_held() {
    neighbour_works("queues");
}

#[test]
fn neighbour_works_while_huge_pages_are_held() {
    neighbour_works("huge-pages");
}

#[test]
fn neighbour_works_while_groups_are_held() {
    neighbour_works("groups");
}

#[test]
fn neighbour_works_while_landlock_rules_are_held() {
    neighbour_works("landlock-rules");
}

#[test]
fn neighbour_works_while_mappings_are_held() {
    neighbour_works("mappings");
}

#[test]
fn neighbour_works_while_shared_mappings_are_held() {
    neighbour_works("shared-mappings");
}

#[test]
fn neighbour_works_while_page_cache_is_held() {
    neighbour_works("page-cache");
}

#[test]
fn neighbour_works_while_write_back_is_held() {
    neighbour_works("write-back");
}

#[test]
fn neighbour_works_while_lookups_are_held() {
    neighbour_works("lookups");
}

#[test]
fn neighbour_works_while_crashes_are_held() {
    neighbour_works("crashes");
}

#[test]
fn neighbour_works_while_fork_loop_is_held() {
    neighbour_works("fork-loop");
}

#[test]
fn neighbour_works_while_spin_is_held() {
    neighbour_works("spin");
}
