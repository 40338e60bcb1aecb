//! What grows in etcd, and whether it is cleared away.

use std::sync::Arc;

use leasehold_store::{Finding, Listing};
use tonic::Code;

use super::members::Members;
use super::{metrics, nodes};
use crate::etcd::{Shared, range};
use crate::lane::{Switch, Trouble};
use crate::proto::RangeRequest;

/// How often a node writes per day at the default ttl of 10 s, which is renewed every 2 s.
const RENEWALS_PER_DAY: u64 = 86_400 / 2;
/// What etcd keeps beside the value of one write, about.
const BYTES_BESIDE_VALUE: u64 = 150;
/// How large a node's record is when there is none to look at.
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
    let mut findings = vec![cost(listing)];
    findings.push(match oldest(shared, switch, newest).await {
        Ok(oldest) => compaction(oldest, newest),
        Err(trouble) => Finding::doubtful(
            format!("how far back the history goes cannot be seen: {}", trouble.error.message),
            "make sure that auto-compaction is on",
        ),
    });
    findings.extend(size(shared, members).await);
    findings
}

fn cost(listing: &Listing) -> Finding {
    let nodes = nodes(listing);
    let count = nodes.len().max(1) as u64;
    let bytes: u64 = nodes.iter().map(|stored| stored.value.len() as u64).sum();
    let each = if nodes.is_empty() { NODE_BYTES } else { bytes / count };
    let revisions = count * RENEWALS_PER_DAY;
    let megabytes = revisions * (each + BYTES_BESIDE_VALUE) / 1_000_000;
    Finding::good(format!(
        "{count} node(s) at a ttl of 10 s renew {revisions} times a day: as many revisions, and about {megabytes} MB of \
         history until it is compacted; shards cost nothing at rest"
    ))
}

fn compaction(oldest: i64, newest: i64) -> Finding {
    let advice = "switch it on: --auto-compaction-mode=periodic --auto-compaction-retention=1h";
    match (oldest, newest) {
        (..=1, ..YOUNG) => Finding::good(format!(
            "nothing has been compacted yet, at revision {newest}; whether auto-compaction is on cannot be seen ({advice})"
        )),
        (..=1, _) => Finding::doubtful(
            format!("nothing was ever compacted, at revision {newest}: the quota will be used up one day"),
            advice,
        ),
        _ => Finding::good(format!(
            "the history goes from revision {oldest} to {newest}: it is compacted ({} revisions are kept)",
            newest - oldest
        )),
    }
}

/// The oldest revision that can still be read.
async fn oldest(shared: &Shared, switch: &Arc<Switch>, newest: i64) -> Result<i64, Trouble> {
    let (mut gone, mut there) = (0, newest);
    while gone + 1 < there {
        let middle = gone + (there - gone) / 2;
        let key = shared.layout.all().start;
        let question = RangeRequest { key, revision: middle, count_only: true, ..RangeRequest::default() };
        match range(switch, question).await {
            Ok(_) => there = middle,
            Err(Trouble { status: Some(status), .. }) if status.code() == Code::OutOfRange => gone = middle,
            Err(trouble) => return Err(trouble),
        }
    }
    Ok(there)
}

async fn size(shared: &Shared, members: &Members) -> Vec<Finding> {
    let Some((member, largest)) = members.answered().max_by_key(|(_, status)| status.db_size) else {
        return Vec::new();
    };
    let quota = metrics::number(&shared.options, member, "etcd_server_quota_backend_bytes").await;
    let megabytes = |bytes: i64| bytes as f64 / 1e6;
    let what = format!(
        "the database has {:.1} MB, of which {:.1} MB are in use",
        megabytes(largest.db_size),
        megabytes(largest.db_size_in_use)
    );
    let of = match quota {
        Some(quota) => format!("of a quota of {:.0} MB", quota / 1e6),
        None => "of etcd's usual quota of 2,147 MB (which one is set cannot be seen)".to_owned(),
    };
    let share = largest.db_size as f64 / quota.filter(|quota| *quota > 0.0).unwrap_or(QUOTA_DEFAULT);
    let what = format!("{what}, {:.0} % {of}", share * 100.0);
    let mut findings = vec![match share {
        ..0.6 => Finding::good(what),
        _ => Finding::doubtful(
            what,
            "compact and defragment, or raise --quota-backend-bytes: when the quota is used up, all nodes detach",
        ),
    }];
    let errors: Vec<&str> =
        members.statuses().flat_map(|status| &status.errors).map(String::as_str).collect();
    if !errors.is_empty() {
        findings.push(Finding::bad(format!("etcd says: {}", errors.join("; ")), "mend that first"));
    }
    findings
}
