//! Waiting at a cold start for others that start with us, so that the first one does not take everything.

use super::context::Context;
use super::timers::Timer;
use crate::mirror::{Mirror, SeenNode};
use crate::record::Holder;
use crate::rules::Rule;
use crate::time::Moment;

/// For how long we wait for others; until when is a timer.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// However many come, we wait no longer than this.
    latest_at: Moment,
}

impl Gathering {
    /// A process that starts while nobody owns anything may be the first of several: the others get a moment to start.
    pub(super) fn begin(&mut self, mirror: &Mirror, has_been_attached: bool, ctx: &mut Context) {
        let (at, wait) = (ctx.now.at, ctx.config.gather_for());
        let is_active = |holder: &Holder| {
            let node = mirror.nodes().get(&holder.node);
            let silent_for = node.map_or(wait, |node| at.since(node.silent_from));
            node.and_then(SeenNode::alive) == Some(holder.session)
                && !mirror.is_proved_over(&holder.session)
                && silent_for < holder.ttl() / 2
        };
        let mut holders = mirror.shards().values().filter_map(|seen| seen.good()?.holder());
        // Where nothing was ever owned, every node has waited for the namespace to open, and they have met by then; or the
        // namespace is known to be new, and then the settings say whether others start with us.
        let may_be_first = !mirror.shards().is_empty() || ctx.config.gather.is_some();
        let cold = !has_been_attached && may_be_first && !holders.any(is_active);
        let gathers = cold && !wait.is_zero() && ctx.rules.hold(Rule::ReturningCounts);
        ctx.timers.set(Timer::Gather, if gathers { at + wait } else { Moment::NEVER });
        self.latest_at = at + wait * 2;
    }

    /// Another node joined: if we wait for those that start with us, there may be more of them.
    pub(super) fn wait_for_more(&self, ctx: &mut Context) {
        if ctx.timers.is_set(Timer::Gather) {
            ctx.timers.set(Timer::Gather, (ctx.now.at + ctx.config.gather_for()).min(self.latest_at));
        }
    }
}
