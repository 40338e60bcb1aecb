//! How the store is read: everything as of one instant, or part by part, as each real store does it.
//!
//! Where a store reads part by part, writes of others land between the parts. What is simulated is an answer whose parts
//! were read while its request was under way: each at its own instant, none before it was sent, and the part that must be
//! the last one when the request arrives.

use std::collections::BTreeSet;

use leasehold_core::store::{Answer, Key, LISTS_A_SWEEP, Listing, Op, Stored};

use crate::faults::FaultKind;
use crate::rng::mix;
use crate::sabotage::ReadOrder;
use crate::store::shape::Reading;
use crate::world::World;
use crate::world::clock::Instant;
use crate::world::network::UNDER_WAY_MAX;

/// A span of time in which the parts of one answer are read.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: Instant,
    upto: Instant,
    /// Tells one answer from the next.
    salt: u64,
}

impl Span {
    /// When the part with this number is read.
    fn of(self, part: u64) -> Instant {
        self.from + mix(self.salt ^ part) % (self.upto - self.from + 1)
    }
}

impl World {
    /// How much longer than one way it takes until the last part of what is asked for is read.
    pub(crate) fn reads_longer(&mut self, op: &Op) -> Instant {
        let several = match op {
            Op::Read(keys) => keys.len() > 1,
            Op::List | Op::ListNodes => true,
            Op::Swap(_) => false,
        };
        if !several || self.scenario.shape.reading != Reading::AllApart {
            return 0;
        }
        let (more, times) = (self.scenario.shape.latency(&mut self.reading_rng), self.impairments.slow());
        (2 * more * times).min(UNDER_WAY_MAX)
    }

    pub(crate) fn serve_read(&mut self, process: usize, keys: &[Key]) -> Answer {
        self.stats.reads += 1;
        if keys.len() > 1 && self.scenario.shape.reading != Reading::OneInstant {
            return self.read_apart(process, keys);
        }
        let read = |key| {
            let mut stored = self.store.get(key).cloned();
            self.as_read(process, key, stored.as_mut());
            stored
        };
        let found = keys.iter().map(read).collect();
        Answer::Read { found, generation: self.store.generation().to_owned() }
    }

    /// Reads one key after the other, in any order but for the last one.
    fn read_apart(&mut self, process: usize, keys: &[Key]) -> Answer {
        let span = self.span(self.served_from);
        let last = if self.misreads(ReadOrder::MetaReadLast) { 0 } else { keys.len() - 1 };
        let read = |(number, key)| {
            let at = if number == last { span.upto } else { span.of(number as u64) };
            let mut stored = self.store.get_at(key, at).cloned();
            self.as_read(process, key, stored.as_mut());
            stored
        };
        let found: Vec<_> = keys.iter().enumerate().map(read).collect();
        let generation = self.store.generation_at(span.from).to_owned();
        Answer::Read { found, generation }
    }

    pub(crate) fn serve_list(&mut self, process: usize) -> Answer {
        self.stats.lists += 1;
        let mut listing = match self.processes[process].lists >= LISTS_A_SWEEP {
            true => self.list_newest(),
            false => self.list_for(process).0,
        };
        self.as_listed(process, &mut listing);
        Answer::Listed(listing)
    }

    pub(crate) fn serve_nodes(&mut self, process: usize) -> Answer {
        self.stats.reads += 1;
        let mut listing = self.list_newest().nodes_only();
        self.as_listed(process, &mut listing);
        Answer::Listed(listing)
    }

    /// Everything, and nothing of it older than the request that is being served.
    fn list_newest(&mut self) -> Listing {
        let mut listing = Listing { newest: true, ..self.store.list() };
        if self.scenario.shape.reading == Reading::AllApart {
            let span = self.span(self.served_from);
            let known = self.store.changes_by(span.from);
            self.read_parts(&mut listing, span, known);
        }
        listing
    }

    /// A listing for a process, and how much of the log it shows: on some stores it is behind.
    pub(crate) fn list_for(&mut self, process: usize) -> (Listing, usize) {
        let behind = self.impairments.stale_by().max(self.scenario.shape.stale_by());
        if behind == 0 {
            return (self.store.list(), self.store.changes());
        }
        let rng = &mut self.processes[process].network_rng;
        let (lag, which) = (rng.below(behind), rng.below(2) as usize);
        if lag > self.scenario.shape.stale_by() {
            self.stats.fault_coverage.note(FaultKind::StaleLists);
        }
        let mut listing = self.store.list_behind(self.at, lag, which);
        let known = self.store.seen_behind(which);
        if self.scenario.shape.reading == Reading::AllApart && self.reading_rng.permille(500) {
            let shown_at = known.checked_sub(1).map_or(0, |last| self.store.changes_since(last)[0].at);
            let from = shown_at.max(self.at.saturating_sub(lag));
            let upto = self.reading_rng.between(from, self.at + 1);
            let span = Span { upto, ..self.span(from) };
            self.read_parts(&mut listing, span, known);
        }
        (listing, known)
    }

    fn span(&mut self, from: Instant) -> Span {
        Span { from: from.min(self.at), upto: self.at, salt: self.reading_rng.draw() }
    }

    /// Gives each part of a listing the instant at which it was read; `known` changes were there when the first was.
    fn read_parts(&self, listing: &mut Listing, span: Span, known: usize) {
        let changed = self.store.changes_since(known);
        let changed: BTreeSet<&Key> = changed.iter().map(|entry| &entry.key).collect();
        for key in changed {
            let at = match key {
                Key::Meta if self.misreads(ReadOrder::MetaReadLast) => span.from,
                Key::Meta => span.upto,
                _ => span.of(part_of(key)),
            };
            set(listing, key, self.store.get_at(key, at));
        }
    }
}

/// The slots of a group share so many objects.
const PAGES: u64 = 4;

/// Records with the same number are one object, which is read at once.
fn part_of(key: &Key) -> u64 {
    let named = |kind: u64, name: &str| {
        name.bytes().fold(kind, |number, byte| number.wrapping_mul(257) + u64::from(byte))
    };
    match key {
        Key::Meta => 1,
        Key::Control => 2,
        Key::Group(group) => named(3, group.as_str()),
        Key::Node(node) => named(5, node.as_str()),
        Key::Shard(shard) => match shard.name.as_slot() {
            Some(slot) => named(7, shard.group.as_str()).wrapping_add(u64::from(slot) % PAGES),
            None => named(11, shard.name.as_str()) % PAGES,
        },
    }
}

/// Makes a listing show this under a key.
fn set(listing: &mut Listing, key: &Key, stored: Option<&Stored>) {
    let index = listing.entries.binary_search_by(|(there, _)| there.cmp(key));
    match (index, stored) {
        (Ok(index), Some(stored)) => listing.entries[index].1 = stored.clone(),
        (Ok(index), None) => {
            listing.entries.remove(index);
        }
        (Err(index), Some(stored)) => listing.entries.insert(index, (key.clone(), stored.clone())),
        (Err(_), None) => {}
    }
}
