//! From making to taking away.

use std::time::{Duration, Instant};

use belljar::{ExecuteIo, Policy, Request, SandboxStatus};

use super::{Outcome, Subject, ensure, printed, python, run, run_with};

/// Processes of this machine whose command line holds a word that nobody else uses.
fn alive(word: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok())
        .filter(|line| line.contains(word))
        .collect()
}

fn word(subject: &Subject, what: &str) -> String {
    format!("belljar-contract-{}-{what}-{}", subject.label, std::process::id())
}

async fn gone(word: &str) -> Outcome {
    let began = Instant::now();
    loop {
        let left = alive(word);
        if left.is_empty() {
            return Ok(());
        }
        ensure!(began.elapsed() < Duration::from_secs(10), "still there: {left:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(super) async fn stopped(subject: &Subject) -> Outcome {
    let io = ExecuteIo {
        stop: Some(Box::pin(tokio::time::sleep(Duration::from_secs(1)))),
        ..ExecuteIo::default()
    };
    let run = run_with(subject, python("import time\ntime.sleep(60)"), |_| {}, io).await?;
    ensure!(
        run.outcome.status == SandboxStatus::Killed,
        "{:?}",
        run.outcome.status
    );
    Ok(())
}

/// R32.
pub(super) async fn left_running(subject: &Subject) -> Outcome {
    let word = word(subject, "left");
    let code = format!(
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', {word:?}], start_new_session=True, \
         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\nprint('left')"
    );
    let said = printed(subject, &code).await?;
    ensure!(said == "left\n", "{said}");
    gone(&word).await
}

pub(super) async fn dropped(subject: &Subject) -> Outcome {
    let word = word(subject, "dropped");
    let mut request = python("import time, sys\ntime.sleep(600)");
    request.args = vec![word.clone()];
    let running = run(subject, request);
    // It is let go of in the middle.
    let cut = tokio::time::timeout(Duration::from_secs(3), running).await;
    ensure!(cut.is_err(), "it ended by itself");
    gone(&word).await
}

/// P53: what one leaves another does not find.
pub(super) async fn apart(subject: &Subject) -> Outcome {
    let write = "open('/tmp/trace', 'w').write('secret')\nopen('trace', 'w').write('secret')\nopen('/dev/shm/trace', 'w').write('x')";
    printed(subject, write).await?;
    let look = "import os\nprint([os.path.exists(p) for p in ('/tmp/trace', 'trace', '/dev/shm/trace')], os.listdir('/tmp'))";
    let said = printed(subject, look).await?;
    ensure!(said == "[False, False, False] []\n", "{said}");
    Ok(())
}

pub(super) async fn many(subject: &Subject) -> Outcome {
    let runs = (0..6).map(|at| async move { printed(subject, &format!("print({at} ** 2)")).await });
    let mut all = Vec::new();
    let mut running: Vec<_> = runs.map(Box::pin).collect();
    // All at once, in one task.
    std::future::poll_fn(|context| {
        running.retain_mut(|run| match run.as_mut().poll(context) {
            std::task::Poll::Ready(said) => {
                all.push(said);
                false
            }
            std::task::Poll::Pending => true,
        });
        if running.is_empty() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    let mut said = all.into_iter().collect::<Result<Vec<_>, _>>()?;
    said.sort();
    ensure!(said == ["0\n", "1\n", "16\n", "25\n", "4\n", "9\n"], "{said:?}");
    Ok(())
}

pub(super) async fn kept(subject: &Subject) -> Outcome {
    let request = subject.asked(python("open('count', 'w').write('1')"));
    let policy = Policy::for_owner(&request).map_err(|error| error.to_string())?;
    let failed = |error: belljar_engine::EngineError| error.to_string();
    let mut sandbox = subject.engine.open(&policy, &request).await.map_err(failed)?;
    let first = sandbox
        .execute_opened(ExecuteIo::default())
        .await
        .map_err(failed)?;
    ensure!(
        first.outcome.exit_code == Some(0),
        "{:?}",
        first.outcome.stderr.text()
    );
    for expected in 2..5 {
        let code = "n = int(open('count').read()) + 1\nopen('count', 'w').write(str(n))\nprint(n)";
        let request = subject.asked(python(code));
        let run = sandbox
            .execute(&request, ExecuteIo::default())
            .await
            .map_err(failed)?;
        ensure!(
            run.outcome.stdout.text() == format!("{expected}\n"),
            "{:?}",
            run.outcome
        );
    }
    let command = subject.asked(Request::command(["cat", "count"].map(str::to_owned).to_vec()));
    let run = sandbox
        .execute(&command, ExecuteIo::default())
        .await
        .map_err(failed)?;
    ensure!(
        run.outcome.stdout.text() == "4",
        "{:?}",
        run.outcome.stdout.text()
    );
    sandbox.close().await.map_err(failed)
}
