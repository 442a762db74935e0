//! P31 to P35, P38: files, descriptors and words of the host.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Stdio};

use super::{Done, answer, answers, enforced, expect_only, program};
use crate::harness::{Run, TempDir, Who, become_who, belljar, everyone, finish, is_root, run_code, spawn};

#[test]
fn p31_the_hosts_proc_and_sys_are_absent() {
    for who in everyone() {
        let done = program!("p31_proc.py").run(who, &[], &[]).go().expect_code(0);
        let stdout = done.guest_stdout();
        for (path, answer) in answers(&stdout) {
            match path {
                // Only its own: init is hidden.
                "processes" => assert_eq!(answer, own_processes(&done)),
                "others" => assert_eq!(answer, "self thread-self"),
                // Directories on the way to an interpreter that lives there.
                "/root" | "/home" => {}
                _ => assert!(
                    ["ENOENT", "EACCES", "EPERM"].contains(&answer),
                    "{path}: {answer}"
                ),
            }
        }
    }
}

/// Seen failing without the restrictions on `/proc`: the host's kernel can be read about.
#[cfg(feature = "weaken")]
#[test]
fn p31_the_hosts_proc_is_read_without_privateproc() {
    for who in everyone() {
        let done = program!("p31_proc.py")
            .run(who, &[], &[])
            .without("privateproc")
            .go()
            .expect_code(0);
        for path in ["/proc/sys/kernel/core_pattern", "/proc/kallsyms", "/proc/cmdline"] {
            assert_eq!(answer(&done, path), "ok");
        }
        assert_eq!(answer(&done, "processes"), format!("1 {}", own_processes(&done)));
    }
}

/// A program of the host's that the guest owns or may write to, as far as its mount allows.
fn with_tool(who: Who, access: &str) -> (TempDir, Run) {
    let place = TempDir::new();
    let tool = place.file("tool", "the host's own");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o666)).expect("open the tool");
    let mount = format!("{}:/workspace/shared:{access}", place.path().display());
    let run = program!("p32_own_program.py").run(who, &["--mount", &mount], &[]);
    (place, run)
}

#[test]
fn p32_programs_of_the_host_cannot_be_written() {
    let env = fs::read("/usr/bin/env").expect("a program");
    for who in everyone() {
        let (place, run) = with_tool(who, "ro");
        expect_only(
            &run.go().expect_code(0),
            &["EROFS", "EACCES", "EPERM", "ENOENT", "EXDEV", "ETXTBSY"],
        );
        assert_eq!(
            fs::read(place.path().join("tool")).expect("the tool"),
            b"the host's own"
        );
        assert_eq!(fs::read("/usr/bin/env").expect("a program"), env);
    }
}

/// The mount's access is the control: seen failing with a writable one.
#[test]
fn p32_a_program_in_a_writable_mount_is_written() {
    for who in everyone() {
        let (place, run) = with_tool(who, "rw");
        assert_eq!(answer(&run.go(), "truncate /workspace/shared/tool"), "ok");
        assert_eq!(fs::read(place.path().join("tool")).expect("the tool"), b"");
    }
}

/// The root itself: seen failing without the seal and Landlock.
#[cfg(feature = "weaken")]
#[test]
fn p32_the_root_is_written_without_sealroot_and_landlock() {
    for who in everyone() {
        let run = program!("p32_own_program.py").run(who, &[], &[]);
        let done = run.without("sealroot,landlock").go();
        assert_eq!(answer(&done, "in root"), "ok");
        assert_eq!(answer(&done, "truncate /usr/bin/env"), "EROFS");
    }
}

/// belljar started with a directory of the host open as descriptor 9, which nobody closes.
fn with_leaked_descriptor(who: Who, place: &TempDir, weaken: &str) -> String {
    let run = program!("p33_descriptors.py").run(who, &[], &[]).command();
    let mut command = Command::new("bash");
    command
        .args(["-c", "exec 9<\"$PLACE\"; exec \"$0\" \"$@\""])
        .arg(run.get_program())
        .args(run.get_args());
    command
        .env("PLACE", place.path())
        .env("BELLJAR_WEAKEN", weaken)
        .current_dir("/");
    if !weaken.is_empty() {
        // A fork of a warm interpreter closes its descriptors by itself: that cannot be switched off.
        command.env("BELLJAR_PATH", "");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    become_who(&mut command, who);
    let output = finish(spawn(&mut command)).stdout;
    let json: serde_json::Value = serde_json::from_slice(&output).expect("an outcome");
    json["outcome"]["stdout"].as_str().expect("output").to_owned()
}

#[test]
fn p33_only_the_streams_are_open() {
    for who in everyone() {
        let place = TempDir::new();
        place.file("canary", "");
        let stdout = with_leaked_descriptor(who, &place, "");
        let descriptors: Vec<_> = stdout
            .lines()
            .filter(|line| line.starts_with("descriptor"))
            .collect();
        assert_eq!(
            descriptors,
            ["descriptor 0: pipe", "descriptor 1: pipe", "descriptor 2: pipe"]
        );
        assert!(
            !stdout.contains("through") && !stdout.contains("canary"),
            "{stdout}"
        );
        assert!(stdout.contains("above is the root: True\n"), "{stdout}");
        let root = answers(&stdout)["root holds"];
        assert!(
            ["boot", "mnt", "srv", "run", "sys"]
                .iter()
                .all(|name| !root.contains(name)),
            "{root}"
        );
    }
}

/// Seen failing where neither init nor the guest's fork closes what it was not given, and Landlock
/// does not hold the rest: the host's directory can be read through the descriptor.
#[cfg(feature = "weaken")]
#[test]
fn p33_a_descriptor_gets_through_without_closing() {
    for who in everyone() {
        let place = TempDir::new();
        place.file("canary", "");
        let stdout = with_leaked_descriptor(who, &place, "closeforeigndescriptors,closedescriptors,landlock");
        assert_eq!(answers(&stdout).get("through 9"), Some(&"canary"), "{stdout}");
    }
}

/// A place that leads through a descriptor (CVE-2024-21626) can be named nowhere in a request.
#[test]
fn p34_places_behind_descriptors_are_rejected() {
    for who in everyone() {
        let place = TempDir::new();
        let host = place.file("canary", "");
        let (dir, file) = (place.path().display(), host.display());
        for option in [
            ["--mount".to_owned(), format!("{dir}:/proc/self/fd/7")],
            ["--mount".to_owned(), format!("{dir}:/dev/fd/7")],
            ["--mount".to_owned(), format!("{dir}:/workspace/../proc/self/fd")],
            ["--mount".to_owned(), "/proc/self/fd/97:/workspace/x".to_owned()],
            ["--file".to_owned(), format!("/proc/self/fd/7={file}")],
            ["--file".to_owned(), format!("../proc/self/cwd/x={file}")],
            ["--out".to_owned(), "/proc/self/fd/7".to_owned()],
        ] {
            let all = ["run", &option[0], &option[1], "-c", "print('ran')"];
            let done = belljar(who, all).go().expect_code(2).expect_stdout("");
            assert!(done.stderr.contains(&option[0]), "{done:#?}");
        }
        // Where belljar itself stands is no concern of the guest's.
        let done = run_code(who, "bash", "pwd -P; ls", &[])
            .cwd(place.path())
            .go()
            .expect_code(0);
        assert_eq!(done.guest_stdout(), "/workspace\nmain.bash\n");
        // A plain place is fine, so it is the place that is refused.
        let mount = format!("{dir}:/workspace/shown");
        let done = run_code(who, "bash", "ls shown", &["--mount", &mount])
            .go()
            .expect_code(0);
        assert_eq!(done.guest_stdout(), "canary\n");
    }
}

/// The program, and the holder of its memory where it is a fork of a warm interpreter and a cgroup counts memory.
fn own_processes(done: &Done) -> &'static str {
    match std::env::var("BELLJAR_PATH").as_deref() {
        Ok("ahead" | "forked") if enforced(done, "memory-cgroup") => "2 3",
        _ => "2",
    }
}

/// Seen failing when the variable is passed on: it is found in three places.
#[test]
fn p35_the_hosts_words_are_not_found() {
    for who in everyone() {
        let program = program!("p35_canary.py");
        let done = program
            .run(who, &[], &["nary-35,ca"])
            .env("SECRET", "canary-35")
            .go()
            .expect_code(0);
        assert_eq!(answer(&done, "found"), "nothing");
        let run = program
            .run(who, &["--env", "SECRET"], &["nary-35,ca"])
            .env("SECRET", "canary-35");
        // In the environment of any program, and where one that is executed has it from the start.
        let found = answer(&run.on_demand().go(), "found").to_owned();
        assert_eq!(found, "environment 2/environ memory of [stack]");
    }
}

/// An id that nobody has.
const SOMEONE: u32 = 64_001;

/// The last link, to a file of its own, shows that links can be made there at all.
#[test]
fn p38_hard_links_to_foreign_files_are_refused() {
    for who in everyone() {
        let place = TempDir::new();
        place.file("foreign", "not the guest's");
        if is_root() {
            // The directory's owner is shown as the guest, so the file must have another one.
            chown(place.path(), Some(SOMEONE), Some(SOMEONE)).expect("chown");
        }
        let mount = format!("{}:/workspace/shared:rw", place.path().display());
        let done = program!("p38_hardlink.py")
            .run(who, &["--mount", &mount], &[])
            .go()
            .expect_code(0);
        assert_eq!(answer(&done, "system"), "EXDEV");
        assert_eq!(answer(&done, "system to mount"), "EXDEV");
        if is_root() {
            // Where owners are mapped, a foreign one has no number that the kernel could compare.
            let foreign = answer(&done, "foreign in mount");
            assert!(["EPERM", "EOVERFLOW"].contains(&foreign.as_str()), "{done:#?}");
            assert_eq!(answer(&done, "own"), "ok");
        }
    }
}
