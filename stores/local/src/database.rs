//! One connection to the file: opened, checked, and created if need be.

use std::fs;
use std::io::Write;
use std::path::Path;

use leasehold_store::rng::fresh_id;
use leasehold_store::{StoreError, StoreErrorKind};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::busy_timeout;
use crate::database_file::{DatabaseFile, FileState, Identity};
use crate::error::{LocalError, damaged, refused};
use crate::notify_file::NotifyFile;
use crate::open_count::Opened;
use crate::options::Create;
use crate::records::{Head, signed};

/// `Leas`, in SQLite's header: the file is ours.
const APPLICATION_ID: i32 = 0x4c65_6173;
/// The newest layout that this code knows, and the one that it makes.
const SCHEMA: i32 = 1;
/// After how many pages of 4096 bytes the `-wal` is written back in any case.
const WAL_PAGES: u32 = 256;
/// The size that the `-wal` is truncated to when it starts over.
pub(crate) const WAL_BYTES: u64 = WAL_PAGES as u64 * 4096;
/// Names the file that `-wal` and `-shm` belong to.
const FILE_NAME: &str = "file";

/// An open connection, and the file that it is open on.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) connection: Connection,
    pub(crate) identity: Identity,
    /// After the connection, so that it is closed when this counts no more.
    _opened: Opened,
}

/// The newest state of a database that a process has seen, to notice that it went back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownHead {
    pub(crate) id: String,
    pub(crate) revision: u64,
}

/// How much of the file is looked at when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Every page.
    Whole,
    /// Only what is needed: another connection of this process has just looked at the rest.
    Head,
}

impl Database {
    /// Opens the file, makes it if it is missing and `create` allows, and gives it a new id if it went back.
    pub(crate) fn open(
        db_file: &DatabaseFile,
        create: Create,
        seen: Option<KnownHead>,
        check: Check,
    ) -> Result<Self, StoreError> {
        db_file.refuse_network()?;
        // Looked at first, so that a program that must not create leaves nothing behind.
        if db_file.file_state()? == FileState::Nothing && create == Create::Never {
            return Err(missing(db_file));
        }
        db_file.refuse_second_name()?;
        db_file.make_live()?;
        let _alone = db_file.open_alone()?;
        let identity = make_sure_of_file(db_file, create)?;
        let told = |error: LocalError| error.into_store_error(&db_file.file);
        let opened = Opened::one_more();
        let mut connection = connect(&db_file.file).map_err(|e| told(e.into()))?;
        prepare(&mut connection, &db_file.file).map_err(told)?;
        if check == Check::Whole {
            check_pages(&connection, &db_file.file).map_err(told)?;
        }
        renew_id_if_rolled_back(&mut connection, db_file, seen).map_err(told)?;
        db_file.share_like_file();
        if db_file.file_state()? != FileState::File(identity) {
            return Err(replaced(db_file));
        }
        Ok(Database { connection, identity, _opened: opened })
    }

    /// The store's mark of identity: it differs when the file went back to an older state, was created again or is a copy.
    pub(crate) fn generation(&self, head: &Head) -> String {
        format!("{}-{:x}", head.id, self.identity.inode())
    }
}

/// The error for a missing file.
pub(crate) fn missing(db_file: &DatabaseFile) -> StoreError {
    StoreError::new(
        StoreErrorKind::Damaged,
        format!(
            "{} does not exist. Nothing was written. Restore it, or start a node on it to create an empty one.",
            db_file.file.display()
        ),
    )
}

/// The error for a file that became another one during a call.
pub(crate) fn replaced(db_file: &DatabaseFile) -> StoreError {
    StoreError::new(
        StoreErrorKind::Damaged,
        format!(
            "{} was deleted, emptied or replaced during this call. Writes of this call went to the old file and do not \
             count. Nodes detach and join again on the file that is there now.",
            db_file.file.display()
        ),
    )
}

/// Makes sure that a file is there and that the `-wal` and `-shm` beside it are its own. SQLite would use those of
/// an earlier file at this path, and mix the two.
fn make_sure_of_file(db_file: &DatabaseFile, create: Create) -> Result<Identity, StoreError> {
    let refuse = |what: &str, e: std::io::Error| {
        refused(format!(
            "{what} beside {} failed ({e}): is the directory writable, and is the disk full?",
            db_file.file.display()
        ))
    };
    let note = db_file.live.join(FILE_NAME);
    let file_state = db_file.file_state()?;
    if let FileState::File(identity) | FileState::Empty(identity) = file_state {
        let noted = fs::read_to_string(&note).ok().and_then(|text| text.trim().parse::<u64>().ok());
        match noted {
            Some(inode) if inode == identity.inode() => return Ok(identity),
            // Without a note nothing is known of another file, so what lies there is taken as its own.
            None => {}
            Some(_) => set_aside(db_file).map_err(|e| refuse("moving the -wal of the old file away", e))?,
        }
    } else if create == Create::Never {
        return Err(missing(db_file));
    } else {
        set_aside(db_file).map_err(|e| refuse("moving the -wal of the old file away", e))?;
        fs::OpenOptions::new().write(true).create_new(true).open(&db_file.file).map_err(|e| {
            refused(format!("cannot create {} ({e}): is its directory writable?", db_file.file.display()))
        })?;
    }
    let (FileState::File(identity) | FileState::Empty(identity)) = db_file.file_state()? else {
        return Err(missing(db_file));
    };
    write_note(&note, identity.inode()).map_err(|e| refuse("writing a note", e))?;
    sync_folder(db_file.file.parent());
    Ok(identity)
}

fn set_aside(db_file: &DatabaseFile) -> std::io::Result<()> {
    for suffix in ["-wal", "-shm"] {
        let from = db_file.beside(suffix);
        match fs::rename(&from, db_file.live.join(format!("former{suffix}"))) {
            Ok(()) => tracing::warn!(
                file = %from.display(),
                "belongs to an earlier database that was deleted or replaced: moved into the -live directory"
            ),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Durable before SQLite writes anything: an old note after a power cut would cost the new file its `-wal`.
fn write_note(note: &Path, inode: u64) -> std::io::Result<()> {
    let fresh = note.with_extension("new");
    let mut file = fs::File::create(&fresh)?;
    writeln!(file, "{inode}")?;
    file.sync_all()?;
    fs::rename(&fresh, note)?;
    sync_folder(note.parent());
    Ok(())
}

fn sync_folder(folder: Option<&Path>) {
    // Some file systems cannot sync a directory; nothing else can be done there.
    if let Some(Ok(folder)) = folder.map(fs::File::open) {
        let _ = folder.sync_all();
    }
}

fn connect(file: &Path) -> rusqlite::Result<Connection> {
    // Without SQLITE_OPEN_URI, so that odd file names are only names.
    #[allow(unused_mut, reason = "rusqlite before 0.41 sets the busy handler without it")]
    let mut connection = Connection::open_with_flags(
        file,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_handler(Some(busy_timeout::wait_for_lock))?;
    connection.set_prepared_statement_cache_capacity(32);
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

/// Makes the tables in an empty file, refuses what is not ours, and sets what makes answered writes durable.
fn prepare(connection: &mut Connection, file: &Path) -> Result<(), LocalError> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let (application, schema) = (number("application_id")?, number("user_version")?);
    let things: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let ours = application == APPLICATION_ID;
    if !ours && (application != 0 || things != 0) {
        return Err(refused(format!(
            "{} is the database of another program. Nothing was written. Use another file.",
            file.display()
        ))
        .into());
    }
    if ours && schema > SCHEMA {
        return Err(StoreError::new(
            StoreErrorKind::Damaged,
            format!(
                "{} has layout {schema}, of a newer version; this version knows layouts up to {SCHEMA}. Nothing \
                 was written. Upgrade this node.",
                file.display()
            ),
        )
        .into());
    }
    if connection.is_readonly(rusqlite::MAIN_DB)? {
        return Err(refused(format!(
            "{} is read-only for this user. Every process that uses it, even to read, must be able to write to it \
             and its directory: readers take their locks there.",
            file.display()
        ))
        .into());
    }
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))?;
    if mode != "wal" {
        return Err(refused(format!(
            "{} cannot be switched to WAL (it stays {mode}): its file system has no shared memory. Use another \
             directory.",
            file.display()
        ))
        .into());
    }
    connection.pragma_update(None, "synchronous", "full")?;
    // Checkpoints happen after a call was answered, see `FileConnection::checkpoint`; this is the backstop, for a process that writes
    // without ever being idle on the thread that makes them. It is passive: it does not wait for other processes. A small disk must hold all
    // that is written until then.
    connection.pragma_update(None, "wal_autocheckpoint", WAL_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", signed(WAL_BYTES)?)?;
    if !ours {
        make_tables(connection)?;
    }
    Ok(())
}

fn make_tables(connection: &mut Connection) -> Result<(), LocalError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have made them since we looked: the lock around opening is lost when its folder is deleted.
    if transaction.pragma_query_value(None, "application_id", |row| row.get::<_, i32>(0))? == APPLICATION_ID {
        return Ok(());
    }
    transaction.execute_batch(include_str!("schema.sql"))?;
    transaction.execute("INSERT INTO store VALUES (1, ?, 0, 0)", [fresh_id()?])?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA)?;
    transaction.commit().map_err(LocalError::Commit)
}

fn check_pages(connection: &Connection, file: &Path) -> Result<(), LocalError> {
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict == "ok" {
        return Ok(());
    }
    Err(damaged(file, &format!("SQLite's check reports: {verdict}.")).into())
}

/// A file that is older than what was seen of it gets a new id and continues above all that was seen, so that no
/// version is ever used twice.
fn renew_id_if_rolled_back(
    connection: &mut Connection,
    db_file: &DatabaseFile,
    seen: Option<KnownHead>,
) -> Result<(), LocalError> {
    // Read before the database: a notify file that changes in between would look like a database that went back.
    let notify_file = NotifyFile::read(db_file)
        .map(|notify_file| KnownHead { id: notify_file.id, revision: notify_file.revision });
    let behind = |head: &Head| {
        let same = [&notify_file, &seen].into_iter().flatten().filter(|known| known.id == head.id);
        same.map(|known| known.revision).max().filter(|known| *known > head.revision)
    };
    if behind(&Head::read(connection)?).is_none() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let head = Head::read(&transaction)?;
    let Some(known) = behind(&head) else { return Ok(()) };
    tracing::warn!(
        file = %db_file.file.display(), found = head.revision, seen = known,
        "the database is older than before: it was restored, and gets a new generation"
    );
    let fresh = Head { id: fresh_id()?, revision: known + 1, forgotten: known + 1 };
    fresh.write(&transaction)?;
    transaction.commit().map_err(LocalError::Commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_another_process_made_meanwhile_are_left_as_they_are() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let file = folder.path().join("x.db");
        let open = || Connection::open(&file).expect("opened");
        let (mut first, mut second) = (open(), open());
        make_tables(&mut first).expect("made");
        let made = Head::read(&first).expect("there");
        make_tables(&mut second).expect("left alone");
        assert_eq!(Head::read(&second).expect("there"), made);
    }
}
