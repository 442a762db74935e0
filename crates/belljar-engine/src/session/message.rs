//! The messages of `guest/PROTOCOL.md`, from the engine's side.
//!
//! What is read here was written by whoever runs in the sandbox. Nothing of it is believed beyond
//! what it is: the guest's own word about its own code. A message is read in two steps: `head` says what it is about, and values are
//! built once somebody wants them, since they take many times the memory of their JSON.

use std::collections::BTreeMap;

use belljar_core::value::{Fields, JsonCaps, ValueError, check_json};
use belljar_core::{Display, Exception, SessionRules, Value};
use serde::{Deserialize, Serialize};

use crate::tools::Arguments;

/// How deep a value may be on the wire: three brackets for each level of the worst kind stay
/// within what a message may have.
pub(super) const DEEPEST_VALUE: usize = 60;
/// The longest value that a runner may send.
pub(super) const LONGEST_VALUE: u64 = 8 << 20;
/// The most values in one value that a runner may send, all levels together, counted as [`check_json`] does. What is around them
/// in a message has the rest of [`JsonCaps::MESSAGE`].
pub(super) const MAX_VALUES: usize = 400_000;
/// The most displays of one execution.
pub(super) const MOST_DISPLAYS: usize = 1_000;

/// What a runner is told once, before anything runs.
#[derive(Serialize)]
pub(super) struct Setup<'a> {
    pub op: &'static str,
    pub env: &'a BTreeMap<String, String>,
    pub globals: &'a BTreeMap<String, Value>,
    pub tools: Vec<ToolName<'a>>,
    pub imports: Option<&'a [String]>,
    pub forbidden_calls: &'a [String],
    pub limits: ValueLimits,
}

#[derive(Serialize)]
pub(super) struct ToolName<'a> {
    pub name: &'a str,
}

/// The runner's own limits. They spare it from sending what would not be taken.
#[derive(Serialize)]
pub(super) struct ValueLimits {
    pub value_bytes: u64,
    pub values: usize,
    pub depth: usize,
    pub displays: usize,
    pub display_bytes: u64,
}

impl ValueLimits {
    /// For a policy that keeps `output` bytes of a stream.
    pub(super) fn new(output: u64) -> Self {
        Self {
            value_bytes: output.clamp(64 << 10, LONGEST_VALUE),
            values: MAX_VALUES,
            depth: DEEPEST_VALUE,
            displays: MOST_DISPLAYS,
            display_bytes: output.clamp(64 << 10, LONGEST_VALUE),
        }
    }
}

impl<'a> Setup<'a> {
    pub(super) fn new(
        env: &'a BTreeMap<String, String>,
        globals: &'a BTreeMap<String, Value>,
        tools: impl Iterator<Item = &'a str>,
        rules: &'a SessionRules,
        output: u64,
    ) -> Self {
        Self {
            op: "setup",
            env,
            globals,
            tools: tools.map(|name| ToolName { name }).collect(),
            imports: rules.allowed_imports.as_deref(),
            forbidden_calls: &rules.forbidden_calls,
            limits: ValueLimits::new(output),
        }
    }
}

/// Code to run.
#[derive(Serialize)]
pub(super) struct Execute<'a> {
    pub op: &'static str,
    pub id: u64,
    pub code: &'a str,
    pub stdin: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub globals: &'a BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolName<'a>>,
}

/// A program to start.
#[derive(Serialize)]
pub(super) struct RunCommand<'a> {
    pub op: &'static str,
    pub id: u64,
    pub argv: &'a [String],
    pub stdin: Option<&'a str>,
}

/// The answer to a tool call; `value` is JSON already.
pub(super) fn tool_result(call: u64, value: &[u8]) -> Vec<u8> {
    let mut message = format!("{{\"op\":\"tool_result\",\"call\":{call},\"value\":").into_bytes();
    message.extend_from_slice(value);
    message.push(b'}');
    message
}

/// The tool raised.
pub(super) fn tool_error(call: u64, kind: &str, message: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct ToolError<'a> {
        op: &'static str,
        call: u64,
        #[serde(rename = "type")]
        kind: &'a str,
        message: &'a str,
    }
    let op = "tool_error";
    // Plain text and numbers cannot fail to be written.
    serde_json::to_vec(&ToolError {
        op,
        call,
        kind,
        message,
    })
    .unwrap_or_default()
}

/// One message whose form has been checked, with nothing built of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub bytes: Vec<u8>,
    /// How many values it holds, all levels together.
    pub values: usize,
}

/// How much memory a value takes at least, whatever its length as JSON.
const VALUE_BYTES: usize = 32;

impl Message {
    /// How many bytes it is counted as once it is built.
    pub(super) fn cost(&self) -> u64 {
        self.bytes.len().max(self.values * VALUE_BYTES) as u64
    }
}

/// What a runner said, before any value in it is built.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    Ready,
    /// The message, for [`display`].
    Display {
        id: u64,
        message: Message,
    },
    /// The message, for [`arguments`].
    ToolCall {
        id: u64,
        call: u64,
        name: String,
        message: Message,
    },
    /// The message, for [`end`].
    Done {
        id: u64,
        message: Message,
    },
    /// JSON, but nothing that we know.
    Unknown,
}

/// How a cell ended, by the guest's own word.
#[derive(Debug, PartialEq)]
pub(super) enum End {
    Ok(Option<Value>),
    Raised(Exception),
    Interrupted(Exception),
    Refused(Exception),
    Exit(i32),
    /// A command ended.
    Command(CommandEnd),
}

/// How a command ended, by the word of the interpreter that started it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommandEnd {
    Exited(i32),
    Signaled(i32),
    CannotStart(String),
}

/// What a message is about. Fields that hold values are passed over.
#[derive(Deserialize)]
struct Head {
    event: String,
    id: Option<u64>,
    call: Option<u64>,
    name: Option<String>,
}

/// A display's own fields.
#[derive(Deserialize)]
struct DisplayFields {
    data: BTreeMap<String, String>,
    // An absent value is no value; a null is None.
    #[serde(default, deserialize_with = "present")]
    value: Option<Value>,
}

/// A tool call's own fields.
#[derive(Deserialize)]
struct CallFields {
    args: Option<Vec<Value>>,
    kwargs: Option<Value>,
}

/// The fields that a `done` has.
#[derive(Deserialize)]
struct DoneFields {
    status: String,
    #[serde(default, deserialize_with = "present")]
    value: Option<Value>,
    error: Option<Told>,
    exit_code: Option<u8>,
    signal: Option<u8>,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// An exception as it is told.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Told {
    #[serde(rename = "type")]
    kind: String,
    message: String,
    traceback: Option<String>,
    line: Option<i64>,
    column: Option<i64>,
}

impl From<Told> for Exception {
    fn from(told: Told) -> Self {
        Self {
            kind: told.kind,
            message: told.message,
            traceback: told.traceback.unwrap_or_default(),
            line: told.line.and_then(|line| u32::try_from(line).ok()),
            column: told.column.and_then(|column| u32::try_from(column).ok()),
        }
    }
}

/// The fields of `T` in a message; nothing where it has others.
fn fields<'a, T: Deserialize<'a>>(message: &'a [u8]) -> Result<Option<T>, ValueError> {
    let mut deserializer = serde_json::Deserializer::from_slice(message);
    // Depth was bounded by `head`.
    deserializer.disable_recursion_limit();
    match T::deserialize(&mut deserializer) {
        Ok(fields) => {
            deserializer.end()?;
            Ok(Some(fields))
        }
        Err(error) if error.is_data() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Finds out what a message is about and builds no value of it. An error means that the channel is not to be listened to any more.
pub(super) fn head(message: Vec<u8>) -> Result<Said, ValueError> {
    let values = check_json(&message, JsonCaps::MESSAGE)?;
    let head: Option<Head> = fields(&message)?;
    let message = Message {
        bytes: message,
        values,
    };
    Ok(head.and_then(|head| head.said(message)).unwrap_or(Said::Unknown))
}

impl Head {
    fn said(self, message: Message) -> Option<Said> {
        Some(match self.event.as_str() {
            "ready" => Said::Ready,
            "display" => Said::Display {
                id: self.id?,
                message,
            },
            "tool_call" => Said::ToolCall {
                id: self.id?,
                call: self.call?,
                name: self.name?,
                message,
            },
            "done" => Said::Done {
                id: self.id?,
                message,
            },
            _ => return None,
        })
    }
}

/// Builds a display; nothing if the message is none.
pub(super) fn display(message: &[u8]) -> Result<Option<Display>, ValueError> {
    let fields: Option<DisplayFields> = fields(message)?;
    Ok(fields.map(|DisplayFields { data, value }| Display { data, value }))
}

/// Builds the arguments of a tool call; nothing if the message has none.
pub(super) fn arguments(message: &[u8]) -> Result<Option<Arguments>, ValueError> {
    let fields: Option<CallFields> = fields(message)?;
    Ok(fields.and_then(|fields| {
        let kwargs = match fields.kwargs {
            None => Fields::new(),
            Some(Value::Object(kwargs)) => kwargs,
            Some(_) => return None,
        };
        let args = fields.args.unwrap_or_default();
        Some(Arguments { args, kwargs })
    }))
}

/// Builds the end of a cell; nothing if the message is none.
pub(super) fn end(message: &[u8]) -> Result<Option<End>, ValueError> {
    let fields: Option<DoneFields> = fields(message)?;
    Ok(fields.and_then(DoneFields::end))
}

impl DoneFields {
    fn end(self) -> Option<End> {
        Some(match (self.status.as_str(), self.error) {
            ("ok", _) => End::Ok(self.value),
            ("error", error) => End::Raised(error?.into()),
            ("interrupted", error) => End::Interrupted(error.unwrap_or_default().into()),
            ("refused", error) => End::Refused(error?.into()),
            ("command", error) => End::Command(match (self.exit_code, self.signal, error) {
                (Some(code), None, None) => CommandEnd::Exited(code.into()),
                (None, Some(signal @ 1..=64), None) => CommandEnd::Signaled(signal.into()),
                (None, None, Some(error)) => CommandEnd::CannotStart(error.message),
                _ => return None,
            }),
            ("exit", error) => End::Exit(exit_code(&error.unwrap_or_default().message)),
            _ => return None,
        })
    }
}

/// The exit code that a cell asked for. Python takes a text as a message and exits with 1.
fn exit_code(message: &str) -> i32 {
    match message.trim() {
        "" | "None" | "null" | "undefined" => 0,
        text => text.parse().unwrap_or(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Said {
        head(text.into()).unwrap()
    }

    /// What a message comes to once everything in it is built.
    fn is_known(text: &str) -> bool {
        match said(text) {
            Said::Unknown => false,
            Said::Ready => true,
            Said::Display { message, .. } => display(&message.bytes).unwrap().is_some(),
            Said::ToolCall { message, .. } => arguments(&message.bytes).unwrap().is_some(),
            Said::Done { message, .. } => end(&message.bytes).unwrap().is_some(),
        }
    }

    #[test]
    fn events_are_read() {
        assert_eq!(
            said(r#"{"event":"ready","language":"python","version":"3"}"#),
            Said::Ready
        );
        let end = |text: &str| match said(&format!("{{\"event\":\"done\",\"id\":7,{text}}}")) {
            Said::Done { id: 7, message } => super::end(&message.bytes).unwrap().unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(end(r#""status":"ok""#), End::Ok(None));
        assert_eq!(end(r#""status":"ok","value":null"#), End::Ok(Some(Value::None)));
        assert_eq!(
            end(r#""status":"ok","value":{"$":"tuple","v":[1]}"#),
            End::Ok(Some(Value::Tuple(vec![1.into()])))
        );
        let raised = end(
            r#""status":"error","error":{"type":"E","message":"m","traceback":"t","line":3,"column":null}"#,
        );
        let End::Raised(exception) = raised else { panic!() };
        assert_eq!(
            (exception.kind.as_str(), exception.line, exception.column),
            ("E", Some(3), None)
        );
        assert_eq!(
            end(r#""status":"exit","error":{"type":"SystemExit","message":"3"}"#),
            End::Exit(3)
        );
        assert_eq!(
            end(r#""status":"command","exit_code":3"#),
            End::Command(CommandEnd::Exited(3))
        );
        assert_eq!(
            end(r#""status":"command","signal":9"#),
            End::Command(CommandEnd::Signaled(9))
        );
        let Said::ToolCall { call, message, .. } = said(
            r#"{"event":"tool_call","id":1,"call":9,"name":"f","args":[{"$":"bytes","v":"AA=="}],"kwargs":{"k":1}}"#,
        ) else {
            panic!()
        };
        let Arguments { args, kwargs } = arguments(&message.bytes).unwrap().unwrap();
        assert_eq!((call, args), (9, vec![Value::bytes([0])]));
        assert_eq!(kwargs, [("k".to_owned(), 1.into())]);
    }

    #[test]
    fn what_is_not_known_is_unknown_and_what_is_no_json_ends_it() {
        for text in [
            r#"{"event":"launch"}"#,
            r#"{"event":"done"}"#,
            r#"{"event":"done","id":-1,"status":"ok"}"#,
            r#"{"event":"done","id":1,"status":"great"}"#,
            r#"{"event":"done","id":1,"status":"command"}"#,
            r#"{"event":"done","id":1,"status":"command","exit_code":256}"#,
            r#"{"event":"done","id":1,"status":"command","signal":0}"#,
            r#"{"event":"done","id":1,"status":"command","signal":65}"#,
            r#"{"event":"done","id":1,"status":"command","exit_code":0,"signal":9}"#,
            r#"{"event":7}"#,
            r#"{"event":"tool_call","id":1,"call":1,"name":"f","args":{}}"#,
            "[]",
            "{}",
            "1",
        ] {
            assert!(!is_known(text), "{text}");
        }
        for text in ["", "{", "{\"event\":\"ready\"} x", "\u{1}", "NaN"] {
            assert!(head(text.into()).is_err(), "{text:?}");
        }
        assert!(head(vec![0xff, 0xfe]).is_err());
        let deep = format!("{{\"event\":\"done\",\"value\":{}", "[".repeat(1_000_000));
        assert!(matches!(head(deep.into()), Err(ValueError::TooDeep(_))));
    }
}
