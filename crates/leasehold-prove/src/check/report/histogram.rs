//! How durations are spread, on a scale of factors, because they reach from a millisecond to minutes.

use std::fmt::Write as _;
use std::time::Duration;

use leasehold_chaos::measure::Spans;

use crate::check::findings::people;

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 130.0;
const BOTTOM: f64 = 106.0;
const BINS: usize = 36;

/// The picture.
pub(super) fn draw(spans: &Spans) -> String {
    let ms = |span: &Duration| (span.as_secs_f64() * 1000.0).max(0.01);
    let all: Vec<f64> = spans.all().iter().map(|span| ms(span).log10()).collect();
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return String::new() };
    // At least one factor of ten, so that nearly equal values stand close together.
    let middle = (first + last) / 2.0;
    let half = ((last - first) / 2.0 * 1.05).max(0.5);
    let (low, high) = (middle - half, middle + half);
    let mut bins = [0usize; BINS];
    for value in &all {
        let at = (value - low) / (high - low) * BINS as f64;
        bins[(at as usize).min(BINS - 1)] += 1;
    }
    let most = bins.iter().copied().max().unwrap_or(1).max(1);
    let x = |log: f64| 10.0 + (log - low) / (high - low) * (WIDTH - 20.0);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"histogram\">");
    for decade in (low.floor() as i32)..=(high.ceil() as i32) {
        for factor in [1.0f64, 3.0] {
            let log = f64::from(decade) + factor.log10();
            if log >= low && log <= high {
                let at = x(log);
                let value = Duration::from_secs_f64(10f64.powf(log) / 1000.0);
                let _ = write!(
                    svg,
                    "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"8\" y2=\"{BOTTOM}\" stroke=\"var(--line)\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    BOTTOM + 15.0,
                    round(value)
                );
            }
        }
    }
    let width = (WIDTH - 20.0) / BINS as f64;
    for (index, count) in bins.iter().enumerate().filter(|(_, count)| **count > 0) {
        let height = (*count as f64 / most as f64 * (BOTTOM - 22.0)).max(1.5);
        let _ = write!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"#0072B2\"><title>{count}</title></rect>",
            10.0 + index as f64 * width,
            BOTTOM - height,
            width - 1.0
        );
    }
    if let Some(median) = spans.at(500) {
        let at = x(ms(&median).log10());
        let side = if at > WIDTH - 90.0 { ("end", at - 4.0) } else { ("start", at + 4.0) };
        let _ = write!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"8\" y2=\"{BOTTOM}\" stroke=\"#D55E00\" stroke-width=\"1.5\"/><text x=\"{:.1}\" y=\"17\" text-anchor=\"{}\">median {}</text>",
            side.1,
            side.0,
            people(median)
        );
    }
    svg.push_str("</svg>");
    svg
}

/// A tick: `3 ms`, `300 ms`, `10 s`.
fn round(value: Duration) -> String {
    match value.as_secs_f64() {
        seconds if seconds >= 0.9999 => format!("{} s", seconds.round()),
        seconds if seconds >= 0.00099 => format!("{} ms", (seconds * 1000.0).round()),
        seconds => format!("{:.2} ms", seconds * 1000.0),
    }
}
