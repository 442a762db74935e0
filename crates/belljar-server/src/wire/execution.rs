//! What a caller asks to run.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::egress::Rule;
use belljar_core::request::{Caller, Content, FileIn, Stdin, Workspace};
use belljar_core::{
    Control, Demand, EnvironmentName, GuestPath, Language, LimitOverrides, Mount, NetworkPolicy,
    ProviderName, Request, Source,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::quantity::Quantity;

/// The longest name of a tenant, user or run, and the longest key or value of metadata.
const LONGEST_NAME: usize = 256;
/// The most metadata.
const MOST_METADATA: usize = 64;

/// Code or a command, what it may see, and who is asking.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExecutionRequest {
    /// The policy to hold it against; `standard` unless said.
    pub policy_id: Option<String>,
    /// The language of the code; without it the `#!` line says, else it is Python.
    pub language: Option<String>,
    /// The program's text. This or `command`.
    pub code: Option<String>,
    /// A program and its arguments, without a shell between. This or `code`.
    pub command: Option<CommandWish>,
    /// Execute the code as a session would, in a sandbox of its own: it may end in an expression, and the outcome has its
    /// value, its displays and what it raised. For languages that have sessions.
    pub evaluate: bool,
    /// With `evaluate`: data that the code finds under these names.
    #[schema(value_type = BTreeMap<String, Object>)]
    pub globals: BTreeMap<String, serde_json::Value>,
    /// With `evaluate`: the only modules that the code may import.
    pub allow_imports: Option<Vec<String>>,
    /// With `evaluate`: names that the code may not call.
    pub forbid_calls: Vec<String>,
    /// What the program reads.
    pub stdin: Option<String>,
    /// The same where it is not text.
    pub stdin_base64: Option<String>,
    /// Arguments of the code.
    pub args: Vec<String>,
    /// Variables.
    pub env: BTreeMap<String, String>,
    /// Files for the work directory, by name.
    pub files: BTreeMap<String, FileContent>,
    /// Names of files wanted back.
    pub outputs: Vec<String>,
    /// `HOST:GUEST[:ro|rw]`, where the policy lists it.
    pub mounts: Vec<String>,
    /// A directory of the host that is the work directory, for an engine of one's own.
    pub workspace: Option<String>,
    /// The environment with its packages; `host` unless said.
    pub environment: Option<String>,
    /// The wall to run behind, `native`, `docker`, `gvisor` or `venv`; what the policy prefers unless said.
    pub provider: Option<String>,
    /// The image to make the sandbox of, where the wall has images.
    pub image: Option<String>,
    /// Somebody has read the code and says yes to it, for an engine of one's own.
    pub approved: bool,
    /// `none`, `local`, `restricted` or `full`; what the policy gives unless said.
    pub network: Option<String>,
    /// The only hosts to be reached, `"example.com:443"` or `{"host": …}`; all that the policy allows unless said.
    #[schema(value_type = Option<Vec<Object>>)]
    pub allowed_hosts: Option<Vec<serde_json::Value>>,
    pub limits: LimitWishes,
    /// Controls without which nothing may run.
    pub require: Vec<String>,
    /// Start an interpreter of its own instead of a fork of a warm one.
    pub fresh_interpreter: bool,
    /// Refuse arguments that name places outside the work directory.
    pub check_paths: bool,
    /// `use_default`, or `require_escalated`: somebody has to approve it, whatever the policy says.
    pub sandbox_permissions: Option<String>,
    /// Whose it is, for a key that serves all tenants.
    pub tenant_id: Option<String>,
    /// Who of the tenant asks.
    pub user_id: Option<String>,
    /// What it belongs to, for the record.
    pub run_id: Option<String>,
    /// Whatever else should stand in the record.
    pub metadata: BTreeMap<String, String>,
}

/// A command: its words, or one line that is split as a shell would split it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a list of words, or a line of text")]
pub enum CommandWish {
    Words(Vec<String>),
    Line(String),
}

impl CommandWish {
    /// The words of it. What a shell would act on is refused (R56, R57).
    pub fn words(&self) -> Result<Vec<String>, WireError> {
        match self {
            Self::Words(words) => Ok(words.clone()),
            Self::Line(line) => belljar_core::command::split(line)
                .map_err(|error| WireError::new("command", error.to_string())),
        }
    }
}

/// A file's content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "text, or {\"base64\": \"…\"}")]
pub enum FileContent {
    Text(String),
    Bytes(FileBytes),
}

/// Bytes that need not be text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileBytes {
    pub base64: String,
    #[serde(default)]
    pub executable: bool,
}

/// Less than the policy permits; more is denied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitWishes {
    pub timeout: Option<Quantity>,
    pub cpu_seconds: Option<Quantity>,
    pub memory: Option<Quantity>,
    pub processes: Option<u32>,
    pub open_files: Option<u32>,
    pub file_size: Option<Quantity>,
    pub disk: Option<Quantity>,
    pub output_limit: Option<Quantity>,
    pub cpu_percent: Option<u32>,
}

/// A field that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {message}")]
pub struct WireError {
    pub field: String,
    pub message: String,
}

impl WireError {
    pub(crate) fn new(field: &str, message: impl Into<String>) -> Self {
        Self {
            field: field.to_owned(),
            message: message.into(),
        }
    }
}

impl ExecutionRequest {
    /// The request that this asks for. Its caller is what the wire says; whether that is true is not decided here.
    pub fn to_request(&self) -> Result<Request, WireError> {
        let mut request = Request {
            source: self.source()?,
            args: self.args.clone(),
            env: self.env.clone(),
            limits: self.limits.overrides()?,
            fresh_interpreter: self.fresh_interpreter,
            check_paths: self.check_paths,
            image: self.image.clone(),
            approved: self.approved,
            caller: self.caller()?,
            ..Request::command(Vec::new())
        };
        match (self.evaluate, request.language()) {
            (true, Some(language)) => {
                request.source = Request::interpreter(language).source;
                request.session.imports.clone_from(&self.allow_imports);
                request.session.forbidden_calls.clone_from(&self.forbid_calls);
                if !self.args.is_empty() {
                    return Err(WireError::new("args", "is for programs; leave `evaluate` out"));
                }
            }
            (true, None) => return Err(WireError::new("evaluate", "is for code; a command has no value")),
            (false, _) => self.check_program()?,
        }
        request.stdin = match (&self.stdin, &self.stdin_base64) {
            (None, None) => Stdin::Empty,
            (Some(text), None) => Stdin::Bytes(text.as_bytes().into()),
            (None, Some(base64)) => Stdin::Bytes(decoded("stdin_base64", base64)?.into()),
            (Some(_), Some(_)) => {
                return Err(WireError::new(
                    "stdin_base64",
                    "there is `stdin` already; give one of the two",
                ));
            }
        };
        for (name, content) in &self.files {
            request.files.insert(path("files", name)?, content.read(name)?);
        }
        request.outputs = paths("outputs", &self.outputs)?;
        for mount in &self.mounts {
            let mount: Mount = read("mounts", mount)?;
            request.mounts.push(mount);
        }
        if let Some(directory) = &self.workspace {
            request.workspace = Workspace::Directory(directory.into());
        }
        if let Some(name) = &self.environment {
            request.environment = EnvironmentName::unless_host(name)
                .map_err(|error| WireError::new("environment", error.to_string()))?;
        }
        if let Some(provider) = &self.provider {
            request.provider = Some(read::<ProviderName>("provider", provider)?);
        }
        if let Some(network) = &self.network {
            request.network = Some(read::<NetworkPolicy>("network", network)?);
        }
        if let Some(hosts) = &self.allowed_hosts {
            let rules = hosts.iter().map(|host| {
                serde_json::from_value::<Rule>(host.clone())
                    .map_err(|error| WireError::new("allowed_hosts", error.to_string()))
            });
            request.hosts = Some(rules.collect::<Result<_, _>>()?);
        }
        for control in &self.require {
            request
                .controls
                .insert(read::<Control>("require", control)?, Demand::Require);
        }
        Ok(request)
    }

    /// What to send for a request, with `stdin` as what it reads. Files of this machine are read here.
    pub fn of(request: &Request, stdin: Option<Vec<u8>>) -> std::io::Result<Self> {
        let (language, code, command) = match &request.source {
            Source::Code { language, code } => {
                // What is not text would not arrive as it is.
                let code = std::str::from_utf8(code).map_err(std::io::Error::other)?;
                (Some(language.word().to_owned()), Some(code.to_owned()), None)
            }
            Source::Interpreter { language } => (Some(language.word().to_owned()), None, None),
            Source::Command { argv } => (None, None, Some(CommandWish::Words(argv.clone()))),
        };
        let mut files = BTreeMap::new();
        for (path, file) in &request.files {
            let bytes = match &file.content {
                Content::Inline(bytes) => bytes.to_vec(),
                Content::HostFile(host) => std::fs::read(host)?,
            };
            let content = FileContent::Bytes(FileBytes {
                base64: STANDARD.encode(bytes),
                executable: file.executable,
            });
            files.insert(path.as_str().to_owned(), content);
        }
        let (text, base64) = match stdin.map(String::from_utf8) {
            None => (None, None),
            Some(Ok(text)) => (Some(text), None),
            Some(Err(bytes)) => (None, Some(STANDARD.encode(bytes.as_bytes()))),
        };
        Ok(Self {
            language,
            code,
            command,
            stdin: text,
            stdin_base64: base64,
            args: request.args.clone(),
            env: request.env.clone(),
            files,
            outputs: request
                .outputs
                .iter()
                .map(|path| path.as_str().to_owned())
                .collect(),
            mounts: request.mounts.iter().map(ToString::to_string).collect(),
            environment: request.environment.as_ref().map(ToString::to_string),
            provider: request.provider.map(|provider| provider.word().to_owned()),
            image: request.image.clone(),
            approved: request.approved,
            network: request.network.map(|network| network.word().to_owned()),
            allowed_hosts: request.hosts.as_ref().map(|rules| {
                let values = rules
                    .iter()
                    .map(|rule| serde_json::to_value(rule).unwrap_or_default());
                values.collect()
            }),
            limits: LimitWishes::of(&request.limits),
            require: request
                .controls
                .keys()
                .map(|control| control.word().to_owned())
                .collect(),
            fresh_interpreter: request.fresh_interpreter,
            check_paths: request.check_paths,
            tenant_id: request.caller.tenant_id.clone(),
            user_id: request.caller.user_id.clone(),
            run_id: request.caller.run_id.clone(),
            metadata: request.caller.metadata.clone(),
            ..Self::default()
        })
    }

    /// What a program cannot have.
    fn check_program(&self) -> Result<(), WireError> {
        let given = [
            ("globals", !self.globals.is_empty()),
            ("allow_imports", self.allow_imports.is_some()),
            ("forbid_calls", !self.forbid_calls.is_empty()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((field, _)) => Err(WireError::new(field, "is for code with `evaluate`")),
        }
    }

    /// R52: whether the caller itself wants somebody to approve it.
    pub fn is_escalated(&self) -> Result<bool, WireError> {
        match self.sandbox_permissions.as_deref() {
            None | Some("use_default") => Ok(false),
            Some("require_escalated") => Ok(true),
            Some(_) => Err(WireError::new(
                "sandbox_permissions",
                "is not known; use use_default or require_escalated",
            )),
        }
    }

    fn source(&self) -> Result<Source, WireError> {
        let language = self.language.as_deref().map(language).transpose()?;
        match (&self.code, &self.command) {
            (Some(code), None) => {
                let code = code.as_bytes();
                let language = language
                    .or_else(|| Language::from_shebang(code))
                    .unwrap_or(Language::Python);
                Ok(Request::code(language, code).source)
            }
            (None, Some(_)) if language.is_some() => {
                Err(WireError::new("language", "a command has none; leave it out"))
            }
            (None, Some(command)) => Ok(Source::Command {
                argv: command.words()?,
            }),
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

    fn caller(&self) -> Result<Caller, WireError> {
        let names = [
            ("tenant_id", &self.tenant_id),
            ("user_id", &self.user_id),
            ("run_id", &self.run_id),
        ];
        for (field, name) in names {
            if let Some(name) = name {
                check_name(field, name)?;
            }
        }
        if self.metadata.len() > MOST_METADATA {
            return Err(WireError::new(
                "metadata",
                format!("has more than {MOST_METADATA} entries"),
            ));
        }
        for (name, value) in &self.metadata {
            check_name("metadata", name)?;
            check_name("metadata", value)?;
        }
        Ok(Caller {
            tenant_id: self.tenant_id.clone(),
            user_id: self.user_id.clone(),
            run_id: self.run_id.clone(),
            metadata: self.metadata.clone(),
        })
    }
}

impl FileContent {
    fn read(&self, name: &str) -> Result<FileIn, WireError> {
        match self {
            Self::Text(text) => Ok(FileIn::inline(text.as_bytes())),
            Self::Bytes(file) => {
                let bytes = decoded(&format!("files.{}", short(name)), &file.base64)?;
                Ok(FileIn {
                    executable: file.executable,
                    ..FileIn::inline(bytes)
                })
            }
        }
    }
}

impl LimitWishes {
    fn of(limits: &LimitOverrides) -> Self {
        let bytes =
            |size: Option<belljar_core::Bytes>| size.map(|size| Quantity::Text(size.get().to_string()));
        let time = |time: Option<belljar_core::Seconds>| time.map(|time| Quantity::Number(time.get()));
        Self {
            timeout: time(limits.wall_time),
            cpu_seconds: time(limits.cpu_time),
            memory: bytes(limits.memory),
            processes: limits.processes,
            open_files: limits.open_files,
            file_size: bytes(limits.file_size),
            disk: bytes(limits.disk),
            output_limit: bytes(limits.output),
            cpu_percent: limits.cpu_percent,
        }
    }

    /// The same in the guard's words.
    pub fn overrides(&self) -> Result<LimitOverrides, WireError> {
        fn quantity<T>(wish: Option<&Quantity>, field: &str) -> Result<Option<T>, WireError>
        where
            T: std::str::FromStr,
            T::Err: std::fmt::Display,
        {
            wish.map(|wish| wish.read(&format!("limits.{field}"))).transpose()
        }
        Ok(LimitOverrides {
            wall_time: quantity(self.timeout.as_ref(), "timeout")?,
            cpu_time: quantity(self.cpu_seconds.as_ref(), "cpu_seconds")?,
            memory: quantity(self.memory.as_ref(), "memory")?,
            file_size: quantity(self.file_size.as_ref(), "file_size")?,
            disk: quantity(self.disk.as_ref(), "disk")?,
            output: quantity(self.output_limit.as_ref(), "output_limit")?,
            processes: self.processes,
            open_files: self.open_files,
            cpu_percent: self.cpu_percent,
        })
    }
}

fn decoded(field: &str, base64: &str) -> Result<Vec<u8>, WireError> {
    STANDARD
        .decode(base64)
        .map_err(|error| WireError::new(field, format!("is not base64: {error}")))
}

fn language(name: &str) -> Result<Language, WireError> {
    Language::from_name(name).ok_or_else(|| {
        let known: Vec<_> = Language::ALL.iter().map(|language| language.word()).collect();
        let message = format!("`{}` is not known; use one of {}", short(name), known.join(", "));
        WireError::new("language", message)
    })
}

/// Names of files in the work directory.
pub(crate) fn paths(field: &str, names: &[String]) -> Result<Vec<GuestPath>, WireError> {
    names.iter().map(|name| path(field, name)).collect()
}

fn path(field: &str, name: &str) -> Result<GuestPath, WireError> {
    GuestPath::new(name).map_err(|error| WireError::new(field, error.to_string()))
}

fn read<T>(field: &str, text: &str) -> Result<T, WireError>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse()
        .map_err(|error: T::Err| WireError::new(field, error.to_string()))
}

/// Names stand in records, logs and URLs.
pub(crate) fn check_name(field: &str, name: &str) -> Result<(), WireError> {
    if name.len() > LONGEST_NAME {
        return Err(WireError::new(
            field,
            format!("is longer than {LONGEST_NAME} bytes"),
        ));
    }
    if name.chars().any(char::is_control) {
        return Err(WireError::new(field, "holds a control character"));
    }
    Ok(())
}

/// So much of a caller's text as can be repeated.
fn short(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}
