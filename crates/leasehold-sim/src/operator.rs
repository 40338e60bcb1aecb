//! What people do to the store: they open the namespace, ask for things, resize the group, and damage records.

use std::sync::Arc;

use leasehold_core::name::{Incarnation, WriteId};
use leasehold_core::record::{
    Control, FORMAT, GroupRecord, Meta, MetaState, PROTOCOL, Record, ShardRecord, ShardSet, ShardState, Slots,
};
use leasehold_core::store::{Key, Listing, Stored, Swap};
use leasehold_core::{Epoch, NodeName, SessionId, ShardId};

use crate::clock::{MS, SECOND};
use crate::driver::mentions;
use crate::faults::{Damage, Fault, Kind, Raise, Target};
use crate::oracle::Run;
use crate::process::Version;
use crate::profile::FaultKind;
use crate::records::Loss;
use crate::setting::NAMED;
use crate::world::{Due, World};

/// How a record says which format it is in: one that is read here, and one that is not.
const READABLE: &str = "\"format\":1,";
const TOO_NEW: &str = "\"format\":99,";

/// How `meta` says which protocols whoever joins must speak: one that is spoken here, and one that is not.
const SPOKEN: &str = "\"protocol\":[1,2]";
const UNSPOKEN: &str = "\"protocol\":[2,2]";

/// Whether a `meta` record keeps this version out.
pub(crate) fn refuses(meta: &[u8]) -> bool {
    mentions(meta, UNSPOKEN.as_bytes()) || mentions(meta, TOO_NEW.as_bytes())
}

/// The record of a held shard, with a holder that nobody is. Its ttl is long enough for the real holder to notice that
/// the record names another, and to stop, before anybody may take the shard from the usurper.
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
    fn write_id(&mut self) -> WriteId {
        WriteId::from_bits(u128::from(self.operator.draw()) << 64 | u128::from(self.operator.draw()))
    }

    /// An operator has read a record and writes it: often at once, else some time later, over what was read.
    fn swap_some_time(&mut self, key: Key, value: Vec<u8>) {
        let late = self.setting.operators_race && !self.healing.began && self.hurry.permille(500);
        if !late {
            return self.overwrite(key, Some(value));
        }
        let expect = self.store.get(&key).map(|there| there.version.clone());
        let swap = Swap { key, expect, value: Some(Arc::from(value)) };
        let after = self.hurry.between(MS, 3 * SECOND);
        self.put(after, Due::Operator { swap: Box::new(swap) });
    }

    /// What an operator wrote arrives. If somebody else was faster or the store does not take it, the operator is told so.
    pub(crate) fn operator_writes(&mut self, swap: &Swap) {
        let there = self.store.get(&swap.key).map(|there| &there.version);
        let lands = there == swap.expect.as_ref() && !self.weather.down() && !self.weather.full();
        if self.healing.began || !lands {
            return self.tell("OPERATOR", || format!("could not write {}", swap.key));
        }
        self.overwrite(swap.key.clone(), swap.value.as_deref().map(<[u8]>::to_vec));
    }

    fn overwrite(&mut self, key: Key, value: Option<Vec<u8>>) {
        self.records.changed(self.at, &self.setting, &key, value.as_deref());
        self.store.put(self.at, key, value.map(Arc::from));
        self.watchers_hear();
    }

    /// The namespace has been in use before: nobody has to wait.
    pub(crate) fn open_namespace(&mut self) {
        let meta = Meta {
            format: FORMAT,
            write: self.write_id(),
            incarnation: Incarnation::from_bits(u128::from(self.operator.draw())),
            state: MetaState::Open,
            seq: 1,
            max_ttl_ms: if self.setting.untold { self.setting.ttl } else { self.setting.ttl_max } / MS,
            epoch_floor: Epoch(1 + self.operator.below(99)),
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

    /// Pins a shard to whom the last of the operators who want that named, or to nobody any more.
    pub(crate) fn pin(&mut self, shard: u32) {
        let pins = self.on.iter().rev().filter(
            |fault| matches!(self.faults[**fault].fault, Fault::Pin { shard: pinned, .. } if pinned == shard),
        );
        let name = pins.filter_map(|fault| self.asked_for.get(fault)).next().cloned();
        let id = ShardId::slot(&self.setting.group, shard);
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
        self.on.iter().any(|fault| drains(fault) && self.asked_for.get(fault) == Some(name))
    }

    /// Whether an operator still wants nothing to move.
    pub(crate) fn is_frozen(&self) -> bool {
        self.on.iter().any(|fault| matches!(self.faults[*fault].fault, Fault::Freeze { .. }))
    }

    /// Makes `meta` ask for what it should, by the faults that are on.
    pub(crate) fn raise(&mut self) {
        let wants = |raise: Raise| {
            let wanted = |fault: &usize| matches!(self.faults[*fault].fault, Fault::Protocol { raise: it, .. } if it == raise);
            self.on.iter().any(wanted)
        };
        let (protocol, format) = (wants(Raise::Protocol), wants(Raise::Format));
        let Some(there) = self.store.get(&Key::Meta) else { return };
        let Some(text) = std::str::from_utf8(&there.value).ok() else { return };
        let Ok(mut meta) = Meta::decode(text.replacen(TOO_NEW, READABLE, 1).as_bytes()) else { return };
        meta.protocol = if protocol { (2, 2) } else { (1, 2) };
        let encoded = String::from_utf8(meta.encode()).expect("records are text");
        let asks = if format { encoded.replacen(READABLE, TOO_NEW, 1) } else { encoded };
        self.raised |= protocol || format;
        if self.raised && asks != text {
            self.overwrite(Key::Meta, Some(asks.into_bytes()));
        }
    }

    /// What a process reads of a record: a newer version understands what keeps this one out.
    pub(crate) fn as_read(&self, process: usize, key: &Key, stored: Option<&mut Stored>) {
        let understands = self.raised && self.processes[process].version == Version::Newer;
        if let (true, Key::Meta, Some(stored)) = (understands, key, stored)
            && let Ok(text) = std::str::from_utf8(&stored.value)
        {
            let text = text.replacen(TOO_NEW, READABLE, 1).replacen(UNSPOKEN, SPOKEN, 1);
            stored.value = Arc::from(text.into_bytes());
        }
    }

    /// The same for everything that a process is shown at once.
    pub(crate) fn as_listed(&self, process: usize, listing: &mut Listing) {
        if self.raised {
            for (key, stored) in &mut listing.entries {
                self.as_read(process, key, Some(stored));
            }
        }
    }

    /// What a newer version writes over a `meta` that keeps this one out keeps it out as well.
    pub(crate) fn as_asked_for(&self, swap: &mut Swap) {
        let (Key::Meta, true, Some(value)) = (&swap.key, self.raised, &swap.value) else { return };
        let there = self.store.get(&Key::Meta).filter(|there| Some(&there.version) == swap.expect.as_ref());
        let (Some(there), Ok(text)) = (there, std::str::from_utf8(value)) else { return };
        let mut text = text.to_owned();
        if mentions(&there.value, UNSPOKEN.as_bytes()) {
            text = text.replacen(SPOKEN, UNSPOKEN, 1);
        }
        if mentions(&there.value, TOO_NEW.as_bytes()) {
            text = text.replacen(READABLE, TOO_NEW, 1);
        }
        swap.value = Some(Arc::from(text.into_bytes()));
    }

    /// An operator sets the number of slots. What is there and cannot be read is not written over, as in `leasehold group set`.
    pub(crate) fn resize(&mut self, shards: u32) {
        let key = Key::Group(self.setting.group.clone());
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
            group: self.setting.group.clone(),
            shards: ShardSet::Numbered(shards),
            policy: self.setting.policy.clone(),
            epoch_floor: Epoch(0),
            filled: Default::default(),
            written_unix_ms: 0,
            extra: Default::default(),
        }
    }

    fn group_record(&self) -> Option<GroupRecord> {
        let stored = self.store.get(&Key::Group(self.setting.group.clone()))?;
        GroupRecord::decode(&stored.value).ok()
    }

    /// How many slots there should be.
    pub(crate) fn slots_wanted(&self) -> usize {
        self.records.slots().unwrap_or(self.setting.shards) as usize
    }

    /// The numbers of the shards that should be held, once everybody has engaged everything.
    pub(crate) fn shards_wanted(&self) -> impl Iterator<Item = usize> + use<> {
        let first = self.setting.first_named();
        let named = if self.setting.named.is_some() { NAMED } else { 0 };
        (0..self.slots_wanted()).chain(first..first + named)
    }

    pub(crate) fn damage(&mut self, what: Target, how: Damage) {
        let id = self.write_id();
        let Some(key) = self.keys_of(what).pop() else { return };
        if !matches!(what, Target::Node(_)) && self.would_hide_a_holder(what) {
            return;
        }
        let Some(there) = self.store.get(&key) else { return };
        let bytes = match how {
            Damage::Usurped => {
                let Some(usurped) = usurped(&there.value, self.setting.usurper_ttl / MS, id) else { return };
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
        self.records.tampered(&self.setting, &key, loss);
        self.overwrite(key, Some(bytes));
    }

    /// Somebody deletes a record, or several in one go.
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
            self.records.tampered(&self.setting, &key, Loss::Lost);
            self.overwrite(key, None);
        }
    }

    /// The record of a shard is not lost while that of its holder's node is missing, nor the other way round: GUARANTEES, what
    /// is not promised.
    fn would_hide_a_holder(&self, what: Target) -> bool {
        match what {
            Target::Shard(_) | Target::Named(_) | Target::Shards => {
                let (at, lasts) = (self.at, 2 * self.setting.ttl_longest);
                let mut hidden = self.hidden.iter().filter(|(_, since)| at < **since + lasts);
                hidden.any(|(node, _)| self.store.get(&Key::Node(node.clone())).is_none())
            }
            Target::Node(_) => {
                let open = self.oracle.state.shards.iter().flat_map(|shard| &shard.open);
                let unnamed = |run: &Run| {
                    let stored = self.setting.shard(run.shard).and_then(|id| self.store.get(&Key::Shard(id)));
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
            Target::Shard(shard) => Some(Key::Shard(ShardId::slot(&self.setting.group, shard))),
            Target::Named(shard) => self.setting.named_shard(shard).map(Key::Shard),
            Target::Shards => {
                let shards = self.store.records().keys().filter(|key| matches!(key, Key::Shard(_)));
                return shards.cloned().collect();
            }
            Target::Group(Kind::Numbered) => Some(Key::Group(self.setting.group.clone())),
            Target::Group(Kind::Named) => self.setting.named.clone().map(Key::Group),
            Target::Control => Some(Key::Control),
            Target::Meta => Some(Key::Meta),
        };
        key.into_iter().filter(|key| self.store.get(key).is_some()).collect()
    }

    /// When the faults are over, somebody mends what nodes must not touch by themselves.
    pub(crate) fn mend(&mut self) {
        // A record in a newer format is never overwritten by a node: somebody has to put it right.
        let newer = self.store.records().iter().filter_map(|(key, stored)| {
            let text = std::str::from_utf8(&stored.value).ok()?;
            text.contains(TOO_NEW).then(|| (key.clone(), text.replacen(TOO_NEW, READABLE, 1)))
        });
        for (key, text) in newer.collect::<Vec<_>>() {
            if matches!(key, Key::Group(_)) {
                // Nobody could take what was free before this could be read.
                self.healing.resized_at = self.at;
            }
            self.overwrite(key, Some(text.into_bytes()));
        }
        // A store that was rolled back may ask for what nobody wants any more.
        self.raise();
        let group = Key::Group(self.setting.group.clone());
        if let Some(stored) = self.store.get(&group)
            && GroupRecord::decode(&stored.value).is_err()
        {
            // Nobody knows what it remembered, so that it is taken to have remembered everything.
            let slots = self.slots_wanted() as u32;
            let mended = GroupRecord { filled: Slots::below(slots), ..self.fresh_group(slots) };
            self.overwrite(group, Some(mended.encode()));
        }
        let keep_drain = self.healing.drained.clone();
        let shards = self.slots_wanted() as u32;
        let named = (0..NAMED).filter_map(|number| self.setting.named_shard(number));
        let ids: Vec<_> =
            (0..shards).map(|slot| ShardId::slot(&self.setting.group, slot)).chain(named).collect();
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
