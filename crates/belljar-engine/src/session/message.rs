//! The messages of `guest/PROTOCOL.md`, from the engine's side.
//!
//! What is read here was written by whoever runs in the sandbox. Nothing of it is believed beyond
//! what it is: the guest's own word about its own code.

use std::collections::BTreeMap;

use belljar_core::value::{Fields, JsonCaps, ValueError, check_json};
use belljar_core::{Exception, SessionRules, Value};
use serde::{Deserialize, Serialize};

/// How deep a value may be on the wire: three brackets for each level of the worst kind stay
/// within what a message may have.
pub(super) const DEEPEST_VALUE: usize = 60;
/// The longest value that a runner may send.
pub(super) const LONGEST_VALUE: u64 = 8 << 20;
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
    pub depth: usize,
    pub displays: usize,
    pub display_bytes: u64,
}

impl ValueLimits {
    /// For a policy that keeps `output` bytes of a stream.
    pub(super) fn new(output: u64) -> Self {
        Self {
            value_bytes: output.clamp(64 << 10, LONGEST_VALUE),
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

/// What a runner said.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    Ready,
    Display {
        id: u64,
        data: BTreeMap<String, String>,
        value: Option<Value>,
    },
    ToolCall {
        id: u64,
        call: u64,
        name: String,
        args: Vec<Value>,
        kwargs: Fields,
    },
    Done {
        id: u64,
        end: End,
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

/// Every field that any event has.
#[derive(Deserialize)]
struct Fieldset {
    event: String,
    id: Option<u64>,
    data: Option<BTreeMap<String, String>>,
    // An absent value is no value; a null is None.
    #[serde(default, deserialize_with = "present")]
    value: Option<Value>,
    call: Option<u64>,
    name: Option<String>,
    args: Option<Vec<Value>>,
    kwargs: Option<Value>,
    status: Option<String>,
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

/// Reads one message. An error means that the channel is not to be listened to any more.
pub(super) fn read(message: &[u8]) -> Result<Said, ValueError> {
    check_json(message, JsonCaps::MESSAGE)?;
    let mut deserializer = serde_json::Deserializer::from_slice(message);
    // Depth was bounded above.
    deserializer.disable_recursion_limit();
    match Fieldset::deserialize(&mut deserializer) {
        Ok(fields) => {
            deserializer.end()?;
            Ok(fields.said().unwrap_or(Said::Unknown))
        }
        Err(error) if error.is_data() => Ok(Said::Unknown),
        Err(error) => Err(error.into()),
    }
}

impl Fieldset {
    fn said(self) -> Option<Said> {
        Some(match &*self.event {
            "ready" => Said::Ready,
            "display" => Said::Display {
                id: self.id?,
                data: self.data?,
                value: self.value,
            },
            "tool_call" => Said::ToolCall {
                id: self.id?,
                call: self.call?,
                name: self.name?,
                args: self.args.unwrap_or_default(),
                kwargs: match self.kwargs {
                    None => Fields::new(),
                    Some(Value::Object(fields)) => fields,
                    Some(_) => return None,
                },
            },
            "done" => Said::Done {
                id: self.id?,
                end: match (self.status.as_deref()?, self.error) {
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
                },
            },
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
        read(text.as_bytes()).unwrap()
    }

    #[test]
    fn events_are_read() {
        assert_eq!(
            said(r#"{"event":"ready","language":"python","version":"3"}"#),
            Said::Ready
        );
        let end = |text: &str| match said(&format!("{{\"event\":\"done\",\"id\":7,{text}}}")) {
            Said::Done { id: 7, end } => end,
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
        let Said::ToolCall {
            call, args, kwargs, ..
        } = said(
            r#"{"event":"tool_call","id":1,"call":9,"name":"f","args":[{"$":"bytes","v":"AA=="}],"kwargs":{"k":1}}"#,
        )
        else {
            panic!()
        };
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
            assert_eq!(said(text), Said::Unknown, "{text}");
        }
        for text in ["", "{", "{\"event\":\"ready\"} x", "\u{1}", "NaN"] {
            assert!(read(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(read(&[0xff, 0xfe]).is_err());
        let deep = format!("{{\"event\":\"done\",\"value\":{}", "[".repeat(1_000_000));
        assert!(matches!(read(deep.as_bytes()), Err(ValueError::TooDeep(_))));
    }
}
