//! Limits that bite.

use std::time::{Duration, Instant};

use belljar::{Bytes, FailureKind, Request, SandboxStatus, Seconds};

use super::{Outcome, Subject, ensure, printed_by, python, run};

fn seconds(number: f64) -> Seconds {
    Seconds::new(number).expect("seconds")
}

/// Runs what must be ended for this reason.
async fn ended(
    subject: &Subject,
    request: Request,
    status: SandboxStatus,
    kind: FailureKind,
) -> Result<Duration, String> {
    let began = Instant::now();
    let run = run(subject, request).await?;
    let seen = run.outcome.error.as_ref().map(|failure| failure.kind);
    ensure!(
        run.outcome.status == status && seen == Some(kind),
        "{:?} {seen:?} exit {:?} signal {:?}: {} {}",
        run.outcome.status,
        run.outcome.exit_code,
        run.outcome.signal,
        run.outcome.stdout.text(),
        run.outcome.stderr.text()
    );
    Ok(began.elapsed())
}

/// R21.
pub(super) async fn wall_time(subject: &Subject) -> Outcome {
    let mut request = python("import time\nprint('begun', flush=True)\ntime.sleep(60)");
    request.limits.wall_time = Some(seconds(1.0));
    let took = ended(subject, request, SandboxStatus::Timeout, FailureKind::Timeout).await?;
    ensure!(
        took >= Duration::from_secs(1) && took < Duration::from_secs(30),
        "after {took:?}"
    );
    Ok(())
}

pub(super) async fn cpu_time(subject: &Subject) -> Outcome {
    let mut request =
        python("import os\nfor _ in range(3):\n    if os.fork() == 0:\n        break\nwhile True:\n    pass");
    request.limits.cpu_time = Some(seconds(1.0));
    request.limits.wall_time = Some(seconds(60.0));
    ended(subject, request, SandboxStatus::Timeout, FailureKind::CpuTime)
        .await
        .map(|_| ())
}

/// Children that nobody waits for take what they used with them.
pub(super) async fn hidden_cpu_time(subject: &Subject) -> Outcome {
    let mut request = python(
        "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
         for _ in range(12):\n    pid = os.fork()\n    if pid == 0:\n        \
         while time.process_time() < 0.4: pass\n        os._exit(0)\n    \
         try: os.waitpid(pid, 0)\n    except ChildProcessError: pass\nprint('all of it')",
    );
    request.limits.cpu_time = Some(seconds(2.0));
    request.limits.wall_time = Some(seconds(60.0));
    ended(subject, request, SandboxStatus::Timeout, FailureKind::CpuTime)
        .await
        .map(|_| ())
}

/// R22, R23.
pub(super) async fn memory(subject: &Subject) -> Outcome {
    // Touched by children too, so that no limit of one process can be what holds it.
    let mut request = python(
        "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        break\n\
         data = []\nfor _ in range(60):\n    data.append(bytearray(b'x') * (1 << 20))\n    time.sleep(0.005)\ntime.sleep(20)",
    );
    request.limits.memory = Some(Bytes::from_mib(96));
    request.limits.wall_time = Some(seconds(60.0));
    ended(subject, request, SandboxStatus::Failed, FailureKind::OutOfMemory)
        .await
        .map(|_| ())
}

/// R24.
pub(super) async fn processes(subject: &Subject) -> Outcome {
    let mut request = python(
        "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_DFL)\nmade = 0\n\
         try:\n    while made < 500:\n        if os.fork() == 0:\n            time.sleep(30)\n            os._exit(0)\n        made += 1\n\
         except OSError:\n    pass\nprint(made)",
    );
    request.limits.processes = Some(8);
    // Where each has a kernel's own memory beside it, that must not be what ends them.
    request.limits.memory = Some(Bytes::from_mib(1024));
    request.limits.wall_time = Some(seconds(20.0));
    let run = run(subject, request).await?;
    // It is refused another one, or ended for having too many.
    let made: u32 = run.outcome.stdout.text().trim().parse().unwrap_or(0);
    ensure!(made < 200, "{made} processes");
    let refused = run.outcome.exit_code == Some(0) && made > 0;
    ensure!(
        refused || run.outcome.signal == Some(9),
        "{:?} {:?} {}",
        run.outcome.status,
        run.outcome.error,
        run.outcome.stderr.text()
    );
    Ok(())
}

/// R25.
pub(super) async fn file_size(subject: &Subject) -> Outcome {
    let mut request = python(
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nwritten = 0\n\
         try:\n    with open('big', 'wb', buffering=0) as file:\n        for _ in range(8):\n            written += file.write(bytes(1 << 20))\n\
         except OSError as error:\n    print('refused', error.errno)\nprint(written)",
    );
    request.limits.file_size = Some(Bytes::from_mib(2));
    let said = printed_by(subject, request).await?;
    ensure!(
        said.starts_with("refused") && said.ends_with("2097152\n"),
        "{said}"
    );
    Ok(())
}

pub(super) async fn open_files(subject: &Subject) -> Outcome {
    let mut request = python(
        "files = []\ntry:\n    while len(files) < 1000:\n        files.append(open('/dev/null'))\nexcept OSError as error:\n    print('refused', error.errno)\nprint(len(files))",
    );
    request.limits.open_files = Some(32);
    let said = printed_by(subject, request).await?;
    ensure!(said.starts_with("refused 24"), "{said}");
    Ok(())
}

pub(super) async fn disk(subject: &Subject) -> Outcome {
    let mut request = python(
        "written = 0\ntry:\n    for at in range(200):\n        with open(f'file{at}', 'wb', buffering=0) as file:\n            count = file.write(bytes(1 << 20))\n            written += count\n            if count < 1 << 20:\n                break\n\
         except OSError as error:\n    print('refused', error.errno)\nprint(written >> 20)",
    );
    request.limits.disk = Some(Bytes::from_mib(16));
    request.limits.memory = Some(Bytes::from_mib(256));
    let said = printed_by(subject, request).await?;
    let last = said.lines().last().unwrap_or_default();
    let mib: u32 = last.parse().map_err(|_| said.clone())?;
    ensure!(mib <= 16, "{said}");
    Ok(())
}

/// R31.
pub(super) async fn output(subject: &Subject) -> Outcome {
    let mut request = python(
        "import sys\nfor _ in range(20):\n    sys.stdout.write('o' * (1 << 20))\n    sys.stderr.write('e' * (1 << 20))",
    );
    request.limits.output = Some(Bytes::from_mib(1));
    let run = run(subject, request).await?;
    for (name, stream) in [("stdout", &run.outcome.stdout), ("stderr", &run.outcome.stderr)] {
        ensure!(
            stream.bytes().len() == 1 << 20 && stream.dropped() == 19 << 20,
            "{name}: {} kept, {} dropped",
            stream.bytes().len(),
            stream.dropped()
        );
    }
    ensure!(run.outcome.exit_code == Some(0), "{:?}", run.outcome.error);
    Ok(())
}

pub(super) async fn usage(subject: &Subject) -> Outcome {
    let code = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end:\n    pass\ntime.sleep(0.3)\ndata = bytearray(b'x') * (30 << 20)";
    let run = run(subject, python(code)).await?;
    let usage = run.outcome.usage;
    ensure!(
        usage.cpu_seconds >= 0.45 && usage.cpu_seconds < 10.0,
        "CPU {}",
        usage.cpu_seconds
    );
    ensure!(
        usage.wall_seconds >= 0.75 && usage.wall_seconds < 30.0,
        "wall {}",
        usage.wall_seconds
    );
    let peak = usage.memory_peak.unwrap_or(0);
    ensure!((30 << 20..256 << 20).contains(&peak), "memory {peak}");
    Ok(())
}
