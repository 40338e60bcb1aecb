//! Rewrites a record that others also write: read, change, swap, and repeat until it succeeds.

use std::time::Duration;

use leasehold_core::record::Record;
use leasehold_core::store::{Key, Lane, StoreError, StoreErrorKind, Stored, Swap, Swapped};
use leasehold_store::Store;

use crate::clock::Clock;
use crate::error::Error;
use crate::rng;

/// How many times a rewrite is tried before it fails because of other writers.
const TRIES_MAX: u32 = 32;
/// How long one call may take.
const CALL_WITHIN: Duration = Duration::from_secs(5);

/// What a rewrite does with a record.
pub(super) enum Change<R> {
    /// Keep the record.
    Keep,
    /// Write this.
    Write(R),
    /// Remove it.
    Remove,
}

/// Reads and rewrites single records.
pub(super) struct RecordEditor<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) clock: &'a Clock,
}

impl RecordEditor<'_> {
    /// Changes one record. `change` is called again on the current record after each swap that was lost or in doubt,
    /// so it must be idempotent: on its own result it returns [`Change::Keep`].
    pub(super) async fn rewrite<R: Record>(
        &self,
        what: &str,
        key: &Key,
        mut change: impl FnMut(Option<R>) -> Result<Change<R>, Error>,
    ) -> Result<(), Error> {
        let mut doubt = None;
        for tries in 0..TRIES_MAX {
            if tries > 0 {
                self.clock.sleep(rng::up_to(Duration::from_millis(5 * u64::from(tries.min(20))))).await;
            }
            let stored = self.read(key).await.map_err(|error| match doubt {
                Some(_) => Error::store(what, error),
                None => Error::unread(what, error),
            })?;
            let record = match &stored {
                Some(stored) => Some(decode::<R>(what, key, &stored.value)?),
                None => None,
            };
            let value = match change(record)? {
                Change::Keep => return Ok(()),
                Change::Write(mut record) => {
                    record.set_write(rng::write_id());
                    Some(record.encode().into())
                }
                Change::Remove if stored.is_none() => return Ok(()),
                Change::Remove => None,
            };
            let swap = Swap { key: key.clone(), expect: stored.map(|stored| stored.version), value };
            match self.swap(swap).await {
                Ok(Swapped::Applied(_)) => return Ok(()),
                Ok(Swapped::Lost(_)) => doubt = None,
                // The next read shows whether it landed: if so, there is nothing left to change.
                Ok(Swapped::Unknown) => doubt = Some(unknown()),
                Err(error) if retryable(error.kind) => doubt = Some(error),
                Err(error) => return Err(Error::store(what, error)),
            }
        }
        match doubt {
            Some(error) => Err(Error::store(what, error)),
            None => Err(Error::Contended { what: what.to_owned(), tries: TRIES_MAX }),
        }
    }

    /// Reads one record.
    pub(super) async fn get<R: Record>(&self, what: &str, key: &Key) -> Result<Option<R>, Error> {
        let stored = self.read(key).await.map_err(|error| Error::unread(what, error))?;
        stored.map(|stored| decode(what, key, &stored.value)).transpose()
    }

    async fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        let until = self.clock.now() + CALL_WITHIN;
        let keys = [key.clone()];
        let reading =
            self.clock.timeout_at(until, self.store.read(&keys)).await.unwrap_or_else(|| Err(late()));
        Ok(reading?.found.pop().flatten())
    }

    async fn swap(&self, swap: Swap) -> Result<Swapped, StoreError> {
        let until = self.clock.now() + CALL_WITHIN;
        let swaps = [swap];
        let call = self.store.swap(Lane::Work, &swaps);
        let mut reply = self.clock.timeout_at(until, call).await.unwrap_or_else(|| Err(late()))?;
        Ok(reply.outcomes.pop().unwrap_or(Swapped::Unknown))
    }
}

fn decode<R: Record>(what: &str, key: &Key, value: &[u8]) -> Result<R, Error> {
    R::decode(value).map_err(|error| Error::Record { what: what.to_owned(), key: key.clone(), error })
}

fn late() -> StoreError {
    StoreError::new(StoreErrorKind::TimedOut, "no answer in time")
}

fn unknown() -> StoreError {
    StoreError::new(StoreErrorKind::TimedOut, "the store did not confirm the write")
}

fn retryable(kind: StoreErrorKind) -> bool {
    matches!(kind, StoreErrorKind::Unreachable | StoreErrorKind::TimedOut | StoreErrorKind::Busy)
}
