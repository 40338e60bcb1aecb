//! Registered keys: kept alive with the store's own expiry, for other programs to read.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::sanitize::sanitize;
use leasehold_cli_common::signals::Signals;
use leasehold_store::{Registry, Store, StoreExt};

use crate::args::Output;
use crate::inspect::{Table, print_changed};

/// How often `keys --watch` lists the keys.
const LISTED_EVERY: Duration = Duration::from_secs(1);

pub(super) fn registry(store: &dyn Store) -> Result<&dyn Registry, Failure> {
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

/// Prints the keys at every change, until a signal comes. They are listed every second: keys that expire make no noise.
pub(crate) async fn watch_keys(store: &Arc<dyn Store>, output: Output) -> Result<(), Failure> {
    let (mut signals, clock) = (Signals::listen()?, Clock::boot());
    let (mut last, mut away) = (None, false);
    loop {
        match keys(store).await {
            Ok(found) => {
                if std::mem::take(&mut away) {
                    eprintln!("leasehold: the store answers again");
                }
                if last.as_ref() != Some(&found) {
                    match output {
                        Output { quiet: true, .. } => {}
                        Output { json: true, .. } => print_changed(&format!("{}\n", found.1), true)?,
                        _ => print_changed(&found.0, false)?,
                    }
                    last = Some(found);
                }
            }
            // The first look tells whether this can work at all.
            Err(failure) if last.is_none() => return Err(failure),
            Err(failure) => {
                if !std::mem::replace(&mut away, true) {
                    eprintln!("leasehold: the keys may have changed since: {}", sanitize(&failure.message));
                }
            }
        }
        tokio::select! {
            () = clock.sleep(LISTED_EVERY) => {}
            () = signals.next() => return Ok(()),
        }
    }
}
