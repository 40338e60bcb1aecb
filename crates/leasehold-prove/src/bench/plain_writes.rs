//! The comparison: one lease record per shard, each written every ten seconds.

use std::time::Duration;

use leasehold::clock;
use leasehold_chaos::measure::Spans;
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_core::store::{Key, Lane, Swap, Swapped, Version};
use leasehold_core::{GroupName, ShardId};
use leasehold_store::Store;
use std::sync::Arc;
use tokio::task::JoinSet;

use super::cpu;
use crate::cluster::Scratch;

const EVERY: Duration = Duration::from_secs(10);

/// What that cost.
#[derive(Debug, Default)]
pub(super) struct Plain {
    pub(super) seconds: f64,
    pub(super) writes: u64,
    pub(super) failed: u64,
    /// Of the values that were written.
    pub(super) bytes: u64,
    pub(super) cpu: Duration,
    pub(super) latency: Spans,
}

/// Really does it for a while: as many writers as there are nodes, each with a connection and a share of the shards.
pub(super) async fn measure(
    scratch: &Scratch,
    shards: u32,
    writers: usize,
    run_for: Duration,
) -> Result<Plain, Failure> {
    let mut tasks = JoinSet::new();
    let before = cpu::used_by(std::process::id()).unwrap_or_default();
    let began_at = clock::now();
    for writer in 0..writers {
        let store = leasehold::store::open(&scratch.url, &scratch.namespace)?;
        let slots: Vec<u32> = (0..shards).filter(|slot| *slot as usize % writers == writer).collect();
        tasks.spawn(write(store, slots, run_for));
    }
    let mut plain = Plain::default();
    let mut latency = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        let (took, failed, bytes) = ended.map_err(|error| Failure::new(Code::Failed, error.to_string()))?;
        plain.failed += failed;
        plain.bytes += bytes;
        latency.extend(took);
    }
    plain.seconds = clock::now().since(began_at).as_secs_f64();
    plain.writes = latency.len() as u64;
    plain.latency = Spans::of(latency);
    plain.cpu = cpu::used_by(std::process::id()).unwrap_or_default().saturating_sub(before);
    Ok(plain)
}

/// Writes one record after the other, each at its moment, as a loop of renewals does.
async fn write(store: Arc<dyn Store>, slots: Vec<u32>, run_for: Duration) -> (Vec<Duration>, u64, u64) {
    // Each is a group of its own, so that no store packs several of them into one object.
    let group = |slot: u32| GroupName::new(format!("plain-{slot}")).expect("a plain word is a name");
    let mut versions: Vec<Option<Version>> = vec![None; slots.len()];
    let (mut took, mut failed, mut bytes) = (Vec::new(), 0, 0);
    let pause = EVERY / u32::try_from(slots.len().max(1)).unwrap_or(u32::MAX);
    let clock = clock::Clock::boot();
    let (began_at, mut due_at) = (clock.now(), clock.now());
    for (round, place) in (0..slots.len()).cycle().enumerate() {
        if clock.now().since(began_at) >= run_for {
            break;
        }
        clock.sleep_until(due_at).await;
        due_at = due_at + pause;
        let value = format!(
            "{{\"holder\":\"bench\",\"slot\":{},\"round\":{round},\"padding\":\"{:0>120}\"}}",
            slots[place], 0
        );
        bytes += value.len() as u64;
        let swap = Swap {
            key: Key::Shard(ShardId::slot(&group(slots[place]), 0)),
            expect: versions[place].clone(),
            value: Some(value.into_bytes().into()),
        };
        let sent_at = clock.now();
        let reply = store.swap(Lane::Work, &[swap]).await;
        match reply.ok().and_then(|reply| reply.outcomes.into_iter().next()) {
            Some(Swapped::Applied(version)) => {
                versions[place] = Some(version);
                took.push(clock.now().since(sent_at));
            }
            Some(Swapped::Lost(there)) => versions[place] = there.map(|stored| stored.version),
            _ => failed += 1,
        }
    }
    (took, failed, bytes)
}
