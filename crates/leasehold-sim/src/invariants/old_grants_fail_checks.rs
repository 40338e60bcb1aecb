//! Once a shard has started again, every check of a former grant fails. That includes code that runs before it was told,
//! for example after a pause, and code that runs on after the work has ended.

use super::Judgement;
use crate::oracle::{Observation, State};
use crate::world::clock::Instant;

pub(crate) const NAME: &str = "old_grants_fail_checks";

pub(crate) fn judge(state: &State, _at: Instant, observation: &Observation) -> Judgement {
    let Observation::Passed { run } = *observation else { return None };
    let here = &state.runs[run];
    let newest = state.shard(here.shard).epoch?;
    // Nothing is promised of a machine that was frozen with its clock, before it notices.
    (newest > here.epoch && !state.was_frozen(run)).then(|| {
        (
            Some(here.shard),
            format!(
                "a check of shard {} passes in process {} under epoch {}, although epoch {newest} has begun",
                here.shard,
                state.process_of(here),
                here.epoch
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::tests::{World, begin, end};

    #[test]
    fn a_check_that_passes_beside_a_successor_is_noticed() {
        let mut world = World::with_sessions(2);
        world.good(1, begin(0, 3, 1));
        world.good(2, Observation::Passed { run: 0 });
        world.good(3, end(0));
        world.good(4, Observation::Passed { run: 0 });
        world.good(5, begin(1, 3, 2));
        world.good(6, Observation::Passed { run: 1 });
        world.bad(7, Observation::Passed { run: 0 }, NAME);
    }
}
