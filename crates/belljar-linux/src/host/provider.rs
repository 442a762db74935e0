//! The provider itself: capabilities, and sandboxes out of plans.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::provider::BoxFuture;
use belljar_core::{Capabilities, Language, Plan, Provider, ProviderError, ProviderName, Sandbox};

use super::pool::PoolSettings;
use super::sandbox::NativeSandbox;
use super::shared::Shared;
use super::warm;
use crate::weaken;
use crate::wire::Note;

/// How long a whole stock of sandboxes may take.
const PREPARING: Duration = Duration::from_secs(180);

/// How often a sandbox is begun, should a process that makes it be killed.
const TRIES: u32 = 3;

/// Sandboxes out of namespaces on this machine's own kernel.
///
/// Making one is cheap: the machine is looked at when first needed, and the launcher is started
/// with the first sandbox.
#[derive(Debug)]
pub struct NativeProvider {
    shared: Arc<Shared>,
}

impl Drop for NativeProvider {
    fn drop(&mut self) {
        // Sandboxes in use may outlive the provider; those that wait for use do not.
        self.shared.pool().close();
        self.shared.undertaker.finish();
    }
}

impl Default for NativeProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl NativeProvider {
    pub fn new() -> Self {
        Self::with_pool(PoolSettings::default())
    }

    /// One that keeps sandboxes ready as `settings` say.
    pub fn with_pool(settings: PoolSettings) -> Self {
        let settings = match weaken::path() {
            Some("pooled") => PoolSettings {
                stock: 1,
                warm: false,
                ..settings
            },
            Some(_) => PoolSettings { stock: 1, ..settings },
            None => settings,
        };
        Self {
            shared: Arc::new(Shared::new(settings)),
        }
    }
}

impl Provider for NativeProvider {
    fn name(&self) -> ProviderName {
        ProviderName::Native
    }

    fn capabilities(&self, languages: &[Language]) -> Capabilities {
        self.shared.capabilities(languages, false)
    }

    fn warm_up(&self) {
        self.shared.warm_up();
    }

    fn examine(&self) -> Capabilities {
        let mut found = self.shared.capabilities(Language::ALL, true);
        super::trial::apply(&self.shared, &mut found.controls);
        found
    }

    fn prepare(&self, plan: &Plan) -> Result<(), ProviderError> {
        prepare(&self.shared, plan)
    }

    fn cpu_used(&self) -> Option<Duration> {
        self.shared.hierarchy().ok()?.cpu()
    }

    fn open(&self, id: String, plan: Arc<Plan>) -> BoxFuture<'_, Result<Box<dyn Sandbox>, ProviderError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let mut tries = 1;
            let mut opened = NativeSandbox::open(Arc::clone(&shared), id.clone(), Arc::clone(&plan)).await;
            // Nothing of the guest has run yet, so it may be begun anew; under another name, since what
            // there was of the first may still be on its way out.
            while tries < TRIES && opened.as_ref().is_err_and(is_loss) {
                tries += 1;
                let name = format!("{id}-{tries}");
                opened = NativeSandbox::open(Arc::clone(&shared), name, Arc::clone(&plan)).await;
            }
            Ok(Box::new(opened?) as Box<dyn Sandbox>)
        })
    }
}

/// Whether it failed because a process that was to make the sandbox died meanwhile.
fn is_loss(error: &ProviderError) -> bool {
    match error {
        ProviderError::LauncherLost(_) => true,
        ProviderError::Io { source, .. } => matches!(
            source.kind(),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
        ),
        _ => false,
    }
}

/// Raises a stock of sandboxes for such a plan, and waits until they stand.
pub(crate) fn prepare(shared: &Arc<Shared>, plan: &Plan) -> Result<(), ProviderError> {
    // What a sandbox has here must have been seen once.
    if !shared.is_warm() && shared.pool_settings().warm {
        let notes = super::trial::attempt(shared, None)?;
        shared.saw_proc(notes.contains(&Note::ProcMounted));
    }
    let Some(outline) = warm::outline(shared, plan) else {
        return Ok(());
    };
    let prepared = shared
        .pool()
        .prepare(shared, &outline.shape, outline.recipe(), PREPARING);
    prepared.map_err(|why| ProviderError::Io {
        operation: "prepare",
        object: "sandboxes".to_owned(),
        source: io::Error::other(why),
    })
}
