use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{self, Either};
use futures::stream;
use leasehold_core::store::{StoreError, StoreErrorKind, WatchEvent};
use tokio::sync::Notify;

use super::around::{Around, Call, registry_around, store_around};
use super::rewatch::Rewatch;
use crate::{Store, Watch};

/// A store behind a link that a test can cut, in either or both directions, and heal.
pub struct CutOff {
    inner: Arc<dyn Store>,
    line: Arc<Line>,
}

/// What the way to the store lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Everything.
    Whole,
    /// Nothing: calls fail at once without being sent, calls under way fail, watches break.
    Cut,
    /// Calls are carried out, but each answer is lost and the caller gets an error; watches break.
    AnswersCut,
    /// Nothing moves: calls are not sent and not refused, watches are silent. After healing, calls that are still
    /// waited for are sent, and watches go on.
    Stalled,
    /// Calls are carried out, but answers and watches are silent until the link heals.
    AnswersStalled,
}

impl CutOff {
    /// Puts a link in front of a store; it is whole at first.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        CutOff { inner, line: Arc::new(Line { link: Mutex::new(Link::Whole), changed: Notify::new() }) }
    }

    /// Lets through from now on only what `link` does.
    pub fn set(&self, link: Link) {
        self.line.set(link);
    }

    /// Makes the link whole again.
    pub fn heal(&self) {
        self.set(Link::Whole);
    }

    /// What it lets through now.
    pub fn link(&self) -> Link {
        self.line.link()
    }
}

impl Around for CutOff {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn around<T: Send>(
        &self,
        _call: Call,
        sent: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        if self.line.until(|link| link != Link::Stalled).await == Link::Cut {
            return Err(cut("the link to the store is cut; nothing was sent"));
        }
        let broken = pin!(self.line.until(|link| link == Link::Cut));
        let answer = match future::select(pin!(sent), broken).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => return Err(cut("the link to the store was cut before it answered")),
        };
        match self.line.until(|link| !link.is_silent()).await {
            Link::Cut | Link::AnswersCut => Err(cut("the store's answer was lost")),
            _ => answer,
        }
    }

    fn watching(&self, watch: Watch) -> Watch {
        let rewatch = Rewatch::new(self.inner.clone(), watch);
        Box::pin(stream::unfold((rewatch, self.line.clone()), |(mut rewatch, line)| async move {
            let event = next_event(&mut rewatch, &line).await?;
            Some((event, (rewatch, line)))
        }))
    }
}

store_around!(CutOff);
registry_around!(CutOff);

async fn next_event(rewatch: &mut Rewatch, line: &Line) -> Option<WatchEvent> {
    loop {
        if line.until(|link| !link.is_silent()).await != Link::Whole {
            if rewatch.break_off() {
                return Some(WatchEvent::Interrupted("the link to the store is cut".to_owned()));
            }
            line.until(|link| link == Link::Whole).await;
        }
        let disturbed = pin!(line.until(|link| link != Link::Whole));
        match future::select(disturbed, pin!(rewatch.next())).await {
            Either::Left(_) => {}
            Either::Right((event, _)) => return event,
        }
    }
}

impl Link {
    /// Whether answers and watches are held back, rather than let through or lost.
    fn is_silent(self) -> bool {
        matches!(self, Link::Stalled | Link::AnswersStalled)
    }
}

fn cut(message: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, message)
}

/// The state of the link. Waiters are woken in the order in which they began to wait, so that runs repeat; tokio's
/// `watch` channel wakes them in any order.
struct Line {
    link: Mutex<Link>,
    changed: Notify,
}

impl Line {
    fn link(&self) -> Link {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, link: Link) {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = link;
        self.changed.notify_waiters();
    }

    /// Waits until the link is as wanted, and says what it is then.
    async fn until(&self, wanted: impl Fn(Link) -> bool) -> Link {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let link = self.link();
            if wanted(link) {
                return link;
            }
            changed.await;
        }
    }
}
