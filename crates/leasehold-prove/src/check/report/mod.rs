//! The findings as a page: one file, nothing from elsewhere, no scripts.

mod histogram;
mod timeline;

use std::fmt::Write as _;

use super::findings::{Findings, people};
use super::outage::Summary;

/// How many violations of one promise are shown; the rest is counted.
const SHOWN_MAX: usize = 8;

/// The whole page.
pub(super) fn page(findings: &Findings) -> String {
    let mut page = String::from(HEAD);
    let (class, word) = if findings.is_good() { ("good", "PASS") } else { ("bad", "FAIL") };
    let _ = writeln!(
        page,
        "<header><h1>leasehold check</h1><span class=\"badge {class}\">{word}</span><p>{} starts of {} shards, {} faults</p></header>",
        findings.starts,
        findings.shards,
        findings.faults.len()
    );
    setting(&mut page, findings);
    promises(&mut page, findings);
    let _ = writeln!(page, "<h2>Timeline of shards and faults</h2>\n{}", timeline::draw(findings));
    outage(&mut page, findings);
    spans(&mut page, findings);
    load(&mut page, findings);
    page.push_str("</main></body></html>\n");
    page
}

fn setting(page: &mut String, findings: &Findings) {
    page.push_str("<dl class=\"setting\">");
    for (name, value) in &findings.setting {
        let _ = write!(page, "<div><dt>{name}</dt><dd>{}</dd></div>", escaped(value));
    }
    page.push_str("</dl>\n");
}

fn promises(page: &mut String, findings: &Findings) {
    page.push_str("<h2>Promises</h2>\n<table class=\"promises\">");
    for promise in &findings.promises {
        let (class, word) = if promise.broken.is_empty() { ("good", "kept") } else { ("bad", "broken") };
        let _ = write!(
            page,
            "<tr><td><span class=\"badge {class}\">{word}</span></td><td><code>{}</code></td><td>{}",
            promise.name,
            escaped(&promise.told)
        );
        if !promise.broken.is_empty() {
            page.push_str("<ul>");
            for what in promise.broken.iter().take(SHOWN_MAX) {
                let _ = write!(page, "<li>{}</li>", escaped(what));
            }
            if promise.broken.len() > SHOWN_MAX {
                let _ = write!(page, "<li>… and {} more</li>", promise.broken.len() - SHOWN_MAX);
            }
            page.push_str("</ul>");
        }
        page.push_str("</td></tr>\n");
    }
    page.push_str("</table>\n");
}

/// What the scenario `outage` shows, if that was told.
fn outage(page: &mut String, findings: &Findings) {
    let Some(outage) = &findings.outage else { return };
    page.push_str("<h2>Outage</h2>\n<table class=\"spans\"><tr>");
    for column in Summary::COLUMNS {
        let _ = write!(page, "<th>{column}</th>");
    }
    page.push_str("</tr>\n");
    for row in outage.nodes() {
        page.push_str("<tr>");
        for cell in row {
            let _ = write!(page, "<td>{}</td>", escaped(&cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str(
        "</table>\n<p class=\"legend\">Stopped: time since the start of the outage; back: time since its end.</p>\n<table>",
    );
    for (title, value) in outage.rows() {
        let _ = writeln!(page, "<tr><td>{title}</td><td>{}</td></tr>", escaped(&value));
    }
    page.push_str("</table>\n");
}

fn spans(page: &mut String, findings: &Findings) {
    page.push_str("<h2>Durations</h2>\n<table class=\"spans\"><tr><th></th><th>count</th><th>median</th><th>p99</th><th>longest</th></tr>");
    for measure in findings.spans.iter().filter(|measure| !measure.spans.all().is_empty()) {
        let at = |permille| measure.spans.at(permille).map_or_else(|| "–".to_owned(), people);
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            measure.title,
            measure.spans.all().len(),
            at(500),
            at(990),
            at(1000)
        );
    }
    page.push_str("</table>\n<div class=\"histograms\">");
    for measure in findings.spans.iter().filter(|measure| measure.spans.all().len() >= 5) {
        let _ = writeln!(
            page,
            "<figure><figcaption>{}</figcaption>{}</figure>",
            measure.title,
            histogram::draw(&measure.spans)
        );
    }
    page.push_str("</div>\n");
}

fn load(page: &mut String, findings: &Findings) {
    let load = &findings.load;
    let _ = writeln!(
        page,
        "<h2>Store load</h2>\n<p>All nodes together, per second: <b>{:.1}</b> calls during faults, <b>{:.1}</b> at rest. Writes at rest: <b>{:.2}</b>; renewals alone are {:.2}, regardless of the number of shards.</p>",
        load.calls_broken, load.calls_rest, load.writes_rest, load.renewals
    );
}

/// Text that cannot be taken for markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const HEAD: &str = r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>leasehold check</title>
<style>
:root { --ink: #1b1f24; --dim: #5b6572; --line: #d8dee4; --paper: #fff; --soft: #f5f7f9; --good: #1a7f37; --bad: #c8102e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --dim: #9aa4af; --line: #343b43; --paper: #14171a; --soft: #1d2226; --good: #3fb950; --bad: #ff6b6b; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 24px 48px; }
header { display: flex; align-items: center; gap: 14px; flex-wrap: wrap; }
header p { color: var(--dim); margin: 0; }
h1 { font-size: 24px; margin: 0; }
h2 { font-size: 17px; margin: 32px 0 10px; }
.badge { color: #fff; border-radius: 4px; padding: 2px 9px; font-weight: 600; font-size: 13px; }
.badge.good { background: #1a7f37; } .badge.bad { background: #c8102e; }
.setting { display: flex; flex-wrap: wrap; gap: 8px 28px; margin: 18px 0 0; }
.setting div { min-width: 60px; } dt { color: var(--dim); font-size: 12px; } dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
td, th { border-bottom: 1px solid var(--line); padding: 6px 12px 6px 0; text-align: left; vertical-align: top; font-weight: normal; }
.spans td:nth-child(n+2), .spans th:nth-child(n+2) { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th { color: var(--dim); font-size: 12px; } td ul { margin: 6px 0; padding-left: 18px; font-size: 13px; }
.promises td:first-child { width: 74px; } .promises td:nth-child(2) { width: 260px; }
svg { display: block; width: 100%; height: auto; background: var(--soft); border-radius: 6px; }
svg text { fill: var(--dim); font: 11px system-ui, sans-serif; }
.legend { display: flex; flex-wrap: wrap; gap: 6px 18px; margin: 8px 0; font-size: 13px; color: var(--dim); }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 2px; margin-right: 6px; vertical-align: -1px; }
.histograms { display: grid; grid-template-columns: repeat(auto-fill, minmax(340px, 1fr)); gap: 18px; margin-top: 18px; }
figure { margin: 0; } figcaption { font-size: 13px; color: var(--dim); margin-bottom: 4px; min-height: 40px; display: flex; align-items: end; }
</style></head><body><main>
"#;
