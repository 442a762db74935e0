//! What this machine gives, control by control, and what to do where it gives less.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use belljar_core::{Control, ProviderError, Support};

use super::cgroup::{Bounds, NoHierarchy};
use super::kernel_state;
use super::shell::step_text;
use crate::sys;
use crate::wire::StepFailure;

/// The controls of this machine, looked up without making a sandbox.
pub(crate) fn controls(cgroup: Result<(&'static str, Bounds), &NoHierarchy>) -> BTreeMap<Control, Support> {
    let mut found = BTreeMap::new();
    let namespaces = [
        (Control::UserNamespace, "user"),
        (Control::MountNamespace, "mnt"),
        (Control::PidNamespace, "pid"),
        (Control::NetworkNamespace, "net"),
        (Control::IpcNamespace, "ipc"),
        (Control::UtsNamespace, "uts"),
        (Control::CgroupNamespace, "cgroup"),
    ];
    for (control, name) in namespaces {
        let support = if fs::symlink_metadata(format!("/proc/self/ns/{name}")).is_ok() {
            present("kernel")
        } else {
            absent("the kernel was built without it", "use a kernel with namespaces")
        };
        found.insert(control, support);
    }
    if let Some(refusal) = user_namespace_refusal() {
        found.insert(Control::UserNamespace, refusal);
    }
    found.insert(Control::PrivateRoot, mount_api());
    found.insert(Control::PrivateProc, present("new /proc, own processes only"));
    found.insert(
        Control::FreshUid,
        match fresh_ids_refusal() {
            None => present("one of a range, for each sandbox"),
            Some(why) => absent(why, "run as root, with all capabilities and all ids"),
        },
    );
    found.insert(Control::NoCapabilities, present("all dropped"));
    found.insert(Control::NoNewPrivileges, present("prctl"));
    found.insert(
        Control::Rlimits,
        present("cpu, file size, files, tasks, core, locked memory, queues"),
    );
    found.insert(Control::Landlock, landlock());
    let seccomp = sys::filter::filters_available();
    found.insert(
        Control::Seccomp,
        if seccomp {
            present(&format!("allowlist of {} rules", crate::policies::rules().len()))
        } else {
            absent(
                "the kernel takes no filters",
                "use a kernel with CONFIG_SECCOMP_FILTER",
            )
        },
    );
    found.insert(Control::ProcessCount, process_count());
    found.insert(
        Control::OwnKernel,
        absent(
            "the machine's own kernel serves it",
            "use the gvisor provider (belljar providers)",
        ),
    );
    found.extend(group_controls(cgroup));
    found
}

/// Which limits control groups can hold here.
pub(crate) fn group_controls(
    cgroup: Result<(&'static str, Bounds), &NoHierarchy>,
) -> BTreeMap<Control, Support> {
    let mut found = BTreeMap::new();
    let (version, bounds, why) = match cgroup {
        Ok((version, bounds)) => (version, bounds, None),
        Err(none) => ("", Bounds::default(), Some(none)),
    };
    for (control, has, name) in [
        (Control::MemoryCgroup, bounds.memory, "memory"),
        (Control::PidsCgroup, bounds.pids, "pids"),
        (Control::CpuCgroup, bounds.cpu, "cpu"),
    ] {
        let support = match (has, why) {
            (true, _) => present(&format!("cgroup {version}")),
            (false, Some(none)) => Support::Absent {
                why: none.why.clone(),
                fix: none.fix.clone(),
            },
            (false, None) => absent(
                &format!("cgroup {version} has no {name} controller here"),
                "enable the controller for the group that belljar runs in",
            ),
        };
        found.insert(control, support);
    }
    found
}

fn present(detail: &str) -> Support {
    Support::Present {
        detail: detail.to_owned(),
    }
}

fn absent(why: &str, fix: &str) -> Support {
    Support::Absent {
        why: why.to_owned(),
        fix: fix.to_owned(),
    }
}

/// Why sandboxes cannot have ids of their own; `None` where they can.
pub(crate) fn fresh_ids_refusal() -> Option<&'static str> {
    const SETGID: u64 = 1 << 6;
    const SETUID: u64 = 1 << 7;
    const SYS_ADMIN: u64 = 1 << 21;
    let needed = SETGID | SETUID | SYS_ADMIN;
    if !is_root() {
        return Some("without root there is only the caller's own uid");
    }
    if sys::process::effective_capabilities().unwrap_or(0) & needed != needed {
        return Some("this root lacks capabilities, as in a container");
    }
    // A container's own user namespace may map a few ids only.
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let covers = |line: &str| {
        let mut numbers = line
            .split_whitespace()
            .filter_map(|word| word.parse::<u64>().ok());
        let (first, count) = (numbers.next().unwrap_or(u64::MAX), numbers.nth(1).unwrap_or(0));
        first <= u64::from(crate::nursery::FIRST_ID)
            && u64::from(crate::nursery::LAST_ID) < first.saturating_add(count)
    };
    if map.lines().any(covers) {
        None
    } else {
        Some("this user namespace has no ids to spare")
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn landlock() -> Support {
    match sys::filter::landlock_version() {
        Ok(version) => present(&format!("ABI {version}")),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => absent(
            "it is built in but not enabled",
            "add landlock to the kernel's lsm= list",
        ),
        Err(_) => absent(
            "the kernel does not have it",
            "use Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK",
        ),
    }
}

fn process_count() -> Support {
    if !sys::filter::action_available(libc::SECCOMP_RET_USER_NOTIF) {
        return absent(
            "the kernel cannot hand system calls over",
            "use Linux 5.5 or later",
        );
    }
    // Before, a user's tasks were counted over the whole machine. Under root each sandbox has a uid
    // of its own, so that comes to the same.
    if !is_root() && kernel_version() < (5, 14) {
        return absent(
            "the kernel counts a user's tasks without regard to namespaces",
            "use Linux 5.14 or later, or run as root",
        );
    }
    present("threads aside: room for them is made as they come")
}

fn kernel_version() -> (u32, u32) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn mount_api() -> Support {
    // mount_setattr is the youngest call we need.
    let result = sys::mount::set_attributes(rustix::fs::CWD, c"/nonexistent/belljar", 0, false, None);
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            absent("the kernel lacks mount_setattr", "use Linux 5.12 or later")
        }
        _ => present("pivot_root"),
    }
}

/// Settings that keep ordinary users from making user namespaces.
fn user_namespace_refusal() -> Option<Support> {
    let setting = |path: &str| {
        fs::read_to_string(path)
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
    };
    if setting("/proc/sys/user/max_user_namespaces") == Some(0) {
        return Some(absent(
            "user.max_user_namespaces is 0",
            "sysctl -w user.max_user_namespaces=10000",
        ));
    }
    if is_root() {
        return None;
    }
    if setting("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        return Some(absent(
            "kernel.unprivileged_userns_clone is 0",
            "sysctl -w kernel.unprivileged_userns_clone=1, or run as root",
        ));
    }
    if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        return Some(absent(
            "AppArmor keeps ordinary users from using user namespaces (Ubuntu's default)",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give belljar an AppArmor profile with \
             the `userns` rule, or run as root",
        ));
    }
    None
}

/// What a failed step of the set-up means for the person in front of it.
pub(crate) fn explain(failure: &StepFailure) -> ProviderError {
    let refused = matches!(
        failure.errno,
        libc::EPERM | libc::EACCES | libc::ENOSPC | libc::ENOSYS | libc::EINVAL
    );
    let missing = |control, fix: &str| ProviderError::ControlMissing {
        control,
        why: step_text(failure),
        fix: fix.to_owned(),
    };
    match failure.step.as_str() {
        "Clone" | "OwnNamespace" | "MapIds" if refused => match user_namespace_refusal() {
            Some(Support::Absent { why, fix }) => ProviderError::ControlMissing {
                control: Control::UserNamespace,
                why,
                fix,
            },
            _ => missing(
                Control::UserNamespace,
                "allow user namespaces here: in a container, start it with a seccomp profile that lets clone make \
                 them (docker run --security-opt seccomp=unconfined), or run belljar outside of it",
            ),
        },
        "Network" if refused => missing(
            Control::NetworkNamespace,
            "allow new network namespaces here: sysctl -w user.max_net_namespaces=10000, and in a container a seccomp \
             profile that lets unshare make them",
        ),
        "PrivatePropagation" | "MountRoot" | "AttachTrees" | "MountScratch" | "PivotRoot"
        | "DetachOldRoot"
            if refused =>
        {
            missing(
                Control::PrivateRoot,
                "mounts are refused inside the namespaces: look at AppArmor or SELinux rules for user namespaces",
            )
        }
        _ if failure.errno == kernel_state::ENOTSUPP => kernel_state::no_filter_memory(),
        "Landlock" => missing(Control::Landlock, "see `belljar doctor`"),
        "Seccomp" | "CountProcesses" => missing(Control::Seccomp, "see `belljar doctor`"),
        step => {
            let source = io::Error::from_raw_os_error(failure.errno);
            match step.strip_prefix("CloneTree ") {
                Some(path) => ProviderError::Io {
                    operation: "show",
                    object: path.to_owned(),
                    source,
                },
                None => ProviderError::Setup {
                    step: step.to_owned(),
                    source,
                },
            }
        }
    }
}
