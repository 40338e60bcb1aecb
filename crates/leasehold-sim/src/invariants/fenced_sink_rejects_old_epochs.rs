//! A sink that refuses epochs below the highest that it has seen never takes a write of an earlier run after one of a
//! later run, however late that write arrives.

use super::Judgement;
use crate::oracle::{Fence, Observation, State};
use crate::world::clock::Instant;

pub(crate) const NAME: &str = "fenced_sink_rejects_old_epochs";

pub(crate) fn judge(state: &State, _at: Instant, observation: &Observation) -> Judgement {
    let Observation::Wrote { run, verdict: Fence::Accepted } = *observation else { return None };
    let writer = &state.runs[run];
    let later = state.shard(writer.shard).wrote.filter(|later| *later > run)?;
    let later = &state.runs[later];
    Some((
        Some(writer.shard),
        format!(
            "the sink took a write for shard {} of process {} under epoch {}, after process {} wrote under epoch {}",
            writer.shard,
            state.process_of(writer),
            writer.epoch,
            state.process_of(later),
            later.epoch
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::tests::{World, begin, end};

    #[test]
    fn a_late_write_of_an_earlier_run_is_noticed_if_it_is_taken() {
        let wrote = |run, verdict| Observation::Wrote { run, verdict };
        let mut world = World::with_sessions(2);
        world.good(1, begin(0, 3, 1));
        world.good(2, end(0));
        world.good(3, begin(1, 3, 2));
        world.good(4, wrote(0, Fence::Accepted));
        world.good(5, wrote(1, Fence::Accepted));
        world.good(6, wrote(0, Fence::Rejected));
        world.bad(7, wrote(0, Fence::Accepted), NAME);
    }
}
