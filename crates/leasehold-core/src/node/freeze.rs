//! When many nodes vanish at once, something larger is wrong, and moving shards would add to it: voluntary moves stand
//! still for a while.

use std::time::Duration;

use super::context::Context;
use super::timers::Timer;
use crate::notice::Notice;
use crate::time::Moment;

/// Who vanished lately, and until when voluntary moves stand still because of that.
#[derive(Debug, Default)]
pub(super) struct Freeze {
    vanished_at: Vec<Moment>,
    /// How many nodes there were before the first of them vanished.
    vanished_of: usize,
    /// [`Moment::ZERO`] if nothing is frozen.
    until: Moment,
}

impl Freeze {
    pub(super) fn until(&self) -> Moment {
        self.until
    }

    /// When it ends; [`Moment::NEVER`] if nothing is frozen.
    pub(super) fn ends_at(&self) -> Moment {
        if self.until > Moment::ZERO { self.until } else { Moment::NEVER }
    }

    /// The roster still changes: what is frozen stays so for longer.
    pub(super) fn prolong(&mut self, at: Moment, lasts: Duration) {
        if self.until > at {
            self.until = at + lasts;
        }
    }

    /// Counts one more, and says how many vanished within a ttl, of how many.
    fn count(&mut self, at: Moment, ttl: Duration, members: usize) -> (usize, usize) {
        self.vanished_at.retain(|vanished_at| at.since(*vanished_at) < ttl);
        let before = if self.vanished_at.is_empty() { 0 } else { self.vanished_of };
        self.vanished_at.push(at);
        let vanished = self.vanished_at.len();
        self.vanished_of = members.max(before).max(vanished);
        (vanished, self.vanished_of)
    }

    /// One of this many nodes was fenced, or its record vanished: if too many did so within a ttl, voluntary moves stop.
    pub(super) fn count_vanished(&mut self, members: usize, ctx: &mut Context) {
        let (at, ttl) = (ctx.now.at, ctx.config.ttl);
        let (vanished, of) = self.count(at, ttl, members);
        if vanished >= 2 && vanished * 1000 >= of * ctx.config.vanish_freeze_permille as usize {
            if self.until <= at {
                ctx.tell(Notice::Frozen { vanished, of });
            }
            self.until = at + ttl * 2;
        }
    }

    /// Voluntary moves may go on.
    pub(super) fn end(&mut self, ctx: &mut Context) {
        self.until = Moment::ZERO;
        ctx.tell(Notice::Unfrozen);
        ctx.timers.set(Timer::Surplus, ctx.now.at);
    }
}
