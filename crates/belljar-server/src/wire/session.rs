//! Sessions on the wire.

use std::collections::BTreeMap;

use belljar_core::request::Source;
use belljar_core::value::JsonCaps;
use belljar_core::{Request, Value};
use belljar_engine::session::Work;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::execution::{CommandWish, ExecutionRequest, FileContent, LimitWishes, WireError};
use super::quantity::Quantity;

/// How deep a global may be nested, and how much of it there may be.
const CAPS: JsonCaps = JsonCaps {
    bytes: 32 << 20,
    depth: 100,
    items: 1_000_000,
};

/// A session to be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionRequest {
    /// The policy to hold it and everything in it against; `standard` unless said.
    pub policy_id: Option<String>,
    /// `python` unless said. Python and JavaScript have an interpreter that stays; code of the others is run as a program
    /// each time, among the files of those before it.
    pub language: Option<String>,
    /// Commands alone, and no language.
    pub commands: bool,
    /// Variables.
    pub env: BTreeMap<String, String>,
    /// Files for the work directory, by name.
    pub files: BTreeMap<String, FileContent>,
    /// `HOST:GUEST[:ro|rw]`, where the policy lists it.
    pub mounts: Vec<String>,
    pub environment: Option<String>,
    /// The wall to run behind; what the policy prefers unless said.
    pub provider: Option<String>,
    /// The image to make the sandbox of, where the wall has images.
    pub image: Option<String>,
    /// Somebody says yes to all that it will execute, for an engine of one's own.
    pub approved: bool,
    pub network: Option<String>,
    /// The only hosts to be reached; all that the policy allows unless said.
    #[schema(value_type = Option<Vec<Object>>)]
    pub allowed_hosts: Option<Vec<serde_json::Value>>,
    /// For each execution.
    pub limits: LimitWishes,
    /// Controls without which nothing may run.
    pub require: Vec<String>,
    /// Data that the code finds under these names.
    #[schema(value_type = BTreeMap<String, Object>)]
    pub globals: BTreeMap<String, serde_json::Value>,
    /// Functions that the code may call, and that whoever is connected by WebSocket answers.
    pub tools: Vec<String>,
    /// The only modules that code may import.
    pub allow_imports: Option<Vec<String>>,
    /// Names that code may not call.
    pub forbid_calls: Vec<String>,
    pub max_tool_calls: Option<u32>,
    pub max_concurrent_tools: Option<u32>,
    /// How long it may do nothing.
    pub idle_timeout: Option<Quantity>,
    /// How long it may live.
    pub max_age: Option<Quantity>,
    pub tenant_id: Option<String>,
    pub user_id: Option<String>,
    pub run_id: Option<String>,
    pub metadata: BTreeMap<String, String>,
}

impl SessionRequest {
    /// The request that this asks for.
    pub fn to_request(&self) -> Result<Request, WireError> {
        let like = ExecutionRequest {
            language: (!self.commands).then(|| self.language.clone().unwrap_or_else(|| "python".to_owned())),
            code: (!self.commands).then(String::new),
            // It never runs; it stands for all that will.
            command: self.commands.then(|| CommandWish::Words(vec!["true".to_owned()])),
            env: self.env.clone(),
            files: self.files.clone(),
            mounts: self.mounts.clone(),
            environment: self.environment.clone(),
            provider: self.provider.clone(),
            image: self.image.clone(),
            approved: self.approved,
            network: self.network.clone(),
            allowed_hosts: self.allowed_hosts.clone(),
            limits: self.limits.clone(),
            require: self.require.clone(),
            tenant_id: self.tenant_id.clone(),
            user_id: self.user_id.clone(),
            run_id: self.run_id.clone(),
            metadata: self.metadata.clone(),
            ..ExecutionRequest::default()
        };
        let mut request = like.to_request()?;
        request.source = match request.language() {
            // Those without a runner have programs, one after the other among the same files.
            Some(language) if language.has_sessions() => Request::interpreter(language).source,
            Some(language) => Request::code(language, *b"\n").source,
            None => request.source,
        };
        if !matches!(request.source, Source::Interpreter { .. }) {
            let only = [
                ("globals", self.globals.is_empty()),
                ("tools", self.tools.is_empty()),
            ];
            if let Some((field, _)) = only.into_iter().find(|(_, is_empty)| !is_empty) {
                return Err(WireError::new(
                    field,
                    "is for sessions with an interpreter: python or javascript",
                ));
            }
        }
        let wishes = &mut request.session;
        wishes.tool_calls = self.max_tool_calls;
        wishes.concurrent_tools = self.max_concurrent_tools;
        wishes.imports.clone_from(&self.allow_imports);
        wishes.forbidden_calls.clone_from(&self.forbid_calls);
        wishes.idle = self
            .idle_timeout
            .as_ref()
            .map(|time| time.read("idle_timeout"))
            .transpose()?;
        wishes.age = self
            .max_age
            .as_ref()
            .map(|time| time.read("max_age"))
            .transpose()?;
        Ok(request)
    }

    /// What to send for a request. Files of this machine are read here.
    pub fn of(request: &Request) -> std::io::Result<Self> {
        let like = ExecutionRequest::of(request, None)?;
        let wishes = &request.session;
        let time = |time: Option<belljar_core::Seconds>| time.map(|time| Quantity::Number(time.get()));
        Ok(Self {
            language: like.language,
            env: like.env,
            files: like.files,
            mounts: like.mounts,
            environment: like.environment,
            provider: like.provider,
            image: like.image,
            approved: like.approved,
            network: like.network,
            allowed_hosts: like.allowed_hosts,
            limits: like.limits,
            require: like.require,
            allow_imports: wishes.imports.clone(),
            forbid_calls: wishes.forbidden_calls.clone(),
            max_tool_calls: wishes.tool_calls,
            max_concurrent_tools: wishes.concurrent_tools,
            idle_timeout: time(wishes.idle),
            max_age: time(wishes.age),
            tenant_id: like.tenant_id,
            user_id: like.user_id,
            run_id: like.run_id,
            metadata: like.metadata,
            ..Self::default()
        })
    }
}

/// Globals as values.
pub(crate) fn globals(
    wanted: &BTreeMap<String, serde_json::Value>,
) -> Result<BTreeMap<String, Value>, WireError> {
    let value = |(name, json): (&String, &serde_json::Value)| {
        let bytes = json.to_string().into_bytes();
        let value = Value::from_json(&bytes, CAPS)
            .map_err(|error| WireError::new("globals", format!("`{name}`: {error}")))?;
        Ok((name.clone(), value))
    };
    wanted.iter().map(value).collect()
}

/// A session that is alive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    pub session_id: String,
    pub tenant_id: String,
    pub user_id: Option<String>,
    pub run_id: Option<String>,
    pub language: String,
    pub policy_id: String,
    pub policy_hash: String,
    pub tools: Vec<String>,
    /// Seconds since the epoch.
    pub created_at: f64,
}

/// Code or a command for a session to execute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CellRequest {
    /// This or `command`.
    pub code: Option<String>,
    /// A program and its arguments, without a shell between. This or `code`.
    pub command: Option<CommandWish>,
    /// What it reads.
    pub stdin: Option<String>,
    /// Data that the code finds under these names from now on, until a reset.
    #[schema(value_type = BTreeMap<String, Object>)]
    pub globals: BTreeMap<String, serde_json::Value>,
    /// Functions that the code may call from now on, until a reset.
    pub tools: Vec<String>,
    /// Names of files wanted back.
    pub outputs: Vec<String>,
    /// Tighter limits for this one.
    pub limits: LimitWishes,
}

impl CellRequest {
    /// What is to be done.
    pub fn work(&self) -> Result<Work, WireError> {
        match (&self.code, &self.command) {
            (Some(code), None) => Ok(Work::Code(code.clone())),
            (None, Some(command)) => Ok(Work::Command(command.words()?)),
            (None, None) => Err(WireError::new(
                "code",
                "there is nothing to run; give `code` or `command`",
            )),
            (Some(_), Some(_)) => Err(WireError::new(
                "command",
                "there is code already; give one of the two",
            )),
        }
    }
}

/// What a session printed, the latest of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Logs {
    pub stdout: String,
    pub stderr: String,
    /// How many bytes from the beginning are no longer held.
    pub dropped: u64,
}

/// Something in a session's work directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionFile {
    pub path: String,
    /// `file`, `directory`, `link` or `other`.
    pub kind: String,
    pub size: u64,
    pub executable: bool,
}
