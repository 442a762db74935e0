//! The suite against a wall that holds nothing.
//!
//! It runs programs as they are, keeps to no limit, ends nothing but the program itself, follows every link, and says of each control
//! that it is there. Every check that is about holding something back must fail here.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use belljar::{
    Captured, Control, Engine, GuestPath, Language, Limits, NetworkPolicy, Observed, Plan, Provider,
    ProviderName, Receipt, Usage,
};
use belljar_core::language::RUNNER_DIR;
use belljar_core::outcome::{CollectedFile, FileState};
use belljar_core::plan::WORK_DIR;
use belljar_core::provider::{
    BoxFuture, Doors, Ended, Heard, Interpreting, OutputSink, StageEnd, StageIo, StageStdin, WorkFiles,
};
use belljar_core::request::{Content, FileIn};
use belljar_core::{Capabilities, IsolationLevel, ProviderError, Sandbox, Stage, Support};

use super::checks::{CHECKS, Kind};
use super::subject::{Promise, Subject};
use super::{Verdict, run_within, show};

/// How long it lets a program run, and then says that it ended well.
const ENOUGH: Duration = Duration::from_secs(4);

#[test]
fn what_holds_nothing_fails_every_check_that_is_about_holding() {
    let subject = Subject {
        label: "weak",
        engine: Engine::new(Arc::new(Weak)),
        provider: ProviderName::Native,
        image: None,
        environment: None,
        promised: &[
            Promise::Always,
            Promise::Wall,
            Promise::Bounds,
            Promise::Counts,
            Promise::Disk,
            Promise::Mounts,
            Promise::Hosts,
        ],
    };
    let mut kept = Vec::new();
    for check in CHECKS.iter().filter(|check| check.kind == Kind::Holds) {
        let verdict = run_within(check, &subject, Duration::from_secs(15));
        clear_away();
        match verdict {
            Verdict::Fails(why) => {
                show(&format!(
                    "contract: weak     {:<52} fails, as it must: {}",
                    check.name,
                    why.lines().next().unwrap_or_default()
                ));
                // A program that never ran shows nothing.
                assert!(
                    !why.contains("Some(126)") && !why.contains("did not run"),
                    "{}: {why}",
                    check.name
                );
            }
            _ => kept.push(check.name),
        }
    }
    assert!(kept.is_empty(), "these cannot fail: {kept:?}");
    // What it tells is true, or the failures above could have any reason.
    let told = &CHECKS[0];
    assert_eq!(told.name, "exit code 0 is completed");
    assert!(matches!(
        run_within(told, &subject, Duration::from_secs(15)),
        Verdict::Holds
    ));
}

/// What the checks leave behind where nothing clears up after them: processes and files that carry their name.
fn clear_away() {
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let (Some(pid), true) = (pid, line.contains("belljar-contract-weak")) {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_raw(pid).expect("a pid"),
                rustix::process::Signal::KILL,
            );
        }
    }
    for trace in ["/tmp/trace", "/dev/shm/trace", "/tmp/new", "/dev/shm/new"] {
        let _ = std::fs::remove_file(trace);
    }
}

/// One that everyone may start.
const PYTHON: &str = "/usr/bin/python3";

/// Whether programs are run as nobody: they may do what they like.
fn is_stranger() -> bool {
    rustix::process::geteuid().is_root() && Path::new(PYTHON).exists()
}

#[derive(Debug)]
struct Weak;

impl Provider for Weak {
    fn name(&self) -> ProviderName {
        ProviderName::Native
    }

    fn capabilities(&self, languages: &[Language]) -> Capabilities {
        let there = Support::Present {
            detail: "trust me".to_owned(),
        };
        Capabilities {
            provider: ProviderName::Native,
            isolation: IsolationLevel::Process,
            controls: Control::ALL
                .iter()
                .map(|control| (*control, there.clone()))
                .collect(),
            essential: [].into(),
            networks: NetworkPolicy::ALL.iter().copied().collect(),
            languages: languages
                .iter()
                .filter_map(|language| {
                    let mut found = belljar_linux::find_toolchain(*language, false)?;
                    if *language == Language::Python && is_stranger() {
                        found.programs = vec![PYTHON.into()];
                    }
                    Some((*language, found))
                })
                .collect(),
            environments: BTreeMap::new(),
        }
    }

    fn open(&self, id: String, plan: Arc<Plan>) -> BoxFuture<'_, Result<Box<dyn Sandbox>, ProviderError>> {
        let root = std::env::temp_dir().join(format!("belljar-contract-weak-{id}"));
        let work = root.join("work");
        std::fs::create_dir_all(&work).expect("a directory");
        for dir in [&root, &work] {
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).expect("permissions");
        }
        for (path, content) in belljar_linux::agent::runner_files() {
            let path = root.join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, content).expect("a file");
        }
        let sandbox = WeakSandbox {
            id,
            plan: Arc::clone(&plan),
            root,
            talking: None,
            heard: VecDeque::new(),
        };
        sandbox.fill(plan.files());
        Box::pin(std::future::ready(Ok(Box::new(sandbox) as Box<dyn Sandbox>)))
    }
}

#[derive(Debug)]
struct WeakSandbox {
    id: String,
    plan: Arc<Plan>,
    root: PathBuf,
    talking: Option<Talking>,
    heard: VecDeque<Heard>,
}

#[derive(Debug)]
struct Talking {
    child: Child,
    channel: UnixStream,
    said: std::sync::mpsc::Receiver<Vec<u8>>,
}

impl Drop for WeakSandbox {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

impl WeakSandbox {
    fn fill(&self, files: &BTreeMap<GuestPath, FileIn>) {
        for (path, file) in files {
            let path = self.root.join("work").join(path.as_str());
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            if let Content::Inline(bytes) = &file.content {
                std::fs::write(path, bytes).expect("a file");
            }
        }
    }

    /// The program with everything that this process has, its variables too. Not as root: it may do what it likes.
    fn command(&self, stage: &Stage, channel: bool) -> Command {
        let placed = |text: &str| {
            let text = text.replace(RUNNER_DIR, &format!("{}{RUNNER_DIR}", self.root.display()));
            text.replace(WORK_DIR, &self.root.join("work").to_string_lossy())
        };
        let redirect = if channel {
            "exec \"$@\" 3<&0 0</dev/null"
        } else {
            "exec \"$@\""
        };
        let mut command = if is_stranger() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh"]);
            command
        } else {
            Command::new("sh")
        };
        command
            .args(["-c", redirect, "sh"])
            .args(stage.argv().iter().map(|word| placed(word)));
        command.envs(stage.env().iter().map(|(name, value)| (name, placed(value))));
        command
            .env("BELLJAR_CONTRACT_SECRET", "of the host")
            .current_dir(self.root.join("work"));
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }

    async fn run_weakly(&mut self, stage: &Stage, io: StageIo<'_>) -> StageEnd {
        let mut command = self.command(stage, false);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("a program");
        if let (Some(mut stdin), StageStdin::Bytes(bytes)) = (child.stdin.take(), io.stdin) {
            std::thread::spawn(move || stdin.write_all(&bytes));
        }
        let read = |mut stream: Box<dyn Read + Send>| {
            let (kept, all) = (Arc::new(std::sync::Mutex::new(Vec::new())), [0u8; 65536]);
            let (to, mut chunk) = (Arc::clone(&kept), all);
            std::thread::spawn(move || {
                while let Ok(count @ 1..) = stream.read(&mut chunk) {
                    to.lock().expect("bytes").extend_from_slice(&chunk[..count]);
                }
            });
            kept
        };
        let stdout = read(Box::new(child.stdout.take().expect("stdout")));
        let stderr = read(Box::new(child.stderr.take().expect("stderr")));
        let mut waited = Duration::ZERO;
        let ended = loop {
            match child.try_wait().expect("wait") {
                Some(status) => break status.code().map_or(Ended::Signaled(9), Ended::Exited),
                None if waited > ENOUGH => break Ended::Exited(0),
                None => {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            waited += Duration::from_millis(20);
        };
        tokio::time::sleep(Duration::from_millis(50)).await;
        if let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = child.wait();
        let taken =
            |bytes: &std::sync::Mutex<Vec<u8>>| Captured::new(bytes.lock().expect("bytes").clone(), 0);
        StageEnd {
            ended,
            stdout: taken(&stdout),
            stderr: taken(&stderr),
            usage: Usage::default(),
        }
    }
}

impl Sandbox for WeakSandbox {
    fn id(&self) -> &str {
        &self.id
    }

    fn put<'a>(
        &'a mut self,
        files: &'a BTreeMap<GuestPath, FileIn>,
    ) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.fill(files);
        Box::pin(std::future::ready(Ok(())))
    }

    fn run<'a>(
        &'a mut self,
        stage: &'a Stage,
        io: StageIo<'a>,
    ) -> BoxFuture<'a, Result<StageEnd, ProviderError>> {
        Box::pin(async move { Ok(self.run_weakly(stage, io).await) })
    }

    fn interpreting(&mut self) -> Option<&mut dyn Interpreting> {
        Some(self)
    }

    /// Reads whatever a name leads to.
    fn collect<'a>(&'a mut self, paths: &'a [GuestPath], _: u64) -> BoxFuture<'a, Vec<CollectedFile>> {
        let read = |path: &GuestPath| CollectedFile {
            path: path.as_str().to_owned(),
            state: match std::fs::read(self.root.join("work").join(path.as_str())) {
                Ok(bytes) => FileState::Collected {
                    size: bytes.len() as u64,
                    executable: false,
                    bytes,
                },
                Err(error) => FileState::Refused {
                    reason: error.to_string(),
                },
            },
        };
        Box::pin(std::future::ready(paths.iter().map(read).collect()))
    }

    /// It has nothing, and it ran all the same.
    /// Doors that nobody has to pass.
    fn take_doors(&mut self) -> Option<Doors> {
        Some(Doors::default())
    }

    fn receipt(&self) -> Receipt {
        Receipt {
            provider: "native".to_owned(),
            isolation: IsolationLevel::Process,
            policy_id: self.plan.policy_id().to_owned(),
            policy_hash: self.plan.policy_hash().to_owned(),
            environment: None,
            controls: Control::ALL
                .iter()
                .map(|control| (*control, Observed::absent("there is none")))
                .collect(),
            network: self.plan.network(),
            limits: self.plan.limits().clone(),
            shown: Vec::new(),
            origin: "weak".to_owned(),
        }
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Interpreting for WeakSandbox {
    fn start<'a>(&'a mut self, stage: &'a Stage) -> BoxFuture<'a, Result<(), ProviderError>> {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let mut command = self.command(stage, true);
        let child = command.stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = child
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a runner");
        let (say, said) = std::sync::mpsc::channel();
        let mut reading = ours.try_clone().expect("a socket");
        std::thread::spawn(move || {
            let mut head = [0u8; 4];
            while reading.read_exact(&mut head).is_ok() {
                let mut message = vec![0; u32::from_le_bytes(head) as usize];
                if reading.read_exact(&mut message).is_err() || say.send(message).is_err() {
                    return;
                }
            }
        });
        self.talking = Some(Talking {
            child,
            channel: ours,
            said,
        });
        Box::pin(std::future::ready(Ok(())))
    }

    fn begin(&mut self, _: &Limits) -> Result<(), ProviderError> {
        Ok(())
    }

    fn say(&mut self, message: &[u8]) {
        if let Some(talking) = &mut self.talking {
            let _ = talking.channel.write_all(&(message.len() as u32).to_le_bytes());
            let _ = talking.channel.write_all(message);
        }
    }

    fn unsaid(&self) -> usize {
        0
    }

    fn hear(&mut self) -> BoxFuture<'_, Result<Heard, ProviderError>> {
        Box::pin(async move {
            loop {
                if let Some(heard) = self.heard.pop_front() {
                    return Ok(heard);
                }
                if let Some(message) = self
                    .talking
                    .as_ref()
                    .and_then(|talking| talking.said.try_recv().ok())
                {
                    return Ok(Heard::Message(message));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    }

    fn finish(&mut self, _: &mut dyn OutputSink) -> Usage {
        Usage::default()
    }

    fn stop_clock(&mut self) {}

    fn start_clock(&mut self) {}

    fn interrupt(&mut self) {}

    fn stop(&mut self) -> BoxFuture<'_, bool> {
        if let Some(mut talking) = self.talking.take() {
            let _ = talking.child.kill();
            let _ = talking.child.wait();
        }
        Box::pin(std::future::ready(true))
    }

    fn files(&self) -> Option<WorkFiles> {
        let directory = std::fs::File::open(Path::new(&self.root).join("work")).ok()?;
        let directory = directory.as_fd().try_clone_to_owned().ok()?;
        Some(WorkFiles::Directory(Arc::new(directory)))
    }
}
