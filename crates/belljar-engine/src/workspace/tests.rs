//! Workspaces over a provider that runs nothing but four words.

mod fake;
mod removing;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use belljar_core::{Language, Lifecycle, Request};

use super::*;
use crate::EngineError;
use fake::FakeProvider;

/// A directory that goes with its test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(fresh_id("belljar-test"));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// A manager, and the base that it has yet to make.
    fn manager(&self) -> WorkspaceManager {
        let engine = Engine::new(Arc::new(FakeProvider));
        WorkspaceManager::new(self.base(), engine, Policy::builtin("standard").unwrap())
    }

    fn base(&self) -> PathBuf {
        self.0.join("deep/base")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ws(name: &str) -> WorkspaceId {
    WorkspaceId::new(name).unwrap()
}

fn script(code: &str) -> Request {
    Request::code(Language::Python, code.as_bytes().to_vec())
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// R46, R48, R50: a unique private root, scripts in it, files from one to the next, and an end.
#[tokio::test]
async fn a_sandbox_lives_from_setup_to_teardown() {
    let scratch = Scratch::new();
    let manager = scratch.manager();
    let mut sandbox = manager.setup(&ws("ws")).unwrap();
    let root = sandbox.root().to_owned();
    assert_eq!(root, scratch.base().join("ws").join(sandbox.id()));
    for private in [&root, root.parent().unwrap(), &scratch.base()] {
        let stat = fs::metadata(private).unwrap();
        assert_eq!(stat.permissions().mode() & 0o7777, 0o700, "{}", private.display());
        assert_eq!(stat.uid(), rustix::process::geteuid().as_raw());
    }
    assert_eq!(sandbox.state(), Lifecycle::Ready);

    for name in ["a", "b"] {
        let execution = sandbox
            .run_script(script(&format!("write {name}")))
            .await
            .unwrap();
        assert!(execution.outcome.success());
        assert_eq!(sandbox.state(), Lifecycle::Ready);
    }
    assert_eq!(names(&root), ["a", "b"]);

    sandbox.teardown().await.unwrap();
    assert!(names(&scratch.base()).is_empty());
}

/// A script that fails and a request that is refused are answers; the sandbox goes on.
#[tokio::test]
async fn failing_scripts_and_denials_leave_it_ready() {
    let scratch = Scratch::new();
    let mut sandbox = scratch.manager().setup(&ws("ws")).unwrap();
    let execution = sandbox.run_script(script("exit 3")).await.unwrap();
    assert_eq!(execution.outcome.exit_code, Some(3));
    assert_eq!(sandbox.state(), Lifecycle::Ready);

    // R47: the path check is the request's own option.
    let mut request = script("exit 0");
    request.args = vec!["../x".to_owned()];
    request.check_paths = true;
    let error = sandbox.run_script(request.clone()).await.unwrap_err();
    assert!(matches!(
        error,
        WorkspaceError::Command(EngineError::Denied { .. })
    ));
    assert_eq!(sandbox.state(), Lifecycle::Ready);
    request.check_paths = false;
    assert!(sandbox.run_script(request).await.unwrap().outcome.success());
}

/// R50: after an error there is only teardown.
#[tokio::test]
async fn an_error_ends_in_teardown() {
    let scratch = Scratch::new();
    let mut sandbox = scratch.manager().setup(&ws("ws")).unwrap();
    let error = sandbox.run_script(script("break")).await.unwrap_err();
    assert!(matches!(error, WorkspaceError::Command(EngineError::Provider(_))));
    assert_eq!(sandbox.state(), Lifecycle::Error);
    let error = sandbox.run_script(script("exit 0")).await.unwrap_err();
    assert_eq!(error.to_string(), "a sandbox in state error cannot go to running");
    sandbox.teardown().await.unwrap();
    assert!(names(&scratch.base()).is_empty());
}

/// R49: the directory goes with success, an error, a panic and a dropped future alike.
#[tokio::test]
async fn with_always_tears_down() {
    let scratch = Scratch::new();
    let manager = scratch.manager();
    let id = ws("ws");
    let written = manager
        .with(&id, async |sandbox| {
            sandbox.run_script(script("write a")).await?;
            Ok(names(sandbox.root()))
        })
        .await
        .unwrap();
    assert_eq!(written, ["a"]);
    assert!(names(&scratch.base()).is_empty());

    let error = manager
        .with(&id, async |sandbox| sandbox.run_script(script("break")).await)
        .await
        .unwrap_err();
    assert!(matches!(error, WorkspaceError::Command(_)));
    assert!(names(&scratch.base()).is_empty());

    let spawned = manager.clone();
    let panicked = tokio::spawn(async move {
        spawned
            .with(&ws("ws"), async |_| -> Result<(), WorkspaceError> {
                panic!("as tests do")
            })
            .await
    });
    assert!(panicked.await.unwrap_err().is_panic());
    assert!(names(&scratch.base()).is_empty());

    let hung = manager.with(&id, async |sandbox| sandbox.run_script(script("hang")).await);
    let enough = std::time::Duration::from_millis(20);
    assert!(tokio::time::timeout(enough, hung).await.is_err());
    assert!(names(&scratch.base()).is_empty());
}

/// R49: `ws` never touches `ws-2`, nor anything else that begins alike.
#[tokio::test]
async fn teardown_keeps_to_its_workspace() {
    let scratch = Scratch::new();
    let manager = scratch.manager();
    let _first = manager.setup(&ws("ws")).unwrap();
    let _second = manager.setup(&ws("ws")).unwrap();
    let other = manager.setup(&ws("ws-2")).unwrap();
    fs::create_dir(scratch.base().join("w")).unwrap();
    // Left over by a process that died.
    fs::create_dir_all(scratch.base().join("ws/sb-old/x")).unwrap();

    manager.teardown(&ws("ws")).await.unwrap();
    assert_eq!(names(&scratch.base()), ["w", "ws-2"]);
    assert!(other.root().is_dir());
    assert_eq!(other.state(), Lifecycle::Ready);

    manager.teardown(&ws("ws")).await.unwrap();
    manager.teardown(&ws("never")).await.unwrap();
    drop(other);
    assert_eq!(names(&scratch.base()), ["w"]);
}

/// A sandbox that was torn down by its manager runs nothing more, and what ran was stopped.
#[tokio::test]
async fn teardown_stops_what_runs() {
    let scratch = Scratch::new();
    let manager = scratch.manager();
    let mut sandbox = manager.setup(&ws("ws")).unwrap();
    let root = sandbox.root().to_owned();
    let running = tokio::spawn(async move {
        let result = sandbox.run_script(script("hang")).await;
        (sandbox, result)
    });
    tokio::task::yield_now().await;
    manager.teardown(&ws("ws")).await.unwrap();
    assert!(!root.exists());
    let (mut sandbox, result) = running.await.unwrap();
    assert_eq!(
        result.unwrap().outcome.status,
        belljar_core::SandboxStatus::Killed
    );
    assert_eq!(sandbox.state(), Lifecycle::Teardown);
    let error = sandbox.run_script(script("exit 0")).await.unwrap_err();
    assert!(matches!(error, WorkspaceError::State(_)));
}

/// A set-up that comes while its workspace is torn down keeps its directory.
#[test]
fn parallel_setups_are_unique_and_survive_a_teardown() {
    let scratch = Scratch::new();
    let manager = scratch.manager();
    let id = ws("ws");
    let roots: BTreeSet<PathBuf> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|index| {
                let (manager, id) = (&manager, &id);
                scope.spawn(move || {
                    let mut roots = Vec::new();
                    for _ in 0..50 {
                        let sandbox = manager.setup(id).unwrap();
                        assert!(sandbox.root().is_dir());
                        roots.push(sandbox.root().to_owned());
                        if index == 0 {
                            // Nothing of the others is taken for a leftover.
                            manager.inner.remove_workspace(id).unwrap();
                        }
                        assert!(sandbox.root().is_dir());
                    }
                    roots
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(roots.len(), 8 * 50);
    assert!(names(&scratch.base()).is_empty());
}

/// P36's cousin: what a guest links to stays as it was.
#[tokio::test]
async fn teardown_follows_no_link() {
    let scratch = Scratch::new();
    let canary = scratch.0.join("canary");
    fs::create_dir(&canary).unwrap();
    fs::write(canary.join("file"), "alive").unwrap();
    let before = fs::metadata(&canary).unwrap().permissions().mode();

    let manager = scratch.manager();
    let sandbox = manager.setup(&ws("ws")).unwrap();
    let root = sandbox.root().to_owned();
    symlink(&canary, root.join("to-directory")).unwrap();
    symlink(canary.join("file"), root.join("to-file")).unwrap();
    fs::create_dir(root.join("below")).unwrap();
    symlink("../../../../../canary", root.join("below/relative")).unwrap();
    symlink("/", root.join("below/root")).unwrap();
    sandbox.teardown().await.unwrap();

    // Its whole directory swapped for a link: the link goes, and nothing behind it.
    let sandbox = manager.setup(&ws("ws")).unwrap();
    fs::remove_dir(sandbox.root()).unwrap();
    symlink(&canary, sandbox.root()).unwrap();
    sandbox.teardown().await.unwrap();
    assert!(names(&scratch.base()).is_empty());

    // And the workspace's own: that is refused, and told.
    let sandbox = manager.setup(&ws("ws")).unwrap();
    let workspace = scratch.base().join("ws");
    fs::rename(&workspace, scratch.0.join("aside")).unwrap();
    symlink(&canary, &workspace).unwrap();
    assert!(matches!(
        sandbox.teardown().await.unwrap_err(),
        WorkspaceError::Teardown { .. }
    ));
    assert!(matches!(
        manager.setup(&ws("ws")).unwrap_err(),
        WorkspaceError::Setup { .. }
    ));

    assert_eq!(names(&canary), ["file"]);
    assert_eq!(fs::read_to_string(canary.join("file")).unwrap(), "alive");
    assert_eq!(fs::metadata(&canary).unwrap().permissions().mode(), before);
}

/// R53: which of the four it was can be told apart.
#[tokio::test]
async fn failures_are_told_apart() {
    let scratch = Scratch::new();
    let manager = scratch.manager();
    fs::write(scratch.0.join("deep"), "a file").unwrap();
    let error = manager.setup(&ws("ws")).unwrap_err();
    assert!(matches!(error, WorkspaceError::Base { .. }), "{error}");
    fs::remove_file(scratch.0.join("deep")).unwrap();

    // Others may not be able to put something in a sandbox's place.
    fs::create_dir_all(scratch.base()).unwrap();
    fs::set_permissions(scratch.base(), fs::Permissions::from_mode(0o777)).unwrap();
    let error = manager.setup(&ws("ws")).unwrap_err();
    assert!(matches!(error, WorkspaceError::Base { .. }), "{error}");
    fs::set_permissions(scratch.base(), fs::Permissions::from_mode(0o700)).unwrap();

    fs::write(scratch.base().join("ws"), "a file").unwrap();
    let error = manager.setup(&ws("ws")).unwrap_err();
    assert!(matches!(error, WorkspaceError::Setup { .. }), "{error}");
    let error = manager.teardown(&ws("ws")).await.unwrap_err();
    assert!(matches!(error, WorkspaceError::Teardown { .. }), "{error}");

    let broken = manager
        .with(&ws("w2"), async |sandbox| {
            fs::rename(scratch.base().join("w2"), scratch.0.join("aside")).unwrap();
            fs::write(scratch.base().join("w2"), "a file").unwrap();
            sandbox.run_script(script("break")).await
        })
        .await
        .unwrap_err();
    let WorkspaceError::Both { error, teardown } = broken else {
        panic!("{broken}");
    };
    assert!(matches!(*error, WorkspaceError::Command(_)));
    assert!(matches!(*teardown, WorkspaceError::Teardown { .. }));
}
