//! The findings for people.

use std::fmt::Write as _;

use super::findings::{Findings, people};

/// How many violations of one promise are shown; the rest is counted.
const SHOWN_MAX: usize = 10;

/// The whole text.
pub(super) fn text(findings: &Findings) -> String {
    let mut text = String::new();
    let _ = writeln!(text);
    for promise in &findings.promises {
        promise_line(&mut text, promise.name, &promise.told, &promise.broken);
    }
    let _ = writeln!(text, "\n{:<70}  {:>6} {:>9} {:>9} {:>9}", "", "count", "median", "p99", "longest");
    for measure in findings.spans.iter().filter(|measure| !measure.spans.all().is_empty()) {
        let at = |permille| measure.spans.at(permille).map_or_else(|| "-".to_owned(), people);
        let count = measure.spans.all().len();
        let _ =
            writeln!(text, "{:<70}  {count:>6} {:>9} {:>9} {:>9}", measure.title, at(500), at(990), at(1000));
    }
    text.extend(findings.outage.as_ref().map(|outage| outage.text()));
    let load = &findings.load;
    let _ = writeln!(
        text,
        "\nstore calls per second (all nodes): {:.1} during faults, {:.1} at rest",
        load.calls_broken, load.calls_rest
    );
    let _ = writeln!(
        text,
        "writes per second at rest: {:.2} (renewals alone: {:.2})\n",
        load.writes_rest, load.renewals
    );
    let faults = findings.faults.len();
    let good = if findings.is_good() { "PASS" } else { "FAIL" };
    let _ =
        writeln!(text, "{good}: {} starts of {} shards, {faults} faults.", findings.starts, findings.shards);
    text
}

/// One line for a promise, and what broke it.
pub(super) fn promise_line(text: &mut String, name: &str, told: &str, broken: &[String]) {
    let word = if broken.is_empty() { "kept  " } else { "BROKEN" };
    let _ = writeln!(text, "{word}  {name:<28} {told}");
    for what in broken.iter().take(SHOWN_MAX) {
        let _ = writeln!(text, "          {what}");
    }
    if broken.len() > SHOWN_MAX {
        let _ = writeln!(text, "          … and {} more", broken.len() - SHOWN_MAX);
    }
}
