//! What operators do to the store: they open the namespace, write commands, resize the group, and repair records.

use std::sync::Arc;

use leasehold_core::name::{Incarnation, WriteId};
use leasehold_core::record::{
    Control, FORMAT, GroupRecord, Meta, MetaState, PROTOCOL, Record, ShardSet, Slots,
};
use leasehold_core::store::{Key, Swap};
use leasehold_core::{Epoch, NodeName, ShardId};

use crate::faults::Fault;
use crate::world::clock::{MS, SECOND};
use crate::world::newer_version::{READABLE, TOO_NEW};
use crate::world::scenario::NAMED;
use crate::world::{World, WorldEvent};

impl World {
    pub(crate) fn write_id(&mut self) -> WriteId {
        WriteId::from_bits(u128::from(self.operator_rng.draw()) << 64 | u128::from(self.operator_rng.draw()))
    }

    /// An operator has read a record and writes it: often at once, else some time later, over what was read.
    fn swap_some_time(&mut self, key: Key, value: Vec<u8>) {
        let late =
            self.scenario.operators_race && !self.healing.began && self.operator_delay_rng.permille(500);
        if !late {
            return self.overwrite(key, Some(value));
        }
        let expect = self.store.get(&key).map(|there| there.version.clone());
        let swap = Swap { key, expect, value: Some(Arc::from(value)) };
        let after = self.operator_delay_rng.between(MS, 3 * SECOND);
        self.put(after, WorldEvent::OperatorWrite { swap: Box::new(swap) });
    }

    /// What an operator wrote arrives. If another write was faster or the store refuses it, the operator gets an error.
    pub(crate) fn operator_writes(&mut self, swap: &Swap) {
        let there = self.store.get(&swap.key).map(|there| &there.version);
        let lands = there == swap.expect.as_ref() && !self.impairments.down() && !self.impairments.full();
        if self.healing.began || !lands {
            return self.tell("OPERATOR", || format!("could not write {}", swap.key));
        }
        self.overwrite(swap.key.clone(), swap.value.as_deref().map(<[u8]>::to_vec));
    }

    pub(crate) fn overwrite(&mut self, key: Key, value: Option<Vec<u8>>) {
        self.records.changed(self.at, &self.scenario, &key, value.as_deref());
        self.store.put(self.at, key, value.map(Arc::from));
        self.watchers_hear();
    }

    /// The namespace has been in use before: no node has to wait.
    pub(crate) fn open_namespace(&mut self) {
        let meta = Meta {
            format: FORMAT,
            write: self.write_id(),
            incarnation: Incarnation::from_bits(u128::from(self.operator_rng.draw())),
            state: MetaState::Open,
            seq: 1,
            max_ttl_ms: if self.scenario.untold { self.scenario.ttl } else { self.scenario.ttl_max } / MS,
            epoch_floor: Epoch(1 + self.operator_rng.below(99)),
            generation: self.store.generation().to_owned(),
            protocol: PROTOCOL,
            written_unix_ms: 0,
            extra: Default::default(),
        };
        self.overwrite(Key::Meta, Some(meta.encode()));
    }

    /// Changes what operators ask for.
    pub(crate) fn control(&mut self, change: impl FnOnce(&mut Control)) {
        let write = self.write_id();
        let there = self.store.get(&Key::Control).and_then(|stored| Control::decode(&stored.value).ok());
        let mut control = there.unwrap_or_else(|| Control::empty(write));
        control.write = write;
        change(&mut control);
        self.swap_some_time(Key::Control, control.encode());
    }

    /// Pins a shard to the node of the newest active pin, or unpins it.
    pub(crate) fn pin(&mut self, shard: u32) {
        let pins = self.active_faults.iter().rev().filter(
            |fault| matches!(self.faults[**fault].fault, Fault::Pin { shard: pinned, .. } if pinned == shard),
        );
        let name = pins.filter_map(|fault| self.asked_for.get(fault)).next().cloned();
        let id = ShardId::slot(&self.scenario.group, shard);
        self.control(|control| {
            match name {
                Some(name) => control.pins.insert(id, name),
                None => control.pins.remove(&id),
            };
        });
    }

    /// Whether an operator still wants that node drained.
    pub(crate) fn is_drained(&self, name: &NodeName) -> bool {
        let drains = |fault: &usize| matches!(self.faults[*fault].fault, Fault::Drain { .. });
        self.active_faults.iter().any(|fault| drains(fault) && self.asked_for.get(fault) == Some(name))
    }

    /// Whether an operator still wants nothing to move.
    pub(crate) fn is_frozen(&self) -> bool {
        self.active_faults.iter().any(|fault| matches!(self.faults[*fault].fault, Fault::Freeze { .. }))
    }

    /// An operator sets the number of slots. What is there and cannot be read is not written over, as in `leasehold group set`.
    pub(crate) fn resize(&mut self, shards: u32) {
        let key = Key::Group(self.scenario.group.clone());
        let record = match (self.store.get(&key).is_some(), self.group_record()) {
            (_, Some(there)) => {
                GroupRecord { write: self.write_id(), shards: ShardSet::Numbered(shards), ..there }
            }
            (true, None) => return,
            (false, None) => self.fresh_group(shards),
        };
        self.swap_some_time(key, record.encode());
    }

    fn fresh_group(&mut self, shards: u32) -> GroupRecord {
        GroupRecord {
            format: FORMAT,
            write: self.write_id(),
            group: self.scenario.group.clone(),
            shards: ShardSet::Numbered(shards),
            policy: self.scenario.policy.clone(),
            epoch_floor: Epoch(0),
            filled: Default::default(),
            written_unix_ms: 0,
            extra: Default::default(),
        }
    }

    fn group_record(&self) -> Option<GroupRecord> {
        let stored = self.store.get(&Key::Group(self.scenario.group.clone()))?;
        GroupRecord::decode(&stored.value).ok()
    }

    /// How many slots there should be.
    pub(crate) fn slots_wanted(&self) -> usize {
        self.records.slots().unwrap_or(self.scenario.shards) as usize
    }

    /// The numbers of the shards that should be held, once every node has engaged everything.
    pub(crate) fn shards_wanted(&self) -> impl Iterator<Item = usize> + use<> {
        let first = self.scenario.first_named();
        let named = if self.scenario.named.is_some() { NAMED } else { 0 };
        (0..self.slots_wanted()).chain(first..first + named)
    }

    /// When the faults are over, operators repair what nodes must not touch by themselves.
    pub(crate) fn mend(&mut self) {
        // A record in a newer format is never overwritten by a node: an operator has to repair it.
        let newer = self.store.records().iter().filter_map(|(key, stored)| {
            let text = std::str::from_utf8(&stored.value).ok()?;
            text.contains(TOO_NEW).then(|| (key.clone(), text.replacen(TOO_NEW, READABLE, 1)))
        });
        for (key, text) in newer.collect::<Vec<_>>() {
            if matches!(key, Key::Group(_)) {
                // Free shards could not be taken before this could be read.
                self.healing.resized_at = self.at;
            }
            self.overwrite(key, Some(text.into_bytes()));
        }
        // A store that was rolled back may ask for what is no longer wanted.
        self.raise();
        let group = Key::Group(self.scenario.group.clone());
        if let Some(stored) = self.store.get(&group)
            && GroupRecord::decode(&stored.value).is_err()
        {
            // What it remembered is lost, so it is taken to have remembered everything.
            let slots = self.slots_wanted() as u32;
            let mended = GroupRecord { filled: Slots::below(slots), ..self.fresh_group(slots) };
            self.overwrite(group, Some(mended.encode()));
        }
        let keep_drain = self.healing.drained.clone();
        let shards = self.slots_wanted() as u32;
        let named = (0..NAMED).filter_map(|number| self.scenario.named_shard(number));
        let ids: Vec<_> =
            (0..shards).map(|slot| ShardId::slot(&self.scenario.group, slot)).chain(named).collect();
        self.control(|control| {
            control.freeze = None;
            control.pins.clear();
            control.release.clear();
            control.drain.clear();
            control.drain.extend(keep_drain.map(|name| (name, Default::default())));
            control.unquarantine =
                ids.into_iter().map(|id| (id, leasehold_core::record::EPOCH_MAX)).collect();
        });
    }
}
