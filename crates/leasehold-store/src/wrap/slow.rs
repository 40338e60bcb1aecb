use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use leasehold_core::store::{StoreError, WatchEvent};
use tokio::time::Sleep;

use super::around::{Around, Call};
use super::shared_rng::SharedRng;
use crate::{Store, Watch};

/// A store that is far away: every call takes longer, half of it on the way there and half on the way back. Watches
/// are late by half as much, in order.
pub struct Slow {
    inner: Arc<dyn Store>,
    latency: Arc<Mutex<Latency>>,
    rng: Arc<SharedRng>,
}

/// The round-trip time to the store: a random one between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// At least this.
    pub least: Duration,
    /// At most this.
    pub most: Duration,
}

impl Latency {
    /// Always the same.
    pub fn fixed(latency: Duration) -> Self {
        Latency { least: latency, most: latency }
    }
}

impl Slow {
    /// Adds this latency to a store.
    pub fn new(inner: Arc<dyn Store>, latency: Latency, seed: u64) -> Self {
        Slow { inner, latency: Arc::new(Mutex::new(latency)), rng: Arc::new(SharedRng::new(seed)) }
    }

    /// Changes the latency, for calls and watches that begin from now on.
    pub fn set_latency(&self, latency: Latency) {
        *self.latency.lock().unwrap_or_else(PoisonError::into_inner) = latency;
    }

    fn one_way(&self) -> Latency {
        let latency = *self.latency.lock().unwrap_or_else(PoisonError::into_inner);
        Latency { least: latency.least / 2, most: latency.most / 2 }
    }
}

impl Around for Slow {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn around<T: Send>(
        &self,
        _call: Call,
        sent: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let way = self.one_way();
        tokio::time::sleep(self.rng.between(way.least, way.most)).await;
        let answer = sent.await;
        tokio::time::sleep(self.rng.between(way.least, way.most)).await;
        answer
    }

    fn around_another(&self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Slow { inner, latency: self.latency.clone(), rng: self.rng.clone() })
    }

    fn watching(&self, watch: Watch) -> Watch {
        Box::pin(Late {
            watch,
            way: self.one_way(),
            rng: self.rng.clone(),
            under_way: VecDeque::new(),
            ended: false,
        })
    }
}

/// A watch whose events travel for a while. Many can be under way at once; none overtakes another.
struct Late {
    watch: Watch,
    way: Latency,
    rng: Arc<SharedRng>,
    under_way: VecDeque<(Pin<Box<Sleep>>, WatchEvent)>,
    ended: bool,
}

impl Stream for Late {
    type Item = WatchEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let late = &mut *self;
        while !late.ended {
            match late.watch.as_mut().poll_next(context) {
                Poll::Ready(Some(event)) => {
                    let travel_for = late.rng.between(late.way.least, late.way.most);
                    late.under_way.push_back((Box::pin(tokio::time::sleep(travel_for)), event));
                }
                Poll::Ready(None) => late.ended = true,
                Poll::Pending => break,
            }
        }
        let arrived = match late.under_way.front_mut() {
            Some((travel, _)) => travel.as_mut().poll(context).is_ready(),
            None => late.ended,
        };
        match arrived {
            true => Poll::Ready(late.under_way.pop_front().map(|(_, event)| event)),
            false => Poll::Pending,
        }
    }
}
