//! Trying the walls out: a sandbox with nothing in it, made and destroyed.

use std::collections::BTreeMap;
use std::sync::Arc;

use belljar_core::{Control, ProviderError, Support};

use super::cgroup::GroupLimits;
use super::raise::{self, RaisedShell, Wanted};
use super::shared::Shared;
use crate::wire::{CgroupJoin, Note, RootSpec, ShellNetwork, ShellSpec};

/// Corrects what was found by looking with what happens when it is done.
pub(crate) fn apply(shared: &Arc<Shared>, controls: &mut BTreeMap<Control, Support>) {
    match attempt(shared) {
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

pub(super) fn attempt(shared: &Arc<Shared>) -> Result<Vec<Note>, ProviderError> {
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
        guest: None,
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
