//! A session gives a shard up, or says that it is over, only after everything that it ran there has ended.

use super::Judgement;
use crate::oracle::{Observation, State};
use crate::world::clock::Instant;

pub(crate) const NAME: &str = "no_release_before_stop";

pub(crate) fn judge(state: &State, _at: Instant, observation: &Observation) -> Judgement {
    match *observation {
        Observation::ReleaseSent { session, shard } => {
            let open = &state.sessions[session].open;
            let run = open.iter().find(|run| state.runs[**run].shard == shard)?;
            let epoch = state.runs[*run].epoch;
            Some((
                Some(shard),
                format!(
                    "process {} releases shard {shard}, which still runs there under epoch {epoch}",
                    state.sessions[session].process
                ),
            ))
        }
        Observation::LeftSent { session } => {
            let run = &state.runs[*state.sessions[session].open.first()?];
            Some((
                Some(run.shard),
                format!(
                    "process {} says that its session is over, while shard {} still runs there",
                    state.sessions[session].process, run.shard
                ),
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::tests::{World, begin, end};

    #[test]
    fn a_release_of_what_runs_is_noticed() {
        let mut world = World::with_sessions(1);
        world.good(1, begin(0, 3, 1));
        world.good(2, Observation::ReleaseSent { session: 0, shard: 4 });
        world.bad(3, Observation::ReleaseSent { session: 0, shard: 3 }, NAME);
    }

    #[test]
    fn leaving_with_something_running_is_noticed() {
        let mut world = World::with_sessions(1);
        world.good(1, begin(0, 3, 1));
        world.bad(2, Observation::LeftSent { session: 0 }, NAME);
        let mut world = World::with_sessions(1);
        world.good(1, begin(0, 3, 1));
        world.good(2, end(0));
        world.good(3, Observation::LeftSent { session: 0 });
    }
}
