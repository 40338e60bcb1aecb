//! Operators' commands. They go into the `control` record, and nodes act on them by themselves; nothing here writes a
//! node's own record.

use leasehold_core::name::WriteId;
use leasehold_core::record::{
    Control, DrainRequest, FORMAT, GroupRecord, Meta, Record, RecordError, ShardRecord, ShardSet, WorkState,
};
use leasehold_core::store::Key;
use leasehold_core::{Epoch, GroupConfig, GroupName, NodeName, ShardId};

use super::record_editor::{Change, RecordEditor};
use super::{Client, list};
use crate::error::Error;
use crate::group::Group;
use crate::node::group_name;

impl Client {
    /// Makes a node hand over all shards and take no new ones, until [`undrain`](Client::undrain).
    pub async fn drain(&self, node: &NodeName, note: &str) -> Result<(), Error> {
        let wish = || DrainRequest { note: note.to_owned(), ..DrainRequest::default() };
        self.control(&format!("draining {node}"), |control| {
            control.drain.entry(node.clone()).or_insert_with(wish);
        })
        .await
    }

    /// Lets a node take shards again.
    pub async fn undrain(&self, node: &NodeName) -> Result<(), Error> {
        self.control(&format!("undraining {node}"), |control| {
            control.drain.remove(node);
        })
        .await
    }

    /// Overrides a node's weight; `None` restores the node's own.
    pub async fn set_weight(&self, node: &NodeName, weight: Option<u32>) -> Result<(), Error> {
        self.control(&format!("setting the weight of {node}"), |control| {
            match weight {
                Some(weight) => control.weights.insert(node.clone(), weight),
                None => control.weights.remove(node),
            };
        })
        .await
    }

    /// Pins a shard to a node, for as long as that node is there. Shard and node need not be there yet, but a slot that a
    /// numbered group does not have is refused.
    pub async fn pin(&self, shard: &ShardId, node: &NodeName) -> Result<(), Error> {
        let what = format!("pinning {shard}");
        let group = self.editor().get::<GroupRecord>(&what, &Key::Group(shard.group.clone())).await?;
        if let Some(ShardSet::Numbered(slots)) = group.map(|group| group.shards)
            && shard.name.as_slot().is_none_or(|slot| slot >= slots)
        {
            return Err(Error::UnknownShard(shard.to_string()));
        }
        self.control(&what, |control| {
            control.pins.insert(shard.clone(), node.clone());
        })
        .await
    }

    /// Lets a shard go where the plan puts it.
    pub async fn unpin(&self, shard: &ShardId) -> Result<(), Error> {
        self.control(&format!("unpinning {shard}"), |control| {
            control.pins.remove(shard);
        })
        .await
    }

    /// Forbids voluntary moves until [`unfreeze`](Client::unfreeze). Unowned shards are still taken.
    pub async fn freeze(&self, note: &str) -> Result<(), Error> {
        self.control("freezing", |control| control.freeze = Some(note.to_owned())).await
    }

    /// Allows voluntary moves again.
    pub async fn unfreeze(&self) -> Result<(), Error> {
        self.control("unfreezing", |control| control.freeze = None).await
    }

    /// Forbids voluntary moves of one group until [`unfreeze_group`](Client::unfreeze_group). Nodes of a version that does
    /// not know this go on moving.
    pub async fn freeze_group(&self, group: &GroupName, note: &str) -> Result<(), Error> {
        self.control(&format!("freezing {group}"), |control| {
            control.freeze_groups.insert(group.clone(), note.to_owned());
        })
        .await
    }

    /// Allows voluntary moves of one group again.
    pub async fn unfreeze_group(&self, group: &GroupName) -> Result<(), Error> {
        self.control(&format!("unfreezing {group}"), |control| {
            control.freeze_groups.remove(group);
        })
        .await
    }

    /// Makes the holder of a shard give it up once. The shard starts again, here or elsewhere, with a higher epoch.
    pub async fn release(&self, shard: &ShardId) -> Result<(), Error> {
        let what = format!("releasing {shard}");
        let epoch = self.epoch(&what, shard).await?;
        self.control(&what, |control| {
            control.release.insert(shard.clone(), epoch);
        })
        .await
    }

    /// Lets all quarantined shards of a group run again, with one write, and says which they are. The store is listed
    /// first. Shards whose work is done stay so: name them one by one ([`unquarantine`](Client::unquarantine)).
    pub async fn unquarantine_group(&self, group: &str) -> Result<Vec<ShardId>, Error> {
        let group = group_name(group)?;
        let known = self.view().groups.iter().any(|seen| seen.group == group);
        if !known {
            return Err(Error::UnknownGroup(group.to_string()));
        }
        self.unquarantine_where(|shard| shard.group == group).await
    }

    /// The same for all groups.
    pub async fn unquarantine_all(&self) -> Result<Vec<ShardId>, Error> {
        self.unquarantine_where(|_| true).await
    }

    async fn unquarantine_where(&self, which: impl Fn(&ShardId) -> bool) -> Result<Vec<ShardId>, Error> {
        let what = "unquarantining";
        let listing = list(&*self.store, &self.clock).await.map_err(|error| Error::unread(what, error))?;
        let mut shards = Vec::new();
        for (key, stored) in &listing.entries {
            let Key::Shard(shard) = key else { continue };
            match ShardRecord::decode(&stored.value) {
                Ok(record) if record.work == WorkState::Quarantined && which(shard) => {
                    shards.push((shard.clone(), record.epoch));
                }
                _ => {}
            }
        }
        shards.sort_unstable_by(|(a, _), (b, _)| a.natural_cmp(b));
        if !shards.is_empty() {
            self.control(what, |control| control.unquarantine.extend(shards.iter().cloned())).await?;
        }
        Ok(shards.into_iter().map(|(shard, _)| shard).collect())
    }

    /// Lets a shard run again that is quarantined, or done ([`FinishPolicy::Done`](crate::FinishPolicy::Done)).
    pub async fn unquarantine(&self, shard: &ShardId) -> Result<(), Error> {
        let what = format!("unquarantining {shard}");
        let epoch = self.epoch(&what, shard).await?;
        self.control(&what, |control| {
            control.unquarantine.insert(shard.clone(), epoch);
        })
        .await
    }

    /// Changes anything in the `control` record. `change` may be called several times, each time on the current
    /// record.
    pub async fn control(&self, what: &str, mut change: impl FnMut(&mut Control)) -> Result<(), Error> {
        let unix_ms = self.clock.unix_ms();
        self.editor()
            .rewrite::<Control>(what, &Key::Control, |found| {
                let before = found.unwrap_or_else(|| Control::empty(WriteId::from_bits(0)));
                let mut after = before.clone();
                change(&mut after);
                if after == before {
                    return Ok(Change::Keep);
                }
                after.written_unix_ms = unix_ms;
                Ok(Change::Write(after))
            })
            .await
    }

    /// Sets the shards and the rules of a group for all nodes. Each node keeps its own capacity for the group.
    pub async fn set_group(&self, group: Group) -> Result<(), Error> {
        let wanted = group.into_config()?;
        self.edit_group(&wanted.group.clone(), move |record| {
            record.shards = wanted.shards;
            record.policy = wanted.policy.clone();
        })
        .await
    }

    /// Changes the settings of a group, or creates it with the defaults. Fields that only nodes may write are kept.
    pub async fn edit_group(
        &self,
        group: &GroupName,
        mut change: impl FnMut(&mut GroupRecord),
    ) -> Result<(), Error> {
        let unix_ms = self.clock.unix_ms();
        let what = format!("changing the group {group}");
        self.editor()
            .rewrite::<GroupRecord>(&what, &Key::Group(group.clone()), |found| {
                let is_new = found.is_none();
                let before = found.unwrap_or_else(|| empty_group(group));
                let mut after = before.clone();
                change(&mut after);
                (after.group, after.epoch_floor, after.filled) =
                    (before.group.clone(), before.epoch_floor, before.filled.clone());
                if after == before && !is_new {
                    return Ok(Change::Keep);
                }
                after.validate().map_err(|problem| {
                    let problem = match problem {
                        RecordError::Impossible(what) => what,
                        other => other.to_string(),
                    };
                    Error::setting(format!("group {group}"), problem, "choose a value within that bound")
                })?;
                // What no node would accept as its own setting is not stored for all of them either.
                let (shards, policy) = (after.shards, after.policy.clone());
                GroupConfig { group: group.clone(), shards, policy, capacity: None }.check()?;
                after.written_unix_ms = unix_ms;
                Ok(Change::Write(after))
            })
            .await
    }

    /// Removes the settings of a group. Nodes that still serve it write their own static settings in their place.
    ///
    /// The epochs of its shards keep rising: the floor of the whole namespace is first raised above them.
    pub async fn delete_group(&self, group: &str) -> Result<(), Error> {
        let group = group_name(group)?;
        let what = format!("deleting the group {group}");
        let key = Key::Group(group.clone());
        let record = self.editor().get::<GroupRecord>(&what, &key).await?;
        let record = record.ok_or_else(|| Error::UnknownGroup(group.to_string()))?;
        let floor = self.highest_epoch(&what, &group).await?.max(record.epoch_floor);
        self.editor()
            .rewrite::<Meta>(&what, &Key::Meta, |found| match found {
                Some(meta) if meta.epoch_floor < floor => {
                    Ok(Change::Write(Meta { epoch_floor: floor, ..meta }))
                }
                _ => Ok(Change::Keep),
            })
            .await?;
        self.editor().rewrite::<GroupRecord>(&what, &key, |_| Ok(Change::Remove)).await
    }

    async fn highest_epoch(&self, what: &str, group: &GroupName) -> Result<Epoch, Error> {
        let listing = list(&*self.store, &self.clock).await.map_err(|error| Error::unread(what, error))?;
        let epochs = listing.entries.iter().filter_map(|(key, stored)| match key {
            Key::Shard(shard) if shard.group == *group => {
                Some(ShardRecord::decode(&stored.value).ok()?.epoch)
            }
            _ => None,
        });
        Ok(epochs.max().unwrap_or_default())
    }

    async fn epoch(&self, what: &str, shard: &ShardId) -> Result<Epoch, Error> {
        let record = self.editor().get::<ShardRecord>(what, &Key::Shard(shard.clone())).await?;
        record.map(|record| record.epoch).ok_or_else(|| Error::UnknownShard(shard.to_string()))
    }

    fn editor(&self) -> RecordEditor<'_> {
        RecordEditor { store: &*self.store, clock: &self.clock }
    }
}

fn empty_group(group: &GroupName) -> GroupRecord {
    GroupRecord {
        format: FORMAT,
        write: WriteId::from_bits(0),
        group: group.clone(),
        shards: ShardSet::Named,
        policy: Default::default(),
        epoch_floor: Epoch::default(),
        filled: Default::default(),
        written_unix_ms: 0,
        extra: Default::default(),
    }
}
