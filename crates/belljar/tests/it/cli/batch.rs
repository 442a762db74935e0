//! `belljar batch`: many requests in order, with cases, within bounds.

mod bad_input;
mod progress;
mod resume;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{self, Done, Run, TempDir, Who, belljar, everyone, expect_nothing_left};
use crate::machine::absent;

/// Writes requests as lines.
fn write_lines(dir: &TempDir, name: &str, lines: &[Value]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    dir.file(name, text);
}

/// `belljar batch in.jsonl -o out.jsonl`, in `dir`. Each user has an output of their own.
fn batch(who: Who, dir: &TempDir, args: &[&str]) -> Run {
    let out = out_name(who);
    let all = ["batch", "in.jsonl", "-o", &out]
        .into_iter()
        .chain(args.iter().copied());
    belljar(who, all).cwd(dir.path())
}

fn out_name(who: Who) -> String {
    format!("{who:?}.jsonl")
}

/// The answers in a file.
#[track_caller]
fn answers(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("the output");
    assert!(text.is_empty() || text.ends_with('\n'), "a torn line: {text}");
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(parse).collect()
}

#[track_caller]
fn answers_of(who: Who, dir: &TempDir) -> Vec<Value> {
    answers(&dir.path().join(out_name(who)))
}

fn verdicts(answer: &Value) -> Vec<Option<&str>> {
    let cases = answer["cases"].as_array().expect("cases");
    cases.iter().map(|case| case["verdict"].as_str()).collect()
}

#[track_caller]
fn expect_summary(done: &Done, summary: &str) {
    assert_eq!(done.stderr, format!("belljar: {summary}\n"), "{done:#?}");
    assert_eq!(done.stdout, "");
}

#[test]
fn answers_come_in_the_order_of_their_lines() {
    let dir = TempDir::new();
    // The earlier ones take longer.
    let lines: Vec<_> = (0..12)
        .map(|number| {
            let code = format!(
                "sleep 0.{}; echo {number}; exit {}",
                (12 - number) * 3 % 10,
                number % 2
            );
            json!({"id": format!("n{number}"), "language": "bash", "code": code})
        })
        .collect();
    write_lines(&dir, "in.jsonl", &lines);
    for who in everyone() {
        let done = batch(who, &dir, &["--jobs", "4"]).go().expect_code(0);
        let place = out_name(who);
        expect_summary(&done, &format!("12 lines in {place}: 6 completed, 6 failed"));
        let answers = answers_of(who, &dir);
        assert_eq!(answers.len(), 12);
        for (number, answer) in answers.iter().enumerate() {
            assert_eq!(answer["line"], number + 1);
            assert_eq!(answer["id"], format!("n{number}"));
            assert_eq!(answer["outcome"]["stdout"], format!("{number}\n"));
            assert_eq!(answer["outcome"]["exit_code"], number % 2);
            assert_eq!(answer["success"], number % 2 == 0);
            assert_eq!(answer["record"]["policy_id"], "standard");
        }
    }
}

/// The same shape as `run --json`, with what a line adds.
#[test]
fn an_answer_has_this_shape() {
    let dir = TempDir::new();
    let lines = [
        json!({"code": "print(1)"}),
        json!({"code": "print(1)", "cases": [{}]}),
        json!({"code": ""}),
        json!({}),
    ];
    write_lines(&dir, "in.jsonl", &lines);
    for who in everyone() {
        batch(who, &dir, &[]).go().expect_code(1);
        let answers = answers_of(who, &dir);
        let common = ["id", "input_hash", "line", "options_hash"];
        for (answer, more) in answers.iter().zip([
            &["outcome", "record", "success"][..],
            &["cases", "outcome", "record", "success"],
            &["denial", "record"],
            &["error"],
        ]) {
            let mut fields: Vec<_> = common.iter().chain(more).copied().collect();
            fields.sort_unstable();
            let mut found: Vec<_> = answer.as_object().expect("an object").keys().collect();
            found.sort_unstable();
            assert_eq!(found, fields, "{answer:#}");
        }
        let run = belljar(who, ["run", "--json", "-c", "print(1)"]).go().json();
        let keys = |value: &Value| {
            value
                .as_object()
                .map(|map| map.keys().cloned().collect::<Vec<_>>())
        };
        assert_eq!(keys(&answers[0]["outcome"]), keys(&run["outcome"]));
        assert_eq!(keys(&answers[1]["outcome"]), keys(&run["outcome"]));
        assert_eq!(keys(&answers[0]["record"]), keys(&run["record"]));
        assert_eq!(answers[2]["denial"]["code"], "code_empty");
        assert_eq!(answers[3]["error"]["kind"], "usage");
    }
}

/// Everything that a case could leave: files in three places, a process, a changed program.
const LEAVES: &str = r#"
import os, subprocess, sys
seen = [p for p in ("left", "/tmp/left", "/dev/shm/left") if os.path.exists(p)]
procs = [p for p in os.listdir("/proc") if p.isdigit()]
print(input(), seen, len(procs))
for p in ("left", "/tmp/left", "/dev/shm/left"):
    open(p, "w").write("x")
open("main.py", "a").write("\nprint('changed')\n")
subprocess.Popen(["sleep", "600"], start_new_session=True)
"#;

#[test]
fn cases_do_not_see_each_other() {
    let dir = TempDir::new();
    let cases: Vec<_> = (0..4)
        .map(|number| json!({"stdin": format!("{number}\n")}))
        .collect();
    write_lines(&dir, "in.jsonl", &[json!({"code": LEAVES, "cases": cases})]);
    for who in everyone() {
        batch(who, &dir, &[]).go().expect_code(0);
        let answer = &answers_of(who, &dir)[0];
        let outputs: Vec<_> = answer["cases"]
            .as_array()
            .expect("cases")
            .iter()
            .map(|case| case["stdout"].as_str().expect("text"))
            .collect();
        let first = outputs[0].strip_prefix("0 ").expect("its input");
        assert!(first.starts_with("[] "), "{first}");
        for (number, output) in outputs.iter().enumerate() {
            assert_eq!(*output, format!("{number} {first}"));
        }
        assert_eq!(verdicts(answer), [None; 4]);
        assert_eq!(answer["success"], true);
    }
}

/// One program for every verdict; none takes the next with it.
const MANY_ENDS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    char word[16] = "";
    if (scanf("%15s", word) != 1) return 9;
    if (!strcmp(word, "loop")) for (;;);
    if (!strcmp(word, "memory")) for (;;) memset(malloc(1 << 20), 1, 1 << 20);
    if (!strcmp(word, "crash")) abort();
    if (!strcmp(word, "flood")) for (int i = 0; i < 300000; i++) puts("0123456789");
    printf("%s %s  \n\n", word, argc > 1 ? argv[1] : "-");
}
"#;

#[test]
fn every_case_has_its_verdict() {
    let dir = TempDir::new();
    let case = |stdin: &str, expected: &str| json!({"stdin": stdin, "expected_stdout": expected});
    let cases = [
        case("a", "a -"),
        case("loop", ""),
        case("a", "b -"),
        case("memory", ""),
        json!({"stdin": "a", "args": ["x"], "expected_stdout": "a x\n"}),
        case("crash", ""),
        case("", ""),
        case("flood", "0123456789"),
        json!({"stdin": "a"}),
        json!({"stdin": "a", "args": ["nul \0"]}),
        case("a", "a -\n"),
    ];
    let limits = json!({"timeout": "4s", "memory": "64M", "output_limit": "1M"});
    let request = json!({"language": "c", "code": MANY_ENDS, "limits": limits, "cases": cases});
    let mut exact = request.clone();
    exact["compare"] = json!("exact");
    exact["cases"] = json!([case("a", "a -"), case("a", "a -  \n\n")]);
    write_lines(&dir, "in.jsonl", &[request, exact]);
    for who in everyone() {
        let done = batch(who, &dir, &[]).go().expect_code(0);
        assert!(
            done.stderr
                .contains("; cases: 4 accepted, 2 wrong_output, 2 runtime_error, 1 timeout, 1 memory, "),
            "{}",
            done.stderr
        );
        let answers = answers_of(who, &dir);
        assert_eq!(
            verdicts(&answers[0]),
            [
                Some("accepted"),
                Some("timeout"),
                Some("wrong_output"),
                Some("memory"),
                Some("accepted"),
                Some("runtime_error"),
                Some("runtime_error"),
                Some("output_limit"),
                None,
                Some("denied"),
                Some("accepted"),
            ],
            "{:#}",
            answers[0]
        );
        assert_eq!(answers[0]["outcome"]["compile"]["exit_code"], 0);
        assert_eq!(answers[0]["outcome"]["status"], "timeout");
        assert_eq!(answers[0]["success"], false);
        assert_eq!(answers[0]["cases"][9]["denial"]["code"], "argument_invalid");
        assert_eq!(verdicts(&answers[1]), [Some("wrong_output"), Some("accepted")]);
    }
}

#[test]
fn what_does_not_compile_is_said_once_and_for_every_case() {
    let dir = TempDir::new();
    let line = json!({"language": "c", "code": "int main(void) { nonsense", "cases": [{}, {"expected_stdout": "1"}]});
    write_lines(&dir, "in.jsonl", &[line]);
    for who in everyone() {
        batch(who, &dir, &[]).go().expect_code(0);
        let answer = &answers_of(who, &dir)[0];
        assert_eq!(verdicts(answer), [Some("compile_error"); 2]);
        assert_eq!(answer["outcome"]["error"]["type"], "compile_failed");
        let said = answer["outcome"]["compile"]["stderr"].as_str().expect("text");
        assert!(said.contains("nonsense"), "{said}");
        assert_eq!(answer["cases"][0]["status"], Value::Null);
    }
}

/// What a compiler made runs in another sandbox, whatever it is: a program, classes, scripts.
#[test]
fn compiled_languages_run_their_cases_elsewhere() {
    let dir = TempDir::new();
    let programs = [
        (
            "cpp",
            "#include <iostream>\nint main() { int x; std::cin >> x; std::cout << x * 2; }",
        ),
        (
            "rust",
            "fn main() { let mut s = String::new(); std::io::stdin().read_line(&mut s).unwrap();\n\
             let x: i32 = s.trim().parse().unwrap(); println!(\"{}\", x * 2); }",
        ),
        (
            "go",
            "package main\nimport \"fmt\"\nfunc main() { var x int; fmt.Scan(&x); fmt.Println(x * 2) }",
        ),
        (
            "java",
            "import java.util.*;\npublic class Main { interface F { int f(int x); }\n\
             public static void main(String[] a) { F f = new F() { public int f(int x) { return x * 2; } };\n\
             System.out.println(f.f(new Scanner(System.in).nextInt())); } }",
        ),
        (
            "typescript",
            "declare const require: any;\nconst x: number = +require('fs').readFileSync(0);\nconsole.log(x * 2)",
        ),
    ];
    let cases = json!([{"stdin": "2", "expected_stdout": "4"}, {"stdin": "21", "expected_stdout": "42"}]);
    let lines: Vec<_> = programs
        .iter()
        .map(|(language, code)| json!({"language": language, "code": code, "cases": cases}))
        .collect();
    write_lines(&dir, "in.jsonl", &lines);
    for who in everyone() {
        batch(who, &dir, &["--timeout", "120s", "--memory", "1G"]).go();
        for (answer, (language, _)) in answers_of(who, &dir).iter().zip(programs) {
            if answer["denial"]["code"] == "language_unavailable" {
                absent(&format!("cases in {language}"), &format!("{who:?} has none"));
                continue;
            }
            assert_eq!(verdicts(answer), [Some("accepted"); 2], "{answer:#}");
        }
    }
}

/// Options are what a line has unless it says otherwise; a policy bounds both.
#[test]
fn options_are_defaults_and_a_policy_bounds_them() {
    let dir = TempDir::new();
    let policy = "extends = \"standard\"\nmax_memory_mb = 100\nallowed_languages = [\"bash\"]\n";
    dir.file("p.toml", policy);
    dir.file("shown.txt", "shown");
    let lines = [
        json!({"language": "bash", "code": "echo $A $B; cat /data", "env": {"B": "own"}}),
        json!({"language": "bash", "code": "echo $A", "env": {"A": "own"}}),
        json!({"language": "bash", "code": "sleep 600"}),
        json!({"language": "bash", "code": "sleep 4", "limits": {"timeout": "60s"}}),
        json!({"language": "bash", "code": "cat in.txt", "files": {"in.txt": "text in"}}),
        json!({"language": "python", "code": "print(1)"}),
        json!({"language": "bash", "code": ":", "limits": {"memory": "200M"}}),
        json!({"command": ["echo", "a"], "args": ["b c"]}),
        json!({"command": ["id"]}),
    ];
    write_lines(&dir, "in.jsonl", &lines);
    let mount = format!("{}:/data", dir.path().join("shown.txt").display());
    for who in everyone() {
        let args = [
            "--env",
            "A=1",
            "--env",
            "B=2",
            "--mount",
            &mount,
            "--timeout",
            "3s",
            "--memory",
            "64M",
            "--allow-command",
            "echo",
            "--tenant",
            "t",
        ];
        let done = batch(who, &dir, &args).go().expect_code(1);
        expect_summary(
            &done,
            &format!("9 lines in {}: 7 completed, 1 timeout, 1 denied", out_name(who)),
        );
        let answers = answers_of(who, &dir);
        let stdout = |line: usize| answers[line]["outcome"]["stdout"].clone();
        assert_eq!(stdout(0), "1 own\nshown");
        assert_eq!(stdout(1), "own\n");
        assert_eq!(answers[2]["outcome"]["status"], "timeout");
        assert_eq!(answers[3]["outcome"]["status"], "completed");
        assert_eq!(stdout(4), "text in");
        assert_eq!(stdout(7), "a b c\n");
        assert_eq!(answers[8]["denial"]["code"], "command_not_allowed");
        assert_eq!(answers[8]["record"]["tenant_id"], "t");

        let args = ["--policy", "p.toml", "--timeout", "3s", "--restart", "--quiet"];
        let done = batch(who, &dir, &args).go().expect_code(1);
        assert_eq!(done.stderr, "");
        let answers = answers_of(who, &dir);
        assert_eq!(answers[5]["denial"]["code"], "language_not_allowed");
        assert_eq!(answers[6]["denial"]["code"], "limit_exceeds_policy");
        assert_eq!(answers[8]["success"], true);
    }
}

#[test]
fn it_reads_standard_input_and_writes_standard_output() {
    for who in everyone() {
        let lines = "{\"code\": \"print(1)\"}\n\n{\"code\": \"print(2)\"}";
        let done = belljar(who, ["batch", "-", "-o", "-", "--jobs", "2"])
            .stdin(lines)
            .go()
            .expect_code(0);
        let found: Vec<Value> = done
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let shown: Vec<_> = found
            .iter()
            .map(|answer| (answer["line"].as_u64(), answer["outcome"]["stdout"].as_str()))
            .collect();
        assert_eq!(shown, [(Some(1), Some("1\n")), (Some(3), Some("2\n"))]);
        assert_eq!(done.stderr, "belljar: 2 lines in standard output: 2 completed\n");
    }
}

/// Ten thousand quick lines behind a slow one: the reader waits, and memory stays flat.
#[test]
fn a_slow_line_holds_up_the_reader_and_not_the_memory() {
    const QUICK: usize = 10_000;
    for who in everyone() {
        let mut command = belljar(who, ["batch", "-", "-o", "-", "--jobs", "2", "--quiet"]).command();
        let mut child = harness::spawn(&mut command);
        let pid = child.id();
        let mut stdin = child.stdin.take().expect("stdin");
        let written = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&written);
        let writer = std::thread::spawn(move || {
            let mut write = |line: &str| {
                stdin.write_all(line.as_bytes()).expect("write a line");
                counted.fetch_add(line.len() as u64, Ordering::SeqCst);
            };
            write("{\"command\": [\"sleep\", \"3\"]}\n");
            // A hundred megabytes in all.
            let quick = format!("{{\"filler\": \"{}\"}}\n", "x".repeat(10_000));
            (0..QUICK).for_each(|_| write(&quick));
        });
        let reader = std::thread::spawn(move || harness::finish(child));
        std::thread::sleep(Duration::from_millis(1500));
        let ahead = written.load(Ordering::SeqCst);
        let memory = resident_kib(pid);
        assert!(ahead > 500_000, "it reads ahead a little: {ahead}");
        assert!(
            ahead < 3_000_000,
            "{ahead} bytes were taken while the first line ran"
        );
        assert!(memory < 64 << 10, "{memory} KiB");
        writer.join().expect("the writer");
        let output = reader.join().expect("the output");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let lines = String::from_utf8(output.stdout).expect("text");
        assert_eq!(lines.lines().count(), QUICK + 1);
        assert!(lines.starts_with("{\"line\":1,"), "the slow one comes first");
        let done = Done {
            code: Some(1),
            stdout: String::new(),
            stderr: String::new(),
            took: Duration::ZERO,
        };
        expect_nothing_left(pid, &done);
    }
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).expect("a number")
}

/// Many lines at once need many descriptors: the soft limit is raised, the hard one told at once.
#[test]
fn many_jobs_have_their_descriptors() {
    let dir = TempDir::new();
    write_lines(&dir, "in.jsonl", &vec![json!({"command": ["sleep", "0.5"]}); 60]);
    for who in everyone() {
        let within = |limit: &str| {
            batch(who, &dir, &["--jobs", "60"]).within(&["prlimit", &format!("--nofile={limit}"), "--"])
        };
        let done = within("128:128").go().expect_code(2);
        super::expect_one_problem(&done);
        assert!(done.stderr.contains("ask for at most 4"), "{}", done.stderr);
        within("128:4096").go().expect_code(0);
        assert_eq!(answers_of(who, &dir).len(), 60);
    }
}
