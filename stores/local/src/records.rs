//! The records in SQL: reading, listing, swapping, and changes since a version.

use std::sync::Arc;

use leasehold_store::{Key, Stored, Swap, Swapped, Version};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::connection::Effect;
use crate::error::LocalError;

/// How many removals are remembered for the watches, at least.
const REMOVALS_KEPT: u64 = 1_000;

/// The one row about the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Changes when acknowledged writes may be gone.
    pub(crate) id: String,
    /// The last version that was given.
    pub(crate) revision: u64,
    /// Removals up to this version are no longer remembered.
    pub(crate) forgotten: u64,
}

/// Records of a namespace: those with keys of Leasehold, and the names of the others.
#[derive(Debug, Default)]
pub(crate) struct Everything {
    pub(crate) entries: Vec<(Key, Stored)>,
    pub(crate) foreign: Vec<String>,
}

impl Head {
    /// Reads it.
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Head> {
        connection
            .prepare_cached("SELECT id, revision, forgotten FROM store WHERE only = 1")?
            .query_row([], |row| {
                Ok(Head { id: row.get(0)?, revision: unsigned(row, 1)?, forgotten: unsigned(row, 2)? })
            })
    }

    /// Writes it.
    pub(crate) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection
            .prepare_cached("UPDATE store SET id = ?1, revision = ?2, forgotten = ?3 WHERE only = 1")?
            .execute((&self.id, signed(self.revision)?, signed(self.forgotten)?))?;
        Ok(())
    }
}

/// What is under each of these keys.
pub(crate) fn read(
    connection: &Connection,
    namespace: &str,
    keys: &[Key],
) -> Result<Vec<Option<Stored>>, LocalError> {
    keys.iter().map(|key| find(connection, namespace, &key.to_string())).collect()
}

/// All records of a namespace, ordered by key.
pub(crate) fn list(connection: &Connection, namespace: &str) -> Result<Everything, LocalError> {
    select(
        connection,
        "SELECT key, version, value FROM records WHERE namespace = ?1 AND value IS NOT NULL ORDER BY key",
        namespace,
    )
}

/// The namespaces that have records.
pub(crate) fn namespaces(connection: &Connection) -> Result<Vec<String>, LocalError> {
    let sql = "SELECT DISTINCT namespace FROM records WHERE value IS NOT NULL ORDER BY namespace";
    let mut statement = connection.prepare_cached(sql)?;
    let names = statement.query_map([], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// The records of nodes, and `meta`: two parts of the index by key.
pub(crate) fn list_nodes(connection: &Connection, namespace: &str) -> Result<Everything, LocalError> {
    select(
        connection,
        "SELECT key, version, value FROM records
         WHERE namespace = ?1 AND key >= 'nodes/' AND key < 'nodes0' AND value IS NOT NULL
         UNION ALL
         SELECT key, version, value FROM records WHERE namespace = ?1 AND key = 'meta' AND value IS NOT NULL",
        namespace,
    )
}

fn select(connection: &Connection, sql: &str, namespace: &str) -> Result<Everything, LocalError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([namespace])?;
    let mut all = Everything::default();
    while let Some(row) = rows.next()? {
        let text = key_text(row)?;
        match (text.parse::<Key>(), stored(row, 1, 2)?) {
            (Ok(key), Some(found)) => all.entries.push((key, found)),
            (Err(_), _) => all.foreign.push(text),
            (Ok(_), None) => {}
        }
    }
    Ok(all)
}

/// Records that changed after `version`, in the order of their versions; `None` is gone.
pub(crate) fn changed_since(
    connection: &Connection,
    namespace: &str,
    version: u64,
) -> Result<Vec<(Key, Option<Stored>)>, LocalError> {
    let mut statement = connection.prepare_cached(
        "SELECT key, version, value FROM records WHERE namespace = ?1 AND version > ?2 ORDER BY version",
    )?;
    let mut rows = statement.query((namespace, signed(version)?))?;
    let mut changes = Vec::new();
    while let Some(row) = rows.next()? {
        if let Ok(key) = key_text(row)?.parse::<Key>() {
            changes.push((key, stored(row, 1, 2)?));
        }
    }
    Ok(changes)
}

/// Tries each swap. What is applied gets the next revision of `head`, which the caller writes in the same transaction.
pub(crate) fn swap(
    connection: &Connection,
    namespace: &str,
    swaps: &[Swap],
    head: &mut Head,
) -> Result<(Vec<Swapped>, Effect), LocalError> {
    let before = head.revision;
    let mut removed = false;
    let mut outcomes = Vec::with_capacity(swaps.len());
    for swap in swaps {
        let key = swap.key.to_string();
        let found = find(connection, namespace, &key)?;
        if found.as_ref().map(|found| &found.version) != swap.expect.as_ref() {
            outcomes.push(Swapped::Lost(found));
            continue;
        }
        head.revision += 1;
        put(connection, namespace, &key, head.revision, swap.value.as_deref())?;
        removed |= swap.value.is_none();
        outcomes.push(Swapped::Applied(Version::new(head.revision.to_string())));
    }
    if removed {
        forget_old_removals(connection, head)?;
    }
    let effect = if head.revision > before { Effect::Written } else { Effect::Nothing };
    Ok((outcomes, effect))
}

fn find(connection: &Connection, namespace: &str, key: &str) -> Result<Option<Stored>, LocalError> {
    let found = connection
        .prepare_cached("SELECT version, value FROM records WHERE namespace = ?1 AND key = ?2")?
        .query_row((namespace, key), |row| stored(row, 0, 1))
        .optional()?;
    Ok(found.flatten())
}

fn put(
    connection: &Connection,
    namespace: &str,
    key: &str,
    version: u64,
    value: Option<&[u8]>,
) -> Result<(), LocalError> {
    // Text where it can be, so that people can read it; a NUL would cut it short in their tools.
    let value = match value.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => ValueRef::Null,
        Some((bytes, Ok(_))) if !bytes.contains(&0) => ValueRef::Text(bytes),
        Some((bytes, _)) => ValueRef::Blob(bytes),
    };
    connection
        .prepare_cached(
            "INSERT INTO records (namespace, key, version, value) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (namespace, key) DO UPDATE SET version = excluded.version, value = excluded.value",
        )?
        .execute((namespace, key, signed(version)?, rusqlite::types::ToSqlOutput::Borrowed(value)))?;
    Ok(())
}

/// Keeps the number of remembered removals within bounds; a watch that is further behind takes a snapshot.
fn forget_old_removals(connection: &Connection, head: &mut Head) -> Result<(), LocalError> {
    let remembered: u64 = connection
        .prepare_cached("SELECT count(*) FROM records WHERE value IS NULL")?
        .query_row([], |row| unsigned(row, 0))?;
    if remembered < 2 * REMOVALS_KEPT {
        return Ok(());
    }
    let upto: u64 = connection
        .prepare_cached(
            "SELECT version FROM records WHERE value IS NULL ORDER BY version DESC LIMIT 1 OFFSET ?1",
        )?
        .query_row([signed(REMOVALS_KEPT)?], |row| unsigned(row, 0))?;
    connection
        .prepare_cached("DELETE FROM records WHERE value IS NULL AND version <= ?1")?
        .execute([signed(upto)?])?;
    head.forgotten = head.forgotten.max(upto);
    Ok(())
}

/// The key in column 0. One that is not text was not written by Leasehold, and is shown as text as well as possible.
fn key_text(row: &Row<'_>) -> rusqlite::Result<String> {
    Ok(match row.get_ref(0)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    })
}

fn stored(row: &Row<'_>, version: usize, value: usize) -> rusqlite::Result<Option<Stored>> {
    let bytes: Arc<[u8]> = match row.get_ref(value)? {
        ValueRef::Null => return Ok(None),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.into(),
        // A number that was written by hand: it is shown as text, and never taken for a record.
        ValueRef::Integer(number) => number.to_string().into_bytes().into(),
        ValueRef::Real(number) => number.to_string().into_bytes().into(),
    };
    let version: i64 = row.get(version)?;
    Ok(Some(Stored { version: Version::new(version.to_string()), value: bytes }))
}

/// A number as SQLite keeps it: it has no larger ones, and newer versions of rusqlite do not convert by themselves.
pub(crate) fn signed(number: u64) -> rusqlite::Result<i64> {
    i64::try_from(number).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

fn unsigned(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(index)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(index, number))
}
