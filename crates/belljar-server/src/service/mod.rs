//! What the service does, whoever asks and by whatever face: who may, what is permitted, whose turn it is, what is
//! recorded. It knows no HTTP.
//!
//! An execution's way: the key says who asks, the policy what is permitted, the guard plans, the gate gives a place in
//! the queue, the store reserves it, the engine runs it, the store records it. Only then is it told.

mod admission;
mod approvals;
mod approver_view;
mod audit;
mod cells;
mod clock;
mod conclude;
mod error;
mod execute;
mod gate;
mod identity;
mod keys;
mod look_up;
mod metrics;
mod policies;
mod running;
mod sessions;
mod tool_bridge;
mod watch_use;
mod webhook;

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::Policy;
use belljar_engine::{Engine, fresh_id};

pub use clock::Clock;
pub use conclude::Started;
pub use error::ServiceError;
pub use execute::{Answer, Asked};
pub use gate::{Gate, GateSettings};
pub use identity::Identity;
pub use keys::KeyWish;
pub use policies::PolicyFound;
pub use sessions::LiveSession;
pub use tool_bridge::{Bridge, Connected, ToolAsked};
pub(crate) use webhook::SIGNATURE;
pub use webhook::Webhook;

use tokio::sync::Notify;

use crate::store::{Key, KeyRow, Place, Role, Store, StoreError, Tenant};
use metrics::Metrics;
use policies::Policies;
use running::Running;
use sessions::Sessions;

/// The tenant of those who name none.
pub const DEFAULT_TENANT: &str = "default";
/// How often what is kept no longer is forgotten, and what dead servers left is ended.
const HOUSEKEEPING: Duration = Duration::from_secs(30);

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    /// Whoever has a key, and may do what that is for.
    WithKeys,
    /// Whoever comes, and may do everything.
    Anyone,
    /// The one who started it. Where no policy is named, asking is enough, and the record comes with the result and is
    /// not kept.
    Owner,
}

/// How a service is to be.
#[derive(Clone, Debug)]
pub struct Settings {
    pub store: Place,
    pub gate: GateSettings,
    pub callers: Callers,
    /// Policies from files, beside the built-in ones. They cannot be changed by callers.
    pub policies: Vec<Policy>,
    /// How long results are kept that somebody comes for later.
    pub keep_results: Duration,
    /// How long entries of the audit are kept; none: for ever.
    pub retention: Option<Duration>,
    /// How many sessions a tenant may have at once.
    pub sessions: usize,
    /// How long something waits for approval.
    pub approval_time: Duration,
    /// Who is told of what waits for approval.
    pub webhook: Option<Webhook>,
}

/// A service at work. Many callers share it.
#[derive(Debug)]
pub struct Service {
    engine: Engine,
    store: Store,
    gate: Gate,
    running: Running,
    sessions: Sessions,
    policies: Policies,
    metrics: Metrics,
    /// Told when something was decided in this process.
    decided: Notify,
    clock: Clock,
    settings: Settings,
    /// This process among others on the same store.
    server_id: String,
    /// Keeps other servers from the same file.
    _hold: Option<File>,
}

/// A service that was opened.
#[derive(Debug)]
pub struct Opened {
    pub service: Arc<Service>,
    /// The first key, where there was none before: it is shown once.
    pub first_key: Option<Key>,
    /// How many executions of a server that died were ended.
    pub recovered: u64,
}

impl Service {
    /// Opens the store, ends what a server that died left unfinished, and sees to it that there is a key.
    pub async fn open(engine: Engine, settings: Settings) -> Result<Opened, StoreError> {
        let hold = settings.store.hold()?;
        let service = Self::over(engine, settings, hold).await?;
        let (store, server_id) = (&service.store, &service.server_id);
        store.attend(server_id).await?;
        let recovered = store.recover(server_id, service.now()).await?;
        let tenant = Tenant {
            tenant_id: DEFAULT_TENANT.to_owned(),
            name: "Those who name no tenant".to_owned(),
            created_at: service.now(),
        };
        store.add_tenant(tenant, server_id).await?;
        let first_key = match service.is_owned() || store.has_admin().await? {
            true => None,
            false => Some(store.add_key(first_key(service.now()), server_id).await?.0),
        };
        let service = Arc::new(service);
        tokio::spawn(keep_house(Arc::downgrade(&service)));
        tokio::spawn(watch_use::watch_use(Arc::downgrade(&service)));
        Ok(Opened {
            service,
            first_key,
            recovered,
        })
    }

    /// Beside a server that may be there, for whoever may read and write its store: to look at it and to manage it, not to
    /// run anything.
    pub async fn beside(engine: Engine, store: Place) -> Result<Arc<Self>, StoreError> {
        let settings = Settings {
            store,
            gate: GateSettings::default(),
            callers: Callers::Anyone,
            policies: Vec::new(),
            keep_results: Duration::ZERO,
            retention: None,
            sessions: 0,
            approval_time: Duration::ZERO,
            webhook: None,
        };
        let service = Self::over(engine, settings, None).await?;
        service.gate.close();
        Ok(Arc::new(service))
    }

    async fn over(engine: Engine, settings: Settings, hold: Option<File>) -> Result<Self, StoreError> {
        Ok(Self {
            engine,
            store: Store::open(settings.store.clone()).await?,
            gate: Gate::new(settings.gate),
            running: Running::default(),
            sessions: Sessions::default(),
            policies: Policies::new(settings.policies.clone()),
            metrics: Metrics::default(),
            decided: Notify::new(),
            clock: Clock::start(),
            settings,
            server_id: fresh_id("srv"),
            _hold: hold,
        })
    }

    pub const fn store(&self) -> &Store {
        &self.store
    }

    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    pub const fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(crate) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub fn now(&self) -> f64 {
        self.clock.now()
    }

    /// Whether whoever comes without a key may do everything.
    pub(crate) fn needs_no_key(&self) -> bool {
        self.settings.callers != Callers::WithKeys
    }

    fn is_owned(&self) -> bool {
        self.settings.callers == Callers::Owner
    }

    /// Forgets what is kept no longer, and ends what servers left that are gone.
    pub async fn tidy(&self) -> Result<(), StoreError> {
        self.sessions.forget_ended();
        self.store.tidy(self.now()).await?;
        if let Some(kept) = self.settings.retention {
            let before = self.now() - kept.as_secs_f64();
            self.store.forget(before, &self.server_id, self.now()).await?;
        }
        if self.settings.store.is_postgres() {
            self.store.recover(&self.server_id, self.now()).await?;
        }
        Ok(())
    }

    /// Takes nothing new, gives what runs its time, ends the rest, and lets go of the store.
    pub async fn shut_down(&self, patience: Duration) {
        self.gate.close();
        self.running.wait(patience).await;
        self.running.cancel_all();
        self.running.wait(Duration::from_secs(10)).await;
        self.sessions.end_all().await;
        self.store.close().await;
    }
}

fn first_key(now: f64) -> KeyRow {
    KeyRow {
        key_id: String::new(),
        name: "the first".to_owned(),
        tenant_id: None,
        roles: [Role::Admin].into(),
        policies: None,
        created_at: now,
        expires_at: None,
        revoked_at: None,
    }
}

async fn keep_house(service: std::sync::Weak<Service>) {
    loop {
        tokio::time::sleep(HOUSEKEEPING).await;
        let Some(service) = service.upgrade() else {
            return;
        };
        // What goes wrong here goes wrong where it matters too, and is told there.
        let _ = service.tidy().await;
    }
}
