//! Lines that are right, and lines that are wrong in every way.

use super::*;
use crate::batch::Lines;
use belljar_core::{Bytes, ErrorKind, Seconds};
use proptest::prelude::*;

fn read_text(text: &[u8]) -> (Option<Value>, Result<Wish, Error>) {
    let line = Lines::new(text).next().unwrap().unwrap();
    read(&line, &Request::command(Vec::new()))
}

#[test]
fn every_field_arrives() {
    let text = br#"{"id": 7, "language": "py", "code": "x", "stdin": "in", "args": ["a"], "env": {"A": "1"},
        "files": {"d/f": "text"}, "limits": {"timeout": "2s", "memory": "64m", "processes": 3, "cpu_seconds": 1.5},
        "cases": [{"stdin": "1", "args": [], "expected_stdout": "2"}, {}], "compare": "exact"}"#;
    let text: Vec<u8> = text.iter().copied().filter(|byte| *byte != b'\n').collect();
    let (id, wish) = read_text(&text);
    let wish = wish.unwrap();
    assert_eq!(id, Some(7.into()));
    let request = &wish.request;
    assert_eq!(request.language(), Some(Language::Python));
    assert!(matches!(&request.stdin, Stdin::Bytes(bytes) if **bytes == *b"in"));
    assert_eq!(
        (&request.args[..], &request.env["A"][..]),
        (&["a".to_owned()][..], "1")
    );
    assert_eq!(
        request.files.keys().map(GuestPath::as_str).collect::<Vec<_>>(),
        ["d/f"]
    );
    assert_eq!(request.limits.wall_time, Some(Seconds::whole(2)));
    assert_eq!(request.limits.cpu_time, Seconds::new(1.5).ok());
    assert_eq!(request.limits.memory, Some(Bytes::from_mib(64)));
    assert_eq!(request.limits.processes, Some(3));
    assert_eq!(wish.cases.len(), 2);
    assert_eq!(wish.comparison, Comparison::Exact);
}

#[test]
fn what_a_line_does_not_say_it_has_from_the_defaults() {
    let mut defaults = Request::command(Vec::new());
    defaults.limits.memory = Some(Bytes::from_mib(32));
    defaults.limits.wall_time = Some(Seconds::whole(9));
    defaults.env.insert("A".to_owned(), "default".to_owned());
    let line = Lines::new(&br#"{"command": ["ls", "-l"], "limits": {"timeout": 1}}"#[..]).next();
    let (_, wish) = read(&line.unwrap().unwrap(), &defaults);
    let request = wish.unwrap().request;
    assert_eq!(request.limits.memory, Some(Bytes::from_mib(32)));
    assert_eq!(request.limits.wall_time, Some(Seconds::whole(1)));
    assert_eq!(request.env["A"], "default");
    assert!(matches!(request.source, Source::Command { argv } if argv == ["ls", "-l"]));
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_a_hint() {
    for (text, shown, hint) in [
        (&b"{"[..], "it is not JSON: EOF", "one JSON object"),
        (
            b"{} {}",
            "it is not JSON: trailing characters at column 4",
            "one JSON object",
        ),
        (b"[]", "a request must be an object, not a list", "write"),
        (b"{\"code\": \"\xff\"}", "it is not text in UTF-8", "UTF-8"),
        (b"\0", "it is not JSON", "one JSON object"),
        (
            br#"{"code": "1", "code": "2"}"#,
            "it is not JSON: `code` stands there twice",
            "one JSON",
        ),
        (
            br#"{"code": "1", "stdn": ""}"#,
            "`stdn` is not a known field",
            "did you mean `stdin`?",
        ),
        (
            br#"{"code": "1", "priority": 1}"#,
            "`priority` is not a known field",
            "the known ones are id,",
        ),
        (
            br#"{"code": 1}"#,
            "`code` must be text, not a number",
            "for example",
        ),
        (
            br#"{"code": "1", "id": [1]}"#,
            "`id` must be text or a whole number, not a list",
            "for example",
        ),
        (
            br#"{"code": "1", "id": 1.5}"#,
            "`id` must be text or a whole number",
            "for example",
        ),
        (
            br#"{"code": "1", "args": "x"}"#,
            "`args` must be a list of texts, not text",
            "for example",
        ),
        (
            br#"{"code": "1", "args": ["x", 1]}"#,
            "`args[1]` must be text, not a number",
            "for example",
        ),
        (
            br#"{"code": "1", "env": {"A": 1}}"#,
            "`env.A` must be text, not a number",
            "for example",
        ),
        (
            br#"{"code": "1", "files": {"../x": ""}}"#,
            "`files`: `../x` leaves",
            "relative",
        ),
        (
            br#"{"code": "1", "files": {"main.py": ""}}"#,
            "`files`: `main.py` in the work",
            "another name",
        ),
        (
            br#"{"code": "1", "files": []}"#,
            "`files` must be an object of texts, not a list",
            "for example",
        ),
        (
            br#"{"code": "1", "limits": {"memry": 1}}"#,
            "`limits.memry` is not a known field",
            "`memory`",
        ),
        (
            br#"{"code": "1", "limits": {"timeout": "x"}}"#,
            "`limits.timeout`: `x`",
            "\"timeout\": \"2s\"",
        ),
        (
            br#"{"code": "1", "limits": {"memory": true}}"#,
            "`limits.memory` must be text or a",
            "\"64M\"",
        ),
        (
            br#"{"code": "1", "limits": {"processes": -1}}"#,
            "`limits.processes`: `-1`",
            "20",
        ),
        (
            br#"{"code": "1", "limits": 5}"#,
            "`limits` must be an object, not a number",
            "memory",
        ),
        (
            br#"{"code": "1", "cases": []}"#,
            "`cases` is empty",
            "leave it out",
        ),
        (
            br#"{"code": "1", "cases": {}}"#,
            "`cases` must be a list, not an object",
            "for example",
        ),
        (
            br#"{"code": "1", "cases": [1]}"#,
            "`cases[0]` must be an object, not a number",
            "stdin",
        ),
        (
            br#"{"code": "1", "cases": [{}, {"in": ""}]}"#,
            "`cases[1].in` is not a known field",
            "stdin",
        ),
        (
            br#"{"code": "1", "cases": [{"stdin": 3}]}"#,
            "`cases[0].stdin` must be text, not a",
            "for",
        ),
        (
            br#"{"code": "1", "compare": "exact"}"#,
            "`compare` says how cases are compared",
            "leave",
        ),
        (
            br#"{"code": "1", "cases": [{}], "compare": "x"}"#,
            "`compare` is not a known",
            "trimmed, exact",
        ),
        (
            br#"{"language": "cobol", "code": "1"}"#,
            "`language`: `cobol` is not a language",
            "use one of",
        ),
        (
            br#"{"file": "/dev/zero"}"#,
            "`file`: /dev/zero is not a plain file",
            "as `code`",
        ),
        (
            br#"{"language": "c"}"#,
            "there is nothing to run",
            "code, file and command",
        ),
        (
            br#"{"code": "1", "command": ["ls"]}"#,
            "there is more than one program",
            "give one",
        ),
        (
            br#"{"language": "c", "command": ["ls"]}"#,
            "a command has no `language`",
            "leave",
        ),
    ] {
        let mut input = b"\n".to_vec();
        input.extend(text);
        let (_, wish) = read_text(&input);
        let error = wish.unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with(&format!("line 2: {shown}")), "{message}");
        assert!(
            error.hint().unwrap().contains(hint),
            "{message}: {:?}",
            error.hint()
        );
        assert_eq!(error.kind(), ErrorKind::Usage);
    }
}

#[test]
fn the_id_is_known_even_where_the_rest_is_wrong() {
    let (id, wish) = read_text(br#"{"id": "a", "nope": 1}"#);
    assert_eq!(id, Some("a".into()));
    assert!(wish.is_err());
}

#[test]
fn null_is_as_good_as_not_there() {
    let (id, wish) = read_text(br#"{"id": null, "code": "1", "stdin": null, "cases": null}"#);
    assert_eq!(id, None);
    assert!(wish.unwrap().cases.is_empty());
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(text in proptest::collection::vec(any::<u8>(), 1..200)) {
        for line in Lines::new(&text[..]) {
            let _ = read(&line.unwrap(), &Request::command(Vec::new()));
        }
    }

    /// Known fields with values of every type, so that most of them get past the names.
    #[test]
    fn any_values_are_read_or_refused(
        values in proptest::collection::vec((0..FIELDS.len(), 0usize..9), 0..6),
    ) {
        const VALUES: [&str; 9] = ["null", "true", "-1", "1e400", "\"x\"", "[]", "[{}]", "{\"memory\": 1}", "[\"a\"]"];
        let fields: Vec<_> = values
            .iter()
            // A file would be read from wherever the tests run.
            .filter(|(name, _)| FIELDS[*name] != "file")
            .map(|(name, value)| format!("\"{}\": {}", FIELDS[*name], VALUES[*value]))
            .collect();
        let text = format!("{{{}}}", fields.join(", "));
        let (_, wish) = read_text(text.as_bytes());
        if let Err(error) = wish {
            prop_assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{}", error);
        }
    }
}
