//! The service over HTTP. Handlers read what came, ask the service, and write what it says; they decide nothing.

mod answer;
mod approvals;
mod batches;
mod browser;
mod caller;
mod connections;
mod docs;
mod environments;
mod executions;
mod hosts;
mod keys;
mod openapi;
mod policies;
mod read;
mod records;
mod server;
mod sessions;
mod socket;
mod stream;
mod system;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use hosts::{AllowedHost, AllowedHostError, Hosts};
pub use openapi::document;
pub use server::{Limits, Listen, serve};

use crate::service::Service;

/// What every handler has.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) service: Arc<Service>,
    pub(crate) largest_body: usize,
    pub(crate) body_timeout: Duration,
    pub(crate) hosts: Arc<Hosts>,
}

/// Which requests a router accepts.
#[derive(Clone, Debug)]
pub struct RouterOptions {
    /// The largest body, in bytes.
    pub max_body: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// The names by which the service may be addressed.
    pub hosts: Hosts,
}

impl RouterOptions {
    pub const fn new(max_body: usize, hosts: Hosts) -> Self {
        Self {
            max_body,
            body_timeout: Duration::from_secs(60),
            hosts,
        }
    }
}

/// Everything under `/v1`, with its description.
fn described() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(executions::create, executions::list))
        .routes(routes!(executions::get))
        .routes(routes!(executions::cancel))
        .routes(routes!(batches::create))
        .routes(routes!(environments::list))
        .routes(routes!(environments::get))
        .routes(routes!(sessions::create, sessions::list))
        .routes(routes!(sessions::get, sessions::delete))
        .routes(routes!(sessions::execute))
        .routes(routes!(sessions::interrupt))
        .routes(routes!(sessions::reset))
        .routes(routes!(sessions::logs))
        .routes(routes!(sessions::files))
        .routes(routes!(
            sessions::get_file,
            sessions::put_file,
            sessions::delete_file
        ))
        .routes(routes!(socket::socket))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::get))
        .routes(routes!(approvals::grant))
        .routes(routes!(approvals::deny))
        .routes(routes!(approvals::webhook))
        .routes(routes!(policies::list, policies::define))
        .routes(routes!(policies::get, policies::put, policies::delete))
        .routes(routes!(records::list))
        .routes(routes!(records::get))
        .routes(routes!(records::stats))
        .routes(routes!(records::audit_head))
        .routes(routes!(records::audit_entries))
        .routes(routes!(records::audit_verify))
        .routes(routes!(records::audit_forget))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::revoke))
        .routes(routes!(keys::tenants, keys::create_tenant))
        .routes(routes!(system::capabilities))
        .routes(routes!(system::health))
        .routes(routes!(system::ready))
        .routes(routes!(system::metrics))
}

/// All routes of a service.
pub fn router(service: Arc<Service>, options: RouterOptions) -> Router {
    let shared = Shared {
        service,
        largest_body: options.max_body,
        body_timeout: options.body_timeout,
        hosts: Arc::new(options.hosts),
    };
    let (router, _) = described().split_for_parts();
    router
        .merge(docs::routes())
        .fallback(answer::not_found)
        .method_not_allowed_fallback(answer::wrong_method)
        .layer(middleware::from_fn_with_state(shared.clone(), browser::check))
        .layer(middleware::from_fn_with_state(shared.clone(), watch::watch))
        .with_state(shared)
}
