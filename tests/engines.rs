//! Container engines of the tests' own, for every crate whose tests need one. Each is started once in a test process, on
//! first use, and ends with it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// The image with Python and Node.
pub(crate) const IMAGE: &str = "belljar-test:latest";
/// An image in which there is no program at all.
pub(crate) const BARE_IMAGE: &str = "belljar-test-bare:latest";

/// An engine that answers, and has both images.
#[derive(Debug)]
pub(crate) struct Engine {
    /// Where it listens, for the Docker API.
    pub socket: PathBuf,
    /// The root file system of [`IMAGE`], as a tar file.
    pub rootfs: PathBuf,
    /// Its other end is watched by the script: it ends the engine when this process ends.
    script: Child,
}

impl Engine {
    /// Ends it at once, with everything in it.
    pub(crate) fn end(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.end();
    }
}

/// Docker, with the runtimes `runc` and, where the machine has it, `runsc`. None where the machine has none; that is told.
pub(crate) fn docker(spawn: impl Fn(&mut Command) -> Child) -> Option<&'static Engine> {
    static ENGINE: OnceLock<Option<Engine>> = OnceLock::new();
    ENGINE
        .get_or_init(|| told("Docker", start("docker", "docker.sock", None, &spawn)))
        .as_ref()
}

/// Another Docker, for a test that does not leave it as it was. It ends when it is dropped.
pub(crate) fn docker_of_its_own(spawn: impl Fn(&mut Command) -> Child) -> Option<Engine> {
    told("Docker", start("docker", "docker.sock", None, &spawn))
}

/// Podman as root.
pub(crate) fn podman(spawn: impl Fn(&mut Command) -> Child) -> Option<&'static Engine> {
    static ENGINE: OnceLock<Option<Engine>> = OnceLock::new();
    ENGINE
        .get_or_init(|| told("Podman", start("podman", "podman.sock", None, &spawn)))
        .as_ref()
}

/// Podman as the ordinary user `user`, who can connect to it as root can. There is one in a process: the first user's.
pub(crate) fn podman_rootless(user: &str, spawn: impl Fn(&mut Command) -> Child) -> Option<&'static Engine> {
    static ENGINE: OnceLock<Option<Engine>> = OnceLock::new();
    ENGINE
        .get_or_init(|| {
            let started = start("podman-rootless", "podman.sock", Some(user), &spawn);
            told("rootless Podman", started)
        })
        .as_ref()
}

/// The root file system of [`IMAGE`] as a tar file, made where it is not there yet.
pub(crate) fn rootfs(spawn: impl Fn(&mut Command) -> Child) -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    let file = target.join("engines/rootfs.tar");
    finish(script("rootfs").arg(&file), &spawn)?;
    Ok(file)
}

fn start(
    verb: &str,
    socket: &str,
    user: Option<&str>,
    spawn: &impl Fn(&mut Command) -> Child,
) -> Result<Engine, String> {
    let rootfs = rootfs(spawn)?;
    let directory = short_temp_dir().join(belljar_engine::fresh_id("bj"));
    let mut command = script(verb);
    command.arg(&directory).args(user).stdin(Stdio::piped());
    let mut child = spawn(&mut command);
    let mut line = String::new();
    let output = child.stdout.take().expect("an output");
    BufReader::new(output).read_line(&mut line).expect("a line");
    if line.trim() != "ready" {
        let _ = child.wait();
        return Err(line.trim().to_owned());
    }
    let engine = Engine {
        socket: directory.join(socket),
        rootfs,
        script: child,
    };
    finish(script("image").arg(&engine.socket).arg(&engine.rootfs), spawn)?;
    Ok(engine)
}

/// Paths of sockets are short: a long temporary directory is no place for them.
fn short_temp_dir() -> PathBuf {
    let usual = std::env::temp_dir();
    if usual.as_os_str().len() > 30 {
        return PathBuf::from("/tmp");
    }
    usual
}

fn script(verb: &str) -> Command {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/engines"));
    command.arg(verb).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Runs it to its end. What it prints is why it failed.
fn finish(command: &mut Command, spawn: &impl Fn(&mut Command) -> Child) -> Result<(), String> {
    let mut child = spawn(command);
    let mut why = String::new();
    let mut output = child.stdout.take().expect("an output");
    output.read_to_string(&mut why).expect("text");
    if child.wait().expect("wait for tests/engines").success() {
        Ok(())
    } else {
        Err(why.trim().to_owned())
    }
}

fn told(what: &str, started: Result<Engine, String>) -> Option<Engine> {
    started
        .inspect_err(|why| {
            // The macros would be captured with the rest of a passing test's output.
            let _ = writeln!(std::io::stderr(), "not tested here: {what}: {why}");
        })
        .ok()
}
