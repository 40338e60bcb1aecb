//! What the store says, as far as we have seen: decoded records with their versions and when we saw them.
//!
//! Watches may be late and listings may cross each other, so the mirror judges by content which of two states of a
//! record is the newer one, and keeps the newer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use crate::name::{Epoch, GroupName, NodeName, SessionId, ShardId};
use crate::record::{
    Control, GroupRecord, Meta, NodeRecord, Record, RecordError, ShardRecord, ShardState, Slots,
};
use crate::store::{Key, Listing, Stored, Version};
use crate::time::Moment;

/// A record as we last saw it.
#[derive(Clone, Debug)]
pub struct Seen<R> {
    /// Its version in the store.
    pub version: Version,
    /// A sum over its bytes: whoever writes past the store may leave the version as it is.
    sum: u64,
    /// What it says, or why that cannot be read.
    pub record: Result<R, RecordError>,
    /// When we first saw this version.
    pub first_seen_at: Moment,
    /// Our logical time when we first saw it.
    pub order: u64,
    /// What it said when it last could be read, if it cannot be now.
    pub before: Option<R>,
}

impl<R> Seen<R> {
    /// The record, or else what it said when it last could be read.
    pub fn best(&self) -> Option<&R> {
        self.good().or(self.before.as_ref())
    }

    /// Whether this is what is stored.
    fn is(&self, stored: &Stored) -> bool {
        self.version == stored.version && self.sum == xxh3_64(&stored.value)
    }

    /// The record, if it can be read.
    pub fn good(&self) -> Option<&R> {
        self.record.as_ref().ok()
    }
}

/// A node's record, or the hole where it was.
#[derive(Clone, Debug)]
pub struct SeenNode {
    /// The record; `None` since it vanished or if it never was there.
    pub seen: Option<Seen<NodeRecord>>,
    /// When we first saw this state.
    pub first_seen_at: Moment,
    /// Our logical time when the newest read that showed this state was issued.
    pub read_issued: u64,
    /// From when on its silence counts: later than `first_seen_at` if our own reads failed since.
    pub silent_from: Moment,
    /// When we first saw the session that it names.
    pub session_seen_at: Moment,
    /// What it said when it last could be read, since it vanished.
    pub last: Option<NodeRecord>,
    /// The longest ttl that it was ever seen with.
    pub ttl_longest: Duration,
}

impl SeenNode {
    /// The session that the record names, if it can be read.
    fn session(&self) -> Option<SessionId> {
        Some(self.seen.as_ref()?.good()?.session)
    }

    /// The last thing that the record said, if it cannot be read now or is gone.
    fn known(&self) -> Option<&NodeRecord> {
        self.seen.as_ref().and_then(|seen| seen.best()).or(self.last.as_ref())
    }

    /// The session of a record that vanished, if it was alive and published anything.
    pub fn lost(&self) -> Option<&NodeRecord> {
        self.last.as_ref().filter(|last| {
            last.state.is_alive() && last.publishes.as_ref().is_none_or(|published| !published.is_empty())
        })
    }

    /// The session that is alive as far as the record says, or said before it was damaged.
    pub fn alive(&self) -> Option<SessionId> {
        let record = self.seen.as_ref()?.best()?;
        record.state.is_alive().then_some(record.session)
    }
}

/// What was once true of a group and stays so, also when its record is gone, damaged or written over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lasting {
    /// Every new epoch in this group is above this.
    pub epoch_floor: Epoch,
    /// These slots have had a record.
    pub filled: Slots,
}

impl Lasting {
    fn take_in(&mut self, record: &GroupRecord) {
        self.epoch_floor = self.epoch_floor.max(record.epoch_floor);
        if self.filled != record.filled {
            self.filled = self.filled.union(&record.filled);
        }
    }
}

/// What another session may do with a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Hold it.
    Hold,
    /// Start it, without saying more than it has said.
    Start,
}

/// Where an observation is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The watch: in order, but perhaps late.
    Watch,
    /// A read, a listing or the answer to a lost swap that was issued at this logical time and shows the newest state.
    Fresh(u64),
    /// A listing that may be behind.
    Lagging,
    /// Our own write, confirmed.
    Mine,
}

/// What an observation changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing, or it was older than what we knew.
    None,
    /// The record changed.
    Changed,
    /// It is not what we knew, but may be older: a reason to read it, and nothing more.
    Doubtful,
    /// A state that we know to be over came back: the store lost writes.
    RolledBack(String),
}

/// What the store says, as far as we have seen.
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    /// `meta`
    pub meta: Option<Seen<Meta>>,
    /// `control`
    pub control: Option<Seen<Control>>,
    /// `groups/…`
    pub groups: BTreeMap<GroupName, Seen<GroupRecord>>,
    /// What the records of groups said, and what holds whatever becomes of them.
    pub lasting: BTreeMap<GroupName, Lasting>,
    /// `nodes/…`, also of nodes whose record vanished.
    pub nodes: BTreeMap<NodeName, SeenNode>,
    /// Sessions whose process the kernel proves gone, for those who only look. Nodes fence them instead.
    pub gone: BTreeSet<SessionId>,
    /// `shards/…`
    pub shards: BTreeMap<ShardId, Seen<ShardRecord>>,
    /// Shard records that were there and vanished: when we saw that, and their last epoch.
    pub vanished: BTreeMap<ShardId, (Moment, Epoch)>,
    /// Sessions that are proved to be over.
    pub dead: BTreeMap<SessionId, Moment>,
    /// Keys of others in our namespace.
    pub foreign: Vec<String>,
    /// Places in the store that cannot be read.
    pub unreadable: Vec<String>,
    /// The highest epoch seen anywhere.
    pub epoch_seen: Epoch,
    /// The highest store revision seen.
    pub revision_seen: u64,
    /// Whether a listing has arrived.
    pub ready: bool,
    clock: u64,
}

impl Mirror {
    /// Logical time goes on: what is issued from now on is after all that was seen.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Forgets everything that is said about the store's present, but not what is over or how high epochs were.
    pub fn forget(&mut self) {
        *self = Mirror {
            dead: std::mem::take(&mut self.dead),
            epoch_seen: self.epoch_seen,
            clock: self.clock,
            ..Mirror::default()
        };
    }

    /// Takes in one record, or its absence.
    pub fn observe(&mut self, now: Moment, source: Source, key: &Key, stored: Option<&Stored>) -> Change {
        let order = self.tick();
        match key {
            Key::Meta => observe_plain(&mut self.meta, now, order, source, stored),
            Key::Control => observe_plain(&mut self.control, now, order, source, stored),
            Key::Group(group) => {
                let mut slot = self.groups.remove(group);
                let change = observe_plain(&mut slot, now, order, source, stored);
                if let Some(seen) = slot {
                    if let Some(record) = seen.good() {
                        self.epoch_seen = self.epoch_seen.max(record.epoch_floor);
                        self.lasting.entry(group.clone()).or_default().take_in(record);
                    }
                    self.groups.insert(group.clone(), seen);
                }
                change
            }
            Key::Node(node) => self.observe_node(now, order, source, node, stored),
            Key::Shard(shard) => self.observe_shard(now, order, source, shard, stored),
        }
    }

    /// Takes in everything: what is not listed is not there. Calls `each` for every record that changed.
    pub fn observe_listing(
        &mut self,
        now: Moment,
        source: Source,
        listing: &Listing,
        mut each: impl FnMut(&Key, Change),
    ) {
        let known = self.known();
        let mut known_listed = 0;
        for (key, stored) in &listing.entries {
            known_listed += usize::from(self.knows(key));
            each(key, self.observe(now, source, key, Some(stored)));
        }
        // Nothing can be missing when all that we knew was listed, as it is at rest.
        if known_listed < known {
            let listed: std::collections::BTreeSet<&Key> =
                listing.entries.iter().map(|(key, _)| key).collect();
            for key in self.keys() {
                if !listed.contains(&key) {
                    each(&key, self.observe(now, source, &key, None));
                }
            }
        }
        self.foreign = listing.foreign.clone();
        self.unreadable = listing.unreadable.clone();
        if let Some(revision) = listing.revision {
            if revision < self.revision_seen && matches!(source, Source::Fresh(_)) {
                let what = format!("its revision fell from {} to {revision}", self.revision_seen);
                each(&Key::Meta, Change::RolledBack(what));
            }
            self.revision_seen = self.revision_seen.max(revision);
        }
        self.ready = true;
    }

    fn knows(&self, key: &Key) -> bool {
        match key {
            Key::Meta => self.meta.is_some(),
            Key::Control => self.control.is_some(),
            Key::Group(group) => self.groups.contains_key(group),
            Key::Node(node) => self.nodes.get(node).is_some_and(|node| node.seen.is_some()),
            Key::Shard(shard) => self.shards.contains_key(shard),
        }
    }

    /// How many records it knows.
    fn known(&self) -> usize {
        usize::from(self.meta.is_some())
            + usize::from(self.control.is_some())
            + self.groups.len()
            + self.nodes.values().filter(|node| node.seen.is_some()).count()
            + self.shards.len()
    }

    fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = Vec::new();
        keys.extend(self.meta.iter().map(|_| Key::Meta));
        keys.extend(self.control.iter().map(|_| Key::Control));
        keys.extend(self.groups.keys().cloned().map(Key::Group));
        keys.extend(
            self.nodes.iter().filter(|(_, n)| n.seen.is_some()).map(|(name, _)| Key::Node(name.clone())),
        );
        keys.extend(self.shards.keys().cloned().map(Key::Shard));
        keys
    }

    fn observe_node(
        &mut self,
        now: Moment,
        order: u64,
        source: Source,
        name: &NodeName,
        stored: Option<&Stored>,
    ) -> Change {
        let issued = if let Source::Fresh(issued) = source { issued } else { 0 };
        let known = self.nodes.get_mut(name);
        let same = match (&known, stored) {
            (Some(SeenNode { seen: Some(seen), .. }), Some(stored)) => seen.is(stored),
            (Some(SeenNode { seen: None, .. }) | None, None) => true,
            _ => false,
        };
        if same {
            if let Some(known) = known {
                known.read_issued = known.read_issued.max(issued);
            }
            return Change::None;
        }
        let record = stored.map(|stored| NodeRecord::decode(&stored.value));
        if let Some(Ok(record)) = &record
            && (record.node != *name)
        {
            // A record under another's name is as good as no record: nobody can be holding anything through it.
            return self.replace_node(
                now,
                order,
                issued,
                name,
                stored,
                Some(Err(RecordError::Impossible(format!("it is about the node {}", record.node)))),
            );
        }
        let readable = known.as_ref().and_then(|n| n.seen.as_ref()).is_some_and(|seen| seen.good().is_some());
        if let Some(Ok(new)) = &record
            && !readable
            && matches!(source, Source::Watch | Source::Lagging)
            && new.state.is_alive()
            && self.dead.contains_key(&new.session)
        {
            // It was over before the record was damaged or went: this is from before that.
            return Change::None;
        }
        if let Some(Seen { record: Ok(old), order: seen_order, .. }) =
            known.as_ref().and_then(|n| n.seen.as_ref())
        {
            let older = match &record {
                // A session that is over stays over, whatever its record counts.
                Some(Ok(new)) if new.session == old.session => match old.state.is_alive() {
                    true => new.state.is_alive() && new.seq < old.seq,
                    false => new.state.is_alive(),
                },
                // A dead session that is alive again is older for certain. Its tombstone may be older, or newer.
                Some(Ok(new)) => {
                    let read_after = matches!(source, Source::Fresh(issued) if issued > *seen_order);
                    self.dead.contains_key(&new.session) && (new.state.is_alive() || !read_after)
                }
                Some(Err(_)) => false,
                None => source == Source::Watch || source == Source::Lagging || issued < *seen_order,
            };
            if older {
                return match source {
                    Source::Fresh(issued) if issued > *seen_order => {
                        Change::RolledBack(format!("the record of node {name} is older than one seen before"))
                    }
                    Source::Watch | Source::Lagging => Change::Doubtful,
                    Source::Fresh(_) | Source::Mine => Change::None,
                };
            }
            if issued != 0
                && issued < *seen_order
                && !matches!(&record, Some(Ok(new)) if new.session == old.session)
            {
                // The answer crossed something newer: the next read will tell.
                return Change::None;
            }
        }
        self.replace_node(now, order, issued, name, stored, record)
    }

    fn replace_node(
        &mut self,
        now: Moment,
        order: u64,
        issued: u64,
        name: &NodeName,
        stored: Option<&Stored>,
        record: Option<Result<NodeRecord, RecordError>>,
    ) -> Change {
        if let Some(Ok(record)) = &record
            && !record.state.is_alive()
        {
            // A session that is over is over for ever, whenever and from wherever we learn of it. One that never had a record
            // while we looked has done nothing since we looked for it.
            let absent = self.nodes.get(name).filter(|node| node.seen.is_none());
            self.note_over(absent.map_or(now, |node| node.first_seen_at), record.session);
        }
        let former = self.nodes.remove(name);
        let ttl =
            record.as_ref().and_then(|record| record.as_ref().ok()).map_or(Duration::ZERO, NodeRecord::ttl);
        let ttl_longest = former.as_ref().map_or(ttl, |former| former.ttl_longest.max(ttl));
        let session = record.as_ref().and_then(|record| record.as_ref().ok()).map(|record| record.session);
        let session_seen_at = match &former {
            Some(former) if session.is_some() && former.session() == session => former.session_seen_at,
            _ => now,
        };
        let before =
            former.and_then(|node| node.seen.and_then(|seen| seen.record.ok().or(seen.before)).or(node.last));
        let (before, last) = if stored.is_some() { (before, None) } else { (None, before) };
        let seen = stored.zip(record).map(|(stored, record)| Seen {
            version: stored.version.clone(),
            sum: xxh3_64(&stored.value),
            before: before.filter(|_| record.is_err()),
            record,
            first_seen_at: now,
            order,
        });
        let node = SeenNode {
            seen,
            first_seen_at: now,
            session_seen_at,
            read_issued: issued,
            silent_from: now,
            last,
            ttl_longest,
        };
        self.nodes.insert(name.clone(), node);
        Change::Changed
    }

    fn observe_shard(
        &mut self,
        now: Moment,
        order: u64,
        source: Source,
        id: &ShardId,
        stored: Option<&Stored>,
    ) -> Change {
        let known = self.shards.get_mut(id);
        let Some(stored) = stored else {
            let Some(known) = known else { return Change::None };
            let crossed = match source {
                Source::Fresh(issued) => issued < known.order,
                Source::Watch | Source::Mine => false,
                Source::Lagging => true,
            };
            if crossed {
                return Change::None;
            }
            let epoch = known.good().map_or(self.epoch_seen, |record| record.epoch);
            // A retired shard's record is removed on purpose, after the group's floor was raised to its epoch. Without
            // that floor it was lost like any other: the next start must still have a higher epoch.
            let floor =
                self.groups.get(&id.group).and_then(|group| group.best()).map(|group| group.epoch_floor);
            let retired = known.good().is_some_and(|record| record.state == ShardState::Retired);
            if !retired || floor.is_none_or(|floor| floor < epoch) {
                self.vanished.insert(id.clone(), (now, epoch));
            }
            self.shards.remove(id);
            return Change::Changed;
        };
        if let Some(known) = known
            && known.is(stored)
        {
            return Change::None;
        }
        let known = self.shards.get(id);
        let record = ShardRecord::decode(&stored.value).and_then(|record| match record.shard == *id {
            true => Ok(record),
            false => Err(RecordError::Impossible(format!("it is about the shard {}", record.shard))),
        });
        if let (Some(Seen { record: Ok(old), order: seen_order, .. }), Ok(new)) = (known, &record)
            && age(new) < age(old)
        {
            return match source {
                Source::Fresh(issued) if issued > *seen_order => Change::RolledBack(format!(
                    "shard {id} has epoch {} ({}), and had {} ({})",
                    new.epoch,
                    word(&new.state),
                    old.epoch,
                    word(&old.state)
                )),
                _ => Change::None,
            };
        }
        if let (Some(known), Source::Fresh(issued)) = (known, source)
            && issued < known.order
            && !matches!((&record, &known.record), (Ok(new), Ok(old)) if age(new) > age(old))
        {
            return Change::None;
        }
        if let Ok(record) = &record {
            self.epoch_seen = self.epoch_seen.max(record.epoch);
        }
        self.vanished.remove(id);
        let (version, sum) = (stored.version.clone(), xxh3_64(&stored.value));
        let seen = Seen { version, sum, record, first_seen_at: now, order, before: None };
        self.shards.insert(id.clone(), seen);
        Change::Changed
    }

    /// Whether a live session under this name holds a shard; with [`Reach::Start`], or may start it at any moment. An unreadable record, and one of a version that published nothing, may stand for anything.
    /// `silent`: whether it has not changed for so long that no session can be alive in it.
    pub fn may_run(&self, node: &SeenNode, shard: &ShardId, reach: Reach, silent: bool) -> bool {
        let publishes = |record: &NodeRecord| match (&record.publishes, reach) {
            (None, _) => true,
            (Some(published), Reach::Hold) => published.holds(shard),
            (Some(published), Reach::Start) => published.has(shard),
        };
        let live = |record: &NodeRecord| record.state.is_alive() && !self.dead.contains_key(&record.session);
        match node.seen.as_ref().map(|seen| &seen.record) {
            Some(Ok(record)) => live(record) && publishes(record),
            // One that only a newer version can read is never fenced: it counts for as long as it may be alive.
            Some(Err(_)) => !silent && node.known().is_none_or(live),
            None => node.lost().is_some_and(|last| live(last) && publishes(last)),
        }
    }

    /// Remembers since when we know that a session is over.
    pub fn note_over(&mut self, now: Moment, session: SessionId) {
        let since = self.dead.entry(session).or_insert(now);
        *since = now.min(*since);
    }

    /// Whether a session may be alive under this name: only a record can say that none is.
    pub fn may_live(&self, node: &SeenNode) -> bool {
        match node.seen.as_ref().map(|seen| &seen.record) {
            Some(Ok(record)) => record.state.is_alive() && !self.dead.contains_key(&record.session),
            Some(Err(_)) | None => true,
        }
    }

    /// Remembers since when we know that a node has no record.
    pub fn note_absent(&mut self, now: Moment, name: &NodeName) {
        let absent = SeenNode {
            seen: None,
            first_seen_at: now,
            read_issued: 0,
            silent_from: now,
            session_seen_at: now,
            last: None,
            ttl_longest: Duration::ZERO,
        };
        self.nodes.entry(name.clone()).or_insert(absent);
    }

    /// Sessions that are over and that no record names any more need not be remembered for ever.
    pub fn prune(&mut self, older_than: Moment) {
        self.nodes.retain(|_, node| node.seen.is_some() || node.first_seen_at >= older_than);
        if self.dead.values().all(|learned_at| *learned_at >= older_than) {
            return;
        }
        let named: std::collections::BTreeSet<SessionId> = (self.shards.values())
            .filter_map(|seen| seen.good()?.holder().map(|holder| holder.session))
            .collect();
        self.dead.retain(|session, learned_at| *learned_at >= older_than || named.contains(session));
    }
}

/// Orders the states that one shard's record goes through. Within one epoch: held, then vacant or retired.
fn age(record: &ShardRecord) -> (Epoch, u8) {
    let step = match record.state {
        ShardState::Held { .. } => u8::from(record.quarantined),
        ShardState::Vacant { .. } | ShardState::Retired => 2,
    };
    (record.epoch, step)
}

fn word(state: &ShardState) -> &'static str {
    match state {
        ShardState::Held { .. } => "held",
        ShardState::Vacant { .. } => "vacant",
        ShardState::Retired => "retired",
    }
}

fn observe_plain<R: Record>(
    slot: &mut Option<Seen<R>>,
    now: Moment,
    order: u64,
    source: Source,
    stored: Option<&Stored>,
) -> Change {
    let crossed = |seen: &Seen<R>| matches!(source, Source::Fresh(issued) if issued < seen.order);
    match (slot.as_ref(), stored) {
        (None, None) => Change::None,
        (Some(seen), Some(stored)) if seen.is(stored) => Change::None,
        (Some(seen), _) if crossed(seen) => Change::None,
        (Some(_), _) if source == Source::Lagging => Change::Doubtful,
        (_, stored) => {
            let before = slot.take().and_then(|seen| seen.record.ok().or(seen.before));
            *slot = stored.map(|stored| {
                let record = R::decode(&stored.value);
                let before = before.filter(|_| record.is_err());
                let (version, sum) = (stored.version.clone(), xxh3_64(&stored.value));
                Seen { version, sum, record, first_seen_at: now, order, before }
            });
            Change::Changed
        }
    }
}
