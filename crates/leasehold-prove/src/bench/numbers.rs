use std::fmt::Write as _;
use std::time::Duration;

use leasehold_chaos::measure::Spans;
use leasehold_cli_common::settings::span;
use leasehold_core::config::{Config, Explanation};
use serde_json::{Value, json};

use super::money::Money;
use super::plain_writes::Plain;
use super::session::Measured;

/// How many broken promises are shown; the rest is counted.
const BROKEN_MAX: usize = 10;

/// Everything that was measured.
#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) store: String,
    pub(super) nodes: usize,
    pub(super) shards: u32,
    pub(super) config: Config,
    pub(super) explained: Explanation,
    pub(super) measured: Measured,
    /// A write per shard, if that was measured.
    pub(super) plain: Option<Plain>,
}

/// The same thing measured on both sides.
struct Row {
    title: &'static str,
    ours: f64,
    plain: Option<f64>,
    unit: &'static str,
}

impl Numbers {
    fn rows(&self) -> [Row; 7] {
        let (rest, plain) = (&self.measured.rest, self.plain.as_ref());
        let per = |count: u64, seconds: f64| count as f64 / seconds.max(0.001);
        let share = |cpu: Duration, seconds: f64| cpu.as_secs_f64() / seconds.max(0.001) * 100.0;
        let ms = |spans: &Spans| spans.at(500).unwrap_or_default().as_secs_f64() * 1000.0;
        [
            Row {
                title: "store calls per second",
                ours: per(rest.calls, rest.seconds),
                plain: plain.map(|plain| per(plain.writes + plain.failed, plain.seconds)),
                unit: "",
            },
            Row {
                title: "records written per second",
                ours: per(rest.writes, rest.seconds),
                plain: plain.map(|plain| per(plain.writes, plain.seconds)),
                unit: "",
            },
            Row {
                title: "bytes written per second",
                ours: per(rest.bytes_out, rest.seconds),
                plain: plain.map(|plain| per(plain.bytes, plain.seconds)),
                unit: "",
            },
            Row {
                title: "bytes read per second",
                ours: per(rest.bytes_in, rest.seconds),
                plain: plain.map(|_| 0.0),
                unit: "",
            },
            Row {
                title: "watch events per second",
                ours: per(rest.watch_events, rest.seconds),
                plain: plain.map(|_| 0.0),
                unit: "",
            },
            Row {
                title: "CPU time of all nodes",
                ours: share(rest.cpu, rest.seconds),
                plain: plain.map(|plain| share(plain.cpu, plain.seconds)),
                unit: " %",
            },
            Row {
                title: "one write, median",
                ours: ms(&rest.renewals),
                plain: plain.map(|plain| ms(&plain.latency)),
                unit: " ms",
            },
        ]
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let measured = &self.measured;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} nodes, {} shards, ttl {}, on {}\n",
            self.nodes,
            self.shards,
            span::show(self.config.ttl),
            self.store
        );
        let _ =
            writeln!(text, "{:<44}{}", "cold start until all shards are owned", people(measured.cold_start));
        let start = &measured.start;
        let asked = format!(
            "{} calls, {} writes, {} bytes written, {} bytes read",
            start.calls, start.writes, start.bytes_out, start.bytes_in
        );
        let _ = writeln!(text, "{:<44}{asked}", "store load of the cold start");
        if let Some(handed_over) = measured.handed_over {
            let mut line = |title: &str, value: String| {
                let _ = writeln!(text, "{title:<44}{value}");
            };
            line("planned move, one shard at a time", spread(&measured.planned_one));
            line("planned moves of all shards of a node", spread(&measured.planned_all));
            line("graceful stop until others own all shards", people(handed_over));
            line("failover after kill -9", spread(&measured.failover));
        }
        let _ = writeln!(text, "{:<44}{}", "node records at rest", measured.node_records.text());
        let _ = writeln!(text, "{:<44}{}", "shard records at rest", measured.shard_records.text());
        let _ =
            writeln!(text, "\n{:<32}{:>14}{:>22}{:>12}", "at rest", "leasehold", "lease per shard", "ratio");
        for row in self.rows() {
            let value = |number: f64| format!("{number:.2}{}", row.unit);
            let ratio = match row.plain {
                Some(plain) if row.ours > 0.0 && plain > 0.0 => format!("{:.1} ×", plain / row.ours),
                _ => "–".to_owned(),
            };
            let plain = row.plain.map_or_else(|| "–".to_owned(), value);
            let _ = writeln!(text, "{:<32}{:>14}{plain:>22}{ratio:>12}", row.title, value(row.ours));
        }
        let _ = writeln!(text, "{:<32}{:>14}", "renewals, p99 and longest", ends(&measured.rest.renewals));
        if let Some(money) = self.money() {
            text.push_str(&money.text(self.nodes, self.shards));
        }
        let _ = writeln!(
            text,
            "\nRenewals alone are {:.2} writes per second; {} shard records were written at rest.",
            self.renewals(),
            measured.rest.shard_writes
        );
        if let Some(plain) = &self.plain {
            let _ = writeln!(text, "Lease per shard: each of {} records is written every 10 s.", self.shards);
            if plain.failed > 0 {
                let _ = writeln!(text, "{} of those writes failed.", plain.failed);
            }
        }
        for broken in measured.broken.iter().take(BROKEN_MAX) {
            let _ = writeln!(text, "BROKEN: {broken}");
        }
        if measured.broken.len() > BROKEN_MAX {
            let _ = writeln!(text, "… and {} more", measured.broken.len() - BROKEN_MAX);
        }
        text
    }

    fn money(&self) -> Option<Money> {
        let rest = &self.measured.rest;
        Money::of(&rest.charged?, rest.seconds, &self.explained, self.nodes, self.shards)
    }

    fn renewals(&self) -> f64 {
        self.nodes as f64 / self.config.renew_every.as_secs_f64()
    }

    /// For programs.
    pub(super) fn as_json(&self) -> Value {
        let measured = &self.measured;
        let ms = |span: Duration| span.as_micros() as f64 / 1000.0;
        let round = |number: f64| (number * 1000.0).round() / 1000.0;
        let rows: Vec<Value> = self
            .rows()
            .iter()
            .map(|row| json!({"what": row.title, "unit": row.unit.trim(), "leasehold": round(row.ours), "write_per_shard": row.plain.map(round)}))
            .collect();
        json!({
            "store": self.store, "nodes": self.nodes, "shards": self.shards, "ttl_ms": ms(self.config.ttl),
            "cold_start_ms": ms(measured.cold_start), "planned_move": measured.planned_one, "planned_moves_of_a_node": measured.planned_all,
            "graceful_stop_ms": measured.handed_over.map(ms), "failover": measured.failover,
            "rest": rows, "renewals_per_second": round(self.renewals()),
            "shard_writes_at_rest": measured.rest.shard_writes,
            "start": measured.start.as_json(), "rest_in_all": measured.rest.as_json(), "rest_seconds": round(measured.rest.seconds),
            "node_records": measured.node_records.as_json(), "shard_records": measured.shard_records.as_json(),
            "renewal": measured.rest.renewals, "plain_write": self.plain.as_ref().map(|plain| &plain.latency),
            "plain_failed": self.plain.as_ref().map(|plain| plain.failed),
            "broken": measured.broken, "money": self.money().map(|money| money.as_json()),
        })
    }
}

fn spread(spans: &Spans) -> String {
    let at = |permille| spans.at(permille).map_or_else(|| "–".to_owned(), people);
    format!("median {}, p99 {}, longest {} ({} shards)", at(500), at(990), at(1000), spans.all().len())
}

fn ends(spans: &Spans) -> String {
    let at = |permille| spans.at(permille).map_or_else(|| "–".to_owned(), people);
    format!("{}, {}", at(990), at(1000))
}

fn people(span: Duration) -> String {
    match span.as_micros() {
        us @ 0..10_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        us @ 10_000..1_000_000 => format!("{} ms", us / 1000),
        us => format!("{:.2} s", us as f64 / 1e6),
    }
}
