//! Every start of a shard carries an epoch above all earlier ones, whatever happened to the store. Left out, as in
//! [`super::at_most_one_running_worker`], is a start that a machine had decided on before it was frozen with its clock.

use super::Judgement;
use crate::oracle::{Observation, State};
use crate::world::clock::Instant;

pub(crate) const NAME: &str = "epochs_strictly_rise";

pub(crate) fn judge(state: &State, _at: Instant, observation: &Observation) -> Judgement {
    let Observation::Began { session, shard, epoch } = *observation else { return None };
    if state.sessions[session].frozen {
        return None;
    }
    let highest = state.shard(shard).epoch.filter(|highest| *highest >= epoch)?;
    let process = state.sessions[session].process;
    Some((
        Some(shard),
        format!(
            "shard {shard} begins in process {process} under epoch {epoch}, after epoch {highest} was used"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::tests::{World, begin, end};
    use crate::oracle::Until;

    #[test]
    fn the_same_epoch_twice_is_noticed() {
        let mut world = World::with_sessions(2);
        world.good(1, begin(0, 3, 7));
        world.good(2, end(0));
        world.bad(3, begin(1, 3, 7), NAME);
    }

    #[test]
    fn a_start_after_a_freeze_is_left_out_and_lowers_nothing() {
        let mut world = World::with_sessions(2);
        world.good(1, begin(0, 3, 7));
        world.good(2, end(0));
        world.good(
            3,
            Observation::Froze { session: 1, until: Until { stop_at: 90, kill_at: 95, valid_until: 99 } },
        );
        world.good(4, begin(1, 3, 6));
        world.good(5, end(1));
        world.bad(6, begin(0, 3, 7), NAME);
    }

    #[test]
    fn other_shards_do_not_count() {
        let mut world = World::with_sessions(1);
        world.good(1, begin(0, 3, 7));
        world.good(1, begin(0, 4, 1));
    }
}
