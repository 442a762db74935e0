//! The engine that is used where a caller brings none: all the walls of this machine, the native one first.

use std::sync::{Arc, OnceLock};

use belljar_core::Provider;
use belljar_engine::Engine;
use belljar_linux::NativeProvider;
use belljar_providers::{DockerProvider, GvisorProvider, VenvProvider};

/// An engine of one's own over this machine's walls. It has one launcher, which ends with the last
/// clone and the last sandbox. Making it looks for nothing: other walls than the native one are looked for when a policy or a request
/// asks for them.
pub fn native_engine() -> Engine {
    Engine::with_providers([
        Arc::new(NativeProvider::new()) as Arc<dyn Provider>,
        Arc::new(GvisorProvider::default()),
        Arc::new(DockerProvider::default()),
        Arc::new(VenvProvider::new()),
    ])
}

/// The engine of everyone in this process who brings none: one launcher serves them all, whatever
/// runtime they are on.
pub(crate) fn shared_engine() -> Engine {
    static SHARED: OnceLock<Engine> = OnceLock::new();
    SHARED.get_or_init(native_engine).clone()
}
