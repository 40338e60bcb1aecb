//! What a cluster asks of its store, by the nodes' own counters, and how large its records are.

use std::time::Duration;

use leasehold_chaos::measure::Spans;
use leasehold_core::Moment;
use leasehold_core::store::{Key, Listing};
use leasehold_store::Charged;
use serde_json::{Value, json};

/// What all nodes together asked of the store between two moments.
#[derive(Debug, Default)]
pub(super) struct Cost {
    pub(super) seconds: f64,
    pub(super) calls: u64,
    pub(super) writes: u64,
    pub(super) shard_writes: u64,
    /// Bytes of the values that were written.
    pub(super) bytes_out: u64,
    /// Bytes of the values that were read, listed or told by a watch.
    pub(super) bytes_in: u64,
    /// Changes that the watch delivered.
    pub(super) watch_events: u64,
    /// Requests to a store that charges for each.
    pub(super) charged: Option<Charged>,
    pub(super) cpu: Duration,
    pub(super) renewals: Spans,
}

impl Cost {
    /// Between two moments, from what the nodes wrote down once a second.
    pub(super) fn between(files: &[(String, String)], from: Moment, to: Moment) -> Cost {
        let (from, to) = (from.as_nanos(), to.as_nanos());
        let mut cost = Cost::default();
        let (mut renewals, mut nodes, mut seconds) = (Vec::new(), 0u32, 0.0);
        for (_, text) in files {
            let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            let within = |line: &&Value| line["at_ns"].as_u64().is_some_and(|at| (from..=to).contains(&at));
            let took = lines.iter().filter(within).filter(|line| line["event"] == "renewed");
            renewals.extend(took.filter_map(|line| line["took_us"].as_u64()).map(Duration::from_micros));
            let counts: Vec<&Value> =
                lines.iter().filter(within).filter(|line| line["event"] == "store").collect();
            let (Some(first), Some(last)) = (counts.first(), counts.last()) else { continue };
            cost.add(first, last);
            seconds +=
                last["at_ns"].as_u64().unwrap_or(0).saturating_sub(first["at_ns"].as_u64().unwrap_or(0))
                    as f64
                    / 1e9;
            nodes += 1;
        }
        cost.seconds = seconds / f64::from(nodes.max(1));
        cost.renewals = Spans::of(renewals);
        cost
    }

    /// From the first start of each node to a moment: counters begin at nothing.
    pub(super) fn until(files: &[(String, String)], to: Moment) -> Cost {
        let mut cost = Cost::default();
        for (_, text) in files {
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut counts = lines.filter(|line| line["event"] == "store");
            let last = counts.rfind(|line| line["at_ns"].as_u64().is_some_and(|at| at <= to.as_nanos()));
            if let Some(last) = last {
                cost.add(&Value::Null, &last);
            }
        }
        cost
    }

    /// Adds by how much one node's counters grew.
    fn add(&mut self, first: &Value, last: &Value) {
        let grown = |name: &str| last[name].as_u64().unwrap_or(0) - first[name].as_u64().unwrap_or(0);
        self.calls += grown("calls");
        self.writes += grown("node_swaps") + grown("shard_swaps") + grown("other_swaps");
        self.shard_writes += grown("shard_swaps");
        self.bytes_out += grown("bytes_out");
        self.bytes_in += grown("bytes_in");
        self.watch_events += grown("watch_events");
        if last["charged"].is_object() {
            let of = |line: &Value, name: &str| line["charged"][name].as_u64().unwrap_or(0);
            let grown = |name: &str| of(last, name) - of(first, name);
            let all = self.charged.get_or_insert_default();
            all.writes += grown("writes");
            all.reads += grown("reads");
            all.lists += grown("lists");
        }
    }

    /// For programs: what it was in all.
    pub(super) fn as_json(&self) -> Value {
        json!({
            "calls": self.calls, "writes": self.writes, "shard_writes": self.shard_writes,
            "bytes_written": self.bytes_out, "bytes_read": self.bytes_in, "watch_events": self.watch_events,
        })
    }
}

/// How large the records of one kind are, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) count: usize,
    pub(super) median: usize,
    pub(super) largest: usize,
    pub(super) sum: usize,
}

impl Sizes {
    /// Of the records of that kind.
    pub(super) fn of(listing: &Listing, wanted: fn(&Key) -> bool) -> Sizes {
        let wanted = listing.entries.iter().filter(|(key, _)| wanted(key));
        let mut sizes: Vec<usize> = wanted.map(|(_, stored)| stored.value.len()).collect();
        sizes.sort_unstable();
        Sizes {
            count: sizes.len(),
            median: sizes.get(sizes.len() / 2).copied().unwrap_or(0),
            largest: sizes.last().copied().unwrap_or(0),
            sum: sizes.iter().sum(),
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let Sizes { count, median, largest, sum } = self;
        format!("median {median} bytes, largest {largest}, together {sum} ({count} records)")
    }

    /// For programs.
    pub(super) fn as_json(&self) -> Value {
        let Sizes { count, median, largest, sum } = self;
        json!({"count": count, "median_bytes": median, "largest_bytes": largest, "sum_bytes": sum})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: u64, writes: u64, bytes: u64) -> String {
        json!({"event": "store", "at_ns": at, "calls": writes, "node_swaps": writes, "bytes_out": bytes, "bytes_in": 2 * bytes})
            .to_string()
    }

    #[test]
    fn counters_are_divided_into_what_was_before_and_what_was_at_rest() {
        let second = 1_000_000_000;
        let node = [line(0, 1, 10), line(second, 5, 50), line(2 * second, 6, 60), line(4 * second, 8, 80)]
            .join("\n");
        let files = [("a".to_owned(), node.clone()), ("b".to_owned(), node)];
        let start = Cost::until(&files, Moment::from_nanos(second));
        assert_eq!((start.writes, start.bytes_out, start.bytes_in), (10, 100, 200));
        let rest = Cost::between(&files, Moment::from_nanos(second), Moment::from_nanos(5 * second));
        assert_eq!((rest.writes, rest.bytes_out, rest.bytes_in, rest.seconds), (6, 60, 120, 3.0));
    }
}
