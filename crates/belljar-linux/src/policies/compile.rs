//! From the table to programs for the kernel.
//!
//! seccompiler knows one action for a match and one for the rest, so the decisions are spread over
//! a small stack of filters. The kernel runs all of them and the strictest answer wins.

use std::collections::{BTreeMap, HashMap};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

use super::table::{Check, Rule, RuleAction, rules};

/// What of the machine the filters depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FilterOptions {
    /// A memory cgroup counts what no process shows.
    pub memory_accounted: bool,
    /// Hand new threads over to init, which makes room for them.
    pub count_processes: bool,
}

/// The programs, in the order in which they are installed.
#[derive(Clone, Debug)]
pub(crate) struct Filters {
    pub plain: Vec<BpfProgram>,
    /// Its matches wait for init's answer.
    pub counted: Option<BpfProgram>,
}

/// Filters that were compiled before they are needed: the launcher has time for that while the
/// engine is busy, and every init inherits them.
#[derive(Debug, Default)]
pub(crate) struct PreparedFilters(HashMap<FilterOptions, Filters>);

impl PreparedFilters {
    /// All filters that a guest may be asked to have.
    pub(crate) fn all() -> Result<Self, seccompiler::BackendError> {
        let mut filters = HashMap::new();
        for memory_accounted in [true, false] {
            for count_processes in [true, false] {
                let options = FilterOptions {
                    memory_accounted,
                    count_processes,
                };
                filters.insert(options, compile(options)?);
            }
        }
        Ok(Self(filters))
    }

    pub(crate) fn get(&self, options: FilterOptions) -> Option<&Filters> {
        self.0.get(&options)
    }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn compile(options: FilterOptions) -> Result<Filters, seccompiler::BackendError> {
    let table = rules();
    let last = table.iter().map(|rule| rule.number).max().unwrap_or(0);
    // Every number up to the last one that the table lacks; what comes after is refused by `bounds`.
    // Listing these and not the known ones keeps the program short: the kernel walks through it
    // hundreds of times when it is installed.
    let mut unknown: Rules = (0..=last).map(|number| (number, Vec::new())).collect();
    let mut denied: Rules = BTreeMap::new();
    for rule in &table {
        unknown.remove(&rule.number);
        match conditions(rule, options)? {
            Refusal::Never => {}
            Refusal::Always => {
                denied.insert(rule.number, Vec::new());
            }
            Refusal::When(when) => {
                denied.insert(rule.number, when);
            }
        }
    }
    let plain = vec![
        bounds(last as u32),
        program(
            denied,
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EPERM as u32),
        )?,
        program(
            unknown,
            SeccompAction::Allow,
            SeccompAction::Errno(libc::ENOSYS as u32),
        )?,
    ];
    let counted = if options.count_processes {
        Some(count_processes()?)
    } else {
        None
    };
    Ok(Filters { plain, counted })
}

/// When a call in the table is refused with EPERM.
enum Refusal {
    Never,
    Always,
    When(Vec<SeccompRule>),
}

fn conditions(rule: &Rule, options: FilterOptions) -> Result<Refusal, seccompiler::BackendError> {
    let check = match rule.action {
        RuleAction::Allow => return Ok(Refusal::Never),
        RuleAction::Deny => return Ok(Refusal::Always),
        RuleAction::Check(check) => check,
    };
    let when = match check {
        Check::AccountedMemory => {
            return Ok(if options.memory_accounted {
                Refusal::Never
            } else {
                Refusal::Always
            });
        }
        Check::CloneFlags => {
            let mut when = Vec::new();
            for flag in NAMESPACE_FLAGS {
                when.push(all([bits(0, flag)?])?);
            }
            let thread = libc::CLONE_THREAD as u64;
            for needed in [libc::CLONE_VM as u64, libc::CLONE_SIGHAND as u64] {
                when.push(all([bits(0, thread)?, masked(0, needed, 0)?])?);
            }
            when
        }
        Check::FileControl => {
            const F_NOTIFY: u64 = 1026;
            vec![
                all([equal(1, libc::F_SETLEASE as u64)?])?,
                all([equal(1, F_NOTIFY)?])?,
            ]
        }
        Check::Socket => socket_refusals()?,
        Check::Ioctl => [libc::TIOCSTI, libc::TIOCLINUX]
            .iter()
            .map(|request| all([equal(1, *request)?]))
            .collect::<Result<Vec<_>, _>>()?,
        Check::Mode(argument) => vec![all([bits(argument, SETUID)?])?, all([bits(argument, SETGID)?])?],
        Check::CreateMode { flags, mode } => {
            let mut when = Vec::new();
            for create in [libc::O_CREAT as u64, TMPFILE] {
                for bit in [SETUID, SETGID] {
                    when.push(all([bits(flags, create)?, bits(mode, bit)?])?);
                }
            }
            when
        }
        Check::Personality => {
            vec![all([
                different(0, 0)?,
                different(0, ADDR_NO_RANDOMIZE)?,
                different(0, ASK_PERSONALITY)?,
            ])?]
        }
        Check::OwnLimits => vec![
            all([different(0, 0)?])?,
            all([equal(1, TASK_LIMIT)?, pointer_given(2)?])?,
        ],
        Check::LimitOf(argument) => vec![all([equal(argument, TASK_LIMIT)?])?],
    };
    Ok(Refusal::When(when))
}

const TASK_LIMIT: u64 = libc::RLIMIT_NPROC as u64;
const SETUID: u64 = 0o4000;
const SETGID: u64 = 0o2000;
/// The kernel's own bit of O_TMPFILE, which makes a file without O_CREAT.
const TMPFILE: u64 = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64;
const ADDR_NO_RANDOMIZE: u64 = 0x0004_0000;
const ASK_PERSONALITY: u64 = 0xffff_ffff;
const CLONE_NEWTIME: u64 = 0x80;
const NAMESPACE_FLAGS: [u64; 8] = [
    libc::CLONE_NEWNS as u64,
    libc::CLONE_NEWCGROUP as u64,
    libc::CLONE_NEWUTS as u64,
    libc::CLONE_NEWIPC as u64,
    libc::CLONE_NEWUSER as u64,
    libc::CLONE_NEWPID as u64,
    libc::CLONE_NEWNET as u64,
    CLONE_NEWTIME,
];

/// Raw, sequenced and packet sockets, foreign families, and protocols that are neither TCP nor UDP.
fn socket_refusals() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    const TYPE_MASK: u64 = 0xf;
    let (unix, inet, inet6) = (libc::AF_UNIX as u64, libc::AF_INET as u64, libc::AF_INET6 as u64);
    let mut rules = vec![all([
        different(0, unix)?,
        different(0, inet)?,
        different(0, inet6)?,
    ])?];
    for family in [inet, inet6] {
        rules.push(all([
            equal(0, family)?,
            different(2, 0)?,
            different(2, libc::IPPROTO_TCP as u64)?,
            different(2, libc::IPPROTO_UDP as u64)?,
        ])?);
        for kind in [
            libc::SOCK_RAW,
            libc::SOCK_RDM,
            libc::SOCK_SEQPACKET,
            libc::SOCK_DCCP,
            SOCK_PACKET,
        ] {
            rules.push(all([equal(0, family)?, masked(1, TYPE_MASK, kind as u64)?])?);
        }
    }
    // Local sockets know three types; RAW means DGRAM there and is refused all the same.
    rules.push(all([
        equal(0, unix)?,
        masked(1, TYPE_MASK, libc::SOCK_RAW as u64)?,
    ])?);
    Ok(rules)
}
const SOCK_PACKET: i32 = 10;

/// A new thread waits for init's answer, a new process does not: see `init/room.rs`.
fn count_processes() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: Rules = BTreeMap::new();
    rules.insert(libc::SYS_clone, vec![all([bits(0, libc::CLONE_THREAD as u64)?])?]);
    // seccompiler has no name for handing a call over. A trace action with a mark of our own stands
    // in for it and is rewritten here; nothing else in the program returns that value.
    const MARK: u32 = 0x7f17;
    let mut program = program(rules, SeccompAction::Allow, SeccompAction::Trace(MARK))?;
    for instruction in &mut program {
        if instruction.code == RETURN && instruction.k == libc::SECCOMP_RET_TRACE | MARK {
            instruction.k = libc::SECCOMP_RET_USER_NOTIF;
        }
    }
    Ok(program)
}

const LOAD_WORD: u16 = 0x20;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Numbers past the table are unknown; x32 calls carry x86-64's architecture number and a high bit
/// in their own, and are deadly.
fn bounds(last: u32) -> BpfProgram {
    const X32_BIT: u32 = 0x4000_0000;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_GREATER_EQUAL, 2, 0, X32_BIT),
        step(JUMP_GREATER_EQUAL, 2, 0, last + 1),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ]
}

fn program(
    rules: Rules,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, seccompiler::BackendError> {
    SeccompFilter::new(rules, otherwise, matched, architecture()?)?.try_into()
}

fn architecture() -> Result<TargetArch, seccompiler::BackendError> {
    TargetArch::try_from(std::env::consts::ARCH)
}

fn all<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(conditions.into())
}

fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    // The kernel reads these arguments as 32-bit integers; what is above must not matter.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

fn equal(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    condition(argument, SeccompCmpOp::Eq, value)
}

fn different(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    condition(argument, SeccompCmpOp::Ne, value)
}

/// All of it counts: an address may well have nothing in its lower half.
fn pointer_given(argument: u8) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)
}

fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    condition(argument, SeccompCmpOp::MaskedEq(mask), value)
}

fn bits(argument: u8, flag: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    masked(argument, flag, flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_compiles_within_the_kernels_limit() {
        let filters = compile(FilterOptions {
            memory_accounted: true,
            count_processes: true,
        })
        .unwrap();
        assert_eq!(filters.plain.len(), 3);
        for program in filters.plain.iter().chain(&filters.counted) {
            assert!(program.len() < 4096, "{}", program.len());
        }
        let counted = filters.counted.unwrap();
        assert!(counted.iter().any(|step| step.k == libc::SECCOMP_RET_USER_NOTIF));
        assert!(
            !counted
                .iter()
                .any(|step| step.code == RETURN && step.k & 0xffff_0000 == libc::SECCOMP_RET_TRACE)
        );
    }
}
