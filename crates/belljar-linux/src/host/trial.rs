//! Trying the walls out: a sandbox with nothing in it, made and destroyed.

use std::collections::BTreeMap;
use std::sync::Arc;

use belljar_core::{Control, ProviderError, Support};

use super::provider::Shared;
use super::shell::Shell;
use crate::wire::{CgroupJoin, Note, RootSpec, ShellSpec};

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

fn attempt(shared: &Arc<Shared>) -> Result<Vec<Note>, ProviderError> {
    let host = shared.root().clone();
    let nursery = shared.new_nursery(RootSpec {
        trees: host.trees,
        links: host.links,
        files: host.files,
        host_ids: shared.machine().host_ids,
    })?;
    let spec = ShellSpec {
        disk_bytes: 1 << 20,
        inodes: 1024,
        loopback: true,
        cgroup: CgroupJoin::None,
        namespaces: false,
    };
    let failed = |source| ProviderError::Io {
        operation: "make",
        object: "a trial sandbox".to_owned(),
        source,
    };
    let asked = nursery.ask(spec, &[]).map_err(failed)?;
    // A thread of its own: the caller may be inside a runtime, which must not be blocked on.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(failed)?;
        runtime.block_on(async {
            let mut shell = Shell::raise(nursery, asked).await?;
            shell.kill();
            shell.gone().await;
            shell.nursery().close().await;
            Ok(shell.notes.clone())
        })
    })
    .join()
    .unwrap_or_else(|_| Err(ProviderError::Protocol("the trial broke off".to_owned())))
}
