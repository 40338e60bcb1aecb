//! Shards from top to bottom, time from left to right, coloured by the node that ran them; above them the faults of each node.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use leasehold_chaos::history::Run;

use super::escaped;
use crate::check::fault::Fault;
use crate::check::findings::Findings;

const WIDTH: f64 = 1130.0;
const LEFT: f64 = 56.0;
const LANE: f64 = 18.0;
const TOP: f64 = 22.0;
/// The most rows and boxes that a page can carry.
const ROWS_MAX: usize = 256;
const BOXES_MAX: usize = 12_000;
/// Colours that colour-blind people can also tell apart.
const COLOURS: [&str; 8] =
    ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#B5651D", "#8C8C3E", "#7B61C4"];

/// The picture with its legend.
pub(super) fn draw(findings: &Findings) -> String {
    let scale = Scale { from: findings.from.as_nanos(), to: findings.to.as_nanos() };
    let mut lanes = findings.nodes.clone();
    if findings.faults.iter().any(|fault| fault.fault == Fault::Lock) {
        lanes.push("store".to_owned());
    }
    let (rows, step) = rows(findings);
    let row_height = (460.0 / rows.len().max(1) as f64).clamp(1.5, 12.0);
    let shards_top = TOP + lanes.len() as f64 * LANE + 12.0;
    let bottom = shards_top + rows.len() as f64 * row_height;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"Which node ran which shard when\">",
        bottom + 24.0
    );
    axis(&mut svg, &scale, bottom);
    for (index, lane) in lanes.iter().enumerate() {
        lane_drawn(&mut svg, findings, &scale, lane, TOP + index as f64 * LANE);
    }
    for (index, runs) in rows.iter().enumerate() {
        let y = shards_top + index as f64 * row_height;
        row_drawn(&mut svg, findings, &scale, runs, y, row_height);
    }
    let _ = write!(svg, "<text x=\"6\" y=\"{:.1}\">shards</text>", shards_top + 11.0);
    let healed = scale.x(findings.healed_at.as_nanos());
    let _ = write!(
        svg,
        "<line x1=\"{healed:.1}\" x2=\"{healed:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\" stroke=\"var(--ink)\" stroke-dasharray=\"3 3\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">all faults ended</text></svg>",
        healed - 4.0,
        TOP - 8.0
    );
    legend(findings, step) + &svg
}

/// Moments to places.
struct Scale {
    from: u64,
    to: u64,
}

impl Scale {
    fn x(&self, at: u64) -> f64 {
        let part = at.clamp(self.from, self.to).saturating_sub(self.from) as f64;
        LEFT + part / (self.to - self.from).max(1) as f64 * (WIDTH - LEFT - 12.0)
    }

    fn seconds(&self) -> f64 {
        (self.to - self.from) as f64 / 1e9
    }
}

/// The runs of the shards that are shown, and of how many shards one is.
fn rows(findings: &Findings) -> (Vec<Vec<&Run>>, usize) {
    let mut shards: BTreeMap<(usize, &str), Vec<&Run>> = BTreeMap::new();
    for run in &findings.history.runs {
        let slot = run.shard.rsplit('/').next().and_then(|slot| slot.parse().ok()).unwrap_or(usize::MAX);
        shards.entry((slot, run.shard.as_str())).or_default().push(run);
    }
    let by_rows = shards.len().div_ceil(ROWS_MAX);
    let by_boxes = findings.history.runs.len().div_ceil(BOXES_MAX);
    let step = by_rows.max(by_boxes).max(1);
    (shards.into_values().step_by(step).collect(), step)
}

fn axis(svg: &mut String, scale: &Scale, bottom: f64) {
    let seconds = scale.seconds();
    let steps = [0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];
    let step = steps.into_iter().find(|step| seconds / step <= 14.0).unwrap_or(7200.0);
    let mut at = 0.0;
    while at <= seconds {
        let x = scale.x(scale.from + (at * 1e9) as u64);
        let _ = write!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\" stroke=\"var(--line)\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{at} s</text>",
            bottom + 14.0
        );
        at += step;
    }
}

/// What was done to one node.
fn lane_drawn(svg: &mut String, findings: &Findings, scale: &Scale, lane: &str, y: f64) {
    let colour = if lane == "store" { "var(--dim)" } else { colour(findings, lane) };
    let _ = write!(
        svg,
        "<rect x=\"6\" y=\"{:.1}\" width=\"9\" height=\"9\" rx=\"2\" fill=\"{colour}\"/><text x=\"19\" y=\"{:.1}\">{}</text>",
        y + 3.0,
        y + 12.0,
        escaped(lane)
    );
    for fault in findings.faults.iter().filter(|fault| fault.node == lane) {
        let (x, end) = (scale.x(fault.from_ns), scale.x(fault.to_ns));
        let width = (end - x).max(2.0);
        let seconds = fault.to_ns.saturating_sub(fault.from_ns) as f64 / 1e9;
        let _ = write!(
            svg,
            "<g><title>{lane}: {} for {seconds:.2} s</title><rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" rx=\"2\" fill=\"{}\" fill-opacity=\".85\"/>",
            fault.fault.description(),
            y + 1.0,
            LANE - 4.0,
            fault_colour(fault.fault)
        );
        let word = fault.fault.as_str();
        if width > word.len() as f64 * 6.5 + 4.0 {
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" style=\"fill:#fff\">{word}</text>",
                x + 4.0,
                y + 12.0
            );
        }
        svg.push_str("</g>");
    }
}

/// Which node ran one shard. Two at the same time are red.
fn row_drawn(svg: &mut String, findings: &Findings, scale: &Scale, runs: &[&Run], y: f64, height: f64) {
    let gap = if height > 4.0 { 1.0 } else { 0.0 };
    let mut latest = 0;
    let mut twice = Vec::new();
    for run in runs {
        let end = run.to_ns.unwrap_or(scale.to);
        let (x, to) = (scale.x(run.from_ns), scale.x(end));
        let _ = write!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
            (to - x).max(0.6),
            height - gap,
            colour(findings, &run.node)
        );
        if run.from_ns <= latest {
            twice.push((x, scale.x(end.min(latest))));
        }
        latest = latest.max(end);
    }
    for (x, to) in twice {
        let _ = write!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"#e00020\"/>",
            (to - x).max(3.0)
        );
    }
}

fn legend(findings: &Findings, step: usize) -> String {
    let mut text = String::from("<div class=\"legend\">");
    for node in &findings.nodes {
        let _ = write!(
            text,
            "<span><i style=\"background:{}\"></i>run by {}</span>",
            colour(findings, node),
            escaped(node)
        );
    }
    text.push_str(
        "<span><i style=\"background:var(--soft);border:1px solid var(--line)\"></i>not running</span>",
    );
    text.push_str(
        "<span><i style=\"background:#e00020\"></i>two workers at the same time (violation)</span>",
    );
    if step > 1 {
        let _ = write!(text, "<span>1 of {step} shards is shown</span>");
    }
    text.push_str("</div>");
    text
}

fn colour(findings: &Findings, node: &str) -> &'static str {
    let place = findings.nodes.iter().position(|known| known == node).unwrap_or(0);
    COLOURS[place % COLOURS.len()]
}

fn fault_colour(fault: Fault) -> &'static str {
    match fault {
        Fault::Kill => "#8b1a2b",
        Fault::Stop => "#a0522d",
        Fault::Cut | Fault::Stall | Fault::OneWay | Fault::Reset | Fault::Delay => "#5b4a8a",
        Fault::Restart | Fault::Drain => "#3d6b57",
        Fault::Lock => "#6b6b3d",
    }
}
