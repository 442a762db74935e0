//! From the table to one program for the kernel.
//!
//! The kernel walks through a new program once for each system call there is, and compiles it; a
//! guest that is checked walks through it at every such call. So it is short: a binary search for
//! the number, then one block for each check on arguments, whichever calls it is for.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::assemble::{Comparison, Decision, Program, Word, load, when};
use super::checks::decide;
use super::table::{Rule, RuleAction, rules};

/// The properties of machine and sandbox that change the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FilterOptions {
    /// A memory cgroup counts memory that no process shows.
    pub memory_accounted: bool,
    /// New threads and record locks are handed over to init, which counts them. Such a program needs a listener.
    pub supervised: bool,
}

impl FilterOptions {
    /// How many combinations there are.
    const COUNT: usize = 4;

    const fn index(self) -> usize {
        self.memory_accounted as usize * 2 + self.supervised as usize
    }

    /// Every combination that a guest may have.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [(true, true), (true, false), (false, true), (false, false)]
            .into_iter()
            .map(|(memory_accounted, supervised)| Self {
                memory_accounted,
                supervised,
            })
    }
}

/// Programs, each compiled when it is first needed. A process inherits what its parent had compiled when it was cloned, so the launcher
/// and the spawner prepare what their clones are likely to need.
#[derive(Debug, Default)]
pub(crate) struct PreparedFilters {
    guests: [OnceCell<Program>; FilterOptions::COUNT],
    forks: [OnceCell<Program>; FilterOptions::COUNT],
    zygote: OnceCell<Program>,
}

/// Calls that a zygote and its forks make while a fork enters its jail, and that a guest may not make, or not so.
const ZYGOTE: [libc::c_long; 3] = [libc::SYS_setns, libc::SYS_prlimit64, libc::SYS_seccomp];
/// The options of a zygote's own filter.
const ZYGOTE_OPTIONS: FilterOptions = FilterOptions {
    memory_accounted: true,
    supervised: false,
};

impl PreparedFilters {
    /// Has the filter ready that most guests of this machine will need: as root a memory cgroup is likely.
    pub(crate) fn for_launcher() -> Self {
        let filters = Self::default();
        filters.guest(FilterOptions {
            memory_accounted: rustix::process::geteuid().is_root(),
            supervised: true,
        });
        filters
    }

    /// The filter of a warm interpreter. Its forks inherit it, as one object in the kernel.
    pub(crate) fn zygote(&self) -> &Program {
        self.zygote
            .get_or_init(|| compile(&zygote_table(&rules()), ZYGOTE_OPTIONS))
    }

    /// The filter of a guest that is forked by init.
    pub(crate) fn guest(&self, options: FilterOptions) -> &Program {
        self.guests[options.index()].get_or_init(|| compile(&rules(), options))
    }

    /// The filter that a fork of a zygote installs on top of the zygote's own. Together they decide as `guest` does.
    pub(crate) fn fork(&self, options: FilterOptions) -> &Program {
        self.forks[options.index()].get_or_init(|| compile_fork(&rules(), options))
    }

    /// Compiles what forks of a zygote need, before the jails are cloned that they enter.
    pub(crate) fn prepare_forks(&self) {
        for options in FilterOptions::all() {
            self.fork(options);
        }
    }
}

/// The table of a zygote: the guest's, and what entering a jail takes.
pub(super) fn zygote_table(table: &[Rule]) -> Vec<Rule> {
    let mut table = table.to_vec();
    for rule in &mut table {
        if ZYGOTE.contains(&rule.number) {
            rule.action = RuleAction::Allow;
        }
    }
    table
}

/// Compiles only the rules in which a guest differs from its zygote. Of several filters the kernel takes the strictest answer, and
/// a refusal is stricter than handing over. The program is a tenth of the full one: the kernel compiles each into memory of which
/// the whole machine has a fixed budget, and frees each through a shared work queue.
pub(super) fn compile_fork(table: &[Rule], options: FilterOptions) -> Program {
    let differs = |rule: &&Rule| {
        let ours = action_decision(rule.action, options);
        ZYGOTE.contains(&rule.number) || ours != action_decision(rule.action, ZYGOTE_OPTIONS)
    };
    let rows = table.iter().filter(differs);
    let decisions = rows.map(|rule| (rule.number as u32, action_decision(rule.action, options)));
    let numbers = search(&ranges(decisions.collect(), &Decision::ALLOW));
    Program::assemble(&load(Word::Number, numbers))
}

pub(super) fn compile(table: &[Rule], options: FilterOptions) -> Program {
    let decisions = table
        .iter()
        .map(|rule| (rule.number as u32, action_decision(rule.action, options)));
    let numbers = search(&ranges(decisions.collect(), &Decision::UNKNOWN));
    for_this_architecture(when(Comparison::AtLeast(X32_BIT), Decision::KILL, numbers))
}

/// The program where seccomp is switched off and threads are still counted.
#[cfg(feature = "weaken")]
pub(crate) fn count_alone() -> Program {
    let thread = Comparison::AnyBit(libc::CLONE_THREAD as u32);
    for_this_architecture(when(
        Comparison::Equal(libc::SYS_clone as u32),
        load(Word::Low(0), when(thread, Decision::HAND_OVER, Decision::ALLOW)),
        Decision::ALLOW,
    ))
}

/// Decides by the number. A call of another architecture numbers its calls differently, and kills the process.
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

/// Ranges of numbers with the same decision, by their first number; the last range has no end.
type Ranges = Vec<(u32, Decision)>;

/// Numbers that have no decision of their own get `otherwise`.
fn ranges(known: BTreeMap<u32, Decision>, otherwise: &Decision) -> Ranges {
    let mut ranges = Ranges::new();
    let mut next = 0;
    for (number, decision) in known {
        if number > next {
            ranges.push((next, otherwise.clone()));
        }
        ranges.push((number, decision));
        next = number + 1;
    }
    ranges.push((next, otherwise.clone()));
    ranges.dedup_by(|later, earlier| later.1 == earlier.1);
    ranges
}

fn action_decision(action: RuleAction, options: FilterOptions) -> Decision {
    match action {
        RuleAction::Allow => Decision::ALLOW,
        RuleAction::Deny => Decision::REFUSE,
        RuleAction::Unsupported => Decision::errno(libc::EOPNOTSUPP),
        RuleAction::Ignored => Decision::IGNORE,
        RuleAction::Check(check) => decide(check, options),
    }
}

/// A binary search for the range of the number that was loaded.
pub(super) fn search(ranges: &[(u32, Decision)]) -> Decision {
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
