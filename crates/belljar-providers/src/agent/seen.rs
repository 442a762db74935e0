//! What an agent sees of the place it is in: what a receipt says was observed there.

use std::collections::BTreeMap;

use belljar_core::Control;
use belljar_core::receipt::Observed;
use belljar_linux::agent::wire::LIMITS;

use super::counters::Counters;
use super::line::{Connected, Line};

/// The most that is read of one of the kernel's files.
const MOST: u64 = 256 << 10;

/// What gVisor's kernel says it is, whichever version it has.
const GVISOR: &str = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016";

/// What version 1 says of memory that has no limit is a page less than this.
const UNLIMITED: u64 = 1 << 62;

const NAMESPACES: [(Control, &str); 7] = [
    (Control::UserNamespace, "user"),
    (Control::MountNamespace, "mnt"),
    (Control::PidNamespace, "pid"),
    (Control::NetworkNamespace, "net"),
    (Control::IpcNamespace, "ipc"),
    (Control::UtsNamespace, "uts"),
    (Control::CgroupNamespace, "cgroup"),
];

/// The place of one agent, in its own words: files of its kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub pid: u32,
    pub uid: u32,
    pub landlock: u32,
    /// `/proc/self/status`.
    status: String,
    pub ceilings: [u64; LIMITS],
    /// `/proc/self/mountinfo`.
    mounts: String,
    /// `/proc/self/cgroup`.
    pub groups: String,
    /// `/proc/net/dev`.
    devices: String,
    namespaces: BTreeMap<Control, Vec<u8>>,
    /// Whether it stands on the engine's own kernel.
    is_local: bool,
    is_gvisor: bool,
}

impl Seen {
    /// Looks around.
    pub(crate) async fn look(connected: &Connected) -> Self {
        let line = &*connected.line;
        let files = futures_util::future::join_all(
            [
                "/proc/self/status",
                "/proc/self/mountinfo",
                "/proc/self/cgroup",
                "/proc/net/dev",
                "/proc/sys/kernel/random/boot_id",
                "/proc/version",
            ]
            .map(|path| text(line, path)),
        );
        let links = futures_util::future::join_all(NAMESPACES.map(|(control, name)| async move {
            let link = line.look_at_link(&format!("/proc/self/ns/{name}")).await;
            link.ok().map(|link| (control, link))
        }));
        let (files, links) = tokio::join!(files, links);
        let mut files = files.into_iter();
        let mut next = || files.next().unwrap_or_default();
        let (status, mounts, groups, devices, boot, version) =
            (next(), next(), next(), next(), next(), next());
        let own = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self {
            pid: connected.pid,
            uid: connected.uid,
            landlock: connected.landlock,
            status,
            ceilings: connected.ceilings,
            mounts,
            groups,
            devices,
            namespaces: links.into_iter().flatten().collect(),
            is_local: !own.is_empty() && own == boot,
            is_gvisor: version.contains(GVISOR),
        }
    }

    fn status(&self, key: &str) -> Option<&str> {
        self.status
            .lines()
            .find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()))
    }

    /// The number of its network, where the engine's own kernel gave it.
    pub(crate) fn network(&self) -> Option<u64> {
        let link = self.namespaces.get(&Control::NetworkNamespace)?;
        let number = std::str::from_utf8(link).ok()?.strip_prefix("net:[")?;
        let number = number.strip_suffix(']')?.parse().ok()?;
        (self.is_local && !self.is_gvisor).then_some(number)
    }

    /// Controls that are to be seen from inside of a container.
    pub(crate) fn controls(&self) -> BTreeMap<Control, Observed> {
        let mut controls: BTreeMap<Control, Observed> = NAMESPACES
            .map(|(control, name)| (control, self.namespace(control, name)))
            .into();
        controls.insert(Control::PrivateRoot, self.root());
        controls.insert(
            Control::OwnKernel,
            if self.is_gvisor {
                Observed::enforced("gVisor")
            } else {
                Observed::absent("the machine's own kernel serves it")
            },
        );
        let own_proc = self.pid == 1;
        controls.insert(
            Control::PrivateProc,
            if own_proc {
                Observed::enforced("own processes only")
            } else {
                Observed::absent("the host's processes are to be seen")
            },
        );
        let is_empty = |set: &str| {
            self.status(set)
                .is_some_and(|bits| bits.bytes().all(|digit| digit == b'0'))
        };
        let none = ["CapInh", "CapPrm", "CapEff", "CapBnd"].into_iter().all(is_empty)
            && (self.status("CapAmb").is_none() || is_empty("CapAmb"));
        controls.insert(
            Control::NoCapabilities,
            if none {
                Observed::enforced("none left, bounding set empty")
            } else {
                Observed::absent(format!(
                    "the bounding set is {}",
                    self.status("CapBnd").unwrap_or("not to be seen")
                ))
            },
        );
        controls.insert(
            Control::NoNewPrivileges,
            if self.status("NoNewPrivs") == Some("1") {
                Observed::enforced("set for everything in it")
            } else {
                Observed::absent("not set")
            },
        );
        controls.insert(
            Control::FreshUid,
            if self.uid == 0 {
                Observed::absent("runs as the container's root")
            } else {
                Observed::enforced(format!("uid {}", self.uid))
            },
        );
        controls
    }

    /// Where its counters are: below `/sys/fs/cgroup`, for each version of control groups.
    pub(crate) fn counters(&self) -> Counters {
        if self.has_groups_v1() {
            return Counters {
                cpu: "/sys/fs/cgroup/cpuacct/cpuacct.usage".to_owned(),
                memory_peak: "/sys/fs/cgroup/memory/memory.max_usage_in_bytes".to_owned(),
                kills: "/sys/fs/cgroup/memory/memory.oom_control".to_owned(),
            };
        }
        Counters {
            cpu: "/sys/fs/cgroup/cpu.stat".to_owned(),
            memory_peak: "/sys/fs/cgroup/memory.peak".to_owned(),
            kills: "/sys/fs/cgroup/memory.events".to_owned(),
        }
    }

    fn has_groups_v1(&self) -> bool {
        self.groups.lines().any(|line| line.contains(":memory:"))
    }

    /// Which limits the kernel holds for everything in there together, as the files of its control group say.
    pub(crate) async fn bounds(&self, line: &Line) -> BTreeMap<Control, Observed> {
        let rows = if self.has_groups_v1() {
            [
                (Control::MemoryCgroup, "memory/memory.limit_in_bytes"),
                (Control::PidsCgroup, "pids/pids.max"),
                (Control::CpuCgroup, "cpu/cpu.cfs_quota_us"),
            ]
        } else {
            [
                (Control::MemoryCgroup, "memory.max"),
                (Control::PidsCgroup, "pids.max"),
                (Control::CpuCgroup, "cpu.max"),
            ]
        };
        let version = if self.has_groups_v1() { "v1" } else { "v2" };
        let mut bounds = BTreeMap::new();
        for (control, file) in rows {
            let said = text(line, &format!("/sys/fs/cgroup/{file}")).await;
            let first = said.split_whitespace().next().unwrap_or_default();
            let limit = first.parse::<u64>().ok().filter(|limit| *limit < UNLIMITED);
            let observed = match limit {
                Some(limit) => Observed::enforced(format!("cgroup {version}, {limit}")),
                // A share that nobody asked for needs no limit; the controller is there.
                None if control == Control::CpuCgroup && !first.is_empty() => {
                    Observed::enforced(format!("cgroup {version}, no limit asked for"))
                }
                None if first.is_empty() => Observed::absent("there is no such limit in there"),
                None => Observed::absent(format!("its control group says {first}: the limit was ignored")),
            };
            bounds.insert(control, observed);
        }
        bounds
    }

    fn namespace(&self, control: Control, name: &str) -> Observed {
        let Some(inside) = self.namespaces.get(&control) else {
            return Observed::absent("its kernel does not show it");
        };
        let shown = String::from_utf8_lossy(inside).into_owned();
        if control == Control::NetworkNamespace {
            let others = self.devices();
            if !others.is_empty() {
                return Observed::absent(format!("it has {}", others.join(", ")));
            }
        }
        if control == Control::PidNamespace && self.pid == 1 || !self.is_local {
            return Observed::enforced(shown);
        }
        match std::fs::read_link(format!("/proc/self/ns/{name}")) {
            Ok(own) if own.as_os_str().as_encoded_bytes() != inside => Observed::enforced(shown),
            Ok(_) => Observed::absent("it is the host's own"),
            Err(_) => Observed::absent("the host's own cannot be looked up"),
        }
    }

    /// Network devices beside its own loopback.
    pub(crate) fn devices(&self) -> Vec<&str> {
        let rows = self.devices.lines().filter_map(|line| line.split_once(':'));
        rows.map(|(name, _)| name.trim())
            // Devices of kernel modules that are in every namespace and lead nowhere.
            .filter(|name| *name != "lo" && !IDLE.iter().any(|idle| name.starts_with(idle)))
            .collect()
    }

    /// The options of what is mounted at `place`, and of which kind it is.
    pub(crate) fn mount(&self, place: &str) -> Option<(&str, &str)> {
        self.mounts
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                let (at, options) = (words.nth(4)?, words.next()?);
                let kind = line.split_once(" - ")?.1.split(' ').next()?;
                (at == place).then_some((options, kind))
            })
            .next_back()
    }

    fn root(&self) -> Observed {
        match self.mount("/") {
            Some((options, kind)) if options.split(',').any(|option| option == "ro") => {
                Observed::enforced(format!("{kind}, read-only"))
            }
            Some((_, kind)) => Observed::absent(format!("{kind}, writable")),
            None => Observed::absent("its kernel does not show it"),
        }
    }
}

/// Tunnels that some kernels make in every namespace; none of them is up or leads anywhere.
const IDLE: [&str; 9] = [
    "tunl", "gre", "gretap", "erspan", "ip_vti", "ip6_vti", "sit", "ip6tnl", "ip6gre",
];

async fn text(line: &Line, path: &str) -> String {
    let found = line.look(path, MOST).await;
    found.map_or_else(
        |_| String::new(),
        |found| String::from_utf8_lossy(&found.bytes).into_owned(),
    )
}
