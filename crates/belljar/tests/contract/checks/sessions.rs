//! Sessions: state, tools, displays, and what becomes of them.

use std::time::Duration;

use belljar::{Execution, FailureKind, Language, SandboxStatus, Session, Value};

use super::{Outcome, Subject, ensure};

async fn open(subject: &Subject) -> Result<Session, String> {
    subject.session().build().await.map_err(|error| error.to_string())
}

async fn cell(session: &Session, code: &str) -> Result<Execution, String> {
    session.execute(code).await.map_err(|error| error.to_string())
}

/// What a cell's last expression is.
async fn value(session: &Session, code: &str) -> Result<Value, String> {
    let run = cell(session, code).await?;
    let failure = format!(
        "{code}: {:?} {:?} {}",
        run.outcome.error,
        run.outcome.exception,
        run.outcome.stderr.text()
    );
    run.outcome.value.ok_or(failure)
}

async fn close(session: Session) -> Outcome {
    session.close().await.map_err(|error| error.to_string())
}

pub(super) async fn state(subject: &Subject) -> Outcome {
    let session = open(subject).await?;
    value(&session, "x = 20\nimport math\ndef f(n):\n    return n + x\nx").await?;
    let seen = value(&session, "f(22)").await?;
    ensure!(seen == 42.into(), "{seen:?}");
    let run = cell(&session, "print('printed'); x += 1; x").await?;
    ensure!(
        run.outcome.stdout.text() == "printed\n",
        "{}",
        run.outcome.stdout.text()
    );
    ensure!(run.outcome.value == Some(21.into()), "{:?}", run.outcome.value);
    close(session).await
}

pub(super) async fn exceptions(subject: &Subject) -> Outcome {
    let session = open(subject).await?;
    let run = cell(&session, "def f():\n    return 1 / 0\nf()").await?;
    let exception = run.outcome.exception.as_ref().ok_or("no exception")?;
    ensure!(exception.kind == "ZeroDivisionError", "{exception:?}");
    ensure!(
        run.outcome.status == SandboxStatus::Failed,
        "{:?}",
        run.outcome.status
    );
    let seen = value(&session, "1 + 1").await?;
    ensure!(seen == 2.into(), "{seen:?}");
    close(session).await
}

pub(super) async fn tools(subject: &Subject) -> Outcome {
    let session = subject
        .session()
        .tool("add", |a: i64, b: i64| a + b)
        .async_tool("slow", |n: i64| async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            n * 2
        })
        .build()
        .await
        .map_err(|error| error.to_string())?;
    let seen = value(&session, "add(2, add(3, 4))").await?;
    ensure!(seen == 9.into(), "{seen:?}");
    let code = "import asyncio\nsum(await asyncio.gather(*[slow.aio(n) if hasattr(slow, 'aio') else asyncio.to_thread(slow, n) for n in range(5)]))";
    let seen = value(&session, code).await?;
    ensure!(seen == 20.into(), "{seen:?}");
    close(session).await
}

pub(super) async fn displays(subject: &Subject) -> Outcome {
    let session = open(subject).await?;
    let run = cell(
        &session,
        "class Page:\n    def _repr_html_(self):\n        return '<b>bold</b>'\nPage()",
    )
    .await?;
    let html = run
        .outcome
        .displays
        .iter()
        .any(|display| format!("{display:?}").contains("<b>bold</b>"));
    ensure!(html, "{:?}", run.outcome.displays);
    close(session).await
}

pub(super) async fn large_values(subject: &Subject) -> Outcome {
    let text = "x".repeat(3 << 20);
    let session = subject
        .session()
        .global("text", text.clone())
        .tool("echo", |text: String| text)
        .build()
        .await
        .map_err(|error| error.to_string())?;
    let seen = value(&session, "len(text)").await?;
    ensure!(seen == (3i64 << 20).into(), "{seen:?}");
    let seen = value(&session, "echo(text) == text").await?;
    ensure!(seen == true.into(), "{seen:?}");
    let seen = value(&session, "text").await?;
    ensure!(seen == Value::from(text), "it came back changed");
    close(session).await
}

pub(super) async fn interrupt(subject: &Subject) -> Outcome {
    let session = open(subject).await?;
    value(&session, "kept = 'yes'\nkept").await?;
    let interrupter = session.interrupter();
    let run = async {
        tokio::join!(
            cell(&session, "import time\nwhile True:\n    time.sleep(0.01)"),
            async {
                tokio::time::sleep(Duration::from_millis(700)).await;
                interrupter.interrupt();
            }
        )
    };
    let (run, ()) = run.await;
    let run = run?;
    let kind = run
        .outcome
        .exception
        .as_ref()
        .map(|exception| exception.kind.clone());
    ensure!(
        kind.as_deref() == Some("KeyboardInterrupt"),
        "{kind:?} {:?}",
        run.outcome.error
    );
    let seen = value(&session, "kept").await?;
    ensure!(seen == "yes".into(), "{seen:?}");
    close(session).await
}

pub(super) async fn reset(subject: &Subject) -> Outcome {
    let session = open(subject).await?;
    value(&session, "x = 1\nopen('kept.txt', 'w').write('kept')").await?;
    session.reset().await.map_err(|error| error.to_string())?;
    let seen = value(&session, "('x' in globals(), open('kept.txt').read())").await?;
    ensure!(seen == (false, "kept").into(), "{seen:?}");
    close(session).await
}

pub(super) async fn timeout(subject: &Subject) -> Outcome {
    let session = subject
        .session()
        .timeout(Duration::from_secs(2))
        .build()
        .await
        .map_err(|error| error.to_string())?;
    value(&session, "x = 1\nx").await?;
    // It ignores being interrupted, so it has to be ended.
    let stubborn = "import time\nwhile True:\n    try:\n        while True:\n            time.sleep(0.01)\n    except BaseException:\n        pass";
    let run = cell(&session, stubborn).await?;
    let kind = run.outcome.error.as_ref().map(|failure| failure.kind);
    ensure!(
        kind == Some(FailureKind::Timeout),
        "{kind:?} {:?}",
        run.outcome.exception
    );
    ensure!(
        run.outcome.state_lost.is_some(),
        "that its state is lost was not told"
    );
    let seen = value(&session, "'x' in globals()").await?;
    ensure!(seen == false.into(), "{seen:?}");
    close(session).await
}

pub(super) async fn death(subject: &Subject) -> Outcome {
    let session = open(subject).await?;
    let run = cell(
        &session,
        "import os\nprint('last words', flush=True)\nos._exit(7)",
    )
    .await?;
    ensure!(
        run.outcome.exit_code == Some(7),
        "{:?} {:?}",
        run.outcome.exit_code,
        run.outcome.error
    );
    ensure!(
        run.outcome.stdout.text().contains("last words"),
        "{}",
        run.outcome.stdout.text()
    );
    let seen = value(&session, "6 * 7").await?;
    ensure!(seen == 42.into(), "{seen:?}");
    close(session).await
}

pub(super) async fn files(subject: &Subject) -> Outcome {
    let session = open(subject).await?;
    let failed = |error: belljar::Error| error.to_string();
    session.put("in/data.txt", "put").await.map_err(failed)?;
    let seen = value(&session, "import os\nos.makedirs('out', exist_ok=True)\nopen('out/made', 'w').write('made')\nos.symlink('/etc/passwd', 'out/link')\nopen('in/data.txt').read()").await?;
    ensure!(seen == "put".into(), "{seen:?}");
    let bytes = session
        .get("out/made")
        .map_err(failed)?
        .bytes(100)
        .map_err(|error| error.to_string())?;
    ensure!(bytes == b"made", "{bytes:?}");
    ensure!(session.get("out/link").is_err(), "a link was followed");
    ensure!(
        session.get("out/nothing").is_err() && session.get("out").is_err(),
        "what is no file was read"
    );
    let mut names: Vec<String> = session
        .list()
        .map_err(failed)?
        .into_iter()
        .map(|entry| entry.path)
        .collect();
    names.retain(|name| name.starts_with("in") || name.starts_with("out"));
    ensure!(
        names == ["in", "in/data.txt", "out", "out/link", "out/made"],
        "{names:?}"
    );
    session.delete("out").map_err(failed)?;
    let seen = value(&session, "os.path.exists('out')").await?;
    ensure!(seen == false.into(), "{seen:?}");
    close(session).await
}

pub(super) async fn javascript(subject: &Subject) -> Outcome {
    let session = subject
        .session()
        .language(Language::Javascript)
        .tool("add", |a: i64, b: i64| a + b)
        .build()
        .await
        .map_err(|error| error.to_string())?;
    value(&session, "let x = 40; x").await?;
    let seen = value(&session, "await add(x, 2)").await?;
    ensure!(seen == 42.into(), "{seen:?}");
    close(session).await
}
