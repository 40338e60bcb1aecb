//! Signs of life of a node, for health checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::Moment;

use crate::clock::Clock;

/// Signs of life of a node's driver and of its store: [`Node::vitals`](crate::Node::vitals). They cost a clock read and an
/// atomic load, and are told from outside the driver, so that a driver that hangs shows.
///
/// ```
/// # async fn example(node: &leasehold::Node, ttl: std::time::Duration) {
/// let vitals = node.vitals();
/// let alive = vitals.driver_idle_for() < ttl; // it goes round at least once a second
/// let ready = vitals.store_silent_for().is_some_and(|silent| silent < ttl / 2); // it is asked every ttl / 5
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Vitals(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    began_ns: u64,
    driver_ns: AtomicU64,
    view_ns: AtomicU64,
    /// Zero until the store has answered.
    store_ns: AtomicU64,
    /// A plan was made since the node joined.
    planned: AtomicBool,
    /// The published view shows it.
    plan_shown: AtomicBool,
}

impl Vitals {
    pub(crate) fn new(clock: Clock) -> Vitals {
        let began_ns = clock.now().as_nanos();
        let (driver_ns, view_ns) = (AtomicU64::new(began_ns), AtomicU64::new(began_ns));
        Vitals(Arc::new(Inner {
            clock,
            began_ns,
            driver_ns,
            view_ns,
            store_ns: AtomicU64::new(0),
            planned: AtomicBool::new(false),
            plan_shown: AtomicBool::new(false),
        }))
    }

    /// How long ago the driver was last seen at work. It goes round at least once a second.
    pub fn driver_idle_for(&self) -> Duration {
        self.since(self.0.driver_ns.load(Ordering::Relaxed))
    }

    /// How long ago the store last answered a call; `None` if it never did. A node at rest asks it every `renew_every`.
    pub fn store_silent_for(&self) -> Option<Duration> {
        let answered_ns = self.0.store_ns.load(Ordering::Relaxed);
        (answered_ns > 0).then(|| self.since(answered_ns))
    }

    /// How old the view of the node is: times in it count from then.
    pub fn view_age(&self) -> Duration {
        self.since(self.0.view_ns.load(Ordering::Relaxed))
    }

    /// Whether the node's view shows a plan that was made since the node joined. Until then it seems to want nothing.
    pub fn has_plan(&self) -> bool {
        self.0.plan_shown.load(Ordering::Relaxed)
    }

    /// How long ago the node was started.
    pub(crate) fn age(&self) -> Duration {
        self.since(self.0.began_ns)
    }

    /// The driver went round.
    pub(crate) fn driver_ran(&self) {
        self.mark(&self.0.driver_ns);
    }

    /// The node joined, or lost its session: its plan is of another time.
    pub(crate) fn plan_is_old(&self) {
        self.0.planned.store(false, Ordering::Relaxed);
        self.0.plan_shown.store(false, Ordering::Relaxed);
    }

    /// A plan was made.
    pub(crate) fn planned(&self) {
        self.0.planned.store(true, Ordering::Relaxed);
    }

    /// A view was published.
    pub(crate) fn viewed(&self) {
        self.mark(&self.0.view_ns);
        self.0.plan_shown.store(self.0.planned.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The store answered.
    pub(crate) fn store_answered(&self) {
        self.mark(&self.0.store_ns);
    }

    fn mark(&self, what: &AtomicU64) {
        what.fetch_max(self.0.clock.now().as_nanos().max(1), Ordering::Relaxed);
    }

    fn since(&self, at_ns: u64) -> Duration {
        self.0.clock.now().since(Moment::from_nanos(at_ns))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Group, Node};

    #[tokio::test(start_paused = true)]
    async fn a_node_at_rest_shows_signs_of_life() {
        let group = Group::numbered("orders", 2);
        let node = Node::solo().ttl(Duration::from_secs(10)).virtual_time();
        let node = node.group(group, |grant| async move { grant.stopped().await });
        let node = node.start().await.unwrap();
        node.until(|view| view.me.as_ref().is_some_and(|me| me.held == 2)).await.unwrap();
        let vitals = node.vitals();
        assert!(vitals.has_plan(), "it holds what the plan gives it");
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(137)).await;
            assert!(vitals.driver_idle_for() <= Duration::from_secs(1), "{vitals:?}");
            let silent = vitals.store_silent_for().expect("it has answered");
            assert!(silent <= Duration::from_secs(3), "a node at rest renews every 2 s: {silent:?}");
        }
        node.leave().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(vitals.driver_idle_for() >= Duration::from_secs(59), "nobody is at work: {vitals:?}");
    }
}
