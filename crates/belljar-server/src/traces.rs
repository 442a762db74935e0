//! Traces by OTLP, where somebody has a collector: a span for each request and each execution, with what it waited for.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, Request, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tracing::{Level, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use crate::client::{Http, http_client};

/// How long a collector may take to answer, and how long it is waited for at the end.
const SENDING: Duration = Duration::from_secs(10);
const ENDING: Duration = Duration::from_secs(2);
/// The most of a collector's answer that is read.
const LARGEST_ANSWER: usize = 64 << 10;

/// Sends spans to a collector.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
}

/// Why nothing can be sent there.
#[derive(Debug, thiserror::Error)]
#[error("`{endpoint}` is no address of a collector: {why}")]
pub struct TracesError {
    pub endpoint: String,
    pub why: String,
}

impl Traces {
    /// Sends to the collector at that address, such as `http://127.0.0.1:4318`. It must be called within a tokio runtime.
    pub fn start(endpoint: &str) -> Result<Self, TracesError> {
        let bad = |why: String| TracesError {
            endpoint: endpoint.to_owned(),
            why,
        };
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            return Err(bad("it does not begin with http:// or https://".to_owned()));
        }
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_http_client(Sender::new().map_err(|error| bad(error.to_string()))?)
            .build()
            .map_err(|error| bad(error.to_string()))?;
        let resource = Resource::builder()
            .with_service_name("belljar")
            .with_attribute(opentelemetry::KeyValue::new(
                "service.version",
                env!("CARGO_PKG_VERSION"),
            ))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build();
        Ok(Self { provider })
    }

    /// What takes spans. A trace has its own, which the log leaves out unless it tells everything.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let ours = filter_fn(|found| {
            found.is_span() && *found.level() == Level::DEBUG && found.target().starts_with("belljar_server")
        });
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("belljar"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(ours)
    }

    /// Sends what is left. It waits for that a little, so not in a task.
    pub fn end(self) {
        // What cannot be sent now is lost, as it would have been before.
        let _ = self.provider.shutdown_with_timeout(ENDING);
    }
}

/// Makes a span a part of the trace that the caller has begun, if they say so.
pub(crate) fn join(span: &Span, headers: &HeaderMap) {
    if span.is_disabled() {
        return;
    }
    let parent = TraceContextPropagator::new().extract(&Headers(headers));
    // Where nothing is sent there is nothing to join.
    let _ = span.set_parent(parent);
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}

/// The client that carries spans, on the runtime of the service.
struct Sender {
    http: Http<Full<Bytes>>,
    runtime: Handle,
    /// Whether the last try failed, which was told then.
    is_failing: AtomicBool,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl Sender {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            http: http_client()?,
            runtime: Handle::current(),
            is_failing: AtomicBool::new(false),
        })
    }
}

#[async_trait::async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let asked = self.http.request(request.map(Full::new));
        // The exporter has a thread of its own, and no runtime there.
        let answered = self.runtime.spawn(async move {
            let answering = async move {
                let (parts, body) = asked.await?.into_parts();
                let body = Limited::new(body, LARGEST_ANSWER).collect().await?;
                Ok::<_, HttpError>(Response::from_parts(parts, body.to_bytes()))
            };
            match tokio::time::timeout(SENDING, answering).await {
                Ok(answered) => answered,
                Err(late) => Err(late.into()),
            }
        });
        let answered = answered.await?;
        let why = match &answered {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("status {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        let was_failing = self.is_failing.swap(why.is_some(), Ordering::Relaxed);
        if let Some(why) = why.filter(|_| !was_failing) {
            tracing::warn!(%why, "the collector does not take traces");
        }
        answered
    }
}
