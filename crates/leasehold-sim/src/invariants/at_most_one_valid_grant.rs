//! At any instant, at most one grant of a shard is valid by its own clock, whether its process runs or is paused.
//! Grants of a machine that was frozen with its clock are left out until they are renewed, as in
//! [`super::at_most_one_running_worker`].

use super::Judgement;
use crate::oracle::{Observation, RunNo, SessionNo, ShardNo, State};
use crate::world::clock::Instant;

pub(crate) const NAME: &str = "at_most_one_valid_grant";

pub(crate) fn judge(state: &State, at: Instant, observation: &Observation) -> Judgement {
    match *observation {
        Observation::Began { session, .. } if state.sessions[session].frozen => None,
        Observation::Began { session, shard, epoch } => {
            let other = rival(state, at, session, shard, None)?;
            let process = state.sessions[session].process;
            Some((
                Some(shard),
                format!(
                    "process {process} begins shard {shard} under epoch {epoch}, while {}",
                    still_good(state, at, other)
                ),
            ))
        }
        Observation::Deadlines { session, until } | Observation::ClockRate { session, until }
            if until.valid_until > at && !state.sessions[session].frozen && !state.sessions[session].lost =>
        {
            state.sessions[session].open.iter().find_map(|run| {
                let here = &state.runs[*run];
                let other = rival(state, at, session, here.shard, Some(*run))?;
                Some((
                    Some(here.shard),
                    format!(
                        "process {} goes on with shard {} under epoch {}, while {}",
                        state.sessions[session].process,
                        here.shard,
                        here.epoch,
                        still_good(state, at, other)
                    ),
                ))
            })
        }
        _ => None,
    }
}

/// Another run of the shard whose grant is valid.
fn rival(state: &State, at: Instant, session: SessionNo, shard: ShardNo, me: Option<RunNo>) -> Option<RunNo> {
    let open = state.shard(shard).open.iter().copied();
    open.filter(|run| Some(*run) != me && (me.is_none() || state.runs[*run].session != session))
        .find(|run| state.valid(*run, at) && !state.was_frozen(*run))
}

fn still_good(state: &State, at: Instant, run: RunNo) -> String {
    let run = &state.runs[run];
    let left = state.sessions[run.session].until.valid_until - at;
    format!(
        "the grant of process {} under epoch {} is valid for {} ms more",
        state.process_of(run),
        run.epoch,
        left / 1_000_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::tests::{World, begin};

    #[test]
    fn a_grant_outlives_a_pause_but_not_its_deadline() {
        let mut world = World::with_sessions(2);
        world.good(1, begin(0, 3, 1));
        world.good(2, Observation::Paused { process: 0 });
        world.bad(99, begin(1, 3, 2), NAME);
        let mut world = World::with_sessions(2);
        world.good(1, begin(0, 3, 1));
        world.good(2, Observation::Paused { process: 0 });
        world.renew(1, 200);
        world.good(100, begin(1, 3, 2));
    }

    #[test]
    fn a_lost_grant_that_is_renewed_is_noticed() {
        let mut world = World::with_sessions(2);
        world.good(1, begin(0, 3, 1));
        world.good(2, Observation::Paused { process: 0 });
        world.renew(1, 900);
        world.good(100, begin(1, 3, 2));
        world.bad(101, world.until(0, 500), NAME);
    }
}
