//! Figures that Prometheus collects.

use belljar_core::{ErrorKind, Record};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// One label and its value.
type Label = [(&'static str, String); 1];

/// Seconds that a request or an execution takes.
const TIMES: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0,
];

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    executions: Family<Label, Counter>,
    refusals: Family<Label, Counter>,
    requests: Family<Label, Counter>,
    wall_time: Histogram,
    answer_time: Histogram,
    running: Gauge,
    waiting: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Registry::with_prefix("belljar"),
            executions: Family::default(),
            refusals: Family::default(),
            requests: Family::default(),
            wall_time: Histogram::new(TIMES),
            answer_time: Histogram::new(TIMES),
            running: Gauge::default(),
            waiting: Gauge::default(),
        };
        metrics.registered()
    }
}

impl Metrics {
    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register(
            "executions",
            "Executions that are over, by status",
            self.executions.clone(),
        );
        registry.register(
            "refusals",
            "Executions that were refused, by kind",
            self.refusals.clone(),
        );
        registry.register("http_requests", "Answers, by status", self.requests.clone());
        registry.register(
            "execution_wall_seconds",
            "How long programs ran",
            self.wall_time.clone(),
        );
        registry.register(
            "http_answer_seconds",
            "How long answers took to begin",
            self.answer_time.clone(),
        );
        registry.register("executions_running", "Executions that run", self.running.clone());
        registry.register(
            "executions_waiting",
            "Executions that wait for their turn",
            self.waiting.clone(),
        );
        self
    }

    pub(super) fn ended(&self, record: &Record) {
        self.executions
            .get_or_create(&[("status", record.status.word().to_owned())])
            .inc();
        if let Some(seconds) = record.wall_time_seconds {
            self.wall_time.observe(seconds);
        }
    }

    pub(crate) fn refused(&self, kind: ErrorKind) {
        self.refusals
            .get_or_create(&[("kind", kind.word().to_owned())])
            .inc();
    }

    pub(crate) fn answered(&self, status: u16, seconds: f64) {
        self.requests
            .get_or_create(&[("status", status.to_string())])
            .inc();
        self.answer_time.observe(seconds);
    }

    pub(crate) fn text(&self, running: usize, waiting: usize) -> String {
        self.running.set(i64::try_from(running).unwrap_or(i64::MAX));
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
