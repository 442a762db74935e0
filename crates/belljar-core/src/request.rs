//! What a caller wants to run. A request is a wish: nothing in it has been checked yet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::control::{Control, Demand};
use crate::egress::Rule;
use crate::environment::EnvironmentName;
use crate::language::Language;
use crate::limits::LimitOverrides;
use crate::mount::Mount;
use crate::path::GuestPath;
use crate::session::SessionWishes;
use crate::status::{NetworkPolicy, ProviderName};

/// One wish: what to run, with what, and who is asking.
#[derive(Clone, Debug)]
pub struct Request {
    pub source: Source,
    pub args: Vec<String>,
    pub stdin: Stdin,
    pub env: BTreeMap<String, String>,
    /// Files to put into the work directory before anything runs.
    pub files: BTreeMap<GuestPath, FileIn>,
    /// Files wanted back afterwards.
    pub outputs: Vec<GuestPath>,
    pub mounts: Vec<Mount>,
    /// The wall to run behind; unset: what the policy prefers.
    pub provider: Option<ProviderName>,
    /// The image to make the sandbox of, where the wall has images.
    pub image: Option<String>,
    /// The packages to run with; unset: `host`, what the machine itself has.
    pub environment: Option<EnvironmentName>,
    /// Unset: what the policy gives.
    pub network: Option<NetworkPolicy>,
    /// The only hosts to be reached; unset: all that the policy allows.
    pub hosts: Option<Vec<Rule>>,
    pub limits: LimitOverrides,
    /// What a session wishes beyond that.
    pub session: SessionWishes,
    /// Controls the caller insists on, beyond the policy.
    pub controls: BTreeMap<Control, Demand>,
    /// Run in an interpreter that nothing else was forked from.
    pub fresh_interpreter: bool,
    /// Refuse arguments that name places outside the work directory (R47).
    pub check_paths: bool,
    pub workspace: Workspace,
    /// Somebody who may has said yes to exactly this (R12).
    pub approved: bool,
    pub caller: Caller,
}

/// What to run.
#[derive(Clone, Debug)]
pub enum Source {
    /// A program's text.
    Code { language: Language, code: Arc<[u8]> },
    /// An interpreter that stays and takes code in pieces: a session.
    Interpreter { language: Language },
    /// A command and its arguments, already split.
    Command { argv: Vec<String> },
}

/// Where standard input comes from.
#[derive(Clone, Debug, Default)]
pub enum Stdin {
    /// At its end from the start.
    #[default]
    Empty,
    Bytes(Arc<[u8]>),
    /// Whatever the caller feeds while the program runs.
    Stream,
}

/// One file for the work directory.
#[derive(Clone, Debug)]
pub struct FileIn {
    pub content: Content,
    pub executable: bool,
}

/// Where a file's bytes are.
#[derive(Clone, Debug)]
pub enum Content {
    Inline(Arc<[u8]>),
    /// A regular file of the host, read when the sandbox is made.
    HostFile(PathBuf),
}

/// What the guest's work directory is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Workspace {
    /// Memory of its own, gone with the sandbox.
    #[default]
    Scratch,
    /// A directory that a workspace manager made for this sandbox.
    Directory(PathBuf),
}

/// Who is asking.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Caller {
    pub tenant_id: Option<String>,
    pub user_id: Option<String>,
    pub run_id: Option<String>,
    pub metadata: BTreeMap<String, String>,
}

impl Request {
    fn of(source: Source) -> Self {
        Self {
            source,
            args: Vec::new(),
            stdin: Stdin::default(),
            env: BTreeMap::new(),
            files: BTreeMap::new(),
            outputs: Vec::new(),
            mounts: Vec::new(),
            provider: None,
            image: None,
            environment: None,
            network: None,
            hosts: None,
            limits: LimitOverrides::default(),
            session: SessionWishes::default(),
            controls: BTreeMap::new(),
            fresh_interpreter: false,
            check_paths: false,
            workspace: Workspace::default(),
            approved: false,
            caller: Caller::default(),
        }
    }

    /// A wish to run `code`.
    pub fn code(language: Language, code: impl Into<Arc<[u8]>>) -> Self {
        Self::of(Source::Code {
            language,
            code: code.into(),
        })
    }

    /// A wish for an interpreter that stays.
    pub fn interpreter(language: Language) -> Self {
        Self::of(Source::Interpreter { language })
    }

    /// A wish to run a command.
    pub fn command(argv: Vec<String>) -> Self {
        Self::of(Source::Command { argv })
    }

    /// The language, where the request is for code.
    pub const fn language(&self) -> Option<Language> {
        match &self.source {
            Source::Code { language, .. } | Source::Interpreter { language } => Some(*language),
            Source::Command { .. } => None,
        }
    }

    /// The bytes whose hash stands in the record.
    pub fn code_bytes(&self) -> Vec<u8> {
        match &self.source {
            Source::Code { code, .. } => code.to_vec(),
            Source::Interpreter { .. } => Vec::new(),
            Source::Command { argv } => argv.join("\0").into_bytes(),
        }
    }
}

impl FileIn {
    pub fn inline(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self {
            content: Content::Inline(bytes.into()),
            executable: false,
        }
    }

    pub fn host(path: impl Into<PathBuf>) -> Self {
        Self {
            content: Content::HostFile(path.into()),
            executable: false,
        }
    }
}
