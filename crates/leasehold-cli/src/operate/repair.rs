//! Mending the record of one shard, safely: only after a time in which nobody can be holding it any more.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{self, Clock};
use leasehold_core::config::{proof_lasts, stretch};
use leasehold_core::name::WriteId;
use leasehold_core::record::{
    EPOCH_MAX, FORMAT, GroupRecord, Meta, MoveReason, Record, ShardRecord, ShardState,
};
use leasehold_core::store::{Key, Lane, Stored, Swap, Swapped};
use leasehold_core::{Epoch, ShardId};
use leasehold_store::{Store, chance};

use crate::failure::{Code, Failure};

/// What nodes assume of a namespace whose `meta` cannot be read either.
const TTL_MAX: Duration = Duration::from_secs(86_400);
const DRIFT_PERMILLE: u32 = 10;

/// Mends the record of a shard if it is damaged, and says what is the matter otherwise.
pub(crate) async fn repair(store: &Arc<dyn Store>, shard: &ShardId) -> Result<String, Failure> {
    let key = Key::Shard(shard.clone());
    let keys = [key.clone(), Key::Meta, Key::Group(shard.group.clone())];
    let found = store.read(&keys).await?.found;
    let Some(stored) = found[0].clone() else {
        return Ok(format!(
            "{shard} has no record; a node that serves the group makes one when it claims the shard"
        ));
    };
    let error = match ShardRecord::decode(&stored.value) {
        Ok(record) => return Ok(healthy(shard, &record)),
        Err(error) => error,
    };
    let meta = found[1].as_ref().and_then(|stored| Meta::decode(&stored.value).ok());
    let group = found[2].as_ref().and_then(|stored| GroupRecord::decode(&stored.value).ok());
    let ttl_max = meta.as_ref().map_or(TTL_MAX, |meta| Duration::from_millis(meta.max_ttl_ms));
    let wait = stretch(proof_lasts(ttl_max, store.facts().reads), DRIFT_PERMILLE);
    eprintln!("the record of {shard} is damaged: {error}");
    eprintln!(
        "somebody may hold the shard: waiting {} until nobody can any more",
        crate::settings::span::show(wait)
    );
    let clock = Clock::boot();
    clock.sleep(wait).await;
    let again = store.read(std::slice::from_ref(&key)).await?.found.pop().flatten();
    if again.as_ref().map(|stored| &stored.version) != Some(&stored.version) {
        return Ok(format!("the record of {shard} was changed meanwhile, so it was left alone; look again"));
    }
    let floors = [
        meta.map_or(Epoch(0), |meta| meta.epoch_floor),
        group.map_or(Epoch(0), |group| group.epoch_floor),
        salvaged_epoch(&stored),
        Epoch(clock::unix_ms() / 1000),
    ];
    let record = ShardRecord {
        format: FORMAT,
        write: WriteId::from_bits(chance::bits()?),
        shard: shard.clone(),
        epoch: floors.into_iter().max().unwrap_or_default().min(EPOCH_MAX),
        state: ShardState::Vacant { successor: None, reserved_ms: None },
        quarantined: false,
        why: MoveReason::Repaired,
        written_unix_ms: clock::unix_ms(),
        extra: Default::default(),
    };
    let swap = Swap { key, expect: Some(stored.version), value: Some(record.encode().into()) };
    match store.swap(Lane::Work, &[swap]).await?.outcomes.pop() {
        Some(Swapped::Applied(_)) => {
            Ok(format!("mended {shard}: it is vacant, and its next epoch is above {}", record.epoch))
        }
        Some(Swapped::Lost(_)) => {
            Ok(format!("the record of {shard} was changed meanwhile, so it was left alone"))
        }
        Some(Swapped::Unknown) | None => Err(Failure::new(
            Code::Store,
            format!("the store does not know whether {shard} was mended: run this again"),
        )),
    }
}

fn healthy(shard: &ShardId, record: &ShardRecord) -> String {
    match &record.state {
        ShardState::Held { holder } => format!(
            "the record of {shard} is sound: {} holds it under epoch {}\nif its work is stuck, end that process, or \
             ask for it: leasehold release {shard}",
            holder.node, record.epoch
        ),
        ShardState::Vacant { .. } => format!(
            "the record of {shard} is sound: nobody holds it\nif it stays so, see: leasehold explain {shard}"
        ),
        ShardState::Retired => format!("the record of {shard} is sound: the shard is retired"),
    }
}

/// The epoch in a record that is otherwise damaged, if one can be made out.
fn salvaged_epoch(stored: &Stored) -> Epoch {
    let value: Option<serde_json::Value> = serde_json::from_slice(&stored.value).ok();
    let epoch = value.and_then(|value| value.get("epoch").and_then(serde_json::Value::as_u64)).map(Epoch);
    epoch.filter(|epoch| *epoch < EPOCH_MAX).unwrap_or_default()
}
