//! From the table to one program for the kernel.
//!
//! The kernel walks through a new program once for each system call there is, and compiles it; a
//! guest that is checked walks through it at every such call. So it is short: a binary search for
//! the number, then one block for each check on arguments, whichever calls it is for.

use std::collections::{BTreeMap, HashMap};

use super::assemble::{Comparison, Decision, Program, Word, load, when};
use super::checks::decide;
use super::table::{Rule, RuleAction, rules};

/// What of the machine the program depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FilterOptions {
    /// A memory cgroup counts what no process shows.
    pub memory_accounted: bool,
    /// Hand new threads over to init, which makes room for them. Such a program needs a listener.
    pub count_processes: bool,
}

impl FilterOptions {
    /// All that a guest may be asked to have.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [(true, true), (true, false), (false, true), (false, false)]
            .into_iter()
            .map(|(memory_accounted, count_processes)| Self {
                memory_accounted,
                count_processes,
            })
    }
}

/// Programs that were compiled before they are needed: the launcher has time for that while the
/// engine is busy, and every init inherits them.
#[derive(Debug)]
pub(crate) struct PreparedFilters {
    guests: HashMap<FilterOptions, Program>,
    zygote: Program,
}

/// What putting a fork into a shell takes beyond what a guest may call.
const ZYGOTE: [libc::c_long; 2] = [libc::SYS_setns, libc::SYS_prlimit64];

impl PreparedFilters {
    pub(crate) fn all() -> Self {
        let mut table = rules();
        let guests = FilterOptions::all()
            .map(|options| (options, compile(&table, options)))
            .collect();
        for rule in &mut table {
            if ZYGOTE.contains(&rule.number) {
                rule.action = RuleAction::Allow;
            }
        }
        let of_zygote = FilterOptions {
            memory_accounted: true,
            count_processes: false,
        };
        Self {
            guests,
            zygote: compile(&table, of_zygote),
        }
    }

    /// For a warm interpreter that forks guests.
    pub(crate) const fn zygote(&self) -> &Program {
        &self.zygote
    }

    pub(crate) fn get(&self, options: FilterOptions) -> Option<&Program> {
        self.guests.get(&options)
    }
}

pub(super) fn compile(table: &[Rule], options: FilterOptions) -> Program {
    let numbers = search(&ranges(table, options));
    for_this_architecture(when(Comparison::AtLeast(X32_BIT), Decision::KILL, numbers))
}

/// What is left of a program where seccomp is switched off and threads are still counted.
#[cfg(feature = "weaken")]
pub(crate) fn count_alone() -> Program {
    let thread = Comparison::AnyBit(libc::CLONE_THREAD as u32);
    for_this_architecture(when(
        Comparison::Equal(libc::SYS_clone as u32),
        load(Word::Low(0), when(thread, Decision::HAND_OVER, Decision::ALLOW)),
        Decision::ALLOW,
    ))
}

/// Decides by the number; a call for another architecture has another meaning for it, and is deadly.
fn for_this_architecture(numbers: Decision) -> Program {
    Program::assemble(&load(
        Word::Architecture,
        when(
            Comparison::Equal(ARCHITECTURE),
            load(Word::Number, numbers),
            Decision::KILL,
        ),
    ))
}

/// The kernel's name for what this program was built for: linux/audit.h.
#[cfg(target_arch = "x86_64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_00f3;

/// x32 calls carry x86-64's architecture and this bit in their number.
pub(super) const X32_BIT: u32 = 0x4000_0000;

/// Neighbouring numbers with the same decision, by the first of them; the last range has no end.
type Ranges = Vec<(u32, Decision)>;

fn ranges(table: &[Rule], options: FilterOptions) -> Ranges {
    let known: BTreeMap<u32, Decision> = table
        .iter()
        .map(|rule| {
            let decision = match rule.action {
                RuleAction::Allow => Decision::ALLOW,
                RuleAction::Deny => Decision::REFUSE,
                RuleAction::Check(check) => decide(check, options),
            };
            (rule.number as u32, decision)
        })
        .collect();
    let mut ranges = Ranges::new();
    let mut next = 0;
    for (number, decision) in known {
        if number > next {
            ranges.push((next, Decision::UNKNOWN));
        }
        ranges.push((number, decision));
        next = number + 1;
    }
    ranges.push((next, Decision::UNKNOWN));
    ranges.dedup_by(|later, earlier| later.1 == earlier.1);
    ranges
}

fn search(ranges: &[(u32, Decision)]) -> Decision {
    match ranges {
        [] => Decision::UNKNOWN,
        [(_, only)] => only.clone(),
        // One number amid others that are alike.
        [(_, before), (number, decision), (next, after)] if before == after && *next == number + 1 => {
            when(Comparison::Equal(*number), decision.clone(), after.clone())
        }
        _ => {
            let (lower, upper) = ranges.split_at(ranges.len() / 2);
            let first = upper.first().map_or(0, |(first, _)| *first);
            when(Comparison::AtLeast(first), search(upper), search(lower))
        }
    }
}
