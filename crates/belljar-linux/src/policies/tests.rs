//! Compares the compiled programs with a second, plain reading of the table.

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::arguments::{self, Request};
use super::assemble::{Answer, Program};
use super::compile::{ARCHITECTURE, FilterOptions, PreparedFilters, X32_BIT, compile};
#[cfg(feature = "weaken")]
use super::interpret::answer;
use super::interpret::{Call, instructions, run};
use super::table::{Check, Rule, RuleAction, rules};

const REFUSED: Answer = Answer::Errno(libc::EPERM as u16);

/// The answer that the table demands for a call.
fn expected(table: &[Rule], options: FilterOptions, call: &Call) -> Answer {
    if call.architecture != ARCHITECTURE || call.number >= X32_BIT {
        return Answer::Kill;
    }
    let Some(rule) = table.iter().find(|rule| rule.number == i64::from(call.number)) else {
        return Answer::Errno(libc::ENOSYS as u16);
    };
    match rule.action {
        RuleAction::Allow => Answer::Allow,
        RuleAction::Deny => REFUSED,
        RuleAction::Unsupported => Answer::Errno(libc::EOPNOTSUPP as u16),
        RuleAction::Ignored => Answer::Errno(0),
        RuleAction::Check(check) => checked_answer(check, options, call.arguments),
    }
}

fn checked_answer(check: Check, options: FilterOptions, arguments: [u64; 6]) -> Answer {
    let int = |argument: u8| arguments[usize::from(argument)] as i32;
    let has = |list: &[Request], argument: u8| {
        let number = int(argument) as u32;
        list.iter().any(|request| request.number == number)
    };
    let handed_over = if options.supervised {
        Answer::HandOver
    } else {
        Answer::Allow
    };
    let listed = |is_listed: bool, errno: i32| {
        if is_listed {
            Answer::Allow
        } else {
            Answer::Errno(errno as u16)
        }
    };
    match check {
        // TIOCSTI, TIOCLINUX.
        Check::Ioctl if matches!(int(1), 0x5412 | 0x541c) => REFUSED,
        Check::Ioctl => listed(has(arguments::IOCTL, 1), libc::ENOTTY),
        Check::ProcessControl => listed(has(arguments::PRCTL, 0), libc::EINVAL),
        Check::FilterOperation => listed(has(arguments::SECCOMP, 0), libc::EINVAL),
        Check::SocketOption => {
            let mut levels = arguments::SETSOCKOPT.iter();
            let level = levels.find(|level| level.level as i32 == int(1));
            listed(
                level.is_some_and(|level| has(level.options, 2)),
                libc::ENOPROTOOPT,
            )
        }
        Check::FileControl if has(arguments::RECORD_LOCKS, 1) => handed_over,
        Check::FileLock => handed_over,
        Check::FileAdvice if int(3) == 4 => Answer::Errno(0),
        Check::FileAdvice => Answer::Allow,
        // Leases, notices, pipe sizes.
        Check::FileControl if matches!(int(1), 1024 | 1026 | 1031) => REFUSED,
        Check::FileControl => listed(has(arguments::FCNTL, 1), libc::EINVAL),
        _ if is_refused(check, options, arguments) => REFUSED,
        Check::CloneFlags if int(0) & libc::CLONE_THREAD != 0 => handed_over,
        _ => Answer::Allow,
    }
}

fn is_refused(check: Check, options: FilterOptions, arguments: [u64; 6]) -> bool {
    let int = |argument: u8| arguments[usize::from(argument)] as i32;
    let set_id = |mode| int(mode) & 0o6000 != 0;
    match check {
        Check::AccountedMemory => !options.memory_accounted,
        Check::CloneFlags => {
            let never = [
                0x80, // NEWTIME
                libc::CLONE_NEWNS,
                libc::CLONE_NEWCGROUP,
                libc::CLONE_NEWUTS,
                libc::CLONE_NEWIPC,
                libc::CLONE_NEWUSER,
                libc::CLONE_NEWPID,
                libc::CLONE_NEWNET,
                libc::CLONE_PARENT,
            ];
            let has = |flag| int(0) & flag != 0;
            let whole = has(libc::CLONE_VM) && has(libc::CLONE_SIGHAND);
            never.into_iter().any(has) || has(libc::CLONE_THREAD) && !whole
        }
        Check::Socket => {
            let (kind, protocol) = (int(1) & 0xf, int(2));
            match int(0) {
                libc::AF_UNIX => kind == libc::SOCK_RAW,
                // RAW, RDM, SEQPACKET, DCCP, PACKET.
                libc::AF_INET | libc::AF_INET6 => {
                    matches!(kind, 3..=6 | 10) || !matches!(protocol, 0 | 6 | 17)
                }
                _ => true,
            }
        }
        Check::Mode(mode) => set_id(mode),
        Check::CreateMode { flags, mode } => {
            let creates = int(flags) & libc::O_CREAT != 0 || int(flags) & 0o20_000_000 != 0;
            creates && set_id(mode)
        }
        Check::Personality => !matches!(int(0), 0 | 0x4_0000 | -1),
        Check::OwnLimits => int(0) != 0 || int(1) == 6 && arguments[2] != 0,
        Check::LimitOf(argument) => int(argument) == 6,
        Check::PriorityOf(process) => int(process) == 1,
        Check::PriorityOfSome { user } => int(0) == user as i32 || int(1) == 1,
        Check::FileAdvice
        | Check::FileLock
        | Check::FileControl
        | Check::Ioctl
        | Check::ProcessControl
        | Check::SocketOption
        | Check::FilterOperation => unreachable!("decided by their lists"),
    }
}

/// Where a program says something else than the table.
fn difference(
    table: &[Rule],
    options: FilterOptions,
    program: &Program,
    calls: impl IntoIterator<Item = Call>,
) -> Option<String> {
    let program: Vec<_> = instructions(program.bytes()).collect();
    calls.into_iter().find_map(|call| {
        let (is, should) = (run(&program, &call), expected(table, options, &call));
        (is != should.value())
            .then(|| format!("{call:x?} with {options:?} gets {is:#x} and should get {should:?}"))
    })
}

fn call(number: u32, arguments: [u64; 6]) -> Call {
    Call {
        number,
        architecture: ARCHITECTURE,
        arguments,
    }
}

fn checked(table: &[Rule]) -> impl Iterator<Item = u32> {
    table
        .iter()
        .filter(|rule| matches!(rule.action, RuleAction::Check(_)))
        .map(|rule| rule.number as u32)
}

#[test]
fn every_number_gets_what_the_table_says() {
    let table = rules();
    let numbers = (0..1024)
        .chain(X32_BIT - 4..X32_BIT + 1024)
        .chain([1 << 16, 1 << 31, u32::MAX]);
    for options in FilterOptions::all() {
        let program = compile(&table, options);
        for number in numbers.clone() {
            for arguments in [[0; 6], [2, 1, 0, 0, 0, 0], [u64::MAX; 6], [0o6000; 6]] {
                let native = call(number, arguments);
                // i386, the other byte order, none.
                let foreign = [0x4000_0003, ARCHITECTURE.swap_bytes(), 0].map(|architecture| Call {
                    architecture,
                    ..native
                });
                let calls = foreign.into_iter().chain([native]);
                assert_eq!(difference(&table, options, &program, calls), None);
            }
        }
    }
}

/// The tests here would see it if a rule got lost on the way.
#[test]
fn a_program_that_lacks_one_row_is_found_out() {
    let table = rules();
    for options in FilterOptions::all() {
        for lost in 0..table.len() {
            let mut rest = table.clone();
            let number = rest.remove(lost).number as u32;
            let program = compile(&rest, options);
            let found = difference(&table, options, &program, [call(number, [0; 6])]);
            assert!(found.is_some(), "{:?} was not missed", table[lost]);
        }
    }
}

/// Families, types, protocols, requests and limits have small numbers: try them all together.
#[test]
fn small_arguments_get_what_the_table_says() {
    let table = rules();
    let options = FilterOptions {
        memory_accounted: true,
        supervised: true,
    };
    let program = compile(&table, options);
    let small = || (0..20).chain([0xffff_ffff, 1 << 32]);
    for number in checked(&table) {
        let calls = small().flat_map(|first| {
            small().flat_map(move |second| {
                small().map(move |third| call(number, [first, second, third, 0, 0, 0]))
            })
        });
        assert_eq!(difference(&table, options, &program, calls), None);
    }
}

/// Values that some check compares with, and their neighbours.
fn telling() -> Vec<u64> {
    let flags = [
        0,
        1,
        2,
        6,
        7,
        10,
        16,
        17,
        0x0f,
        0x80,
        0o644,
        0o2000,
        0o4000,
        0o6755,
        0o100,
        0x40_0000,
        0x41_0000,
        0x0100,
        0x0800,
        0x8000,
        0x1_0000,
        0x1_0900,
        0x0002_0000,
        0x0200_0000,
        0x0400_0000,
        0x0800_0000,
        0x1000_0000,
        0x2000_0000,
        0x4000_0000,
        0x0004_0000,
        0xffff_ffff,
        0x5412,
        0x541c,
        1024,
        1026,
        1031,
        37,
        38,
        22,
        26,
        50,
        51,
        52,
    ];
    let lists = [
        arguments::IOCTL,
        arguments::FCNTL,
        arguments::PRCTL,
        arguments::SECCOMP,
    ];
    let listed = lists
        .into_iter()
        .flatten()
        .map(|request| u64::from(request.number));
    let neighbours = listed.flat_map(|number| [number.wrapping_sub(1) & 0xffff_ffff, number, number + 1]);
    flags.into_iter().chain(neighbours).collect()
}

fn argument() -> impl Strategy<Value = u64> {
    let telling = || select(telling());
    let above = any::<u32>().prop_map(|high| u64::from(high) << 32);
    prop_oneof![
        4 => telling(),
        2 => (telling(), above).prop_map(|(low, high)| low | high),
        2 => (telling(), telling()).prop_map(|(one, other)| one | other),
        1 => (0u32..64).prop_map(|bit| 1 << bit),
        1 => any::<u64>(),
    ]
}

/// The programs, compiled once for all cases.
static PROGRAMS: LazyLock<Vec<(FilterOptions, Program)>> = LazyLock::new(|| {
    let table = rules();
    let programs = FilterOptions::all().map(|options| (options, compile(&table, options)));
    programs.collect()
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn any_arguments_get_what_the_table_says(arguments in vec(argument(), 6), number in any::<u32>()) {
        let table = rules();
        let arguments: [u64; 6] = arguments.try_into().unwrap();
        for (options, program) in &*PROGRAMS {
            let calls = checked(&table).chain([number]).map(|number| call(number, arguments));
            prop_assert_eq!(difference(&table, *options, program, calls), None);
        }
    }
}

/// The kernel takes the strictest of two answers: the one whose action is the smaller number, read with its sign.
fn strictest(answers: [u32; 2]) -> u32 {
    let action = |answer: &u32| (answer & libc::SECCOMP_RET_ACTION_FULL) as i32;
    let [first, second] = answers;
    if action(&first) <= action(&second) {
        first
    } else {
        second
    }
}

/// A zygote's filter and the one that its fork adds decide together as the filter of a guest that init forked.
#[test]
fn two_filters_decide_like_one() {
    let filters = PreparedFilters::default();
    let table = rules();
    let numbers = (0..1024).chain(X32_BIT - 4..X32_BIT + 1024).chain([u32::MAX]);
    for options in FilterOptions::all() {
        let taken_apart = |program: &Program| instructions(program.bytes()).collect::<Vec<_>>();
        let programs = [filters.zygote(), filters.fork(options)].map(taken_apart);
        let compare = |call: &Call| {
            let both = strictest([run(&programs[0], call), run(&programs[1], call)]);
            assert_eq!(
                both,
                expected(&table, options, call).value(),
                "{call:x?} with {options:?}"
            );
        };
        for number in numbers.clone() {
            for arguments in [[0; 6], [2, 1, 0, 0, 0, 0], [u64::MAX; 6], [0o6000; 6]] {
                compare(&call(number, arguments));
                compare(&Call {
                    architecture: 0x4000_0003,
                    ..call(number, arguments)
                });
            }
        }
        for number in checked(&table) {
            for first in telling() {
                for second in [0, 1, 6, 7, 0x8000, first] {
                    compare(&call(number, [first, second, first, 0, 0, 0]));
                    compare(&call(number, [second, first, first, 0, 0, 0]));
                }
            }
        }
    }
}

#[test]
fn a_program_is_short() {
    for options in FilterOptions::all() {
        let program = compile(&rules(), options);
        let length = instructions(program.bytes()).count();
        println!("{length} instructions with {options:?}");
        assert!(length < 500, "{length} instructions with {options:?}");
        let fork = PreparedFilters::default();
        let length = instructions(fork.fork(options).bytes()).count();
        println!("{length} more for a fork of a zygote");
        assert!(length < 60, "{length} instructions of a fork with {options:?}");
    }
}

#[cfg(feature = "weaken")]
#[test]
fn counting_alone_asks_about_threads_and_nothing_else() {
    let program = super::compile::count_alone();
    let ask = |number: i64, flags: i32| answer(&program, &call(number as u32, [flags as u64, 0, 0, 0, 0, 0]));
    assert_eq!(
        ask(libc::SYS_clone, libc::CLONE_THREAD | libc::CLONE_VM),
        Answer::HandOver.value()
    );
    assert_eq!(ask(libc::SYS_clone, libc::CLONE_NEWUSER), Answer::Allow.value());
    assert_eq!(ask(libc::SYS_bpf, libc::CLONE_THREAD), Answer::Allow.value());
}
