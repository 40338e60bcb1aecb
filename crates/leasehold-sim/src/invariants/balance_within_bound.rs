//! Once everything has converged, no node holds more than its fair share times the balance of the policy, rounded up,
//! and everything is where the plan wants it.

use leasehold_core::record::ZoneRule;

use crate::oracle::Census;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "balance_within_bound";

/// Whether what is held is within the bound, by our own arithmetic and not by the core's.
pub(crate) fn judge(world: &World, census: &Census) -> Judged {
    let receives = |process: usize| {
        let node = &world.processes[process];
        Some(&node.name) != world.healing.drained.as_ref()
    };
    let weight = |process: usize| {
        let slot = world.processes[process].slot;
        let own = world.scenario.config(slot, world.processes[process].name.clone(), None).weight;
        u64::from(world.slots[slot].weight.unwrap_or(own))
    };
    let total: u64 = census.alive.iter().filter(|p| receives(**p)).map(|p| weight(*p)).sum();
    // Zones go before balance.
    if total == 0 || world.scenario.policy.zones != ZoneRule::Ignore {
        return Ok(());
    }
    let slots: Vec<_> = census.shards.iter().filter(|owned| owned.shard < world.slots_wanted()).collect();
    for process in census.alive.iter().filter(|process| receives(**process)) {
        let held = slots.iter().filter(|owned| owned.holder == Some(*process)).count() as u64;
        let fair = slots.len() as u64 * weight(*process);
        let balanced = fair * u64::from(world.scenario.policy.balance_permille) / (1000 * total);
        let most = fair.div_ceil(total).max(balanced);
        if held > most {
            let message = format!(
                "process {process} of {} holds {held} of {} shards; its share allows {most}",
                world.processes[*process].name,
                slots.len()
            );
            return Err(world.violation(NAME, None, message));
        }
    }
    Ok(())
}

/// The world had its time to converge and has not.
pub(crate) fn judge_plan_reached(world: &World, census: &Census) -> Judged {
    let message = format!("the plan was not reached in time; {}", world.standings(census));
    Err(world.violation(NAME, None, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Restart;
    use crate::world::process::Leaving;

    #[test]
    fn one_who_holds_all_is_noticed() {
        let world = World::healed(2, 6);
        let mut census = world.census();
        assert_eq!(judge(&world, &census), Ok(()));
        let one = census.shards[0].holder;
        census.shards.iter_mut().for_each(|owned| owned.holder = one);
        assert_eq!(judge(&world, &census).unwrap_err().invariant, NAME);
    }

    #[test]
    fn a_world_that_does_not_converge_in_time_is_noticed() {
        let mut world = World::healed(2, 6);
        world.healing.converged_at = None;
        let process = world.slots[0].process.unwrap();
        // One node never finishes leaving.
        world.processes[process].leaving = Leaving::Then(Restart::Never);
        let bounds = &world.healing.bounds;
        let latest = world.healing.began_at + bounds.owned + bounds.converged;
        world.at = latest;
        assert_eq!(world.judge_healing(), Ok(()));
        world.at = latest + 1;
        assert_eq!(world.judge_healing().unwrap_err().invariant, NAME);
    }
}
