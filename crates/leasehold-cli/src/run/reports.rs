//! What children of `run --one` report on themselves, passed on to the node: weight, load and health.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::Node;
use leasehold::clock::{self, Clock};
use leasehold_core::Moment;
use tokio::sync::mpsc;

use super::one::message::ChildReport;

/// The label that shows the load.
const LOAD_LABEL: &str = "load";

/// Tells the children of this supervisor apart: a node may have one for each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChildId(u64);

impl ChildId {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ChildId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What is heard from a child.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FromChild {
    /// It said so itself.
    Report(ChildReport),
    /// It has ended, and with it what it said of its health.
    Ended,
}

/// Where reports go.
pub(super) type Reports = mpsc::UnboundedSender<(ChildId, FromChild)>;

/// Which children are unhealthy, and until when those count that have ended.
#[derive(Debug, Default)]
struct Healths(BTreeMap<ChildId, Moment>);

impl Healths {
    /// Whether the node may take shards.
    fn accepts(&self) -> bool {
        self.0.is_empty()
    }

    fn hear(&mut self, child: ChildId, healthy: bool) {
        match healthy {
            true => drop(self.0.remove(&child)),
            false => drop(self.0.insert(child, Moment::NEVER)),
        }
    }

    /// An unhealthy child ends when its last shard is gone, and can no longer say that it is well. A new one may be: it
    /// is tried after this pause, which keeps shards from coming and going.
    fn ended(&mut self, child: ChildId, well_at: Moment) {
        if let Some(until) = self.0.get_mut(&child) {
            *until = well_at;
        }
    }

    fn forget(&mut self, now: Moment) {
        self.0.retain(|_, until| *until > now);
    }

    fn next_at(&self) -> Moment {
        self.0.values().copied().min().unwrap_or(Moment::NEVER)
    }
}

/// Passes reports on for as long as it is polled. The load is written at most this often.
pub(super) async fn pass_on(
    node: &Node,
    mut inbox: mpsc::UnboundedReceiver<(ChildId, FromChild)>,
    mut labels: BTreeMap<String, String>,
    every: Duration,
    rest: Duration,
) {
    let clock = Clock::boot();
    let (mut healths, mut loads) = (Healths::default(), BTreeMap::new());
    let (mut accepts, mut write_load_at) = (true, Moment::NEVER);
    loop {
        let wake_at = healths.next_at().min(write_load_at);
        tokio::select! {
            report = inbox.recv() => match report {
                None => return std::future::pending().await,
                Some((_, FromChild::Report(ChildReport::Weight(weight)))) => {
                    tracing::info!(weight, "the child set the weight of this node");
                    let _ = node.set_weight(weight);
                }
                Some((child, FromChild::Report(ChildReport::Load(load)))) => {
                    loads.insert(child, load);
                    write_load_at = write_load_at.min(clock::now() + every);
                }
                Some((child, FromChild::Report(ChildReport::Healthy(healthy)))) => healths.hear(child, healthy),
                Some((child, FromChild::Ended)) => {
                    healths.ended(child, clock::now() + rest);
                    if loads.remove(&child).is_some() {
                        write_load_at = write_load_at.min(clock::now() + every);
                    }
                }
            },
            () = clock.sleep_until(wake_at), if wake_at != Moment::NEVER => {}
        }
        healths.forget(clock::now());
        if healths.accepts() != std::mem::replace(&mut accepts, healths.accepts()) {
            match accepts {
                true => tracing::info!("the child is healthy: this node takes shards again"),
                false => tracing::warn!(
                    "the child reports that it is unhealthy: this node takes no new shards and hands over those that others \
                     can take"
                ),
            }
            let _ = node.set_accepting(accepts);
        }
        if clock::now() >= write_load_at {
            write_load_at = Moment::NEVER;
            match loads.values().copied().reduce(f64::max) {
                Some(load) => drop(labels.insert(LOAD_LABEL.to_owned(), format!("{load:.2}"))),
                None => drop(labels.remove(LOAD_LABEL)),
            }
            let _ = node.set_labels(labels.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_accepts_while_no_child_is_unhealthy_and_for_a_while_after_one_that_ended_it_does_not() {
        let (mut healths, at) = (Healths::default(), |s| Moment::ZERO + Duration::from_secs(s));
        let (a, b) = (ChildId::new(), ChildId::new());
        healths.ended(a, at(9));
        assert!(healths.accepts(), "a child that never complained ends without consequences");
        healths.hear(a, false);
        healths.hear(b, false);
        healths.hear(b, true);
        assert!(!healths.accepts());
        healths.forget(at(1_000_000));
        assert!(!healths.accepts(), "it says itself when it is well");
        healths.ended(a, at(30));
        assert_eq!(healths.next_at(), at(30));
        healths.forget(at(29));
        assert!(!healths.accepts());
        healths.forget(at(30));
        assert!(healths.accepts());
    }
}
