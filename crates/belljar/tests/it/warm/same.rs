//! What a program sees and what is told of it are the same whether its interpreter waited or was started
//! for it.

use std::io::Write;
use std::os::fd::OwnedFd;

use belljar::{Bytes, Engine, ExecuteIo, Execution, GuestPath, Language, Request, Seconds, Stdin};
use belljar_linux::PoolSettings;

use super::{
    FORKED_AHEAD, MADE, STARTED_AHEAD, code_in, cold, engine, go, go_with, origin, prepare, python, runtime,
};
use crate::again::{alone, test_name};

/// Everything of an outcome that does not depend on the clock.
fn told(run: &Execution) -> String {
    let outcome = &run.outcome;
    format!(
        "{} exit {:?} signal {:?} {:?}\nfiles {:#?}\ndropped {} {}\n-- stdout\n{}\n-- stderr\n{}",
        outcome.status,
        outcome.exit_code,
        outcome.signal,
        outcome.error,
        outcome.files,
        outcome.stdout.dropped(),
        outcome.stderr.dropped(),
        outcome.stdout.text(),
        without_internals(&outcome.stderr.text()),
    )
}

/// A stack trace of node's also names the functions of its own that called the program; those differ.
fn without_internals(text: &str) -> String {
    let own = |line: &&str| !(line.starts_with("    at ") && line.contains("node:internal/"));
    text.lines().filter(own).map(|line| format!("{line}\n")).collect()
}

/// Programs that end in every way there is, and look around. Left out is what they may notice by design: one
/// frame of the runner below their own, and the zygote's filter beside their own.
const PROGRAMS: &[&str] = &[
    "pass",
    "print('hello')",
    "print('no newline', end='')",
    "import sys; sys.exit(3)",
    "import sys; sys.exit('a reason')",
    "raise SystemExit",
    "import os; os._exit(7)",
    "1 / 0",
    "def f():\n    raise ValueError('deep')\ndef g():\n    f()\ng()",
    "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('second') from error",
    "this is no python",
    "print('half'\n",
    "raise KeyboardInterrupt",
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "import os; os.abort()",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "import os, signal; print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGCHLD), signal.getsignal(signal.SIGPIPE))",
    "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))",
    "import sys; print(sys.argv, __name__, __file__, sys.path[0], sys.flags, sys.stdin.encoding, sys.stdout.line_buffering)",
    "import os; print(os.getcwd(), sorted(os.listdir('.')), sorted(os.environ.items()))",
    "import os; print(os.getuid(), os.getgid(), os.getgroups(), os.umask(0o22), os.getpriority(0, 0))",
    "import os; print(sorted(os.listdir('/proc/self/fd'))[:3], os.isatty(0), os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid())",
    "import resource as r; print([(n, r.getrlimit(getattr(r, n))) for n in sorted(dir(r)) if n.startswith('RLIMIT') and n != 'RLIMIT_NPROC'])",
    "print(open('/proc/self/status').read().split('CapInh')[1].split('Seccomp_filters')[0])",
    "import sys; print(sys.modules['__main__'].__dict__.keys()); print(sys.stdout.errors, sys.stderr.line_buffering)",
    "import sys; print('ä', '\\ud800'.encode('utf-8', 'surrogatepass'), sys.getfilesystemencoding(), sys.getrecursionlimit())",
    "import sys; print('out'); print('err', file=sys.stderr); sys.stdout.buffer.write(b'\\xff\\x00raw')",
    "class A:\n    def __del__(self): print('deleted')\ndef f(): pass\na = A(); b = A(); b.me = b",
    "import atexit; atexit.register(print, 'at the end'); print('before')",
    "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.1), print('thread'))).start(); print('main')",
    "import gc; print(gc.isenabled(), gc.get_threshold()); import time; print(time.tzname)",
    "import os\nif os.fork() == 0:\n    print('child', flush=True); os._exit(0)\nos.wait(); print('parent')",
    "import subprocess; print(subprocess.run(['echo', 'sub'], capture_output=True, text=True))",
    "import multiprocessing as m\nif __name__ == '__main__':\n    with m.Pool(2) as p: print(p.map(abs, [-1, -2]))",
    "import asyncio\nasync def f(): await asyncio.sleep(0); return 5\nprint(asyncio.run(f()))",
    "open('out.txt', 'w').write('kept'); import os; os.mkdir('d'); open('d/x', 'w').write('y')",
    "import os; os.symlink('/etc/passwd', 'out.txt')",
    "print('x' * 300000)",
    "import sys\nfor _ in range(40): sys.stderr.write('y' * 10000)",
    "import sys; print(repr(sys.stdin.read()))",
    "print(input())",
    "def f(): return f()\ntry: f()\nexcept RecursionError as error: print(error)",
    "import helper",
    "import sys; print(sys.exc_info(), sys.stdout.write_through, sys.stdin.isatty(), sys.argv[0], sys.dont_write_bytecode)",
    "assert False, 'as asked'",
    "import warnings; warnings.warn('careful')",
    "import sys; sys.stdout.close(); sys.exit(4)",
    "import locale; print(locale.getpreferredencoding()); print(sorted(globals()))",
];

fn variants(code: &str) -> Request {
    let mut request = python(code);
    request.args = ["one", "two words", "", "--flag", "ü"].map(str::to_owned).into();
    request.env.insert("TZ".to_owned(), "Asia/Tokyo".to_owned());
    request.env.insert("GREETING".to_owned(), "hello ü".to_owned());
    request.limits.output = Some(Bytes::from_mib(1));
    request.outputs = ["out.txt", "d/x", "absent"]
        .iter()
        .map(|path| GuestPath::new(path).expect("a path"))
        .collect();
    request
}

fn pair() -> (Engine, Engine) {
    (cold(), engine(PoolSettings::default()))
}

/// Runs each by both paths and shows every difference there is.
fn compare(programs: &[&str], language: Language, waited: &str) {
    let (cold, warm) = pair();
    let mut differences = String::new();
    runtime().block_on(async {
        for program in programs {
            // With arguments, variables and files of its own, and with nothing but its text, as most of them come.
            let plain = code_in(language, program);
            let source = plain.source.clone();
            for request in [
                Request {
                    source,
                    ..variants(program)
                },
                plain,
            ] {
                tokio::task::block_in_place(|| prepare(&warm, &request));
                let (first, second) = (go(&cold, &request).await, go(&warm, &request).await);
                assert_eq!((origin(&first), origin(&second)), (MADE, waited));
                let (first, second) = (told(&first), told(&second));
                if first != second {
                    let lines = |text: &str, other: &str| {
                        let other: Vec<_> = other.lines().collect();
                        let own = text.lines().filter(|line| !other.contains(line));
                        own.map(|line| format!("    {line}\n")).collect::<String>()
                    };
                    differences += &format!(
                        "{program}\n  only cold\n{}  only warm\n{}",
                        lines(&first, &second),
                        lines(&second, &first)
                    );
                }
            }
        }
    });
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn programs_end_alike_cold_and_warm() {
    alone(test_name!(), || compare(PROGRAMS, Language::Python, FORKED_AHEAD));
}

#[test]
fn scripts_end_alike_cold_and_warm() {
    let programs = [
        "console.log('hello')",
        "process.exit(3)",
        "throw new Error('deep')",
        "console.log(process.argv.slice(2), process.env.GREETING, __filename, require.main === module)",
        "process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 9000)",
        "setTimeout(() => console.log('later'), 50); console.error('now')",
        "this is no script",
        "Promise.reject(new Error('nobody looks'))",
        "process.on('exit', code => console.log('exit', code)); process.exitCode = 5",
        "console.log(require('fs').readFileSync(0, 'utf8').length)",
        "require('fs').writeFileSync('out.txt', 'kept')",
    ];
    alone(test_name!(), || {
        compare(&programs, Language::Javascript, STARTED_AHEAD)
    });
}

const DIGEST: &str =
    "import sys, hashlib\ndata = sys.stdin.buffer.read()\nprint(len(data), hashlib.sha256(data).hexdigest())";

/// Empty, small, at and past what a pipe takes at once, and large.
#[test]
fn standard_input_arrives_whole_on_the_warm_path() {
    alone(test_name!(), || {
        let (cold, warm) = pair();
        runtime().block_on(async {
            for length in [0usize, 1, 4096, 4097, 65_536, 65_537, 1 << 20] {
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 % 251) as u8).collect();
                let mut request = python(DIGEST);
                request.stdin = Stdin::Bytes(bytes.into());
                tokio::task::block_in_place(|| prepare(&warm, &request));
                let (first, second) = (go(&cold, &request).await, go(&warm, &request).await);
                assert_eq!(origin(&second), FORKED_AHEAD);
                assert!(
                    first.outcome.stdout.text().starts_with(&format!("{length} ")),
                    "{}",
                    told(&first)
                );
                assert_eq!(told(&first), told(&second));
            }
            // One that never reads it ends all the same.
            let mut request = python("print('did not look')");
            request.stdin = Stdin::Bytes(vec![7; 1 << 20].into());
            assert_eq!(go(&warm, &request).await.outcome.stdout.text(), "did not look\n");
        });
    });
}

/// More than the channel to a waiting interpreter takes at once, which it is told by and by.
#[test]
fn long_arguments_arrive_whole_on_the_warm_path() {
    alone(test_name!(), || {
        let (cold, warm) = pair();
        runtime().block_on(async {
            let mut request =
                python("import sys; print(len(sys.argv), sum(map(len, sys.argv[1:])), sys.argv[-1][-5:])");
            request.args = (0..9).map(|at| at.to_string().repeat(100 << 10)).collect();
            tokio::task::block_in_place(|| prepare(&warm, &request));
            let (first, second) = (go(&cold, &request).await, go(&warm, &request).await);
            assert_eq!(origin(&second), FORKED_AHEAD);
            assert_eq!(
                first.outcome.stdout.text(),
                "10 921600 88888\n",
                "{}",
                told(&first)
            );
            assert_eq!(told(&first), told(&second));
        });
    });
}

/// It is read as it comes: the guest answers before there is more.
#[test]
fn standard_input_is_streamed_on_the_warm_path() {
    alone(test_name!(), || {
        let warm = engine(PoolSettings::default());
        runtime().block_on(async {
            let mut request =
                python("import sys\nfor line in sys.stdin: print(line.strip()[::-1], flush=True)");
            request.stdin = Stdin::Stream;
            request.limits.wall_time = Some(Seconds::whole(20));
            tokio::task::block_in_place(|| prepare(&warm, &request));
            let (ours, writer) = std::io::pipe().expect("a pipe");
            let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
            let mut sink = move |_, bytes: &[u8]| {
                let _ = sender.send(bytes.to_vec());
            };
            let talk = async {
                let mut writer = writer;
                for word in ["abc\n", "def\n"] {
                    writer.write_all(word.as_bytes()).expect("write");
                    let mut answer = Vec::new();
                    while !answer.ends_with(b"\n") {
                        answer.extend(heard.recv().await.expect("an answer"));
                    }
                    let reversed: String = word.trim().chars().rev().collect();
                    assert_eq!(String::from_utf8_lossy(&answer), reversed + "\n");
                }
                drop(writer);
            };
            let io = ExecuteIo {
                sink: Some(&mut sink),
                stdin: Some(OwnedFd::from(ours)),
                stop: None,
            };
            let (run, ()) = tokio::join!(go_with(&warm, &request, io), talk);
            assert_eq!(origin(&run), FORKED_AHEAD);
            assert!(run.outcome.success(), "{}", told(&run));
        });
    });
}
