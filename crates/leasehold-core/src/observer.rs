//! A client that only watches: it reads what the store says, and plans as the nodes do, but joins nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::GroupConfig;
use crate::event::Located;
use crate::explain::{self, Difference, Explanation, WhatIf};
use crate::mirror::{Mirror, Source};
use crate::name::{GroupName, SessionId, ShardId};
use crate::placement::Placement;
use crate::plan::{self, GroupSettings, Plan, Planning, Roster};
use crate::store::{Listing, WatchEvent};
use crate::time::{Moment, Now};
use crate::view::{self, Hearing, View};

/// The state of a client that only watches.
#[derive(Debug)]
pub struct Observer {
    mirror: Mirror,
    planning: Planning,
    roster: Roster,
    settings: BTreeMap<GroupName, GroupSettings>,
    plan: Plan,
    stale: bool,
}

impl Observer {
    /// One that has seen nothing yet. Give it the nodes' own placement if they have one.
    pub fn new(own: Option<Arc<dyn Placement>>) -> Self {
        Observer {
            mirror: Mirror::default(),
            planning: Planning::new(own),
            roster: Roster::new(),
            settings: BTreeMap::new(),
            plan: Plan::default(),
            stale: true,
        }
    }

    /// Takes in a whole listing.
    pub fn listed(&mut self, now: Now, listing: &Listing) {
        // A watcher holds nothing, so it simply shows what a rolled-back store has now.
        let issued = self.mirror.tick();
        let mut rolled_back = false;
        self.mirror.observe_listing(now.at, Source::Fresh(issued), listing, |_, change| {
            rolled_back |= matches!(change, crate::mirror::Change::RolledBack(_));
        });
        if rolled_back {
            self.mirror.start_over();
            self.mirror.observe_listing(now.at, Source::Fresh(0), listing, |_, _| {});
        }
        self.stale = true;
    }

    /// Takes in what the watch said.
    pub fn watched(&mut self, now: Now, event: WatchEvent) {
        match event {
            WatchEvent::Snapshot(listing) => self.listed(now, &listing),
            WatchEvent::Changed(changes) => {
                for (key, stored) in &changes {
                    self.mirror.observe(now.at, Source::Watch, key, stored.as_ref());
                }
                self.stale = true;
            }
            WatchEvent::ProcessGone(session) => self.process_gone(session),
            WatchEvent::Interrupted(_) => {}
        }
    }

    /// The store was not heard of since that moment, and is again: nobody was silent meanwhile as far as we know.
    pub fn heard_again(&mut self, now: Now, deaf_since: Moment) {
        let deaf_for = now.at.since(deaf_since);
        self.mirror.count_silence_from(|silent_from| (silent_from + deaf_for).min(now.at));
    }

    /// The kernel says that a session's process is gone, with all that it started.
    pub fn process_gone(&mut self, session: SessionId) {
        self.stale |= self.mirror.note_process_gone(session);
    }

    /// The sessions that are alive as far as their records say.
    pub fn sessions(&self) -> Vec<SessionId> {
        self.mirror.nodes().values().filter_map(crate::mirror::SeenNode::alive).collect()
    }

    /// Whether a first listing has arrived.
    pub fn is_ready(&self) -> bool {
        self.mirror.is_ready()
    }

    /// What the store says.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Which node holds a shard.
    pub fn whereabouts(&self, shard: &ShardId) -> Located {
        view::whereabouts(&self.mirror, shard)
    }

    /// Makes a new plan if anything was taken in since the last one. It can be asked for what follows from the plan.
    pub fn replan(&mut self) -> Planned<'_> {
        if std::mem::take(&mut self.stale) {
            self.roster = plan::roster(&self.mirror);
            self.settings = self.planning.settings(&self.mirror, &BTreeMap::<GroupName, GroupConfig>::new());
            let control = self.mirror.control();
            self.plan = self.planning.plan(&self.roster, &self.settings, control);
        }
        Planned { observer: self }
    }
}

/// What the store says, with the plan that follows from it.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'a> {
    observer: &'a Observer,
}

impl Planned<'_> {
    /// Everything that the observer knows.
    pub fn view(&self, now: Now) -> View {
        let Observer { mirror, roster, settings, plan, .. } = self.observer;
        view::of_mirror(mirror, roster, settings, plan, Hearing::Hears, now)
    }

    /// Explains where a shard runs and why, and why it has not moved, as its holder reported with its last renewal.
    pub fn explain(&self, shard: &ShardId) -> Option<Explanation> {
        let Observer { mirror, roster, planning, plan, .. } = self.observer;
        explain::explain(mirror, roster, planning, plan, shard)
    }

    /// What would move if something changed.
    pub fn what_if(&self, change: &WhatIf) -> Result<Difference, String> {
        let Observer { mirror, roster, settings, planning, .. } = self.observer;
        explain::what_if(mirror, roster, settings, planning, change)
    }
}
