//! The store is down for longer than every ttl, and nothing else is wrong. If all nodes are back within the recovery window, none
//! of them ever holds more than it held before, and every shard starts at most once.

use std::collections::BTreeMap;

use leasehold_core::notice::SessionState;

use crate::faults::FaultKind;
use crate::oracle::Census;
use crate::store::impairment::Impairment;
use crate::world::clock::{Instant, SECOND};
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "no_stampede";

/// The number of a fault that no schedule has.
const OUTAGE: usize = usize::MAX;
/// One seed in so many ends with an outage.
const ONE_IN: u64 = 8;

/// The outage at the end of a run.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    over_at: Instant,
    ended: bool,
    judged_at: Instant,
    runs_before: usize,
    alive_before: Vec<usize>,
    held_before: BTreeMap<usize, usize>,
    held_most: BTreeMap<usize, usize>,
    /// When each process had a session again, and how long it recovers.
    back: BTreeMap<usize, (Instant, Instant)>,
}

impl World {
    /// Whether this run ends with an outage, which begins now.
    pub(crate) fn begins_outage(&mut self, census: &Census) -> Result<bool, crate::Violation> {
        let attached =
            census.alive.iter().all(|node| self.processes[*node].session_state == SessionState::Attached);
        // Where no faults are wanted, this is none either.
        let wanted = self.scenario.seed.is_multiple_of(ONE_IN) && !self.faults.is_empty();
        if !wanted || !attached || census.alive.len() < 2 {
            return Ok(false);
        }
        let over_at = self.at + self.scenario.ttl_longest * 3 / 2;
        let recovery = self.healing.bounds.converged;
        self.healing.calm_from = self.healing.calm_from.max(over_at + self.healing.bounds.calm_after);
        self.healing.trial = Some(Trial {
            over_at,
            ended: false,
            judged_at: over_at + recovery,
            runs_before: self.oracle.state.runs.len(),
            alive_before: census.alive.clone(),
            held_before: held(census),
            held_most: BTreeMap::new(),
            back: BTreeMap::new(),
        });
        self.tell("FAULT", || "the store is down for longer than any ttl".to_owned());
        self.impairments.begin(OUTAGE, Impairment::Down(FaultKind::StoreRestart));
        self.break_watches(None, "the store went away")?;
        Ok(true)
    }

    /// Looks at the outage; the run is done when it was judged.
    pub(crate) fn watch_outage(&mut self, mut trial: Trial) -> Judged {
        if self.at >= trial.over_at && !trial.ended {
            trial.ended = true;
            self.impairments.end(OUTAGE);
            for process in 0..self.processes.len() {
                self.watch_after_cut(process)?;
            }
        }
        let census = self.census();
        for (process, held) in held(&census) {
            let most = trial.held_most.entry(process).or_default();
            *most = held.max(*most);
        }
        for process in census.alive.iter().filter(|_| trial.ended) {
            let node = &self.processes[*process];
            let window = node.core.config().recover_window.as_nanos() as u64;
            let opened_at = match node.session_state {
                SessionState::Recovering => node.state_since,
                SessionState::Attached => node.state_since.saturating_sub(window),
                _ => continue,
            };
            if opened_at >= trial.over_at.saturating_sub(SECOND) {
                trial.back.entry(*process).or_insert((opened_at, window));
            }
        }
        if self.at >= trial.judged_at {
            self.healing.done = true;
            return judge(self, &census, &trial);
        }
        self.healing.trial = Some(trial);
        Ok(())
    }
}

fn held(census: &Census) -> BTreeMap<usize, usize> {
    let mut held = BTreeMap::new();
    for holder in census.shards.iter().filter_map(|shard| shard.holder) {
        *held.entry(holder).or_default() += 1;
    }
    held
}

fn judge(world: &World, census: &Census, trial: &Trial) -> Judged {
    let first = trial.back.values().map(|(at, _)| *at).min().unwrap_or(0);
    let window = trial.back.values().map(|(_, window)| *window).min().unwrap_or(0);
    let together = census
        .alive
        .iter()
        .all(|process| trial.back.get(process).is_some_and(|(at, _)| *at <= first + window));
    // A process that its dead-man timer killed comes back as another one, which held nothing before.
    if !together || census.alive != trial.alive_before {
        return Ok(());
    }
    for (process, most) in &trial.held_most {
        let before = trial.held_before.get(process).copied().unwrap_or(0);
        if *most > before {
            let name = &world.processes[*process].name;
            let message = format!("{name} held {most} shards after an outage, and {before} before it");
            return Err(world.violation(NAME, None, message));
        }
    }
    let mut starts: BTreeMap<usize, usize> = BTreeMap::new();
    for run in &world.oracle.state.runs[trial.runs_before..] {
        let count = starts.entry(run.shard).or_default();
        *count += 1;
        if *count > 1 {
            let message = format!("shard {} started {count} times after one outage", run.shard);
            return Err(world.violation(NAME, Some(run.shard), message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_takes_more_than_it_had_is_noticed() {
        let world = World::healed(2, 6);
        let census = world.census();
        let back = census.alive.iter().map(|process| (*process, (world.at, SECOND))).collect();
        let mut trial = Trial {
            over_at: world.at,
            ended: true,
            judged_at: world.at,
            runs_before: world.oracle.state.runs.len(),
            alive_before: census.alive.clone(),
            held_before: held(&census),
            held_most: held(&census),
            back,
        };
        assert_eq!(judge(&world, &census, &trial), Ok(()));
        let one = census.alive[0];
        trial.held_most.insert(one, 99);
        assert_eq!(judge(&world, &census, &trial).unwrap_err().invariant, NAME);
        trial.back.insert(one, (world.at + 2 * SECOND, SECOND));
        assert_eq!(judge(&world, &census, &trial), Ok(()), "it came too late for the others to wait");
    }
}
