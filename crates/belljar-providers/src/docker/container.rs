//! What a container is made with (R33).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use belljar_core::egress::{RESOLVER, TRUST_FILE};
use belljar_core::mount::Access;
use belljar_core::plan::WORK_DIR;
use belljar_core::{Limits, Plan};
use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountType, ResourcesUlimits,
};

use super::owner;
use crate::own_kernel::{self, USERS};
use crate::program::AGENT;

/// What the agent needs of a kernel that is its own.
const OF_THE_AGENT: [&str; 7] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "KILL",
    "SETGID",
    "SETPCAP",
    "SETUID",
];

/// Everything in which one container differs from another, as far as it can be known before there is a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub image: String,
    memory: u64,
    disk: u64,
    tasks: u32,
    open_files: u32,
    cpu_percent: Option<u32>,
    runtime: Option<String>,
    /// Whether it is to ask a resolver of ours.
    asks: bool,
    /// A file on the host that says whom to trust.
    trust: Option<PathBuf>,
    /// Mounts that the request asked for.
    mounts: Vec<belljar_core::mount::Mount>,
}

impl Shape {
    pub(super) fn new(image: &str, plan: &Plan, runtime: Option<&str>, trust: Option<PathBuf>) -> Self {
        Self {
            mounts: plan.mounts().to_vec(),
            asks: plan.egress().is_some(),
            trust,
            ..Self::of(image, plan.limits(), runtime)
        }
    }

    /// For looking into an image.
    pub(super) fn of(image: &str, limits: &Limits, runtime: Option<&str>) -> Self {
        Self {
            image: image.to_owned(),
            memory: limits.memory().get(),
            disk: limits.disk().get(),
            tasks: limits.tasks(),
            open_files: limits.open_files(),
            cpu_percent: limits.cpu_percent(),
            runtime: runtime.map(str::to_owned),
            asks: false,
            trust: None,
            mounts: Vec::new(),
        }
    }

    /// Whether such a container can wait for a request: one that shows what only one request may see cannot.
    pub(super) fn can_wait(&self) -> bool {
        self.mounts.is_empty()
    }

    /// Whether its runtime is gVisor's.
    pub(super) fn has_own_kernel(&self) -> bool {
        self.runtime.as_deref().is_some_and(has_own_kernel)
    }

    pub(super) fn mounts(&self) -> &[belljar_core::mount::Mount] {
        &self.mounts
    }

    fn bound(&self) -> Vec<Mount> {
        let asked = self.mounts.iter();
        let mut mounts: Vec<_> = asked
            .map(|mount| bind(mount.host(), mount.guest(), mount.access()))
            .collect();
        let trust = self.trust.iter();
        mounts.extend(trust.map(|file| bind(file, Path::new(TRUST_FILE), Access::ReadOnly)));
        mounts
    }

    /// What the engine is told. `uid` is no other container's of ours.
    pub(super) fn body(&self, sandbox: &str, uid: u32, is_podman: bool) -> ContainerCreateBody {
        let own_kernel = self.has_own_kernel();
        let (user, owner) = if own_kernel { (0, USERS.writer) } else { (uid, uid) };
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let scratch = |size: u64, mode: &str| {
            let options = format!("rw,exec,nosuid,nodev,size={size}");
            if is_podman {
                // It knows no owners here; there is one user in a container anyway. Without the last word it would take over the
                // owner of the image's directory.
                format!("{options},mode=1777,notmpcopyup")
            } else {
                format!("{options},mode={mode},uid={owner},gid={owner}")
            }
        };
        let memory = self.memory + if own_kernel { own_kernel::MEMORY } else { 0 };
        // A guest that may not write is another user there.
        let shared = if own_kernel { "0755" } else { "1777" };
        let mut tmpfs = HashMap::from([
            (WORK_DIR.to_owned(), scratch(self.disk, "0755")),
            ("/tmp".to_owned(), scratch(self.disk, shared)),
        ]);
        if own_kernel {
            tmpfs.insert("/dev/shm".to_owned(), scratch(self.disk.min(64 << 20), shared));
        }
        let mut entrypoint = vec![AGENT.to_owned(), WORK_DIR.to_owned()];
        if own_kernel {
            entrypoint.push(owner.to_string());
        }
        let host = HostConfig {
            network_mode: Some("none".to_owned()),
            dns: self.asks.then(|| vec![RESOLVER.to_string()]),
            dns_options: self
                .asks
                .then(|| vec!["timeout:10".to_owned(), "attempts:2".to_owned()]),
            cap_drop: Some(vec!["ALL".to_owned()]),
            cap_add: own_kernel.then(|| OF_THE_AGENT.map(str::to_owned).to_vec()),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            privileged: Some(false),
            readonly_rootfs: Some(true),
            ipc_mode: Some(if own_kernel { "none" } else { "private" }.to_owned()),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
            memory: Some(number(memory)),
            // Together with swap: so there is none.
            memory_swap: Some(number(memory)),
            nano_cpus: self.cpu_percent.map(|percent| i64::from(percent) * 10_000_000),
            // The agent is one of them. Of a kernel of its own the host sees other tasks than the guest's; that one counts.
            pids_limit: (!own_kernel).then(|| i64::from(self.tasks) + 2),
            ulimits: Some(vec![
                ulimit("nofile", i64::from(self.open_files.max(256))),
                ulimit("core", 0),
                // Of a user that no other container has. Some engines would set one of their own that they cannot have.
                ulimit("nproc", i64::from(self.tasks) + 2),
            ]),
            tmpfs: Some(tmpfs),
            shm_size: Some(number(self.disk.clamp(1 << 20, 64 << 20))),
            mounts: Some(self.bound()),
            // What a guest prints is nobody's to keep but the caller's.
            log_config: Some(HostConfigLogConfig {
                typ: Some("none".to_owned()),
                config: None,
            }),
            runtime: self.runtime.clone(),
            ..HostConfig::default()
        };
        ContainerCreateBody {
            image: Some(self.image.clone()),
            entrypoint: Some(entrypoint),
            cmd: Some(Vec::new()),
            hostname: Some("belljar".to_owned()),
            user: Some(format!("{user}:{user}")),
            working_dir: Some("/".to_owned()),
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            open_stdin: Some(true),
            // When our end of its input goes, its input ends: the agent goes, and so does the container.
            stdin_once: Some(true),
            tty: Some(false),
            // A container without any network is not told whom to ask either.
            network_disabled: Some(!self.asks),
            // An image may want something run beside the guest.
            healthcheck: Some(HealthConfig {
                test: Some(vec!["NONE".to_owned()]),
                ..HealthConfig::default()
            }),
            labels: Some(HashMap::from([
                (owner::OWNER.to_owned(), owner::own().to_owned()),
                (owner::SANDBOX.to_owned(), sandbox.to_owned()),
            ])),
            host_config: Some(host),
            ..ContainerCreateBody::default()
        }
    }
}

/// What is not there is not made, as it would be by the older way of saying this.
fn bind(host: &Path, guest: &Path, access: Access) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(host.display().to_string()),
        target: Some(guest.display().to_string()),
        read_only: Some(access == Access::ReadOnly),
        ..Mount::default()
    }
}

/// Whether a runtime of that name gives each container a kernel of its own.
pub(super) fn has_own_kernel(runtime: &str) -> bool {
    runtime.contains("runsc")
}

fn ulimit(name: &str, value: i64) -> ResourcesUlimits {
    ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(value),
        hard: Some(value),
    }
}

#[cfg(test)]
mod tests {
    use belljar_core::Policy;

    use super::*;

    /// R33: every hardening option, whatever the request.
    #[test]
    fn r33_every_container_is_hardened() {
        let limits = Policy::builtin("standard").unwrap().limits;
        let body = Shape::of("image", &limits, None).body("bj-1", 20_001, false);
        let host = body.host_config.unwrap();
        assert_eq!(host.network_mode.as_deref(), Some("none"));
        assert_eq!(host.cap_drop, Some(vec!["ALL".to_owned()]));
        assert_eq!(host.cap_add, None);
        assert_eq!(host.security_opt, Some(vec!["no-new-privileges".to_owned()]));
        assert_eq!(host.privileged, Some(false));
        assert_eq!(host.readonly_rootfs, Some(true));
        assert_eq!(host.memory, Some(256 << 20));
        assert_eq!(host.memory_swap, host.memory);
        assert_eq!(host.pids_limit, Some(i64::from(limits.tasks()) + 2));
        assert_eq!((host.binds, host.mounts), (None, Some(Vec::new())));
        assert_eq!(
            (host.pid_mode, host.uts_mode, host.userns_mode),
            (None, None, None)
        );
        assert_eq!(host.devices, None);
        assert_eq!(body.user.as_deref(), Some("20001:20001"));
        let tmpfs = host.tmpfs.unwrap();
        for place in ["/workspace", "/tmp"] {
            let options = &tmpfs[place];
            assert!(options.contains("nosuid,nodev,size=67108864"), "{options}");
        }
    }
}
