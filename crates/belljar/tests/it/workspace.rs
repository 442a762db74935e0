//! R46 to R51 and R53: the workspace manager with the real provider, as everyone.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar::workspace::{WorkspaceError, WorkspaceManager};
use belljar::{Language, Lifecycle, Policy, Request, SandboxStatus, Seconds, WorkspaceId};

use crate::again::{alone, test_name};
use crate::harness::TempDir;

/// Runs `work` with a manager whose base directory only this user can write to.
fn with_manager(work: impl AsyncFnOnce(WorkspaceManager, PathBuf)) {
    let dir = TempDir::new();
    let base = dir.path().join("base");
    fs::create_dir(&base).expect("a base directory");
    fs::set_permissions(&base, fs::Permissions::from_mode(0o700)).expect("its mode");
    run(work(manager(&base), base.clone()));
    let left: Vec<_> = fs::read_dir(&base).expect("the base").flatten().collect();
    assert!(left.is_empty(), "left in the base directory: {left:?}");
}

fn manager(base: &Path) -> WorkspaceManager {
    let policy = Policy::builtin("standard").expect("standard");
    WorkspaceManager::new(base.to_owned(), belljar::native_engine(), policy)
}

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(work);
}

fn script(code: &str) -> Request {
    Request::code(Language::Bash, code.as_bytes())
}

fn id(name: &str) -> WorkspaceId {
    WorkspaceId::new(name).expect("a workspace id")
}

/// R46: each set-up has an id and a directory of its own below base/workspace, for its owner alone.
#[test]
fn r46_setup_gives_a_unique_id_and_root() {
    alone(test_name!(), || {
        with_manager(async |manager, base| {
            let (one, two) = (
                manager.setup(&id("ws")).expect("one"),
                manager.setup(&id("ws")).expect("two"),
            );
            assert_ne!(one.id(), two.id());
            for sandbox in [&one, &two] {
                assert_eq!(sandbox.root(), base.join("ws").join(sandbox.id()));
                let mode = fs::metadata(sandbox.root()).expect("its directory").mode();
                assert_eq!(mode & 0o7777, 0o700);
            }
            one.teardown().await.expect("teardown");
            two.teardown().await.expect("teardown");
        });
    });
}

/// R48: scripts run in the sandbox's directory, one after the other, and only files pass between them.
#[test]
fn r48_scripts_run_in_the_sandboxs_directory() {
    alone(test_name!(), || {
        with_manager(async |manager, _| {
            let mut sandbox = manager.setup(&id("ws")).expect("a sandbox");
            let run = sandbox
                .run_script(script("pwd; echo one > note; (setsid sleep 600 &)"))
                .await
                .expect("a run");
            assert_eq!(run.outcome.stdout.text(), "/workspace\n");
            let note = sandbox.root().join("note");
            assert_eq!(fs::read_to_string(&note).expect("what it wrote"), "one\n");
            let owner = |path: &Path| fs::metadata(path).expect("an owner").uid();
            assert_eq!(
                owner(&note),
                owner(sandbox.root()),
                "files belong to the directory's owner"
            );

            fs::write(sandbox.root().join("input"), "two\n").expect("a file for it");
            let code = "import os; print(open('note').read() + open('input').read(), os.listdir('/tmp'))";
            let run = sandbox.run_script(Request::code(Language::Python, *b"")).await;
            assert!(
                matches!(run, Err(WorkspaceError::Command(_))),
                "no code is refused: {run:?}"
            );
            let request = Request::code(Language::Python, code.as_bytes());
            let run = sandbox.run_script(request).await.expect("a run");
            assert_eq!(run.outcome.stdout.text(), "one\ntwo\n []\n");
            sandbox.teardown().await.expect("teardown");
        });
    });
}

/// R49: teardown comes whatever happened, removes what a guest made hard to remove, and never touches
/// a neighbour whose name only starts the same.
#[test]
fn r49_teardown_runs_on_error_and_touches_nothing_else() {
    alone(test_name!(), || {
        with_manager(async |manager, base| {
            let neighbour = manager.setup(&id("ws-2")).expect("a neighbour");
            fs::write(neighbour.root().join("kept"), "x").expect("its file");

            let nasty = "mkdir -p a/b/c; echo x > a/b/c/f; chmod 000 a/b; ln -s / root; ln -s ../../ws-2 beside; \
                         mkfifo pipe; touch $'new\\nline' -- '-rf'; exit 4";
            let code = manager
                .with(&id("ws"), async |sandbox| {
                    let run = sandbox.run_script(script(nasty)).await?;
                    Ok(run.outcome.exit_code)
                })
                .await
                .expect("a failing script is an outcome");
            assert_eq!(code, Some(4));
            assert!(!base.join("ws").exists());

            let failed = manager
                .with(&id("ws"), async |sandbox| {
                    sandbox.run_script(script("echo x > left")).await?;
                    sandbox
                        .run_script(Request::code(Language::Ruby, *b"1"))
                        .await
                        .map(drop)
                })
                .await;
            assert!(matches!(failed, Err(WorkspaceError::Command(_))), "{failed:?}");
            assert!(!base.join("ws").exists());

            manager
                .teardown(&id("ws"))
                .await
                .expect("nothing to tear down is fine");
            assert_eq!(
                fs::read_to_string(neighbour.root().join("kept")).expect("untouched"),
                "x"
            );
            manager.teardown(&id("ws-2")).await.expect("teardown");
            assert!(!base.join("ws-2").exists());
            drop(neighbour);
        });
    });
}

/// R49: a script that runs while its workspace is torn down is stopped first.
#[test]
fn r49_teardown_stops_what_runs() {
    alone(test_name!(), || {
        with_manager(async |manager, base| {
            let mut sandbox = manager.setup(&id("ws")).expect("a sandbox");
            let script = script("while :; do echo x >> grows; done");
            let teardown = async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                manager.teardown(&id("ws")).await
            };
            let (run, removed) = tokio::join!(sandbox.run_script(script), teardown);
            assert_eq!(run.expect("it ran").outcome.status, SandboxStatus::Killed);
            removed.expect("teardown");
            assert!(!base.join("ws").exists());
        });
    });
}

/// R50: only legal transitions: after a refusal, a failure and a timeout it is ready, after teardown never.
#[test]
fn r50_only_legal_transitions() {
    alone(test_name!(), || {
        with_manager(async |manager, _| {
            let mut sandbox = manager.setup(&id("ws")).expect("a sandbox");
            assert_eq!(sandbox.state(), Lifecycle::Ready);
            let mut slow = script("while :; do :; done");
            slow.limits.wall_time = Some(Seconds::whole(1));
            for (request, status) in [
                (script("exit 1"), SandboxStatus::Failed),
                (slow, SandboxStatus::Timeout),
                (script("true"), SandboxStatus::Completed),
            ] {
                let run = sandbox.run_script(request).await.expect("a run");
                assert_eq!(run.outcome.status, status);
                assert_eq!(sandbox.state(), Lifecycle::Ready);
            }
            manager.teardown(&id("ws")).await.expect("teardown");
            assert_eq!(sandbox.state(), Lifecycle::Teardown);
            let refused = sandbox.run_script(script("true")).await;
            assert!(matches!(refused, Err(WorkspaceError::State(_))), "{refused:?}");
        });
    });
}

/// R51: ids that could name another place are refused.
#[test]
fn r51_workspace_ids_are_plain_names() {
    let long = "x".repeat(129);
    for bad in [
        "", ".", "..", "../x", "a/b", "/abs", "a\\b", "a b", "~", ".hidden", "a\0b", "ü", "a\nb", &long,
    ] {
        assert!(WorkspaceId::new(bad).is_err(), "{bad:?}");
    }
    for good in ["ws", "ws-2", "a.b_c", "7"] {
        assert!(WorkspaceId::new(good).is_ok(), "{good}");
    }
}

/// R53: base directory, set-up, teardown and command fail each with an error of its own.
#[test]
fn r53_failures_are_distinct() {
    alone(test_name!(), || {
        let dir = TempDir::new();
        let file = dir.file("file", "");
        let error = manager(&file.join("below"))
            .setup(&id("ws"))
            .expect_err("a file is no base");
        assert!(matches!(error, WorkspaceError::Base { .. }), "{error:?}");
        let open = dir.path().join("open");
        fs::create_dir(&open).expect("a directory");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("its mode");
        let error = manager(&open)
            .setup(&id("ws"))
            .expect_err("others can write to it");
        assert!(matches!(error, WorkspaceError::Base { .. }), "{error:?}");

        with_manager(async |manager, base| {
            let file = base.join("taken");
            fs::write(&file, "").expect("a file in the way");
            let error = manager
                .setup(&id("taken"))
                .expect_err("the name is taken by a file");
            assert!(matches!(error, WorkspaceError::Setup { .. }), "{error:?}");
            let error = manager
                .teardown(&id("taken"))
                .await
                .expect_err("that is no workspace");
            assert!(matches!(error, WorkspaceError::Teardown { .. }), "{error:?}");
            fs::remove_file(&file).expect("out of the way");

            let mut sandbox = manager.setup(&id("ws")).expect("a sandbox");
            let error = sandbox
                .run_script(Request::code(Language::Lua, *b"1"))
                .await
                .expect_err("not in the policy");
            assert!(matches!(error, WorkspaceError::Command(_)), "{error:?}");
            assert_eq!(sandbox.state(), Lifecycle::Ready);
            sandbox.teardown().await.expect("teardown");
        });
    });
}

/// R47 for workspaces: arguments that leave the work directory are refused when the check is on.
#[test]
fn r47_arguments_that_leave_are_refused_when_checked() {
    alone(test_name!(), || {
        with_manager(async |manager, _| {
            let mut sandbox = manager.setup(&id("ws")).expect("a sandbox");
            for (argument, fine) in [
                ("../x", false),
                ("/etc/passwd", false),
                ("~/x", false),
                ("a/b.txt", true),
            ] {
                for check_paths in [true, false] {
                    let mut request = script("echo \"$1\"");
                    request.args = vec![argument.to_owned()];
                    request.check_paths = check_paths;
                    let ran = sandbox.run_script(request).await.is_ok();
                    assert_eq!(ran, fine || !check_paths, "{argument}");
                }
            }
            sandbox.teardown().await.expect("teardown");
        });
    });
}
