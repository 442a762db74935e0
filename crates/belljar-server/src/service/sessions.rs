//! Sessions: an interpreter that stays, for one tenant, with a record for everything it executes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_core::request::FileIn;
use belljar_core::{GuestPath, Policy, Record, Request, SandboxStatus, Source};
use belljar_engine::session::{FileEntry, FileReader, Logs, Surroundings};
use belljar_engine::{Approver, EngineError, Session, SessionError, ToolError, fresh_id};
use serde_json::json;
use tokio::sync::Semaphore;

use super::Service;
use super::error::ServiceError;
use super::identity::Identity;
use super::tool_bridge::Bridge;
use crate::store::Role;
use crate::wire::{self, SessionRequest, WireError};

/// How many executions of one session may wait.
pub(super) const MOST_WAITING: usize = 64;

/// A session that is alive.
#[derive(Debug)]
pub struct LiveSession {
    pub session_id: String,
    /// What it was made with; its caller is who it belongs to.
    pub(super) request: Request,
    pub(super) policy: Arc<Policy>,
    /// The record of whatever it executes, as far as that is known.
    pub(super) record: Record,
    /// Whether records of what it executes are kept.
    pub(super) is_kept: bool,
    /// Whether somebody has to approve each thing that it executes.
    pub(super) asks_approver: bool,
    pub(super) session: Session,
    pub(super) tool_names: Vec<String>,
    pub(super) bridge: Bridge,
    /// What it executes at the moment.
    pub(super) current: Current,
    /// Held while something is executed: one thing after the other.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// Held while it is reset.
    resets: Arc<Semaphore>,
    /// Places for what it executes and what waits for that.
    pub(super) queue: Arc<Semaphore>,
    created_at: f64,
}

impl LiveSession {
    pub(super) fn tenant(&self) -> &str {
        self.request.caller.tenant_id.as_deref().unwrap_or_default()
    }

    /// The way to tools at the caller's.
    pub const fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// Interrupts what it executes; false if that is nothing.
    pub fn interrupt(&self) -> bool {
        self.session.interrupter().interrupt()
    }

    /// A new interpreter. One after the other: whoever does not wait for it does not get another one.
    pub async fn reset(self: &Arc<Self>) -> Result<(), ServiceError> {
        let Ok(reset) = Arc::clone(&self.resets).try_acquire_owned() else {
            return Err(ServiceError::Conflict("it is being reset already".to_owned()));
        };
        let live = Arc::clone(self);
        let resetting = tokio::spawn(async move {
            let _reset = reset;
            live.session.reset().await.map_err(of_session)
        });
        resetting
            .await
            .unwrap_or_else(|_| Err(ServiceError::Engine("the reset broke off".to_owned())))
    }

    pub fn logs(&self) -> Logs {
        self.session.logs()
    }

    pub fn list_files(&self) -> Result<Vec<FileEntry>, ServiceError> {
        self.session.list(None).map_err(of_session)
    }

    pub fn get_file(&self, path: &str) -> Result<FileReader, ServiceError> {
        self.session.get(&guest_path(path)?).map_err(of_session)
    }

    pub async fn put_file(&self, path: &str, bytes: Vec<u8>) -> Result<(), ServiceError> {
        let files = [(guest_path(path)?, FileIn::inline(bytes))].into();
        self.session.put(files).await.map_err(of_session)
    }

    pub fn delete_file(&self, path: &str) -> Result<(), ServiceError> {
        self.session.delete(&guest_path(path)?).map_err(of_session)
    }

    /// What is told of it.
    pub fn shown(&self) -> wire::Session {
        let caller = &self.request.caller;
        wire::Session {
            session_id: self.session_id.clone(),
            tenant_id: self.tenant().to_owned(),
            user_id: caller.user_id.clone(),
            run_id: caller.run_id.clone(),
            language: self
                .request
                .language()
                .map_or("", |language| language.word())
                .to_owned(),
            policy_id: self.policy.policy_id.clone(),
            policy_hash: self.record.policy_hash.clone(),
            tools: self.tool_names.clone(),
            created_at: self.created_at,
        }
    }
}

/// The execution of the moment, for whoever asks about it.
#[derive(Clone, Debug, Default)]
pub(super) struct Current(Arc<Mutex<Option<Record>>>);

impl Current {
    pub(super) fn set(&self, record: Option<Record>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = record;
    }

    fn get(&self) -> Option<Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All sessions of this process.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_id: Mutex<HashMap<String, Arc<LiveSession>>>,
    /// How many of each tenant are being made.
    opening: Arc<Mutex<HashMap<String, usize>>>,
}

/// A session that is being made counts as one.
#[derive(Debug)]
struct Opening {
    opening: Arc<Mutex<HashMap<String, usize>>>,
    tenant: String,
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut opening = lock(&self.opening);
        if let Some(count) = opening.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                opening.remove(&self.tenant);
            }
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<LiveSession>>> {
        lock(&self.by_id)
    }

    /// Forgets those that ended by themselves.
    pub(super) fn forget_ended(&self) {
        self.lock().retain(|_, live| !live.session.is_over());
    }

    /// Ends all of them.
    pub(super) async fn end_all(&self) {
        let all: Vec<_> = self.lock().drain().map(|(_, live)| live).collect();
        for live in all {
            let _ = live.session.end().await;
        }
    }
}

impl Service {
    /// Makes a session, if it may be.
    pub async fn open_session(
        self: &Arc<Self>,
        who: &Identity,
        wish: &SessionRequest,
    ) -> Result<Arc<LiveSession>, ServiceError> {
        who.may(Role::Run)?;
        if self.gate.is_closed() {
            return Err(ServiceError::ShuttingDown);
        }
        let mut request = wish.to_request()?;
        self.check_approved(wish.approved)?;
        check_variables(&request)?;
        let globals = wire::globals(&wish.globals)?;
        let tenant = self.tenant_of(who, wish.tenant_id.as_deref()).await?;
        request.caller.tenant_id = Some(tenant.clone());
        let policy = self.policy_for(wish.policy_id.as_deref(), &request).await?;
        if let (Source::Command { argv }, Some(allowed)) =
            (&mut request.source, policy.allowed_commands.first())
        {
            *argv = vec![allowed.clone()];
        }
        // Where somebody has to approve, it is what the session executes.
        let asks_approver = self.asks_approver(&policy, wish.approved, wish.policy_id.as_deref());
        request.approved = wish.approved || asks_approver;
        let is_kept = self.keeps_record(wish.policy_id.as_deref());
        let planned = self.plan(who, &policy, &request, is_kept).await?;
        let record = Record::of_plan(String::new(), planned.plan(), SandboxStatus::Running, self.now());
        let _opening = self.reserve(&tenant)?;
        let bridge = Bridge::default();
        let current = Current::default();
        let surroundings = Surroundings {
            tools: bridge.tools(&wish.tools),
            globals,
            approver: Some(self.approver(&policy, &current)),
        };
        let session = Session::open_planned(&self.engine, planned, surroundings)
            .await
            .map_err(of_session)?;
        let live = Arc::new(LiveSession {
            session_id: fresh_id("ses"),
            request,
            policy,
            record,
            is_kept,
            asks_approver,
            session,
            tool_names: wish.tools.clone(),
            bridge,
            current,
            turn: tokio::sync::Mutex::new(()),
            resets: Arc::new(Semaphore::new(1)),
            queue: Arc::new(Semaphore::new(MOST_WAITING)),
            created_at: self.now(),
        });
        self.sessions
            .lock()
            .insert(live.session_id.clone(), Arc::clone(&live));
        Ok(live)
    }

    /// Asks whoever may approve about a session's tools.
    fn approver(self: &Arc<Self>, policy: &Arc<Policy>, current: &Current) -> Approver {
        let (service, policy, current) = (Arc::downgrade(self), Arc::clone(policy), current.clone());
        Approver::new(move |name, arguments| {
            let (service, policy, record) = (service.upgrade(), Arc::clone(&policy), current.get());
            let call = json!({
                "tool": name, "args": arguments.args,
                "kwargs": arguments.kwargs.iter().map(|(name, value)| (name.clone(), json!(value)))
                    .collect::<serde_json::Map<_, _>>(),
            });
            Box::pin(async move {
                let gone = || ToolError::new("PermissionError", "there is nobody to ask");
                let (service, record) = service.zip(record).ok_or_else(gone)?;
                service.approve_tool(&policy, &record, call).await
            })
        })
    }

    /// A place for one more session of a tenant.
    fn reserve(&self, tenant: &str) -> Result<Opening, ServiceError> {
        let mut opening = lock(&self.sessions.opening);
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, live| !live.session.is_over());
        let alive = sessions.values().filter(|live| live.tenant() == tenant).count();
        let coming = opening.get(tenant).copied().unwrap_or_default();
        let most = self.settings.sessions;
        if alive + coming >= most {
            return Err(ServiceError::TooManySessions { most });
        }
        opening.insert(tenant.to_owned(), coming + 1);
        Ok(Opening {
            opening: Arc::clone(&self.sessions.opening),
            tenant: tenant.to_owned(),
        })
    }

    /// A session that is alive, of one whom the caller may see.
    pub fn session(&self, who: &Identity, session_id: &str) -> Result<Arc<LiveSession>, ServiceError> {
        who.may(Role::Run)?;
        let found = self.sessions.lock().get(session_id).cloned();
        found
            .filter(|live| who.sees(Some(live.tenant())) && who.may_use(&live.policy.policy_id))
            .filter(|live| !live.session.is_over())
            .ok_or_else(|| not_found(session_id))
    }

    /// The sessions of this server that may be seen, the oldest first.
    pub fn list_sessions(&self, who: &Identity) -> Result<Vec<wire::Session>, ServiceError> {
        who.may(Role::Run).or_else(|_| who.may(Role::Read))?;
        let mut shown: Vec<_> = self
            .sessions
            .lock()
            .values()
            .filter(|live| who.sees(Some(live.tenant())) && !live.session.is_over())
            .map(|live| live.shown())
            .collect();
        shown.sort_by(|one, other| one.created_at.total_cmp(&other.created_at));
        Ok(shown)
    }

    /// Ends a session and waits until nothing of it is left.
    pub async fn close_session(&self, who: &Identity, session_id: &str) -> Result<(), ServiceError> {
        let live = self.session(who, session_id)?;
        self.sessions.lock().remove(session_id);
        live.session.end().await.map_err(of_session)
    }
}

/// Some variables name code that runs when an interpreter starts: before anything was asked for that could be counted,
/// approved and put on record.
fn check_variables(request: &Request) -> Result<(), ServiceError> {
    let recipes = request
        .language()
        .map_or(&[][..], |language| language.spec().recipes);
    let is_early = |name: &&String| {
        let mut early = recipes.iter().flat_map(|recipe| recipe.code_variables);
        early.any(|early| name.starts_with(early))
    };
    match request.env.keys().find(is_early) {
        None => Ok(()),
        Some(name) => {
            let message =
                format!("`{name}` would take effect before anything is executed; set it in the code");
            Err(WireError::new("env", message).into())
        }
    }
}

pub(super) fn of_session(error: SessionError) -> ServiceError {
    let field =
        |field: &str, error: SessionError| ServiceError::Wire(WireError::new(field, error.to_string()));
    match error {
        SessionError::Engine(EngineError::Provider(error)) => ServiceError::Engine(error.to_string()),
        SessionError::Engine(error) => ServiceError::of_engine(error),
        SessionError::Expired(_) | SessionError::Closed => ServiceError::Gone(error.to_string()),
        SessionError::CodeTooLarge { .. } => field("code", error),
        SessionError::BadName { .. } => field("tools", error),
        SessionError::NoInterpreter => field("language", error),
        SessionError::BadGlobal { .. } => field("globals", error),
        SessionError::File(error) if error.kind == std::io::ErrorKind::NotFound => {
            ServiceError::not_found("file", &error.path)
        }
        SessionError::File(_) => field("path", error),
        SessionError::NoSessions { .. } | SessionError::CannotStart { .. } => {
            ServiceError::Engine(error.to_string())
        }
    }
}

fn guest_path(path: &str) -> Result<GuestPath, ServiceError> {
    GuestPath::new(path).map_err(|error| WireError::new("path", error.to_string()).into())
}

fn not_found(session_id: &str) -> ServiceError {
    ServiceError::not_found("session", session_id)
}
