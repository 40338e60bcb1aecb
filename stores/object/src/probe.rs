//! Whether a bucket keeps its word: before anything is written to it, it must refuse writes whose condition does not
//! hold, and of several writers that race it must let one win.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, join_all};
use leasehold_store::{StoreError, StoreErrorKind, chance};

use crate::target::Target;
use crate::trouble::{failed, refused};
use crate::wire::{Condition, Got, Mark, Refusal, Wire};

/// The object that is written to find out. It lies beside the namespaces, and is never deleted.
const SCRATCH: &str = "leasehold-probe.json";
/// How many writers race, and how often.
const RACERS: usize = 4;
const RACES: usize = 2;
/// How often the object is looked for while others probe the same bucket.
const TRIES: usize = 10;
/// The pause before it is looked at again.
const PAUSE: Duration = Duration::from_millis(200);

/// The buckets that this process has found to be good.
static PASSED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The check of one bucket, which is made once a process.
#[derive(Debug)]
pub(crate) struct Probe {
    check: Check,
    /// The check that is under way. It goes on where it was when whoever waited for it gives up: each try to join may
    /// be shorter than the check.
    running: Mutex<Option<Running>>,
}

type Running = Shared<BoxFuture<'static, Result<(), StoreError>>>;

impl Probe {
    /// A check in the folder that all namespaces are in.
    pub(crate) fn new(wire: Wire, target: &Target) -> Self {
        let name = format!("{}/{}", target.place(), target.prefix);
        Probe { check: Check { wire, name }, running: Mutex::default() }
    }

    /// Passes if this process has found the bucket to be good, now or earlier.
    pub(crate) async fn pass(&self) -> Result<(), StoreError> {
        if PASSED.lock().unwrap_or_else(PoisonError::into_inner).contains(&self.check.name) {
            return Ok(());
        }
        let running = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            let begin = || {
                let check = self.check.clone();
                async move { check.run().await }.boxed().shared()
            };
            running.get_or_insert_with(begin).clone()
        };
        let outcome = running.await;
        // A check that failed is made anew by the next call.
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if outcome.is_ok() {
            PASSED.lock().unwrap_or_else(PoisonError::into_inner).insert(self.check.name.clone());
        }
        outcome
    }

    /// Checks the bucket, whatever is known of it.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        PASSED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.check.name);
        self.pass().await
    }
}

/// What a check needs.
#[derive(Clone, Debug)]
struct Check {
    wire: Wire,
    name: String,
}

impl Check {
    async fn run(&self) -> Result<(), StoreError> {
        let first = self.create().await?;
        match self.write(Condition::Absent).await {
            Err(Refusal::Lost) => {}
            Ok(_) => {
                return Err(self.bad("ignores If-None-Match: it let an object be created that was there"));
            }
            Err(other) => return Err(reason(other)),
        }
        let mut current = first.clone();
        for _ in 0..RACES {
            current = self.race_once_won(current).await?;
        }
        match self.write(Condition::Is(first)).await {
            Err(Refusal::Lost) => Ok(()),
            Ok(_) => {
                Err(self.bad("ignores If-Match: it let an object be replaced that had changed meanwhile"))
            }
            Err(other) => Err(reason(other)),
        }
    }

    /// The object, made if it is not there.
    async fn create(&self) -> Result<Mark, StoreError> {
        for _ in 0..TRIES {
            if let Some(mark) = self.read().await? {
                return Ok(mark);
            }
            if self.race(None).await? && self.read().await?.is_none() {
                return Err(self.bad("forgets what it was given"));
            }
            tokio::time::sleep(PAUSE / 2 + chance::up_to(PAUSE / 2)).await;
        }
        Err(self.busy())
    }

    /// Races until one of ours won. Others may probe the same bucket at the same time.
    async fn race_once_won(&self, mut current: Mark) -> Result<Mark, StoreError> {
        for _ in 0..TRIES {
            let won = self.race(Some(current.clone())).await?;
            let now = self.read().await?.ok_or_else(|| self.bad("forgets what it was given"))?;
            if won {
                return Ok(now);
            }
            if now == current {
                // Nobody won, and nobody else wrote: a server that is too busy to say who did.
                tokio::time::sleep(PAUSE / 2 + chance::up_to(PAUSE / 2)).await;
            }
            current = now;
        }
        Err(self.busy())
    }

    async fn race(&self, current: Option<Mark>) -> Result<bool, StoreError> {
        let condition = current.map_or(Condition::Absent, Condition::Is);
        let writes = (0..RACERS).map(|_| self.write(condition.clone()));
        let mut winners = 0;
        for outcome in join_all(writes).await {
            match outcome {
                Ok(_) => winners += 1,
                Err(Refusal::Failed(error)) => return Err(error),
                Err(Refusal::Lost | Refusal::Unknown(_)) => {}
            }
        }
        match winners {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.bad(&format!("let {winners} of {RACERS} writers win that raced for one object"))),
        }
    }

    async fn read(&self) -> Result<Option<Mark>, StoreError> {
        Ok(match self.wire.get(SCRATCH, None).await? {
            Got::Found { mark, .. } => Some(mark),
            Got::Same | Got::Nothing => None,
        })
    }

    async fn write(&self, condition: Condition) -> Result<Mark, Refusal> {
        let id = chance::fresh_id().map_err(Refusal::Failed)?;
        let body = format!(
            "{{\"what\":\"Leasehold checks that this store honours conditions\",\"write\":\"{id}\"}}\n"
        );
        self.wire.put(SCRATCH, body.into_bytes(), condition).await
    }

    fn bad(&self, what: &str) -> StoreError {
        refused(format!(
            "{} {what}. Two nodes could hold one shard, so that it must not be used. Nothing but {SCRATCH} was written",
            self.wire.place()
        ))
    }

    fn busy(&self) -> StoreError {
        let place = self.wire.place();
        failed(
            StoreErrorKind::Busy,
            format!("{place} could not be checked: too many others write to {SCRATCH}; it is tried again"),
        )
    }
}

fn reason(refusal: Refusal) -> StoreError {
    match refusal {
        Refusal::Failed(error) | Refusal::Unknown(error) => error,
        Refusal::Lost => failed(StoreErrorKind::Busy, "a write was lost to another"),
    }
}
