//! One line of a program that drives a session.

use belljar::batch::LARGEST_LINE;
use belljar::batch::Line;
use belljar::{Cell, Work};
use serde::Deserialize;
use serde_json::Value as Json;

use crate::cli::problem::Problem;

const FORM: &str = r#"write one object on each line, such as {"id": 1, "code": "print(1)"}, {"interrupt": true} or {"reset": true}"#;

/// What a program wants, and the name that it has for it.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: Option<Json>,
    pub(super) wish: Wish,
}

#[derive(Debug)]
pub(super) enum Wish {
    Execute(Box<Cell>),
    Reset,
    Interrupt,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    id: Option<Json>,
    code: Option<String>,
    stdin: Option<String>,
    #[serde(default)]
    reset: bool,
    #[serde(default)]
    interrupt: bool,
}

impl Request {
    /// Reads a line; else what is wrong with it, and its id where that could be found.
    pub(super) fn read(line: &Line) -> Result<Self, (Option<Json>, Problem)> {
        let Some(text) = &line.text else {
            let problem = Problem::usage(format!("the line is longer than {LARGEST_LINE}"));
            return Err((None, problem.hint("put large data into files")));
        };
        let wire: Wire = serde_json::from_slice(text).map_err(|error| {
            let id = serde_json::from_slice::<Json>(text)
                .ok()
                .and_then(|json| json.get("id").cloned());
            (
                id,
                Problem::usage(format!("the line cannot be understood: {error}")).hint(FORM),
            )
        })?;
        let wish = match (wire.code, wire.reset, wire.interrupt) {
            (Some(code), false, false) => Wish::Execute(Box::new(Cell {
                work: Work::Code(code),
                stdin: wire.stdin,
                ..Cell::default()
            })),
            (None, true, false) if wire.stdin.is_none() => Wish::Reset,
            (None, false, true) if wire.stdin.is_none() => Wish::Interrupt,
            _ => {
                let problem = Problem::usage("a line has exactly one of code, reset and interrupt");
                return Err((wire.id, problem.hint(FORM)));
            }
        };
        Ok(Self { id: wire.id, wish })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Request, (Option<Json>, Problem)> {
        Request::read(&Line {
            number: 1,
            text: Some(text.as_bytes().to_vec()),
            hash: String::new(),
            end: 0,
        })
    }

    #[test]
    fn lines_are_understood() {
        let request = read(r#"{"id": [1], "code": "x", "stdin": "in"}"#).unwrap();
        assert_eq!(request.id, Some(json!([1])));
        assert!(
            matches!(request.wish, Wish::Execute(cell) if cell.work == Work::Code("x".to_owned()) && cell.stdin.as_deref() == Some("in"))
        );
        assert!(matches!(read(r#"{"reset": true}"#).unwrap().wish, Wish::Reset));
        assert!(matches!(
            read(r#"{"interrupt": true}"#).unwrap().wish,
            Wish::Interrupt
        ));
    }

    #[test]
    fn others_are_told_what_to_write() {
        for (bad, id) in [
            ("", None),
            ("{", None),
            ("[]", None),
            ("null", None),
            ("{}", None),
            (r#"{"id": 7, "cod": "x"}"#, Some(json!(7))),
            (r#"{"id": 7, "code": 3}"#, Some(json!(7))),
            (r#"{"id": 7, "code": "x", "reset": true}"#, Some(json!(7))),
            (r#"{"id": 7, "reset": true, "stdin": ""}"#, Some(json!(7))),
            (r#"{"interrupt": false}"#, None),
            ("\u{0}", None),
        ] {
            let (found, problem) = read(bad).unwrap_err();
            assert_eq!(found, id, "{bad}");
            assert!(problem.hint.is_some(), "{bad}");
        }
        let long = Line {
            number: 1,
            text: None,
            hash: String::new(),
            end: 0,
        };
        assert!(
            Request::read(&long)
                .unwrap_err()
                .1
                .message
                .contains("longer than")
        );
    }
}
