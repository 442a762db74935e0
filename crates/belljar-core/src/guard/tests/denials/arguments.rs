//! Arguments and variables.

use super::super::{World, strings};
use super::{Mend, Row};
use crate::denial::DenialCode;
use crate::path::GuestPath;
use crate::request::Request;

pub(super) fn argument_rows() -> Vec<Row> {
    let binary = "pass large or binary data as a file or on standard input";
    vec![
        Row {
            name: "a NUL in an argument",
            spoil: |world| world.request.args = strings(["a\0b"]),
            code: DenialCode::ArgumentInvalid,
            rule: "arguments",
            value: "a\\u{0}b",
            fix: binary,
            mend: Mend::By(|world| world.request.args.clear()),
        },
        Row {
            name: "an argument longer than the kernel takes",
            spoil: |world| world.request.args = vec!["x".repeat(128 * 1024)],
            code: DenialCode::ArgumentInvalid,
            rule: "arguments",
            value: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            fix: binary,
            mend: Mend::By(|world| world.request.args = vec!["x".repeat(128 * 1024 - 1)]),
        },
        Row {
            name: "too many arguments",
            spoil: |world| world.request.args = vec![String::new(); 10_001],
            code: DenialCode::ArgumentInvalid,
            rule: "arguments",
            value: "10001",
            fix: "ask for fewer",
            mend: Mend::By(|world| world.request.args.truncate(10_000)),
        },
        Row {
            name: "too many outputs",
            spoil: |world| world.request.outputs = vec![GuestPath::new("a").unwrap(); 10_001],
            code: DenialCode::ArgumentInvalid,
            rule: "outputs",
            value: "10001",
            fix: "ask for fewer",
            mend: Mend::By(|world| world.request.outputs.truncate(10_000)),
        },
        outside_path("R47: `..`", "a/../b", |world| {
            world.request.args = strings(["a/../b"]);
            world.request.check_paths = true;
        }),
        outside_path("R47: an absolute path", "/etc/passwd", |world| {
            world.request.args = strings(["ok", "/etc/passwd"]);
            world.request.check_paths = true;
        }),
        outside_path("R47: `~` among the words of a command", "~/x", |world| {
            world.request = Request::command(strings(["/bin/cat", "~/x"]));
            world.request.check_paths = true;
        }),
        bad_variable("a variable without a name", "", |world| {
            world.request.env.insert(String::new(), "x".to_owned());
        }),
        bad_variable("a variable with `=` in its name", "A=B", |world| {
            world.request.env.insert("A=B".to_owned(), "x".to_owned());
        }),
        bad_variable("a NUL in a variable's name", "A\\u{0}", |world| {
            world.request.env.insert("A\0".to_owned(), "x".to_owned());
        }),
        bad_variable("a NUL in a variable's value", "A", |world| {
            world.request.env.insert("A".to_owned(), "\0".to_owned());
        }),
        bad_variable("a variable longer than the kernel takes", "A", |world| {
            world
                .request
                .env
                .insert("A".to_owned(), "x".repeat(128 * 1024 - 2));
        }),
    ]
}

fn outside_path(name: &'static str, argument: &'static str, spoil: fn(&mut World)) -> Row {
    Row {
        name,
        spoil,
        code: DenialCode::PathNotAllowed,
        rule: "path check",
        value: argument,
        fix: "name files relative to the work directory, or switch the path check off",
        mend: Mend::By(|world| world.request.check_paths = false),
    }
}

fn bad_variable(name: &'static str, value: &'static str, spoil: fn(&mut World)) -> Row {
    Row {
        name,
        spoil,
        code: DenialCode::EnvironmentInvalid,
        rule: "env",
        value,
        fix: "write --env NAME=VALUE",
        mend: Mend::By(|world| {
            world.request.env = [("NAME".to_owned(), "VALUE".to_owned())].into();
        }),
    }
}
