use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{self, Either};
use futures::stream;
use leasehold_core::store::{StoreError, StoreErrorKind, WatchEvent};
use tokio::sync::Notify;

use super::around::{Around, Call};
use super::rewatch::Rewatch;
use crate::{Store, Watch};

/// A store behind a link that a test can cut, in either or both directions, and heal.
pub struct CutOff {
    inner: Arc<dyn Store>,
    link: Arc<SharedLink>,
}

/// What the link to the store lets through.
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
        CutOff { inner, link: Arc::new(SharedLink::whole()) }
    }

    /// Lets through from now on only what `link` does.
    pub fn set(&self, link: Link) {
        self.link.set(link);
    }

    /// Makes the link whole again.
    pub fn heal(&self) {
        self.set(Link::Whole);
    }

    /// What it lets through now.
    pub fn link(&self) -> Link {
        self.link.now().link
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
        let sent_on = self.link.until(|now| now.link != Link::Stalled).await;
        if sent_on.link == Link::Cut {
            return Err(cut("the link to the store is cut; nothing was sent"));
        }
        let broken = pin!(self.link.until(|now| now.cuts != sent_on.cuts));
        let answer = match future::select(pin!(sent), broken).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => return Err(cut("the link to the store was cut before it answered")),
        };
        let arrives_on = self.link.until(|now| !now.link.is_silent()).await;
        if arrives_on.link != Link::Whole || arrives_on.cuts != sent_on.cuts {
            return Err(cut("the store's answer was lost"));
        }
        answer
    }

    fn around_another(&self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(CutOff { inner, link: self.link.clone() })
    }

    fn watching(&self, watch: Watch) -> Watch {
        let rewatch = Rewatch::new(self.inner.clone(), watch);
        let watched = Watched { rewatch, breaks: self.link.now().breaks, link: self.link.clone() };
        Box::pin(stream::unfold(watched, |mut watched| async move {
            let event = watched.next().await?;
            Some((event, watched))
        }))
    }
}

/// A watch over the link.
struct Watched {
    rewatch: Rewatch,
    link: Arc<SharedLink>,
    /// The breaks of the link that the watch has reported, so that a short one between two polls is reported too.
    breaks: u64,
}

impl Watched {
    async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            let now = self.link.until(|now| !now.link.is_silent()).await;
            if now.breaks != self.breaks {
                self.breaks = now.breaks;
                self.rewatch.break_off();
                return Some(WatchEvent::Interrupted("the link to the store was cut".to_owned()));
            }
            self.link.until(|now| now.link == Link::Whole || now.breaks != self.breaks).await;
            let disturbed = pin!(self.link.until(|now| now.link != Link::Whole || now.breaks != self.breaks));
            match future::select(disturbed, pin!(self.rewatch.next())).await {
                Either::Left(_) => {}
                Either::Right((event, _)) => return event,
            }
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

/// The state of the link, and how often it broke. The counts show breaks that were over before anything polled.
#[derive(Clone, Copy, Debug)]
struct LinkState {
    link: Link,
    /// How often it was cut.
    cuts: u64,
    /// How often watches broke: with each cut, also one of the answers only.
    breaks: u64,
}

/// The link. Waiters are woken in the order in which they began to wait, so that runs repeat; tokio's `watch` channel
/// wakes them in any order.
struct SharedLink {
    state: Mutex<LinkState>,
    changed: Notify,
}

impl SharedLink {
    fn whole() -> Self {
        let state = LinkState { link: Link::Whole, cuts: 0, breaks: 0 };
        SharedLink { state: Mutex::new(state), changed: Notify::new() }
    }

    fn now(&self) -> LinkState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, link: Link) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.link = link;
        state.cuts += u64::from(link == Link::Cut);
        state.breaks += u64::from(matches!(link, Link::Cut | Link::AnswersCut));
        drop(state);
        self.changed.notify_waiters();
    }

    /// Waits until the link is as wanted, and says what it is then.
    async fn until(&self, wanted: impl Fn(LinkState) -> bool) -> LinkState {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let state = self.now();
            if wanted(state) {
                return state;
            }
            changed.await;
        }
    }
}
