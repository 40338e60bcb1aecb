//! Exceptions for single shards: pins by operators and declines by nodes, as indices.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::caps::capacity;
use super::field::Field;
use super::hash::pair_hash;
use super::{Question, hash};
use crate::name::{NodeName, ShardId};

/// The pins and declines of one question that mean something in it.
#[derive(Debug, Default)]
pub(super) struct Exceptions {
    /// Pinned shards and where they go. A pin is void while its node is absent, declines the shard or is full of
    /// other pins that it ranks higher.
    pub(super) pins: BTreeMap<u32, u32>,
    /// The nodes that decline a shard, ordered by shard.
    declined: Vec<(u32, Vec<u32>)>,
}

impl Exceptions {
    pub(super) fn new(question: &Question, field: &Field) -> Self {
        let mut exceptions = Exceptions::default();
        if question.pins.is_empty() && question.declined.is_empty() {
            return exceptions;
        }
        let finder = Finder::new(&question.shards);
        let nodes: BTreeMap<&NodeName, u32> =
            question.nodes.iter().enumerate().map(|(i, node)| (&node.name, i as u32)).collect();
        for (id, names) in &question.declined {
            let by: Vec<u32> = names.iter().filter_map(|name| nodes.get(name).copied()).collect();
            if let Some(shard) = finder.find(id)
                && !by.is_empty()
            {
                exceptions.declined.push((shard, by));
            }
        }
        exceptions.declined.sort_unstable();
        exceptions.pin(question, field, &finder, &nodes);
        exceptions
    }

    fn pin(
        &mut self,
        question: &Question,
        field: &Field,
        finder: &Finder<'_>,
        nodes: &BTreeMap<&NodeName, u32>,
    ) {
        let mut wanted: BTreeMap<u32, Vec<(u64, &ShardId, u32)>> = BTreeMap::new();
        for (id, name) in &question.pins {
            let (Some(&node), Some(shard)) = (nodes.get(name), finder.find(id)) else { continue };
            if self.declined(shard).contains(&node) {
                continue;
            }
            let hash = pair_hash(hash::shard_hash(id), field.nodes[node as usize].hash);
            wanted.entry(node).or_default().push((!hash, id, shard));
        }
        for (node, mut shards) in wanted {
            shards.sort_unstable();
            shards.truncate(capacity(&question.nodes[node as usize]) as usize);
            self.pins.extend(shards.into_iter().map(|(_, _, shard)| (shard, node)));
        }
    }

    /// The nodes that decline this shard.
    pub(super) fn declined(&self, shard: u32) -> &[u32] {
        match self.declined.binary_search_by_key(&shard, |(shard, _)| *shard) {
            Ok(at) => &self.declined[at].1,
            Err(_) => &[],
        }
    }

    /// The declined shards, each with the nodes that decline it.
    pub(super) fn all_declined(&self) -> &[(u32, Vec<u32>)] {
        &self.declined
    }
}

/// Finds shards of a question by their id, without an index where the order of the shards is one already.
pub(super) struct Finder<'a> {
    shards: &'a [ShardId],
    sorted: OnceCell<Vec<u32>>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(shards: &'a [ShardId]) -> Self {
        Finder { shards, sorted: OnceCell::new() }
    }

    pub(super) fn find(&self, id: &ShardId) -> Option<u32> {
        if self.shards.first().is_none_or(|first| first.group != id.group) {
            return None;
        }
        if let Some(slot) = id.name.as_slot()
            && self.shards.get(slot as usize) == Some(id)
        {
            return Some(slot);
        }
        if let Ok(at) = self.shards.binary_search(id) {
            return Some(at as u32);
        }
        let sorted = self.sorted.get_or_init(|| {
            let mut order: Vec<u32> = (0..self.shards.len() as u32).collect();
            order.sort_by_key(|&shard| &self.shards[shard as usize]);
            order
        });
        let at = sorted.binary_search_by_key(&id, |&shard| &self.shards[shard as usize]).ok()?;
        Some(sorted[at])
    }
}
