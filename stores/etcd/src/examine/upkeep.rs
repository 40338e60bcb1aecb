//! How etcd's database grows, and whether it is compacted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::record::{NodeRecord, Record};
use leasehold_store::{Finding, Key, Listing};
use tonic::Code;

use super::members::Members;
use super::metrics::Metrics;
use crate::etcd::{Shared, range};
use crate::lane::{CallError, Switch};
use crate::proto::{RangeRequest, StatusResponse};

const DAY: Duration = Duration::from_secs(86_400);
/// The ttl that is assumed if there is no node.
const TTL_USUAL: Duration = Duration::from_secs(10);
/// About how much etcd stores per write in addition to the value.
const BYTES_BESIDE_VALUE: u64 = 150;
/// The size of a node's record that is assumed if there is no node.
const NODE_BYTES: u64 = 500;
/// etcd's quota unless it is set.
const QUOTA_DEFAULT: f64 = (2u64 << 30) as f64;
/// A history that is shorter says nothing about compaction.
const YOUNG: i64 = 50_000;

pub(crate) async fn findings(
    shared: &Shared,
    switch: &Arc<Switch>,
    members: &Members,
    listing: &Listing,
) -> Vec<Finding> {
    let newest = listing.revision.and_then(|revision| i64::try_from(revision).ok()).unwrap_or(0);
    let largest = members.answered().max_by_key(|(_, status)| status.db_size);
    let metrics = match largest {
        Some((member, _)) => Some(Metrics::of(&shared.options, member).await),
        None => None,
    };
    let number = |name: &str| metrics.as_ref().and_then(|metrics| metrics.number(name));
    let cost = Cost::of(listing);
    let mut findings = vec![cost.finding()];
    findings.push(match oldest(shared, switch, newest).await {
        Ok(oldest) => {
            let times = number("etcd_debugging_mvcc_db_compaction_total_duration_milliseconds_count");
            compaction(oldest, newest, times.map(|times| times as u64), cost.revisions)
        }
        Err(failed) => Finding::doubtful(
            format!("the length of the history is unknown: {}", failed.error.message),
            "make sure that auto-compaction is enabled",
        ),
    });
    if let Some((_, largest)) = largest {
        findings.push(size(largest, number("etcd_server_quota_backend_bytes")));
    }
    let errors: Vec<&str> =
        members.statuses().flat_map(|status| &status.errors).map(String::as_str).collect();
    if !errors.is_empty() {
        findings.push(Finding::bad(format!("etcd reports: {}", errors.join("; ")), "fix this first"));
    }
    findings
}

/// What the nodes write in a day, by their records.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    /// How many nodes there are of each ttl.
    nodes: BTreeMap<Duration, u64>,
    revisions: u64,
    bytes: u64,
}

impl Cost {
    /// Of the nodes that have neither left nor been fenced.
    fn of(listing: &Listing) -> Cost {
        let mut cost = Cost { nodes: BTreeMap::new(), revisions: 0, bytes: 0 };
        for (key, stored) in &listing.entries {
            if let (Key::Node(_), Ok(record)) = (key, NodeRecord::decode(&stored.value))
                && record.state.is_alive()
            {
                cost.add(Duration::from_millis(record.ttl_ms), stored.value.len() as u64);
            }
        }
        cost
    }

    fn add(&mut self, ttl: Duration, bytes: u64) {
        let renewals = (DAY.as_millis() / (ttl.as_millis() / 5).max(1)) as u64;
        *self.nodes.entry(ttl).or_default() += 1;
        self.revisions += renewals;
        self.bytes += renewals * (bytes + BYTES_BESIDE_VALUE);
    }

    fn finding(&self) -> Finding {
        if self.nodes.is_empty() {
            let mut one = Cost { nodes: BTreeMap::new(), revisions: 0, bytes: 0 };
            one.add(TTL_USUAL, NODE_BYTES);
            return Finding::good(format!(
                "no node is alive; {}",
                one.told(&format!("each one at a ttl of {TTL_USUAL:?} will"))
            ));
        }
        let nodes: Vec<String> =
            self.nodes.iter().map(|(ttl, count)| format!("{count} at a ttl of {ttl:?}")).collect();
        Finding::good(self.told(&format!("the nodes that are alive ({})", nodes.join(", "))))
    }

    fn told(&self, who: &str) -> String {
        format!(
            "{who} renew {} times a day, every fifth of their ttl: as many revisions, and about {} MB of history until it \
             is compacted; shards cost nothing at rest",
            self.revisions,
            self.bytes / 1_000_000
        )
    }
}

/// What the history says about its own end. `times` is how often the member has compacted since it was started, if it
/// says so. Whether auto-compaction or an operator did it is unknown.
fn compaction(oldest: i64, newest: i64, times: Option<u64>, a_day: u64) -> Finding {
    let advice = "enable it: --auto-compaction-mode=periodic --auto-compaction-retention=1h";
    let kept = newest - oldest;
    // What two days bring, and in any case what says nothing.
    let plenty = i64::try_from(a_day.saturating_mul(2)).unwrap_or(i64::MAX).max(YOUNG);
    let unseen = format!("whether auto-compaction is enabled is unknown ({advice})");
    match (oldest, times) {
        (..=1, _) if newest < YOUNG => {
            Finding::good(format!("nothing has been compacted yet, at revision {newest}; {unseen}"))
        }
        (..=1, _) => Finding::doubtful(
            format!("nothing has ever been compacted, at revision {newest}: the quota will run out"),
            advice,
        ),
        (_, Some(times @ 2..)) if kept < plenty => Finding::good(format!(
            "the history goes from revision {oldest} to {newest}: it was compacted {times} times since the member was \
             started, and {kept} revisions are kept"
        )),
        _ if kept < YOUNG => Finding::good(format!(
            "the history goes from revision {oldest} to {newest}: it was compacted, perhaps by hand; {unseen}"
        )),
        _ => Finding::doubtful(
            format!(
                "{kept} revisions since the last compaction (at revision {oldest}): compaction does not seem to run \
                 regularly"
            ),
            advice,
        ),
    }
}

/// The oldest revision that can still be read.
async fn oldest(shared: &Shared, switch: &Arc<Switch>, newest: i64) -> Result<i64, CallError> {
    let (mut gone, mut there) = (0, newest);
    while gone + 1 < there {
        let middle = gone + (there - gone) / 2;
        let key = shared.layout.all().start;
        let question = RangeRequest { key, revision: middle, count_only: true, ..RangeRequest::default() };
        match range(switch, question).await {
            Ok(_) => there = middle,
            Err(CallError { status: Some(status), .. }) if status.code() == Code::OutOfRange => gone = middle,
            Err(failed) => return Err(failed),
        }
    }
    Ok(there)
}

fn size(largest: &StatusResponse, quota: Option<f64>) -> Finding {
    let megabytes = |bytes: i64| bytes as f64 / 1e6;
    let what = format!(
        "the database takes {:.1} MB, of which {:.1} MB are in use",
        megabytes(largest.db_size),
        megabytes(largest.db_size_in_use)
    );
    let of = match quota {
        Some(quota) => format!("of a quota of {:.0} MB", quota / 1e6),
        None => "of etcd's default quota of 2,147 MB (the configured one is unknown)".to_owned(),
    };
    let share = largest.db_size as f64 / quota.filter(|quota| *quota > 0.0).unwrap_or(QUOTA_DEFAULT);
    let what = format!("{what}, {:.0} % {of}", share * 100.0);
    match share {
        ..0.6 => Finding::good(what),
        _ => Finding::doubtful(
            what,
            "compact and defragment, or raise --quota-backend-bytes: when the quota is used up, all nodes detach",
        ),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_store::Grade;

    use super::*;

    #[test]
    fn a_cost_is_that_of_each_nodes_own_ttl() {
        let mut cost = Cost { nodes: BTreeMap::new(), revisions: 0, bytes: 0 };
        cost.add(Duration::from_secs(10), 500);
        cost.add(Duration::from_secs(60), 500);
        cost.add(Duration::from_secs(60), 500);
        assert_eq!(cost.revisions, 43_200 + 2 * 7_200);
        let told = cost.finding().what;
        assert!(
            told.contains("1 at a ttl of 10s, 2 at a ttl of 60s") && told.contains("57600 times"),
            "{told}"
        );
    }

    #[test]
    fn one_compaction_is_no_habit() {
        let day = 43_200;
        for (oldest, newest, times, grade) in [
            (1, 10, Some(0), Grade::Good),
            (1, YOUNG, Some(0), Grade::Doubtful),
            (900, 1_000, Some(1), Grade::Good),
            (900, 900 + YOUNG, Some(1), Grade::Doubtful),
            (900, 900 + YOUNG, None, Grade::Doubtful),
            (900, 900 + YOUNG, Some(2), Grade::Good),
            (900, 900 + 3 * day as i64, Some(2), Grade::Doubtful),
        ] {
            let finding = compaction(oldest, newest, times, day);
            assert_eq!(finding.grade, grade, "{oldest} {newest} {times:?}: {finding:?}");
        }
        assert!(compaction(900, 1_000, Some(1), day).what.contains("is unknown"));
        assert!(compaction(900, 1_000, Some(9), day).what.contains("compacted 9 times"));
    }
}
