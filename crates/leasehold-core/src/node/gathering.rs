//! Waiting at a cold start for others that start with us, so that the first one does not take everything.

use super::Node;
use super::timers::Timer;
use crate::mirror::SeenNode;
use crate::record::Holder;
use crate::rules::Rule;
use crate::time::Moment;

/// For how long we wait for others; until when is a timer.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// However many come, we wait no longer than this.
    latest_at: Moment,
}

impl Node {
    /// Whether we wait for others that start with us.
    pub(super) fn is_gathering(&self) -> bool {
        self.timers.is_set(Timer::Gather)
    }

    /// A process that starts while nobody owns anything may be the first of several: they get a moment to start as well.
    pub(super) fn begin_to_gather(&mut self) {
        let (at, wait) = (self.now.at, self.config.gather_for());
        let speaks = |holder: &Holder| {
            let node = self.mirror.nodes.get(&holder.node);
            let silent_for = node.map_or(wait, |node| at.since(node.silent_from));
            node.and_then(SeenNode::alive) == Some(holder.session)
                && !self.mirror.dead.contains_key(&holder.session)
                && silent_for < holder.ttl() / 2
        };
        let mut holders = self.mirror.shards.values().filter_map(|seen| seen.good()?.holder());
        // Where nothing has ever been owned, everybody has waited for the namespace to open, or it is known to be new.
        let cold = !self.life.has_been_attached() && !self.mirror.shards.is_empty() && !holders.any(speaks);
        let gathers = cold && !wait.is_zero() && self.rules.hold(Rule::ReturningCounts);
        self.timers.set(Timer::Gather, if gathers { at + wait } else { Moment::NEVER });
        self.gathering.latest_at = at + wait * 2;
    }

    /// Another node joined: if we wait for those that start with us, there may be more of them.
    pub(super) fn gather_more(&mut self) {
        if self.timers.is_set(Timer::Gather) {
            self.timers
                .set(Timer::Gather, (self.now.at + self.config.gather_for()).min(self.gathering.latest_at));
        }
    }
}
