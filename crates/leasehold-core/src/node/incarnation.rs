//! Which life of the namespace this is: `meta`, and what to do when the store was emptied, restored or replaced.

use std::time::Duration;

use super::Node;
use super::context::Context;
use super::life::Life;
use super::namespace::Namespace;
use super::requests::{Ask, Purpose, Sent};
use super::timers::Timer;
use crate::config::{self, stretch};
use crate::mirror::{Mirror, Source};
use crate::name::{Epoch, Incarnation, WriteId};
use crate::notice::{Cause, Notice};
use crate::record::{FORMAT, Meta, MetaState, PROTOCOL, Record};
use crate::rules::{Rule, Rules};
use crate::store::{Key, Lane, Swap, Version};
use crate::time::Moment;

/// What follows from the `meta` that is there.
enum Found {
    /// It is the one that we work under from now on.
    Adopted,
    /// We cannot work under it, for this reason.
    Unusable(String),
    /// This must be written first, over that version.
    Write(Meta, Option<Version>),
}

impl Namespace {
    /// Adopts the incarnation that is there, or says what keeps us from that.
    fn find(&mut self, mirror: &Mirror, ctx: &mut Context) -> Found {
        let Some(seen) = mirror.meta() else {
            let why = self.distrusted().map_or(Notice::NAMESPACE_IS_EMPTY.into(), |(_, why)| why.clone());
            return self.begin_anew(None, why, mirror, ctx);
        };
        let (version, first_seen_at) = (seen.version.clone(), seen.first_seen_at);
        let meta = match &seen.record {
            Ok(meta) => meta.clone(),
            Err(error) if error.is_too_new() => {
                return Found::Unusable(format!("its meta record cannot be read ({error})"));
            }
            Err(error) => {
                let why = format!("its meta record is damaged ({error})");
                let until = first_seen_at + stretch(self.ttl_max(&ctx.config), ctx.config.drift_permille);
                if ctx.now.at >= until {
                    return self.begin_anew(Some(version), why, mirror, ctx);
                }
                return Found::Unusable(why);
            }
        };
        let distrusted = self.distrusted().cloned();
        if let Some((Some(old), why)) = &distrusted
            && *old == meta.incarnation
        {
            return self.begin_anew(Some(version), why.clone(), mirror, ctx);
        }
        let generation = self.generation();
        if !meta.generation.is_empty() && !generation.is_empty() && meta.generation != generation {
            let why = format!("its identity changed from {} to {generation}", meta.generation);
            return self.begin_anew(Some(version), why, mirror, ctx);
        }
        if meta.protocol.0 > PROTOCOL.1 || meta.protocol.1 < PROTOCOL.0 {
            let (oldest, newest) = meta.protocol;
            let why = format!(
                "the namespace uses protocol versions {oldest} to {newest}, but this node supports {} to {}: upgrade this node",
                PROTOCOL.0, PROTOCOL.1
            );
            return Found::Unusable(why);
        }
        // We may know of a longer ttl than whoever began this incarnation.
        let ttl_ms = ctx.config.ttl.max(self.ttl_heard()).as_millis() as u64;
        if distrusted.is_some() && meta.state == MetaState::Open && meta.max_ttl_ms < ttl_ms {
            // Those who have been running in it for long must not stop for that: only we wait.
            let until = first_seen_at + stretch(Duration::from_millis(ttl_ms), ctx.config.drift_permille);
            if ctx.now.at < until {
                return Found::Unusable(format!(
                    "the namespace was opened before sessions with the longest ttl ({ttl_ms} ms) were certain to be over"
                ));
            }
        }
        let floor = if distrusted.is_some() { mirror.epoch_seen() } else { Epoch(0) };
        let floor = floor.max(floor_published(mirror));
        if meta.max_ttl_ms < ttl_ms || meta.epoch_floor < floor {
            let max_ttl_ms = meta.max_ttl_ms.max(ttl_ms);
            let epoch_floor = meta.epoch_floor.max(floor);
            return Found::Write(Meta { max_ttl_ms, epoch_floor, ..meta }, Some(version));
        }
        let epoch_floor = meta.epoch_floor;
        if let Some(why) = self.adopt(meta) {
            ctx.tell(Notice::Incarnation { why, epoch_floor });
        }
        Found::Adopted
    }

    /// Begins a new incarnation, over this version of `meta`.
    fn begin_anew(
        &mut self,
        expect: Option<Version>,
        why: String,
        mirror: &Mirror,
        ctx: &mut Context,
    ) -> Found {
        let known_new =
            ctx.config.namespace == config::Namespace::New && self.distrusted().is_none() && expect.is_none();
        let settle = !known_new && ctx.rules.hold(Rule::SettleBeforeClaim);
        let trusted_floor = if known_new { Epoch(0) } else { Epoch(ctx.now.unix_ms / 1000) };
        let epoch_floor = mirror.epoch_seen().max(trusted_floor).max(floor_published(mirror));
        let meta = Meta {
            format: FORMAT,
            write: WriteId::from_bits(0),
            incarnation: Incarnation::from_bits(ctx.rng.bits()),
            state: if settle { MetaState::Settling } else { MetaState::Open },
            max_ttl_ms: self.ttl_max(&ctx.config).as_millis() as u64,
            seq: 0,
            epoch_floor,
            generation: self.generation().to_owned(),
            protocol: PROTOCOL,
            written_unix_ms: 0,
            extra: Default::default(),
        };
        self.begin(meta.incarnation, why);
        Found::Write(meta, expect)
    }

    /// `meta` as we know it, with all that others published of it, and the version that it replaces.
    fn restored(&self, mirror: &Mirror, rules: &Rules) -> Option<(Meta, Version)> {
        let version = mirror.meta().map(|seen| seen.version.clone())?;
        let mut known = self.meta().cloned()?;
        if rules.hold(Rule::MetaRestoredByTheLiving) {
            for node in mirror.nodes().values() {
                let mark = node.seen.as_ref().and_then(|seen| seen.best()?.meta.as_ref());
                mark.into_iter().for_each(|mark| known.merge(mark));
            }
        }
        Some((known, version))
    }

    /// Whether `meta` was seen damaged, or older than we know it, before this logical time.
    fn was_damaged_before(&self, order: u64, mirror: &Mirror) -> bool {
        let (Some(seen), Some(known)) = (mirror.meta(), self.meta()) else { return false };
        let damaged = match &seen.record {
            Ok(meta) => meta.incarnation == known.incarnation && meta.mark() != known.mark(),
            Err(error) => !error.is_too_new(),
        };
        damaged && order > seen.order
    }

    /// When `meta` may be opened, counted from when we first saw it as it is: when the longest ttl has passed that it names, or
    /// that we have heard of.
    pub(super) fn opens_at(&self, mirror: &Mirror, ctx: &Context) -> Option<Moment> {
        let seen = mirror.meta()?;
        let meta = seen.good()?;
        (meta.state == MetaState::Settling).then(|| {
            let ttl_max = Duration::from_millis(meta.max_ttl_ms).max(self.ttl_heard());
            seen.first_seen_at + stretch(ttl_max, ctx.config.drift_permille)
        })
    }

    /// Asks whether the namespace may be opened, once it may be. Until then the node waits.
    fn schedule_opening(&self, life: &mut Life, mirror: &Mirror, ctx: &mut Context) {
        let Some(at) = self.opens_at(mirror, ctx) else { return };
        ctx.timers.set(Timer::Open, at.max(ctx.now.at) + ctx.rng.up_to(ctx.config.debounce));
        let why = "the namespace is new, or the store was replaced: waiting in case earlier holders are still running";
        life.wait_for(why.into(), self.ttl_max(&ctx.config), ctx);
    }
}

/// The highest epoch floor that node records publish, of whichever incarnation: floors never fall.
fn floor_published(mirror: &Mirror) -> Epoch {
    let records = mirror.nodes().values().flat_map(|node| node.said());
    records.filter_map(|record| Some(record.meta.as_ref()?.epoch_floor)).max().unwrap_or_default()
}

impl Node {
    /// Compares the store's own mark with the one we began with; `true` if it is another store now.
    pub(super) fn generation_changed(&mut self, generation: &str) -> bool {
        let known = self.namespace.generation();
        if generation.is_empty() || known.is_empty() || generation == known {
            return false;
        }
        if !self.ctx.rules.hold(Rule::GenerationChecked) {
            return false;
        }
        let what = format!("its identity changed from {known} to {generation}");
        self.namespace.set_generation(generation);
        self.store_changed(what);
        true
    }

    /// The store was emptied, restored, rolled back or replaced: nothing that we know of it counts any more.
    pub(super) fn store_changed(&mut self, what: String) {
        self.detach(Cause::StoreChanged(what.clone()));
        if let Some(join) = self.join.take() {
            self.former.add(join.session());
        }
        self.namespace.distrust(what);
        self.ctx.timers.stop(Timer::Open);
        self.mirror.forget();
        self.planner.forget_roster();
        self.requests.forget(|_| true);
        self.ctx.timers.set(Timer::List, self.ctx.now.at);
    }

    /// Compares `meta` with the incarnation that we work under; `false` if it is another one now.
    pub(super) fn check_meta(&mut self, source: Source) -> bool {
        let Some(incarnation) = self.namespace.incarnation() else { return true };
        let fresh = matches!(source, Source::Fresh(_)) || source == Source::Mine;
        match self.mirror.meta().map(|seen| (&seen.record, seen.version.clone())) {
            None if fresh && self.ctx.rules.hold(Rule::GenerationChecked) => {
                self.store_changed("its meta record is missing".into());
                return false;
            }
            Some((Ok(meta), _)) if meta.incarnation != incarnation => {
                if fresh && self.ctx.rules.hold(Rule::GenerationChecked) {
                    self.store_changed("its incarnation changed".into());
                    return false;
                }
                self.look_again(vec![Key::Meta]);
            }
            Some((Ok(meta), _)) if meta.state == MetaState::Settling && self.namespace.is_open() => {
                // An incarnation that was open does not settle again.
                if fresh && self.ctx.rules.hold(Rule::GenerationChecked) {
                    self.store_changed("its meta record is older than one seen before".into());
                    return false;
                }
                self.look_again(vec![Key::Meta]);
            }
            Some((Ok(meta), _)) => {
                let (meta, was_open) = (meta.clone(), self.namespace.is_open());
                if let (Source::Fresh(issued), Some(session)) = (source, &mut self.session) {
                    session.meta_was_read(issued);
                }
                self.namespace.hear_of_ttl(Duration::from_millis(meta.max_ttl_ms), &self.ctx.rules);
                let mut known = meta.clone();
                if let Some(before) = self.namespace.mark() {
                    known.merge(&before);
                }
                // An older one was put back: what is known is written again, with the same proof as after damage.
                if known.mark() != meta.mark() {
                    self.meta_is_damaged();
                }
                if self.namespace.mark() != Some(known.mark()) {
                    self.ctx.record_changed();
                }
                self.namespace.learn(known);
                if self.namespace.is_open() && !was_open {
                    self.life.wait_no_more();
                    // Nobody could take anything until now: the turns of the ranks begin here.
                    self.vacancies.restart_all();
                    self.ctx.agenda.add_everything();
                    self.vacancies.begin_to_look(self.session.is_some(), &self.namespace, &mut self.ctx);
                }
                self.namespace.schedule_opening(&mut self.life, &self.mirror, &mut self.ctx);
            }
            Some((Err(error), _)) if error.is_too_new() => {
                let what = format!("its meta record cannot be read ({error})");
                self.store_changed(what);
                return false;
            }
            Some((Err(_), _))
                if self.session.as_ref().is_some_and(|session| !session.is_meta_confirmed()) =>
            {
                // Our first record may have landed in a store that was emptied since we read its `meta`.
                self.store_changed("its meta record was damaged before this session had read it".into());
                return false;
            }
            Some((Err(_), _)) => self.meta_is_damaged(),
            None => self.look_again(vec![Key::Meta]),
        }
        true
    }

    /// `meta` was damaged, or an older one was put back. A node that has read it since its session began restores it once a
    /// renewal that it sent after this has landed: then the store still is the one that it knew. A node without a session knows nothing for
    /// certain, so it forgets which incarnation this was and neither restores nor joins. GUARANTEES, "At most one holder".
    fn meta_is_damaged(&mut self) {
        if !self.ctx.rules.hold(Rule::MetaRestoredByTheLiving) {
            return self.restore_meta();
        }
        if self.session.is_some() {
            self.ctx.record_changed();
        } else if self.mirror.meta().is_some_and(|seen| seen.good().is_none()) {
            self.namespace.forget();
            if let Some(join) = self.join.take() {
                self.former.add(join.session());
            }
        }
    }

    /// A renewal that was sent at this logical time has landed: if `meta` was seen damaged before that, it is restored.
    pub(super) fn restore_meta_after(&mut self, order: u64) {
        let confirmed = self.session.as_ref().is_some_and(|session| session.is_meta_confirmed());
        if confirmed && self.namespace.was_damaged_before(order, &self.mirror) {
            self.restore_meta();
        }
    }

    fn restore_meta(&mut self) {
        if let Some((meta, version)) = self.namespace.restored(&self.mirror, &self.ctx.rules) {
            self.write_meta(meta, Some(version));
        }
    }

    /// Adopts the incarnation that is there, or makes a new one where that is called for.
    pub(super) fn find_incarnation(&mut self) {
        if self.requests.any(|purpose| matches!(purpose, Purpose::Meta)) {
            return;
        }
        match self.namespace.find(&self.mirror, &mut self.ctx) {
            Found::Adopted => {
                self.life.wait_no_more();
                self.namespace.schedule_opening(&mut self.life, &self.mirror, &mut self.ctx);
            }
            Found::Unusable(why) => {
                let ttl_max = self.namespace.ttl_max(&self.ctx.config);
                self.life.wait_for(why, ttl_max, &mut self.ctx);
            }
            Found::Write(meta, expect) => self.write_meta(meta, expect),
        }
    }

    fn write_meta(&mut self, mut meta: Meta, expect: Option<Version>) {
        if self.requests.any(|purpose| matches!(purpose, Purpose::Meta)) {
            return;
        }
        meta.write = self.ctx.write_id();
        meta.seq += 1;
        meta.written_unix_ms = self.ctx.now.unix_ms;
        let swap = Swap { key: Key::Meta, expect, value: Some(meta.encode().into()) };
        self.ask(Ask::swap(Lane::Work, swap, Purpose::Meta));
    }

    pub(super) fn on_open_read(&mut self, sent: &Sent) {
        let opens_at = self.namespace.opens_at(&self.mirror, &self.ctx);
        let (Some(at), Some(seen)) = (opens_at, self.mirror.meta()) else { return };
        if sent.sent_at < at {
            return self.namespace.schedule_opening(&mut self.life, &self.mirror, &mut self.ctx);
        }
        let (Some(meta), version) = (seen.good().cloned(), seen.version.clone()) else { return };
        // Epochs of the incarnation before may have run ahead of the time at which it ended, but nobody has begun
        // anything since.
        let epoch_floor = meta.epoch_floor.max(Epoch(self.ctx.now.unix_ms / 1000));
        self.write_meta(Meta { state: MetaState::Open, epoch_floor, ..meta }, Some(version));
    }
}
