//! At any instant, user code runs for a shard in at most one place. This is not promised for work whose machine was frozen with
//! its clock: nothing can be noticed before the first instruction after that. [`super::freezes_are_noticed`] judges that case.

use super::Judgement;
use crate::oracle::{Observation, State};
use crate::world::clock::Instant;

pub(crate) const NAME: &str = "at_most_one_running_worker";

pub(crate) fn judge(state: &State, _at: Instant, observation: &Observation) -> Judgement {
    match *observation {
        Observation::Began { session, .. } if state.sessions[session].frozen => None,
        Observation::Began { session, shard, epoch } => {
            let other = state
                .shard(shard)
                .open
                .iter()
                .copied()
                .find(|run| state.running(*run) && !state.was_frozen(*run))?;
            let process = state.sessions[session].process;
            let there = &state.runs[other];
            Some((
                Some(shard),
                format!(
                    "shard {shard} begins in process {process} under epoch {epoch}, while it runs in process {} under epoch {}",
                    state.process_of(there),
                    there.epoch
                ),
            ))
        }
        Observation::Resumed { process } => {
            let runs = state.sessions.iter().filter(|session| session.process == process);
            let goes_on = runs.filter(|session| !session.frozen).flat_map(|session| &session.open);
            goes_on.into_iter().find_map(|run| {
                let here = &state.runs[*run];
                let mut others = state.shard(here.shard).open.iter().copied();
                let other = others.find(|other| other != run && state.running(*other) && !state.was_frozen(*other))?;
                let there = &state.runs[other];
                Some((
                    Some(here.shard),
                    format!(
                        "shard {} goes on in process {process} under epoch {}, while it runs in process {} under epoch {}",
                        here.shard,
                        here.epoch,
                        state.process_of(there),
                        there.epoch
                    ),
                ))
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::tests::{World, begin};

    #[test]
    fn two_at_once_are_noticed() {
        let mut world = World::with_sessions(2);
        world.good(1, begin(0, 3, 1));
        world.bad(2, begin(1, 3, 2), NAME);
    }

    #[test]
    fn one_that_stands_still_does_not_run_until_it_goes_on() {
        let mut world = World::with_sessions(2);
        world.good(1, begin(0, 3, 1));
        world.good(2, Observation::Paused { process: 0 });
        world.renew(1, 300);
        world.good(200, begin(1, 3, 2));
        world.bad(300, Observation::Resumed { process: 0 }, NAME);
    }
}
