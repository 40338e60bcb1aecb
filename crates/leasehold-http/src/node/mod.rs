//! The pages of one node.

mod health;
mod metrics;
mod status;

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use leasehold::{Node, Vitals};
use leasehold_core::View;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;

pub use metrics::{AlreadyInstalled, Metrics};

use crate::problem::Kind;
use crate::{Caller, Reader, Route};

/// The pages.
pub const ROUTES: &[Route<Pages>] = &[
    Route {
        path: "/metrics",
        reader: Reader::WithToken,
        shows: "all metrics, for Prometheus",
        answer: |pages, _, _| pages.metrics(),
    },
    Route {
        path: "/livez",
        reader: Reader::Anyone,
        shows: "whether the driver of the node makes progress",
        answer: |pages, _, caller| verdict(&health::live(pages.source().as_ref()), "live", caller),
    },
    Route {
        path: "/readyz",
        reader: Reader::Anyone,
        shows: "whether the node is attached and the store answers; with `?share=0.9` also whether it holds that share of what the plan gives it",
        answer: |pages, query, caller| match health::share(query) {
            Ok(share) => verdict(&health::ready(pages.source().as_ref(), share), "ready", caller),
            Err(why) => Kind::Invalid.with(&why),
        },
    },
    Route {
        path: "/status",
        reader: Reader::WithToken,
        shows: "the node's view as JSON (docs/status.md)",
        answer: |pages, _, _| match pages.source() {
            Some(source) => with_type("application/json", status::status(&source)),
            None => Kind::Starting.with("the node has not started: it waits for its store"),
        },
    },
];

/// What the pages of one node are made from.
#[derive(Clone)]
pub struct Pages {
    metrics: PrometheusHandle,
    node: Arc<watch::Sender<Option<Source>>>,
}

/// A node as its pages see it.
#[derive(Clone)]
struct Source {
    views: watch::Receiver<Arc<View>>,
    vitals: Vitals,
    ttl: Duration,
}

impl Pages {
    /// Pages that can be served before there is a node.
    pub fn new(metrics: &Metrics) -> Pages {
        Pages { metrics: metrics.handle(), node: Arc::new(watch::Sender::new(None)) }
    }

    /// The node has started; `ttl` is that of its sessions.
    pub fn show(&self, node: &Node, ttl: Duration) {
        self.node.send_replace(Some(Source { views: node.watch_view(), vitals: node.vitals(), ttl }));
    }

    fn source(&self) -> Option<Source> {
        self.node.borrow().clone()
    }

    fn metrics(&self) -> Response {
        with_type("text/plain; version=0.0.4; charset=utf-8", self.metrics.render())
    }
}

fn with_type(content_type: &'static str, body: String) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static(content_type))], body).into_response()
}

/// The answer of a health page: one line for each check and one for the verdict, of which strangers see only the last.
fn verdict(checks: &[health::Check], word: &str, caller: Caller) -> Response {
    let passed = checks.iter().all(|check| check.passed);
    let mut text = String::new();
    if caller == Caller::Known {
        for check in checks {
            let result = if check.passed { "ok" } else { "FAILED" };
            text.push_str(&format!("{}: {result}: {}\n", check.name, check.says));
        }
    }
    text.push_str(&if passed { format!("{word}\n") } else { format!("not {word}\n") });
    let status = if passed { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut response = with_type("text/plain; charset=utf-8", text);
    *response.status_mut() = status;
    response
}
