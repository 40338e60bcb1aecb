//! The promises, one file each, named after the promise.
//!
//! To add one, write a file with its `NAME` and a function `judge`, and call it:
//! - at every observation of the oracle, if it is about when user code ran: add it to [`ALWAYS`];
//! - when the world has had its time to heal: `oracle/healing.rs`;
//! - otherwise where the thing happens that it is about, for example `world/driver.rs` or `world/network.rs`.
//!
//! Then break the rule behind it (`sabotage/`) to see that it notices.

pub(crate) mod at_most_one_running_worker;
pub(crate) mod at_most_one_valid_grant;
pub(crate) mod balance_within_bound;
pub(crate) mod deadline_counts_from_sending;
pub(crate) mod drains_finish;
pub(crate) mod epochs_strictly_rise;
pub(crate) mod every_shard_owned;
pub(crate) mod fenced_sink_rejects_old_epochs;
pub(crate) mod freezes_are_noticed;
pub(crate) mod given_to_those_who_agree;
pub(crate) mod lost_stays_lost;
pub(crate) mod moves_within_bound;
pub(crate) mod no_busy_loop;
pub(crate) mod no_flapping_when_quiet;
pub(crate) mod no_panic;
pub(crate) mod no_release_before_stop;
pub(crate) mod no_stabiliser_delays_unowned;
pub(crate) mod no_stampede;
pub(crate) mod nobody_stays_detached;
pub(crate) mod old_grants_fail_checks;
pub(crate) mod operators_settings_stay;
pub(crate) mod stopped_before_deadline;
pub(crate) mod store_changes_are_real;
pub(crate) mod unknown_fields_survive;
pub(crate) mod unspoken_protocol_is_refused;
pub(crate) mod writes_at_rest_are_renewals;
pub(crate) mod zones_are_kept;

use std::fmt;

use serde::Serialize;

use crate::oracle::{Observation, State};
use crate::world::clock::{Instant, MS};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The name of the promise.
    pub invariant: &'static str,
    /// When, in nanoseconds of true time.
    pub at: Instant,
    /// The shard that it is about, if it is about one.
    pub shard: Option<usize>,
    /// What happened.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.at / MS;
        write!(f, "{} at {}.{:03}s: {}", self.invariant, ms / 1000, ms % 1000, self.message)
    }
}

/// What is wrong, if anything is.
pub(crate) type Judgement = Option<(Option<usize>, String)>;

type Judge = fn(&State, Instant, &Observation) -> Judgement;

/// The promises that are judged at everything that happens.
const ALWAYS: &[(&str, Judge)] = &[
    (at_most_one_running_worker::NAME, at_most_one_running_worker::judge),
    (at_most_one_valid_grant::NAME, at_most_one_valid_grant::judge),
    (epochs_strictly_rise::NAME, epochs_strictly_rise::judge),
    (stopped_before_deadline::NAME, stopped_before_deadline::judge),
    (fenced_sink_rejects_old_epochs::NAME, fenced_sink_rejects_old_epochs::judge),
    (no_release_before_stop::NAME, no_release_before_stop::judge),
    (lost_stays_lost::NAME, lost_stays_lost::judge),
    (old_grants_fail_checks::NAME, old_grants_fail_checks::judge),
];

pub(crate) fn judge(state: &State, at: Instant, observation: &Observation) -> Result<(), Violation> {
    for (invariant, judge) in ALWAYS {
        if let Some((shard, message)) = judge(state, at, observation) {
            return Err(Violation { invariant, at, shard, message });
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use leasehold_core::Epoch;

    use super::Violation;
    use crate::oracle::{Observation, Oracle, RunEnd, Until};
    use crate::world::clock::{Instant, MS};

    /// A little history to try an invariant on: session `n` is that of process `n`, good until 100.
    pub(crate) struct World(Oracle);

    impl World {
        pub(crate) fn with_sessions(count: usize) -> Self {
            let mut world = World(Oracle::default());
            for session in 0..count {
                world.good(0, Observation::Opened { session, process: session, stop_budget: 0 });
                world.good(0, world.until(session, 100));
            }
            world
        }

        pub(crate) fn times(stop_ms: u64, kill_ms: u64, valid_ms: u64) -> Until {
            Until { stop_at: stop_ms * MS, kill_at: kill_ms * MS, valid_until: valid_ms * MS }
        }

        pub(crate) fn until(&self, session: usize, at: Instant) -> Observation {
            Observation::Deadlines { session, until: Until { stop_at: at, kill_at: at, valid_until: at } }
        }

        pub(crate) fn renew(&mut self, session: usize, until: Instant) {
            self.good(0, self.until(session, until));
        }

        pub(crate) fn good(&mut self, at: Instant, observation: Observation) {
            self.0.observe(at, observation).unwrap();
        }

        pub(crate) fn bad(&mut self, at: Instant, observation: Observation, invariant: &str) {
            let Violation { invariant: caught, .. } = self.0.observe(at, observation).unwrap_err();
            assert_eq!(caught, invariant);
        }
    }

    pub(crate) fn begin(session: usize, shard: usize, epoch: u64) -> Observation {
        Observation::Began { session, shard, epoch: Epoch(epoch) }
    }

    pub(crate) fn end(run: usize) -> Observation {
        Observation::Ended { run, how: RunEnd::Stopped }
    }
}
