//! Which life of the namespace this is: `meta`, and what to do when the store is not the one it was.

use super::Node;
use super::requests::{Purpose, Sent};
use crate::config::{Namespace, stretch};
use crate::mirror::Source;
use crate::name::{Epoch, Incarnation, ShardId, WriteId};
use crate::notice::{Cause, Notice};
use crate::record::{FORMAT, Meta, MetaState, PROTOCOL, Record};
use crate::rules::Rule;
use crate::store::{Key, Lane, Op, Swap, Version};
use crate::time::Moment;

impl Node {
    /// The longest ttl that anybody in this namespace may use.
    pub(super) fn ttl_max(&self) -> std::time::Duration {
        self.config.ttl_max.max(self.ttl_max_seen)
    }

    /// Whether shards may be claimed in this incarnation.
    pub(super) fn is_open(&self) -> bool {
        self.incarnation.is_some()
            && self.meta_known.as_ref().is_some_and(|meta| meta.state == MetaState::Open)
    }

    /// Compares the store's own mark with the one we began with; `true` if it is another store now.
    pub(super) fn generation_changed(&mut self, generation: &str) -> bool {
        let known = &self.generation;
        if generation.is_empty() || known.is_empty() || generation == known {
            return false;
        }
        if !self.rules.hold(Rule::GenerationChecked) {
            return false;
        }
        let what = format!("its identity was {known} and is {generation}");
        self.generation = generation.to_owned();
        self.store_changed(what);
        true
    }

    /// The store was emptied, restored, rolled back or replaced: nothing that we know of it counts any more.
    pub(super) fn store_changed(&mut self, what: String) {
        self.detach(Cause::StoreChanged(what.clone()));
        if let Some(join) = self.join.take() {
            self.former.insert(join.session());
        }
        if self.distrusted.is_none() {
            self.distrusted = Some((self.incarnation.take(), what));
        }
        self.incarnation = None;
        self.meta_known = None;
        self.open_at = Moment::NEVER;
        self.opened_at = None;
        self.mirror.forget();
        self.roster.clear();
        self.requests.forget(|_| true);
        self.list_at = self.now.at;
    }

    /// Looks at `meta` while we work under an incarnation; `false` if it is no longer the one.
    pub(super) fn check_meta(&mut self, source: Source) -> bool {
        let Some(incarnation) = self.incarnation else { return true };
        let fresh = matches!(source, Source::Fresh(_)) || source == Source::Mine;
        match self.mirror.meta.as_ref().map(|seen| (&seen.record, seen.version.clone())) {
            None if fresh && self.rules.hold(Rule::GenerationChecked) => {
                self.store_changed("its meta record is gone".into());
                return false;
            }
            Some((Ok(meta), _)) if meta.incarnation != incarnation => {
                if fresh && self.rules.hold(Rule::GenerationChecked) {
                    self.store_changed("it has another incarnation".into());
                    return false;
                }
                self.look_again(vec![Key::Meta]);
            }
            Some((Ok(meta), _)) if meta.state == MetaState::Settling && self.is_open() => {
                // An incarnation that was open does not settle again.
                if fresh && self.rules.hold(Rule::GenerationChecked) {
                    self.store_changed("its meta record is older than one seen before".into());
                    return false;
                }
                self.look_again(vec![Key::Meta]);
            }
            Some((Ok(meta), _)) => {
                let was_open = self.is_open();
                let was_settling = self.meta_known.is_some() && !was_open;
                self.meta_known = Some(meta.clone());
                if was_settling && self.is_open() {
                    self.opened_at = Some(self.now.at);
                }
                if self.is_open() && !was_open {
                    self.waiting_for = None;
                    // Nobody could take anything until now: the turns of the ranks begin here.
                    self.unowned_since.clear();
                    self.reconsider_all = true;
                    self.begin_to_look_for_wanted();
                }
                self.schedule_opening();
            }
            Some((Err(error), _)) if error.is_too_new() => {
                let what = format!("its meta record was {error}");
                self.store_changed(what);
                return false;
            }
            Some((Err(_), version)) => {
                // Damaged by somebody, while the rest is as it was: we write again what it said.
                if let Some(known) = self.meta_known.clone() {
                    self.write_meta(known, Some(version));
                }
            }
            None => self.look_again(vec![Key::Meta]),
        }
        true
    }

    /// Whether a shard's record is known to be from this incarnation. If that is not known, `meta` is read, and then the
    /// shard is considered again. GUARANTEES, "At most one holder".
    pub(super) fn is_vouched(&mut self, shard: &ShardId, rule: Rule) -> bool {
        let vouched = self.mirror.is_vouched(shard) || !self.rules.hold(rule);
        if !vouched {
            self.unvouched.insert(shard.clone());
        }
        vouched
    }

    /// The incarnation was seen to be the same: what waited for that is considered again.
    pub(super) fn meta_was_read(&mut self) {
        self.reconsider.append(&mut self.unvouched);
    }

    /// Reads `meta` for the shards that wait for it, all in one.
    pub(super) fn ask_for_meta(&mut self) {
        let busy = self.requests.any(|purpose| matches!(purpose, Purpose::Vouch));
        let paused = self.now.at < self.acquire_paused_until;
        if !self.unvouched.is_empty() && self.session.is_some() && !busy && !paused {
            self.ask(Lane::Work, Op::Read(vec![Key::Meta]), Purpose::Vouch);
        }
    }

    /// Adopts the incarnation that is there, or makes a new one where that is called for.
    pub(super) fn find_incarnation(&mut self) {
        if self.requests.any(|purpose| matches!(purpose, Purpose::Meta)) {
            return;
        }
        let Some(seen) = &self.mirror.meta else {
            let why =
                self.distrusted.as_ref().map_or("the namespace is empty".into(), |(_, why)| why.clone());
            return self.begin_incarnation(None, why);
        };
        let (version, first_seen_at) = (seen.version.clone(), seen.first_seen_at);
        let meta = match &seen.record {
            Ok(meta) => meta.clone(),
            Err(error) if error.is_too_new() => {
                let (why, ttl_max) = (format!("its meta record was {error}"), self.ttl_max());
                return self.wait_for(why, ttl_max);
            }
            Err(error) => {
                let why = format!("its meta record is damaged ({error})");
                let until = first_seen_at + stretch(self.ttl_max(), self.config.drift_permille);
                if self.now.at >= until {
                    return self.begin_incarnation(Some(version), why);
                }
                let ttl_max = self.ttl_max();
                return self.wait_for(why, ttl_max);
            }
        };
        let distrusted = self.distrusted.clone();
        if let Some((Some(old), why)) = &distrusted
            && *old == meta.incarnation
        {
            return self.begin_incarnation(Some(version), why.clone());
        }
        if !meta.generation.is_empty() && !self.generation.is_empty() && meta.generation != self.generation {
            let why = format!("its identity was {} and is {}", meta.generation, self.generation);
            return self.begin_incarnation(Some(version), why);
        }
        if meta.protocol.0 > PROTOCOL.1 || meta.protocol.1 < PROTOCOL.0 {
            let (oldest, newest) = meta.protocol;
            let why = format!(
                "this namespace speaks protocol {oldest} to {newest}, this node {PROTOCOL:?}: upgrade it"
            );
            let ttl_max = self.ttl_max();
            return self.wait_for(why, ttl_max);
        }
        let ttl_ms = self.config.ttl.as_millis() as u64;
        let floor = if distrusted.is_some() { self.mirror.epoch_seen } else { Epoch(0) };
        if meta.max_ttl_ms < ttl_ms || meta.epoch_floor < floor {
            let max_ttl_ms = meta.max_ttl_ms.max(ttl_ms);
            let epoch_floor = meta.epoch_floor.max(floor);
            return self.write_meta(Meta { max_ttl_ms, epoch_floor, ..meta }, Some(version));
        }
        if let Some((_, why)) = self.begun.take().filter(|(begun, _)| *begun == meta.incarnation) {
            self.tell(Notice::Incarnation { why, epoch_floor: meta.epoch_floor });
        }
        self.incarnation = Some(meta.incarnation);
        self.distrusted = None;
        self.waiting_for = None;
        self.ttl_max_seen = self.ttl_max_seen.max(std::time::Duration::from_millis(meta.max_ttl_ms));
        self.meta_known = Some(meta);
        self.schedule_opening();
    }

    fn begin_incarnation(&mut self, expect: Option<Version>, why: String) {
        let known_new =
            self.config.namespace == Namespace::New && self.distrusted.is_none() && expect.is_none();
        let settle = !known_new && self.rules.hold(Rule::SettleBeforeClaim);
        let trusted_floor = if known_new { Epoch(0) } else { Epoch(self.now.unix_ms / 1000) };
        let epoch_floor = self.mirror.epoch_seen.max(trusted_floor);
        let meta = Meta {
            format: FORMAT,
            write: WriteId::from_bits(0),
            incarnation: Incarnation::from_bits(self.chance.bits()),
            state: if settle { MetaState::Settling } else { MetaState::Open },
            max_ttl_ms: self.ttl_max().as_millis() as u64,
            epoch_floor,
            generation: self.generation.clone(),
            protocol: PROTOCOL,
            written_unix_ms: 0,
            extra: Default::default(),
        };
        self.begun = Some((meta.incarnation, why));
        self.write_meta(meta, expect);
    }

    fn write_meta(&mut self, mut meta: Meta, expect: Option<Version>) {
        if self.requests.any(|purpose| matches!(purpose, Purpose::Meta)) {
            return;
        }
        meta.write = WriteId::from_bits(self.chance.bits());
        meta.written_unix_ms = self.now.unix_ms;
        let swap = Swap { key: Key::Meta, expect, value: Some(meta.encode().into()) };
        self.ask_swap(Lane::Work, swap, Purpose::Meta);
    }

    /// When `meta` may be opened, counted from when we first saw it as it is.
    fn opens_at(&self) -> Option<Moment> {
        let seen = self.mirror.meta.as_ref()?;
        let meta = seen.good()?;
        (meta.state == MetaState::Settling).then(|| {
            let ttl_max = std::time::Duration::from_millis(meta.max_ttl_ms);
            seen.first_seen_at + stretch(ttl_max, self.config.drift_permille)
        })
    }

    fn schedule_opening(&mut self) {
        let Some(at) = self.opens_at() else { return };
        self.open_at = at.max(self.now.at) + self.chance.up_to(self.config.debounce);
        let why =
            "the namespace is new, or the store was replaced: waiting until no earlier holder can be running";
        let ttl_max = self.ttl_max();
        self.wait_for(why.into(), ttl_max);
    }

    pub(super) fn ask_to_open(&mut self) {
        if self.opens_at().is_some() {
            self.ask(Lane::Work, Op::Read(vec![Key::Meta]), Purpose::Open);
        }
    }

    pub(super) fn on_open_read(&mut self, sent: &Sent) {
        let (Some(at), Some(seen)) = (self.opens_at(), &self.mirror.meta) else { return };
        if sent.sent_at < at {
            return self.schedule_opening();
        }
        let (Some(meta), version) = (seen.good().cloned(), seen.version.clone()) else { return };
        // Epochs of the incarnation before may have run ahead of the time at which it ended, but nobody has begun
        // anything since.
        let epoch_floor = meta.epoch_floor.max(Epoch(self.now.unix_ms / 1000));
        self.write_meta(Meta { state: MetaState::Open, epoch_floor, ..meta }, Some(version));
    }
}
