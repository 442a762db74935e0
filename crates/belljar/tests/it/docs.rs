//! The documentation does what it says: its examples are run, its generated pages compared.
//!
//! In README.md and docs/, a fenced block
//!
//! - `console` holds commands and what they print: `$ ` starts a command, `> ` continues it, the
//!   other lines are its standard output and then its standard error. `…` stands for any text
//!   within a line, or, alone on a line, for any number of lines. `$ echo $?` shows the exit code
//!   of the command before; where it is not shown, it must be 0.
//! - `console served` is the same with a service of the page's own, whose address and admin key are in BELLJAR_URL and
//!   BELLJAR_KEY. There `curl -H … -d BODY URL` is a command as well.
//! - `LANGUAGE file=NAME` is a file that the commands below it find in their directory.
//!
//! A command is `belljar …`, `cat NAME`, or belljar with `echo TEXT |`, `cat NAME |`, `< NAME` or
//! `> NAME` around it. Every page has a directory of its own, with
//! its environments below it, and is tried as every user.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use belljar_core::command::split;
use belljar_core::{Control, DenialCode, ErrorKind, Policy, Verdict};

use crate::harness::{TempDir, Who, belljar, everyone};
use crate::service::{Serving, ask_with};

/// Prints docs/reference/syscalls.md; the test has its words from the same place.
#[path = "../../../belljar-linux/examples/syscalls.rs"]
#[expect(dead_code, reason = "its main function is for the example")]
mod syscalls;

#[test]
fn every_example_prints_what_the_page_shows() {
    let mut failures = Vec::new();
    let mut tried = 0;
    for path in pages() {
        let page = blocks(&read(&path));
        for who in everyone() {
            tried += try_page(&path, &page, who, &mut failures);
        }
    }
    assert!(
        failures.is_empty(),
        "{} examples are wrong\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(
        tried >= 40,
        "only {tried} examples were found: the pages were not understood"
    );
}

/// The negative control: a page that is wrong must be told from one that is right.
#[test]
fn a_wrong_example_is_found() {
    let page = |body: &str| {
        blocks(&format!(
            "```python file=x.py\nprint('a', 'b')\n```\n\n```console\n{body}\n```\n"
        ))
    };
    let wrong = |body: &str| {
        let mut failures = Vec::new();
        assert!(
            try_page(Path::new("page.md"), &page(body), everyone()[0], &mut failures) > 0,
            "{body}"
        );
        !failures.is_empty()
    };
    for right in [
        "$ belljar run x.py\na b",
        "$ belljar run x.py\n… b",
        "$ belljar run x.py\n…",
        "$ belljar run x.py\na b\n…",
        "$ belljar run -c 'import sys\n> sys.exit(3)'\n$ echo $?\n3",
        "$ echo hello | belljar run -c 'print(input())'\nhello",
        "$ belljar run x.py > y\n$ cat y\na b",
    ] {
        assert!(!wrong(right), "{right}");
    }
    for bad in [
        "$ belljar run x.py\na c",
        "$ belljar run x.py",
        "$ belljar run x.py\na b\nmore",
        "$ belljar run x.py\n… c",
        "$ belljar run x.py\n$ echo $?\n1",
        "$ belljar run -c 'import sys; sys.exit(3)'",
        "$ belljar run -c 'import sys; print(1, file=sys.stderr)'",
        "$ belljar run nosuch.py\na b",
    ] {
        assert!(wrong(bad), "{bad}");
    }
}

#[test]
fn the_command_line_reference_is_the_one_that_belljar_prints() {
    let done = belljar(everyone()[0], ["reference"]).go().expect_code(0);
    assert_same("docs/reference/cli.md", &done.stdout, "belljar reference");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_system_call_reference_is_the_table() {
    assert_same(
        "docs/reference/syscalls.md",
        &syscalls::markdown(),
        "cargo run -q -p belljar-linux --example syscalls",
    );
}

/// The Rust of these pages is the Rust that `cargo test` runs.
#[test]
fn rust_examples_are_doctests() {
    let library = read(&repository().join("crates/belljar/src/lib.rs"));
    let shown: String = library
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .filter(|line| !line.starts_with("# "))
        .fold(String::new(), |text, line| text + line + "\n");
    for page in ["README.md", "docs/guides/sessions.md"] {
        let page_blocks = blocks(&read(&repository().join(page)));
        let examples: Vec<_> = page_blocks.iter().filter(|block| block.info == "rust").collect();
        assert!(!examples.is_empty(), "{page}");
        for block in examples {
            let code = block.lines.join("\n");
            assert!(
                shown.contains(&format!("```\n{code}\n```")),
                "{page}:{}:\n{code}",
                block.line
            );
        }
    }
}

/// What can be said in a policy, refused or missing is explained somewhere.
#[test]
fn the_reference_leaves_nothing_out() {
    let page = |path: &str| read(&repository().join("docs").join(path));
    let mut missing = Vec::new();
    let mut expect = |path: &str, part: String| {
        if !page(path).contains(&part) {
            missing.push(format!("{path}: {part}"));
        }
    };
    let standard = Policy::builtin("standard")
        .map(|policy| policy.to_toml())
        .unwrap_or_default();
    let fields = standard
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0.trim()));
    for field in fields.chain(["extends", "max_cpu_percent"]) {
        expect("reference/policy.md", format!("| `{field}` |"));
    }
    for control in Control::ALL {
        expect("guides/machines.md", format!("| `{control}` |"));
        expect("guides/machines.md", control.effect_of_absence().to_owned());
    }
    for kind in ErrorKind::LOCAL {
        expect(
            "reference/exit-codes.md",
            format!("| {} | {} |", kind.exit_code(), kind.meaning()),
        );
    }
    // Time and memory that run out are outcomes, never problems.
    let problems = |kind: &&ErrorKind| ![ErrorKind::Timeout, ErrorKind::OutOfMemory].contains(kind);
    for kind in ErrorKind::ALL.iter().filter(problems) {
        let (status, code, meaning) = (kind.http_status(), kind.exit_code(), kind.meaning());
        expect(
            "reference/exit-codes.md",
            format!("| `{kind}` | {status} | {code} | {meaning} |"),
        );
    }
    for verdict in Verdict::ALL {
        expect("guides/batch.md", format!("| `{verdict}` |"));
    }
    for code in DenialCode::ALL {
        expect("reference/exit-codes.md", format!("| `{code}` |"));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Every link to a file of the repository leads to one.
#[test]
fn links_lead_somewhere() {
    let mut broken = BTreeSet::new();
    let others = [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ];
    for path in pages()
        .into_iter()
        .chain(others.map(|name| repository().join(name)))
    {
        let text = read(&path);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            let here = path.parent().unwrap_or(Path::new("."));
            if !file.is_empty() && !file.contains("://") && !here.join(file).exists() {
                broken.insert(format!("{}: {target}", shown(&path)));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn shown(path: &Path) -> String {
    path.strip_prefix(repository())
        .unwrap_or(path)
        .display()
        .to_string()
}

#[track_caller]
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[track_caller]
fn assert_same(page: &str, expected: &str, command: &str) {
    let found = read(&repository().join(page));
    assert!(
        found == expected,
        "{page} is not what `{command}` prints; write it anew: {command} > {page}"
    );
}

/// README.md and every page below docs/.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![repository().join("README.md")];
    let mut waiting = vec![repository().join("docs")];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// A fenced block of a page.
struct Block {
    /// What stands behind the opening fence.
    info: String,
    /// The number of the first line within.
    line: usize,
    lines: Vec<String>,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, Block)> = None;
    for (number, line) in text.lines().enumerate() {
        match &mut open {
            None if line.starts_with("```") => {
                let info = line.trim_start_matches('`');
                let fence = &line[..line.len() - info.len()];
                let block = Block {
                    info: info.trim().to_owned(),
                    line: number + 2,
                    lines: Vec::new(),
                };
                open = Some((fence, block));
            }
            None => {}
            Some((fence, _)) if line == *fence => blocks.extend(open.take().map(|(_, block)| block)),
            Some((_, block)) => block.lines.push(line.to_owned()),
        }
    }
    assert!(open.is_none(), "a block is never closed");
    blocks
}

/// A block whose commands have a service.
const SERVED: &str = "console served";

/// One command and what a page says of it.
#[derive(Debug)]
struct Example {
    line: usize,
    command: String,
    output: Vec<String>,
    code: i32,
}

fn examples(block: &Block) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut lines = block.lines.iter().zip(block.line..);
    while let Some((text, line)) = lines.next() {
        match (
            text.strip_prefix("$ "),
            text.strip_prefix("> "),
            examples.last_mut(),
        ) {
            (Some("echo $?"), _, Some(last)) => {
                let code = lines.next().and_then(|(text, _)| text.parse().ok());
                last.code =
                    code.unwrap_or_else(|| panic!("line {line}: `echo $?` must be followed by a number"));
            }
            (Some(command), _, _) => {
                examples.push(Example {
                    line,
                    command: command.to_owned(),
                    output: Vec::new(),
                    code: 0,
                });
            }
            (None, Some(more), Some(last)) if last.output.is_empty() => {
                last.command.push('\n');
                last.command.push_str(more);
            }
            (None, _, Some(last)) => last.output.push(text.clone()),
            (None, _, None) => panic!("line {line}: a console block starts with `$ `"),
        }
    }
    assert!(
        !examples.is_empty(),
        "line {}: a console block without a command",
        block.line
    );
    examples
}

/// Tries every example of a page; how many there were.
fn try_page(path: &Path, page: &[Block], who: Who, failures: &mut Vec<String>) -> usize {
    let dir = TempDir::new();
    copy_examples(dir.path());
    let mut tried = 0;
    let home = TempDir::new();
    let mut service = None;
    for block in page {
        if let Some((_, name)) = block.info.split_once(" file=") {
            dir.file(name, block.lines.join("\n") + "\n");
        } else if block.info == "console" || block.info == SERVED {
            let served = (block.info == SERVED)
                .then(|| &*service.get_or_insert_with(|| Serving::start(who, &home, &[])));
            for example in examples(block) {
                tried += 1;
                let (code, output) = perform(&example.command, dir.path(), who, served);
                let output: Vec<&str> = output.lines().map(str::trim_end).collect();
                let expected: Vec<&str> = example.output.iter().map(|line| line.trim_end()).collect();
                if code != example.code || !lines_match(&expected, &output) {
                    failures.push(describe(path, &example, who, code, &output));
                }
            }
        }
    }
    tried
}

/// The repository's own examples are there under the name that the README gives them.
fn copy_examples(dir: &Path) {
    let made = fs::create_dir(dir.join("examples"));
    assert!(made.is_ok(), "{made:?}");
    for entry in fs::read_dir(repository().join("examples"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let copied = fs::copy(entry.path(), dir.join("examples").join(entry.file_name()));
        assert!(copied.is_ok(), "{copied:?}");
    }
}

fn describe(path: &Path, example: &Example, who: Who, code: i32, output: &[&str]) -> String {
    let indented = |lines: &[&str]| -> String { lines.iter().map(|line| format!("  | {line}\n")).collect() };
    let expected: Vec<&str> = example.output.iter().map(String::as_str).collect();
    format!(
        "{}:{} as {who:?}: $ {}\n  exit code {code}, the page says {}; it printed\n{}  and the page says\n{}",
        shown(path),
        example.line,
        example.command,
        example.code,
        indented(output),
        indented(&expected)
    )
}

/// Runs one command line; its exit code, and its output with the errors after it.
fn perform(line: &str, dir: &Path, who: Who, served: Option<&Serving>) -> (i32, String) {
    let mut line = line.to_owned();
    if let Some(service) = served {
        line = line.replace("$BELLJAR_URL", &url_of(service));
        line = line.replace("$BELLJAR_KEY", service.key.as_deref().unwrap_or_default());
    }
    let mut parts = pipeline(&line);
    let (_, mut command) = parts.remove(0);
    let mut input = Vec::new();
    let mut target = None;
    for (operator, part) in parts {
        match operator {
            '|' => input = feed(&std::mem::replace(&mut command, part), dir),
            '<' => input = read(&dir.join(part.trim())).into_bytes(),
            _ => target = Some(dir.join(part.trim())),
        }
    }
    let mut words = words(&command);
    let mut variables = Vec::new();
    while let Some((name, value)) = words[0].split_once('=') {
        variables.push((name.to_owned(), value.to_owned()));
        words.remove(0);
    }
    if words[0] == "cat" {
        return (0, String::from_utf8_lossy(&feed(&command, dir)).into_owned());
    }
    if let ("curl", Some(service)) = (words[0].as_str(), served) {
        return (0, curl(service, &words));
    }
    assert_eq!(
        words[0], "belljar",
        "not a command that the examples have: {line}"
    );
    let home = dir.join(".belljar");
    let mut run = belljar(who, words.into_iter().skip(1))
        .env("BELLJAR_HOME", &home.to_string_lossy())
        .cwd(dir)
        .stdin(input);
    for (name, value) in variables {
        run = run.env(&name, &value);
    }
    if let Some(service) = served {
        run = run
            .env("BELLJAR_URL", &url_of(service))
            .env("BELLJAR_KEY", service.key.as_deref().unwrap_or_default());
    }
    let done = run.go();
    let code = done.code.unwrap_or(-1);
    match target {
        None => (code, done.stdout + &done.stderr),
        Some(target) => {
            let written = fs::write(&target, done.stdout);
            assert!(written.is_ok(), "{}: {written:?}", target.display());
            (code, done.stderr)
        }
    }
}

fn url_of(service: &Serving) -> String {
    format!("http://{}", service.address)
}

/// What `curl -H … --json BODY URL` and `curl -H … -H HEADER URL` give.
fn curl(service: &Serving, words: &[String]) -> String {
    let [_, h, header, option, value, url] = words else {
        panic!("not a form of curl that the examples have: {words:?}");
    };
    let key = header.strip_prefix("Authorization: Bearer ");
    let path = url.strip_prefix(&url_of(service)).expect("its address");
    let asked = match [h.as_str(), option] {
        ["-H", "--json"] => service.ask("POST", path, key, value),
        ["-H", "-H"] if value.starts_with("Host:") => ask_with(&service.address, "GET", path, key, value, ""),
        ["-H", "-H"] => {
            let headers = format!("Host: localhost\r\n{value}");
            ask_with(&service.address, "GET", path, key, &headers, "")
        }
        other => panic!("not options of curl that the examples have: {other:?}"),
    };
    let (status, answer) = asked.expect("an answer");
    // The second form is for what is rejected.
    assert_eq!(status, if option == "-H" { 403 } else { 200 }, "{answer}");
    answer.to_string()
}

/// What `echo TEXT` or `cat NAME` gives.
fn feed(command: &str, dir: &Path) -> Vec<u8> {
    let words = words(command);
    match words[0].as_str() {
        "echo" => (words[1..].join(" ") + "\n").into_bytes(),
        "cat" => read(&dir.join(&words[1])).into_bytes(),
        other => panic!("`{other}` is not a command that the examples have"),
    }
}

fn words(command: &str) -> Vec<String> {
    split(command).unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// A command line cut at `|`, `<` and `>` outside of quotes, each part with what stands before it.
fn pipeline(line: &str) -> Vec<(char, String)> {
    let mut parts = vec![(' ', String::new())];
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (None, '|' | '<' | '>') => {
                parts.push((c, String::new()));
                continue;
            }
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
        if let Some((_, part)) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

fn lines_match(expected: &[&str], found: &[&str]) -> bool {
    match expected.split_first() {
        None => found.is_empty(),
        Some((&"…", rest)) => (0..=found.len()).any(|skipped| lines_match(rest, &found[skipped..])),
        Some((line, rest)) => match found.split_first() {
            Some((first, more)) => line_matches(line, first) && lines_match(rest, more),
            None => false,
        },
    }
}

fn line_matches(expected: &str, found: &str) -> bool {
    match expected.split_once('…') {
        None => expected == found,
        Some((before, rest)) => found.strip_prefix(before).is_some_and(|tail| {
            let ends = tail.char_indices().map(|(at, _)| at).chain([tail.len()]);
            ends.into_iter().any(|at| line_matches(rest, &tail[at..]))
        }),
    }
}
