//! Damage to single records: they become noise, lose their end, name a holder that does not exist, or vanish.

use leasehold_core::name::WriteId;
use leasehold_core::record::{Record, ShardRecord, ShardState};
use leasehold_core::store::Key;
use leasehold_core::{NodeName, SessionId, ShardId};

use crate::faults::{Damage, FaultKind, GroupKind, Target};
use crate::oracle::Run;
use crate::oracle::records::Loss;
use crate::world::World;
use crate::world::clock::MS;
use crate::world::newer_version::{READABLE, TOO_NEW};

/// The record of a held shard, with a holder that does not exist. Its ttl is long enough for the real holder to notice that
/// the record names another, and to stop, before another node may take the shard from the usurper.
fn usurped(value: &[u8], ttl_ms: u64, id: WriteId) -> Option<Vec<u8>> {
    let mut record = ShardRecord::decode(value).ok()?;
    let ShardState::Held { holder } = &mut record.state else { return None };
    holder.node = NodeName::new("nobody").expect("a valid name");
    holder.session = SessionId::from_bits(id.to_bits());
    holder.ttl_ms = ttl_ms;
    record.epoch.0 += 1;
    record.write = id;
    Some(record.encode())
}

impl World {
    pub(crate) fn damage(&mut self, what: Target, how: Damage) {
        let id = self.write_id();
        let Some(key) = self.keys_of(what).pop() else { return };
        if !matches!(what, Target::Node(_)) && self.would_hide_a_holder(what) {
            return;
        }
        let Some(there) = self.store.get(&key) else { return };
        let bytes = match how {
            Damage::Usurped => {
                let Some(usurped) = usurped(&there.value, self.scenario.usurper_ttl / MS, id) else { return };
                usurped
            }
            Damage::Noise => b"\x00\xffnot a record".to_vec(),
            Damage::Cut => there.value[..there.value.len() / 2].to_vec(),
            Damage::TooNew => {
                let text = String::from_utf8_lossy(&there.value).into_owned();
                text.replacen(READABLE, TOO_NEW, 1).into_bytes()
            }
        };
        self.stats.fault_coverage.note(if what == Target::Meta {
            FaultKind::CorruptMeta
        } else {
            FaultKind::Corrupt
        });
        let loss = if how == Damage::Usurped { Loss::Usurped } else { Loss::Lost };
        self.records.tampered(&self.scenario, &key, loss);
        self.overwrite(key, Some(bytes));
    }

    /// Deletes a record, or several at once.
    pub(crate) fn vanish(&mut self, what: Target) {
        let keys = self.keys_of(what);
        if keys.is_empty() || self.would_hide_a_holder(what) {
            return;
        }
        self.stats.fault_coverage.note(match what {
            Target::Node(_) => FaultKind::Vanish,
            Target::Shard(_) | Target::Named(_) => FaultKind::VanishShard,
            Target::Shards => FaultKind::VanishShards,
            Target::Group(_) => FaultKind::Vanish,
            Target::Control => FaultKind::VanishControl,
            Target::Meta => FaultKind::VanishMeta,
        });
        for key in keys {
            if let Key::Node(node) = &key {
                self.hidden.insert(node.clone(), self.at);
            }
            self.records.tampered(&self.scenario, &key, Loss::Lost);
            self.overwrite(key, None);
        }
    }

    /// The record of a shard is not lost while that of its holder's node is missing, nor the other way round: GUARANTEES, what
    /// is not promised.
    fn would_hide_a_holder(&self, what: Target) -> bool {
        match what {
            Target::Shard(_) | Target::Named(_) | Target::Shards => {
                let (at, lasts) = (self.at, 2 * self.scenario.ttl_longest);
                let mut hidden = self.hidden.iter().filter(|(_, since)| at < **since + lasts);
                hidden.any(|(node, _)| self.store.get(&Key::Node(node.clone())).is_none())
            }
            Target::Node(_) => {
                let open = self.oracle.state.shards.iter().flat_map(|shard| &shard.open);
                let unnamed = |run: &Run| {
                    let stored =
                        self.scenario.shard(run.shard).and_then(|id| self.store.get(&Key::Shard(id)));
                    let record = stored.and_then(|stored| ShardRecord::decode(&stored.value).ok());
                    let node = &self.processes[self.oracle.state.process_of(run)].name;
                    record.is_none_or(|record| record.holder().is_none_or(|holder| holder.node != *node))
                };
                open.map(|run| &self.oracle.state.runs[*run]).any(unnamed)
            }
            Target::Group(_) | Target::Control | Target::Meta => false,
        }
    }

    /// The records of a target that are there.
    fn keys_of(&self, what: Target) -> Vec<Key> {
        let key = match what {
            Target::Node(slot) => Some(Key::Node(self.slots[slot].name.clone())),
            Target::Shard(shard) => Some(Key::Shard(ShardId::slot(&self.scenario.group, shard))),
            Target::Named(shard) => self.scenario.named_shard(shard).map(Key::Shard),
            Target::Shards => {
                let shards = self.store.records().keys().filter(|key| matches!(key, Key::Shard(_)));
                return shards.cloned().collect();
            }
            Target::Group(GroupKind::Numbered) => Some(Key::Group(self.scenario.group.clone())),
            Target::Group(GroupKind::Named) => self.scenario.named.clone().map(Key::Group),
            Target::Control => Some(Key::Control),
            Target::Meta => Some(Key::Meta),
        };
        key.into_iter().filter(|key| self.store.get(key).is_some()).collect()
    }
}
