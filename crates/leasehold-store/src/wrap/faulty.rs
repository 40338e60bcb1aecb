use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream;
use leasehold_core::store::{Lane, StoreError, StoreErrorKind, Swap, Swapped, WatchEvent};
use tokio::task::JoinSet;

use super::around::{Around, Call};
use super::rewatch::Rewatch;
use super::shared_rng::SharedRng;
use crate::{Store, SwapReply, Watch};

/// A store that fails: at random ([`Rates`]), or one by one as a test orders it
/// ([`Faulty::inject`]).
///
/// Writes that land late go on by themselves; they end when the last clone of this store is dropped.
#[derive(Clone)]
pub struct Faulty {
    inner: Arc<dyn Store>,
    day: Arc<Day>,
}

/// Something that goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The call fails, and nothing was sent.
    ErrorBefore,
    /// The call is carried out, and the caller gets an error.
    AnswerLost,
    /// The caller gets an error at once, and the writes land this long after. Of a call without writes, the same as
    /// [`Fault::ErrorBefore`].
    LandsLate(Duration),
    /// The call is carried out and answered, and this long after it arrives a second time.
    Doubled(Duration),
    /// The call takes this much longer, half of it before it is sent.
    Delayed(Duration),
    /// Only the first half of the swaps (rounded down) is sent, and the caller gets an error.
    Torn,
    /// All swaps are sent, and the first outcome and every second one after it come back as unknown.
    SomeUnknown,
}

/// How often each fault happens at random, in thousandths of all calls. All zero by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// See [`Fault::ErrorBefore`].
    pub error_before: u32,
    /// See [`Fault::AnswerLost`].
    pub answer_lost: u32,
    /// See [`Fault::LandsLate`].
    pub lands_late: u32,
    /// See [`Fault::Doubled`].
    pub doubled: u32,
    /// See [`Fault::Delayed`].
    pub delayed: u32,
    /// See [`Fault::Torn`].
    pub torn: u32,
    /// See [`Fault::SomeUnknown`].
    pub some_unknown: u32,
    /// How often a watch breaks, in thousandths of its events: it says so and goes on with a snapshot.
    pub watch_broken: u32,
    /// The longest delay, also before late and doubled writes land.
    pub delay_max: Duration,
}

struct Day {
    rng: SharedRng,
    rates: Mutex<Rates>,
    ordered: Mutex<BTreeMap<Call, VecDeque<Fault>>>,
    happened: Mutex<Vec<(Call, Fault)>>,
    late: Mutex<JoinSet<()>>,
}

impl Faulty {
    /// A store whose faults the seed decides. With rates of zero it works until [`Faulty::inject`] is called.
    pub fn new(inner: Arc<dyn Store>, rates: Rates, seed: u64) -> Self {
        let day = Day {
            rng: SharedRng::new(seed),
            rates: Mutex::new(rates),
            ordered: Mutex::default(),
            happened: Mutex::default(),
            late: Mutex::default(),
        };
        Faulty { inner, day: Arc::new(day) }
    }

    /// Lets this happen to the next call of that kind. Pending faults are used in order, before random ones.
    pub fn inject(&self, call: Call, fault: Fault) {
        lock(&self.day.ordered).entry(call).or_default().push_back(fault);
    }

    /// Changes how often things go wrong from now on.
    pub fn set_rates(&self, rates: Rates) {
        *lock(&self.day.rates) = rates;
    }

    /// What went wrong so far, in order.
    pub fn happened(&self) -> Vec<(Call, Fault)> {
        lock(&self.day.happened).clone()
    }

    /// Waits until every late and doubled write has landed.
    pub async fn all_landed(&self) {
        let mut late = std::mem::take(&mut *lock(&self.day.late));
        while late.join_next().await.is_some() {}
    }

    /// What goes wrong with this call, if anything.
    fn fault(&self, call: Call) -> Option<Fault> {
        let ordered = lock(&self.day.ordered).get_mut(&call).and_then(VecDeque::pop_front);
        let fault = ordered.or_else(|| self.by_chance())?;
        lock(&self.day.happened).push((call, fault));
        Some(fault)
    }

    fn by_chance(&self) -> Option<Fault> {
        let rates = *lock(&self.day.rates);
        let after = self.day.rng.between(Duration::ZERO, rates.delay_max);
        let mut drawn = self.day.rng.below(1000);
        let table = [
            (rates.error_before, Fault::ErrorBefore),
            (rates.answer_lost, Fault::AnswerLost),
            (rates.lands_late, Fault::LandsLate(after)),
            (rates.doubled, Fault::Doubled(after)),
            (rates.delayed, Fault::Delayed(after)),
            (rates.torn, Fault::Torn),
            (rates.some_unknown, Fault::SomeUnknown),
        ];
        for (rate, fault) in table {
            match drawn.checked_sub(u64::from(rate)) {
                Some(rest) => drawn = rest,
                None => return Some(fault),
            }
        }
        None
    }

    /// Sends the swaps after a while; no caller waits for the answer.
    fn send_late(&self, lane: Lane, swaps: &[Swap], after: Duration) {
        let (inner, swaps) = (self.inner.clone(), swaps.to_vec());
        let mut late = lock(&self.day.late);
        while late.try_join_next().is_some() {}
        late.spawn(async move {
            tokio::time::sleep(after).await;
            // The answer is lost: that is the fault.
            let _ = inner.swap(lane, &swaps).await;
        });
    }
}

impl Around for Faulty {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn around<T: Send>(
        &self,
        call: Call,
        sent: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        match self.fault(call) {
            Some(Fault::ErrorBefore | Fault::LandsLate(_)) => Err(unreachable()),
            Some(Fault::AnswerLost) => {
                sent.await?;
                Err(timed_out())
            }
            Some(Fault::Delayed(by)) => delayed(by, sent).await,
            // These only mean something for swaps, which are not sent through here.
            None | Some(Fault::Doubled(_) | Fault::Torn | Fault::SomeUnknown) => sent.await,
        }
    }

    async fn swapping(&self, lane: Lane, swaps: &[Swap]) -> Result<SwapReply, StoreError> {
        match self.fault(Call::Swap) {
            None => self.inner.swap(lane, swaps).await,
            Some(Fault::ErrorBefore) => Err(unreachable()),
            Some(Fault::AnswerLost) => {
                self.inner.swap(lane, swaps).await?;
                Err(timed_out())
            }
            Some(Fault::LandsLate(after)) => {
                self.send_late(lane, swaps, after);
                Err(timed_out())
            }
            Some(Fault::Doubled(after)) => {
                let answer = self.inner.swap(lane, swaps).await;
                self.send_late(lane, swaps, after);
                answer
            }
            Some(Fault::Delayed(by)) => delayed(by, self.inner.swap(lane, swaps)).await,
            Some(Fault::Torn) => {
                self.inner.swap(lane, &swaps[..swaps.len() / 2]).await?;
                Err(timed_out())
            }
            Some(Fault::SomeUnknown) => {
                let mut reply = self.inner.swap(lane, swaps).await?;
                reply.outcomes.iter_mut().step_by(2).for_each(|outcome| *outcome = Swapped::Unknown);
                Ok(reply)
            }
        }
    }

    fn around_another(&self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Faulty { inner, day: self.day.clone() })
    }

    fn watching(&self, watch: Watch) -> Watch {
        let rewatch = Rewatch::new(self.inner.clone(), watch);
        Box::pin(stream::unfold((rewatch, self.day.clone()), |(mut rewatch, day)| async move {
            let event = rewatch.next().await?;
            let broken = u64::from(lock(&day.rates).watch_broken);
            if broken == 0 || day.rng.below(1000) >= broken {
                return Some((event, (rewatch, day)));
            }
            rewatch.break_off();
            Some((WatchEvent::Interrupted("the watch broke".to_owned()), (rewatch, day)))
        }))
    }
}

async fn delayed<T>(
    by: Duration,
    sent: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::sleep(by / 2).await;
    let answer = sent.await;
    tokio::time::sleep(by - by / 2).await;
    answer
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unreachable() -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, "a fault on the way to the store")
}

fn timed_out() -> StoreError {
    StoreError::new(
        StoreErrorKind::TimedOut,
        "the answer was lost; the call may have been carried out, or may yet be",
    )
}
