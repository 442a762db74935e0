//! R38 to R45 and sessions in general, with the real runners, as everyone. Each test is a process of its
//! own after which nothing may be left.

mod approval;
mod bad_input;
mod commands;
mod displays;
mod files;
mod hostile;
mod interrupts;
mod javascript;
mod limits;
mod memory;
mod network;
mod semantics;
mod tools;

use belljar::{Exception, Execution, Session, SessionBuilder, Value};

/// Runs `work` with the session that `builder` makes, and closes it.
fn with(builder: SessionBuilder, work: impl AsyncFnOnce(&Session)) {
    run(async {
        let session = builder.build().await.expect("a session");
        work(&session).await;
        session.close().await.expect("a close");
    });
}

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(work);
}

/// Executes code that must end well.
#[track_caller]
fn good(run: Result<Execution, belljar::Error>) -> Execution {
    let run = run.expect("an execution");
    assert!(run.outcome.success(), "{:#?}", run.outcome);
    assert!(run.outcome.state_lost.is_none(), "{:#?}", run.outcome);
    run
}

/// The value of code that must end well.
async fn value(session: &Session, code: &str) -> Value {
    let run = good(session.execute(code).await);
    run.outcome
        .value
        .unwrap_or_else(|| panic!("no value of {code}: {}", run.outcome.stderr.text()))
}

/// What code raised.
async fn raised(session: &Session, code: &str) -> Exception {
    let run = session.execute(code).await.expect("an execution");
    assert!(!run.outcome.success(), "{code}: {:#?}", run.outcome);
    run.outcome
        .exception
        .unwrap_or_else(|| panic!("{code} raised nothing: {:?}", run.outcome.error))
}
