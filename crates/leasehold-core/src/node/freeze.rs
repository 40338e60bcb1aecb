//! When many nodes vanish at once, something larger is wrong, and moving shards would add to it: voluntary moves stand
//! still for a while.

use std::time::Duration;

use super::Node;
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
}

impl Node {
    /// A node was proved dead, or its record vanished.
    pub(super) fn count_vanished(&mut self) {
        let (at, ttl) = (self.now.at, self.config.ttl);
        let (vanished, of) = self.freeze.count(at, ttl, self.planner.roster().len());
        if vanished >= 2 && vanished * 1000 >= of * self.config.vanish_freeze_permille as usize {
            if self.freeze.until <= at {
                self.tell(Notice::Frozen { vanished, of });
            }
            self.freeze.until = at + ttl * 2;
        }
    }

    pub(super) fn unfreeze(&mut self) {
        self.freeze.until = Moment::ZERO;
        self.tell(Notice::Unfrozen);
        self.timers.set(Timer::Surplus, self.now.at);
    }
}
