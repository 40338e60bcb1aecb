//! When the store refuses what a node needs, somebody has to change it: a right that is missing in a Redis ACL, a role of
//! Kubernetes or etcd, a bucket's policy. The store's own checks know which; they are asked once calls begin to fail.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Node;
use leasehold::clock::Clock;
use leasehold_core::Notice;
use leasehold_store::{Finding, Grade, Store, StoreExt};

/// How long the store may take to be checked.
const WITHIN: Duration = Duration::from_secs(10);
/// The pause between two checks while calls go on failing.
const AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Tells what is wrong with the store while calls fail, each problem once, for as long as it is polled.
pub(super) async fn explain(node: &Node, store: &Arc<dyn Store>) {
    let (mut events, clock) = (node.events(), Clock::boot());
    let mut told = BTreeSet::new();
    while let Some(event) = events.next().await {
        if !matches!(event.notice, Notice::StoreFailed { .. } | Notice::RenewalFailed { .. }) {
            continue;
        }
        let until = clock.now() + WITHIN;
        let findings = clock.timeout_at(until, store.examine()).await.unwrap_or_default();
        let bad: Vec<Finding> = findings.into_iter().filter(|found| found.grade == Grade::Bad).collect();
        for Finding { what, advice, .. } in bad.iter().filter(|found| !told.contains(&found.what)) {
            tracing::error!(advice, "the store does not do what this node needs: {what}; retrying");
        }
        told = bad.into_iter().map(|found| found.what).collect();
        clock.sleep(AGAIN_AFTER).await;
        // What came meanwhile is old.
        events = node.events();
    }
    std::future::pending().await
}
