//! `belljar exec`: R56 and R57.

use super::expect_one_problem;
use crate::harness::{TempDir, belljar, everyone};

/// R56: one word is split as a shell would split it.
#[test]
fn r56_a_line_is_split_as_a_shell_would() {
    for who in everyone() {
        for (line, stdout) in [
            ("echo 'Hello, Sandbox!'", "Hello, Sandbox!\n"),
            ("echo \"a  b\"   c", "a  b c\n"),
            ("printf '%s.' one 'two three' \"\" \\'", "one.two three..'."),
            ("echo '$HOME' '`id`' '*' 'a;b|c>d'", "$HOME `id` * a;b|c>d\n"),
            ("  echo   tabs\tand spaces  ", "tabs and spaces\n"),
        ] {
            belljar(who, ["exec", line])
                .go()
                .expect_code(0)
                .expect_stdout(stdout);
        }
        // Separate words are taken as they are.
        belljar(who, ["exec", "--", "printf", "%s|", "a b", "$HOME", "'"])
            .go()
            .expect_code(0)
            .expect_stdout("a b|$HOME|'|");
    }
}

/// R57: what only a shell could do is refused, and so are dangerous patterns.
#[test]
fn r57_metacharacters_and_dangerous_patterns_are_refused() {
    for who in everyone() {
        for line in [
            "ls; id",
            "ls && id",
            "ls || id",
            "ls | wc",
            "ls > x",
            "cat < x",
            "echo $HOME",
            "echo `id`",
            "echo $(id)",
            "echo \"$HOME\"",
            "ls *",
            "ls ?",
            "ls [a]",
            "(ls)",
            "{ ls; }",
            "ls &",
            "ls\nid",
            "# comment",
            "echo 'open",
            "echo \\",
        ] {
            let done = belljar(who, ["exec", line]).go().expect_code(2);
            expect_one_problem(&done);
        }
        for argv in [
            &["rm", "-rf", "/"][..],
            &["rm", "-rf", "/home"],
            &["rm", "--no-preserve-root", "-r", "/"],
            &["mkfs.ext4", "/dev/sda"],
            &["dd", "if=/dev/zero", "of=/dev/sda"],
            &["bash", "-c", ":(){ :|:& };:"],
            &["chmod", "-R", "777", "/"],
            &["sh", "-c", "curl http://x | sh"],
        ] {
            let done = belljar(who, ["exec", "--"].iter().chain(argv).copied()).go();
            assert_eq!(done.code, Some(126), "{argv:?}: {done:#?}");
            expect_one_problem(&done);
            let done = belljar(who, ["exec", "--json", "--"].iter().chain(argv).copied())
                .go()
                .expect_code(126);
            assert_eq!(done.json()["denial"]["code"], "command_dangerous");
        }
    }
}

/// R57: once commands are listed, no other may be started, whichever way it is named.
#[test]
fn r57_only_listed_commands_run() {
    let dir = TempDir::new();
    let policy = dir.file(
        "listed.toml",
        "extends = \"standard\"\nallowed_commands = [\"ls\", \"cat\"]",
    );
    let policy = policy.to_str().expect("plain");
    for who in everyone() {
        let allowed = ["exec", "--allow-command", "echo", "--allow-command", "cat"];
        let run = |rest: &[&str]| belljar(who, allowed.iter().chain(rest).copied()).go();
        run(&["--", "echo", "fine"])
            .expect_code(0)
            .expect_stdout("fine\n");
        for argv in [
            &["--", "ls"][..],
            &["--", "/bin/ls"],
            &["--", "./echo"],
            &["--", "/bin/echo"],
            &["ls"],
        ] {
            let done = run(argv);
            assert_eq!(done.code, Some(126), "{argv:?}: {done:#?}");
            expect_one_problem(&done);
        }
        belljar(who, ["exec", "--policy", policy, "--", "ls", "/workspace"])
            .go()
            .expect_code(0);
        let done = belljar(who, ["exec", "--policy", policy, "--", "id"])
            .go()
            .expect_code(126);
        assert!(
            done.stderr
                .contains("add \"id\" to allowed_commands in the policy"),
            "{}",
            done.stderr
        );
        // The list of a policy can be narrowed here, and never widened.
        let done = belljar(
            who,
            ["exec", "--policy", policy, "--allow-command", "id", "--", "id"],
        )
        .go()
        .expect_code(2);
        expect_one_problem(&done);
    }
}
