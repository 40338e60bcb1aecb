//! The first choice of every shard, kept from question to question.
//!
//! This is where the time goes: shards × nodes. So the first choices are kept, and a node that joins is only compared
//! with each shard's first choice so far; if a node leaves, only the shards that had chosen it choose again. Caps,
//! pins and zones are applied afterwards, from scratch: they depend on everything, but cost little.

use std::sync::Arc;

use super::Question;
use super::exceptions::{Exceptions, Finder};
use super::field::{Contender, Field, NOBODY, Tier};
use super::hash::shard_hash;
use crate::name::ShardId;

/// The first choice of every shard of the last question.
#[derive(Debug, Default)]
pub(super) struct Choices {
    pub(super) field: Field,
    /// The hash of each shard.
    pub(super) hashes: Vec<u64>,
    /// The best node for each shard, or [`NOBODY`].
    pub(super) first: Vec<u32>,
    shards: Arc<[ShardId]>,
    /// Shards whose choice leaves a node out.
    biased: Vec<ShardId>,
}

impl Choices {
    /// Brings the choices up to date with a question.
    pub(super) fn update(&mut self, question: &Question) -> Exceptions {
        let field = Field::new(question);
        let exceptions = Exceptions::new(question, &field);
        let change = Change::between(&self.field, &field);
        self.field = field;
        if Arc::ptr_eq(&self.shards, &question.shards) {
            self.revise(&change);
        } else {
            self.replace(&change, question.shards.clone());
        }
        self.leave_out(question, &exceptions);
        exceptions
    }

    /// The shards stayed the same.
    fn revise(&mut self, change: &Change) {
        match change {
            Change::Nothing => {}
            Change::Everything => {
                for (first, &hash) in self.first.iter_mut().zip(&self.hashes) {
                    *first = choose(&self.field, hash);
                }
            }
            Change::Some { moved, fresh } => {
                for (first, &hash) in self.first.iter_mut().zip(&self.hashes) {
                    *first = reconsider(&self.field, moved, fresh, *first, hash);
                }
            }
        }
    }

    /// The shards may have changed as well. Old and new are walked side by side: where both are in the same order,
    /// each shard that stayed is found again.
    fn replace(&mut self, change: &Change, shards: Arc<[ShardId]>) {
        let mut hashes = Vec::with_capacity(shards.len());
        let mut first = Vec::with_capacity(shards.len());
        let mut old = 0;
        for id in shards.iter() {
            while self.shards.get(old).is_some_and(|before| before < id) {
                old += 1;
            }
            let known = self.shards.get(old) == Some(id);
            let hash = if known { self.hashes[old] } else { shard_hash(id) };
            first.push(match change {
                Change::Nothing if known => self.first[old],
                Change::Some { moved, fresh } if known => {
                    reconsider(&self.field, moved, fresh, self.first[old], hash)
                }
                _ => choose(&self.field, hash),
            });
            hashes.push(hash);
            old += usize::from(known);
        }
        (self.shards, self.hashes, self.first) = (shards, hashes, first);
    }

    /// Lets the shards choose again that a node declines, or declined at the last question.
    fn leave_out(&mut self, question: &Question, exceptions: &Exceptions) {
        let finder = Finder::new(&self.shards);
        for id in std::mem::take(&mut self.biased) {
            if let Some(shard) = finder.find(&id) {
                self.first[shard as usize] = choose(&self.field, self.hashes[shard as usize]);
            }
        }
        for (shard, by) in exceptions.all_declined() {
            let shard = *shard as usize;
            let best = self.field.best(self.hashes[shard], |node, _| !by.contains(&node));
            self.first[shard] = best.map_or(NOBODY, |pair| pair.node);
            self.biased.push(question.shards[shard].clone());
        }
    }
}

fn choose(field: &Field, hash: u64) -> u32 {
    field.first(hash).unwrap_or(NOBODY)
}

/// The first choice of a shard, given its former one, where the former nodes are now and which ones became better.
#[inline]
fn reconsider(field: &Field, moved: &[u32], fresh: &[u32], former: u32, hash: u64) -> u32 {
    let mut best = moved.get(former as usize).copied().unwrap_or(NOBODY);
    if best == NOBODY {
        return choose(field, hash);
    }
    for &node in fresh {
        best = field.better(hash, node, best);
    }
    best
}

/// What changed among the nodes between two questions.
enum Change {
    Nothing,
    Some {
        /// For each former node, where it is now; [`NOBODY`] if those that chose it must choose again.
        moved: Vec<u32>,
        /// Nodes that may now be the best for a shard that had chosen another.
        fresh: Vec<u32>,
    },
    /// So much that it is quicker to begin again.
    Everything,
}

impl Change {
    fn between(old: &Field, new: &Field) -> Self {
        let mut by_name: Vec<u32> = (0..new.nodes.len() as u32).collect();
        by_name.sort_by_key(|&node| &new.nodes[node as usize].name);
        let mut moved = vec![NOBODY; old.nodes.len()];
        let mut known = vec![false; new.nodes.len()];
        let mut fresh = Vec::new();
        for (before, former) in old.nodes.iter().enumerate() {
            let Ok(at) = by_name.binary_search_by_key(&&former.name, |&node| &new.nodes[node as usize].name)
            else {
                continue;
            };
            let node = by_name[at];
            let now = &new.nodes[node as usize];
            known[node as usize] = true;
            if !got_worse(former, now) {
                moved[before] = node;
            }
            if got_better(former, now) {
                fresh.push(node);
            }
        }
        let joined = |&node: &u32| !known[node as usize] && new.nodes[node as usize].tier != Tier::Out;
        fresh.extend((0..new.nodes.len() as u32).filter(joined));
        let still = fresh.is_empty() && moved.iter().enumerate().all(|(before, &node)| before as u32 == node);
        if still {
            Change::Nothing
        } else if 4 * fresh.len() > new.eligible().count() {
            Change::Everything
        } else {
            Change::Some { moved, fresh }
        }
    }
}

fn got_worse(former: &Contender, now: &Contender) -> bool {
    now.tier > former.tier || now.weight < former.weight
}

fn got_better(former: &Contender, now: &Contender) -> bool {
    now.tier != Tier::Out && (now.tier < former.tier || now.weight > former.weight)
}
