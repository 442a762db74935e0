//! A batch that was interrupted goes on where it stopped, and only there.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::super::expect_one_problem;
use super::{answers, answers_of, batch, out_name, write_lines};
use crate::again::{alone, reap_orphans, test_name};
use crate::harness::{self, TempDir, Who, everyone, is_root, orphans};

fn lines(count: usize) -> Vec<Value> {
    (0..count)
        .map(|number| match number % 4 {
            0 => json!({"id": number, "language": "bash", "code": format!("echo {number}")}),
            1 => json!({"id": number, "language": "bash", "code": "read x; echo $x", "cases": [
                {"stdin": "a\n", "expected_stdout": "a"}, {"stdin": "b\n", "expected_stdout": "a"}]}),
            2 => json!({"id": number, "language": "bash", "code": "exit 3", "nope": number}),
            _ => json!({"id": number, "command": ["sleep", "0.2"]}),
        })
        .collect()
}

/// An answer without what is different each time: names, times, usage.
fn settled(mut answer: Value) -> Value {
    fn settle(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for name in [
                    "sandbox_id",
                    "record_id",
                    "usage",
                    "started_at",
                    "completed_at",
                    "created_at",
                    "duration",
                    "wall_time_seconds",
                    "receipt",
                ] {
                    map.remove(name);
                }
                map.values_mut().for_each(settle);
            }
            Value::Array(items) => items.iter_mut().for_each(settle),
            _ => {}
        }
    }
    settle(&mut answer);
    answer
}

fn all_settled(path: &std::path::Path) -> Vec<Value> {
    answers(path).into_iter().map(settled).collect()
}

/// Killed at random moments again and again, the file is in the end as if nothing had happened.
#[test]
fn killed_at_any_moment_it_ends_in_the_same_file() {
    alone(test_name!(), || {
        let who = if is_root() { Who::Root } else { Who::User };
        let dir = TempDir::new();
        write_lines(&dir, "in.jsonl", &lines(80));
        let out = dir.path().join(out_name(who));
        batch(who, &dir, &["--quiet", "--jobs", "2"]).go().expect_code(1);
        let whole = all_settled(&out);
        assert_eq!(whole.len(), 80);
        fs::remove_file(&out).expect("the output");

        let mut kills = 0;
        for round in 0.. {
            assert!(round < 100, "it never comes to its end");
            let mut command = batch(who, &dir, &["--quiet", "--jobs", "2"]).command();
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let child = harness::spawn(&mut command);
            let pid = Pid::from_raw(child.id().cast_signed()).expect("a pid");
            std::thread::sleep(Duration::from_millis(80 + random(200 + 30 * round)));
            let _ = kill_process(pid, Signal::KILL);
            let output = harness::finish(child);
            wait_until_gone();
            if output.status.code().is_some() {
                assert_eq!(output.status.code(), Some(1), "{output:?}");
                break;
            }
            kills += 1;
            // A kill can come in the middle of a write; here one always does.
            if round % 2 == 0 && out.exists() {
                let mut text = fs::read(&out).expect("the output");
                text.extend_from_slice(b"{\"line\":99,\"id\":null,\"inp");
                fs::write(&out, text).expect("a torn line");
            }
        }
        assert!(kills >= 2, "it was too quick to be killed");
        assert_eq!(all_settled(&out), whole);
    });
}

fn random(below: u64) -> u64 {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("random bytes");
    u64::from_ne_bytes(bytes) % below
}

fn wait_until_gone() {
    let started = Instant::now();
    while !orphans().is_empty() {
        reap_orphans();
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", orphans());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What is finished is not run again, not even touched.
#[test]
fn finished_lines_stay_as_they_are() {
    let dir = TempDir::new();
    write_lines(&dir, "in.jsonl", &lines(6));
    for who in everyone() {
        let out = dir.path().join(out_name(who));
        batch(who, &dir, &[]).go().expect_code(1);
        let first = fs::read(&out).expect("the output");
        let done = batch(who, &dir, &[]).go().expect_code(1);
        assert!(
            done.stderr.ends_with("; 6 were there before\n"),
            "{}",
            done.stderr
        );
        assert_eq!(fs::read(&out).expect("the output"), first);

        // A first line that is torn is ours to cut as well.
        for torn in ["{", "{\"line\":1,\"id\":0,\"inp"] {
            fs::write(&out, torn).expect("a torn line");
            batch(who, &dir, &[]).go().expect_code(1);
            assert_eq!(answers(&out).len(), 6);
        }

        // Half of it and a torn line: only the rest is run.
        let cut: usize = first
            .split_inclusive(|byte| *byte == b'\n')
            .take(3)
            .map(<[u8]>::len)
            .sum();
        fs::write(&out, &first[..cut + 20]).expect("cut");
        let done = batch(who, &dir, &["--jobs", "1"]).go().expect_code(1);
        assert!(
            done.stderr.ends_with("; 3 were there before\n"),
            "{}",
            done.stderr
        );
        let second = fs::read(&out).expect("the output");
        assert_eq!(second[..cut], first[..cut]);
        assert_eq!(answers(&out).len(), 6);

        // More lines at the end of the input are only run.
        let mut more = lines(6);
        more.push(json!({"command": ["echo", "new"]}));
        write_lines(&dir, "in.jsonl", &more);
        batch(who, &dir, &[]).go().expect_code(1);
        let third = fs::read(&out).expect("the output");
        assert_eq!(third[..second.len()], second);
        assert_eq!(answers(&out)[6]["outcome"]["stdout"], "new\n");
        write_lines(&dir, "in.jsonl", &lines(6));
    }
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let dir = TempDir::new();
    for who in everyone() {
        let out = dir.path().join(out_name(who));
        write_lines(&dir, "in.jsonl", &lines(3));
        batch(who, &dir, &["--quiet"]).go().expect_code(1);
        let whole = fs::read_to_string(&out).expect("the output");
        let refuse = |args: &[&str], shown: &str| {
            let before = fs::read(&out).expect("the output");
            let done = batch(who, &dir, args).go().expect_code(2);
            expect_one_problem(&done);
            assert!(done.stderr.contains(shown), "{}", done.stderr);
            assert!(done.stderr.contains("--restart"), "{}", done.stderr);
            assert_eq!(fs::read(&out).expect("the output"), before, "it was touched");
        };
        refuse(
            &["--memory", "64M"],
            "it was made with other options or another policy",
        );
        refuse(
            &["--policy", "standard"],
            "it was made with other options or another policy",
        );
        let mut other = lines(3);
        other[1] = json!({"command": ["true"]});
        write_lines(&dir, "in.jsonl", &other);
        refuse(&[], "line 2 of the input was another one then");
        write_lines(&dir, "in.jsonl", &lines(2));
        refuse(&[], "it has more lines than the input");
        write_lines(&dir, "in.jsonl", &lines(3));
        for foreign in ["hello\n", "{}\n", "\n", "{\"line\": 1}\n"] {
            fs::write(&out, foreign).expect("a foreign file");
            refuse(&[], "its line 1 is not an answer of a batch");
        }
        // Nor is somebody's file cut because its last line has no end.
        fs::write(&out, "notes").expect("a foreign file");
        refuse(&[], "it is not the output of a batch");
        // One in the middle, too.
        fs::write(&out, whole.replacen('\n', "\n\0\n", 1)).expect("a spoilt file");
        refuse(&[], "its line 2 is not an answer of a batch");
        batch(who, &dir, &["--restart", "--quiet", "--memory", "64M"])
            .go()
            .expect_code(1);
        assert_eq!(answers_of(who, &dir).len(), 3);
    }
}

#[test]
fn two_batches_do_not_write_one_file() {
    let dir = TempDir::new();
    write_lines(&dir, "in.jsonl", &[json!({"command": ["sleep", "2"]})]);
    for who in everyone() {
        let mut first = batch(who, &dir, &["--quiet"]).command();
        let child = harness::spawn(&mut first);
        let started = Instant::now();
        while !dir.path().join(out_name(who)).exists() {
            assert!(started.elapsed() < Duration::from_secs(20), "it does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        // It is locked right after it is made.
        std::thread::sleep(Duration::from_millis(100));
        let second = harness::output_of(&mut batch(who, &dir, &[]).command());
        assert_eq!(second.status.code(), Some(2), "{second:?}");
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(said.starts_with("belljar: another batch is writing"), "{said}");
        let output = harness::finish(child);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(answers_of(who, &dir).len(), 1);
    }
}

/// Ctrl-C ends what runs, keeps what is finished, and says how to go on.
#[test]
fn an_interruption_keeps_what_is_finished() {
    let dir = TempDir::new();
    let mut wanted: Vec<_> = (0..3).map(|_| json!({"command": ["true"]})).collect();
    wanted.push(json!({"command": ["sleep", "50"]}));
    wanted.extend((0..3).map(|_| json!({"command": ["true"]})));
    for who in everyone() {
        write_lines(&dir, "in.jsonl", &wanted);
        let out = dir.path().join(out_name(who));
        let child = harness::spawn(&mut batch(who, &dir, &["--jobs", "2"]).command());
        let pid = child.id();
        let started = Instant::now();
        while !fs::read(&out).is_ok_and(|text| text.iter().filter(|byte| **byte == b'\n').count() == 3) {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "three lines are not finished"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(300));
        kill_process(Pid::from_raw(pid.cast_signed()).expect("a pid"), Signal::INT).expect("interrupt");
        let interrupted = Instant::now();
        let output = harness::finish(child);
        assert!(interrupted.elapsed() < Duration::from_secs(40));
        assert_eq!(output.status.code(), Some(137), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let place = out_name(who);
        assert_eq!(
            said,
            format!(
                "belljar: 3 lines in {place}: 3 completed\nbelljar: stopped after 3 lines\n\
                 hint: run the same command again: it goes on after the last finished line\n"
            )
        );
        assert_eq!(answers(&out).len(), 3);
        assert!(harness::control_groups(pid).is_empty());
        // Once more, with those behind the slow one long finished: they would leave a gap.
        let quick = batch(who, &dir, &["--quiet", "--jobs", "4"]);
        let child = harness::spawn(&mut quick.command());
        std::thread::sleep(Duration::from_millis(1500));
        kill_process(
            Pid::from_raw(child.id().cast_signed()).expect("a pid"),
            Signal::TERM,
        )
        .expect("terminate");
        assert_eq!(harness::finish(child).status.code(), Some(137));
        assert_eq!(answers(&out).len(), 3, "nothing behind the slow one is there yet");
    }
}
