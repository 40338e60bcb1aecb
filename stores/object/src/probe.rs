//! Checks that a bucket honours conditional writes. Before anything else is written to it, it must refuse writes whose
//! condition does not hold, let exactly one of several racing writers win, and list what was written.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Either, Shared, select, try_join_all};
use leasehold_store::{StoreError, StoreErrorKind, rng};
use serde::Deserialize;
use tokio::sync::oneshot;

use crate::client::{Condition, Got, Mark, ObjectClient, Refusal};
use crate::error::{failed, refused};
use crate::http;
use crate::target::Target;

/// The folder of the objects that are written to find out. It lies beside the namespaces, and is never deleted.
pub(crate) const SCRATCH: &str = "leasehold-probe";
/// In how many folders there are such objects. A check races in one of them, by chance, so that those of many nodes that
/// start at once seldom meet: some servers take a second for every write that meets another one.
const SETS: u128 = 32;
/// How many objects are raced for, and how many writers race for each. Every race costs a read as well.
const RACES: usize = 8;
const RACERS: usize = 8;
/// The size of what is written, about that of a page: servers that compare first and write later take a while to do so.
const BODY_BYTES: usize = 32 * 1024;
/// The time between the beginnings of two races.
const BETWEEN: Duration = Duration::from_millis(120);
/// How often an object is raced for while others check the same bucket.
const TRIES: usize = 10;
/// The pause before the next try.
const PAUSE: Duration = Duration::from_millis(200);

/// What this process has found out about buckets.
static PROBED: Mutex<BTreeMap<String, ProbeResult>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Debug)]
enum ProbeResult {
    /// It honoured all conditions.
    Good,
    /// It broke a condition. This result stays: a server that is wrong once in a while would pass the next check, or the one
    /// after that.
    Bad(StoreError),
}

fn probed() -> MutexGuard<'static, BTreeMap<String, ProbeResult>> {
    PROBED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The check of one bucket, which is made once a process.
#[derive(Debug)]
pub(crate) struct Probe {
    wire: ObjectClient,
    name: String,
    /// The check that is under way. It goes on when its caller stops waiting: each try to join, or to register a key,
    /// may be shorter than the check.
    running: Mutex<Option<Running>>,
}

type Running = Shared<BoxFuture<'static, Result<(), StoreError>>>;

impl Probe {
    /// A check in the folder that all namespaces are in, over its own connections: they belong to the thread of the
    /// check, and end with it.
    pub(crate) fn new(wire: ObjectClient, target: &Target) -> Self {
        let name = format!("{}/{}", target.place(), target.prefix);
        Probe { wire, name, running: Mutex::default() }
    }

    /// Fails if this process has found the bucket to be bad. Sends nothing.
    pub(crate) fn check_verdict(&self) -> Result<(), StoreError> {
        match probed().get(&self.name) {
            Some(ProbeResult::Bad(error)) => Err(error.clone()),
            Some(ProbeResult::Good) | None => Ok(()),
        }
    }

    /// Passes if this process has found the bucket to be good, now or earlier.
    pub(crate) async fn pass(&self) -> Result<(), StoreError> {
        match probed().get(&self.name) {
            Some(ProbeResult::Good) => return Ok(()),
            Some(ProbeResult::Bad(error)) => return Err(error.clone()),
            None => {}
        }
        self.look().await
    }

    /// Checks the bucket, whatever is known of it. That it passes now does not undo that it was found to be bad.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        self.look().await
    }

    async fn look(&self) -> Result<(), StoreError> {
        let running = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            match &*running {
                // The next call repeats a check that ended without a verdict, even if no caller waited for its end.
                Some(running) if running.peek().is_none() => running.clone(),
                _ => running.insert(Check::start(self.wire.clone(), &self.name)?).clone(),
            }
        };
        let outcome = running.await;
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take_if(|check| check.peek().is_some());
        outcome
    }
}

/// A race that one writer won, and the writes that are said to have lost it.
struct Race {
    lost: Vec<String>,
}

#[derive(Deserialize)]
struct Written {
    write: String,
}

/// Races begin one after the other, so that no two are in each other's way, and do not wait for each other's end: some
/// servers make the losers wait.
async fn turn_of(object: usize) {
    tokio::time::sleep(BETWEEN * object as u32).await;
}

/// What a check needs.
#[derive(Debug)]
struct Check {
    wire: ObjectClient,
    name: String,
    /// The folder of the objects that it races for.
    folder: String,
}

/// An object of the check, as it was read.
struct Found {
    mark: Mark,
    /// Which write made it so.
    write: Option<String>,
}

impl Check {
    /// Starts a check on a thread of its own, where it goes on even if no caller waits for it. It ends with its
    /// probe.
    fn start(wire: ObjectClient, name: &str) -> Result<Running, StoreError> {
        let set = rng::bits()? % SETS;
        let check = Check { wire, name: name.to_owned(), folder: format!("{SCRATCH}/{set:02}") };
        let stopped = |why: &dyn std::fmt::Display| {
            failed(StoreErrorKind::Unreachable, format!("cannot start the check of the bucket: {why}"))
        };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| stopped(&e))?;
        let (mut told, outcome) = oneshot::channel();
        let work = async move {
            let ended = {
                let (run, unwanted) = (std::pin::pin!(check.judged()), std::pin::pin!(told.closed()));
                match select(run, unwanted).await {
                    Either::Left((outcome, _)) => Some(outcome),
                    Either::Right(_) => None,
                }
            };
            if let Some(outcome) = ended {
                let _ = told.send(outcome);
            }
        };
        std::thread::Builder::new()
            .name("leasehold-probe".to_owned())
            .spawn(move || {
                runtime.block_on(work);
                // A DNS lookup that is under way must not delay the end.
                runtime.shutdown_background();
            })
            .map_err(|e| stopped(&e))?;
        let ended = move |_| failed(StoreErrorKind::Unreachable, "the check of the bucket was aborted");
        Ok(async move { outcome.await.map_err(ended)? }.boxed().shared())
    }

    /// Makes the check, and remembers what was found. Failures that say nothing are not remembered.
    async fn judged(&self) -> Result<(), StoreError> {
        let outcome = self.run().await;
        let mut probed = probed();
        if let Some(ProbeResult::Bad(error)) = probed.get(&self.name) {
            return Err(error.clone());
        }
        if outcome.is_ok() {
            probed.insert(self.name.clone(), ProbeResult::Good);
        }
        outcome
    }

    async fn run(&self) -> Result<(), StoreError> {
        // Connections are made now, so that they do not keep racers apart.
        try_join_all((0..RACERS).map(|_| self.read(0))).await?;
        let found = try_join_all((0..RACES).map(|object| self.created(object))).await?;
        let stale = found[RACES - 1].mark.clone();
        let races = found.into_iter().enumerate().map(|(object, found)| self.race_once_won(object, found));
        try_join_all(races).await?;
        match self.write(0, Condition::Absent).await.1 {
            Err(Refusal::Lost) => {}
            Ok(_) => {
                return Err(self.bad("ignores If-None-Match: it let an existing object be created again"));
            }
            Err(other) => return Err(reason(other)),
        }
        match self.write(RACES - 1, Condition::Is(stale)).await.1 {
            Err(Refusal::Lost) => {}
            Ok(_) => {
                return Err(self.bad("ignores If-Match: it let an object be replaced that had changed"));
            }
            Err(other) => return Err(reason(other)),
        }
        let listed = self.wire.list(&self.folder).await?;
        let shown = |object: usize| {
            listed.iter().any(|found| found.object == self.object(object) && !found.etag.is_empty())
        };
        match (0..RACES).all(shown) {
            true => Ok(()),
            false => Err(self.bad("does not list what was written to it, with its ETag")),
        }
    }

    /// The object, made if it is not there.
    async fn created(&self, object: usize) -> Result<Found, StoreError> {
        turn_of(object).await;
        for _ in 0..TRIES {
            if let Some(found) = self.read(object).await? {
                return Ok(found);
            }
            if self.race(object, None).await?.is_some() && self.read(object).await?.is_none() {
                return Err(self.bad("lost an object that was written to it"));
            }
            tokio::time::sleep(PAUSE / 2 + rng::up_to(PAUSE / 2)).await;
        }
        Err(self.busy())
    }

    /// Races until one of ours won. Others may check the same bucket at the same time.
    async fn race_once_won(&self, object: usize, mut current: Found) -> Result<(), StoreError> {
        turn_of(object).await;
        for _ in 0..TRIES {
            let won = self.race(object, Some(&current.mark)).await?;
            let now =
                self.read(object).await?.ok_or_else(|| self.bad("lost an object that was written to it"))?;
            if let Some(race) = won {
                return match now.write.is_some_and(|write| race.lost.contains(&write)) {
                    true => Err(self.bad("stored a write that it said it had refused")),
                    false => Ok(()),
                };
            }
            if now.mark == current.mark {
                // No writer won, and no other client wrote: the server is too busy to report the winner.
                tokio::time::sleep(PAUSE / 2 + rng::up_to(PAUSE / 2)).await;
            }
            current = now;
        }
        Err(self.busy())
    }

    /// Lets writers race for an object; what became of those that lost, if one won.
    async fn race(&self, object: usize, current: Option<&Mark>) -> Result<Option<Race>, StoreError> {
        let condition = current.map_or(Condition::Absent, |mark| Condition::Is(mark.clone()));
        let writes = (0..RACERS).map(|_| self.write(object, condition.clone()));
        let (mut winners, mut lost) = (0, Vec::new());
        for (id, outcome) in http::together(writes).await {
            match outcome {
                Ok(_) => winners += 1,
                Err(Refusal::Failed(error)) => return Err(error),
                Err(Refusal::Lost) => lost.push(id),
                Err(Refusal::Unknown(_)) => {}
            }
        }
        match winners {
            0 => Ok(None),
            1 => Ok(Some(Race { lost })),
            _ => Err(self.bad(&format!("let {winners} of {RACERS} racing writers win the same object"))),
        }
    }

    async fn read(&self, object: usize) -> Result<Option<Found>, StoreError> {
        Ok(match self.wire.get(&self.object(object), None).await? {
            Got::Found { mark, body, .. } => {
                let written: Option<Written> = serde_json::from_slice(&body).ok();
                Some(Found { mark, write: written.map(|written| written.write) })
            }
            Got::Same | Got::Nothing => None,
        })
    }

    /// Writes an object; the id of the write, and what became of it.
    async fn write(&self, object: usize, condition: Condition) -> (String, Result<Mark, Refusal>) {
        let id = match rng::fresh_id() {
            Ok(id) => id,
            Err(error) => return (String::new(), Err(Refusal::Failed(error))),
        };
        let body = format!(
            "{{\"what\":\"Leasehold checks that this store honours conditions\",\"write\":\"{id}\",\"filler\":\"{}\"}}\n",
            "x".repeat(BODY_BYTES)
        );
        (id, self.wire.put(&self.object(object), body.into_bytes(), condition).await)
    }

    fn object(&self, object: usize) -> String {
        format!("{}/{object}.json", self.folder)
    }

    /// The bucket does not honour conditions. Remembered at once, whatever else the check finds.
    fn bad(&self, what: &str) -> StoreError {
        let error = refused(format!(
            "{} {what}. Two nodes could hold one shard, so it must not be used. Nothing but {SCRATCH}/ was \
             written",
            self.wire.place()
        ));
        probed().insert(self.name.clone(), ProbeResult::Bad(error.clone()));
        error
    }

    fn busy(&self) -> StoreError {
        let place = self.wire.place();
        failed(
            StoreErrorKind::Busy,
            format!(
                "{place} could not be checked: too many other clients write to {SCRATCH}/; the check will be tried again"
            ),
        )
    }
}

fn reason(refusal: Refusal) -> StoreError {
    match refusal {
        Refusal::Failed(error) | Refusal::Unknown(error) => error,
        Refusal::Lost => failed(StoreErrorKind::Busy, "another write was faster"),
    }
}
