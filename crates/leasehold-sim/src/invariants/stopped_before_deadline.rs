//! User code is told to stop, then cut off, before its grant ends. Nothing of it runs after that.

use super::Judgement;
use crate::oracle::{Observation, Run, RunEnd, State};
use crate::world::clock::{Instant, MS};

pub(crate) const NAME: &str = "stopped_before_deadline";

/// How long after `stop_at` the word may take to get from the core's timer to user code.
const TOLD_WITHIN: Instant = 60 * MS;

pub(crate) fn judge(state: &State, at: Instant, observation: &Observation) -> Judgement {
    match *observation {
        Observation::Began { session, shard, .. } => {
            let known = &state.sessions[session];
            (at >= known.until.stop_at).then(|| {
                let late = (at - known.until.stop_at) / MS;
                let process = known.process;
                (
                    Some(shard),
                    format!("shard {shard} begins in process {process} {late} ms after it had to stop"),
                )
            })
        }
        Observation::Ended { run, how } => {
            let ended = &state.runs[run];
            ran_past(state, at, ended, how).or_else(|| untold(state, at, ended, how))
        }
        Observation::Moment => {
            let open = state.shards.iter().flat_map(|shard| &shard.open);
            open.into_iter().filter(|run| state.running(**run)).find_map(|run| {
                let run = &state.runs[*run];
                ran_past(state, at, run, RunEnd::Stopped)
            })
        }
        _ => None,
    }
}

fn ran_past(state: &State, at: Instant, run: &Run, how: RunEnd) -> Judgement {
    let until = state.sessions[run.session].until.valid_until;
    if at <= until || matches!(how, RunEnd::KilledOnWaking | RunEnd::Died) {
        return None;
    }
    let process = state.process_of(run);
    // Work of a paused process does not run.
    if state.processes[process].paused {
        return None;
    }
    Some((
        Some(run.shard),
        format!(
            "shard {} ran in process {process} for {} ms after its grant ended",
            run.shard,
            (at - until) / MS
        ),
    ))
}

/// Work that had to be killed at the deadline must have had its time to stop.
fn untold(state: &State, at: Instant, run: &Run, how: RunEnd) -> Judgement {
    let session = &state.sessions[run.session];
    let process = &state.processes[session.process];
    let killed_at_deadline = how == RunEnd::Killed && at >= session.until.kill_at;
    // What was late while the process was starved is still late when it no longer is.
    let (before, over_at) = process.starved_before;
    let late_since_then = if run.told_at.unwrap_or(at) <= over_at + before { before } else { 0 };
    let starved_by = process.starved_by.max(late_since_then);
    let had = run.told_at.map_or(0, |told| at - told) + TOLD_WITHIN + starved_by;
    // Work cannot be told while its process is paused, or before it began.
    let stood_still = process.resumed_at + session.stop_budget >= at;
    let young = run.began_at + session.stop_budget + TOLD_WITHIN >= at;
    if !killed_at_deadline || had >= session.stop_budget || stood_still || young {
        return None;
    }
    Some((
        Some(run.shard),
        format!(
            "shard {} was killed in process {} at its deadline, {}; it should have had {} ms to stop",
            run.shard,
            session.process,
            match run.told_at {
                Some(told) => format!("told only {} ms before", (at - told) / MS),
                None => "without being told".to_owned(),
            },
            session.stop_budget / MS
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::tests::{World, begin, end};
    use crate::oracle::Until;

    #[test]
    fn work_past_its_grant_is_noticed() {
        let mut world = World::with_sessions(1);
        world.good(1, begin(0, 3, 7));
        world.bad(101, Observation::Moment, NAME);
        let mut world = World::with_sessions(1);
        world.good(1, begin(0, 3, 7));
        world.bad(101, end(0), NAME);
    }

    #[test]
    fn a_lost_grant_ends_by_the_clock_as_it_runs_now() {
        let mut world = World::with_sessions(1);
        world.good(1, begin(0, 3, 7));
        world.good(2, Observation::Lost { session: 0 });
        let until = Until { stop_at: 110, kill_at: 115, valid_until: 120 };
        world.good(3, Observation::ClockRate { session: 0, until });
        world.good(120, Observation::Moment);
        world.bad(121, Observation::Moment, NAME);
    }

    #[test]
    fn a_start_after_the_deadline_is_noticed() {
        let mut world = World::with_sessions(1);
        world.bad(100, begin(0, 3, 7), NAME);
    }

    #[test]
    fn a_kill_without_time_to_stop_is_noticed() {
        let killed = Observation::Ended { run: 0, how: RunEnd::Killed };
        let told_at = |told_ms: Option<u64>| {
            let mut world = World::with_sessions(1);
            world.good(0, Observation::Opened { session: 1, process: 1, stop_budget: 800 * MS });
            world.good(0, Observation::Deadlines { session: 1, until: World::times(1_000, 2_000, 3_000) });
            world.good(MS, begin(1, 3, 7));
            if let Some(ms) = told_ms {
                world.good(ms * MS, Observation::Told { run: 0 });
            }
            world
        };
        let mut starved = told_at(Some(1_900));
        starved.good(1_500 * MS, Observation::Starved { process: 1, by: 500 * MS });
        starved.good(1_700 * MS, Observation::Starved { process: 1, by: 0 });
        starved.good(2_500 * MS, killed);
        told_at(None).bad(2_500 * MS, killed, NAME);
        told_at(Some(2_400)).bad(2_500 * MS, killed, NAME);
        told_at(Some(1_000)).good(2_500 * MS, killed);
    }
}
