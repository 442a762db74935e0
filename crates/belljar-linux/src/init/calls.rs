//! System calls as data.
//!
//! What turns a process into a guest is a list of these. Init performs it in a fork of its own, a
//! warm interpreter in one of its forks: one plan, two small interpreters.

use serde::Serialize;
use serde_json::{Value, json};

/// One system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The step it belongs to.
    pub step: String,
    pub number: i64,
    pub args: Vec<Arg>,
    /// What it must return; anything but an error where this is not said.
    pub expect: Option<i64>,
    /// Whether it may fail.
    pub optional: bool,
    /// Whether it returns a descriptor for init.
    pub send: bool,
    /// What must stand in the memory of an argument afterwards.
    pub out: Option<(usize, Vec<u8>)>,
}

/// One argument of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arg {
    Number(i64),
    /// A descriptor of those that come with the list.
    Fd(usize),
    /// What an earlier call of the list returned.
    Result(usize),
    /// The address of memory with these bytes, in which further addresses stand.
    Bytes(Vec<u8>, Vec<(usize, Vec<u8>)>),
}

impl From<i64> for Arg {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl Arg {
    pub(crate) fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bytes(bytes.into(), Vec::new())
    }

    /// A text for the kernel.
    pub(crate) fn text(text: &str) -> Self {
        Self::bytes([text.as_bytes(), b"\0"].concat())
    }
}

impl Call {
    pub(crate) fn new(step: &str, number: libc::c_long, args: impl IntoIterator<Item = Arg>) -> Self {
        Self {
            step: step.to_owned(),
            number,
            args: args.into_iter().collect(),
            expect: None,
            optional: false,
            send: false,
            out: None,
        }
    }

    pub(crate) const fn expect(mut self, result: i64) -> Self {
        self.expect = Some(result);
        self
    }

    pub(crate) const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    pub(crate) const fn sent(mut self) -> Self {
        self.send = true;
        self
    }

    pub(crate) fn leaving(mut self, argument: usize, bytes: impl Into<Vec<u8>>) -> Self {
        self.out = Some((argument, bytes.into()));
        self
    }
}

/// A list as a warm interpreter reads it (see CALL in guest/PROTOCOL.md).
pub(crate) fn to_json(calls: &[Call]) -> Value {
    calls.iter().map(call_to_json).collect()
}

#[derive(Serialize)]
struct Written<'a> {
    step: &'a str,
    nr: i64,
    args: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expect: Option<i64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    optional: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    send: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<(usize, String)>,
}

fn call_to_json(call: &Call) -> Value {
    let written = Written {
        step: &call.step,
        nr: call.number,
        args: call.args.iter().map(arg_to_json).collect(),
        expect: call.expect,
        optional: call.optional,
        send: call.send,
        out: call.out.as_ref().map(|(index, bytes)| (*index, base64(bytes))),
    };
    // Numbers and texts always have a JSON form.
    serde_json::to_value(written).unwrap_or_default()
}

fn arg_to_json(arg: &Arg) -> Value {
    match arg {
        Arg::Number(number) => json!(number),
        Arg::Fd(index) => json!({ "fd": index }),
        Arg::Result(index) => json!({ "result": index }),
        Arg::Bytes(bytes, pointers) => {
            let pointers: Vec<_> = pointers.iter().map(|(at, to)| (at, base64(to))).collect();
            json!({ "bytes": base64(bytes), "pointers": pointers })
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
