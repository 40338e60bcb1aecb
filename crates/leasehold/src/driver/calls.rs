//! Requests to the store and their answers, each request on its own task with its own time limit; and the watch.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use leasehold_core::store::{Answer, Lane, Op, Request, StoreError, StoreErrorKind, WatchEvent};
use leasehold_core::{Event, SessionId};
use leasehold_store::{Store, StoreExt};
use tokio::sync::OnceCell;
use tokio::sync::mpsc::{Sender, UnboundedSender};

use super::Input;
use super::executor::panic_text;
use crate::clock::Clock;
use crate::observe::Meters;
use crate::rng;
use crate::tasks::Tasks;

/// The longest time for one try to open a watch.
const WATCH_OPENS_WITHIN: Duration = Duration::from_secs(10);
/// The first and the longest pause before a watch is opened again.
const WATCH_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Sends requests to the store. No request waits for another one: a call that hangs is dropped when its time is up.
pub(crate) struct Calls {
    store: Arc<dyn Store>,
    clock: Clock,
    tasks: Tasks,
    inputs: UnboundedSender<Input>,
    meters: Arc<Meters>,
    claim: Option<Arc<Claim>>,
}

/// A session that the store must know of before its first renewal.
struct Claim {
    session: SessionId,
    done: OnceCell<()>,
}

impl Calls {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        tasks: Tasks,
        inputs: UnboundedSender<Input>,
        meters: Arc<Meters>,
    ) -> Self {
        Calls { store, clock, tasks, inputs, meters, claim: None }
    }

    /// Tells the store of this session before the next request of the renewal lane.
    pub(crate) fn open_session(&mut self, session: SessionId) {
        let former = self.claim.replace(Arc::new(Claim { session, done: OnceCell::new() }));
        if let Some(former) = former {
            self.store.release_session(former.session);
        }
    }

    /// The last session is over, and none of its work runs.
    pub(crate) fn close_session(&mut self) {
        if let Some(last) = self.claim.take() {
            self.store.release_session(last.session);
        }
    }

    /// Sends a request; the answer comes as an input.
    pub(crate) fn ask(&self, request: Request) {
        let Request { id, lane, op, give_up_at } = request;
        let (store, clock) = (self.store.clone(), self.clock.clone());
        let (inputs, meters) = (self.inputs.clone(), self.meters.clone());
        let claim = self.claim.clone().filter(|_| lane == Lane::Renewal);
        self.tasks.spawn(async move {
            let began_at = clock.now();
            let answer = if began_at >= give_up_at {
                Err(timed_out("it was not sent because its deadline had passed"))
            } else {
                let call = AssertUnwindSafe(perform(&*store, claim.as_deref(), lane, &op)).catch_unwind();
                match clock.timeout_at(give_up_at, call).await {
                    Some(Ok(answer)) => answer,
                    Some(Err(panic)) => Err(StoreError::new(
                        StoreErrorKind::Damaged,
                        format!("the store's client panicked: {}", panic_text(&*panic)),
                    )),
                    None => Err(unanswered(&*store, "no answer in time")),
                }
            };
            meters.store_call(lane, &op, answer.is_ok(), clock.now().since(began_at));
            let answer = answer.unwrap_or_else(Answer::Failed);
            let _ = inputs.send(Input::Core(Event::Answered(id, answer)));
        });
    }

    /// Follows the store's watch for as long as the driver lives.
    pub(crate) fn follow(&self, watched: Sender<WatchEvent>) {
        self.tasks.spawn(follow(self.store.clone(), self.clock.clone(), watched));
    }

    /// The tasks that end with the driver.
    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }
}

/// The error of a call that timed out, with what delayed it if the store knows.
pub(crate) fn unanswered(store: &dyn Store, what: &str) -> StoreError {
    match store.held_up_by() {
        Some(why) => timed_out(&format!("{what}: {why}")),
        None => timed_out(what),
    }
}

fn timed_out(message: &str) -> StoreError {
    StoreError::new(StoreErrorKind::TimedOut, message)
}

async fn perform(
    store: &dyn Store,
    claim: Option<&Claim>,
    lane: Lane,
    op: &Op,
) -> Result<Answer, StoreError> {
    if let Some(claim) = claim {
        claim.done.get_or_try_init(|| store.claim_session(claim.session)).await?;
    }
    let answer = match op {
        Op::Read(keys) => {
            let reading = store.read(keys).await?;
            expect(keys.len(), reading.found.len())?;
            Answer::Read { found: reading.found, generation: reading.generation }
        }
        Op::List => Answer::Listed(store.list().await?),
        Op::ListNodes => Answer::Listed(store.list_nodes().await?),
        Op::Swap(swaps) => {
            let reply = store.swap(lane, swaps).await?;
            expect(swaps.len(), reply.outcomes.len())?;
            Answer::Swapped { outcomes: reply.outcomes, generation: reply.generation }
        }
    };
    Ok(answer)
}

fn expect(asked: usize, answered: usize) -> Result<(), StoreError> {
    if asked == answered {
        return Ok(());
    }
    let message = format!("the store answered {answered} of {asked} reads");
    Err(StoreError::new(StoreErrorKind::Damaged, message))
}

/// Passes on the events of the watch, and reopens it without end, with growing pauses. Each gap is reported once; only a
/// store without a watch ends this.
pub(crate) async fn follow(store: Arc<dyn Store>, clock: Clock, watched: Sender<WatchEvent>) {
    let mut pause = WATCH_PAUSE.0;
    let mut gap_told = false;
    loop {
        let opening = clock.timeout_at(clock.now() + WATCH_OPENS_WITHIN, store.watch());
        let why = match AssertUnwindSafe(opening).catch_unwind().await {
            Ok(Some(Ok(None))) => return,
            Ok(Some(Ok(Some(mut watch)))) => loop {
                match AssertUnwindSafe(watch.next()).catch_unwind().await {
                    Ok(Some(event)) => {
                        if matches!(event, WatchEvent::Snapshot(_)) {
                            pause = WATCH_PAUSE.0;
                        }
                        gap_told = matches!(event, WatchEvent::Interrupted(_));
                        if watched.send(event).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => break "the watch ended".to_owned(),
                    Err(panic) => break format!("the watch panicked: {}", panic_text(&*panic)),
                }
            },
            Ok(Some(Err(error))) => error.to_string(),
            Ok(None) => "the watch did not open in time".to_owned(),
            Err(panic) => format!("the watch panicked: {}", panic_text(&*panic)),
        };
        tracing::debug!(%why, "reopening the watch");
        if !gap_told && watched.send(WatchEvent::Interrupted(why)).await.is_err() {
            return;
        }
        gap_told = true;
        clock.sleep(pause + rng::up_to(pause)).await;
        pause = (pause * 2).min(WATCH_PAUSE.1);
    }
}
