//! The engine that is used where a caller brings none: all the walls of this machine, the native one first.

use std::sync::{Arc, OnceLock};

use belljar_core::Provider;
use belljar_engine::Engine;
use belljar_linux::NativeProvider;
use belljar_providers::{DockerProvider, DockerSettings, GvisorProvider, VenvProvider};

/// An engine of one's own over this machine's walls. It has one launcher, which ends with the last
/// clone and the last sandbox. Making it looks for nothing: other walls than the native one are looked for when a policy or a request
/// asks for them.
pub fn native_engine() -> Engine {
    engine(DockerSettings::default())
}

/// The same, which tells of what takes long: an image that has to be fetched.
pub fn engine_telling(progress: Arc<dyn Fn(&str) + Send + Sync>) -> Engine {
    engine(DockerSettings {
        progress: Some(progress),
        ..DockerSettings::default()
    })
}

fn engine(docker: DockerSettings) -> Engine {
    Engine::with_providers([
        Arc::new(NativeProvider::new()) as Arc<dyn Provider>,
        Arc::new(GvisorProvider::default()),
        Arc::new(DockerProvider::new(docker)),
        Arc::new(VenvProvider::new()),
    ])
    .with_memory_release(belljar_linux::release_memory)
}

/// The engine of everyone in this process who brings none: one launcher serves them all, whatever
/// runtime they are on.
pub(crate) fn shared_engine() -> Engine {
    static SHARED: OnceLock<Engine> = OnceLock::new();
    SHARED.get_or_init(native_engine).clone()
}
