//! Taking in what was read, and judging whether it is newer than what we know.

use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use super::{Change, LostHolder, Mirror, Seen, SeenNode, Source};
use crate::name::{Epoch, NodeName, SessionId, ShardId};
use crate::record::{Heartbeat, NodeRecord, Record, RecordError, ShardRecord, ShardState};
use crate::store::{Key, Listing, Stored};
use crate::time::Moment;

impl Mirror {
    /// Takes in one record, or its absence.
    pub fn observe(&mut self, now: Moment, source: Source, key: &Key, stored: Option<&Stored>) -> Change {
        let order = self.tick();
        match key {
            Key::Meta => {
                let crosses = self.meta.as_ref().is_some_and(|seen| seen.crosses(source, stored));
                self.crossings += u64::from(crosses);
                observe_plain(&mut self.meta, now, order, source, stored)
            }
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
            // A listing that was under way when the watch showed a higher revision is only older.
            let asked_after = matches!(source, Source::Fresh(issued) if issued > self.revision_order);
            if revision < self.revision_seen && asked_after {
                let what = format!("its revision went back from {} to {revision}", self.revision_seen);
                each(&Key::Meta, Change::RolledBack(what));
            }
            if revision > self.revision_seen {
                (self.revision_seen, self.revision_order) = (revision, self.tick());
            }
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
        let divided = stored.and_then(|stored| Heartbeat::split(&stored.value));
        let (heartbeat, rest_sum) = divided.map(|(heartbeat, rest)| (heartbeat, xxh3_64(rest))).unzip();
        if let (Some(known), Some(stored), Some(heartbeat)) = (known, stored, heartbeat)
            && known.rest_sum == rest_sum
            && known.renew(now, order, issued, stored, heartbeat)
        {
            return Change::Changed;
        }
        let known = self.nodes.get(name);
        let record = stored.map(|stored| NodeRecord::decode(&stored.value).map(Box::new));
        if let Some(Ok(record)) = &record
            && (record.node != *name)
        {
            // A record under another name counts as missing: no session can hold anything through it.
            let error = RecordError::Impossible(format!("it is the record of node {}", record.node));
            let read = Read { stored, record: Some(Err(error)), rest_sum };
            return self.replace_node(now, order, issued, name, read);
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
                // The next read shows it.
                self.crossings += 1;
                return Change::None;
            }
        }
        self.replace_node(now, order, issued, name, Read { stored, record, rest_sum })
    }

    fn replace_node(
        &mut self,
        now: Moment,
        order: u64,
        issued: u64,
        name: &NodeName,
        read: Read<'_>,
    ) -> Change {
        let Read { stored, record, rest_sum } = read;
        if let Some(Ok(record)) = &record
            && !record.state.is_alive()
        {
            // A session that is over stays over, whenever and from wherever we learn of it. One that never had a record
            // while we looked has done nothing since we looked for it.
            let absent = self.nodes.get(name).filter(|node| node.seen.is_none());
            self.note_over(absent.map_or(now, |node| node.first_seen_at), record.session);
        }
        let former = self.nodes.remove(name);
        let ttl = record
            .as_ref()
            .and_then(|record| record.as_ref().ok())
            .map_or(Duration::ZERO, |record| record.ttl());
        let ttl = self.ttl_named.remove(name).map_or(ttl, |named| named.max(ttl));
        let ttl_longest = former.as_ref().map_or(ttl, |former| former.ttl_longest.max(ttl));
        let session = record.as_ref().and_then(|record| record.as_ref().ok()).map(|record| record.session);
        let session_seen_at = match &former {
            Some(former) if session.is_some() && former.session() == session => former.session_seen_at,
            _ => now,
        };
        let unproved = matches!(&record, Some(Ok(record)) if record.unproved);
        let vanished_damaged_at = former.as_ref().filter(|_| stored.is_none() || unproved).and_then(|node| {
            // Unless its own session has written it again.
            let lost = |seen: &Seen<Box<NodeRecord>>| {
                let before = seen.best().map(|before| before.session);
                seen.record.is_err() && (session.is_none() || before != session)
            };
            node.seen.as_ref().filter(|seen| lost(seen)).map_or(node.vanished_damaged_at, |_| Some(now))
        });
        // A session that could not prove that the former one is over may live beside it.
        let beside = former.as_ref().filter(|_| unproved).and_then(|node| {
            let former = node.seen.as_ref().and_then(|seen| seen.best());
            let is_another = |of: SessionId| Some(of) != session;
            let former = former.filter(|record| is_another(record.session));
            former.or(node.last.as_ref().filter(|record| is_another(record.session))).cloned()
        });
        let before =
            former.and_then(|node| node.seen.and_then(|seen| seen.record.ok().or(seen.before)).or(node.last));
        let (before, last) = if stored.is_some() { (before, beside) } else { (None, before) };
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
            vanished_damaged_at,
            ttl_longest,
            rest_sum,
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
            self.note_shard_change(now, id, None);
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
            false => Err(RecordError::Impossible(format!("it is the record of shard {}", record.shard))),
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
        if let Some(holder) = record.as_ref().ok().and_then(ShardRecord::holder) {
            // In case its own record cannot be read. It may be read later than this one.
            let ttl_longest = match self.nodes.get_mut(&holder.node) {
                Some(node) => &mut node.ttl_longest,
                None => self.ttl_named.entry(holder.node.clone()).or_default(),
            };
            *ttl_longest = holder.ttl().max(*ttl_longest);
        }
        self.note_shard_change(now, id, record.as_ref().ok());
        let seen = Seen { version, sum, record, first_seen_at: now, order, before: None };
        self.shards.insert(id.clone(), seen);
        Change::Changed
    }

    /// The holder that a shard's record names is remembered when the record is damaged or vanishes, until its session writes
    /// the record again, or the shard is released.
    fn note_shard_change(&mut self, now: Moment, id: &ShardId, new: Option<&ShardRecord>) {
        let Some(new) = new else {
            let named = self.shard_record(id).and_then(ShardRecord::holder);
            if let Some(holder) = named.filter(|holder| !self.is_proved_over(&holder.session)).cloned() {
                let lost = self.lost_holders.entry(id.clone()).or_default();
                lost.retain(|lost| lost.holder.session != holder.session);
                lost.push(LostHolder { holder, since: now });
            }
            return;
        };
        if let Some(lost) = self.lost_holders.get_mut(id) {
            let back = |lost: &LostHolder| new.holder().is_some_and(|it| it.session == lost.holder.session);
            lost.retain(|lost| !new.is_release() && !back(lost));
            if lost.is_empty() {
                self.lost_holders.remove(id);
            }
        }
    }
}

/// What is stored under a node's key.
struct Read<'a> {
    stored: Option<&'a Stored>,
    /// What it says, or why that cannot be read.
    record: Option<Result<Box<NodeRecord>, RecordError>>,
    /// See [`SeenNode::rest_sum`].
    rest_sum: Option<u64>,
}

impl SeenNode {
    /// Takes in a renewal that says the same as the record before it, and tells whether it is one. What does not follow at
    /// once on what we know is left to the whole comparison.
    fn renew(&mut self, now: Moment, order: u64, issued: u64, stored: &Stored, heartbeat: Heartbeat) -> bool {
        let Some(Seen { record: Ok(record), version, sum, first_seen_at, order: seen_order, .. }) =
            &mut self.seen
        else {
            return false;
        };
        if !record.state.is_alive() || heartbeat.seq < record.seq {
            return false;
        }
        record.renew(heartbeat);
        *version = stored.version.clone();
        *sum = xxh3_64(&stored.value);
        (*first_seen_at, *seen_order) = (now, order);
        (self.first_seen_at, self.silent_from, self.read_issued) = (now, now, issued);
        let (unproved, session) = (record.unproved, record.session);
        self.last = self.last.take().filter(|last| unproved && last.session != session);
        self.vanished_damaged_at = self.vanished_damaged_at.filter(|_| unproved);
        true
    }
}

/// Orders the states that one shard's record goes through. Within one epoch: held, then vacant or retired.
fn age(record: &ShardRecord) -> (Epoch, u8) {
    let step = match record.state {
        ShardState::Held { .. } => u8::from(!record.work.is_run()),
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
    match (slot.as_ref(), stored) {
        (None, None) => Change::None,
        (Some(seen), Some(stored)) if seen.is(stored) => Change::None,
        (Some(seen), stored) if seen.crosses(source, stored) => Change::None,
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
