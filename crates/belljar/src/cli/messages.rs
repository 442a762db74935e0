//! Lines for people on standard error. Nothing that a guest chose reaches the terminal unescaped.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use belljar::{Captured, Engine, Failure, FailureKind, Outcome};
use belljar_core::StageKind;

/// Writes `belljar: …` to standard error.
pub(crate) fn tell(text: &str) {
    line("belljar", text);
}

/// An engine that tells here of what takes long.
pub(crate) fn telling_engine() -> Engine {
    belljar::engine_telling(Arc::new(tell))
}

/// Writes `hint: …` to standard error.
pub(crate) fn hint(text: &str) {
    line("hint", text);
}

/// Tells how an execution ended, where its own output does not.
pub(crate) fn tell_outcome(outcome: &Outcome) {
    for (stream, name) in [(&outcome.stdout, "stdout"), (&outcome.stderr, "stderr")] {
        if let Some(text) = cut(stream, name) {
            tell(&text);
            hint("keep more with --output-limit, or write large results to a file and take it with --out");
        }
    }
    if let Some(failure) = &outcome.error
        && let Some((text, advice)) = failure_lines(failure)
    {
        tell(&text);
        if let Some(advice) = advice {
            hint(advice);
        }
    }
}

/// `text` on one line, with everything escaped that a terminal would act on.
pub(crate) fn visible(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut shown, c| {
            if acts_on_terminal(c) {
                // Writing into a string does not fail.
                let _ = write!(shown, "{}", c.escape_default());
            } else {
                shown.push(c);
            }
            shown
        })
}

/// Control characters, and those that reorder or break the text around them.
pub(crate) fn acts_on_terminal(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether the guest has left a line on standard error unfinished. There is one standard error.
static UNFINISHED: AtomicBool = AtomicBool::new(false);

/// Notes what the guest wrote to standard error.
pub(crate) fn guest_wrote(bytes: &[u8]) {
    if let Some(last) = bytes.last() {
        UNFINISHED.store(*last != b'\n', Ordering::Relaxed);
    }
}

/// Starts a line of our own: nothing that a guest wrote may stand before our words.
pub(crate) fn start_line() {
    if UNFINISHED.swap(false, Ordering::Relaxed) {
        let _ = std::io::stderr().lock().write_all(b"\n");
    }
}

fn line(label: &str, text: &str) {
    start_line();
    // A closed standard error leaves nobody to tell.
    let _ = writeln!(std::io::stderr().lock(), "{label}: {}", visible(text));
}

fn cut(stream: &Captured, name: &str) -> Option<String> {
    stream.truncated().then(|| {
        format!(
            "{name} was cut after {}; {} more were dropped",
            belljar::Bytes::new(stream.bytes().len() as u64),
            belljar::Bytes::new(stream.dropped())
        )
    })
}

/// What to say of a failure and what to do about it; `None` where the exit code says it all.
fn failure_lines(failure: &Failure) -> Option<(String, Option<&'static str>)> {
    let subject = match failure.stage {
        StageKind::Compile => "the compiler",
        StageKind::Run => "the program",
        StageKind::Interpreter => "the cell",
    };
    let message = &failure.message;
    let advice = match (failure.kind, failure.stage) {
        (FailureKind::ExitCode, _) => return None,
        (FailureKind::CompileFailed, _) => return Some((message.clone(), None)),
        (FailureKind::CannotStart, _) => return Some((format!("{subject} cannot start: {message}"), None)),
        (FailureKind::EngineLost, _) => return Some((format!("the sandbox was lost: {message}"), None)),
        (
            FailureKind::PolicyViolation
            | FailureKind::Exception
            | FailureKind::Interrupted
            | FailureKind::Refused
            | FailureKind::Protocol,
            _,
        ) => return Some((message.clone(), None)),
        (FailureKind::Timeout, StageKind::Run | StageKind::Interpreter) => {
            Some("give it longer with --timeout")
        }
        (FailureKind::CpuTime, StageKind::Run | StageKind::Interpreter) => {
            Some("give it more with --cpu-seconds")
        }
        (FailureKind::OutOfMemory, _) => Some("give it more with --memory"),
        (FailureKind::FileSize, _) => Some("allow larger files with --file-size"),
        (FailureKind::Signal, _) => {
            return Some((format!("{subject} {message}{}", signal_name(message)), None));
        }
        (FailureKind::Timeout | FailureKind::CpuTime | FailureKind::Cancelled, _) => None,
    };
    Some((format!("{subject} {message}"), advice))
}

/// The name of the signal whose number ends `message`, in brackets.
fn signal_name(message: &str) -> &'static str {
    let number = message.rsplit(' ').next().unwrap_or_default();
    match number {
        "4" => " (SIGILL: an invalid instruction)",
        "6" => " (SIGABRT: it aborted)",
        "7" => " (SIGBUS: a bad memory access)",
        "8" => " (SIGFPE: an arithmetic error)",
        "9" => " (SIGKILL)",
        "11" => " (SIGSEGV: a bad memory access)",
        "13" => " (SIGPIPE: nobody reads its output)",
        "15" => " (SIGTERM)",
        "31" => " (SIGSYS: a system call that the sandbox does not have)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(kind: FailureKind, stage: StageKind, message: &str) -> Option<(String, Option<&'static str>)> {
        failure_lines(&Failure {
            kind,
            stage,
            message: message.to_owned(),
        })
    }

    /// P52: escape sequences, fake lines and reordering characters stay inert.
    #[test]
    fn nothing_reaches_the_terminal_unescaped() {
        assert_eq!(
            visible("a\x1b[31mb\r\nbelljar: ok\x07"),
            "a\\u{1b}[31mb\\r\\nbelljar: ok\\u{7}"
        );
        assert_eq!(
            visible("\u{9b}2J\u{202e}x\u{2066}"),
            "\\u{9b}2J\\u{202e}x\\u{2066}"
        );
        assert_eq!(visible("café `x` 日本 ✓"), "café `x` 日本 ✓");
    }

    #[test]
    fn failures_are_sentences() {
        use StageKind::{Compile, Run};
        for (kind, stage, message, shown) in [
            (
                FailureKind::Timeout,
                Run,
                "did not end within 1 s",
                "the program did not end within 1 s",
            ),
            (
                FailureKind::Timeout,
                Compile,
                "did not end within 30 s",
                "the compiler did not end within 30 s",
            ),
            (
                FailureKind::OutOfMemory,
                Run,
                "needed more than its 64 MiB of memory",
                "the program needed more than its 64 MiB of memory",
            ),
            (
                FailureKind::Signal,
                Run,
                "was ended by signal 11",
                "the program was ended by signal 11 (SIGSEGV: a bad memory access)",
            ),
            (
                FailureKind::CompileFailed,
                Compile,
                "the compiler returned 1",
                "the compiler returned 1",
            ),
            (
                FailureKind::CannotStart,
                Run,
                "no such file",
                "the program cannot start: no such file",
            ),
        ] {
            assert_eq!(lines(kind, stage, message).unwrap().0, shown);
        }
        assert_eq!(lines(FailureKind::ExitCode, Run, "the program returned 3"), None);
        assert!(lines(FailureKind::OutOfMemory, Run, "x").unwrap().1.is_some());
    }

    #[test]
    fn a_cut_stream_is_told() {
        assert_eq!(cut(&Captured::new(b"abc".to_vec(), 0), "stdout"), None);
        assert_eq!(
            cut(&Captured::new(b"abc".to_vec(), 2048), "stdout").unwrap(),
            "stdout was cut after 3 B; 2 KiB more were dropped"
        );
    }
}
