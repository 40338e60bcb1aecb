//! From a grant's deadline to the leash of a child.

use std::time::Duration;

use leasehold::Grant;
use leasehold_core::{Config, Moment};

use crate::guard::wire::Leash;

/// How the leash follows from the moment when work is told to stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeashRule {
    margin: Duration,
    kill_budget: Duration,
    /// How often a renewal is looked for. The guard then knows of it well before the former deadline.
    pub(super) look_every: Duration,
}

impl LeashRule {
    pub(super) fn of(config: &Config) -> Self {
        LeashRule {
            margin: config.margin,
            kill_budget: config.kill_budget,
            look_every: config.renew_every / 2,
        }
    }

    /// Until when the child of a grant may live; `None` once the grant is lost, and then the last leash stays.
    pub(super) fn leash(&self, grant: &Grant) -> Option<Leash> {
        let stop_at = grant.deadline();
        (stop_at != Moment::ZERO).then(|| Leash {
            kill_at: stop_at + (self.margin - self.kill_budget),
            valid_until: stop_at + self.margin,
        })
    }

    /// When a child of a lost session is killed by order: a little before its guard would do so by itself, so that
    /// the end is confirmed in time.
    pub(super) fn last_call(&self, leash: Leash) -> Moment {
        leash.kill_at - Duration::from_millis(100).min((self.margin - self.kill_budget) / 4)
    }

    /// When work was told to stop under this leash.
    pub(super) fn stop_at(&self, leash: Leash) -> Moment {
        leash.valid_until - self.margin
    }
}
