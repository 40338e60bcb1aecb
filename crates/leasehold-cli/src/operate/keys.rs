//! Registered keys: kept alive with the store's own expiry, for other programs to read.

use std::cell::RefCell;
use std::sync::Arc;

use leasehold::clock::Clock;
use leasehold::registry::RegistryOptions;
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::sanitize::sanitize;
use leasehold_cli_common::signals::Signals;
use leasehold_core::store::StoreError;
use leasehold_store::{Registry, Store, StoreExt, rng};

use crate::inspect::Table;

fn registry(store: &dyn Store) -> Result<&dyn Registry, Failure> {
    let kind = store.facts().kind;
    store
        .registry()
        .ok_or_else(|| Failure::new(Code::Store, format!("a {kind} store does not support registered keys")))
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
    Ok((if keys.is_empty() { "no registered keys\n".to_owned() } else { table.show() }, json))
}

/// What to do about a key that another process has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// It is left alone.
    Respect,
    /// It is taken over.
    Overwrite,
}

/// Keeps a key alive until a signal comes; then it is removed. The library keeps it, as it does for nodes: it writes it
/// again after an outage, and tells of all that happens to it.
pub(crate) async fn register(
    store: &Arc<dyn Store>,
    key: &str,
    value: &str,
    others: Others,
) -> Result<(), Failure> {
    if key.is_empty() {
        return Err(Failure::new(Code::Usage, "the key is empty; nothing was registered"));
    }
    let options = RegistryOptions::default();
    let there = registry(&**store)?;
    if let Some(theirs) = taken(there, key, others).await? {
        return Err(key_is_taken(key, &theirs, &options));
    }
    let mut signals = Signals::listen()?;
    let retry = options.retry.clone();
    let keeper = leasehold::registry::Registry::with_options(store.clone(), options.clone())?;
    // Why it is not registered yet; nothing once it is.
    let missing = RefCell::new(Some("the store has not answered yet".to_owned()));
    let kept = async {
        for failures in 0.. {
            let first = match taken(there, key, others).await {
                // Of our own tries that failed one may have landed after all.
                Ok(Some(theirs)) if failures == 0 || theirs != value => {
                    return key_is_taken(key, &theirs, &options);
                }
                Ok(_) => keeper.register(key, value).await.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match first {
                Ok(lease) => {
                    tracing::info!(key, lease = lease.0, "registered; Ctrl-C removes it");
                    missing.replace(None);
                    break;
                }
                Err(error) => {
                    tracing::warn!(key, error, "not registered; retrying");
                    missing.replace(Some(error));
                }
            }
            let pause = retry.pause(failures);
            Clock::boot().sleep(pause + rng::up_to(pause / 10)).await;
        }
        std::future::pending().await
    };
    let ended = tokio::select! {
        failure = kept => Err(failure),
        () = signals.next() => Ok(()),
    };
    let removed = keeper.unregister(key).await;
    keeper.close().await;
    ended?;
    match missing.take() {
        Some(why) => Err(Failure::new(Code::Store, format!("{key} was not registered: {}", sanitize(&why)))),
        None => Ok(removed?),
    }
}

fn key_is_taken(key: &str, theirs: &str, options: &RegistryOptions) -> Failure {
    Failure::new(
        Code::NameTaken,
        format!(
            "{key} is already registered with the value {theirs:?}; nothing was changed\n  it expires {} s after the \
             process that registered it has exited; use --overwrite to replace it now",
            options.ttl.as_secs()
        ),
    )
}

/// The value that another process has registered under a key, if that matters.
async fn taken(registry: &dyn Registry, key: &str, others: Others) -> Result<Option<String>, StoreError> {
    if others == Others::Overwrite {
        return Ok(None);
    }
    let theirs = registry.keys().await?.into_iter().find(|(known, _)| known == key);
    Ok(theirs.map(|(_, value)| String::from_utf8_lossy(&value).into_owned()))
}
