//! What people do to the store: they open the namespace, ask for things, resize the group, and damage records.

use std::sync::Arc;

use leasehold_core::name::{Incarnation, WriteId};
use leasehold_core::record::{
    Control, FORMAT, GroupRecord, Meta, MetaState, PROTOCOL, Record, ShardRecord, ShardSet, ShardState,
};
use leasehold_core::store::Key;
use leasehold_core::{Epoch, NodeName, SessionId, ShardId};

use crate::clock::MS;
use crate::faults::{Damage, Target};
use crate::profile::Peril;
use crate::setting::NAMED;
use crate::world::World;

/// How a record says which format it is in: one that is read here, and one that is not.
const READABLE: &str = "\"format\":1,";
const TOO_NEW: &str = "\"format\":99,";

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
            max_ttl_ms: self.setting.ttl_max / MS,
            epoch_floor: Epoch(self.operator.below(100)),
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
        self.overwrite(Key::Control, Some(control.encode()));
    }

    pub(crate) fn resize(&mut self, shards: u32) {
        let fresh = GroupRecord {
            format: FORMAT,
            write: self.write_id(),
            group: self.setting.group.clone(),
            shards: ShardSet::Numbered(shards),
            policy: self.setting.policy.clone(),
            epoch_floor: Epoch(0),
            filled: 0,
            written_unix_ms: 0,
            extra: Default::default(),
        };
        let key = Key::Group(self.setting.group.clone());
        let record = match self.group_record() {
            Some(there) => GroupRecord { write: fresh.write, shards: fresh.shards, ..there },
            None => fresh,
        };
        self.overwrite(key, Some(record.encode()));
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
        let key = match what {
            Target::Node(slot) => Key::Node(self.slots[slot].name.clone()),
            Target::Shard(shard) => Key::Shard(ShardId::slot(&self.setting.group, shard)),
            Target::Group => Key::Group(self.setting.group.clone()),
            Target::Control => Key::Control,
        };
        let id = self.write_id();
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
        self.stats.felt.note(Peril::Corrupt);
        self.overwrite(key, Some(bytes));
    }

    pub(crate) fn vanish(&mut self, slot: usize) {
        let key = Key::Node(self.slots[slot].name.clone());
        if self.store.get(&key).is_some() {
            self.stats.felt.note(Peril::Vanish);
            self.overwrite(key, None);
        }
    }

    /// When the faults are over, somebody mends what nodes must not touch by themselves.
    pub(crate) fn mend(&mut self) {
        // A record in a newer format is never overwritten by a node: somebody has to put it right.
        let newer = self.store.records().iter().filter_map(|(key, stored)| {
            let text = std::str::from_utf8(&stored.value).ok()?;
            text.contains(TOO_NEW).then(|| (key.clone(), text.replacen(TOO_NEW, READABLE, 1)))
        });
        for (key, text) in newer.collect::<Vec<_>>() {
            self.overwrite(key, Some(text.into_bytes()));
        }
        let group = Key::Group(self.setting.group.clone());
        if let Some(stored) = self.store.get(&group)
            && GroupRecord::decode(&stored.value).is_err()
        {
            self.overwrite(group, None);
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
