//! One node's state machine.

use crate::config::Config;
use crate::event::{Action, Event};
use crate::store::Facts;
use crate::time::{Moment, Now};
use crate::view::View;

/// One node: events in, actions out.
#[derive(Debug)]
pub struct Node {
    config: Config,
}

impl Node {
    /// A node with these settings, on a store with these facts. `seed` must come from the system's randomness.
    pub fn new(config: Config, facts: Facts, seed: [u8; 32]) -> Self {
        let _ = (facts, seed);
        Node { config }
    }

    /// Takes in what happened and says what to do.
    pub fn step(&mut self, now: Now, event: Event, out: &mut Vec<Action>) {
        let _ = (now, event, out);
    }

    /// When the next [`Event::Tick`] is due at the latest.
    pub fn deadline(&self) -> Moment {
        Moment::NEVER
    }

    /// What the node knows and does.
    pub fn view(&self, now: Now) -> View {
        let _ = (now, &self.config);
        unreachable!()
    }
}
