//! Functions of the host that guest code may call by name.
//!
//! Arguments and results are [`Value`]s. A tool never sees anything of the guest but those, and a
//! guest never learns more of a tool than its name, its results and the type and text of its errors.

mod function;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use belljar_core::provider::BoxFuture;
use belljar_core::session::is_identifier;
use belljar_core::value::{Fields, WrongType};
use belljar_core::{FromValue, Value};

pub use function::{AsyncFunction, Function, ToolOutput};

/// What a guest gave to a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments {
    pub args: Vec<Value>,
    pub kwargs: Fields,
}

impl Arguments {
    /// The argument called `name`, or else the one at `position`.
    pub fn take<T: FromValue>(&mut self, position: usize, name: &str) -> Result<T, ToolError> {
        let at = self.kwargs.iter().position(|(key, _)| key == name);
        let value = match at {
            Some(at) => self.kwargs.swap_remove(at).1,
            None => match self.args.get_mut(position) {
                Some(value) => std::mem::replace(value, Value::None),
                None => {
                    return Err(ToolError::new(
                        "TypeError",
                        format!("argument `{name}` is missing"),
                    ));
                }
            },
        };
        T::from_value(value)
            .map_err(|error| ToolError::new("TypeError", format!("argument `{name}`: {error}")))
    }
}

/// What a guest sees raised where it called a tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct ToolError {
    /// The name of the exception's type. A runner raises its language's own where there is one of
    /// that name, such as `ValueError`.
    pub kind: String,
    pub message: String,
}

impl ToolError {
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            message: message.into(),
        }
    }
}

impl From<WrongType> for ToolError {
    fn from(error: WrongType) -> Self {
        Self::new("TypeError", error.to_string())
    }
}

impl From<&str> for ToolError {
    fn from(message: &str) -> Self {
        Self::new("RuntimeError", message)
    }
}

impl From<String> for ToolError {
    fn from(message: String) -> Self {
        Self::new("RuntimeError", message)
    }
}

impl From<std::io::Error> for ToolError {
    fn from(error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => "FileNotFoundError",
            std::io::ErrorKind::PermissionDenied => "PermissionError",
            std::io::ErrorKind::TimedOut => "TimeoutError",
            _ => "OSError",
        };
        Self::new(kind, error.to_string())
    }
}

type Asks = dyn Fn(&str, &Arguments) -> BoxFuture<'static, Result<(), ToolError>> + Send + Sync;

/// Asks somebody whether a tool may be called.
#[derive(Clone)]
pub struct Approver(Arc<Asks>);

impl Approver {
    /// `ask` resolves when somebody has said yes, or to the error that the guest sees.
    pub fn new(
        ask: impl Fn(&str, &Arguments) -> BoxFuture<'static, Result<(), ToolError>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(ask))
    }

    pub(crate) fn ask(&self, name: &str, arguments: &Arguments) -> BoxFuture<'static, Result<(), ToolError>> {
        (self.0)(name, arguments)
    }
}

impl fmt::Debug for Approver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Approver")
    }
}

/// A tool at work.
pub type ToolFuture = BoxFuture<'static, Result<Value, ToolError>>;

type Callable = Arc<dyn Fn(Arguments) -> ToolFuture + Send + Sync>;

/// Tools by their names. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tools {
    by_name: BTreeMap<String, Callable>,
}

impl Tools {
    pub fn new() -> Self {
        Self::default()
    }

    /// A function that may block; it runs on a thread for such work. One that hangs keeps that thread,
    /// although nobody waits for it any more.
    pub fn add<M: 'static>(&mut self, name: impl Into<String>, function: impl Function<M>) {
        let function = Arc::new(function);
        self.add_raw(name, move |arguments| {
            let function = Arc::clone(&function);
            let work = tokio::task::spawn_blocking(move || function.call(arguments));
            async move { work.await.unwrap_or_else(|_| Err(panicked())) }
        });
    }

    /// A function that gives a future, which is dropped when the call is given up.
    pub fn add_async<M: 'static>(&mut self, name: impl Into<String>, function: impl AsyncFunction<M>) {
        self.add_raw(name, move |arguments| function.call(arguments));
    }

    /// A function that takes the arguments as they came, keyword arguments among them.
    pub fn add_raw<F>(
        &mut self,
        name: impl Into<String>,
        function: impl Fn(Arguments) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<Value, ToolError>> + Send + 'static,
    {
        let callable: Callable = Arc::new(move |arguments| Box::pin(function(arguments)));
        self.by_name.insert(name.into(), callable);
    }

    /// Takes the others in; of two with one name, the other stays.
    pub(crate) fn extend(&mut self, others: Self) {
        self.by_name.extend(others.by_name);
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The first name that no code could call.
    pub(crate) fn bad_name(&self) -> Option<&str> {
        self.names().find(|name| !is_identifier(name))
    }

    pub(crate) fn get(&self, name: &str) -> Option<Callable> {
        self.by_name.get(name).cloned()
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// What a guest is told of a tool that panicked. The panic's own text is the host's business.
pub(crate) fn panicked() -> ToolError {
    ToolError::new("ToolPanicked", "the tool failed in an unexpected way")
}
