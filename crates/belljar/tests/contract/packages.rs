//! An environment with packages, behind each wall: the host's own Python, a wheel beside it, and nothing else to be installed.

use std::path::{Path, PathBuf};

use belljar::environment::{Cancel, Environments, Quiet, Requirement, Specification, create};
use belljar::{DenialCode, EnvironmentName, Language, Request};
use belljar_engine::EngineError;

use super::checks::printed_by;
use super::subject::Subject;
use super::{block_on, engines, hold_to, of_the_root, spawn};

#[path = "../it/cli/environments/wheel.rs"]
#[expect(dead_code, reason = "other tests make more of them")]
mod wheel;

/// A store with one environment, gone afterwards.
struct Store {
    base: PathBuf,
    environments: Environments,
}

const NAME: &str = "packed";

/// A directory that containers have none of their own over.
fn place() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    [
        Some(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))),
        Some(PathBuf::from("/var/lib")),
        home,
    ]
    .into_iter()
    .flatten()
    .find(|place| !place.starts_with("/tmp") && !place.starts_with("/var/tmp"))
    .expect("a place for an environment")
}

impl Store {
    fn new() -> Self {
        let base = place().join(format!("belljar-contract-packages-{}", std::process::id()));
        let wheels = base.join("wheels");
        std::fs::create_dir_all(&wheels).expect("a directory");
        let wheel = wheel::Wheel::new("bell-jar", "1.2")
            .module("bell_jar", "NAME = 'glass'")
            .write(&wheels);
        let environments = Environments::below(&base);
        let engine = belljar::native_engine().with_environments(environments.clone());
        let packages =
            vec![Requirement::parse(&wheel.display().to_string(), Path::new("/")).expect("a requirement")];
        let wanted = Specification {
            packages,
            ..Specification::named(EnvironmentName::new(NAME).expect("a name"))
        };
        block_on(create(&engine, &wanted, &mut Quiet, &Cancel::default())).expect("an environment");
        Self { base, environments }
    }

    fn of(&self, label: &'static str, subject: Subject) -> Subject {
        Subject {
            label,
            engine: subject.engine.with_environments(self.environments.clone()),
            image: None,
            environment: Some(EnvironmentName::new(NAME).expect("a name")),
            ..subject
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = std::process::Command::new("chmod")
            .args(["-R", "u+w"])
            .arg(&self.base)
            .status();
        let _ = std::fs::remove_dir_all(&self.base);
    }
}

/// What of the host's Python and of the package must be there: modules with libraries of their own among it.
const IMPORTS: &str = "import bell_jar, ssl, sqlite3, lzma, ctypes, zoneinfo, subprocess\n\
    said = subprocess.run(['sh', '-c', 'echo a | tr a b'], capture_output=True, text=True).stdout\n\
    print(bell_jar.NAME, zoneinfo.ZoneInfo('Asia/Tokyo').key, said.strip())";

fn imports(subject: &Subject) {
    let request = subject.asked(Request::code(Language::Python, IMPORTS.as_bytes()));
    let printed = block_on(printed_by(subject, request));
    assert_eq!(
        printed.as_deref(),
        Ok("glass Asia/Tokyo b\n"),
        "{}",
        subject.label
    );
}

#[test]
fn an_environment_with_packages_keeps_the_contract_behind_each_wall() {
    let store = Store::new();
    let checks = || of_the_root().filter(|check| !check.name.contains("JavaScript"));
    imports(&store.of("v-packages", Subject::venv()));
    imports(&store.of("n-packages", Subject::native()));
    let gvisor = store.of("g-packages", Subject::gvisor());
    if gvisor.is_present() {
        imports(&gvisor);
        hold_to(&gvisor, checks());
    }
    if let Some(engine) = engines::docker(spawn) {
        let docker = store.of("d-packages", Subject::docker("docker", &engine.socket, None));
        imports(&docker);
        hold_to(&docker, checks());
        let request = docker.asked(Request::code(Language::Javascript, *b"1"));
        let policy = belljar::Policy::for_owner(&request).expect("a policy");
        match docker.engine.plan(&policy, &request) {
            Err(EngineError::Denied { denial, .. }) => {
                assert_eq!(denial.code, DenialCode::LanguageUnavailable);
                assert!(denial.message.contains(NAME), "{denial:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    if let Some(engine) = engines::podman(spawn) {
        imports(&store.of("p-packages", Subject::docker("podman", &engine.socket, None)));
    }
}
