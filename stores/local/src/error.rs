//! Turns errors of SQLite and the system into store errors that say what to do.

use std::path::Path;

use leasehold_store::{StoreError, StoreErrorKind};
use rusqlite::ErrorCode;

/// Why work on the database did not succeed.
#[derive(Debug)]
pub(crate) enum LocalError {
    /// SQLite failed before anything was committed.
    Sql(rusqlite::Error),
    /// SQLite failed during the commit: the writes may be there or not.
    Commit(rusqlite::Error),
    /// The file holds an older state than the one that this process has already seen.
    RolledBack {
        /// The revision in the file.
        found: u64,
        /// The revision that was seen before.
        seen: u64,
    },
    /// Already a store error.
    Store(StoreError),
}

impl From<rusqlite::Error> for LocalError {
    fn from(error: rusqlite::Error) -> Self {
        LocalError::Sql(error)
    }
}

impl From<StoreError> for LocalError {
    fn from(error: StoreError) -> Self {
        LocalError::Store(error)
    }
}

impl LocalError {
    /// Whether the disk has no more room.
    pub(crate) fn is_full(&self) -> bool {
        let (LocalError::Sql(error) | LocalError::Commit(error)) = self else { return false };
        error.sqlite_error_code() == Some(ErrorCode::DiskFull)
    }

    /// The error for the caller.
    pub(crate) fn into_store_error(self, path: &Path) -> StoreError {
        match self {
            LocalError::Sql(error) => explain(&error, path, "Nothing was written."),
            LocalError::Commit(error) => {
                explain(&error, path, "It is unknown whether the write is in the file.")
            }
            LocalError::RolledBack { found, seen } => StoreError::new(
                StoreErrorKind::Damaged,
                format!(
                    "{}: the file went back from revision {seen} to {found}: it was restored or overwritten while \
                     nodes ran. It gets a new generation, and nodes detach and join again.",
                    path.display()
                ),
            ),
            LocalError::Store(error) => error,
        }
    }
}

fn explain(error: &rusqlite::Error, path: &Path, written: &str) -> StoreError {
    let rusqlite::Error::SqliteFailure(failure, _) = error else {
        return damaged(path, &format!("its content does not match this version ({error}). {written}"));
    };
    let file = path.display();
    let (kind, message) = match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
            (StoreErrorKind::Busy, format!("{} ({error}). {written}", locked(path)))
        }
        ErrorCode::DiskFull => {
            (StoreErrorKind::Refused, format!("the disk of {file} is full. {written} Free some space."))
        }
        ErrorCode::ReadOnly if failure.extended_code == rusqlite::ffi::SQLITE_READONLY_DBMOVED => (
            StoreErrorKind::Damaged,
            format!("{file} was moved or deleted while this process used it. {written}"),
        ),
        ErrorCode::ReadOnly => (
            StoreErrorKind::Refused,
            format!(
                "{file} cannot be written ({error}). {written} The file, its directory, {file}-wal and {file}-shm must \
                 be writable for this user, and the file system must not be mounted read-only."
            ),
        ),
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => (
            StoreErrorKind::Refused,
            format!(
                "{file} cannot be opened ({error}). {written} The file, its directory, {file}-wal and {file}-shm must \
                 be readable and writable for this user."
            ),
        ),
        ErrorCode::SystemIoFailure
            if [rusqlite::ffi::SQLITE_IOERR_SHMSIZE, rusqlite::ffi::SQLITE_IOERR_SHMOPEN]
                .contains(&failure.extended_code) =>
        {
            (
                StoreErrorKind::Refused,
                format!(
                    "{file}-shm cannot grow or be opened ({error}): is the disk full, or the directory not writable? \
                     {written}"
                ),
            )
        }
        ErrorCode::SystemIoFailure => (
            StoreErrorKind::Unreachable,
            format!("the disk of {file} failed ({error}). {written} Check the kernel log: dmesg"),
        ),
        ErrorCode::OperationInterrupted => {
            (StoreErrorKind::TimedOut, format!("a call to {file} was interrupted. {written}"))
        }
        ErrorCode::OutOfMemory => {
            (StoreErrorKind::Busy, format!("out of memory in a call to {file}. {written}"))
        }
        ErrorCode::NotADatabase => return not_a_database(path),
        ErrorCode::DatabaseCorrupt => return damaged(path, &format!("SQLite reports: {error}. {written}")),
        _ => {
            return damaged(path, &format!("its content does not match this version ({error}). {written}"));
        }
    };
    StoreError::new(kind, message)
}

/// The message for a file that another process keeps locked, with that process if the kernel names it.
pub(crate) fn locked(path: &Path) -> String {
    let file = path.display();
    let who = writer(path).unwrap_or_else(|| "another process".to_owned());
    format!(
        "the database {file} is locked by {who}. If it lasts, look for a long transaction (an open sqlite3 shell, a \
         backup) or a stopped process: fuser -v '{file}'"
    )
}

/// Who holds SQLite's lock for writing, which in WAL mode is a byte of the `-shm` (https://sqlite.org/walformat.html).
fn writer(path: &Path) -> Option<String> {
    const WRITE_LOCK: u64 = 120;
    let mut shm = path.as_os_str().to_owned();
    shm.push("-shm");
    let inode = rustix::fs::stat(Path::new(&shm)).ok()?.st_ino.to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        // 1: POSIX  ADVISORY  WRITE 1234 fd:01:5678 120 120
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "POSIX", _, "WRITE", pid, at, from, to] = words[..] else { return None };
        let covers = from.parse::<u64>().ok()? <= WRITE_LOCK && to.parse::<u64>().ok()? >= WRITE_LOCK;
        (covers && at.rsplit(':').next() == Some(&inode)).then(|| pid.to_owned())
    })?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("process {pid} ({})", name.trim()))
}

/// The error for a file whose content is wrong.
pub(crate) fn damaged(path: &Path, what: &str) -> StoreError {
    let file = path.display();
    StoreError::new(
        StoreErrorKind::Damaged,
        format!(
            "{file} is damaged: {what} Stop all nodes and restore it, or move {file}, {file}-wal and {file}-shm away: \
             an empty one is then created, and no shard starts before all earlier owners must have stopped."
        ),
    )
}

/// The error for a file that is something else.
pub(crate) fn not_a_database(path: &Path) -> StoreError {
    StoreError::new(
        StoreErrorKind::Damaged,
        format!(
            "{} is not an SQLite database, or its first page is damaged. Nothing was written. Use another file, or \
             restore it.",
            path.display()
        ),
    )
}

/// The error for a refusal of the system.
pub(crate) fn refused(message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, message)
}
