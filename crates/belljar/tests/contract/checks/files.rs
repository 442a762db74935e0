//! Files in, files out, mounts.

use belljar::{Access, ExecuteIo, FileIn, FileState, GuestPath, Mount, Outcome as Ran};
use belljar_core::request::Content;

use super::{Outcome, Subject, ensure, printed_by, python, run, run_with};

fn path(text: &str) -> GuestPath {
    GuestPath::new(text).expect("a path")
}

pub(super) async fn go_in(subject: &Subject) -> Outcome {
    let mut request = python(
        "import os, stat\n\
         print(open('a.txt').read(), open('deep/er/b.bin', 'rb').read(), oct(stat.S_IMODE(os.stat('tool').st_mode)), \
         os.path.samefile('.', os.environ['HOME']))",
    );
    request.files.insert(path("a.txt"), FileIn::inline(*b"text"));
    request
        .files
        .insert(path("deep/er/b.bin"), FileIn::inline(vec![0, 255, 10]));
    let tool = FileIn {
        content: Content::Inline((*b"#!/bin/sh\n").into()),
        executable: true,
    };
    request.files.insert(path("tool"), tool);
    let said = printed_by(subject, request).await?;
    ensure!(said == "text b'\\x00\\xff\\n' 0o755 True\n", "{said}");
    Ok(())
}

fn taken<'a>(outcome: &'a Ran, name: &str) -> Result<&'a [u8], String> {
    let file = outcome.files.iter().find(|file| file.path == name);
    match file.map(|file| &file.state) {
        Some(FileState::Collected { bytes, .. }) => Ok(bytes),
        other => Err(format!("{name}: {other:?}")),
    }
}

pub(super) async fn come_out(subject: &Subject) -> Outcome {
    let mut request = python(
        "import os\nopen('out.txt', 'w').write('result')\nos.makedirs('tree/sub')\n\
         open('tree/one', 'w').write('1')\nopen('tree/sub/two', 'w').write('2')\nos.mkfifo('pipe')\nos.chmod('out.txt', 0o755)",
    );
    request.outputs = ["out.txt", "tree", "missing", "pipe"].map(path).to_vec();
    let run = run(subject, request).await?;
    ensure!(taken(&run.outcome, "out.txt")? == b"result", "out.txt");
    ensure!(taken(&run.outcome, "tree/one")? == b"1", "tree/one");
    ensure!(taken(&run.outcome, "tree/sub/two")? == b"2", "tree/sub/two");
    for name in ["missing", "pipe"] {
        let file = run.outcome.files.iter().find(|file| file.path == name);
        ensure!(
            matches!(file.map(|file| &file.state), Some(FileState::Refused { .. })),
            "{name}: {file:?}"
        );
    }
    Ok(())
}

/// P36, P37.
pub(super) async fn links(subject: &Subject) -> Outcome {
    let mut request = python(
        "import os\nos.symlink('/etc/passwd', 'leak')\nos.symlink('/etc', 'dir')\nopen('real', 'w').write('x')\n\
         os.symlink('real', 'inner')",
    );
    request.outputs = ["leak", "dir/passwd", "dir", "inner"].map(path).to_vec();
    let run = run(subject, request).await?;
    ensure!(run.outcome.exit_code == Some(0), "{}", run.outcome.stderr.text());
    for file in &run.outcome.files {
        ensure!(
            matches!(file.state, FileState::Refused { .. }),
            "{}: {:?}",
            file.path,
            file.state
        );
    }
    ensure!(run.outcome.files.len() == 4, "{} files", run.outcome.files.len());
    Ok(())
}

pub(super) async fn large(subject: &Subject) -> Outcome {
    let bytes: Vec<u8> = (0..4usize << 20).map(|at| (at % 249) as u8).collect();
    let mut request = python("data = open('in', 'rb').read()\nopen('out', 'wb').write(data[::-1])");
    request.files.insert(path("in"), FileIn::inline(bytes.clone()));
    request.outputs = vec![path("out")];
    request.limits.output = Some(belljar::Bytes::from_mib(8));
    request.limits.file_size = Some(belljar::Bytes::from_mib(8));
    let run = run(subject, request).await?;
    let wanted: Vec<u8> = bytes.into_iter().rev().collect();
    ensure!(
        taken(&run.outcome, "out")? == wanted,
        "it came back changed: {:?}",
        run.outcome.stderr.text()
    );
    Ok(())
}

/// R52.
pub(super) async fn read_only(subject: &Subject) -> Outcome {
    let request = python(
        "import os, tempfile\n\
         def tried(path):\n    try:\n        open(path, 'w').write('x')\n        return 'written'\n    except OSError as error:\n        return 'refused'\n\
         print(*[tried(path) for path in ('new.txt', '/tmp/new', '/dev/shm/new', '/workspace/main.py')])",
    );
    let run = run_with(
        subject,
        request,
        |policy| policy.allow_file_write = false,
        ExecuteIo::default(),
    )
    .await?;
    let said = run.outcome.stdout.text();
    ensure!(
        said == "refused refused refused refused\n",
        "{said} {}",
        run.outcome.stderr.text()
    );
    Ok(())
}

/// A directory that everyone may write to: whose files are whose differs between walls.
fn shared_dir(subject: &Subject) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let dir = std::env::temp_dir().join(format!(
        "belljar-contract-{}-{}",
        std::process::id(),
        subject.label
    ));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).expect("permissions");
    std::fs::write(dir.join("given"), "from the host").expect("a file");
    dir
}

/// R28.
pub(super) async fn mount_read_only(subject: &Subject) -> Outcome {
    let dir = shared_dir(subject);
    let mut request = python(
        "print(open('/data/given').read())\ntry:\n    open('/data/new', 'w')\nexcept OSError:\n    print('refused')",
    );
    request.mounts = vec![Mount::new(&dir, "/data".as_ref(), Access::ReadOnly).expect("a mount")];
    let said = printed_by(subject, request).await;
    let _ = std::fs::remove_dir_all(&dir);
    let said = said?;
    ensure!(said == "from the host\nrefused\n", "{said}");
    Ok(())
}

/// A policy permits a path, and whoever could write there before may have put a link in its place.
pub(super) async fn mount_link(subject: &Subject) -> Outcome {
    let dir = shared_dir(subject);
    let (inside, link) = (dir.join("secret"), dir.join("link"));
    std::fs::create_dir(&inside).expect("a directory");
    std::fs::write(inside.join("key"), "not for guests").expect("a file");
    std::os::unix::fs::symlink(&inside, &link).expect("a link");
    let mut said = Vec::new();
    // Itself, and on the way.
    for host in [link.clone(), link.join("key"), dir.join("nothing")] {
        let mut request = python("import os\nprint('ran', list(os.walk('/data')))");
        request.mounts = vec![Mount::new(&host, "/data".as_ref(), Access::ReadOnly).expect("a mount")];
        said.push(printed_by(subject, request).await);
    }
    let made = dir.join("nothing").exists();
    let _ = std::fs::remove_dir_all(&dir);
    ensure!(!made, "what was not there was made on the host");
    let told = format!("{said:?}");
    ensure!(
        said.iter().all(Result::is_err) && !told.contains("key'") && !told.contains("not for guests"),
        "{told}"
    );
    Ok(())
}

pub(super) async fn mount_writable(subject: &Subject) -> Outcome {
    let dir = shared_dir(subject);
    let mut request = python("open('/data/new', 'w').write('from inside')");
    request.mounts = vec![Mount::new(&dir, "/data".as_ref(), Access::ReadWrite).expect("a mount")];
    let said = printed_by(subject, request).await;
    let written = std::fs::read_to_string(dir.join("new"));
    let _ = std::fs::remove_dir_all(&dir);
    said?;
    ensure!(written.as_deref().ok() == Some("from inside"), "{written:?}");
    Ok(())
}
