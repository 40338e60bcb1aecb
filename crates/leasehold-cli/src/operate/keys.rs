//! Registered keys: kept alive with the store's own expiry, for other programs to read.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold_core::store::StoreError;
use leasehold_store::{LeaseId, LeaseState, Registry, Store};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Code, Failure};
use crate::look::Table;

/// How long a key outlives whoever kept it alive.
const KEY_TTL: Duration = Duration::from_secs(15);

fn registry(store: &dyn Store) -> Result<&dyn Registry, Failure> {
    let kind = store.facts().kind;
    store
        .registry()
        .ok_or_else(|| Failure::new(Code::Store, format!("a {kind} store has no registered keys")))
}

/// All registered keys that are alive.
pub(crate) async fn keys(store: &Arc<dyn Store>) -> Result<(String, serde_json::Value), Failure> {
    let keys = registry(&**store)?.keys().await?;
    let json = keys
        .iter()
        .map(|(key, value)| serde_json::json!({"key": key, "value": String::from_utf8_lossy(value)}));
    let json = serde_json::Value::Array(json.collect());
    let mut table = Table::new(&["KEY", "VALUE"]);
    for (key, value) in &keys {
        table.row(vec![key.clone(), String::from_utf8_lossy(value).into_owned()]);
    }
    Ok((if keys.is_empty() { "there are no registered keys\n".to_owned() } else { table.show() }, json))
}

/// What to do about a key that somebody else has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// It is left alone.
    Respect,
    /// It is taken over.
    Overwrite,
}

/// Keeps a key alive until a signal comes; then it is removed. After an outage it is written again.
pub(crate) async fn register(
    store: &Arc<dyn Store>,
    key: &str,
    value: &str,
    others: Others,
) -> Result<(), Failure> {
    let registry = registry(&**store)?;
    if let Some(theirs) = taken(registry, key, others).await? {
        return Err(Failure::new(
            Code::NameTaken,
            format!(
                "{key} is registered already, with the value {theirs:?}; nothing was changed\n  it goes {} s after \
                 whoever keeps it has ended; --overwrite takes it over now",
                KEY_TTL.as_secs()
            ),
        ));
    }
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let clock = Clock::boot();
    let mut lease = None;
    loop {
        lease = match lease.take() {
            None => write(registry, key, value, others).await,
            Some(lease) => match registry.keep_alive(&lease).await {
                Ok(LeaseState::Alive) => Some(lease),
                Ok(LeaseState::Gone) => continue,
                Err(error) => {
                    tracing::warn!(key, %error, "not renewed; trying again");
                    Some(lease)
                }
            },
        };
        let pause = if lease.is_some() { KEY_TTL / 5 } else { Duration::from_secs(1) };
        tokio::select! {
            () = clock.sleep(pause) => {}
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    if let Some(lease) = lease {
        registry.revoke(&lease).await?;
    }
    Ok(())
}

/// The value that somebody else has registered under a key, if that matters.
async fn taken(registry: &dyn Registry, key: &str, others: Others) -> Result<Option<String>, StoreError> {
    if others == Others::Overwrite {
        return Ok(None);
    }
    let theirs = registry.keys().await?.into_iter().find(|(known, _)| known == key);
    Ok(theirs.map(|(_, value)| String::from_utf8_lossy(&value).into_owned()))
}

/// Writes the key under a new lease; `None` if that did not work, which is told.
async fn write(registry: &dyn Registry, key: &str, value: &str, others: Others) -> Option<LeaseId> {
    let written = async {
        if let Some(theirs) = taken(registry, key, others).await? {
            tracing::warn!(
                key,
                theirs,
                "somebody else has registered the key meanwhile; waiting until it is free"
            );
            return Ok(None);
        }
        let lease = registry.grant(KEY_TTL).await?;
        let state = registry.put(&lease, key, value.as_bytes()).await?;
        Ok::<_, StoreError>((state == LeaseState::Alive).then_some(lease))
    };
    match written.await {
        Ok(Some(lease)) => {
            tracing::info!(key, lease = lease.0, "registered; Ctrl-C removes it");
            Some(lease)
        }
        Ok(None) => None,
        Err(error) => {
            tracing::warn!(key, %error, "not registered; trying again");
            None
        }
    }
}
