//! Packages that nobody has read: what they try while an environment is built stays inside.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::wheel::Wheel;
use super::{Place, contains_file, host_python};
use crate::harness::{Who, become_who, everyone, output_of};
use crate::machine::{absent, path};

/// What a module does when it is imported: write wherever it can, read what is not its, call home.
fn attack(canary: &str, port: u16) -> String {
    format!(
        "import os, socket, sys
told = []
for place in ('{canary}', sys.prefix + '/planted', os.path.dirname(__file__) + '/planted', '/usr/planted', '/etc/planted'):
    try:
        open(place, 'w').write('gotcha'); told.append('wrote ' + place)
    except OSError: pass
for place in ('/etc/shadow', os.path.dirname('{canary}')):
    try:
        (os.listdir if os.path.isdir(place) else open)(place); told.append('read ' + place)
    except OSError: pass
try:
    socket.create_connection(('127.0.0.1', {port}), 2); told.append('called home')
except OSError: pass
if told: raise RuntimeError('; '.join(told))
"
    )
}

#[test]
fn an_import_during_the_build_is_contained() {
    for who in everyone() {
        let place = Place::new(who);
        let home = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = home.local_addr().expect("an address").port();
        home.set_nonblocking(true).expect("not blocking");
        let private = place.dir.path().join("private");
        fs::create_dir(&private).expect("a directory");
        let canary = private.join("canary");
        fs::write(&canary, "intact").expect("a canary");
        let source = attack(canary.to_str().expect("plain"), port);
        let wheel = place.put(&Wheel::new("evil", "1.0").module("evil", &source));
        // It raises when it managed anything, and then the build would fail.
        place.create(&["x", "--packages", &wheel, "--preload", "evil"]);
        assert_eq!(fs::read_to_string(&canary).expect("a canary"), "intact");
        assert!(!contains_file(&place.environments(), "planted"));
        assert!(home.accept().is_err(), "somebody called home");
        place
            .belljar(&["env", "show", "x", "--verify"])
            .go()
            .expect_code(0);
    }
}

/// A `.pth` file runs whenever the environment's Python starts: that must not happen while its tree
/// can still be written to.
#[test]
fn code_that_runs_at_every_start_cannot_change_the_tree() {
    for who in everyone() {
        let place = Place::new(who);
        let source = "import sys
try:
    open(sys.prefix + '/planted', 'w')
except OSError:
    print('started and refused')
";
        let wheel = Wheel::new("early", "1.0")
            .module("early", source)
            .file("early.pth", "import early\n");
        let wheel = place.put(&wheel);
        place.create(&["x", "--packages", &wheel, "--preload", "json"]);
        assert!(!contains_file(&place.environments(), "planted"));
        assert_eq!(place.prints("x", "print(1)"), "started and refused\n1\n");
        place
            .belljar(&["env", "show", "x", "--verify"])
            .go()
            .expect_code(0);
    }
}

/// The negative control: the same module outside of a sandbox gets through. As an ordinary user, so
/// that nothing of the machine comes to harm.
#[test]
fn the_same_import_outside_of_a_sandbox_gets_through() {
    let place = Place::new(Who::User);
    let home = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = home.local_addr().expect("an address").port();
    let private = place.dir.path().join("private");
    fs::create_dir(&private).expect("a directory");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o777)).expect("open");
    let canary = private.join("canary");
    let module = place
        .dir
        .file("evil.py", attack(canary.to_str().expect("plain"), port));
    let mut command = Command::new(host_python(&place));
    command.arg(module);
    become_who(&mut command, Who::User);
    let output = output_of(&mut command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("wrote ") && said.contains("read ") && said.contains("called home"),
        "{said}"
    );
    assert!(canary.exists());
}

#[test]
fn an_entry_that_climbs_out_of_a_wheel_lands_nowhere() {
    for who in everyone() {
        for climb in [
            "../../../../../../../../../../../tmp/belljar-planted",
            "/tmp/belljar-planted",
            "../../../belljar-planted",
            "climbs-1.0.data/data/../../../../belljar-planted",
            "climbs-1.0.data/scripts/../../../../belljar-planted",
        ] {
            let place = Place::new(who);
            let wheel = place.put(&Wheel::new("climbs", "1.0").module("climbs", "1").file(climb, "x"));
            let done = place.belljar(&["env", "create", "x", "--packages", &wheel]).go();
            // Whether the installer takes it as a name or refuses it: it stays within the tree.
            assert!(matches!(done.code, Some(0 | 125)), "{climb}: {done:#?}");
            for outside in ["/tmp/belljar-planted", "/belljar-planted"] {
                assert!(!fs::exists(outside).expect("look"), "{climb}");
            }
            let beside = fs::read_dir(place.dir.path()).expect("look").flatten();
            let names: Vec<_> = beside.map(|entry| entry.file_name()).collect();
            assert!(
                !names.iter().any(|name| name == "belljar-planted"),
                "{climb}: {names:?}"
            );
            if done.code == Some(125) {
                place.expect_nothing_built();
            }
        }
    }
}

/// A wheel whose dependency has to be built: the builder's code must not run on the host.
fn needs_a_build(place: &Place) -> (String, std::path::PathBuf) {
    let source = place.dir.path().join("source");
    let canary = place.dir.path().join("built-on-the-host");
    fs::create_dir(&source).expect("a directory");
    fs::write(
        source.join("pyproject.toml"),
        "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n",
    )
    .expect("a file");
    fs::write(
        source.join("backend.py"),
        format!("open({:?}, 'w').write('gotcha')\n", canary.display().to_string()),
    )
    .expect("a file");
    let wheel = Wheel::new("wants", "1.0").needs(&format!("source @ file://{}", source.display()));
    (place.put(&wheel), canary)
}

#[test]
fn nothing_is_built_on_the_host() {
    for who in everyone() {
        let place = Place::new(who);
        let (wheel, canary) = needs_a_build(&place);
        place.put(&Wheel::new("plain", "1.0"));
        let wheels = place.wheels();
        // With a named package, the fetching is done on the host; the caller's own pip settings keep
        // it from the network here.
        let packages = format!("{wheel},plain");
        let done = place
            .belljar(&["env", "create", "x", "-v", "--packages", &packages])
            .env("PIP_NO_INDEX", "1")
            .env("PIP_FIND_LINKS", wheels.to_str().expect("plain"))
            .env("PIP_NO_BINARY", ":all:")
            .go()
            .expect_code(125);
        assert!(
            done.stderr
                .contains("nothing may be started while packages are fetched"),
            "{done:#?}"
        );
        assert!(!canary.exists());
        // And in a sandbox, where all is local.
        place
            .belljar(&["env", "create", "x", "--packages", &wheel])
            .go()
            .expect_code(125);
        assert!(!canary.exists());
        place.expect_nothing_built();
    }
}

/// The negative control: pip alone runs the builder, wheels only or not.
#[test]
fn pip_alone_would_build_on_the_host() {
    let who = everyone()[0];
    let place = Place::new(who);
    let (wheel, canary) = needs_a_build(&place);
    let mut command = Command::new(host_python(&place));
    command
        .args(["-m", "pip", "download", "--only-binary=:all:", "--no-index", "-d"])
        .arg(place.dir.path().join("to"))
        .arg(wheel)
        .env("PATH", path())
        .env("HOME", "/proc/none");
    let output = output_of(&mut command);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("No module named pip") {
        absent(
            "the negative control of fetching",
            "this Python has no pip of its own",
        );
        return;
    }
    assert!(canary.exists(), "{said}");
}

/// A source archive whose builder attacks, and then builds.
fn source_archive(place: &Place, attack: &str) -> std::path::PathBuf {
    let backend = format!(
        "{attack}
import zipfile
def build_wheel(to, config_settings=None, metadata_directory=None):
    info = 'made-1.0.dist-info/'
    files = {{'made.py': 'V = 1', info + 'METADATA': 'Metadata-Version: 2.1\\nName: made\\nVersion: 1.0\\n',
             info + 'WHEEL': 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'}}
    files[info + 'RECORD'] = ''.join(name + ',,\\n' for name in [*files, info + 'RECORD'])
    with zipfile.ZipFile(to + '/made-1.0-py3-none-any.whl', 'w') as wheel:
        for name, text in files.items(): wheel.writestr(name, text)
    return 'made-1.0-py3-none-any.whl'
"
    );
    let path = place.dir.path().join("made-1.0.zip");
    let mut zip = zip::ZipWriter::new(fs::File::create(&path).expect("an archive"));
    for (name, text) in [
        (
            "made-1.0/pyproject.toml",
            "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n",
        ),
        ("made-1.0/backend.py", &backend),
        (
            "made-1.0/PKG-INFO",
            "Metadata-Version: 2.1\nName: made\nVersion: 1.0\n",
        ),
    ] {
        zip.start_file(name, zip::write::SimpleFileOptions::default())
            .expect("an entry");
        std::io::Write::write_all(&mut zip, text.as_bytes()).expect("content");
    }
    zip.finish().expect("a whole archive");
    path
}

#[test]
fn a_source_is_built_only_when_allowed_and_only_in_a_sandbox() {
    for who in everyone() {
        let place = Place::new(who);
        let home = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = home.local_addr().expect("an address").port();
        home.set_nonblocking(true).expect("not blocking");
        let private = place.dir.path().join("private");
        fs::create_dir(&private).expect("a directory");
        let canary = private.join("canary");
        // Beside its own source it may write: that is the sandbox's own memory.
        let attack = attack(canary.to_str().expect("plain"), port)
            .replace("os.path.dirname(__file__) + '/planted', ", "");
        let archive = source_archive(&place, &attack);
        let archive = archive.to_str().expect("plain");
        let create = ["env", "create", "x", "--packages", archive, "--wheels", "wheels"];
        let done = place.belljar(&create).go().expect_code(2);
        super::expect_one_problem(&done);
        assert!(done.stderr.contains("--allow-build"), "{done:#?}");
        place.expect_nothing_built();
        let allowed: Vec<&str> = create.iter().copied().chain(["--allow-build"]).collect();
        place.belljar(&allowed).go().expect_code(0);
        assert_eq!(place.prints("x", "import made; print(made.V)"), "1\n");
        assert!(!canary.exists() && home.accept().is_err());
    }
}
