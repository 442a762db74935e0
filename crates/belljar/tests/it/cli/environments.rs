//! `belljar env`, and runs in what it makes. The wheels are made here, so no network is needed.

mod hostile;
mod lifetimes;
mod sessions;
mod wheel;
mod zygote;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use wheel::Wheel;

use super::expect_one_problem;
use crate::harness::{Run, TempDir, Who, belljar, everyone, finish, output_of, spawn};
use crate::machine::absent;

/// A store of environments and a directory of wheels, both gone afterwards.
struct Place {
    dir: TempDir,
    who: Who,
}

impl Place {
    fn new(who: Who) -> Self {
        Self::with(who, TempDir::new())
    }

    fn with(who: Who, dir: TempDir) -> Self {
        fs::create_dir(dir.path().join("wheels")).expect("a directory");
        Self { dir, who }
    }

    fn wheels(&self) -> PathBuf {
        self.dir.path().join("wheels")
    }

    fn put(&self, wheel: &Wheel) -> String {
        wheel.write(&self.wheels()).display().to_string()
    }

    fn environments(&self) -> PathBuf {
        self.dir.path().join("home/environments")
    }

    fn belljar(&self, args: &[&str]) -> Run {
        let home = self.dir.path().join("home");
        belljar(self.who, args.iter().copied())
            .env("BELLJAR_HOME", home.to_str().expect("plain"))
            .cwd(self.dir.path())
    }

    /// `belljar env create NAME …`, which must work.
    #[track_caller]
    fn create(&self, args: &[&str]) -> crate::harness::Done {
        let all: Vec<&str> = ["env", "create"].iter().chain(args).copied().collect();
        self.belljar(&all).go().expect_code(0)
    }

    /// The same while an engine of this process lives.
    #[track_caller]
    fn create_beside(&self, args: &[&str]) {
        let all: Vec<&str> = ["env", "create"].iter().chain(args).copied().collect();
        let output = finish(spawn(&mut self.belljar(&all).command()));
        assert!(output.status.success(), "{output:#?}");
    }

    /// What `code` prints in the environment.
    #[track_caller]
    fn prints(&self, name: &str, code: &str) -> String {
        let done = self.belljar(&["run", "-E", name, "-c", code]).go();
        assert_eq!(done.code, Some(0), "{done:#?}");
        done.stdout
    }

    fn entries(&self, of: &str) -> Vec<String> {
        let entries = fs::read_dir(self.environments().join(of));
        let mut names: Vec<_> = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[track_caller]
    fn expect_nothing_built(&self) {
        for part in ["names", "content", "building"] {
            assert_eq!(self.entries(part), [""; 0], "{part}");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What is sealed cannot be removed by its owner as it is.
        let mut waiting = vec![self.environments()];
        while let Some(dir) = waiting.pop() {
            let _ = fs::set_permissions(&dir, fs::Permissions::from_mode(0o700));
            let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
            waiting.extend(
                entries
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.path()),
            );
        }
    }
}

#[test]
fn an_environment_is_made_used_shown_and_removed() {
    for who in everyone() {
        let place = Place::new(who);
        let wheel = place.put(&Wheel::new("bell-jar", "1.2").module("bell_jar", "NAME = 'glass'"));
        let made = place.create(&["data", "--packages", &wheel, "--preload", "bell_jar"]);
        assert!(made.stdout.starts_with("data: Python 3."), "{made:#?}");
        assert!(made.stderr.contains("Importing bell_jar\n"), "{made:#?}");
        let code =
            "import bell_jar, sys; print(bell_jar.NAME, sys.prefix != sys.base_prefix, bell_jar.__cached__)";
        let printed = place.prints("data", code);
        assert!(printed.starts_with("glass True /"), "{printed}");
        // Every file has its bytecode already, and nothing can be written there.
        let code = "import bell_jar, os; print(os.path.exists(bell_jar.__cached__))
for path in (bell_jar.__file__, bell_jar.__cached__, os.path.dirname(bell_jar.__file__) + '/new'):
    try: open(path, 'a'); print('written', path)
    except OSError: print('refused')";
        assert_eq!(place.prints("data", code), "True\nrefused\nrefused\nrefused\n");
        // A scripts' first line, and commands by their bare name.
        place
            .belljar(&["exec", "-E", "data", "--", "bell-jar-script"])
            .go()
            .expect_code(0)
            .expect_stdout("from the script\n");
        // The host is still the default, and has none of it.
        place
            .belljar(&["run", "-c", "import bell_jar"])
            .go()
            .expect_code(1);
        place
            .belljar(&["run", "-E", "host", "-c", "print(1)"])
            .go()
            .expect_code(0);

        let list = place.belljar(&["env", "list"]).go().expect_code(0).stdout;
        assert!(list.contains("\nhost ") && list.contains("\ndata "), "{list}");
        let shown = place
            .belljar(&["env", "show", "data", "--verify", "--json"])
            .go()
            .expect_code(0)
            .json();
        assert_eq!(shown["verified"], true);
        assert_eq!(shown["packages"][0]["name"], "bell-jar");
        assert_eq!(shown["packages"][0]["version"], "1.2");
        assert_eq!(shown["preload"][0], "bell_jar");
        let done = place
            .belljar(&["run", "--json", "-E", "data", "-c", "print(1)"])
            .go()
            .expect_code(0);
        let used = &done.json()["outcome"]["receipt"]["environment"];
        assert_eq!(used["name"], "data");
        assert_eq!(used["digest"], shown["digest"]);
        assert_eq!(shown["digest"].as_str().map(str::len), Some(64));

        place.belljar(&["env", "remove", "data"]).go().expect_code(0);
        place.expect_nothing_built();
    }
}

#[test]
fn packages_come_from_a_directory_with_what_they_need_and_no_more() {
    for who in everyone() {
        let place = Place::new(who);
        for wheel in [
            Wheel::new("top", "1.0")
                .needs("below>=2,<3")
                .module("top", "import below; V = below.V"),
            Wheel::new("below", "1.0").module("below", "V = 1"),
            Wheel::new("below", "2.5").module("below", "V = 2.5"),
            Wheel::new("below", "3.0").module("below", "V = 3"),
            Wheel::new("unneeded", "1.0"),
        ] {
            place.put(&wheel);
        }
        place
            .dir
            .file("requirements.txt", "# what we use\ntop>=1,<2  # the top\n");
        place.create(&[
            "a",
            "--packages",
            "top>=1,<2",
            "--wheels",
            "wheels",
            "--preload",
            "top",
        ]);
        place.create(&[
            "b",
            "-r",
            "requirements.txt",
            "--wheels",
            "wheels",
            "--preload",
            "top",
        ]);
        let code = "import top; print(top.V)\nfrom importlib.metadata import distributions as d
print(sorted(x.name for x in d() if 'content' in str(x._path)))";
        assert_eq!(place.prints("a", code), "2.5\n['below', 'top']\n");
        // The same wheels in the same Python are the same environment.
        assert_eq!(place.entries("content").len(), 1);
        place.belljar(&["env", "remove", "a"]).go().expect_code(0);
        assert_eq!(place.prints("b", "import top; print(top.V)"), "2.5\n");
        place.belljar(&["env", "remove", "b"]).go().expect_code(0);
        place.expect_nothing_built();
    }
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_made() {
    for who in everyone() {
        let place = Place::new(who);
        place.dir.file("not-a-wheel.whl", "x");
        place.dir.file("bad.txt", "six\n--index-url http://127.0.0.1\n");
        for args in [
            &["../x"][..],
            &["a/b"],
            &[""],
            &["host"],
            &["x", "--python", "3.99"],
            &["x", "--python", "three"],
            &["x", "--python", "/bin/true"],
            &["x", "--python", "./absent/python"],
            &["x", "--packages", "--index-url=http://127.0.0.1"],
            &["x", "--packages", "-e."],
            &["x", "--packages", "six,-r/etc/passwd"],
            &["x", "--packages", "git+https://127.0.0.1/x"],
            &["x", "--packages", "x @ https://127.0.0.1/x.whl"],
            &["x", "--packages", "./source"],
            &["x", "--packages", "source.tar.gz"],
            &["x", "--packages", "absent-1.0-py3-none-any.whl"],
            &["x", "--packages", "not-a-wheel.whl"],
            &["x", "-r", "absent.txt"],
            &["x", "-r", "bad.txt"],
            &["x", "--wheels", "absent", "--packages", "six"],
            &["x", "--preload", "os; import x"],
            &["x", "--preload", ""],
        ] {
            let all: Vec<&str> = ["env", "create"].iter().chain(args).copied().collect();
            let done = place.belljar(&all).go();
            assert_eq!(done.code, Some(2), "{args:?}: {done:#?}");
            expect_one_problem(&done);
        }
        place.expect_nothing_built();
        for args in [
            &["env", "show", "nope"][..],
            &["env", "remove", "nope"],
            &["run", "-E", "nope", "-c", "print(1)"],
            &["exec", "-E", "../nope", "--", "ls"],
        ] {
            let done = place.belljar(args).go();
            assert_eq!(done.code, Some(2), "{args:?}: {done:#?}");
            expect_one_problem(&done);
        }
        place.create(&["here"]);
        let done = place
            .belljar(&["run", "-E", "nope", "-c", "1"])
            .go()
            .expect_code(2);
        assert!(done.stderr.contains("there are host, here"), "{done:#?}");
    }
}

#[test]
fn a_build_that_fails_says_why_and_leaves_nothing() {
    for who in everyone() {
        let place = Place::new(who);
        let fine = place.put(&Wheel::new("fine", "1.0").module("fine", "1"));
        let broken = place.wheels().join("broken-1.0-py3-none-any.whl");
        fs::write(&broken, "this is no archive").expect("a file");
        let picky = place.put(&Wheel::new("picky", "1.0").needs("nowhere-to-be-found"));
        let loud =
            place.put(&Wheel::new("loud", "1.0").module("loud", "raise ValueError('too \x1b[31mloud')"));
        let exits = place.put(&Wheel::new("exits", "1.0").module("exits", "raise SystemExit('bye')"));
        let broken = broken.to_str().expect("plain");
        for (args, why) in [
            (&["--packages", "nosuch", "--wheels", "wheels"][..], "nosuch"),
            (&["--packages", broken], "broken-1.0-py3-none-any.whl"),
            (&["--packages", &picky], "nowhere-to-be-found"),
            (
                &["--packages", &fine, "--preload", "fine,absent"],
                "ModuleNotFoundError: No module named 'absent'",
            ),
            (
                &["--packages", &loud, "--preload", "loud"],
                "ValueError: too \\u{1b}[31mloud",
            ),
            (&["--packages", &exits, "--preload", "exits"], "SystemExit: bye"),
        ] {
            let all: Vec<&str> = ["env", "create", "x"].iter().chain(args).copied().collect();
            let done = place.belljar(&all).go().expect_code(125);
            let problem = done.stderr.lines().rev().nth(1).unwrap_or_default();
            assert!(
                problem.starts_with("belljar: cannot ") && problem.contains(why),
                "{done:#?}"
            );
            assert!(
                done.stderr
                    .lines()
                    .last()
                    .is_some_and(|line| line.starts_with("hint: ")),
                "{done:#?}"
            );
            assert!(
                !done.stderr.contains('\x1b') && done.stdout.is_empty(),
                "{done:#?}"
            );
            place.expect_nothing_built();
        }
    }
}

#[test]
fn a_store_that_others_could_change_or_nobody_can_is_not_used() {
    for who in everyone() {
        let dir = TempDir::new();
        let environments = dir.path().join("open/environments");
        fs::create_dir_all(&environments).expect("a directory");
        fs::set_permissions(&environments, fs::Permissions::from_mode(0o777)).expect("open it");
        for home in [
            dir.path().join("open").to_str().expect("plain"),
            "/proc/nowhere",
            "/dev/null",
        ] {
            let done = belljar(who, ["env", "create", "x"])
                .env("BELLJAR_HOME", home)
                .go();
            assert_eq!(done.code, Some(125), "{home}: {done:#?}");
            expect_one_problem(&done);
        }
    }
}

#[test]
fn a_store_where_nothing_can_be_shown_is_refused_early() {
    let who = everyone()[0];
    let home = format!("/dev/shm/belljar-it-{}", std::process::id());
    let done = belljar(who, ["env", "create", "x"])
        .env("BELLJAR_HOME", &home)
        .go()
        .expect_code(2);
    fs::remove_dir_all(&home).expect("an empty store");
    expect_one_problem(&done);
    assert!(done.stderr.contains("set BELLJAR_HOME"), "{done:#?}");
}

#[test]
fn a_change_is_found_and_a_moved_store_is_not_used() {
    for who in everyone() {
        let place = Place::new(who);
        let wheel = place.put(&Wheel::new("steady", "1.0").module("steady", "V = 1"));
        place.create(&["x", "--packages", &wheel]);
        let show = || place.belljar(&["env", "show", "x", "--verify"]).go();
        show().expect_code(0);
        let content = place
            .environments()
            .join("content")
            .join(&place.entries("content")[0]);
        let victim = fs::read_dir(content.join("tree/lib"))
            .expect("lib")
            .flatten()
            .next()
            .expect("a Python")
            .path()
            .join("site-packages/steady.py");
        let mode = fs::metadata(&victim).expect("the module").permissions().mode();
        assert_eq!(mode & 0o7777, 0o444);
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o644)).expect("chmod");
        fs::write(&victim, "V = 2").expect("write");
        let done = show().expect_code(125);
        expect_one_problem(&done);
        assert!(done.stderr.contains("not the ones that were built"), "{done:#?}");

        let moved = place.dir.path().join("home/moved");
        fs::create_dir(&moved).expect("a directory");
        fs::rename(place.environments(), moved.join("environments")).expect("rename");
        let done = belljar(who, ["run", "-E", "x", "-c", "1"])
            .env("BELLJAR_HOME", moved.to_str().expect("plain"))
            .go()
            .expect_code(125);
        expect_one_problem(&done);
        fs::rename(moved.join("environments"), place.environments()).expect("rename");
    }
}

#[test]
fn a_policy_can_list_environments() {
    let who = everyone()[0];
    let place = Place::new(who);
    place.create(&["listed"]);
    place.create(&["other", "--preload", "json"]);
    let policy = place.dir.file(
        "p.toml",
        "extends = \"standard\"\nallowed_environments = [\"listed\"]\n",
    );
    let run = |name: &str| {
        let policy = policy.to_str().expect("plain");
        place
            .belljar(&["run", "--policy", policy, "-E", name, "-c", "print(1)"])
            .go()
    };
    run("listed").expect_code(0);
    run("host").expect_code(0);
    let done = run("other").expect_code(126);
    expect_one_problem(&done);
    assert!(
        done.stderr.contains("add \"other\" to allowed_environments"),
        "{done:#?}"
    );
}

/// The real index, where there is one to reach.
#[test]
fn numpy_comes_from_the_index() {
    for who in everyone() {
        let place = Place::new(who);
        let create = ["env", "create", "np", "--packages", "numpy", "--preload", "numpy"];
        let mut run = place.belljar(&create);
        // What pip is told about the network on this machine.
        for (name, value) in std::env::vars() {
            let upper = name.to_ascii_uppercase();
            if upper.starts_with("PIP_") || upper.ends_with("_PROXY") || upper.starts_with("SSL_CERT") {
                run = run.env(&name, &value);
            }
        }
        let done = run.go();
        if done.code != Some(0) && !reachable(who, &place) {
            absent("an environment with numpy", "the package index cannot be reached");
            place.expect_nothing_built();
            continue;
        }
        assert_eq!(done.code, Some(0), "{done:#?}");
        let code = "import numpy; print((numpy.arange(9).reshape(3, 3) @ numpy.eye(3)).sum())";
        assert_eq!(place.prints("np", code), "36.0\n");
    }
}

/// Whether pip itself gets numpy here.
fn reachable(who: Who, place: &Place) -> bool {
    let mut command = std::process::Command::new("/usr/bin/python3");
    command
        .args([
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            "numpy",
            "-d",
        ])
        .arg(place.dir.path().join("probe"));
    crate::harness::become_who(&mut command, who);
    output_of(&mut command).status.success()
}

/// The Python that `who` gets, for tests that need pip itself.
fn host_python(place: &Place) -> PathBuf {
    let done = place.belljar(&["languages", "--json"]).go().expect_code(0);
    let rows = done.json();
    let python = rows
        .as_array()
        .and_then(|rows| rows.iter().find(|row| row["language"] == "python"))
        .and_then(|row| row["programs"][0].as_str().map(PathBuf::from));
    python.expect("a Python")
}

fn contains_file(dir: &Path, name: &str) -> bool {
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_name() == name {
                return true;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
        }
    }
    false
}
