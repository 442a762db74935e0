//! The service over HTTP, on a real engine and real databases.

mod approvals;
mod auth;
mod bad_input;
mod browser;
mod executions;
mod identifiers;
mod owner;
mod policies;
mod providers;
mod quotas;
mod records;
mod server;
mod sessions;
mod slow_peers;
mod smuggling;
mod socket;
mod targets;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::Method;
use belljar_core::Provider;
use belljar_engine::Engine;
use belljar_linux::NativeProvider;
use belljar_providers::VenvProvider;
use belljar_server::client::{Client, ClientError};
use belljar_server::http::{self, AllowedHost, Hosts, Limits, RouterOptions};
use belljar_server::service::{Callers, GateSettings, Opened, Service, Settings};
use belljar_server::wire::{Execution, Problem};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::databases::Database;

const NOTHING: Option<&Value> = None;

/// A service that is up.
struct Server {
    service: Arc<Service>,
    url: String,
    key: String,
    /// Whoever holds the admin key.
    admin: Client,
    end: Option<oneshot::Sender<()>>,
    served: tokio::task::JoinHandle<()>,
}

/// One engine for all tests of this process.
fn engine() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE
        .get_or_init(|| {
            Engine::with_providers([
                Arc::new(NativeProvider::new()) as Arc<dyn Provider>,
                Arc::new(VenvProvider::new()),
            ])
        })
        .clone()
}

fn settings(database: &Database) -> Settings {
    Settings {
        store: database.place.clone(),
        gate: GateSettings::default(),
        callers: Callers::WithKeys,
        policies: Vec::new(),
        keep_results: Duration::from_secs(3600),
        retention: None,
        sessions: 20,
        approval_time: Duration::from_secs(3600),
        webhook: None,
    }
}

/// Where a service listens, and what it takes from there.
struct Network {
    listen: &'static str,
    allowed_hosts: Vec<AllowedHost>,
    body_timeout: Duration,
    limits: Limits,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0",
            allowed_hosts: Vec::new(),
            body_timeout: Duration::from_secs(60),
            limits: Limits {
                head: Duration::from_secs(1),
                ending: Duration::from_secs(10),
                taking: Duration::from_secs(2),
                ..Limits::default()
            },
        }
    }
}

impl Server {
    async fn start(database: &Database) -> Self {
        Self::with(settings(database)).await
    }

    async fn with(settings: Settings) -> Self {
        Self::with_network(settings, Network::default()).await
    }

    async fn with_network(settings: Settings, network: Network) -> Self {
        let Opened {
            service, first_key, ..
        } = Service::open(engine(), settings).await.expect("a service");
        let key = first_key.map(|key| key.reveal()).unwrap_or_default();
        let listener = TcpListener::bind(network.listen).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let url = format!("http://127.0.0.1:{}", address.port());
        let (end, ended) = oneshot::channel::<()>();
        let options = RouterOptions {
            body_timeout: network.body_timeout,
            ..RouterOptions::new(1 << 20, Hosts::of_listener(address, network.allowed_hosts))
        };
        let router = http::router(Arc::clone(&service), options);
        let limits = network.limits;
        let served = tokio::spawn(async move {
            let ended = async {
                let _ = ended.await;
            };
            http::serve(listener, router, limits, ended)
                .await
                .expect("serving");
        });
        Self {
            admin: Client::remote(&url, Some(key.as_str()).filter(|key| !key.is_empty())).expect("a client"),
            service,
            url,
            key,
            end: Some(end),
            served,
        }
    }

    /// Somebody else, with a key that has these rights.
    async fn caller(&self, rights: Value) -> Client {
        Client::remote(&self.url, Some(&self.new_key(rights).await)).expect("a client")
    }

    async fn new_key(&self, rights: Value) -> String {
        let made: Value = self
            .admin
            .call(Method::POST, "/v1/keys", Some(&rights))
            .await
            .expect("a key");
        made["key"].as_str().expect("its text").to_owned()
    }

    async fn add_tenant(&self, tenant: &str) {
        let body = json!({ "tenant_id": tenant });
        let _: Value = self
            .admin
            .call(Method::POST, "/v1/tenants", Some(&body))
            .await
            .expect("a tenant");
    }

    /// A policy without a quota that anybody would reach.
    async fn open_policy(&self) {
        self.define(json!({
            "policy_id": "open", "extends": "standard",
            "max_executions_per_minute": 1_000_000, "max_executions_per_hour": 1_000_000,
        }))
        .await;
    }

    async fn define(&self, policy: Value) {
        let _: Value = self
            .admin
            .call(Method::POST, "/v1/policies", Some(&policy))
            .await
            .expect("a policy");
    }

    async fn stop(mut self) {
        drop(self.end.take());
        self.served.await.expect("an end");
        self.service.shut_down(Duration::from_secs(10)).await;
    }
}

async fn run(client: &Client, request: Value) -> Result<Execution, ClientError> {
    client.call(Method::POST, "/v1/executions", Some(&request)).await
}

async fn get(client: &Client, path: &str) -> Result<Value, ClientError> {
    client.call(Method::GET, path, NOTHING).await
}

#[track_caller]
fn problem<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Problem {
    match result {
        Err(ClientError::Problem(problem)) => *problem,
        other => panic!("not a problem: {other:?}"),
    }
}

/// Waits until something is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..400 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{what}: it did not happen within 10 s");
}
