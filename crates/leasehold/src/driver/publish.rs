//! Publishes the view on change, and not too often.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Moment, View};
use tokio::sync::watch;

use crate::clock::Clock;

/// The shortest time between two views.
const EVERY_MIN: Duration = Duration::from_millis(100);
/// A view that takes long to make is made less often: at most this part of the time is spent on it.
const SHARE: u32 = 20;

/// Publishes the view of one core.
pub(crate) struct Publisher {
    views: watch::Sender<Arc<View>>,
    due_at: Moment,
    not_before: Moment,
}

impl Publisher {
    pub(crate) fn new(first: View) -> (Self, watch::Receiver<Arc<View>>) {
        let (views, receiver) = watch::channel(Arc::new(first));
        (Publisher { views, due_at: Moment::NEVER, not_before: Moment::ZERO }, receiver)
    }

    /// Something may have changed.
    pub(crate) fn changed(&mut self, now: Moment) {
        self.due_at = self.due_at.min(self.not_before.max(now));
    }

    /// When the next view is due.
    pub(crate) fn due_at(&self) -> Moment {
        self.due_at
    }

    /// The view that was published last.
    pub(crate) fn last(&self) -> Arc<View> {
        self.views.borrow().clone()
    }

    /// Publishes a view that was made elsewhere.
    pub(crate) fn send(&self, view: View) {
        self.views.send_replace(Arc::new(view));
    }

    /// Makes and publishes a view.
    pub(crate) fn publish(&mut self, core: &leasehold_core::Node, clock: &Clock) -> Arc<View> {
        let began_at = clock.now();
        let view = Arc::new(core.view(clock.read()));
        self.views.send_replace(view.clone());
        let now = clock.now();
        // Before the groups are known a view is cheap, and the holder of the first shard must find its group in it.
        let every_min = if view.groups.is_empty() { Duration::ZERO } else { EVERY_MIN };
        self.not_before = now + every_min.max(now.since(began_at) * SHARE);
        self.due_at = Moment::NEVER;
        view
    }
}
