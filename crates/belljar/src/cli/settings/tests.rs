//! Every malformed argument gives one clear usage error with a hint, and nothing runs.

use std::path::PathBuf;

use belljar::{Access, Bytes, Content, Control, Demand, ErrorKind, Language, NetworkPolicy, Seconds, Stdin};
use clap::Parser;

use super::super::args::{Cli, Command};
use super::super::problem::Problem;
use super::{Here, Settings};

/// What a command line means, typed at a terminal in this crate's directory.
fn resolve(words: &[&str]) -> Result<Settings, Problem> {
    let here = Here {
        directory: PathBuf::from(env!("CARGO_MANIFEST_DIR")),
        stdin_is_terminal: true,
    };
    let words = ["belljar"].iter().chain(words);
    match Cli::try_parse_from(words).unwrap().command {
        Command::Run(args) => super::run(args, &here),
        Command::Exec(args) => super::exec(args, &here),
        other => panic!("{other:?}"),
    }
}

fn run(words: &[&str]) -> Settings {
    resolve(&[&["run", "-c", "1"], words].concat()).unwrap()
}

/// The usage error of a command line.
fn error(words: &[&str]) -> String {
    let problem = resolve(words).expect_err(&words.join(" "));
    assert_eq!(problem.kind, ErrorKind::Usage, "{problem:?}");
    let hint = problem.hint.as_deref().unwrap_or_default();
    assert!(!hint.is_empty(), "{problem:?}");
    assert!(
        !problem.message.contains('\n') && !hint.contains('\n'),
        "{problem:?}"
    );
    problem.message
}

#[test]
fn malformed_limits_name_their_flag() {
    for flag in ["--memory", "--file-size", "--disk", "--output-limit"] {
        for text in ["", "-1", "12x", "1.2.3", "M", "NaN", "1e9"] {
            let message = error(&["run", "-c", "1", flag, text]);
            assert_eq!(
                message,
                format!(
                    "{flag}: `{text}` is not a size; write a number with an optional unit, such as 256M, 1.5G or 4096"
                )
            );
        }
        let message = error(&["run", "-c", "1", flag, "99999999999T"]);
        assert!(message.contains("larger than any size"), "{message}");
    }
    for flag in ["--timeout", "--cpu-seconds"] {
        for text in ["", "-1", "1d", "soon", "inf"] {
            let message = error(&["run", "-c", "1", flag, text]);
            assert!(
                message.starts_with(&format!("{flag}: `{text}` is not a duration")),
                "{message}"
            );
        }
    }
    for flag in ["--processes", "--open-files", "--cpu-percent"] {
        for text in ["", "-1", "1.5", "many", "99999999999"] {
            assert_eq!(
                error(&["run", "-c", "1", flag, text]),
                format!("{flag}: `{text}` is not a whole number")
            );
        }
    }
}

#[test]
fn a_limit_that_no_policy_could_have_names_its_flag() {
    let message = error(&["run", "-c", "1", "--memory", "1000000T"]);
    assert!(
        message.starts_with("--memory: max_memory_mb must be from 8 to 16777216"),
        "{message}"
    );
    let message = error(&["run", "-c", "1", "--processes", "100000"]);
    assert!(
        message.starts_with("--processes: max_processes must be"),
        "{message}"
    );
}

#[test]
fn malformed_mounts() {
    for (text, shown) in [
        ("", "`` is not a mount"),
        ("/usr", "`/usr` is not a mount"),
        ("/usr:/data:rx", "mount access `rx`"),
        ("/usr:data", "the guest side of a mount must be an absolute path"),
        (
            "/usr:/a/../b",
            "the guest side of a mount must be an absolute path",
        ),
        ("../x:/data", "the host side of a mount must be an absolute path"),
        ("/usr:/proc", "nothing can be mounted at `/proc`"),
        ("/no/such/place:/data", "cannot show /no/such/place"),
    ] {
        let message = error(&["run", "-c", "1", "--mount", text]);
        assert!(message.starts_with(&format!("--mount: {shown}")), "{message}");
    }
}

#[test]
fn malformed_variables() {
    assert_eq!(
        error(&["run", "-c", "1", "--env", "=x"]),
        "--env: `=x` has no name"
    );
    assert_eq!(
        error(&["run", "-c", "1", "--env", ""]),
        "--env: a variable needs a name"
    );
    assert_eq!(
        error(&["run", "-c", "1", "--env", "BELLJAR_TEST_UNSET"]),
        "--env: `BELLJAR_TEST_UNSET` is not set here, so it cannot be copied"
    );
}

/// R19: a name that escapes the work directory is refused.
#[test]
fn malformed_files_and_outputs() {
    for flag in ["--file", "--out"] {
        for (text, shown) in [
            ("", "the path is empty"),
            ("../x=Cargo.toml", "`../x` leaves the work directory"),
            ("/etc/x=Cargo.toml", "`/etc/x` is absolute"),
            ("~/x=Cargo.toml", "`~/x` starts with `~`"),
            ("a/../../x=Cargo.toml", "`a/../../x` leaves"),
        ] {
            let message = error(&["run", "-c", "1", flag, text]);
            assert!(message.starts_with(&format!("{flag}: {shown}")), "{message}");
        }
    }
    let file = |text: &str| error(&["run", "-c", "1", "--file", text]);
    assert!(file("no-such-file").starts_with("--file: cannot read no-such-file"));
    assert!(file("x=").starts_with("--file: cannot read "));
    assert_eq!(file("src"), "--file: src is not a plain file");
    assert_eq!(
        file("main.py=Cargo.toml"),
        "`main.py` in the work directory is the python code itself"
    );
    assert_eq!(
        error(&[
            "run",
            "-c",
            "1",
            "--file",
            "a=Cargo.toml",
            "--file",
            "./a=Cargo.toml"
        ]),
        "`a` is put into the work directory twice"
    );
    let out = |text: &str| error(&["run", "-c", "1", "--out", text]);
    assert!(out("x=/no/such/dir/x").starts_with("--out: cannot write to "));
    assert!(out("x=").starts_with("--out: cannot write to ``: it has no name"));
}

#[test]
fn unknown_words_list_the_known_ones() {
    assert_eq!(
        error(&["run", "-c", "1", "--network", "bridged"]),
        "--network: `bridged` is not known"
    );
    assert_eq!(
        error(&["run", "-c", "1", "--require", "landlok"]),
        "--require: `landlok` is not known"
    );
    assert_eq!(
        error(&["run", "-c", "1", "--lang", "cobol"]),
        "--lang: `cobol` is not a language that belljar knows"
    );
    let problem = resolve(&["run", "-c", "1", "--network", "bridged"]).unwrap_err();
    assert_eq!(
        problem.hint.as_deref(),
        Some("use one of none, local, restricted, full")
    );
}

#[test]
fn unknown_and_malformed_policies() {
    let unknown = error(&["run", "-c", "1", "--policy", "strict"]);
    assert!(
        unknown.contains("standard, restricted, permissive, high_security"),
        "{unknown}"
    );
    let absent = error(&["run", "-c", "1", "--policy", "./absent.toml"]);
    assert!(absent.starts_with("cannot read ./absent.toml"), "{absent}");
    let malformed = error(&["run", "-c", "1", "--policy", "./Cargo.toml"]);
    assert!(malformed.starts_with("./Cargo.toml:"), "{malformed}");
}

#[test]
fn a_program_and_its_language_must_be_known() {
    assert_eq!(error(&["run"]), "there is nothing to run");
    assert!(error(&["run", "no-such-file.py"]).starts_with("cannot read no-such-file.py"));
    assert!(error(&["run", "src"]).starts_with("cannot read src"));
    assert_eq!(
        error(&["run", "Cargo.toml"]),
        "cannot tell which language `Cargo.toml` is written in"
    );
    assert_eq!(
        error(&["run", "-", "--stdin", "-"]),
        "standard input cannot be both the code and its input"
    );
    assert!(error(&["run", "-c", "1", "--stdin", "absent"]).starts_with("--stdin: cannot read absent"));
    assert!(error(&["run", "-c", "1", "--stdin", "src"]).contains("it is a directory"));
    assert!(error(&["run", "-c", "1", "--unpack", "absent.zip"]).starts_with("--unpack: cannot "));
}

/// R57: what only a shell could do is refused.
#[test]
fn malformed_commands() {
    assert_eq!(error(&["exec"]), "there is no command to run");
    assert_eq!(error(&["exec", "  "]), "the command is empty");
    assert!(error(&["exec", "a | b"]).contains("`|` is a shell metacharacter"));
    assert!(error(&["exec", "echo 'open"]).contains("never closed"));
    assert!(error(&["exec", "--allow-command", "", "--", "ls"]).contains("empty"));
}

#[test]
fn the_language_comes_from_flag_ending_or_first_line() {
    let language = |words: &[&str]| resolve(words).unwrap().request.language();
    assert_eq!(language(&["run", "-c", "1"]), Some(Language::Python));
    assert_eq!(language(&["run", "-c", "#!/bin/sh\necho"]), Some(Language::Shell));
    assert_eq!(
        language(&["run", "-c", "1", "--lang", "JS"]),
        Some(Language::Javascript)
    );
    assert_eq!(language(&["run", "src/main.rs"]), Some(Language::Rust));
    assert_eq!(language(&["run", "src/main.rs", "-l", "c"]), Some(Language::C));
    assert_eq!(language(&["exec", "--", "ls"]), None);
}

/// R56: one word is split as a shell would, several are taken as they are.
#[test]
fn commands_are_lines_or_words() {
    let argv = |words: &[&str]| match resolve(words).unwrap().request.source {
        belljar::Source::Command { argv } => argv,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        argv(&["exec", "echo 'Hello, Sandbox!'"]),
        ["echo", "Hello, Sandbox!"]
    );
    assert_eq!(argv(&["exec", "--", "sh", "-c", "a | b"]), ["sh", "-c", "a | b"]);
    assert_eq!(argv(&["exec", "--json", "--", "ls", "--json"]), ["ls", "--json"]);
    let settings = resolve(&["exec", "--allow-command", "ls", "--", "cat"]).unwrap();
    assert_eq!(policy(&settings).allowed_commands, ["ls"]);
}

#[test]
fn what_was_typed_arrives_in_the_request() {
    let settings = run(&[
        "--memory=64M",
        "--timeout=1.5s",
        "--cpu-seconds=2",
        "--processes=3",
        "--open-files=32",
        "--file-size=1M",
        "--disk=8M",
        "--output-limit=4K",
        "--cpu-percent=50",
        "--network=local",
        "--require=landlock",
        "--check-paths",
        "--tenant=t",
        "--user=u",
        "--run-id=r",
        "--env=A=b=c",
        "--env=PATH",
        "--file=dir/c.toml=Cargo.toml",
        "--mount=src:/workspace/src:rw",
        "--out=dir/o.txt",
        "--receipt",
        "--",
        "--json",
        "x",
    ]);
    let request = &settings.request;
    assert_eq!(request.limits.memory, Some(Bytes::from_mib(64)));
    assert_eq!(request.limits.wall_time.unwrap().get(), 1.5);
    assert_eq!(request.limits.cpu_time, Some(Seconds::whole(2)));
    assert_eq!(request.limits.processes, Some(3));
    assert_eq!(request.limits.open_files, Some(32));
    assert_eq!(request.limits.file_size, Some(Bytes::from_mib(1)));
    assert_eq!(request.limits.disk, Some(Bytes::from_mib(8)));
    assert_eq!(request.limits.output, Some(Bytes::new(4096)));
    assert_eq!(request.limits.cpu_percent, Some(50));
    assert_eq!(request.network, Some(NetworkPolicy::Local));
    assert_eq!(request.controls[&Control::Landlock], Demand::Require);
    assert!(request.check_paths && settings.receipt && !settings.json);
    assert_eq!(request.caller.tenant_id.as_deref(), Some("t"));
    assert_eq!(request.caller.user_id.as_deref(), Some("u"));
    assert_eq!(request.caller.run_id.as_deref(), Some("r"));
    assert_eq!(request.env["A"], "b=c");
    assert_eq!(request.env["PATH"], std::env::var("PATH").unwrap());
    let (path, file) = request.files.first_key_value().unwrap();
    assert_eq!(path.as_str(), "dir/c.toml");
    assert!(matches!(&file.content, Content::HostFile(path) if path.ends_with("Cargo.toml")));
    assert_eq!(request.mounts[0].access(), Access::ReadWrite);
    assert_eq!(settings.outputs[0].guest.as_str(), "dir/o.txt");
    assert_eq!(settings.outputs[0].shown, PathBuf::from("./o.txt"));
    assert_eq!(request.args, ["--json", "x"]);
}

/// R21: 30 seconds where nobody says; a named policy has its own.
#[test]
fn the_default_timeout_is_30_seconds_without_a_policy() {
    assert_eq!(run(&[]).request.limits.wall_time, Some(Seconds::whole(30)));
    let settings = run(&["--policy", "permissive"]);
    assert_eq!(settings.request.limits.wall_time, None);
    assert_eq!(policy(&settings).limits.wall_time(), Seconds::whole(120));
}

#[test]
fn a_terminal_is_not_passed_on_and_a_file_is() {
    assert!(matches!(run(&[]).request.stdin, Stdin::Empty));
    let settings = run(&["--stdin", "Cargo.toml"]);
    assert!(settings.input.is_some());
    assert!(matches!(settings.request.stdin, Stdin::Stream));
    assert!(run(&["--stdin", "-"]).input.is_some());
}

#[test]
fn outputs_go_to_files_or_into_directories() {
    let shown = |text: &str| run(&["--out", text]).outputs[0].shown.clone();
    assert_eq!(shown("a/b.txt"), PathBuf::from("./b.txt"));
    assert_eq!(shown("a/b.txt=src"), PathBuf::from("src/b.txt"));
    assert_eq!(shown("a/b.txt=src/c.txt"), PathBuf::from("./src/c.txt"));
    assert_eq!(shown("a/b.txt=."), PathBuf::from("./b.txt"));
}

/// The policy of this machine that it is held against.
fn policy(settings: &Settings) -> &belljar::Policy {
    match &settings.by {
        super::By::Us(policy) => policy,
        super::By::Service { .. } => panic!("a service is to run it"),
    }
}
