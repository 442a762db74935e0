//! Makes and destroys a trial sandbox, for `belljar doctor`: what was found by looking is corrected by what happens.

use std::collections::BTreeMap;
use std::sync::Arc;

use belljar_core::{Control, ProviderError, Support};

use super::cgroup::GroupLimits;
use super::raise::{self, RaisedShell, Wanted, WantedGuest};
use super::shared::Shared;
use crate::wire::{CgroupJoin, GuestLimits, GuestSpec, Note, RootSpec, ShellNetwork, ShellSpec};

/// Corrects `controls` by what happens when a sandbox is made and a guest is started in it.
pub(crate) fn apply(shared: &Arc<Shared>, controls: &mut BTreeMap<Control, Support>) {
    match attempt(shared, None).and_then(|notes| start_guest(shared).map(|()| notes)) {
        Ok(notes) => {
            if let Some(Note::ProcAbsent(errno)) =
                notes.iter().find(|note| matches!(note, Note::ProcAbsent(_)))
            {
                let why = format!(
                    "mounting it fails ({})",
                    std::io::Error::from_raw_os_error(*errno)
                );
                let fix =
                    "the container hides parts of /proc: docker run --security-opt systempaths=unconfined";
                controls.insert(
                    Control::PrivateProc,
                    Support::Absent {
                        why,
                        fix: fix.to_owned(),
                    },
                );
            }
        }
        Err(ProviderError::ControlMissing { control, why, fix }) => {
            controls.insert(control, Support::Absent { why, fix });
        }
        Err(ProviderError::Kernel { why, fix }) => {
            controls.insert(Control::Seccomp, Support::Absent { why, fix });
        }
        Err(error) => {
            let why = format!("a trial sandbox could not be made: {error}");
            controls.insert(
                Control::PrivateRoot,
                Support::Absent {
                    why,
                    fix: "report this".to_owned(),
                },
            );
        }
    }
}

/// Starts a program that does not exist: every restriction of a guest is in force before the kernel looks for it.
fn start_guest(shared: &Arc<Shared>) -> Result<(), ProviderError> {
    let machine = shared.machine();
    let spec = GuestSpec {
        argv: vec!["/belljar-trial".to_owned()],
        env: Vec::new(),
        file_write: true,
        writable: Vec::new(),
        no_network: true,
        limits: GuestLimits {
            cpu_seconds: 1,
            file_size: 0,
            open_files: 16,
            tasks: 4,
            processes: 1,
            data: None,
        },
        memory_accounted: machine.memory_accounted,
        count_processes: machine.count_processes,
        wall_millis: 60_000,
    };
    let guest = WantedGuest { spec, zygote: None };
    match attempt(shared, Some(guest)) {
        Err(ProviderError::Setup { step, source })
            if step == "Exec" && source.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(())
        }
        result => result.map(drop),
    }
}

pub(super) fn attempt(shared: &Arc<Shared>, guest: Option<WantedGuest>) -> Result<Vec<Note>, ProviderError> {
    let host = shared.root().clone();
    let nursery = shared.new_nursery(RootSpec {
        trees: host.trees,
        links: host.links,
        files: host.files,
        host_ids: shared.machine().host_ids,
    })?;
    let wanted = Wanted {
        nursery: Arc::clone(&nursery),
        shell: ShellSpec {
            disk_bytes: 1 << 20,
            inodes: 1024,
            network: ShellNetwork::Loopback,
            cgroup: CgroupJoin::None,
            namespaces: false,
        },
        limits: GroupLimits {
            memory: 64 << 20,
            tasks: 8,
            cpu_percent: None,
        },
        shares: true,
        guest,
        files: None,
    };
    // A thread of its own: the caller may be inside a runtime, which must not be blocked on.
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let raised = raise::begin(&shared, wanted, "trial")?.tell()?.wait()?;
        let RaisedShell {
            leash, notes, ended, ..
        } = raised.shell;
        drop(leash);
        // Until nothing is left of it.
        let _ = ended.blocking_recv();
        nursery.close_blocking();
        Ok(notes)
    })
    .join()
    .unwrap_or_else(|_| Err(ProviderError::Protocol("the trial broke off".to_owned())))
}
