//! Programs: how they end, and what goes in and out.

use belljar::{FailureKind, Language, Request, SandboxStatus, Stdin};

use super::{Outcome, Subject, ensure, printed, printed_by, python, run};

pub(super) async fn completed(subject: &Subject) -> Outcome {
    let run = run(
        subject,
        python("print('out'); import sys; print('err', file=sys.stderr)"),
    )
    .await?;
    let outcome = &run.outcome;
    let seen = (
        outcome.status,
        outcome.exit_code,
        outcome.stdout.text(),
        outcome.stderr.text(),
    );
    let wanted = (
        SandboxStatus::Completed,
        Some(0),
        "out\n".to_owned(),
        "err\n".to_owned(),
    );
    ensure!(seen == wanted, "{seen:?} {:?}", outcome.error);
    Ok(())
}

pub(super) async fn exit_code(subject: &Subject) -> Outcome {
    for code in [1, 3, 42, 255] {
        let run = run(subject, python(&format!("raise SystemExit({code})"))).await?;
        let seen = (run.outcome.status, run.outcome.exit_code);
        ensure!(seen == (SandboxStatus::Failed, Some(code)), "{code}: {seen:?}");
    }
    Ok(())
}

pub(super) async fn signal(subject: &Subject) -> Outcome {
    for signal in [6, 9, 11, 15] {
        let run = run(
            subject,
            python(&format!("import os; os.kill(os.getpid(), {signal})")),
        )
        .await?;
        let seen = (run.outcome.status, run.outcome.exit_code, run.outcome.signal);
        ensure!(
            seen == (
                if signal == 9 {
                    SandboxStatus::Killed
                } else {
                    SandboxStatus::Failed
                },
                None,
                Some(signal)
            ),
            "{signal}: {seen:?}"
        );
    }
    Ok(())
}

pub(super) async fn not_there(subject: &Subject) -> Outcome {
    for program in ["/no/such/program", "no-such-program"] {
        let run = run(subject, Request::command(vec![program.to_owned()])).await?;
        let kind = run.outcome.error.as_ref().map(|failure| failure.kind);
        let seen = (run.outcome.status, kind);
        ensure!(
            seen == (SandboxStatus::Failed, Some(FailureKind::CannotStart)),
            "{program}: {seen:?}"
        );
    }
    Ok(())
}

pub(super) async fn stdin(subject: &Subject) -> Outcome {
    let code = "import sys, hashlib\ndata = sys.stdin.buffer.read()\nprint(len(data), hashlib.sha256(data).hexdigest())";
    for size in [0usize, 5, 4096, 3 << 20] {
        let bytes: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
        let mut request = python(code);
        request.stdin = Stdin::Bytes(bytes.clone().into());
        let said = printed_by(subject, request).await?;
        let wanted = format!("{size} {}\n", sha256(&bytes));
        ensure!(said == wanted, "{size} bytes: {said}");
    }
    // One that does not read what it is given ends all the same.
    let mut request = python("print('enough')");
    request.stdin = Stdin::Bytes(vec![b'x'; 2 << 20].into());
    let said = printed_by(subject, request).await?;
    ensure!(said == "enough\n", "{said}");
    Ok(())
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

pub(super) async fn no_stdin(subject: &Subject) -> Outcome {
    let said = printed(subject, "import sys; print(repr(sys.stdin.read()))").await?;
    ensure!(said == "''\n", "{said}");
    Ok(())
}

pub(super) async fn arguments(subject: &Subject) -> Outcome {
    let mut request = python("import sys, os\nprint(sys.argv[1:], os.environ['SPECIAL'])");
    request.args = ["one", "two words", "", "dollar $HOME", "quote'\"", "ünïcode"]
        .map(str::to_owned)
        .to_vec();
    request.env = [("SPECIAL".to_owned(), "a=b c\n\"d\"".to_owned())].into();
    let said = printed_by(subject, request).await?;
    let wanted = "['one', 'two words', '', 'dollar $HOME', 'quote\\'\"', 'ünïcode'] a=b c\n\"d\"\n";
    ensure!(said == wanted, "{said}");
    Ok(())
}

/// R30.
pub(super) async fn clean_environment(subject: &Subject) -> Outcome {
    let said = printed(subject, "import os\nprint(*sorted(os.environ), sep='\\n')").await?;
    let known = [
        "HOME",
        "LANG",
        "LC_CTYPE",
        "LOGNAME",
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
        "PYTHONIOENCODING",
        "MPLBACKEND",
        "MPLCONFIGDIR",
        "OPENBLAS_NUM_THREADS",
        "TMPDIR",
        "USER",
        "VIRTUAL_ENV",
        "PYTHONNOUSERSITE",
        "PYTHONSAFEPATH",
        "PYTHONPYCACHEPREFIX",
    ];
    let foreign: Vec<_> = said.lines().filter(|name| !known.contains(name)).collect();
    ensure!(foreign.is_empty(), "{foreign:?}");
    Ok(())
}

pub(super) async fn bytes(subject: &Subject) -> Outcome {
    let run = run(
        subject,
        python("import sys; sys.stdout.buffer.write(bytes(range(256)) * 100)"),
    )
    .await?;
    let wanted: Vec<u8> = (0..=255).collect::<Vec<u8>>().repeat(100);
    ensure!(
        run.outcome.stdout.bytes() == wanted,
        "{} bytes",
        run.outcome.stdout.bytes().len()
    );
    Ok(())
}

pub(super) async fn shell(subject: &Subject) -> Outcome {
    let request = Request::code(
        Language::Bash,
        *b"set -e\nfor i in 1 2 3; do echo $((i * i)); done | tac\npwd\n",
    );
    let said = printed_by(subject, request).await?;
    ensure!(said.starts_with("9\n4\n1\n"), "{said}");
    Ok(())
}

pub(super) async fn javascript(subject: &Subject) -> Outcome {
    let request = Request::code(
        Language::Javascript,
        *b"console.log([1, 2, 3].map(x => x * 2).join())",
    );
    let said = printed_by(subject, request).await?;
    ensure!(said == "2,4,6\n", "{said}");
    Ok(())
}
