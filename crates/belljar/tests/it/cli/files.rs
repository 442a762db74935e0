//! Files in and out: `--file`, `--unpack`, `--mount`, `--out`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::harness::{TempDir, belljar, everyone, output_of, run_code};

#[test]
fn files_go_in_under_the_names_they_are_given() {
    for who in everyone() {
        let dir = TempDir::new();
        dir.file("here.txt", "here");
        let tool = dir.file("tool", "#!/bin/sh\necho tool runs");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("executable");
        let there = dir.file("there.txt", "there");
        let there = format!("deep/down/ünicode name.txt={}", there.display());
        let code = "cat here.txt; cat 'deep/down/ünicode name.txt'; ./tool; echo more >> here.txt; stat -c %a here.txt tool";
        let done = belljar(
            who,
            [
                "run", "--lang", "bash", "--file", "here.txt", "--file", &there, "--file", "tool", "-c", code,
            ],
        )
        .cwd(dir.path())
        .go()
        .expect_code(0);
        assert_eq!(done.stdout, "heretheretool runs\n644\n755\n", "{done:#?}");
        assert_eq!(
            fs::read_to_string(dir.path().join("here.txt")).expect("the original"),
            "here"
        );
    }
}

#[test]
fn archives_are_unpacked_into_the_work_directory() {
    let dir = TempDir::new();
    fs::create_dir(dir.path().join("src")).expect("a directory");
    dir.file("src/a.txt", "packed");
    let archive = dir.path().join("src.tar.gz");
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(dir.path()).arg("-czf").arg(&archive).arg("src");
    assert!(output_of(&mut tar).status.success());
    for who in everyone() {
        belljar(
            who,
            [
                "exec",
                "--unpack",
                archive.to_str().expect("plain"),
                "--",
                "cat",
                "src/a.txt",
            ],
        )
        .go()
        .expect_code(0)
        .expect_stdout("packed");
    }
}

#[test]
fn wanted_files_and_directories_come_out() {
    let code = "mkdir -p results/deep; echo one > results/1.txt; echo two > results/deep/2.txt; echo three > plain; \
                printf '#!/bin/sh\\n' > tool; chmod 700 tool; printf '\\x00\\xff' > results/bytes; mkdir empty";
    for who in everyone() {
        let dir = TempDir::new();
        fs::create_dir(dir.path().join("existing")).expect("a directory");
        fs::set_permissions(dir.path().join("existing"), fs::Permissions::from_mode(0o777)).expect("open");
        dir.file("old", "to be replaced");
        let read = |name: &str| {
            fs::read_to_string(dir.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        belljar(
            who,
            [
                "run",
                "--lang",
                "bash",
                "--out",
                "results",
                "--out",
                "plain=existing",
                "--out",
                "plain=renamed.txt",
                "--out",
                "results/deep/2.txt",
                "--out",
                "plain=old",
                "--out",
                "tool",
                "-c",
                code,
            ],
        )
        .cwd(dir.path())
        .go()
        .expect_code(0);
        assert_eq!(read("results/1.txt"), "one\n");
        assert_eq!(read("results/deep/2.txt"), "two\n");
        assert_eq!(
            fs::read(dir.path().join("results/bytes")).expect("bytes"),
            [0, 255]
        );
        assert_eq!(read("2.txt"), "two\n");
        for copy in ["existing/plain", "renamed.txt", "old"] {
            assert_eq!(read(copy), "three\n");
        }
        let mode = |name: &str| {
            fs::metadata(dir.path().join(name))
                .expect(name)
                .permissions()
                .mode()
        };
        assert_ne!(mode("tool") & 0o100, 0);
        assert_eq!(mode("renamed.txt") & 0o111, 0);
    }
}

#[test]
fn what_cannot_come_out_is_told_and_nothing_is_written() {
    let code = "ln -s /etc/passwd link; mkfifo pipe; mkdir d; ln -s ../../../etc d/up; echo ok > d/fine; \
                head -c 100000 /dev/zero > large; echo x > made";
    for who in everyone() {
        for (wanted, reason) in [
            (
                "link",
                "`link` was not taken: a symbolic link, not a regular file",
            ),
            ("pipe", "`pipe` was not taken: a FIFO, not a regular file"),
            ("missing", "`missing` was not taken: not there"),
            ("made/below", "`made/below` was not taken: Not a directory"),
            (
                "d/up/passwd",
                "`d/up/passwd` was not taken: a symbolic link, or behind one",
            ),
            (
                "large",
                "`large` was not taken: 100000 bytes are more than the 65536 left of the output limit",
            ),
        ] {
            let dir = TempDir::new();
            let done = belljar(
                who,
                [
                    "run",
                    "--lang",
                    "bash",
                    "--output-limit",
                    "64K",
                    "--out",
                    wanted,
                    "-c",
                    code,
                ],
            )
            .cwd(dir.path())
            .go()
            .expect_code(1);
            assert!(
                done.stderr.starts_with(&format!("belljar: {reason}")),
                "{}",
                done.stderr
            );
            assert_eq!(
                fs::read_dir(dir.path()).expect("the directory").count(),
                0,
                "{wanted}"
            );
        }
        // Of a directory, what can come out does.
        let dir = TempDir::new();
        let done = belljar(who, ["run", "--lang", "bash", "--out", "d", "-c", code])
            .cwd(dir.path())
            .go()
            .expect_code(1);
        assert_eq!(
            done.stderr,
            "belljar: `d/up` was not taken: a symbolic link, not a regular file\n"
        );
        assert_eq!(
            fs::read_to_string(dir.path().join("d/fine")).expect("the rest"),
            "ok\n"
        );
        // A program has its reasons too.
        let done = run_code(who, "bash", code, &["--out", "link", "--out", "made"])
            .cwd(dir.path())
            .go();
        let files = done.json()["outcome"]["files"].clone();
        assert_eq!(files[0]["state"], "refused");
        assert_eq!(
            (files[1]["state"].as_str(), files[1]["size"].as_i64()),
            (Some("collected"), Some(2))
        );
    }
}

#[test]
fn a_mount_may_be_named_from_here() {
    for who in everyone() {
        let dir = TempDir::new();
        fs::create_dir(dir.path().join("data")).expect("a directory");
        dir.file("data/x", "seen");
        for mount in ["./data:/workspace/data", "data:/data:ro"] {
            let place = mount.split(':').nth(1).expect("a place");
            belljar(
                who,
                ["exec", "--mount", mount, "--", "cat", &format!("{place}/x")],
            )
            .cwd(dir.path())
            .go()
            .expect_code(0)
            .expect_stdout("seen");
        }
    }
}
