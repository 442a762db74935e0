//! Ordinary Rust functions and closures as tools: `|a: i64, b: i64| a + b`.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use belljar_core::{FromValue, Value};

use super::{Arguments, ToolError, ToolFuture};

/// What a tool's function may return.
pub trait ToolOutput {
    fn into_result(self) -> Result<Value, ToolError>;
}

macro_rules! outputs {
    ($($type:ty),*) => {$(
        impl ToolOutput for $type {
            fn into_result(self) -> Result<Value, ToolError> {
                Ok(self.into())
            }
        }
    )*};
}
outputs!(
    Value,
    (),
    bool,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    f32,
    f64,
    char,
    &str,
    String,
    serde_json::Value
);

impl<T: Into<Value>> ToolOutput for Vec<T> {
    fn into_result(self) -> Result<Value, ToolError> {
        Ok(self.into())
    }
}

impl<T: Into<Value>> ToolOutput for Option<T> {
    fn into_result(self) -> Result<Value, ToolError> {
        Ok(self.into())
    }
}

impl<T: Into<Value>> ToolOutput for BTreeMap<String, T> {
    fn into_result(self) -> Result<Value, ToolError> {
        Ok(self.into())
    }
}

impl<A: Into<Value>, B: Into<Value>> ToolOutput for (A, B) {
    fn into_result(self) -> Result<Value, ToolError> {
        Ok(self.into())
    }
}

impl<T: ToolOutput, E: Into<ToolError>> ToolOutput for Result<T, E> {
    fn into_result(self) -> Result<Value, ToolError> {
        self.map_err(Into::into)?.into_result()
    }
}

/// A function whose arguments come from a guest. `M` only tells functions of different kinds apart.
pub trait Function<M>: Send + Sync + 'static {
    fn call(&self, arguments: Arguments) -> Result<Value, ToolError>;
}

/// The same for functions that give a future.
pub trait AsyncFunction<M>: Send + Sync + 'static {
    fn call(&self, arguments: Arguments) -> ToolFuture;
}

/// Checks that exactly `count` arguments came, by position.
fn positional(arguments: Arguments, count: usize) -> Result<std::vec::IntoIter<Value>, ToolError> {
    if let Some((name, _)) = arguments.kwargs.first() {
        let message = format!("this tool takes no keyword argument, so not `{name}` either");
        return Err(ToolError::new("TypeError", message));
    }
    if arguments.args.len() != count {
        let message = format!("this tool takes {count} arguments, not {}", arguments.args.len());
        return Err(ToolError::new("TypeError", message));
    }
    Ok(arguments.args.into_iter())
}

fn argument<T: FromValue>(values: &mut std::vec::IntoIter<Value>, position: usize) -> Result<T, ToolError> {
    T::from_value(values.next().unwrap_or(Value::None))
        .map_err(|error| ToolError::new("TypeError", format!("argument {position}: {error}")))
}

macro_rules! functions {
    ($count:literal $(, $type:ident $name:ident $position:literal)*) => {
        impl<F, R, $($type),*> Function<PhantomData<fn($($type),*) -> R>> for F
        where
            F: Fn($($type),*) -> R + Send + Sync + 'static,
            R: ToolOutput,
            $($type: FromValue,)*
        {
            fn call(&self, arguments: Arguments) -> Result<Value, ToolError> {
                let mut values = positional(arguments, $count)?;
                let _ = &mut values;
                $(let $name = argument(&mut values, $position)?;)*
                self($($name),*).into_result()
            }
        }

        impl<F, R, $($type),*> AsyncFunction<PhantomData<fn($($type),*) -> R>> for F
        where
            F: Fn($($type),*) -> R + Send + Sync + 'static,
            R: Future<Output: ToolOutput> + Send + 'static,
            $($type: FromValue,)*
        {
            fn call(&self, arguments: Arguments) -> ToolFuture {
                let begin = || -> Result<R, ToolError> {
                    let mut values = positional(arguments, $count)?;
                    let _ = &mut values;
                    $(let $name = argument(&mut values, $position)?;)*
                    Ok(self($($name),*))
                };
                match begin() {
                    Ok(work) => Box::pin(async move { work.await.into_result() }),
                    Err(error) => Box::pin(std::future::ready(Err(error))),
                }
            }
        }
    };
}
functions!(0);
functions!(1, A a 1);
functions!(2, A a 1, B b 2);
functions!(3, A a 1, B b 2, C c 3);
functions!(4, A a 1, B b 2, C c 3, D d 4);

#[cfg(test)]
mod tests {
    use super::*;

    fn call<M>(function: impl Function<M>, args: Vec<Value>) -> Result<Value, ToolError> {
        let kwargs = Vec::new();
        function.call(Arguments { args, kwargs })
    }

    #[test]
    fn a_closure_is_a_tool() {
        let sum = call(|a: i64, b: i64| a + b, vec![1.into(), 2.into()]);
        assert_eq!(sum, Ok(Value::Int(3)));
        let root = |number: f64| -> Result<f64, String> {
            if number < 0.0 {
                Err("a negative number".to_owned())
            } else {
                Ok(number.sqrt())
            }
        };
        assert_eq!(call(root, vec![9.into()]), Ok(Value::Float(3.0)));
        assert_eq!(call(root, vec![(-1).into()]).unwrap_err().kind, "RuntimeError");
        assert_eq!(call(|| (), Vec::new()), Ok(Value::None));
    }

    #[test]
    fn wrong_arguments_are_a_type_error() {
        let add = |a: i64, b: i64| a + b;
        for (args, shown) in [
            (
                vec![Value::Int(1)],
                "TypeError: this tool takes 2 arguments, not 1",
            ),
            (
                vec![1.into(), "x".into()],
                "TypeError: argument 2: expected a whole number, got text",
            ),
        ] {
            assert_eq!(call(add, args).unwrap_err().to_string(), shown);
        }
        let named = Arguments {
            args: vec![1.into()],
            kwargs: vec![("b".to_owned(), 2.into())],
        };
        assert_eq!(Function::call(&add, named).unwrap_err().kind, "TypeError");
    }

    #[test]
    fn arguments_are_found_by_name_or_place() {
        let mut given = Arguments {
            args: vec![1.into()],
            kwargs: vec![("b".to_owned(), "x".into())],
        };
        assert_eq!(given.take::<String>(1, "b").unwrap(), "x");
        assert_eq!(given.take::<i64>(0, "a").unwrap(), 1);
        assert_eq!(
            given.take::<i64>(1, "b").unwrap_err().message,
            "argument `b` is missing"
        );
    }
}
