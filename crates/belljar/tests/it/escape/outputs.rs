//! P36, P37, P39 to P41: what goes in and comes out as files.

use std::fs;
use std::path::Path;

use super::{Done, answer, program};
use crate::harness::{TempDir, belljar, everyone};

/// A file of the host that no guest may see the inside of; everyone may read it, so that only
/// belljar's care keeps it.
fn canary() -> (TempDir, String) {
    let place = TempDir::new();
    let path = place.file("canary", "CANARY").display().to_string();
    (place, path)
}

/// What belljar says about a wanted file: `collected`, or why it was refused.
#[track_caller]
fn state(done: &Done, path: &str) -> String {
    let json = done.json();
    let files = json["outcome"]["files"].as_array().expect("files");
    let file = files
        .iter()
        .find(|file| file["path"] == path)
        .unwrap_or_else(|| panic!("no {path}: {files:#?}"));
    file["reason"]
        .as_str()
        .or(file["state"].as_str())
        .expect("a state")
        .to_owned()
}

/// The content of every file below a directory.
fn delivered(place: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(place).expect("a place").flatten() {
        if entry.path().is_dir() {
            found.extend(delivered(&entry.path()));
        } else {
            let content = fs::read(entry.path()).expect("a delivered file");
            let name = entry.file_name().to_string_lossy().into_owned();
            found.push((name, String::from_utf8_lossy(&content).into_owned()));
        }
    }
    found.sort();
    found
}

fn wanted(names: &[&str], to: &TempDir) -> Vec<String> {
    let out = |name: &&str| ["--out".to_owned(), format!("{name}={}/", to.path().display())];
    names.iter().flat_map(out).collect()
}

#[test]
fn p36_links_in_place_of_outputs_are_refused() {
    for who in everyone() {
        let ((_host, canary), to) = (canary(), TempDir::new());
        let options = wanted(&["direct", "inner", "dir", "magic", "hard", "honest"], &to);
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let done = program!("p36_output_link.bash")
            .run(who, &options, &[&canary])
            .go()
            .expect_code(1);
        for name in ["direct", "inner/deep", "dir", "magic"] {
            assert!(state(&done, name).contains("symbolic link"), "{done:#?}");
        }
        assert_eq!(state(&done, "hard"), "not there");
        assert_eq!(
            delivered(to.path()),
            [("honest".to_owned(), "honest\n".to_owned())]
        );
    }
}

/// Seen failing where files are opened like any other: the canary comes out.
#[cfg(feature = "weaken")]
#[test]
fn p36_a_link_gets_through_without_collectsafely() {
    for who in everyone() {
        let ((_host, canary), to) = (canary(), TempDir::new());
        let options = wanted(&["direct"], &to);
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let run = program!("p36_output_link.bash").run(who, &options, &[&canary]);
        run.without("collectsafely").go().expect_code(0);
        assert_eq!(delivered(to.path()), [("direct".to_owned(), "CANARY".to_owned())]);
    }
}

/// Two layers hold it: nothing of the guest is alive when files are taken, and no link is followed.
/// The first was seen failing in P14, the second in P36.
#[test]
fn p37_exchanged_names_never_give_the_canary() {
    for who in everyone() {
        for _ in 0..4 {
            let ((_host, canary), to) = (canary(), TempDir::new());
            let options = wanted(&["out"], &to);
            let options: Vec<_> = options.iter().map(String::as_str).collect();
            let done = program!("p37_exchange.py")
                .run(who, &options, &[&canary])
                .go()
                .expect_code(1);
            // One of the two names is the file, the other the link, whichever way it ended.
            let files = delivered(to.path());
            assert_eq!(files.len(), 1, "{done:#?}");
            assert_eq!(files[0].1, "honest");
        }
    }
}

/// Each is refused as a mistake in the input, before anything runs; the honest one goes in, so it
/// is not archives as such that are refused.
#[test]
fn p39_hostile_archives_are_refused() {
    let place = TempDir::new();
    let dir = place.path().display().to_string();
    program!("p39_archives.py").outside(&[&dir]);
    let mut archives: Vec<_> = fs::read_dir(place.path())
        .expect("archives")
        .flatten()
        .map(|one| one.path())
        .collect();
    archives.sort();
    assert_eq!(archives.len(), 16, "{archives:?}");
    for who in everyone() {
        for archive in &archives {
            let name = archive.display().to_string();
            let code = "import os; print(sorted(os.listdir('.')))";
            let done = belljar(who, ["run", "--disk", "64M", "--unpack", &name, "-c", code]).go();
            if name.ends_with("honest.tar") {
                done.expect_code(0).expect_stdout("['data', 'main.py']\n");
                continue;
            }
            let done = done.expect_code(2).expect_stdout("");
            assert!(done.stderr.contains("--unpack: cannot "), "{name}: {done:#?}");
        }
        assert!(!Path::new("/tmp/absolute").exists() && !Path::new("/tmp/planted").exists());
    }
}

/// The type is looked at before anything is opened. Not tried without: opening a FIFO would hang.
#[test]
fn p40_fifos_and_sockets_are_not_taken() {
    for who in everyone() {
        let to = TempDir::new();
        let options = wanted(&["fifo", "socket", "dir", "zero"], &to);
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let done = program!("p40_odd_outputs.py")
            .run(who, &options, &[])
            .go()
            .expect_code(1);
        assert!(state(&done, "fifo").contains("FIFO") && state(&done, "dir/fifo").contains("FIFO"));
        assert!(state(&done, "socket").contains("socket"));
        assert!(state(&done, "zero").contains("symbolic link"));
        assert_eq!(delivered(to.path()), [("honest".to_owned(), "honest".to_owned())]);
    }
}

/// 2,000 deep and not 10,000, since each step down costs Landlock a walk up; belljar's own bound is
/// far above that already. Seen getting through with plain names: the last one.
#[test]
fn p41_deep_directories_and_odd_names_are_encoded() {
    for who in everyone() {
        let to = TempDir::new();
        let options = wanted(&["out"], &to);
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let done = program!("p41_names.py")
            .run(who, &options, &["2000"])
            .go()
            .expect_code(1);
        assert_eq!(answer(&done, "depth"), "2000");
        assert!(done.stdout.contains("deeper than 64 directories"), "{done:#?}");
        for name in [
            r"out/new\x0aline",
            r"out/escape\x1b[2J",
            r"out/not-utf8-\xff\xfe",
            r"out/back\\slash",
            r"out/\xe2\x80\xaegnp.txt",
            "out/-rf",
        ] {
            assert_eq!(state(&done, name), "collected");
        }
        let names: Vec<_> = delivered(to.path()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 6);
        assert!(
            names
                .iter()
                .all(|name| !name.chars().any(char::is_control) && name.is_ascii()),
            "{names:?}"
        );
        // What people read on standard error is inert as well.
        assert!(!done.stderr.contains('\x1b'), "{done:#?}");
    }
}
