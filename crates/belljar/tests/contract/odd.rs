//! What is wrong, missing or gone: each gives a denial or an error that says what to do, and leaves nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belljar::{
    Control, Demand, DenialCode, Engine, ExecuteIo, Execution, FailureKind, Language, Policy, ProviderName,
    Request, SandboxStatus,
};
use belljar_core::ProviderError;
use belljar_engine::EngineError;
use belljar_providers::{DockerProvider, DockerSettings, GvisorProvider, GvisorSettings};
use bollard::Docker;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{CreateContainerOptions, ListContainersOptions, RemoveContainerOptions};

use super::engines::{self, BARE_IMAGE, IMAGE};
use super::subject::Subject;
use super::{block_on, show, spawn};

fn docker(host: &str) -> Engine {
    Engine::new(Arc::new(DockerProvider::new(DockerSettings {
        host: Some(host.to_owned()),
        ..DockerSettings::default()
    })))
}

fn python(code: &str, provider: ProviderName, image: Option<&str>) -> Request {
    let mut request = Request::code(Language::Python, code.as_bytes());
    request.provider = Some(provider);
    request.image = image.map(str::to_owned);
    request
}

async fn run(engine: &Engine, request: &Request) -> Result<Execution, EngineError> {
    let policy = Policy::for_owner(request).expect("a policy");
    engine.execute(&policy, request, ExecuteIo::default()).await
}

/// Code, message and fix of what was refused.
fn refused(result: Result<Execution, EngineError>) -> (DenialCode, String, String) {
    match result {
        Err(EngineError::Denied { denial, .. }) => (denial.code, denial.message, denial.fix),
        Err(error) => panic!("no denial: {error}"),
        Ok(run) => panic!("it ran: {:?}", run.outcome.status),
    }
}

/// Containers of belljar's at that engine.
async fn containers(socket: &str) -> Vec<String> {
    let docker = Docker::connect_with_unix(socket, 20, bollard::API_DEFAULT_VERSION).expect("an engine");
    let docker = docker.negotiate_version().await.expect("a version");
    let options = ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([(
            "label".to_owned(),
            vec!["belljar.owner".to_owned()],
        )])),
        ..ListContainersOptions::default()
    };
    let found = docker.list_containers(Some(options)).await.expect("a list");
    found.into_iter().filter_map(|container| container.id).collect()
}

#[test]
fn an_image_that_is_not_there_is_a_denial_that_says_how_to_have_it() {
    let Some(mut own) = engines::docker_of_its_own(spawn) else {
        return;
    };
    let host = format!("unix://{}", own.socket.display());
    let engine = docker(&host);
    let request = |image| python("print(1)", ProviderName::Docker, Some(image));
    block_on(async {
        let (code, message, fix) = refused(run(&engine, &request("belljar-nowhere:none")).await);
        assert_eq!(code, DenialCode::ImageUnavailable);
        assert!(
            message.contains("belljar-nowhere:none") && fix.contains("docker load"),
            "{message} {fix}"
        );

        // A registry that cannot be reached.
        let (code, message, _) = refused(run(&engine, &request("localhost:1/nobody/image:1")).await);
        assert_eq!(code, DenialCode::ImageUnavailable, "{message}");

        let (code, message, fix) = refused(run(&engine, &request(BARE_IMAGE)).await);
        assert_eq!(code, DenialCode::LanguageUnavailable);
        assert!(
            message.contains(BARE_IMAGE) && fix.contains("image"),
            "{message} {fix}"
        );

        let (code, ..) = refused(run(&engine, &request("no image")).await);
        assert_eq!(code, DenialCode::ImageNotAllowed);

        assert_eq!(
            run(&engine, &request(IMAGE))
                .await
                .expect("a run")
                .outcome
                .exit_code,
            Some(0)
        );
        drop(engine);
        assert_eq!(containers(&host).await, Vec::<String>::new(), "left behind");
    });
    own.end();
}

/// An image may say that some of its directories are to be written to elsewhere. Nothing bounds what is written there.
#[test]
fn volumes_of_an_image_can_be_read_and_not_written() {
    let engines = [engines::docker(spawn), engines::podman(spawn)];
    for own in engines.into_iter().flatten() {
        let host = format!("unix://{}", own.socket.display());
        let image = "belljar-test-volumes";
        let recipe = format!(
            "FROM {IMAGE}\nRUN [\"/bin/mkdir\", \"/data\"]\nRUN [\"/bin/sh\", \"-c\", \"echo kept > /data/file\"]\n\
             VOLUME /data /workspace /tmp /.belljar\n"
        );
        let mut build = std::process::Command::new("docker");
        build.args(["-H", &host, "build", "--network=none", "-q", "-t", image, "-"]);
        build
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null());
        let mut build = spawn(&mut build);
        let mut stdin = build.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut stdin, recipe.as_bytes()).expect("a recipe");
        drop(stdin);
        assert!(build.wait().expect("an end").success(), "the image was not built");
        let code = "print(open('/data/file').read().strip())\n\
                    open('/workspace/a', 'w').close()\nopen('/tmp/a', 'w').close()\n\
                    for place in ('/data', '/.belljar'):\n    \
                    try: open(place + '/more', 'w')\n    except OSError as error: print(error.errno)";
        let engine = docker(&host);
        let done = block_on(run(&engine, &python(code, ProviderName::Docker, Some(image)))).expect("a run");
        let read_only = "kept\n30\n30\n";
        assert_eq!(
            done.outcome.stdout.text(),
            read_only,
            "{:?}",
            done.outcome.stderr.text()
        );
    }
}

#[test]
fn an_engine_that_is_not_there_is_a_denial_that_says_what_to_start() {
    let request = python("print(1)", ProviderName::Docker, Some(IMAGE));
    block_on(async {
        let (code, message, fix) = refused(run(&docker("unix:///nowhere/docker.sock"), &request).await);
        assert_eq!(code, DenialCode::IsolationUnavailable);
        assert!(
            message.contains("/nowhere/docker.sock") && fix.contains("DOCKER_HOST"),
            "{message} {fix}"
        );
    });
}

/// The engine goes while a guest runs: that is told, and the record is there. Then it comes back.
#[test]
fn an_engine_that_goes_in_the_middle_loses_no_record() {
    let Some(mut own) = engines::docker_of_its_own(spawn) else {
        return;
    };
    let engine = docker(&format!("unix://{}", own.socket.display()));
    let request = python(
        "import time\nprint('begun', flush=True)\ntime.sleep(60)",
        ProviderName::Docker,
        Some(IMAGE),
    );
    block_on(async {
        let ending = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            tokio::task::spawn_blocking(move || own.end())
                .await
                .expect("ending");
        };
        let (ran, ()) = tokio::join!(run(&engine, &request), ending);
        match ran {
            Ok(run) => {
                assert_eq!(run.outcome.status, SandboxStatus::Killed);
                let kind = run.outcome.error.as_ref().map(|failure| failure.kind);
                assert_eq!(kind, Some(FailureKind::EngineLost));
                assert_eq!(run.record.status, SandboxStatus::Killed);
            }
            // That its container could not be removed is told as well: there is nobody to ask.
            Err(error) => assert!(error.to_string().contains("container"), "{error}"),
        }
    });
}

/// A guest that puts in as much as is taken out, and slows down whoever takes it out, holds up nobody for ever.
#[test]
fn a_directory_that_fills_up_while_it_is_removed_has_an_end() {
    let Some(own) = engines::docker(spawn) else { return };
    let subject = Subject::docker("docker", &own.socket, None);
    block_on(async {
        let session = Arc::new(subject.session().build().await.expect("a session"));
        session.put("other", "still there").await.expect("a file");
        let code = "import os\nrefused = 0\n\
                    for call in (lambda: os.setpriority(os.PRIO_PROCESS, 1, 19), lambda: os.sched_setaffinity(1, {0}),\n        \
                    lambda: os.setpriority(os.PRIO_USER, 0, 19)):\n    \
                    try: call()\n    except PermissionError: refused += 1\n\
                    os.makedirs('d', exist_ok=True)\nfor worker in range(4):\n    if os.fork() == 0:\n        number = 0\n        \
                    while True:\n            number += 1\n            \
                    try:\n                os.makedirs('d', exist_ok=True)\n                open(f'd/{worker}_{number % 5000}', 'w').close()\n            \
                    except OSError: pass\nrefused";
        let done = session.execute(code).await.expect("a cell");
        assert_eq!(
            done.outcome.value,
            Some(3.into()),
            "the agent was slowed down: {:?}",
            done.outcome.stderr.text()
        );
        let removing = {
            let session = Arc::clone(&session);
            tokio::task::spawn_blocking(move || session.delete("d"))
        };
        let removed = tokio::time::timeout(Duration::from_secs(90), removing).await;
        show(&format!(
            "removing what fills up: {:?}",
            removed.expect("an end").expect("a thread")
        ));
        let read = {
            let session = Arc::clone(&session);
            tokio::task::spawn_blocking(move || {
                session.get("other").map(|file| file.bytes(100).expect("bytes"))
            })
        };
        let read = tokio::time::timeout(Duration::from_secs(90), read).await;
        let read = read.expect("an end").expect("a thread");
        assert_eq!(read.expect("a file"), b"still there");
    });
}

/// R34: what a dead engine left is removed, and nothing else is touched.
#[test]
fn r34_only_what_is_ours_and_left_behind_is_swept() {
    let Some(mut own) = engines::docker_of_its_own(spawn) else {
        return;
    };
    let host = format!("unix://{}", own.socket.display());
    block_on(async {
        let docker_api =
            Docker::connect_with_unix(&host, 20, bollard::API_DEFAULT_VERSION).expect("an engine");
        let docker_api = docker_api.negotiate_version().await.expect("a version");
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
        let boot = boot.trim();
        let start = |owner: Option<String>| {
            let body = ContainerCreateBody {
                image: Some(IMAGE.to_owned()),
                cmd: Some(vec!["sleep".to_owned(), "600".to_owned()]),
                labels: owner.map(|owner| HashMap::from([("belljar.owner".to_owned(), owner)])),
                network_disabled: Some(true),
                ..ContainerCreateBody::default()
            };
            let docker_api = docker_api.clone();
            async move {
                let made = docker_api
                    .create_container(None::<CreateContainerOptions>, body)
                    .await;
                made.expect("a container").id
            }
        };
        let foreign = start(None).await;
        let space = std::fs::metadata("/proc/self/ns/pid").expect("a namespace");
        let space = std::os::unix::fs::MetadataExt::ino(&space);
        let left = start(Some(format!("{boot}.{space}-4194305-1"))).await;
        let others = start(Some(format!("{boot}.{space}-1-{}", start_of(1)))).await;
        // Of a belljar in a container: its pids are not ours.
        let elsewhere = start(Some(format!("{boot}.{}-4194305-1", space + 1))).await;
        let request = python("print(1)", ProviderName::Docker, Some(IMAGE));
        let engine = docker(&host);
        assert_eq!(
            run(&engine, &request).await.expect("a run").outcome.exit_code,
            Some(0)
        );
        drop(engine);
        let ours = containers(&host).await;
        assert!(!ours.contains(&left), "what a dead engine left is still there");
        let kept = [&others, &elsewhere];
        assert!(
            ours.len() == kept.len() && kept.iter().all(|id| ours.contains(id)),
            "what a living one has is gone, or something of ours is left"
        );
        for id in [foreign, others, elsewhere] {
            let options = RemoveContainerOptions {
                force: true,
                ..RemoveContainerOptions::default()
            };
            docker_api
                .remove_container(&id, Some(options))
                .await
                .expect("it was still there");
        }
    });
    own.end();
}

fn start_of(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let rest = stat.rsplit_once(')').expect("a name").1;
    rest.split_whitespace().nth(19).expect("a start time").to_owned()
}

/// Limits that an engine takes and ignores are not in the receipt, and where they are required nothing runs.
#[test]
fn a_limit_that_is_ignored_is_not_in_the_receipt() {
    let Some(engine) = engines::podman_rootless("belljar-test", spawn) else {
        return;
    };
    let ignores = std::fs::read_to_string("/proc/self/cgroup").is_ok_and(|text| text.contains(":memory:"));
    if !ignores {
        show(
            "not tested here: an engine that ignores limits: rootless Podman keeps them on control groups of version 2",
        );
        return;
    }
    let subject = Subject::docker("rootless", &engine.socket, None);
    let mut request = python("print(1)", ProviderName::Docker, Some(IMAGE));
    block_on(async {
        let ran = run(&subject.engine, &request).await.expect("a run");
        for control in [Control::MemoryCgroup, Control::PidsCgroup] {
            let observed = &ran.outcome.receipt.controls[&control];
            assert!(!observed.is_enforced(), "{control}: {observed:?}");
        }
        request.controls.insert(Control::MemoryCgroup, Demand::Require);
        let (code, message, _) = refused(run(&subject.engine, &request).await);
        assert_eq!(code, DenialCode::ControlUnavailable);
        assert!(
            message.contains("ignored") || message.contains("no such limit"),
            "{message}"
        );
    });
}

fn gvisor(settings: GvisorSettings) -> Engine {
    Engine::new(Arc::new(GvisorProvider::new(settings)))
}

#[test]
fn a_runsc_that_is_not_there_or_does_not_start_says_why() {
    let request = python("print(1)", ProviderName::Gvisor, None);
    block_on(async {
        for program in ["/nowhere/runsc", "/bin/false"] {
            let engine = gvisor(GvisorSettings {
                program: Some(program.into()),
                ..GvisorSettings::default()
            });
            let (code, message, fix) = refused(run(&engine, &request).await);
            assert_eq!(code, DenialCode::IsolationUnavailable);
            assert!(
                message.contains(program) && fix.contains("install"),
                "{message} {fix}"
            );
        }
        if Subject::gvisor()
            .engine
            .provider(ProviderName::Gvisor)
            .is_none_or(|it| it.presence().is_err())
        {
            show("not tested here: gVisor: runsc is not here");
            return;
        }
        let engine = gvisor(GvisorSettings {
            platform: Some("nonsense".to_owned()),
            ..GvisorSettings::default()
        });
        match run(&engine, &request).await {
            Err(EngineError::Provider(ProviderError::Engine { why, .. })) => {
                assert!(why.contains("nonsense"), "{why}");
            }
            other => panic!("{other:?}"),
        }
    });
}

/// The receipt says what serves the guest's system calls.
#[test]
fn a_gvisor_receipt_names_platform_and_version() {
    let subject = Subject::gvisor();
    let Some(Ok(version)) = subject
        .engine
        .provider(subject.provider)
        .map(|provider| provider.presence())
    else {
        show("not tested here: gVisor: runsc is not here");
        return;
    };
    block_on(async {
        let request = python("import os\nprint(os.uname().release)", ProviderName::Gvisor, None);
        let ran = run(&subject.engine, &request).await.expect("a run");
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
        assert_ne!(ran.outcome.stdout.text().trim(), kernel.trim());
        let observed = format!("{:?}", ran.outcome.receipt.controls[&Control::OwnKernel]);
        assert!(observed.contains(&version), "{observed} {version}");
    });
}
