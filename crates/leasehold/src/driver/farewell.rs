//! The last word of a driver: however it ends, everybody hears that it has.

use std::sync::Arc;

use leasehold_core::View;
use tokio::sync::watch;

use super::{Finish, Publisher};
use crate::clock::Clock;
use crate::observe::Meters;

/// What tells people how the node stands. When it is dropped before its time, the driver died, and it says so.
pub(crate) struct Farewell {
    pub(crate) publisher: Publisher,
    pub(crate) meters: Arc<Meters>,
    pub(crate) finished: watch::Sender<Option<Finish>>,
    said: bool,
}

impl Farewell {
    pub(crate) fn new(
        publisher: Publisher,
        meters: Arc<Meters>,
        finished: watch::Sender<Option<Finish>>,
    ) -> Self {
        Farewell { publisher, meters, finished, said: false }
    }

    /// The node has left, or gave up on leaving.
    pub(crate) fn left(mut self, core: &leasehold_core::Node, clock: &Clock, finish: Finish) {
        let view = core.view(clock.read());
        self.say(&view, "the node left, and the store could not be told", finish);
    }

    /// The driver died.
    pub(crate) fn died(mut self, why: &str) {
        self.mourn(why);
    }

    fn mourn(&mut self, why: &str) {
        tracing::error!(
            node = self.meters.node(),
            why,
            "the driver died: all work is told to stop, the node holds nothing and takes nothing; start another one"
        );
        let last = self.publisher.last();
        self.say(&last, &format!("the driver died: {why}"), Finish::Unconfirmed);
    }

    fn say(&mut self, last: &View, why: &str, finish: Finish) {
        self.said = true;
        self.publisher.send(over(last.clone(), why));
        self.meters.gone();
        self.finished.send_replace(Some(finish));
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        if !self.said {
            self.mourn("it was dropped, because its runtime was shut down");
        }
    }
}

/// A view of a node that is no more: it has no session and holds nothing.
fn over(mut view: View, why: &str) -> View {
    if let Some(me) = view.me.as_mut().filter(|me| me.standing != "left") {
        (me.standing, me.standing_for_ms, me.cause) = ("left", 0, why.to_owned());
        (me.session, me.waiting_for, me.stop_in_ms) = (None, None, None);
        (me.renewals_failed, me.draining, me.held, me.wanted) = (0, false, 0, 0);
    }
    view
}
