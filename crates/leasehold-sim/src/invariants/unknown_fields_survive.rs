//! Fields that a newer version wrote into a shard's or a group's record, or into `meta`, are still there after an older
//! one has rewritten it.

use leasehold_core::record::{GroupRecord, Meta, Record, ShardRecord};
use leasehold_core::store::{Key, Stored, Swap};

use crate::world::{Judged, World, mentions};

pub(crate) const NAME: &str = "unknown_fields_survive";

/// The field that the simulated newer version writes.
pub(crate) const FIELD: &str = "\"sim_later\"";

/// `before` was there when the swap was applied.
pub(crate) fn judge(world: &World, before: Option<&Stored>, swap: &Swap) -> Judged {
    let (Some(before), Some(after)) = (before, &swap.value) else { return Ok(()) };
    if !mentions(&before.value, FIELD.as_bytes()) || mentions(after, FIELD.as_bytes()) {
        return Ok(());
    }
    let readable = match &swap.key {
        Key::Shard(_) => ShardRecord::decode(&before.value).is_ok(),
        Key::Group(_) => GroupRecord::decode(&before.value).is_ok(),
        // Another incarnation is another record.
        Key::Meta => match (Meta::decode(&before.value), Meta::decode(after)) {
            (Ok(before), Ok(after)) => before.incarnation == after.incarnation,
            _ => false,
        },
        Key::Control | Key::Node(_) => false,
    };
    if !readable {
        return Ok(());
    }
    let message = format!("{} lost the fields that a newer version had written", swap.key);
    Err(world.violation(NAME, None, message))
}
