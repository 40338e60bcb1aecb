//! Which life of the namespace this is, as far as this node knows: its incarnation, what `meta` said of it, and why an
//! earlier one must not go on. `incarnation` decides with it.

use std::time::Duration;

use crate::config::Config;
use crate::name::{Epoch, Incarnation};
use crate::record::{Meta, MetaMark, MetaState};
use crate::rules::{Rule, Rules};

/// Which life of the namespace this is.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    incarnation: Option<Incarnation>,
    /// `meta` as it was last read, with all that it said before.
    meta: Option<Meta>,
    /// The longest ttl that anybody was heard to use.
    ttl_max_heard: Duration,
    /// The store's own mark; empty until it is known.
    generation: String,
    /// The incarnation that must not go on, and why.
    distrusted: Option<(Option<Incarnation>, String)>,
    /// The incarnation that we tried to begin, and why.
    begun: Option<(Incarnation, String)>,
}

impl Namespace {
    /// The incarnation that we work under.
    pub(super) fn incarnation(&self) -> Option<Incarnation> {
        self.incarnation
    }

    pub(super) fn is_known(&self) -> bool {
        self.incarnation.is_some()
    }

    /// Whether shards may be claimed in this incarnation.
    pub(super) fn is_open(&self) -> bool {
        self.is_known() && self.meta.as_ref().is_some_and(|meta| meta.state == MetaState::Open)
    }

    pub(super) fn meta(&self) -> Option<&Meta> {
        self.meta.as_ref()
    }

    pub(super) fn mark(&self) -> Option<MetaMark> {
        self.meta.as_ref().map(Meta::mark)
    }

    /// Every new epoch is above this.
    pub(super) fn epoch_floor(&self) -> Epoch {
        self.meta.as_ref().map_or(Epoch(0), |meta| meta.epoch_floor)
    }

    /// Whether the namespace was begun as new, so that epochs count from one.
    pub(super) fn counts_from_one(&self) -> bool {
        self.meta.as_ref().is_some_and(|meta| meta.epoch_floor == Epoch(0))
    }

    /// The longest ttl that anybody in this namespace may use.
    pub(super) fn ttl_max(&self, config: &Config) -> Duration {
        config.ttl_max.max(self.ttl_max_heard)
    }

    /// The longest ttl that anybody was heard to use.
    pub(super) fn ttl_heard(&self) -> Duration {
        self.ttl_max_heard
    }

    /// A node uses this ttl. No session is taken for dead, and no namespace is opened, before the longest ttl has passed.
    pub(super) fn hear_of_ttl(&mut self, ttl: Duration, rules: &Rules) {
        if rules.hold(Rule::TtlMaxIsHeard) {
            self.ttl_max_heard = self.ttl_max_heard.max(ttl);
        }
    }

    pub(super) fn generation(&self) -> &str {
        &self.generation
    }

    pub(super) fn set_generation(&mut self, generation: &str) {
        generation.clone_into(&mut self.generation);
    }

    /// Why an earlier incarnation must not go on, and which one.
    pub(super) fn distrusted(&self) -> Option<&(Option<Incarnation>, String)> {
        self.distrusted.as_ref()
    }

    /// The store was emptied, restored or replaced: this incarnation must not go on, and the first reason for that counts.
    pub(super) fn distrust(&mut self, why: String) {
        if self.distrusted.is_none() {
            self.distrusted = Some((self.incarnation, why));
        }
        self.forget();
    }

    /// Nothing is known for certain any more.
    pub(super) fn forget(&mut self) {
        self.incarnation = None;
        self.meta = None;
    }

    /// `meta` was read, or we know better what it should say.
    pub(super) fn learn(&mut self, meta: Meta) {
        self.meta = Some(meta);
    }

    /// We try to begin this incarnation.
    pub(super) fn begin(&mut self, incarnation: Incarnation, why: String) {
        self.begun = Some((incarnation, why));
    }

    /// We work under this incarnation from now on. Says why it began if it was us who began it.
    pub(super) fn adopt(&mut self, meta: Meta) -> Option<String> {
        let begun = self.begun.take().filter(|(begun, _)| *begun == meta.incarnation);
        self.incarnation = Some(meta.incarnation);
        self.distrusted = None;
        self.ttl_max_heard = self.ttl_max_heard.max(Duration::from_millis(meta.max_ttl_ms));
        self.meta = Some(meta);
        begun.map(|(_, why)| why)
    }
}
