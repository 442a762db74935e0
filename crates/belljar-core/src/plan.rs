//! The only thing a provider accepts. Fields are private and there is no way in but the guard.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::control::Control;
use crate::egress::Egress;
use crate::environment::EnvironmentUsed;
use crate::language::Language;
use crate::limits::Limits;
use crate::mount::Mount;
use crate::path::GuestPath;
use crate::request::{Caller, FileIn, Stdin, Workspace};
use crate::session::SessionRules;
use crate::status::{IsolationLevel, NetworkPolicy, ProviderName};

/// The guest's work directory.
pub const WORK_DIR: &str = "/workspace";

/// A checked request: what will run, within which walls, and which policy allowed it.
///
/// Only [`crate::guard::check`] makes one, and it cannot be deserialised:
///
/// ```compile_fail
/// fn from_outside(text: &str) -> belljar_core::Plan {
///     serde_json::from_str(text).unwrap()
/// }
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub(crate) policy_id: String,
    pub(crate) policy_hash: String,
    pub(crate) provider: ProviderName,
    pub(crate) image: Option<String>,
    #[serde(skip)]
    pub(crate) fetch_image: bool,
    pub(crate) isolation: IsolationLevel,
    pub(crate) language: Option<Language>,
    pub(crate) code_hash: String,
    pub(crate) stages: Vec<Stage>,
    #[serde(skip)]
    pub(crate) stdin: Stdin,
    #[serde(skip)]
    pub(crate) files: BTreeMap<GuestPath, FileIn>,
    pub(crate) outputs: Vec<GuestPath>,
    pub(crate) mounts: Vec<Mount>,
    #[serde(skip)]
    pub(crate) workspace: Workspace,
    pub(crate) shows: Vec<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) root: Option<PathBuf>,
    pub(crate) environment: Option<EnvironmentUsed>,
    pub(crate) network: NetworkPolicy,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) egress: Option<Egress>,
    #[serde(skip)]
    pub(crate) trust: Option<Arc<[u8]>>,
    pub(crate) limits: Limits,
    pub(crate) session: SessionRules,
    pub(crate) required: BTreeSet<Control>,
    #[serde(skip)]
    pub(crate) caller: Caller,
}

/// One program of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    pub(crate) kind: StageKind,
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) limits: Limits,
    pub(crate) file_write: bool,
    pub(crate) data_limit: bool,
    #[serde(skip)]
    pub(crate) warm: Option<Warm>,
    /// What an interpreter has once it has started, where that is more than what it is started with.
    #[serde(skip)]
    pub(crate) session_env: Option<BTreeMap<String, String>>,
}

/// How a stage may be run by an interpreter that was started before the request came.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Warm {
    pub(crate) runner: Vec<String>,
    pub(crate) forks: bool,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) preload: Vec<String>,
    pub(crate) script: Option<Script>,
}

/// A program for an interpreter that waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Script {
    pub(crate) path: String,
    pub(crate) args: Vec<String>,
}

impl Warm {
    /// The command that starts the runner.
    pub fn runner(&self) -> &[String] {
        &self.runner
    }
    /// Whether the runner can be a zygote: one that forks others.
    pub const fn forks(&self) -> bool {
        self.forks
    }
    /// The variables it is started with, none of them the request's.
    pub const fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }
    /// Modules to import beforehand.
    pub fn preload(&self) -> &[String] {
        &self.preload
    }
    /// The program to run; none for an interpreter that stays.
    pub const fn script(&self) -> Option<&Script> {
        self.script.as_ref()
    }
}

impl Script {
    /// Where it stands, seen from the work directory.
    pub fn path(&self) -> &str {
        &self.path
    }
    pub fn args(&self) -> &[String] {
        &self.args
    }
}

/// What a stage is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageKind {
    Compile,
    Run,
    /// An interpreter that stays.
    Interpreter,
}

impl Plan {
    /// The same with a file that says whom guests trust, at [`TRUST_FILE`](crate::egress::TRUST_FILE).
    #[must_use]
    pub fn trusting(mut self, content: Arc<[u8]>) -> Self {
        self.trust = Some(content);
        self
    }

    /// What is in that file, where there is to be one.
    pub const fn trust(&self) -> Option<&Arc<[u8]>> {
        self.trust.as_ref()
    }

    pub fn policy_id(&self) -> &str {
        &self.policy_id
    }
    pub fn policy_hash(&self) -> &str {
        &self.policy_hash
    }
    /// The wall that it was planned for.
    pub const fn provider(&self) -> ProviderName {
        self.provider
    }
    /// The image that its sandbox is made of, where one was named.
    pub fn image(&self) -> Option<&str> {
        self.image.as_deref()
    }
    /// Whether that may be fetched where it is not there.
    pub const fn may_fetch_image(&self) -> bool {
        self.fetch_image
    }
    pub const fn isolation(&self) -> IsolationLevel {
        self.isolation
    }
    pub const fn language(&self) -> Option<Language> {
        self.language
    }
    /// The SHA-256 of what runs.
    pub fn code_hash(&self) -> &str {
        &self.code_hash
    }
    /// Compile, if there is one, then run.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }
    pub const fn stdin(&self) -> &Stdin {
        &self.stdin
    }
    /// Files to put into the work directory, the code's own among them.
    pub const fn files(&self) -> &BTreeMap<GuestPath, FileIn> {
        &self.files
    }
    pub fn outputs(&self) -> &[GuestPath] {
        &self.outputs
    }
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }
    pub const fn workspace(&self) -> &Workspace {
        &self.workspace
    }
    /// Host directories that the toolchain and the environment need to see, read-only.
    pub fn shows(&self) -> &[PathBuf] {
        &self.shows
    }
    /// The root file system that its environment brings; none: what the host shows.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }
    /// The environment it runs in; none is `host`.
    pub const fn environment(&self) -> Option<&EnvironmentUsed> {
        self.environment.as_ref()
    }
    pub const fn network(&self) -> NetworkPolicy {
        self.network
    }
    /// Whom it may reach, where it may reach anybody.
    pub const fn egress(&self) -> Option<&Egress> {
        self.egress.as_ref()
    }
    /// Limits of the sandbox as a whole; each stage has its own as well.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }
    /// What a session made of this plan may do.
    pub const fn session(&self) -> &SessionRules {
        &self.session
    }
    /// Controls without which it must not run.
    pub const fn required(&self) -> &BTreeSet<Control> {
        &self.required
    }
    pub const fn caller(&self) -> &Caller {
        &self.caller
    }
}

impl Stage {
    pub const fn kind(&self) -> StageKind {
        self.kind
    }
    pub fn argv(&self) -> &[String] {
        &self.argv
    }
    pub const fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }
    /// The variables that code in an interpreter sees. Where code needs approval none of the request's are there when it starts: a
    /// library that reads one then would act on it before anybody has approved anything.
    pub fn session_env(&self) -> &BTreeMap<String, String> {
        self.session_env.as_ref().unwrap_or(&self.env)
    }
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }
    /// Whether it may write files at all.
    pub const fn file_write(&self) -> bool {
        self.file_write
    }
    /// How it may be run by an interpreter that waits; none where it needs a fresh one.
    pub const fn warm(&self) -> Option<&Warm> {
        self.warm.as_ref()
    }
    /// Whether a limit on its data gives it a memory error that it can catch.
    pub const fn data_limit(&self) -> bool {
        self.data_limit
    }
}
