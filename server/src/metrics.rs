//! What the server measures, and the Prometheus text of `/metrics`.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tessera_runtime::engine::{EngineMetrics, PoolMetrics};

const FIRST_TOKEN_BOUNDS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];
const TOKEN_BOUNDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0];
const REQUEST_BOUNDS: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// Counts of durations by upper bound, in seconds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One a bound, and one for everything above.
    counts: Vec<AtomicU64>,
    sum_us: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum_us: AtomicU64::new(0) }
    }

    /// Counts one duration.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let idx = self.bounds.partition_point(|&bound| bound < seconds);
        self.counts[idx].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_us.fetch_add(micros, Ordering::Relaxed);
    }

    fn render(&self, out: &mut String, name: &str, help: &str, labels: &str) {
        header(out, name, help, "histogram");
        let mut total = 0;
        for (idx, count) in self.counts.iter().enumerate() {
            total += count.load(Ordering::Relaxed);
            let bound = self.bounds.get(idx).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            line(out, format_args!("tessera:{name}_bucket{{{labels},le=\"{bound}\"}} {total}"));
        }
        let sum = Duration::from_micros(self.sum_us.load(Ordering::Relaxed)).as_secs_f64();
        line(out, format_args!("tessera:{name}_sum{{{labels}}} {sum}"));
        line(out, format_args!("tessera:{name}_count{{{labels}}} {total}"));
    }
}

/// What the server measures itself.
#[derive(Debug)]
#[expect(missing_docs, reason = "named as the metrics are")]
pub struct ServerMetrics {
    pub time_to_first_token: Histogram,
    pub inter_token_latency: Histogram,
    pub e2e_request_latency: Histogram,
    pub http_requests_total: AtomicU64,
    pub client_disconnects_total: AtomicU64,
    pub client_stalls_total: AtomicU64,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        Self {
            time_to_first_token: Histogram::new(FIRST_TOKEN_BOUNDS),
            inter_token_latency: Histogram::new(TOKEN_BOUNDS),
            e2e_request_latency: Histogram::new(REQUEST_BOUNDS),
            http_requests_total: AtomicU64::new(0),
            client_disconnects_total: AtomicU64::new(0),
            client_stalls_total: AtomicU64::new(0),
        }
    }
}

/// Everything as Prometheus text (exposition format 0.0.4).
pub fn render(model: &str, server: &ServerMetrics, engine: &EngineMetrics) -> String {
    let model = model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels = format!("model_name=\"{model}\"");
    let mut out = String::new();
    server.time_to_first_token.render(
        &mut out,
        "time_to_first_token_seconds",
        "Time from a request's arrival to its first token.",
        &labels,
    );
    server.inter_token_latency.render(
        &mut out,
        "inter_token_latency_seconds",
        "Time between tokens of one choice.",
        &labels,
    );
    server.e2e_request_latency.render(
        &mut out,
        "e2e_request_latency_seconds",
        "Time from a request's arrival to its end.",
        &labels,
    );
    let counter = |out: &mut String, name: &str, help: &str, value: &AtomicU64| {
        header(out, name, help, "counter");
        line(out, format_args!("tessera:{name}{{{labels}}} {}", value.load(Ordering::Relaxed)));
    };
    for (name, help, value) in counters(server, engine) {
        counter(&mut out, name, help, value);
    }
    integrity(&mut out, engine, &labels);
    pools(&mut out, engine, &labels);
    out
}

type Row<'a> = (&'static str, &'static str, &'a AtomicU64);

fn counters<'a>(server: &'a ServerMetrics, engine: &'a EngineMetrics) -> [Row<'a>; 16] {
    [
        ("http_requests_total", "Requests on any path.", &server.http_requests_total),
        ("client_disconnects_total", "Clients gone early.", &server.client_disconnects_total),
        ("client_stalls_total", "Clients cut off for not reading.", &server.client_stalls_total),
        ("prompt_tokens_total", "Prompt tokens.", &engine.prompt_tokens_total),
        ("generation_tokens_total", "Tokens generated.", &engine.generation_tokens_total),
        ("cached_tokens_total", "Prompt tokens from the cache.", &engine.cached_tokens_total),
        ("num_requests_total", "Requests ended well.", &engine.requests_finished_total),
        ("num_failed_requests_total", "Requests ended badly.", &engine.requests_failed_total),
        ("num_aborted_requests_total", "Requests aborted.", &engine.aborted_requests_total),
        ("num_preemptions_total", "Requests preempted.", &engine.preempted_requests_total),
        ("nan_logits_total", "Rows of logits not finite.", &engine.nan_logits_total),
        (
            "kv_saturated_elements_total",
            "Cache elements out of the format's range.",
            &engine.kv_saturated_elements_total,
        ),
        (
            "decode_steps_ahead_total",
            "Decode steps asked for before the one before was over.",
            &engine.decode_steps_ahead_total,
        ),
        ("num_transfers_total", "Hand-offs done.", &engine.transfers_total),
        ("num_transfer_failed_reqs_total", "Hand-offs failed.", &engine.transfer_failed_total),
        ("kv_transfer_bytes_total", "Bytes handed off.", &engine.transfer_bytes_total),
    ]
}

fn integrity(out: &mut String, engine: &EngineMetrics, labels: &str) {
    header(out, "kv_integrity_errors_total", "Integrity mismatches, by kind.", "counter");
    for (kind, value) in [
        ("page_tag", &engine.kv_integrity_page_tag_total),
        ("page_digest", &engine.kv_integrity_page_digest_total),
    ] {
        let value = value.load(Ordering::Relaxed);
        let name = "tessera:kv_integrity_errors_total";
        line(out, format_args!("{name}{{{labels},kind=\"{kind}\"}} {value}"));
    }
}

fn pools(out: &mut String, engine: &EngineMetrics, labels: &str) {
    type Read = fn(&PoolMetrics) -> &AtomicU64;
    let rows: [(&str, &str, &str, Read); 8] = [
        ("num_running_reqs", "Requests running.", "gauge", |pool| &pool.running_reqs),
        ("num_queue_reqs", "Requests waiting.", "gauge", |pool| &pool.queue_reqs),
        ("kv_pages", "Pages of the pool.", "gauge", |pool| &pool.pages_total),
        ("kv_pages_free", "Pages free.", "gauge", |pool| &pool.pages_free),
        ("kv_pages_cached", "Pages kept for their prefix.", "gauge", |pool| &pool.pages_cached),
        ("kv_pages_leased", "Pages leased to a writer.", "gauge", |pool| &pool.pages_leased),
        ("kv_pages_quarantined", "Pages set apart.", "gauge", |pool| &pool.pages_quarantined),
        ("steps_total", "Forward passes.", "counter", |pool| &pool.steps_total),
    ];
    let pools = [("prefill", &engine.prefill), ("decode", &engine.decode)];
    for (name, help, kind, read) in rows {
        header(out, name, help, kind);
        for (pool, metrics) in pools {
            let value = read(metrics).load(Ordering::Relaxed);
            line(out, format_args!("tessera:{name}{{{labels},pool=\"{pool}\"}} {value}"));
        }
    }
    header(out, "token_usage", "Share of the pool's pages that are not free or cached.", "gauge");
    for (pool, metrics) in pools {
        let total = metrics.pages_total.load(Ordering::Relaxed);
        let idle = metrics.pages_free.load(Ordering::Relaxed)
            + metrics.pages_cached.load(Ordering::Relaxed);
        let used = total.saturating_sub(idle) as f64 / total.max(1) as f64;
        line(out, format_args!("tessera:token_usage{{{labels},pool=\"{pool}\"}} {used}"));
    }
}

fn header(out: &mut String, name: &str, help: &str, kind: &str) {
    line(out, format_args!("# HELP tessera:{name} {help}"));
    line(out, format_args!("# TYPE tessera:{name} {kind}"));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a String takes every write");
    out.push('\n');
}
