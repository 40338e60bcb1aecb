//! One thread's connection to the file. It checks before and after every call which file that is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::Moment;
use leasehold_store::{StoreError, StoreErrorKind};
use rusqlite::{Connection, TransactionBehavior};

use crate::busy_timeout::{BusyTimeout, Waits};
use crate::clock;
use crate::database::{Check, Database, KnownHead, WAL_BYTES, missing, replaced};
use crate::database_file::{DatabaseFile, FileState};
use crate::error::LocalError;
use crate::notify_file::NotifyFile;
use crate::options::{Create, Options};
use crate::records::Head;

/// After this many versions the `-wal` is written back into the database: about 200 pages of 4096 bytes.
const CHECKPOINT_EVERY: u64 = 50;
/// A `-wal` of this size was written back again and again without starting over, because there was always a reader.
const WAL_LARGE: u64 = 2 * WAL_BYTES;
/// How long writers and readers may have to wait so that such a `-wal` can start over: well below every renewal's limit.
const RESTART_WITHIN: Duration = Duration::from_millis(20);

/// What all threads of one handle share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) db_file: DatabaseFile,
    pub(crate) namespace: String,
    pub(crate) options: Options,
    /// The newest state that any thread has seen.
    seen: Mutex<Option<KnownHead>>,
    /// Since when the file has been missing.
    missing_since: Mutex<Option<Moment>>,
    /// When a call last waited for another process.
    pub(crate) waits: Arc<Waits>,
    /// How often a thread found the file damaged. The others' connections may go on in what they have cached or in a
    /// `-wal` that no other process can see, so each of them checks the file again, too.
    alarms: AtomicU64,
}

/// An answer, and the generation that it is from.
#[derive(Debug)]
pub(crate) struct Answered<T> {
    pub(crate) value: T,
    pub(crate) head: Head,
    pub(crate) generation: String,
}

/// Whether a transaction has anything to commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It has.
    Written,
    /// It has not.
    Nothing,
}

/// One thread's connection.
#[derive(Debug)]
pub(crate) struct FileConnection {
    pub(crate) shared: Arc<Shared>,
    database: Option<Database>,
    /// How carefully the file is looked at when it is opened next.
    check: Check,
    /// The revision at which the `-wal` was written back last.
    checkpointed: Option<u64>,
    /// The alarms that were raised before the file was opened.
    alarms: u64,
}

impl Shared {
    /// For a store at this path.
    pub(crate) fn new(db_file: DatabaseFile, namespace: String, options: Options) -> Self {
        Shared {
            db_file,
            namespace,
            options,
            seen: Mutex::default(),
            missing_since: Mutex::default(),
            waits: Arc::default(),
            alarms: AtomicU64::new(0),
        }
    }

    fn seen(&self) -> Option<KnownHead> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn saw(&self, head: &Head) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *seen {
            Some(seen) if seen.id == head.id => seen.revision = seen.revision.max(head.revision),
            _ => *seen = Some(KnownHead { id: head.id.clone(), revision: head.revision }),
        }
    }

    fn raise_alarm(&self, error: &StoreError) {
        if error.kind == StoreErrorKind::Damaged {
            self.alarms.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whether a file that disappeared under this handle may now be created again.
    fn may_create(&self, file_state: FileState) -> Create {
        let mut since = self.missing_since.lock().unwrap_or_else(PoisonError::into_inner);
        if file_state != FileState::Nothing {
            *since = None;
            return Create::Never;
        }
        let first = *since.get_or_insert_with(clock::now);
        if clock::now().since(first) >= self.options.recreate_after {
            self.options.create
        } else {
            Create::Never
        }
    }
}

impl FileConnection {
    /// Opens the file, as a user asked for it.
    pub(crate) fn open(shared: Arc<Shared>, check: Check) -> Result<Self, StoreError> {
        let database = Database::open(&shared.db_file, shared.options.create, None, check)?;
        Ok(FileConnection {
            shared,
            database: Some(database),
            check: Check::Whole,
            checkpointed: None,
            alarms: 0,
        })
    }

    /// A connection that is opened at its first call.
    pub(crate) fn unopened(shared: Arc<Shared>) -> Self {
        FileConnection { shared, database: None, check: Check::Head, checkpointed: None, alarms: 0 }
    }

    /// Reads one state of the database.
    pub(crate) fn read<T>(
        &mut self,
        work: impl FnOnce(&Connection, &Head) -> Result<T, LocalError>,
    ) -> Result<Answered<T>, StoreError> {
        self.call(|connection, known| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
            let head = Head::read(&transaction)?;
            refuse_older(&head, known)?;
            let value = work(&transaction, &head)?;
            Ok((value, head))
        })
    }

    /// Changes the database, all or nothing. What `work` does to the head is written as well, and the notify file is rewritten.
    pub(crate) fn write<T>(
        &mut self,
        work: impl FnOnce(&Connection, &mut Head) -> Result<(T, Effect), LocalError>,
    ) -> Result<Answered<T>, StoreError> {
        let db_file = self.shared.db_file.clone();
        self.call(|connection, known| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let before = Head::read(&transaction)?;
            refuse_older(&before, known)?;
            let mut head = before.clone();
            let (value, effect) = work(&transaction, &mut head)?;
            if head != before {
                head.write(&transaction)?;
            }
            if effect == Effect::Written {
                transaction.commit().map_err(LocalError::Commit)?;
            }
            if head != before {
                NotifyFile { id: head.id.clone(), revision: head.revision }.rewrite(&db_file);
            }
            Ok((value, head))
        })
    }

    /// Writes the `-wal` back when enough has been written. Call it when no call waits.
    pub(crate) fn checkpoint(&mut self) {
        let Some(revision) = self.shared.seen().map(|seen| seen.revision) else { return };
        let checkpointed = *self.checkpointed.get_or_insert(revision);
        // A revision that went back is that of another file.
        if revision < checkpointed.saturating_add(CHECKPOINT_EVERY) && revision >= checkpointed {
            return;
        }
        self.checkpointed = Some(revision);
        if let Some(database) = &self.database {
            // Passive: it neither waits for other processes nor makes them wait. An error shows at the next call.
            let _ = database.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            let wal = std::fs::metadata(self.shared.db_file.beside("-wal"));
            if wal.is_ok_and(|wal| wal.len() > WAL_LARGE) {
                shorten(&database.connection, RESTART_WITHIN);
            }
        }
    }

    /// Does the work on the file that is there now, and answers only if it is still there afterwards.
    fn call<T>(
        &mut self,
        work: impl FnOnce(&mut Connection, Option<KnownHead>) -> Result<(T, Head), LocalError>,
    ) -> Result<Answered<T>, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.reopen_if_replaced().inspect_err(|e| shared.raise_alarm(e))?;
        let database = self.database.as_mut().ok_or_else(|| missing(&shared.db_file))?;
        // Taken before the transaction begins: what was seen by then must be in it.
        let done = work(&mut database.connection, shared.seen());
        let stands = shared.db_file.file_state() == Ok(FileState::File(database.identity));
        let full = done.as_ref().is_err_and(LocalError::is_full);
        let answer = match done {
            _ if !stands => Err(replaced(&shared.db_file)),
            Ok((value, head)) => {
                shared.saw(&head);
                let generation = database.generation(&head);
                Ok(Answered { value, head, generation })
            }
            Err(error) => Err(error.into_store_error(&shared.db_file.file)),
        };
        if let Err(error) = &answer {
            shared.raise_alarm(error);
        }
        if full {
            // What the `-wal` takes is given back to the disk as far as the database has room for it: later tries may
            // succeed. It does not wait for other processes.
            shorten(&database.connection, Duration::ZERO);
        }
        if answer.as_ref().is_err_and(|e| e.kind != StoreErrorKind::Busy) {
            // The next call opens the file again, whichever is there by then.
            self.database = None;
        }
        answer
    }

    /// Makes sure that the connection is to the file that is there now.
    fn reopen_if_replaced(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let file_state = shared.db_file.file_state()?;
        let create = shared.may_create(file_state);
        if let Some(database) = &self.database {
            let same = file_state == FileState::File(database.identity);
            if same && self.alarms == shared.alarms.load(Ordering::Acquire) {
                return Ok(());
            }
            if !same {
                tracing::warn!(file = %shared.db_file.file.display(), "the file was deleted, emptied or replaced while this process used it");
            }
            self.database = None;
        }
        if file_state == FileState::Nothing && create == Create::Never {
            return Err(missing(&shared.db_file));
        }
        let alarms = shared.alarms.load(Ordering::Acquire);
        self.database = Some(Database::open(&shared.db_file, create, shared.seen(), self.check)?);
        self.alarms = alarms;
        self.check = Check::Whole;
        Ok(())
    }
}

/// Writes the `-wal` back and truncates it, unless there still is a reader or writer after this time.
fn shorten(connection: &Connection, within: Duration) {
    let cut = || connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    let _ = BusyTimeout::of(within).during(cut);
}

fn refuse_older(head: &Head, known: Option<KnownHead>) -> Result<(), LocalError> {
    match known {
        Some(seen) if seen.id == head.id && seen.revision > head.revision => {
            Err(LocalError::RolledBack { found: head.revision, seen: seen.revision })
        }
        _ => Ok(()),
    }
}
