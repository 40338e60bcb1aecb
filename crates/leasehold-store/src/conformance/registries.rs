//! Rules of registered keys and their leases.

use std::time::Duration;

use super::trial::Trial;
use super::verdict::ensure;
use super::{Fixture, Note, Unmet, Verdict};
use crate::{LeaseId, LeaseState, Registry, Store, StoreExt};

/// How long leases live that must not expire during a test.
const LONG: Duration = Duration::from_secs(600);

/// Keys that are put under a lease are there for every client, in order, with their values; putting again overwrites.
pub async fn registered_keys_are_there(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "keys").await?;
    let (registry, other) = (registry(&*trial.a)?, registry(&*trial.b)?);
    let lease = registry.grant(LONG).await?;
    let values: [(&str, &[u8]); 5] =
        [("b", b"2"), ("a/b", b"\xff\0 no text"), ("a", b"{}"), ("\u{e9}", b"accent"), ("b", b"overwritten")];
    for (key, value) in values {
        put_alive(registry, &lease, key, value).await?;
    }
    let wanted: [(&str, &[u8]); 4] =
        [("a", b"{}"), ("a/b", b"\xff\0 no text"), ("b", b"overwritten"), ("\u{e9}", b"accent")];
    let seen = other.keys().await?;
    ensure!(
        seen.iter().map(|(key, value)| (key.as_str(), value.as_slice())).eq(wanted),
        format!("{:?}", wanted.map(|(key, value)| (key, String::from_utf8_lossy(value)))),
        format!("{:?}", seen.iter().map(|(k, v)| (k, String::from_utf8_lossy(v))).collect::<Vec<_>>()),
        "other programs find a node's services by these keys",
    );
    registry.remove(&lease, "a").await?;
    registry.remove(&lease, "never there").await?;
    expect_keys(other, &["a/b", "b", "\u{e9}"], "a key that was removed to be gone, and only that").await?;
    registry.revoke(&lease).await?;
    Ok(Note::default())
}

/// A lease that is not renewed expires with all its keys, and says so when it is used; one that is renewed lives on,
/// and keys of other leases stay.
pub async fn leases_expire_unless_renewed(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "expiry").await?;
    let (registry, ttl) = (registry(&*trial.a)?, trial.scale.lease_ttl);
    let (renewed, silent) = (registry.grant(ttl).await?, registry.grant(ttl).await?);
    put_alive(registry, &renewed, "renewed", b"1").await?;
    put_alive(registry, &silent, "silent-1", b"1").await?;
    put_alive(registry, &silent, "silent-2", b"1").await?;
    // Stores look for what has expired when they get round to it; many ttls must be enough.
    for third in 0..60 {
        trial.fixture.let_pass(ttl / 3).await;
        let state = registry.keep_alive(&renewed).await?;
        ensure!(
            state == LeaseState::Alive,
            format!("a lease that is renewed three times per ttl to be alive after {third} thirds of a ttl"),
            format!("{state:?}"),
            "a node's registered keys would vanish while it is healthy",
        );
        if third >= 3 && registry.keys().await?.len() == 1 {
            break;
        }
    }
    expect_keys(registry, &["renewed"], "only the keys of the lease that was renewed, after 20 ttls at most")
        .await?;
    let states = [registry.keep_alive(&silent).await?, registry.put(&silent, "silent-1", b"1").await?];
    ensure!(
        states == [LeaseState::Gone; 2],
        "a lease that expired to be gone when it is renewed and when a key is put under it",
        format!("{states:?}"),
        "a node registers its keys again only when it is told that its lease is gone",
    );
    expect_keys(registry, &["renewed"], "nothing to be put under a lease that is gone").await?;
    expect_gone(registry, "silent-2").await?;
    registry.revoke(&renewed).await?;
    Ok(Note::default())
}

/// Revoking a lease removes all its keys at once, and no others.
pub async fn revoking_removes_its_keys_only(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "revoke").await?;
    let registry = registry(&*trial.a)?;
    let (mine, other) = (registry.grant(LONG).await?, registry.grant(LONG).await?);
    for key in ["mine-1", "mine-2", "taken-over"] {
        put_alive(registry, &mine, key, b"mine").await?;
    }
    for key in ["other", "taken-over"] {
        put_alive(registry, &other, key, b"other").await?;
    }
    registry.revoke(&mine).await?;
    let why = "the keys of the other lease, with the one that it has overwritten";
    expect_keys(registry, &["other", "taken-over"], why).await?;
    expect_gone(registry, "mine-1").await?;
    let state = registry.keep_alive(&mine).await?;
    ensure!(
        state == LeaseState::Gone,
        "a revoked lease to be gone",
        format!("{state:?}"),
        "a node that left would seem to be there",
    );
    registry.revoke(&mine).await?;
    registry.revoke(&other).await?;
    Ok(Note::default())
}

/// A lease removes only keys that are under it.
pub async fn only_its_own_keys_are_removed(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "own").await?;
    let (registry, second) = (registry(&*trial.a)?, registry(&*trial.b)?);
    let (old, new) = (registry.grant(LONG).await?, second.grant(LONG).await?);
    put_alive(registry, &old, "service", b"old").await?;
    put_alive(second, &new, "service", b"new").await?;
    registry.remove(&old, "service").await?;
    expect_keys(second, &["service"], "the key as its new owner put it").await?;
    second.remove(&new, "service").await?;
    expect_keys(registry, &[], "the key to be gone once its owner removed it").await?;
    registry.revoke(&old).await?;
    second.revoke(&new).await?;
    Ok(Note::default())
}

/// Registered keys of two namespaces are apart, and none shows up among the records.
pub async fn registered_keys_keep_to_themselves(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "apart").await?;
    let neighbour = trial.fixture.open(&format!("{}-more", trial.namespace)).await?;
    let (registry, other) = (registry(&*trial.a)?, registry(&*neighbour)?);
    let (mine, theirs) = (registry.grant(LONG).await?, other.grant(LONG).await?);
    put_alive(registry, &mine, "nodes/n", b"mine").await?;
    put_alive(other, &theirs, "other", b"theirs").await?;
    expect_keys(registry, &["nodes/n"], "only the keys of the namespace").await?;
    expect_keys(other, &["other"], "only the keys of the namespace").await?;
    let listing = trial.b.list().await?;
    ensure!(
        listing.entries.is_empty() && listing.foreign.is_empty(),
        "no registered key among the records",
        format!("{listing:?}"),
        "a registered key that is taken for a node record is a member that does not exist",
    );
    registry.revoke(&mine).await?;
    other.revoke(&theirs).await?;
    Ok(Note::default())
}

fn registry(store: &dyn Store) -> Result<&dyn Registry, Unmet> {
    store.registry().ok_or_else(|| Unmet::Skipped("the store has no registry".to_owned()))
}

async fn put_alive(registry: &dyn Registry, lease: &LeaseId, key: &str, value: &[u8]) -> Result<(), Unmet> {
    let state = registry.put(lease, key, value).await?;
    ensure!(
        state == LeaseState::Alive,
        format!("the key {key:?} to be put under a lease that is alive"),
        format!("{state:?}"),
        "a node could not register its services",
    );
    Ok(())
}

/// These keys and no others are there, and each has the same value when it is asked for by its name.
async fn expect_keys(registry: &dyn Registry, wanted: &[&str], expected: &str) -> Result<(), Unmet> {
    let listed = registry.keys().await?;
    let names: Vec<String> = listed.iter().rev().map(|(key, _)| key.clone()).collect();
    let values = registry.values(&names).await?;
    let same = listed.iter().rev().map(|(_, value)| Some(value)).eq(values.iter().map(Option::as_ref));
    ensure!(
        same,
        format!("the values of {names:?} as they are listed"),
        format!("{values:?}"),
        "a node would not notice that a key was removed or overwritten",
    );
    expect_gone(registry, "never there").await?;
    let seen: Vec<String> = listed.into_iter().map(|(key, _)| key).collect();
    ensure!(
        seen == wanted,
        format!("{expected}: {wanted:?}"),
        format!("{seen:?}"),
        "other programs would find services that are gone, or miss some that are there",
    );
    Ok(())
}

async fn expect_gone(registry: &dyn Registry, key: &str) -> Result<(), Unmet> {
    let values = registry.values(&[key.to_owned()]).await?;
    ensure!(
        values == [None],
        format!("no value of {key:?}, which is not there"),
        format!("{values:?}"),
        "a node would not register a removed key again",
    );
    Ok(())
}
