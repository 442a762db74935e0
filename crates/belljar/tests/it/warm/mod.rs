//! Sandboxes that were there before anybody asked: where they come from, that they behave like those made
//! on demand, that none is used twice, and what happens when the processes behind them die.

mod below;
mod descriptors;
mod files;
mod killed;
mod limits;
mod mixed;
mod mixture;
mod networks;
mod origins;
mod same;
mod sessions;
mod stock;
mod unique;

use std::sync::Arc;

use belljar::{Engine, ExecuteIo, Execution, Language, Policy, Request, Seconds};
use belljar_linux::{NativeProvider, PoolSettings};

const MADE: &str = "made on demand";
const POOLED: &str = "shell made ahead";
const FORKED: &str = "forked on demand from a warm interpreter";
const FORKED_AHEAD: &str = "forked ahead from a warm interpreter";
const STARTED_AHEAD: &str = "interpreter started ahead";

fn engine(settings: PoolSettings) -> Engine {
    Engine::new(Arc::new(NativeProvider::with_pool(settings)))
}

/// Everything on demand, every interpreter fresh.
fn cold() -> Engine {
    engine(PoolSettings::off())
}

fn python(code: &str) -> Request {
    code_in(Language::Python, code)
}

fn code_in(language: Language, code: &str) -> Request {
    let mut request = Request::code(language, code.as_bytes());
    request.limits.wall_time = Some(Seconds::whole(30));
    request
}

/// A request against the policy that permits what it asks for.
async fn go(engine: &Engine, request: &Request) -> Execution {
    go_with(engine, request, ExecuteIo::default()).await
}

async fn go_with(engine: &Engine, request: &Request, io: ExecuteIo<'_>) -> Execution {
    let run = engine.execute(&owner(request), request, io).await;
    run.unwrap_or_else(|error| panic!("nothing ran: {error:?}"))
}

fn owner(request: &Request) -> Policy {
    Policy::for_owner(request).expect("a policy")
}

/// Has a stock raised for such a request.
#[track_caller]
fn prepare(engine: &Engine, request: &Request) {
    engine.prepare(&owner(request), request).expect("a stock");
}

fn origin(run: &Execution) -> &str {
    &run.outcome.receipt.origin
}

/// What a program that must end well printed.
#[track_caller]
fn printed(run: &Execution) -> String {
    assert!(run.outcome.success(), "{:#?}", run.outcome);
    run.outcome.stdout.text()
}

/// A runtime with threads of its own, for many runs at once.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}
