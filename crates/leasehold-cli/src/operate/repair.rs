//! Repairs single records safely: a shard's record only after every earlier holder must have stopped, and the control
//! record only if it cannot be read.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{self, Clock};
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::plural::count;
use leasehold_cli_common::sanitize::sanitize;
use leasehold_cli_common::stores::not_found;
use leasehold_core::config::{DRIFT_PERMILLE_END, stretch};
use leasehold_core::name::WriteId;
use leasehold_core::record::{
    Control, EPOCH_MAX, FORMAT, GroupRecord, Meta, MoveReason, NodeRecord, Record, RecordError, ShardRecord,
    ShardSet, ShardState, WorkState,
};
use leasehold_core::store::{Key, Lane, Stored, Swap, Swapped, Version};
use leasehold_core::view::unusable;
use leasehold_core::{Epoch, ShardId};
use leasehold_store::{Store, rng};

use crate::args::Output;

/// The largest drift that any node can have in its settings: each node's own is not known here.
const DRIFT_PERMILLE: u32 = DRIFT_PERMILLE_END - 1;
/// How much of a damaged record is shown.
const SHOWN_MAX: usize = 2000;

/// Repairs the record of a shard if it is damaged; otherwise says what state it is in.
pub(crate) async fn repair(
    store: &Arc<dyn Store>,
    shard: &ShardId,
    output: Output,
) -> Result<String, Failure> {
    let key = Key::Shard(shard.clone());
    let keys = [key.clone(), Key::Meta, Key::Group(shard.group.clone())];
    let found = store.read(&keys).await?.found;
    let group = found[2].as_ref().map(|stored| GroupRecord::decode(&stored.value));
    let Some(stored) = found[0].clone() else { return absent(shard, group.as_ref()) };
    let error = match ShardRecord::decode(&stored.value) {
        Ok(record) if group.is_none() && record.holder().is_none() => {
            return Err(not_found(format!(
                "unknown group {}; its leftover record of {shard} is valid, and no node holds the shard",
                shard.group
            )));
        }
        Ok(record) => return healthy(store, shard, &record).await,
        Err(error) => error,
    };
    refuse_newer(&key, &error)?;
    let meta = found[1].as_ref().map(|stored| Meta::decode(&stored.value));
    let meta = meta.transpose().map_err(|error| without_meta(shard, &unusable(&Key::Meta, &error)))?;
    let meta = meta.ok_or_else(|| {
        without_meta(
            shard,
            "the record is missing; a running node writes it within about one ttl: start a node if none runs",
        )
    })?;
    let group = group.and_then(Result::ok);
    let ttl_max = Duration::from_millis(meta.max_ttl_ms);
    let wait = stretch(ttl_max, DRIFT_PERMILLE);
    output.remark(&format!("the record of {shard} is damaged: {}", sanitize(&error.to_string())));
    output.remark(&format!(
        "a node may still hold the shard: waiting {} until no session can be alive",
        leasehold_cli_common::settings::span::show(wait)
    ));
    let clock = Clock::boot();
    clock.sleep(wait).await;
    let again = store.read(std::slice::from_ref(&key)).await?.found.pop().flatten();
    if again.as_ref().map(|stored| &stored.version) != Some(&stored.version) {
        return Ok(format!("the record of {shard} changed meanwhile and was not repaired; run this again"));
    }
    let floors = [
        meta.epoch_floor,
        group.map_or(Epoch(0), |group| group.epoch_floor),
        salvaged_epoch(&stored),
        Epoch(clock::unix_ms() / 1000),
    ];
    let record = ShardRecord {
        format: FORMAT,
        write: WriteId::from_bits(rng::bits()?),
        shard: shard.clone(),
        epoch: floors.into_iter().max().unwrap_or_default().min(EPOCH_MAX),
        state: ShardState::Vacant { successor: None, reserved_ms: None },
        work: WorkState::Runs,
        why: MoveReason::Repaired,
        written_unix_ms: clock::unix_ms(),
        extra: Default::default(),
    };
    let mended = format!("repaired {shard}: it is unowned, and its next epoch is above {}", record.epoch);
    write_over(store, key, stored.version, record.encode(), mended).await
}

/// A shard without a record is there if its group is.
fn absent(shard: &ShardId, group: Option<&Result<GroupRecord, RecordError>>) -> Result<String, Failure> {
    let group = match group {
        None => {
            return Err(not_found(format!("unknown group {}, and no record of {shard}", shard.group)));
        }
        Some(group) => group.as_ref().ok().map(|group| group.shards),
    };
    let makes_one = "a node that serves the group creates one when it claims the shard";
    match (group, shard.name.as_slot()) {
        (Some(ShardSet::Numbered(slots)), slot) if slot.is_none_or(|slot| slot >= slots) => {
            let shards = count(slots as usize, "shard");
            Err(not_found(format!("unknown shard {shard}\n  the group {} has {shards}", shard.group)))
        }
        (Some(ShardSet::Named), _) => {
            Err(not_found(format!("unknown shard {shard}: it has no record; {makes_one}")))
        }
        _ => Ok(format!("{shard} has no record; {makes_one}")),
    }
}

/// Replaces a damaged `control` record by an empty one; otherwise says what state it is in.
pub(crate) async fn repair_control(store: &Arc<dyn Store>, output: Output) -> Result<String, Failure> {
    let key = Key::Control;
    let Some(stored) = store.read(std::slice::from_ref(&key)).await?.found.pop().flatten() else {
        return Ok("there is no control record: no operator request is active".to_owned());
    };
    let error = match Control::decode(&stored.value) {
        Ok(_) => {
            return Ok("the control record is valid and was not changed; see: leasehold status".to_owned());
        }
        Err(error) => error,
    };
    refuse_newer(&key, &error)?;
    output.remark(&format!("the control record is damaged: {}", sanitize(&error.to_string())));
    output.remark(&format!("its content was: {}", shown(&stored.value)));
    let mut record = Control::empty(WriteId::from_bits(rng::bits()?));
    record.written_unix_ms = clock::unix_ms();
    let mended = "repaired the control record: it is empty\nall drains, weights, pins, freezes, and releases and \
                  unquarantines that were not carried out yet are lost: repeat those that you still need";
    write_over(store, key, stored.version, record.encode(), mended.to_owned()).await
}

/// What a newer version wrote is not damaged.
fn refuse_newer(key: &Key, error: &RecordError) -> Result<(), Failure> {
    match error.is_newer() {
        true => Err(Failure::new(
            Code::Store,
            format!("the record {key} was not changed because a newer version wrote it: {error}"),
        )),
        false => Ok(()),
    }
}

/// `meta` says how long an earlier holder may still run a shard.
fn without_meta(shard: &ShardId, why: &str) -> Failure {
    let what = format!(
        "the record of {shard} is damaged and was not repaired: the record meta is unreadable too, so it is unknown how \
         long a node may still hold the shard"
    );
    Failure::new(Code::Store, format!("{what}\n  {why}\n  then run this again"))
}

/// Overwrites a damaged record, unless it has changed meanwhile.
async fn write_over(
    store: &Arc<dyn Store>,
    key: Key,
    damaged: Version,
    value: Vec<u8>,
    mended: String,
) -> Result<String, Failure> {
    let swap = Swap { key: key.clone(), expect: Some(damaged), value: Some(value.into()) };
    match store.swap(Lane::Work, &[swap]).await?.outcomes.pop() {
        Some(Swapped::Applied(_)) => Ok(mended),
        Some(Swapped::Lost(_)) => {
            Ok(format!("the record {key} changed meanwhile and was not repaired; run this again"))
        }
        Some(Swapped::Unknown) | None => Err(Failure::new(
            Code::Store,
            format!("the store did not confirm the repair of the record {key}: run this again"),
        )),
    }
}

/// A damaged record for people: anything may be in it, also what a terminal would obey.
fn shown(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let more = if text.chars().count() > SHOWN_MAX { " …" } else { "" };
    let start: String = text.chars().take(SHOWN_MAX).collect();
    format!("{}{more}", sanitize(&start))
}

/// Says how it is with a shard whose record is sound. Its holder says in its own record whether the work was asked to stop
/// and does not: asking once more would change nothing then.
async fn healthy(store: &Arc<dyn Store>, shard: &ShardId, record: &ShardRecord) -> Result<String, Failure> {
    Ok(match &record.state {
        ShardState::Held { holder } => {
            let found = store.read(&[Key::Node(holder.node.clone())]).await?.found.pop().flatten();
            let node = found.and_then(|stored| NodeRecord::decode(&stored.value).ok());
            let stuck =
                node.is_some_and(|node| node.session == holder.session && node.report.stuck.contains(shard));
            let advice = match stuck {
                true => "its work was told to stop and has not stopped: find out why, or kill its process"
                    .to_owned(),
                false => format!("to restart it: leasehold release {shard}"),
            };
            format!(
                "the record of {shard} is valid: {} holds it, epoch {}\n{advice}",
                holder.node, record.epoch
            )
        }
        ShardState::Vacant { .. } => format!(
            "the record of {shard} is valid: no node holds it\nif it stays unowned, see: leasehold explain {shard}"
        ),
        ShardState::Retired => format!("the record of {shard} is valid: the shard is retired"),
    })
}

/// The epoch in a record that is otherwise damaged, if one can be made out.
fn salvaged_epoch(stored: &Stored) -> Epoch {
    let value: Option<serde_json::Value> = serde_json::from_slice(&stored.value).ok();
    let epoch = value.and_then(|value| value.get("epoch").and_then(serde_json::Value::as_u64)).map(Epoch);
    epoch.filter(|epoch| *epoch < EPOCH_MAX).unwrap_or_default()
}
