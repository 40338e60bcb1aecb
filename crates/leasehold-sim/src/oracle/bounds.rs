//! How long things may take once all faults are over: what the core's own `explain` promises, in true time.

use std::time::Duration;

use leasehold_core::NodeName;

use crate::oracle::records::Loss;
use crate::world::clock::{Instant, SECOND};
use crate::world::scenario::Scenario;

/// The stated bounds of one run.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// From when a record has no holder until it has one, in calm times.
    pub(crate) unowned: Instant,
    /// From when all faults are over until every shard is owned whose record was not tampered with.
    pub(crate) owned: Instant,
    /// How much longer it takes where a node may hold a shard without a record that says so.
    lost: Instant,
    /// How much longer than that, where its record names a holder that does not exist.
    usurped: Instant,
    /// From then until everything is where the plan wants it.
    pub(crate) converged: Instant,
    /// How long it is watched then.
    pub(crate) quiet: Instant,
    /// How long after a disturbance the world may still be busy with it.
    pub(crate) calm_after: Instant,
    /// How long after the last change something may still be put in order: every node lists once, and asks gates
    /// that refused again.
    pub(crate) rest: Instant,
    /// How often a node writes at rest.
    pub(crate) renew_every: Instant,
}

impl Bounds {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let name = NodeName::new("n").expect("a valid name");
        let mut config = scenario.config(0, name.clone(), None);
        let shortest = config.renew_every.min(Duration::from_nanos(scenario.ttl / 5));
        let groups = std::mem::take(&mut config.groups);
        let mut slowest = leasehold_core::Config::with_ttl(name, Duration::from_nanos(scenario.ttl_longest));
        slowest.ttl_max = Duration::from_nanos(scenario.ttl_max);
        slowest.groups = groups;
        let stated = slowest.explain(&scenario.facts);
        let policy = &scenario.policy;
        let unowned = true_time(stated.unowned_worst + stated.restart_grace);
        let failover = true_time(stated.failover_worst);
        let settling = true_time(stated.settle_for);
        let stop = Duration::from_millis(policy.stop_timeout_ms);
        Bounds {
            unowned,
            owned: settling + failover + unowned,
            lost: true_time(stated.lost_for),
            usurped: scenario.usurper_ttl * 104 / 100,
            converged: true_time(stated.recovery_worst + stop)
                + 2 * true_time(Duration::from_millis(policy.cooldown_ms + policy.min_run_ms))
                + 3 * true_time(stated.ttl)
                + 20 * SECOND,
            quiet: true_time(stated.ttl) * 3 / 2,
            calm_after: settling + failover + true_time(stated.recovery_worst),
            rest: true_time(stated.ttl) + 2 * SECOND,
            renew_every: shortest.as_nanos() as u64,
        }
    }

    /// How much longer it takes after this was done to a record.
    pub(crate) fn longer(&self, loss: Loss) -> Instant {
        match loss {
            Loss::Nothing => 0,
            Loss::Lost => self.lost,
            Loss::Usurped => self.lost + self.usurped,
        }
    }
}

/// How long a time of the slowest clock really is.
fn true_time(span: Duration) -> Instant {
    span.as_nanos() as u64 * 100 / 99
}
