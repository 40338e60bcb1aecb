//! What this node is and offers: how much it can run, of which groups, and where it is. It starts as configured, and
//! commands change it.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::{Config, GroupConfig};
use crate::name::GroupName;

/// What this node is and offers.
#[derive(Debug)]
pub(super) struct Offer {
    weight: u32,
    capacity: Option<u32>,
    accepting: bool,
    address: Option<String>,
    labels: BTreeMap<String, String>,
    served: BTreeMap<GroupName, GroupConfig>,
    /// Of these, the groups whose settings are only ever written by others.
    stored: BTreeSet<GroupName>,
}

impl Offer {
    pub(super) fn of(config: &Config) -> Self {
        Offer {
            weight: config.weight,
            capacity: config.capacity,
            accepting: true,
            address: config.address.clone(),
            labels: config.labels.clone(),
            served: config.groups.iter().map(|group| (group.group.clone(), group.clone())).collect(),
            stored: BTreeSet::new(),
        }
    }

    pub(super) fn weight(&self) -> u32 {
        self.weight
    }

    pub(super) fn set_weight(&mut self, weight: u32) {
        self.weight = weight;
    }

    pub(super) fn capacity(&self) -> Option<u32> {
        self.capacity
    }

    pub(super) fn set_capacity(&mut self, capacity: Option<u32>) {
        self.capacity = capacity;
    }

    /// Whether user code is healthy enough to hold shards, as far as it says.
    pub(super) fn is_accepting(&self) -> bool {
        self.accepting
    }

    pub(super) fn set_accepting(&mut self, accepting: bool) {
        self.accepting = accepting;
    }

    pub(super) fn address(&self) -> Option<&String> {
        self.address.as_ref()
    }

    pub(super) fn set_address(&mut self, address: Option<String>) {
        self.address = address;
    }

    pub(super) fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    pub(super) fn set_labels(&mut self, labels: BTreeMap<String, String>) {
        self.labels = labels;
    }

    /// The groups that this node was set up for.
    pub(super) fn served(&self) -> &BTreeMap<GroupName, GroupConfig> {
        &self.served
    }

    /// Whether only others write the settings of a group.
    pub(super) fn is_stored(&self, group: &GroupName) -> bool {
        self.stored.contains(group)
    }

    pub(super) fn serve_stored(&mut self, group: GroupConfig) {
        self.stored.insert(group.group.clone());
        self.served.insert(group.group.clone(), group);
    }

    pub(super) fn unserve(&mut self, group: &GroupName) {
        self.served.remove(group);
        self.stored.remove(group);
    }

    pub(super) fn serve(&mut self, group: GroupConfig) {
        self.stored.remove(&group.group);
        self.served.insert(group.group.clone(), group);
    }

    /// Whether one more shard fits beside what is held in all and in its group.
    pub(super) fn has_room(&self, group: &GroupName, held: usize, held_in_group: impl Fn() -> usize) -> bool {
        let group_capacity = self.served.get(group).and_then(|group| group.capacity);
        self.capacity.is_none_or(|capacity| held < capacity as usize)
            && group_capacity.is_none_or(|capacity| held_in_group() < capacity as usize)
    }
}
