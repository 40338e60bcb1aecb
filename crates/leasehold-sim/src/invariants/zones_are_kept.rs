//! Once everything has settled, shards are in the zones that the policy of their group wants: in the preferred zone, or
//! spread over all zones by weight.

use leasehold_core::record::ZoneRule;

use crate::oracle::Census;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "zones_are_kept";

/// Whether what is held is in the right zones, by our own arithmetic and not by the core's.
pub(crate) fn judge(world: &World, census: &Census) -> Judged {
    let config = |process: usize| {
        let node = &world.processes[process];
        world.scenario.config(node.slot, node.name.clone(), None)
    };
    let zone = |process: usize| config(process).zone.unwrap_or_default();
    let weight = |process: &usize| {
        let node = &world.processes[*process];
        let drained = Some(&node.name) == world.healing.drained.as_ref();
        let weight = world.slots[node.slot].weight.unwrap_or_else(|| config(*process).weight);
        if drained { 0 } else { u64::from(weight) }
    };
    let limited = |process: &usize| {
        let slot = &world.slots[world.processes[*process].slot];
        slot.capacity.flatten().is_some()
    };
    // A zone without room gives what does not fit to the others.
    if census.alive.iter().any(limited) {
        return Ok(());
    }
    let weigh = |wanted: &dyn Fn(&str) -> bool| -> u64 {
        census.alive.iter().filter(|process| wanted(&zone(**process))).map(weight).sum()
    };
    let slots: Vec<_> = census.shards.iter().filter(|owned| owned.shard < world.slots_wanted()).collect();
    let held_in = |name: &str| {
        slots.iter().filter(|owned| owned.holder.is_some_and(|holder| zone(holder) == name)).count() as u64
    };
    let total = weigh(&|_| true);
    for name in ["a", "b"] {
        let here = weigh(&|zone| zone == name);
        let most = match &world.scenario.policy.zones {
            ZoneRule::Prefer(preferred) if preferred != name && weigh(&|zone| zone == preferred) > 0 => 0,
            ZoneRule::Spread if total > 0 => (slots.len() as u64 * here).div_ceil(total),
            _ => continue,
        };
        let held = held_in(name);
        if held > most {
            let message =
                format!("zone {name} holds {held} of {} shards; the policy allows {most}", slots.len());
            return Err(world.violation(NAME, None, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_that_holds_all_is_noticed() {
        let mut world = World::healed(2, 6);
        let mut census = world.census();
        world.scenario.policy.zones = ZoneRule::Spread;
        assert_eq!(judge(&world, &census), Ok(()));
        let second = census.alive.iter().copied().find(|process| world.processes[*process].slot == 1);
        census.shards.iter_mut().for_each(|owned| owned.holder = second);
        assert_eq!(judge(&world, &census).unwrap_err().invariant, NAME);
        world.scenario.policy.zones = ZoneRule::Prefer("a".to_owned());
        assert_eq!(judge(&world, &census).unwrap_err().invariant, NAME);
        world.scenario.policy.zones = ZoneRule::Ignore;
        assert_eq!(judge(&world, &census), Ok(()));
    }
}
