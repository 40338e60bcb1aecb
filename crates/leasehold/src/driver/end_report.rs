//! The driver's end: however it ends, every caller learns of it.

use std::sync::Arc;

use leasehold_core::View;
use leasehold_core::notice::SessionState;
use tokio::sync::watch;

use super::{Finish, Publisher};
use crate::clock::Clock;
use crate::observe::Meters;

/// Reports the state of the node. If it is dropped early, the driver died, and it reports that.
pub(crate) struct EndReport {
    pub(crate) publisher: Publisher,
    pub(crate) meters: Arc<Meters>,
    pub(crate) finished: watch::Sender<Option<Finish>>,
    said: bool,
}

impl EndReport {
    pub(crate) fn new(
        publisher: Publisher,
        meters: Arc<Meters>,
        finished: watch::Sender<Option<Finish>>,
    ) -> Self {
        EndReport { publisher, meters, finished, said: false }
    }

    /// The node has left, or gave up on leaving.
    pub(crate) fn left(mut self, core: &leasehold_core::Node, clock: &Clock, finish: Finish) {
        let view = core.view(clock.read());
        self.say(&view, "the node left, but the store did not confirm it", finish);
    }

    /// The driver died.
    pub(crate) fn died(mut self, why: &str) {
        self.mourn(why);
    }

    fn mourn(&mut self, why: &str) {
        tracing::error!(
            node = self.meters.node(),
            why,
            "the driver died: all work is told to stop, and the node holds no shards; start a new node"
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

impl Drop for EndReport {
    fn drop(&mut self) {
        if !self.said {
            self.mourn("it was dropped, because its runtime was shut down");
        }
    }
}

/// A view of a node that is gone: it has no session and holds nothing.
fn over(mut view: View, why: &str) -> View {
    if let Some(me) = view.me.as_mut().filter(|me| me.session_state != SessionState::Left) {
        (me.session_state, me.session_state_for_ms, me.cause) = (SessionState::Left, 0, why.to_owned());
        (me.session, me.waiting_for, me.stop_in_ms) = (None, None, None);
        (me.renewals_failed, me.draining, me.held, me.wanted) = (0, false, 0, 0);
    }
    view
}
