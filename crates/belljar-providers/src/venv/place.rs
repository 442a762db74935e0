//! A place without walls: an agent on the host, in a control group where there are any.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;

use belljar_core::provider::{BoxFuture, Ended};
use belljar_core::receipt::Observed;
use belljar_core::{Control, Limits, ProviderError, Support, Weight};
use belljar_linux::groups::ProcessGroup;
use tokio::process::{Child, Command};
use tokio_util::io::ReaderStream;

use super::Dirs;
use crate::agent::{Connected, Line};
use crate::background::Background;
use crate::place::{Place, Used};

/// How long the agent may take to end everything by itself.
const BY_ITSELF: Duration = Duration::from_secs(1);
/// How long it may take once everything was killed.
const ENDING: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct VenvPlace {
    background: Background,
    /// Gone once it was waited for.
    child: Option<Child>,
    group: Option<ProcessGroup>,
    bounds: BTreeMap<Control, Support>,
    line: Weak<Line>,
    dirs: Option<Dirs>,
    work_dir: String,
}

impl VenvPlace {
    pub(super) async fn start(
        background: &Background,
        program: &Path,
        dirs: Dirs,
        group: Option<ProcessGroup>,
    ) -> io::Result<(Self, Connected)> {
        let mut command = Command::new(program);
        command
            .arg(&dirs.work)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let runtime = background.handle()?;
        let mut child = background.run(async move { command.spawn() }).await?;
        if let (Some(group), Some(pid)) = (&group, child.id()) {
            // It has started nothing yet, so nothing is left out.
            for entry in group.entries() {
                std::fs::write(entry, pid.to_string())?;
            }
        }
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(io::Error::other("the agent has no streams"));
        };
        let incoming = Box::pin(ReaderStream::with_capacity(stdout, 64 << 10));
        let connected = Line::connect(&runtime, incoming, Box::pin(stdin)).await?;
        let place = Self {
            background: background.clone(),
            child: Some(child),
            bounds: group
                .as_ref()
                .map(|group| group.controls().clone())
                .unwrap_or_default(),
            group,
            line: Arc::downgrade(&connected.line),
            work_dir: dirs.work.to_string_lossy().into_owned(),
            dirs: Some(dirs),
        };
        Ok((place, connected))
    }

    pub(super) const fn group_controls(&self) -> &BTreeMap<Control, Support> {
        &self.bounds
    }

    pub(super) fn work_dir(&self) -> String {
        self.work_dir.clone()
    }

    async fn end_everything(&mut self) -> Result<(), ProviderError> {
        if let Some(line) = self.line.upgrade() {
            line.hang_up();
        }
        if let Some(mut child) = self.child.take() {
            // It ends what it started and waits for that, which leaves no orphan. What it cannot end the group ends.
            let waited = self.background.run(async move {
                let ended = tokio::time::timeout(BY_ITSELF, child.wait()).await.is_ok();
                Ok((child, ended))
            });
            if let Ok((mut child, false)) = waited.await {
                if let Some(group) = &self.group {
                    group.kill();
                }
                let ended = self.background.run(async move {
                    if tokio::time::timeout(ENDING, child.wait()).await.is_err() {
                        child.kill().await?;
                    }
                    Ok(())
                });
                let _ = ended.await;
            }
        }
        if let Some(group) = self.group.take() {
            group.kill();
            group.remove()?;
        }
        if let Some(dirs) = self.dirs.take() {
            let Dirs { own, .. } = dirs;
            let removed = tokio::task::spawn_blocking(move || own.close()).await;
            if let Ok(Err(source)) = removed {
                return Err(ProviderError::Io {
                    operation: "remove",
                    object: "a work directory".to_owned(),
                    source,
                });
            }
        }
        Ok(())
    }
}

impl Drop for VenvPlace {
    fn drop(&mut self) {
        // The agent goes with its line, and with it everything it started. What is in the group goes at once.
        if let Some(line) = self.line.upgrade() {
            line.hang_up();
        }
        if let Some(group) = &self.group {
            group.kill();
        }
    }
}

impl Place for VenvPlace {
    fn limit(&mut self, limits: &Limits) -> Result<(), ProviderError> {
        self.group.as_mut().map_or(Ok(()), |group| group.limit(limits))
    }

    fn weigh(&mut self, weight: Weight) {
        if let Some(group) = &mut self.group {
            group.weigh(weight);
        }
    }

    fn used(&self) -> Option<Used> {
        let group = self.group.as_ref()?;
        let memory = self.bounds.get(&Control::MemoryCgroup);
        memory.filter(|support| support.is_present())?;
        Some(Used {
            cpu: group.cpu()?,
            memory_peak: group.memory_peak(),
            memory: None,
            kills: group.out_of_memory_kills(),
            processes: 0,
        })
    }

    fn end(&mut self) -> BoxFuture<'_, Result<(), ProviderError>> {
        Box::pin(self.end_everything())
    }

    fn why_gone(&mut self) -> BoxFuture<'_, Ended> {
        let kills = self.group.as_ref().map_or(0, ProcessGroup::out_of_memory_kills);
        Box::pin(std::future::ready(if kills > 0 {
            Ended::OutOfMemory
        } else {
            Ended::Lost("its agent was killed from outside".to_owned())
        }))
    }

    fn controls(&self) -> BTreeMap<Control, Observed> {
        let mut controls: BTreeMap<Control, Observed> = Control::ALL
            .iter()
            .map(|control| (*control, Observed::absent("trusted mode: there is no wall")))
            .collect();
        for (control, support) in &self.bounds {
            let observed = match support {
                Support::Present { detail } => Observed::enforced(detail.clone()),
                Support::Absent { why, .. } => Observed::absent(why.clone()),
            };
            controls.insert(*control, observed);
        }
        controls
    }

    fn shown(&self) -> Vec<String> {
        vec!["everything: there is no wall".to_owned()]
    }

    fn origin(&self) -> String {
        "made on demand".to_owned()
    }
}
