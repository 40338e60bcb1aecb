//! Rules of a store that loses records, is emptied, rolled back or restarted.

use leasehold_core::store::{Listing, Safety, StoreError, Swapped, Version};

use super::trial::{Trial, Waited, get, listed, parse, put, remove, shard, swap_one, wish};
use super::verdict::ensure;
use super::{Fixture, Note, Unmet, Verdict};

/// A record that another client removed is absent for all, and swaps that still expect it are lost to nothing.
pub async fn vanished_records_are_absent(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "vanish").await?;
    if !trial.a.facts().removes {
        return Err(Unmet::Skipped("the store does not remove".to_owned()));
    }
    let key = parse("nodes/n");
    let old = put(&*trial.a, &key, None, b"alive").await?;
    remove(&*trial.b, &key, &old).await?;
    let found = get(&*trial.a, &key).await?;
    let outcome = swap_one(&*trial.a, wish(&key, Some(&old), Some(b"renewed"))).await?;
    ensure!(
        found.is_none() && outcome == Swapped::Lost(None),
        "nothing by read, and a renewal that is lost to nothing",
        format!("{found:?}, {outcome:?}"),
        "a session whose record is gone must detach, and not bring its record back",
    );
    let again = put(&*trial.b, &key, None, b"another life").await?;
    let outcome = swap_one(&*trial.a, wish(&key, Some(&old), Some(b"renewed"))).await?;
    ensure!(
        again != old && matches!(&outcome, Swapped::Lost(Some(stored)) if stored.version == again),
        "a renewal from before the record vanished to be lost to the one that came after",
        format!("{outcome:?}"),
        "a former life would renew itself over the next one",
    );
    Ok(Note::default())
}

/// The store's mark of identity is the same for all clients and calls while nothing happens to it, and the revision,
/// where there is one, never falls and rises with writes.
pub async fn generation_is_steady(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "generation").await?;
    let generation = trial.a.generation().await?;
    let mut revision = None;
    let mut version = None;
    for round in 0..10 {
        let store = if round % 2 == 0 { &trial.a } else { &trial.b };
        let key = shard(0);
        let reply = store.swap(crate::Lane::Work, &[wish(&key, version.as_ref(), Some(b"1"))]).await?;
        if let Some(Swapped::Applied(applied)) = reply.outcomes.first() {
            version = Some(applied.clone());
        }
        let listing = store.list().await?;
        let shown = [
            reply.generation,
            listing.generation,
            store.read(&[key]).await?.generation,
            store.generation().await?,
        ];
        ensure!(
            shown.iter().all(|shown| *shown == generation),
            format!("the generation {generation:?} from swap, list, read and generation alike"),
            format!("{shown:?}"),
            "a node detaches when the generation changes, and would do so for nothing",
        );
        ensure!(
            round == 0 || listing.revision.is_some() == revision.is_some() && listing.revision >= revision,
            format!("a revision of at least {revision:?}"),
            format!("{:?}", listing.revision),
            "a node detaches when the revision falls, and would do so for nothing",
        );
        revision = listing.revision;
    }
    Ok(Note(if generation.is_empty() { "the store has no generation".to_owned() } else { String::new() }))
}

/// A store that was emptied shows it: records are absent for all clients, and versions of then never fit again.
pub async fn an_emptied_store_is_noticed(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "emptied").await?;
    let keys = ["meta", "nodes/n", "shards/g/0"].map(parse);
    let mut old = Vec::new();
    for key in &keys {
        old.push(put(&*trial.a, key, None, b"before").await?);
    }
    let before = trial.a.list().await?;
    if trial.fixture.wipe(&trial.namespace).await.is_none() {
        return Err(Unmet::no_lever("empty the store"));
    }
    noticed(trial.a.list().await, &before, &keys[0], &old[0], "emptied")?;
    let fresh = trial.open().await?;
    let listing = fresh.list().await?;
    ensure!(
        listing.entries.is_empty(),
        "a client that is opened afterwards to find nothing",
        format!("{:?}", listing.entries),
        "a namespace counts as new only when it is empty",
    );
    for (key, old) in keys.iter().zip(&old) {
        let again = put(&*fresh, key, None, b"before").await?;
        ensure!(
            again != *old || listing.generation != before.generation,
            format!("{key} under a version that it did not have before the store was emptied"),
            format!("{again:?} again"),
            "a write from before would match the record that was created again",
        );
    }
    Ok(Note::default())
}

/// A store that was rolled back shows it: by an error, another generation, a smaller revision or an older record; and
/// versions that were lost with it never fit what is written afterwards, unless the generation changed.
pub async fn a_rolled_back_store_is_noticed(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "rolled-back").await?;
    let key = shard(0);
    let saved_version = put(&*trial.a, &key, None, b"saved").await?;
    let Some(saved) = trial.fixture.save(&trial.namespace).await else {
        return Err(Unmet::no_lever("roll the store back"));
    };
    let lost_version = put(&*trial.a, &key, Some(&saved_version), b"lost").await?;
    let before = trial.a.list().await?;
    if trial.fixture.roll_back(&trial.namespace, saved).await.is_none() {
        return Err(Unmet::no_lever("roll the store back"));
    }
    noticed(trial.a.list().await, &before, &key, &lost_version, "rolled back")?;
    let fresh = trial.open().await?;
    let found = get(&*fresh, &key).await?;
    ensure!(
        found.as_ref().is_some_and(|stored| *stored.value == *b"saved"),
        "a client that is opened afterwards to find what was saved",
        format!("{found:?}"),
        "the fixture must roll back for the test to mean anything",
    );
    let mut version = found.map(|stored| stored.version);
    for _ in 0..5 {
        version = Some(put(&*fresh, &key, version.as_ref(), b"after").await?);
        ensure!(
            version.as_ref() != Some(&lost_version) || fresh.generation().await? != before.generation,
            "versions after the roll-back that were not given before it",
            format!("{version:?} again, under the same generation"),
            "a claim that was under way would fit a record that another node has by then",
        );
    }
    Ok(Note::default())
}

fn noticed(
    answer: Result<Listing, StoreError>,
    before: &Listing,
    key: &crate::Key,
    old: &Version,
    what: &str,
) -> Result<(), Unmet> {
    // A client that refuses to go on has noticed as well.
    let Ok(now) = answer else { return Ok(()) };
    let seen = listed(&now, key)?.map(|stored| &stored.version);
    ensure!(
        seen != Some(old) || now.generation != before.generation || now.revision < before.revision,
        format!("a client that was open while the store was {what} to show that in its next listing"),
        "the same records, generation and revision as before",
        "nodes that do not notice continue with epochs and holders that the store no longer has",
    );
    Ok(())
}

/// After a restart of the server all acknowledged writes are there under the same versions, and swaps go on.
pub async fn acknowledged_writes_survive_a_restart(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "restart").await?;
    let keys: Vec<_> = (0..20).map(shard).collect();
    let mut versions = Vec::new();
    for key in &keys {
        versions.push(put(&*trial.a, key, None, b"acknowledged").await?);
    }
    let generation = trial.a.generation().await?;
    if trial.fixture.restart().await.is_none() {
        return Err(Unmet::no_lever("restart the server"));
    }
    let mut patience = trial.patience();
    let reading = loop {
        match trial.a.read(&keys).await {
            Ok(reading) => break reading,
            Err(error) if patience.wait().await == Waited::Enough => {
                return Err(Unmet::failed(
                    format!(
                        "the same client to be answered within {:?} of the restart",
                        trial.scale.patience
                    ),
                    error.to_string(),
                    "nodes recover by themselves after an outage, without being restarted",
                ));
            }
            Err(_) => {}
        }
    };
    if trial.a.facts().safety == Safety::LosesLastWrites && reading.generation != generation {
        return Ok(Note("the generation changed, as the store's safety class allows".to_owned()));
    }
    for ((key, version), found) in keys.iter().zip(&versions).zip(&reading.found) {
        ensure!(
            found.as_ref().is_some_and(|stored| stored.version == *version),
            format!("{key} as it was acknowledged, {version:?}"),
            format!("{found:?}"),
            "a claim that is lost after it was acknowledged lets a second node claim the same shard",
        );
    }
    let next = put(&*trial.b, &keys[0], Some(&versions[0]), b"after").await?;
    ensure!(
        !versions.contains(&next),
        "a version after the restart that none had before it",
        format!("{next:?} again"),
        "a write from before the restart would fit a record from after it",
    );
    Ok(Note::default())
}
