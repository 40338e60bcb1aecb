//! When everything is where it should be and nothing happens, nothing moves.

use crate::heal::Census;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "no_flapping_when_quiet";

pub(crate) fn judge(world: &World, census: &Census) -> Judged {
    let begun = world.oracle.state.runs.len() - world.healing.runs_at_settled;
    let idle = census.shards.iter().find(|owned| !owned.running).map(|owned| owned.shard);
    if begun == 0 && idle.is_none() {
        return Ok(());
    }
    let message = format!(
        "{begun} starts while all was quiet; shard not running: {idle:?}; {}",
        world.standings(census)
    );
    Err(world.violation(NAME, idle, message))
}
