//! Measures what a tighter balance costs in moves, and draws it.
//!
//! `cargo run --release -p leasehold-core --example balance_curve` writes `docs/balance.csv` and `docs/balance.svg`.
//!
//! For each number of shards and nodes and each balance factor, a node leaves; counted are the shards that change their
//! node, beside the fewest possible: those that the leaver had. A join is the same pair of plans the other way round, so
//! the numbers hold for both.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use leasehold_core::name::{GroupName, NodeName, ShardId};
use leasehold_core::placement::{Candidate, Placement, Question, Rendezvous};
use leasehold_core::record::{BALANCE_PERMILLE, Policy};

const SIZES: [(u32, u32); 6] = [(256, 3), (1_000, 10), (10_000, 10), (256, 16), (2_048, 100), (10_000, 100)];
const BALANCES: [u32; 14] =
    [1000, 1010, 1020, 1030, 1050, 1075, 1100, 1125, 1150, 1200, 1250, 1300, 1400, 1500];

/// One point of a curve.
struct Point {
    balance_permille: u32,
    /// The fullest node's shards over the mean.
    peak: f64,
    /// Moves over the fewest possible.
    moves: f64,
}

fn question(group: u32, shards: u32, nodes: u32, balance_permille: u32) -> Question {
    let group = GroupName::new(format!("group-{group}")).expect("a plain name");
    let node = |i| Candidate {
        name: NodeName::new(format!("worker-{i}")).expect("a plain name"),
        weight: 1,
        capacity: None,
        zone: None,
    };
    Question {
        nodes: (0..nodes).map(node).collect(),
        shards: (0..shards).map(|slot| ShardId::slot(&group, slot)).collect(),
        policy: Policy { balance_permille, ..Policy::default() },
        pins: BTreeMap::new(),
        declined: BTreeMap::new(),
    }
}

fn measure(shards: u32, nodes: u32, balance_permille: u32) -> Point {
    let groups = if shards * nodes > 500_000 { 6 } else { 24 };
    let leavers = nodes.min(8) as usize;
    let (mut moved, mut fewest, mut peak) = (0u64, 0u64, 0.0);
    for group in 0..groups {
        let all = question(group, shards, nodes, balance_permille);
        let before = Rendezvous.place(&all).to;
        let mut counts = vec![0u32; nodes as usize];
        before.iter().flatten().for_each(|&node| counts[node as usize] += 1);
        let fullest = counts.iter().max().copied().unwrap_or(0);
        peak += f64::from(fullest) * f64::from(nodes) / f64::from(shards) / f64::from(groups);
        for leaver in 0..leavers {
            let mut fewer = all.clone();
            fewer.nodes.remove(leaver);
            for (was, is) in before.iter().zip(Rendezvous.place(&fewer).to) {
                let (was, is) = (was.expect("there is room"), is.expect("there is room"));
                let is = is + u32::from(is as usize >= leaver);
                moved += u64::from(was != is);
                fewest += u64::from(was as usize == leaver);
            }
        }
    }
    Point { balance_permille, peak, moves: moved as f64 / fewest as f64 }
}

fn main() -> std::io::Result<()> {
    let mut csv = String::from("shards,nodes,balance,peak_over_mean,moves_over_fewest\n");
    let mut curves = Vec::new();
    for (shards, nodes) in SIZES {
        let points: Vec<Point> =
            BALANCES.into_iter().map(|balance| measure(shards, nodes, balance)).collect();
        for Point { balance_permille, peak, moves } in &points {
            let balance = f64::from(*balance_permille) / 1000.0;
            writeln!(csv, "{shards},{nodes},{balance:.3},{peak:.4},{moves:.4}")
                .expect("a string takes everything");
        }
        println!("{shards} shards on {nodes} nodes: measured");
        curves.push(Curve { label: format!("{} × {nodes}", grouped(shards)), points });
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::write(docs.join("balance.csv"), csv)?;
    std::fs::write(docs.join("balance.svg"), drawing(&curves))?;
    println!("written: docs/balance.csv, docs/balance.svg");
    Ok(())
}

fn grouped(number: u32) -> String {
    if number < 1_000 { number.to_string() } else { format!("{},{:03}", number / 1_000, number % 1_000) }
}

struct Curve {
    label: String,
    points: Vec<Point>,
}

const COLOURS: [&str; 6] = ["#4e79a7", "#76b7b2", "#59a14f", "#edc948", "#f28e2b", "#e15759"];

/// One coordinate system of the drawing.
struct Panel {
    left: f64,
    title: &'static str,
    /// The values at the bottom and at the top.
    range: (f64, f64),
    step: f64,
    value: fn(&Point) -> f64,
    format: fn(f64) -> String,
    goal: f64,
}

const TOP: f64 = 96.0;
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 300.0;

impl Panel {
    fn x(&self, balance_permille: u32) -> f64 {
        self.left + (f64::from(balance_permille) - 1000.0) / 500.0 * WIDTH
    }

    fn y(&self, value: f64) -> f64 {
        let (bottom, top) = self.range;
        TOP + HEIGHT - (value.min(top) - bottom) / (top - bottom) * HEIGHT
    }

    fn draw(&self, svg: &mut String, curves: &[Curve]) -> std::fmt::Result {
        let (left, right, bottom) = (self.left, self.left + WIDTH, TOP + HEIGHT);
        writeln!(svg, r#"<text x="{left}" y="{}" class="title">{}</text>"#, TOP - 14.0, self.title)?;
        let mut value = self.range.0;
        while value <= self.range.1 + 1e-9 {
            let y = self.y(value);
            writeln!(svg, r#"<path d="M{left} {y:.1}H{right}" class="grid"/>"#)?;
            let (x, y, text) = (left - 8.0, y + 4.0, (self.format)(value));
            writeln!(svg, r#"<text x="{x}" y="{y:.1}" text-anchor="end">{text}</text>"#)?;
            value += self.step;
        }
        for balance in (1000..=1500).step_by(100) {
            let x = self.x(balance);
            writeln!(svg, r#"<path d="M{x:.1} {bottom}v5" class="tick"/>"#)?;
            let text = f64::from(balance) / 1000.0;
            writeln!(svg, r#"<text x="{x:.1}" y="{}" text-anchor="middle">{text:.1}</text>"#, bottom + 20.0)?;
        }
        let (x, y) = ((left + right) / 2.0, bottom + 42.0);
        writeln!(svg, r#"<text x="{x}" y="{y}" text-anchor="middle">balance factor</text>"#)?;
        let (goal, chosen) = (self.y(self.goal), self.x(BALANCE_PERMILLE));
        writeln!(svg, r#"<path d="M{left} {goal:.1}H{right}" class="goal"/>"#)?;
        writeln!(
            svg,
            r#"<text x="{}" y="{:.1}" text-anchor="end" class="note">goal</text>"#,
            right - 4.0,
            goal - 5.0
        )?;
        writeln!(svg, r#"<path d="M{chosen:.1} {TOP}V{bottom}" class="goal"/>"#)?;
        writeln!(svg, r#"<text x="{:.1}" y="{}" class="note">default</text>"#, chosen + 5.0, TOP + 12.0)?;
        for (curve, colour) in curves.iter().zip(COLOURS) {
            self.curve(svg, curve, colour)?;
        }
        writeln!(svg, r#"<path d="M{left} {TOP}V{bottom}H{right}" class="axis"/>"#)
    }

    /// A curve that leaves the panel at the top is cut off there.
    fn curve(&self, svg: &mut String, curve: &Curve, colour: &str) -> std::fmt::Result {
        let at = |p: &Point| (self.x(p.balance_permille), (self.value)(p));
        let mut path = String::new();
        let mut dots = String::new();
        for (i, point) in curve.points.iter().enumerate() {
            let (x, value) = at(point);
            if value > self.range.1 {
                continue;
            }
            if let Some((before, above)) = i.checked_sub(1).map(|i| at(&curve.points[i]))
                && above > self.range.1
            {
                let part = (above - self.range.1) / (above - value);
                write!(path, "M{:.1} {TOP}", before + (x - before) * part)?;
            }
            let letter = if path.is_empty() { 'M' } else { 'L' };
            write!(path, "{letter}{x:.1} {:.1}", self.y(value))?;
            write!(dots, r#"<circle cx="{x:.1}" cy="{:.1}" r="2.6" fill="{colour}"/>"#, self.y(value))?;
        }
        writeln!(svg, r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}"#)
    }
}

fn drawing(curves: &[Curve]) -> String {
    let mut svg = String::from(concat!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1080 470" font-family="sans-serif" font-size="13">"##,
        "\n<style>text{fill:#333}.title{font-size:14px;font-weight:bold}.head{font-size:17px;font-weight:bold}",
        ".note{fill:#777;font-size:11px}.grid{stroke:#e6e6e6}.axis,.tick{stroke:#555;fill:none}",
        ".goal{stroke:#888;stroke-dasharray:4 4}</style>\n",
        r##"<rect width="1080" height="470" fill="#fff"/>"##,
        "\n<text x=\"64\" y=\"34\" class=\"head\">What a tighter balance costs when one node joins or leaves</text>",
        "\n<text x=\"64\" y=\"56\">Equal weights. Made by: cargo run --release -p leasehold-core --example balance_curve</text>\n",
    ));
    let moves = Panel {
        left: 64.0,
        title: "Moves beyond the fewest possible",
        range: (0.0, 1.0),
        step: 0.1,
        value: |point| point.moves - 1.0,
        format: |value| format!("{:.0} %", value * 100.0),
        goal: 0.1,
    };
    let peak = Panel {
        left: 520.0,
        title: "Fullest node over the mean",
        range: (1.0, 1.6),
        step: 0.1,
        value: |point| point.peak,
        format: |value| format!("{value:.1}"),
        goal: 1.1,
    };
    let drawn = moves.draw(&mut svg, curves).and_then(|()| peak.draw(&mut svg, curves));
    let legend = curves.iter().zip(COLOURS).enumerate().try_for_each(|(i, (curve, colour))| {
        let y = TOP + 30.0 + 24.0 * i as f64;
        writeln!(svg, r#"<path d="M930 {y}h24" stroke="{colour}" stroke-width="2"/>"#)?;
        writeln!(svg, r#"<circle cx="942" cy="{y}" r="2.6" fill="{colour}"/>"#)?;
        writeln!(svg, r#"<text x="962" y="{}">{}</text>"#, y + 4.0, curve.label)
    });
    drawn.and(legend).expect("a string takes everything");
    writeln!(svg, r#"<text x="930" y="{}" class="title">shards × nodes</text>"#, TOP + 8.0)
        .expect("a string takes everything");
    svg.push_str("</svg>\n");
    svg
}
