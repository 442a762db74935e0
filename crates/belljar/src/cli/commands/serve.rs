//! `belljar serve`: the service, until it is told to end.

use std::io::IsTerminal;

use belljar::native_engine;
use belljar_server::http;
use belljar_server::service::{Callers, Opened, Service};
use belljar_server::store::StoreError;
use belljar_server::traces::Traces;
use tokio::net::TcpListener;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use super::super::interrupts::Interrupts;
use super::super::messages;
use super::super::problem::Problem;
use super::super::settings::{LogForm, ServeSettings};
use super::super::stdout;

pub(crate) fn serve(settings: ServeSettings) -> Result<u8, Problem> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Problem::engine(format!("cannot start an asynchronous runtime: {error}")))?;
    let traces = {
        let _within = runtime.enter();
        settings.otlp.as_deref().map(Traces::start).transpose()
    };
    let traces = traces.map_err(|error| {
        Problem::usage(error.to_string()).hint("for example --otlp http://127.0.0.1:4318")
    })?;
    start_log(settings.log, "info", traces.as_ref());
    let served = runtime.block_on(run(settings));
    if let Some(traces) = traces {
        traces.end();
    }
    served
}

async fn run(settings: ServeSettings) -> Result<u8, Problem> {
    let mut interrupts = Interrupts::listen()?;
    // The address first: a server that cannot listen has no business in the store.
    let listener = TcpListener::bind(settings.listen).await.map_err(|error| {
        Problem::usage(format!("cannot listen on {}: {error}", settings.listen))
            .hint("choose another address with --listen")
    })?;
    let place = settings.service.store.to_string();
    let dev = settings.service.callers == Callers::Anyone;
    let Opened {
        service,
        first_key,
        recovered,
    } = Service::open(native_engine(), settings.service)
        .await
        .map_err(|error| of_store(&error))?;
    if recovered > 0 {
        messages::tell(&format!(
            "{recovered} executions of a server that ended were closed as killed"
        ));
    }
    if let Some(key) = first_key {
        messages::tell("this is the admin key; it is shown this once:");
        stdout::print(&format!("{}\n", key.reveal()))?;
    }
    if dev {
        messages::tell("WARNING: --dev: everybody on this machine can do everything here, without a key");
    }
    let address = listener.local_addr().map_or(settings.listen, |address| address);
    messages::tell(&format!(
        "serving on http://{address}, records in {place}; /docs shows how to use it"
    ));
    let hosts = http::Hosts::of_listener(address, settings.allowed_hosts);
    let router = http::router(
        service.clone(),
        http::RouterOptions::new(settings.largest_body, hosts),
    );
    let gate = service.gate().clone();
    let end = async move {
        interrupts.next().await;
        messages::tell("ending: what runs gets its time, nothing new is taken; once more ends it at once");
        gate.close();
        tokio::spawn(async move {
            interrupts.next().await;
            // Whoever asks twice does not want to wait; what is unfinished is closed at the next start.
            std::process::exit(i32::from(belljar::ErrorKind::Killed.exit_code()));
        });
    };
    let served = http::serve(listener, router, settings.limits, end).await;
    service.shut_down(settings.limits.ending).await;
    served.map_err(|error| Problem::engine(format!("cannot go on serving: {error}")))?;
    Ok(0)
}

/// What the command line says about a store.
pub(crate) fn of_store(error: &StoreError) -> Problem {
    let problem = Problem::engine(error.to_string());
    match error.hint() {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

/// Has a log written, from that level on unless BELLJAR_LOG_LEVEL says otherwise.
pub(super) fn start_log(form: LogForm, level: &str, traces: Option<&Traces>) {
    let filter = EnvFilter::try_from_env("BELLJAR_LOG_LEVEL").unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal());
    // Errors can hold what a caller, a guest or another server sent, so whatever would end the line or act on a terminal is
    // escaped: nobody forges a line. JSON has its own escapes.
    let fields = debug_fn(|writer, field, value| {
        let text = messages::visible(&format!("{value:?}"));
        match field.name() {
            "message" => write!(writer, "{text}"),
            name => write!(writer, "{name}={text}"),
        }
    });
    let log = match form {
        LogForm::Text => log.fmt_fields(fields.delimited(" ")).boxed(),
        LogForm::Json => log.json().boxed(),
    };
    // A program that uses the library may have set one up; then that is the log.
    let _ = tracing_subscriber::registry()
        .with(log.with_filter(filter))
        .with(traces.map(Traces::layer))
        .try_init();
}
