//! A grant that was lost is lost forever: no late confirmation makes it valid again, and nothing begins under it.

use super::Judgement;
use crate::oracle::{Observation, State};
use crate::world::clock::Instant;

pub(crate) const NAME: &str = "lost_stays_lost";

pub(crate) fn judge(state: &State, at: Instant, observation: &Observation) -> Judgement {
    match *observation {
        Observation::Deadlines { session, until } => {
            let known = &state.sessions[session];
            (known.lost && until.valid_until > known.until.valid_until.max(at)).then(|| {
                (None, format!("the grants of process {}, which were lost, are valid again", known.process))
            })
        }
        Observation::Began { session, shard, .. } if state.sessions[session].lost => {
            let process = state.sessions[session].process;
            Some((
                Some(shard),
                format!("shard {shard} begins in process {process} under a grant that is lost"),
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::tests::{World, begin};

    #[test]
    fn a_revived_session_is_noticed() {
        let mut world = World::with_sessions(1);
        world.good(1, Observation::Lost { session: 0 });
        world.bad(2, world.until(0, 500), NAME);
        let mut world = World::with_sessions(1);
        world.good(1, Observation::Lost { session: 0 });
        world.bad(2, begin(0, 3, 1), NAME);
    }
}
