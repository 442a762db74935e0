//! The engine that is used where a caller brings none: the native Linux provider.

use std::sync::{Arc, OnceLock};

use belljar_engine::Engine;
use belljar_linux::NativeProvider;

/// An engine of one's own over this machine's walls. It has one launcher, which ends with the last
/// clone and the last sandbox.
pub fn native_engine() -> Engine {
    Engine::new(Arc::new(NativeProvider::new()))
}

/// The engine of everyone in this process who brings none: one launcher serves them all, whatever
/// runtime they are on.
pub(crate) fn shared_engine() -> Engine {
    static SHARED: OnceLock<Engine> = OnceLock::new();
    SHARED.get_or_init(native_engine).clone()
}
