//! Registered keys: other programs can read them for as long as their lease is kept alive.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_store::rng::fresh_id;
use leasehold_store::{LeaseId, LeaseState, Registry, StoreError, values_among};
use rusqlite::{Connection, OptionalExtension};

use crate::clock;
use crate::connection::Effect;
use crate::error::LocalError;
use crate::local::Local;
use crate::records::signed;

/// The time for leases: this boot, and how far it is.
struct Now {
    boot: String,
    ms: u64,
}

impl Now {
    fn read() -> Self {
        Now { boot: clock::boot_id(), ms: clock::now().as_millis() }
    }
}

#[async_trait]
impl Registry for Local {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        let lease = fresh_id()?;
        let granted = lease.clone();
        self.registered(move |connection, namespace, now| {
            remove_expired(connection, namespace, now)?;
            let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 52);
            connection.prepare_cached("INSERT INTO leases VALUES (?1, ?2, ?3, ?4, ?5)")?.execute((
                namespace,
                &granted,
                signed(ttl_ms)?,
                &now.boot,
                signed(now.ms + ttl_ms)?,
            ))?;
            Ok(((), Effect::Written))
        })
        .await?;
        Ok(LeaseId(lease))
    }

    async fn keep_alive(&self, lease: &LeaseId) -> Result<LeaseState, StoreError> {
        let LeaseId(lease) = lease.clone();
        self.registered(move |connection, namespace, now| {
            let kept = connection
                .prepare_cached(
                    "UPDATE leases SET expires_ms = ?4 + ttl_ms
                     WHERE namespace = ?1 AND lease = ?2 AND boot = ?3 AND expires_ms > ?4",
                )?
                .execute((namespace, &lease, &now.boot, signed(now.ms)?))?;
            if kept == 0 {
                remove_lease(connection, namespace, &lease)?;
            }
            Ok((state(kept > 0), Effect::Written))
        })
        .await
    }

    async fn put(&self, lease: &LeaseId, key: &str, value: &[u8]) -> Result<LeaseState, StoreError> {
        let LeaseId(lease) = lease.clone();
        let (key, value) = (key.to_owned(), value.to_vec());
        self.registered(move |connection, namespace, now| {
            let alive = connection
                .prepare_cached(
                    "SELECT 1 FROM leases WHERE namespace = ?1 AND lease = ?2 AND boot = ?3 AND expires_ms > ?4",
                )?
                .query_row((namespace, &lease, &now.boot, signed(now.ms)?), |_| Ok(()))
                .optional()?
                .is_some();
            if !alive {
                return Ok((LeaseState::Gone, Effect::Nothing));
            }
            connection
                .prepare_cached(
                    "INSERT INTO keys (namespace, key, lease, value) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (namespace, key) DO UPDATE SET lease = excluded.lease, value = excluded.value",
                )?
                .execute((namespace, &key, &lease, &value))?;
            Ok((LeaseState::Alive, Effect::Written))
        })
        .await
    }

    async fn remove(&self, lease: &LeaseId, key: &str) -> Result<(), StoreError> {
        let LeaseId(lease) = lease.clone();
        let key = key.to_owned();
        self.registered(move |connection, namespace, _| {
            connection
                .prepare_cached("DELETE FROM keys WHERE namespace = ?1 AND lease = ?2 AND key = ?3")?
                .execute((namespace, &lease, &key))?;
            Ok(((), Effect::Written))
        })
        .await
    }

    async fn revoke(&self, lease: &LeaseId) -> Result<(), StoreError> {
        let LeaseId(lease) = lease.clone();
        self.registered(move |connection, namespace, _| {
            remove_lease(connection, namespace, &lease)?;
            Ok(((), Effect::Written))
        })
        .await
    }

    async fn keys(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.work(|connection| {
            let namespace = connection.shared.namespace.clone();
            let answered = connection.read(|connection, _| {
                let now = Now::read();
                let mut statement = connection.prepare_cached(
                    "SELECT key, value FROM keys JOIN leases USING (namespace, lease)
                     WHERE namespace = ?1 AND boot = ?2 AND expires_ms > ?3 ORDER BY key",
                )?;
                let rows = statement.query_map((&namespace, &now.boot, signed(now.ms)?), |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?;
                Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
            })?;
            Ok(answered.value)
        })
        .await
    }

    async fn values(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        Ok(values_among(self.keys().await?, keys))
    }
}

impl Local {
    /// Changes registered keys, all or nothing.
    async fn registered<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &str, &Now) -> Result<(T, Effect), LocalError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.work(move |connection| {
            let namespace = connection.shared.namespace.clone();
            // The clock is read once the database is locked: a wait for the lock must not lengthen a lease.
            let answered = connection.write(|connection, _| work(connection, &namespace, &Now::read()))?;
            Ok(answered.value)
        })
        .await
    }
}

fn state(alive: bool) -> LeaseState {
    if alive { LeaseState::Alive } else { LeaseState::Gone }
}

fn remove_lease(connection: &Connection, namespace: &str, lease: &str) -> Result<(), LocalError> {
    for statement in [
        "DELETE FROM keys WHERE namespace = ?1 AND lease = ?2",
        "DELETE FROM leases WHERE namespace = ?1 AND lease = ?2",
    ] {
        connection.prepare_cached(statement)?.execute((namespace, lease))?;
    }
    Ok(())
}

fn remove_expired(connection: &Connection, namespace: &str, now: &Now) -> Result<(), LocalError> {
    connection
        .prepare_cached("DELETE FROM leases WHERE namespace = ?1 AND (boot <> ?2 OR expires_ms <= ?3)")?
        .execute((namespace, &now.boot, signed(now.ms)?))?;
    connection
        .prepare_cached(
            "DELETE FROM keys WHERE namespace = ?1
             AND lease NOT IN (SELECT lease FROM leases WHERE namespace = ?1)",
        )?
        .execute([namespace])?;
    Ok(())
}
