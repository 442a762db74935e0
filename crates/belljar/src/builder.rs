//! What a caller can say about a run, for one-shot runs and kept sandboxes alike.
//!
//! A builder only gathers wishes; the guard alone decides about them. A wish that cannot even be
//! written down, such as a path that leaves the work directory, is reported when it is used.

use std::path::Path;
use std::sync::Arc;

use belljar_core::command;
use belljar_core::egress::Rule;
use belljar_core::request::{Caller, FileIn, Stdin, Workspace};
use belljar_core::{
    Access, Bytes, Control, Demand, EnvironmentName, GuestPath, Language, LimitOverrides, Mount,
    NetworkPolicy, Policy, ProviderName, Request, Seconds,
};
use belljar_engine::Engine;
use belljar_engine::environment::EnvironmentError;

use crate::error::Error;
use crate::load;
use crate::native::shared_engine;

/// How long code may run where neither the caller nor a policy says (R21).
pub const DEFAULT_TIMEOUT: Seconds = Seconds::whole(30);

/// Wishes for a run. `T` is what becomes of them: a sandbox to keep, or one execution.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built or run"]
pub struct Builder<T> {
    /// Everything but the source, which stands for whatever will run.
    request: Request,
    language: Option<Language>,
    policy: Option<Policy>,
    allowed_commands: Vec<String>,
    engine: Option<Engine>,
    /// The first wish that could not be written down.
    error: Option<Error>,
    purpose: T,
}

/// A builder's wishes once they could all be written down.
pub(crate) struct Wishes<T> {
    pub(crate) engine: Engine,
    pub(crate) request: Request,
    pub(crate) language: Option<Language>,
    pub(crate) purpose: T,
    policy: Option<Policy>,
    allowed_commands: Vec<String>,
}

impl<T> Builder<T> {
    pub(crate) fn new(purpose: T) -> Self {
        Self {
            request: Request::command(Vec::new()),
            language: None,
            policy: None,
            allowed_commands: Vec::new(),
            engine: None,
            error: None,
            purpose,
        }
    }

    /// The language of the code; where it is not said, Python, or what a file's name or first line means.
    pub fn language(mut self, language: Language) -> Self {
        self.language = Some(language);
        self
    }

    /// The policy to hold every wish against. Without one, asking is enough: see [`Policy::for_owner`].
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The built-in policy of that name, or the one in the TOML file of that name.
    pub fn policy_named(self, name_or_file: &str) -> Self {
        match load::policy(name_or_file) {
            Ok(policy) => self.policy(policy),
            Err(error) => self.failed(error),
        }
    }

    /// One more argument of the program.
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.request.args.push(argument.into());
        self
    }

    /// More arguments of the program.
    pub fn args<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.request.args.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Bytes on standard input.
    pub fn stdin(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.request.stdin = Stdin::Bytes(bytes.as_ref().into());
        self
    }

    /// A variable for the guest. Nothing of the caller's own environment reaches it unless it is named here.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.env.insert(name.into(), value.into());
        self
    }

    /// A file to put into the work directory, with its content.
    pub fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let content: Arc<[u8]> = content.as_ref().into();
        self.file_in(path, FileIn::inline(content))
    }

    /// A file of the host to copy into the work directory.
    pub fn host_file(self, path: &str, host: impl AsRef<Path>) -> Self {
        self.file_in(path, FileIn::host(host.as_ref()))
    }

    fn file_in(mut self, path: &str, file: FileIn) -> Self {
        match GuestPath::new(path) {
            Ok(path) => {
                self.request.files.insert(path, file);
                self
            }
            Err(error) => self.failed(error.into()),
        }
    }

    /// A file to hand back afterwards, in [`Outcome::files`](crate::Outcome).
    pub fn output(mut self, path: &str) -> Self {
        match GuestPath::new(path) {
            Ok(path) => {
                self.request.outputs.push(path);
                self
            }
            Err(error) => self.failed(error.into()),
        }
    }

    /// The packages to run with: an environment by its name, see [`environment`](crate::environment).
    /// Without one, or with `host`, it is what the machine itself has.
    pub fn environment(mut self, name: &str) -> Self {
        match EnvironmentName::unless_host(name) {
            Ok(name) => {
                self.request.environment = name;
                self
            }
            Err(error) => self.failed(EnvironmentError::from(error).into()),
        }
    }

    /// A host directory or file to show to the guest.
    pub fn mount(mut self, host: impl AsRef<Path>, guest: impl AsRef<Path>, access: Access) -> Self {
        match Mount::new(host.as_ref(), guest.as_ref(), access) {
            Ok(mount) => {
                self.request.mounts.push(mount);
                self
            }
            Err(error) => self.failed(error.into()),
        }
    }

    /// Runs it behind this wall. Without a named policy asking is enough; only `venv`, which is none, has to be approved as well.
    pub fn provider(mut self, provider: ProviderName) -> Self {
        self.request.provider = Some(provider);
        self
    }

    /// Makes the sandbox of an image.
    pub fn image(mut self, image: impl Into<String>) -> Self {
        self.request.image = Some(image.into());
        self
    }

    /// Says yes to exactly this code, where a policy or the lack of a wall asks for that (R12, R37).
    pub fn approve(mut self) -> Self {
        self.request.approved = true;
        self
    }

    /// A host that it may reach by name, such as `api.example.com:443` or `*.example.com`; all others it may not.
    pub fn allow_host(mut self, rule: Rule) -> Self {
        self.request.hosts.get_or_insert_default().push(rule);
        self
    }

    /// What of the network it may reach; nothing unless said.
    pub fn network(mut self, network: NetworkPolicy) -> Self {
        self.request.network = Some(network);
        self
    }

    /// All limits at once; what is unset stays as the policy has it.
    pub fn limits(mut self, limits: LimitOverrides) -> Self {
        self.request.limits = limits;
        self
    }

    /// Memory of the whole sandbox.
    pub fn memory(mut self, memory: Bytes) -> Self {
        self.request.limits.memory = Some(memory);
        self
    }

    /// Time on the clock, for each execution: 30 seconds unless said, at most 300 unless a policy says more.
    pub fn timeout(mut self, timeout: impl Into<Seconds>) -> Self {
        self.request.limits.wall_time = Some(timeout.into());
        self
    }

    /// CPU time of all processes together.
    pub fn cpu_time(mut self, cpu_time: impl Into<Seconds>) -> Self {
        self.request.limits.cpu_time = Some(cpu_time.into());
        self
    }

    /// Processes alive at once.
    pub fn processes(mut self, processes: u32) -> Self {
        self.request.limits.processes = Some(processes);
        self
    }

    /// A control without which nothing may run.
    pub fn require(mut self, control: Control) -> Self {
        self.request.controls.insert(control, Demand::Require);
        self
    }

    /// Refuse arguments that name places outside the work directory.
    pub fn check_paths(mut self) -> Self {
        self.request.check_paths = true;
        self
    }

    /// A program that commands may start. Once one is named, no other may.
    pub fn allow_command(mut self, program: impl Into<String>) -> Self {
        self.allowed_commands.push(program.into());
        self
    }

    /// A directory to work in, made by a workspace manager; otherwise memory that is gone afterwards.
    pub fn workspace(mut self, workspace: Workspace) -> Self {
        self.request.workspace = workspace;
        self
    }

    /// Who is asking, for the record.
    pub fn caller(mut self, caller: Caller) -> Self {
        self.request.caller = caller;
        self
    }

    /// The engine to use; otherwise the one that all of this process share.
    pub fn engine(mut self, engine: &Engine) -> Self {
        self.engine = Some(engine.clone());
        self
    }

    fn failed(mut self, error: Error) -> Self {
        self.error.get_or_insert(error);
        self
    }

    pub(crate) fn request_mut(&mut self) -> &mut Request {
        &mut self.request
    }

    pub(crate) fn purpose_mut(&mut self) -> &mut T {
        &mut self.purpose
    }

    /// The same wishes for another purpose.
    pub(crate) fn with_purpose<U>(self, change: impl FnOnce(T) -> U) -> Builder<U> {
        Builder {
            request: self.request,
            language: self.language,
            policy: self.policy,
            allowed_commands: self.allowed_commands,
            engine: self.engine,
            error: self.error,
            purpose: change(self.purpose),
        }
    }

    pub(crate) fn wishes(self) -> Result<Wishes<T>, Error> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(Wishes {
                engine: self.engine.unwrap_or_else(shared_engine),
                request: self.request,
                language: self.language,
                purpose: self.purpose,
                policy: self.policy,
                allowed_commands: self.allowed_commands,
            }),
        }
    }
}

impl<T> Wishes<T> {
    /// The policy to hold the finished request against; fills in what is the default without one.
    pub(crate) fn settle(&mut self) -> Result<Policy, Error> {
        let mut policy = match self.policy.take() {
            Some(policy) => policy,
            None => {
                self.request.limits.wall_time.get_or_insert(DEFAULT_TIMEOUT);
                Policy::for_owner(&self.request)?
            }
        };
        narrow_commands(&mut policy, std::mem::take(&mut self.allowed_commands))?;
        Ok(policy)
    }
}

/// Leaves only `allowed` of the commands that `policy` has; an empty list leaves it as it is.
pub fn narrow_commands(policy: &mut Policy, allowed: Vec<String>) -> Result<(), Error> {
    if allowed.is_empty() {
        return Ok(());
    }
    for program in &allowed {
        // An allowlist of nothing means anything, so a name must never just fall out of the list.
        if !policy.allowed_commands.is_empty() && !policy.allowed_commands.contains(program) {
            return Err(Error::CommandBeyondPolicy {
                policy: policy.policy_id.clone(),
                command: program.clone(),
            });
        }
        command::check(std::slice::from_ref(program), &[])?;
    }
    policy.allowed_commands = allowed;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_core::ErrorKind;

    fn settled(builder: Builder<()>) -> Result<(Policy, Request), Error> {
        let mut wishes = builder.wishes()?;
        let policy = wishes.settle()?;
        Ok((policy, wishes.request))
    }

    /// R21: 30 seconds where nobody says, and never more than 300 without a policy.
    #[test]
    fn the_timeout_is_30_seconds_unless_said() {
        let (_, request) = settled(Builder::new(())).unwrap();
        assert_eq!(request.limits.wall_time, Some(Seconds::whole(30)));
        let (policy, request) = settled(Builder::new(()).timeout(Seconds::whole(900))).unwrap();
        assert_eq!(request.limits.wall_time, Some(Seconds::whole(900)));
        assert_eq!(policy.limits.wall_time(), Seconds::whole(300));
        let (policy, request) = settled(Builder::new(()).policy_named("restricted")).unwrap();
        assert_eq!(request.limits.wall_time, None);
        assert_eq!(policy.limits.wall_time(), Seconds::whole(30));
    }

    #[test]
    fn the_first_wish_that_cannot_be_written_down_is_reported() {
        type Spoil = fn(Builder<()>) -> Builder<()>;
        let cases: [(&str, Spoil); 6] = [
            ("`../x` cannot be an environment's name", |b| {
                b.environment("../x")
            }),
            ("`../x` leaves", |b| b.file("../x", "")),
            ("`/etc/x` is absolute", |b| b.output("/etc/x").file("../x", "")),
            ("nothing can be mounted at `/proc`", |b| {
                b.mount("/a", "/proc", Access::ReadOnly)
            }),
            ("there is no policy `nope`", |b| b.policy_named("nope")),
            ("max_memory_mb must be", |b| b.memory(Bytes::new(u64::MAX))),
        ];
        for (shown, spoil) in cases {
            let error = settled(spoil(Builder::new(()))).unwrap_err();
            assert!(error.to_string().starts_with(shown), "{error}");
            assert_eq!(error.kind(), ErrorKind::Usage);
        }
    }

    #[test]
    fn allowed_commands_only_narrow_a_policy() {
        let narrowed = |permitted: &[&str], asked: &str| {
            let mut policy = Policy::builtin("standard").unwrap();
            policy.allowed_commands = permitted.iter().map(|name| (*name).to_owned()).collect();
            narrow_commands(&mut policy, vec![asked.to_owned()]).map(|()| policy.allowed_commands)
        };
        assert_eq!(narrowed(&[], "ls").unwrap(), ["ls"]);
        assert_eq!(narrowed(&["ls", "cat"], "ls").unwrap(), ["ls"]);
        assert!(matches!(
            narrowed(&["cat"], "ls"),
            Err(Error::CommandBeyondPolicy { .. })
        ));
        assert!(matches!(narrowed(&[], ""), Err(Error::Command(_))));
    }
}
