//! The node's view as JSON. `docs/status.md` describes every field; a test of the program compares the two.

use std::time::Duration;

use leasehold_core::View;
use serde::Serialize;

use super::Source;

/// What fields there are: the number grows when one is removed or changes its meaning.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Status<'v> {
    format: u32,
    version: &'static str,
    taken_unix_ms: u64,
    view_age_ms: u64,
    driver_idle_ms: u64,
    store_silent_ms: Option<u64>,
    ttl_ms: u64,
    view: &'v View,
}

pub(super) fn status(source: &Source) -> String {
    let ms = |span: Duration| span.as_millis() as u64;
    let view = source.views.borrow().clone();
    let status = Status {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION"),
        taken_unix_ms: leasehold::clock::unix_ms(),
        view_age_ms: ms(source.vitals.view_age()),
        driver_idle_ms: ms(source.vitals.driver_idle_for()),
        store_silent_ms: source.vitals.store_silent_for().map(ms),
        ttl_ms: ms(source.ttl),
        view: &view,
    };
    let mut text = serde_json::to_string(&status).unwrap_or_default();
    text.push('\n');
    text
}
