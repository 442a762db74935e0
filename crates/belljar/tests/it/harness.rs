//! Running the executable and looking at what is left afterwards.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use crate::executable::{EXECUTABLE, everyones_copy, executable};

/// Who runs belljar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Root,
    User,
}

/// Everyone whom the tests can run as. Without root that is the caller alone; the test command
/// says so in its summary.
pub(crate) fn everyone() -> Vec<Who> {
    if is_root() {
        vec![Who::Root, Who::User]
    } else {
        vec![Who::User]
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The ordinary user that root's test runs become.
const TEST_USER: &str = "belljar-test";

fn test_user() -> (u32, u32) {
    static IDS: LazyLock<(u32, u32)> = LazyLock::new(|| {
        let passwd = fs::read_to_string("/etc/passwd").expect("read /etc/passwd");
        let line = passwd
            .lines()
            .find(|line| line.split(':').next() == Some(TEST_USER))
            .unwrap_or_else(|| {
                panic!("user {TEST_USER} is missing; `useradd {TEST_USER}`, or use the test command")
            });
        let mut fields = line
            .split(':')
            .skip(2)
            .map(|field| field.parse().expect("a number"));
        (fields.next().expect("uid"), fields.next().expect("gid"))
    });
    *IDS
}

/// A directory that is removed afterwards and that every user can enter and write.
#[derive(Debug)]
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    pub(crate) fn below(base: &Path) -> Self {
        let mut bytes = [0u8; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("random bytes");
        let path = base.join(format!("belljar-it-{:016x}", u64::from_ne_bytes(bytes)));
        fs::create_dir(&path).expect("a temporary directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("open directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file that every user can read.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).expect("write a file");
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One start of belljar.
#[derive(Debug)]
pub(crate) struct Run {
    who: Who,
    args: Vec<String>,
    stdin: Vec<u8>,
    env: Vec<(String, String)>,
    cwd: Option<PathBuf>,
    before: Vec<String>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Done {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Done {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("not JSON ({error}): {self:#?}"))
    }

    /// `outcome.stdout` of a `--json` run.
    pub(crate) fn guest_stdout(&self) -> String {
        self.json()["outcome"]["stdout"]
            .as_str()
            .unwrap_or_else(|| panic!("no outcome: {self:#?}"))
            .to_owned()
    }

    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn expect_stdout(self, stdout: &str) -> Self {
        assert_eq!(self.stdout, stdout, "{self:#?}");
        self
    }
}

/// `belljar` with these arguments.
pub(crate) fn belljar<S: Into<String>>(who: Who, args: impl IntoIterator<Item = S>) -> Run {
    Run {
        who,
        args: args.into_iter().map(Into::into).collect(),
        stdin: Vec::new(),
        env: Vec::new(),
        cwd: None,
        before: Vec::new(),
    }
}

/// `belljar run --json --lang LANG -c CODE` with further arguments before the code.
pub(crate) fn run_code(who: Who, lang: &str, code: &str, args: &[&str]) -> Run {
    let mut all = vec!["run", "--json", "--lang", lang];
    all.extend(args);
    all.extend(["-c", code]);
    belljar(who, all)
}

impl Run {
    pub(crate) fn stdin(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.stdin = bytes.as_ref().to_vec();
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn cwd(mut self, dir: &Path) -> Self {
        self.cwd = Some(dir.to_path_buf());
        self
    }

    /// Starts it by way of another command, which takes it as its last arguments.
    pub(crate) fn within(mut self, before: &[&str]) -> Self {
        self.before = before.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// By the path on which everything is made on demand, whatever the others come by.
    pub(crate) fn on_demand(self) -> Self {
        self.env("BELLJAR_PATH", "")
    }

    /// Leaves controls out, to see the attack get through. Needs the `weaken` feature.
    #[cfg(feature = "weaken")]
    pub(crate) fn without(self, controls: &str) -> Self {
        self.env("BELLJAR_WEAKEN", controls)
    }

    /// The command, ready to be started by a test that needs more than [`Run::go`].
    pub(crate) fn command(&self) -> Command {
        let mut words = self
            .before
            .iter()
            .map(String::as_str)
            .chain(executable().to_str());
        let mut command = Command::new(words.next().expect("a program"));
        command
            .args(words)
            .args(&self.args)
            .env_clear()
            .env("PATH", crate::machine::path())
            .env("HOME", "/nonexistent");
        // The test command runs the suite once for each path that a sandbox may come by.
        if let Some(path) = std::env::var_os("BELLJAR_PATH") {
            command.env("BELLJAR_PATH", path);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.cwd.as_deref().unwrap_or(Path::new("/")));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        become_who(&mut command, self.who);
        command
    }

    /// Runs it to its end and checks that nothing is left.
    #[track_caller]
    pub(crate) fn go(self) -> Done {
        let scratch = TempDir::new();
        let before = mounts();
        let started = Instant::now();
        let mut command = self.command();
        command.env("TMPDIR", scratch.path());
        let mut child = spawn(&mut command);
        let pid = child.id();
        let mut stdin = child.stdin.take().expect("stdin");
        let input = self.stdin.clone();
        let writer = std::thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().expect("wait for belljar");
        let took = started.elapsed();
        writer.join().expect("stdin");
        known().remove(&pid);
        let done = Done {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            took,
        };
        expect_nothing_left(pid, &done);
        expect_no_new_mounts(&before, &done);
        let left: Vec<_> = fs::read_dir(scratch.path()).expect("scratch").flatten().collect();
        assert!(left.is_empty(), "files were left in TMPDIR: {left:?}");
        done
    }
}

/// Lets a command run as `who`.
pub(crate) fn become_who(command: &mut Command, who: Who) {
    if who == Who::User && is_root() {
        let (uid, gid) = test_user();
        command.uid(uid).gid(gid);
    }
}

/// Children that tests started themselves and have not waited for yet.
fn known() -> MutexGuard<'static, HashSet<u32>> {
    static KNOWN: LazyLock<Mutex<HashSet<u32>>> = LazyLock::new(Mutex::default);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a child that [`spawn`] started.
pub(crate) fn finish(child: std::process::Child) -> std::process::Output {
    let pid = child.id();
    let output = child.wait_with_output().expect("wait for a child");
    known().remove(&pid);
    output
}

/// Kills an engine, and waits for the launcher that it had. That one comes to us for a moment, and is nobody's orphan meanwhile: tests
/// beside this one look for theirs.
pub(crate) fn kill_and_wait(mut engine: std::process::Child) {
    let below = children(engine.id());
    known().extend(&below);
    let _ = engine.kill();
    finish(engine);
    let started = Instant::now();
    for pid in below {
        while fs::exists(format!("/proc/{pid}")).unwrap_or(false)
            && !buried(pid)
            && started.elapsed() < Duration::from_secs(30)
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        known().remove(&pid);
    }
}

/// Runs any other command to its end. A child that is not told of here looks like an orphan.
pub(crate) fn output_of(command: &mut Command) -> std::process::Output {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    finish(spawn(command))
}

/// Starts a process whose orphans, should there be any, become ours.
pub(crate) fn spawn(command: &mut Command) -> std::process::Child {
    static SUBREAPER: Once = Once::new();
    SUBREAPER.call_once(|| {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("become a subreaper");
    });
    // Under the lock, so that a new child is never seen as an orphan.
    let mut known = known();
    let child = command.spawn().expect("start belljar");
    known.insert(child.id());
    child
}

/// Fails if a process, a control group or anything else of the engine `pid` is still there.
#[track_caller]
pub(crate) fn expect_nothing_left(pid: u32, done: &Done) {
    let orphans = orphans();
    assert!(
        orphans.is_empty(),
        "processes were left: {orphans:?} after {done:#?}"
    );
    let groups = control_groups(pid);
    assert!(
        groups.is_empty(),
        "control groups were left: {groups:?} after {done:#?}"
    );
}

/// Processes that lost their parent and came to us: nothing of a sandbox may.
pub(crate) fn orphans() -> Vec<String> {
    let known = known();
    children(std::process::id())
        .into_iter()
        .filter(|pid| !known.contains(pid) && !buried(*pid))
        .map(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("{pid} {}", name.trim())
        })
        .collect()
}

/// The children of all threads of a process.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// A line of what the kernel says of this process's memory, in bytes.
pub(crate) fn own_memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.expect("a number of KiB") << 10
}

/// Reaps a child that is dead already: one whose parent was killed before it could do so. On another machine
/// the host's init would.
fn buried(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let reaped = rustix::process::waitpid(pid, rustix::process::WaitOptions::NOHANG);
    matches!(reaped, Ok(Some(_)))
}

/// Control groups of the engine `pid`; their names end in its pid namespace, its pid and its start time.
pub(crate) fn control_groups(pid: u32) -> Vec<PathBuf> {
    let mark = format!("-{pid}-");
    let mut found = Vec::new();
    let mut waiting = vec![(PathBuf::from("/sys/fs/cgroup"), 0)];
    while let Some((dir, depth)) = waiting.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().contains(&mark) && dir.ends_with("belljar") {
                found.push(entry.path());
            } else if depth < 8 {
                waiting.push((entry.path(), depth + 1));
            }
        }
    }
    found
}

/// The mounts of the host, each with its number.
fn mounts() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    text.lines().map(str::to_owned).collect()
}

/// Fails if there are mounts that were not there before. Others may mount something for a moment.
#[track_caller]
fn expect_no_new_mounts(before: &BTreeSet<String>, done: &Done) {
    let started = Instant::now();
    loop {
        let new: Vec<_> = mounts().difference(before).cloned().collect();
        if new.is_empty() {
            return;
        }
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "mounts were left: {new:?} after {done:#?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
