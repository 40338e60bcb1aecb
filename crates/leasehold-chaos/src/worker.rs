//! The work that nodes run under chaos: it does nothing but record when it ran.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Grant, Outcome, clock};
use leasehold_core::Moment;

use crate::measure::{DETACHED, MOVING};
use crate::record::{Recorder, Recording, WorkStart};

/// How workers work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// How often each asks whether it may go on, and notes that it ran.
    pub beat_every: Duration,
    /// How long after `stop_at` a grant ends, for the record.
    pub margin: Duration,
    /// Whether they stop when told to.
    pub obedience: Obedience,
}

/// Whether a worker stops when told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obedience {
    /// It asks before every beat.
    Obeys,
    /// It goes on when its lease is lost, on a thread that cannot be cut off. Used to show that this is noticed.
    IgnoresItsLease,
}

/// Works on a shard until it is told to stop or its grant is lost.
///
/// The clock is read before the grant is asked, so that every moment that is written down is one at which this worker
/// ran and after which its grant was still good.
pub async fn work(recorder: Arc<Recorder>, manner: Manner, grant: Grant) -> Outcome {
    let Some((at, stop_at)) = allowed(&grant) else { return Ok(()) };
    let mut recording = recorder.begin(WorkStart {
        shard: grant.shard().clone(),
        epoch: grant.epoch(),
        beat_at: at,
        stop_at,
        margin: manner.margin,
        beat_every: manner.beat_every,
    })?;
    if manner.obedience == Obedience::IgnoresItsLease {
        return go_on_regardless(recording, manner, grant).await;
    }
    loop {
        let Some((at, stop_at)) = allowed(&grant) else { return Ok(recording.end(DETACHED)?) };
        recording.beat(at, stop_at)?;
        if grant.stopping().is_cancelled() {
            return Ok(recording.end(MOVING)?);
        }
        tokio::select! {
            () = grant.stopped() => {}
            () = tokio::time::sleep(manner.beat_every) => {}
        }
    }
}

/// A moment at which the work ran, and when it has to stop, if its grant is good.
fn allowed(grant: &Grant) -> Option<(Moment, Moment)> {
    let at = clock::now();
    let stop_at = grant.deadline();
    grant.check().ok().map(|()| (at, stop_at))
}

/// Stops for a planned move, but never because the lease was lost.
async fn go_on_regardless(recording: Recording, manner: Manner, grant: Grant) -> Outcome {
    let working = tokio::task::spawn_blocking(move || -> io::Result<()> {
        let mut recording = recording;
        loop {
            let at = clock::now();
            recording.beat(at, grant.deadline())?;
            if grant.stopping().is_cancelled() && grant.check().is_ok() {
                return recording.end(MOVING);
            }
            std::thread::sleep(manner.beat_every);
        }
    });
    working.await??;
    Ok(())
}
