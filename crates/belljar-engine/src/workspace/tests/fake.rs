//! A provider that interprets `write NAME`, `exit CODE`, `break` and `hang`.

use std::collections::BTreeMap;
use std::sync::Arc;

use belljar_core::capabilities::Capabilities;
use belljar_core::outcome::CollectedFile;
use belljar_core::provider::{BoxFuture, Ended, Provider, ProviderError, Sandbox, StageEnd, StageIo};
use belljar_core::request::{Content, FileIn, Workspace};
use belljar_core::{
    Captured, GuestPath, IsolationLevel, Language, NetworkPolicy, Plan, ProviderName, Receipt, Stage, Usage,
};

#[derive(Debug)]
pub(super) struct FakeProvider;

impl Provider for FakeProvider {
    fn name(&self) -> ProviderName {
        ProviderName::Native
    }

    fn capabilities(&self, languages: &[Language]) -> Capabilities {
        crate::fake::capabilities(languages)
    }

    fn open(&self, id: String, plan: Arc<Plan>) -> BoxFuture<'_, Result<Box<dyn Sandbox>, ProviderError>> {
        Box::pin(async move { Ok(Box::new(FakeSandbox { id, plan }) as Box<dyn Sandbox>) })
    }
}

#[derive(Debug)]
struct FakeSandbox {
    id: String,
    plan: Arc<Plan>,
}

impl FakeSandbox {
    fn code(&self) -> String {
        let file = self.plan.files().values().next().unwrap();
        match &file.content {
            Content::Inline(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            Content::HostFile(path) => panic!("{}", path.display()),
        }
    }
}

impl Sandbox for FakeSandbox {
    fn id(&self) -> &str {
        &self.id
    }

    fn put<'a>(&'a mut self, _: &'a BTreeMap<GuestPath, FileIn>) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(async { Ok(()) })
    }

    fn run<'a>(
        &'a mut self,
        _: &'a Stage,
        io: StageIo<'a>,
    ) -> BoxFuture<'a, Result<StageEnd, ProviderError>> {
        Box::pin(async move {
            let code = self.code();
            let ended = match code.split_once(' ').unwrap_or((&code, "")) {
                ("write", name) => {
                    let Workspace::Directory(root) = self.plan.workspace() else {
                        panic!("no directory");
                    };
                    std::fs::write(root.join(name), name).unwrap();
                    Ended::Exited(0)
                }
                ("exit", code) => Ended::Exited(code.parse().unwrap()),
                ("hang", _) => {
                    io.stop.unwrap().await;
                    Ended::Stopped
                }
                ("break", _) => return Err(ProviderError::LauncherLost("as asked".to_owned())),
                (word, _) => panic!("{word}"),
            };
            Ok(StageEnd {
                ended,
                stdout: Captured::default(),
                stderr: Captured::default(),
                usage: Usage::default(),
            })
        })
    }

    fn collect<'a>(&'a mut self, _: &'a [GuestPath], _: u64) -> BoxFuture<'a, Vec<CollectedFile>> {
        Box::pin(async { Vec::new() })
    }

    fn receipt(&self) -> Receipt {
        Receipt {
            provider: "fake".to_owned(),
            isolation: IsolationLevel::Process,
            policy_id: self.plan.policy_id().to_owned(),
            policy_hash: self.plan.policy_hash().to_owned(),
            environment: self.plan.environment().cloned(),
            controls: Default::default(),
            network: NetworkPolicy::None,
            limits: self.plan.limits().clone(),
            shown: Vec::new(),
            origin: String::new(),
        }
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        Box::pin(async { Ok(()) })
    }
}
