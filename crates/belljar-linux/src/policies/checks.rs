//! Compiles the checks on arguments into decisions.
//!
//! The kernel reads these arguments as 32-bit integers, so only their low words are compared: the high word must not
//! matter. A pointer is the exception.

use super::arguments::{self, Request};
use super::assemble::{Comparison, Decision, Word, load, when};
use super::compile::{FilterOptions, search};
use super::table::Check;

/// The decision for a call with this check.
pub(super) fn decide(check: Check, options: FilterOptions) -> Decision {
    use Comparison::{AnyBit, Equal};
    match check {
        Check::AccountedMemory if options.memory_accounted => Decision::ALLOW,
        Check::AccountedMemory => Decision::REFUSE,
        Check::CloneFlags => clone_flags(options),
        Check::Socket => socket(),
        Check::FileControl => load(Word::Low(1), file_control(options)),
        Check::Ioctl => load(Word::Low(1), ioctl()),
        Check::ProcessControl => load(Word::Low(0), listed(arguments::PRCTL, libc::EINVAL)),
        Check::SocketOption => load(Word::Low(1), socket_option()),
        Check::FileLock if options.supervised => Decision::HAND_OVER,
        Check::FileLock => Decision::ALLOW,
        Check::FileAdvice => load(
            Word::Low(3),
            when(
                Equal(libc::POSIX_FADV_DONTNEED as u32),
                Decision::IGNORE,
                Decision::ALLOW,
            ),
        ),
        Check::FilterOperation => load(Word::Low(0), listed(arguments::SECCOMP, libc::EINVAL)),
        Check::Mode(mode) => set_id(mode),
        Check::CreateMode { flags, mode } => load(
            Word::Low(flags),
            when(
                AnyBit(libc::O_CREAT as u32 | TMPFILE),
                set_id(mode),
                Decision::ALLOW,
            ),
        ),
        Check::Personality => {
            const ADDR_NO_RANDOMIZE: u32 = 0x0004_0000;
            const ASK: u32 = u32::MAX;
            load(
                Word::Low(0),
                one_of(&[0, ADDR_NO_RANDOMIZE, ASK], &Decision::ALLOW, Decision::REFUSE),
            )
        }
        Check::OwnLimits => {
            let task_limit = load(
                Word::Low(1),
                when(Equal(TASK_LIMIT), unless_given(2), Decision::ALLOW),
            );
            load(Word::Low(0), when(Equal(0), task_limit, Decision::REFUSE))
        }
        Check::PriorityOf(process) => not_the_first(process),
        Check::PriorityOfSome { user } => load(
            Word::Low(0),
            when(Equal(user), Decision::REFUSE, not_the_first(1)),
        ),
        Check::LimitOf(argument) => load(
            Word::Low(argument),
            when(Equal(TASK_LIMIT), Decision::REFUSE, Decision::ALLOW),
        ),
    }
}

const F_NOTIFY: u32 = 1026;
const TASK_LIMIT: u32 = libc::RLIMIT_NPROC as _;
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
/// The kernel's own bit of O_TMPFILE, which makes a file without O_CREAT.
const TMPFILE: u32 = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;
const CLONE_NEWTIME: u32 = 0x80;
const NEW_NAMESPACES: u32 = CLONE_NEWTIME
    | (libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET) as u32;

/// One of the values, or none of them.
fn one_of(values: &[u32], yes: &Decision, no: Decision) -> Decision {
    values.iter().rev().fold(no, |rest, value| {
        when(Comparison::Equal(*value), yes.clone(), rest)
    })
}

/// Allows the listed requests; any other number fails with `errno`.
fn listed(requests: &[Request], errno: i32) -> Decision {
    let allowed = requests.iter().map(|request| (request.number, Decision::ALLOW));
    select(allowed, &Decision::errno(errno))
}

/// Requests that type into a terminal are refused, so that nobody takes them for a file without a terminal.
fn ioctl() -> Decision {
    let allowed = arguments::IOCTL
        .iter()
        .map(|request| (request.number, Decision::ALLOW));
    let refused = [libc::TIOCSTI as u32, libc::TIOCLINUX as u32]
        .into_iter()
        .map(|number| (number, Decision::REFUSE));
    select(allowed.chain(refused), &Decision::errno(libc::ENOTTY))
}

/// The decision of each listed number, and `otherwise` for the numbers between them.
fn select(listed: impl Iterator<Item = (u32, Decision)>, otherwise: &Decision) -> Decision {
    let mut listed: Vec<_> = listed.collect();
    listed.sort_by_key(|(number, _)| *number);
    let mut ranges = vec![(0, otherwise.clone())];
    for (number, decision) in listed {
        if ranges.last().is_some_and(|(first, _)| *first == number) {
            ranges.pop();
        }
        ranges.push((number, decision));
        if let Some(next) = number.checked_add(1) {
            ranges.push((next, otherwise.clone()));
        }
    }
    ranges.dedup_by(|later, earlier| later.1 == earlier.1);
    search(&ranges)
}

/// A record lock waits for init's answer where a listener is there to give one: see `init/locks.rs`.
fn file_control(options: FilterOptions) -> Decision {
    let lock = if options.supervised {
        Decision::HAND_OVER
    } else {
        Decision::ALLOW
    };
    let allowed = arguments::FCNTL
        .iter()
        .map(|request| (request.number, Decision::ALLOW));
    let locks = arguments::RECORD_LOCKS
        .iter()
        .map(|request| (request.number, lock.clone()));
    let refused = [arguments::PIPE_SIZE, libc::F_SETLEASE as u32, F_NOTIFY]
        .into_iter()
        .map(|number| (number, Decision::REFUSE));
    select(
        allowed.chain(locks).chain(refused),
        &Decision::errno(libc::EINVAL),
    )
}

fn socket_option() -> Decision {
    let unknown = Decision::errno(libc::ENOPROTOOPT);
    let levels = arguments::SETSOCKOPT.iter().map(|level| {
        (
            level.level,
            load(Word::Low(2), listed(level.options, libc::ENOPROTOOPT)),
        )
    });
    select(levels, &unknown)
}

/// Refuses new namespaces, and children that are not the caller's own: a sibling would be a child of the process that started
/// the guest, outside of the tree that is watched. Where processes are counted, a new thread waits for init's answer; a new
/// process does not: see `init/room.rs`.
fn clone_flags(options: FilterOptions) -> Decision {
    use Comparison::AnyBit;
    let made = if options.supervised {
        Decision::HAND_OVER
    } else {
        Decision::ALLOW
    };
    // Nobody makes room for a thread that the kernel would refuse.
    let with_handlers = when(AnyBit(libc::CLONE_SIGHAND as u32), made, Decision::REFUSE);
    let thread = when(AnyBit(libc::CLONE_VM as u32), with_handlers, Decision::REFUSE);
    load(
        Word::Low(0),
        when(
            AnyBit(NEW_NAMESPACES | libc::CLONE_PARENT as u32),
            Decision::REFUSE,
            when(AnyBit(libc::CLONE_THREAD as u32), thread, Decision::ALLOW),
        ),
    )
}

/// Refuses raw, sequenced and packet sockets, foreign families, and protocols that are neither TCP nor UDP.
fn socket() -> Decision {
    const SOCK_PACKET: i32 = 10;
    let types = |refused: &[i32]| {
        const TYPE_MASK: u32 = 0xf;
        let values: Vec<_> = refused.iter().map(|kind| *kind as u32).collect();
        let compared = one_of(&values, &Decision::REFUSE, Decision::ALLOW);
        load(Word::Low(1), Decision::Mask(TYPE_MASK, compared.into()))
    };
    // Local sockets know three types; RAW means DGRAM there and is refused all the same.
    let local = types(&[libc::SOCK_RAW]);
    let internet = types(&[
        libc::SOCK_RDM,
        libc::SOCK_SEQPACKET,
        libc::SOCK_DCCP,
        SOCK_PACKET,
        // Last, where it is the same check as for local ones.
        libc::SOCK_RAW,
    ]);
    let protocols = [0, libc::IPPROTO_TCP as u32, libc::IPPROTO_UDP as u32];
    let internet = load(Word::Low(2), one_of(&protocols, &internet, Decision::REFUSE));
    let families = [libc::AF_INET as u32, libc::AF_INET6 as u32];
    load(
        Word::Low(0),
        when(
            Comparison::Equal(libc::AF_UNIX as u32),
            local,
            one_of(&families, &internet, Decision::REFUSE),
        ),
    )
}

/// Init, or the agent, is the first process that a guest sees; it may have the guest's own id.
fn not_the_first(process: u8) -> Decision {
    load(
        Word::Low(process),
        when(Comparison::Equal(1), Decision::REFUSE, Decision::ALLOW),
    )
}

fn set_id(mode: u8) -> Decision {
    load(
        Word::Low(mode),
        when(
            Comparison::AnyBit(SETUID | SETGID),
            Decision::REFUSE,
            Decision::ALLOW,
        ),
    )
}

/// All of a pointer counts: an address may well have nothing in its lower half.
fn unless_given(pointer: u8) -> Decision {
    let low = load(
        Word::Low(pointer),
        when(Comparison::Equal(0), Decision::ALLOW, Decision::REFUSE),
    );
    load(
        Word::High(pointer),
        when(Comparison::Equal(0), low, Decision::REFUSE),
    )
}
