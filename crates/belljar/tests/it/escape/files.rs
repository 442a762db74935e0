//! P31 to P35, P38: files, descriptors and words of the host.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use super::{Done, answer, answers, expect_only, program};
use crate::harness::{Run, TempDir, Who, belljar, everyone, executable, is_root, run_code};

#[test]
fn p31_the_hosts_proc_and_sys_are_absent() {
    for who in everyone() {
        let done = program!("p31_proc.py").run(who, &[], &[]).go().expect_code(0);
        let stdout = done.guest_stdout();
        for (path, answer) in answers(&stdout) {
            match path {
                // Only its own: init is hidden.
                "processes" => assert_eq!(answer, "2"),
                "others" => assert_eq!(answer, "self thread-self"),
                // Directories on the way to an interpreter that lives there.
                "/root" | "/home" => {}
                _ => assert!(["ENOENT", "EACCES", "EPERM"].contains(&answer), "{path}: {answer}"),
            }
        }
    }
}

/// Seen failing without the restrictions on `/proc`: the host's kernel can be read about.
#[cfg(feature = "weaken")]
#[test]
fn p31_the_hosts_proc_is_read_without_privateproc() {
    for who in everyone() {
        let done = program!("p31_proc.py").run(who, &[], &[]).without("privateproc").go().expect_code(0);
        for path in ["/proc/sys/kernel/core_pattern", "/proc/kallsyms", "/proc/cmdline"] {
            assert_eq!(answer(&done, path), "ok");
        }
        assert_eq!(answer(&done, "processes"), "1 2");
    }
}

/// A directory with a program in it that belongs to whom the guest is shown as.
fn with_tool(who: Who, access: &str) -> (TempDir, Run) {
    let place = TempDir::new();
    let tool = place.file("tool", "the host's own");
    if who == Who::User && is_root() {
        // Ours to give away; the guest of an ordinary user is that user.
        let _ = fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o666));
    }
    let mount = format!("{}:/workspace/shared:{access}", place.path().display());
    let run = program!("p32_own_program.py").run(who, &["--mount", &mount], &[]);
    (place, run)
}

#[test]
fn p32_programs_of_the_host_cannot_be_written() {
    let env = fs::read("/usr/bin/env").expect("a program");
    for who in everyone() {
        let (place, run) = with_tool(who, "ro");
        expect_only(&run.go().expect_code(0), &["EROFS", "EACCES", "EPERM", "ENOENT", "EXDEV", "ETXTBSY"]);
        assert_eq!(fs::read(place.path().join("tool")).expect("the tool"), b"the host's own");
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
fn with_leaked_descriptor(who: Who, place: &TempDir, weaken: &str) -> Done {
    let shell = format!("exec 9<'{}' && exec \"$0\" \"$@\"", place.path().display());
    let run = program!("p33_descriptors.py").run(who, &[], &[]);
    let run = if weaken.is_empty() { run } else { run.env("BELLJAR_WEAKEN", weaken) };
    let inner = run.command();
    let mut command = Command::new("bash");
    command.args(["-c", &shell]).arg(inner.get_program()).args(inner.get_args());
    command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    run.go_as(command)
}

#[test]
fn p33_only_the_streams_are_open() {
    for who in everyone() {
        let place = TempDir::new();
        place.file("canary", "");
        let done = with_leaked_descriptor(who, &place, "").expect_code(0);
        let stdout = done.guest_stdout();
        let descriptors: Vec<_> = stdout.lines().filter(|line| line.starts_with("descriptor")).collect();
        assert_eq!(descriptors, ["descriptor 0: pipe", "descriptor 1: pipe", "descriptor 2: pipe"]);
        assert!(!stdout.contains("through") && !stdout.contains("canary"), "{stdout}");
        assert_eq!(answer(&done, "above is the root"), "True");
        assert!(!answer(&done, "root holds").contains("boot"), "{stdout}");
    }
}

/// Seen failing where neither init nor the guest's fork closes what it was not given: the host's
/// directory can be read through the descriptor.
#[cfg(feature = "weaken")]
#[test]
fn p33_a_descriptor_gets_through_without_closing() {
    for who in everyone() {
        let place = TempDir::new();
        place.file("canary", "");
        let done = with_leaked_descriptor(who, &place, "closeforeigndescriptors,closedescriptors");
        assert_eq!(answer(&done, "through 9"), "canary");
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
        let done = run_code(who, "bash", "pwd -P; ls", &[]).cwd(place.path()).go().expect_code(0);
        assert_eq!(done.guest_stdout(), "/workspace\nmain.bash\n");
        // A plain place is fine, so it is the place that is refused.
        let mount = format!("{dir}:/workspace/shown");
        let done = run_code(who, "bash", "ls shown", &["--mount", &mount]).go().expect_code(0);
        assert_eq!(done.guest_stdout(), "canary\n");
    }
}

/// Seen failing when the variable is passed on: it is found in three places.
#[test]
fn p35_the_hosts_words_are_not_found() {
    for who in everyone() {
        let program = program!("p35_canary.py");
        let done = program.run(who, &[], &["nary-35,ca"]).env("SECRET", "canary-35").go().expect_code(0);
        assert_eq!(answer(&done, "found"), "nothing");
        let run = program.run(who, &["--env", "SECRET"], &["nary-35,ca"]).env("SECRET", "canary-35");
        assert_eq!(answer(&run.go(), "found"), "environment 2/environ memory of [stack]");
    }
}

/// The last link, to a file of its own, shows that links can be made there at all.
#[test]
fn p38_hard_links_to_foreign_files_are_refused() {
    for who in everyone() {
        let place = TempDir::new();
        let foreign = place.file("foreign", "not the guest's");
        if is_root() {
            // The directory's owner is shown as the guest, so the file needs another one.
            let guest = fs::metadata(executable()).map(|_| 64_001).expect("the executable");
            chown(&foreign, Some(0), Some(0)).expect("chown");
            chown(place.path(), Some(guest), Some(guest)).expect("chown");
        } else {
            continue;
        }
        let mount = format!("{}:/workspace/shared:rw", place.path().display());
        let done = program!("p38_hardlink.py").run(who, &["--mount", &mount], &[]).go().expect_code(0);
        assert_eq!(answer(&done, "system"), "EXDEV");
        assert_eq!(answer(&done, "system to mount"), "EXDEV");
        assert_eq!(answer(&done, "foreign in mount"), "EPERM");
        assert_eq!(answer(&done, "own"), "ok");
    }
}
