//! A bundle: what the sandbox's root is, and what runs in it, as the OCI runtime specification has it.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use belljar_core::Plan;
use belljar_core::plan::WORK_DIR;
use belljar_linux::agent::PROGRAM;
use belljar_linux::host_root::{self, HostView, Shown};
use serde_json::{Value, json};

use crate::own_kernel::USERS;
use crate::program::AGENT;

/// What the agent needs for that, of its own kernel's.
const CAPABILITIES: [&str; 7] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
];

/// Everything in which one sandbox differs from another, as far as it can be known before there is a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    shows: Vec<PathBuf>,
    root: Option<PathBuf>,
    pub memory: u64,
    disk: u64,
    tasks: u32,
    open_files: u32,
    /// Whether it may reach somebody.
    reaches: bool,
    /// Mounts that the request asked for.
    mounts: Vec<String>,
    /// The plan that it was read from; one of the same shape is as good.
    plan: SamePlan,
}

/// Any plan of the same shape.
#[derive(Clone, Debug)]
struct SamePlan(Box<Plan>);

impl PartialEq for SamePlan {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for SamePlan {}
impl std::hash::Hash for SamePlan {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl Shape {
    pub(super) fn new(plan: &Plan) -> Self {
        let limits = plan.limits();
        Self {
            shows: plan.shows().to_vec(),
            root: plan.root().map(Path::to_path_buf),
            memory: limits.memory().get(),
            disk: limits.disk().get(),
            tasks: limits.tasks(),
            open_files: limits.open_files(),
            reaches: plan.egress().is_some(),
            mounts: plan.mounts().iter().map(ToString::to_string).collect(),
            plan: SamePlan(Box::new(plan.clone())),
        }
    }

    /// Whether such a sandbox can wait for a request: one that shows what only one request may see cannot.
    pub(super) fn can_wait(&self) -> bool {
        self.mounts.is_empty() && self.plan().trust().is_none()
    }

    /// What `runsc` is told beside what it always is.
    pub(super) fn options(&self) -> Option<&'static str> {
        // What a request mounts may change on both sides while it is looked at. What of the host is shown stays as it is for as
        // long as a sandbox lives, and need not be looked at anew each time.
        self.mounts.is_empty().then_some("--file-access-mounts=exclusive")
    }

    /// Where its sockets are: with its own kernel's; or, where somebody may be reached, with the host's, in a network of its own
    /// that leads to doors and nowhere else. Older releases do not start a stack of their own on kernels of today.
    pub(super) fn network(&self) -> &'static str {
        if self.reaches {
            "--network=host"
        } else {
            "--network=none"
        }
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan.0
    }

    /// Writes the bundle to `dir`, which must be empty. Returns what of the host it shows.
    pub(super) fn write(&self, dir: &Path) -> io::Result<Vec<String>> {
        let view = host_root::view(self.plan());
        let root = dir.join("root");
        lay_out(&root, &view)?;
        let config = self.config(&root, &view.shown);
        fs::write(dir.join("config.json"), config.to_string())?;
        Ok(view.shown.into_iter().map(|shown| shown.guest).collect())
    }

    fn config(&self, root: &Path, shown: &[Shown]) -> Value {
        let scratch = |place: &str, size: u64, mode: &str| {
            let owner = USERS.writer;
            json!({
                "destination": place, "type": "tmpfs", "source": "tmpfs",
                "options": ["nosuid", "nodev", format!("size={size}"), format!("mode={mode}"),
                    format!("uid={owner}"), format!("gid={owner}")],
            })
        };
        let mut mounts = vec![
            json!({ "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "nodev", "noexec"] }),
            json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"] }),
        ];
        mounts.extend(shown.iter().map(|shown| {
            let access = if shown.writable { "rw" } else { "ro" };
            json!({
                "destination": shown.guest, "type": "bind", "source": shown.host,
                "options": ["rbind", "nosuid", "nodev", access],
            })
        }));
        mounts.extend([
            scratch(WORK_DIR, self.disk, "755"),
            scratch("/tmp", self.disk, "755"),
            scratch("/dev/shm", self.disk.min(64 << 20), "755"),
        ]);
        let limit = |kind: &str, value: u64| json!({ "type": kind, "soft": value, "hard": value });
        let namespaces = ["pid", "ipc", "uts", "mount", "network"].map(|kind| json!({ "type": kind }));
        json!({
            "ociVersion": "1.0.0",
            "hostname": "belljar",
            "root": { "path": root, "readonly": true },
            "process": {
                "terminal": false,
                "user": { "uid": 0, "gid": 0 },
                "args": [AGENT, WORK_DIR, USERS.writer.to_string()],
                "env": [],
                "cwd": "/",
                "noNewPrivileges": true,
                "capabilities": {
                    "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES,
                },
                "rlimits": [
                    limit("RLIMIT_NOFILE", u64::from(self.open_files.max(256))),
                    limit("RLIMIT_NPROC", u64::from(self.tasks) + 2),
                    limit("RLIMIT_CORE", 0),
                ],
            },
            "mounts": mounts,
            "linux": {
                "namespaces": namespaces,
                "resources": { "memory": { "limit": self.memory } },
            },
        })
    }
}

/// The root itself: what is mounted over, links, and small files.
fn lay_out(root: &Path, view: &HostView) -> io::Result<()> {
    let within = |path: &str| root.join(path.trim_start_matches('/'));
    for place in ["/proc", "/dev", "/tmp", WORK_DIR, "/.belljar"] {
        fs::create_dir_all(within(place))?;
    }
    for shown in &view.shown {
        let place = within(&shown.guest);
        // What lies below something that is shown is there already.
        let below = view
            .shown
            .iter()
            .any(|other| other.is_dir && other != shown && Path::new(&shown.guest).starts_with(&other.guest));
        if below {
            continue;
        }
        if shown.is_dir {
            fs::create_dir_all(&place)?;
        } else {
            make_above(&place)?;
            fs::write(&place, b"")?;
        }
    }
    for (place, target) in &view.links {
        let place = within(place);
        make_above(&place)?;
        match symlink(target, &place) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    for (path, content) in &view.files {
        let place = within(path);
        make_above(&place)?;
        fs::write(&place, content)?;
    }
    let agent = within(AGENT);
    fs::write(&agent, PROGRAM)?;
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755))
}

fn make_above(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}
