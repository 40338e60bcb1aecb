//! Rules of swaps that many clients make at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::store::{Key, Lane, Stored, Swapped, Version};
use tokio::task::JoinSet;

use super::trial::{Trial, get, shard, wish};
use super::verdict::ensure;
use super::{Fixture, Note, Unmet, Verdict};
use crate::Store;

/// Of many clients that create one record at once exactly one wins, and the others are shown the winner.
pub async fn one_creator_wins(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "creators").await?;
    let stores = clients(&trial).await?;
    for round in 0..trial.scale.wins {
        let key = shard(round);
        let mut racers = JoinSet::new();
        for racer in 0..trial.scale.racers {
            let (store, key) = (stores[racer % stores.len()].clone(), key.clone());
            racers.spawn(async move {
                tokio::task::yield_now().await;
                let mine = format!("racer {racer}");
                store.swap(Lane::Work, &[wish(&key, None, Some(mine.as_bytes()))]).await
            });
        }
        let mut winners = Vec::new();
        let mut shown = BTreeSet::new();
        while let Some(answer) = racers.join_next().await {
            match answer.expect("no racer panics").map(|mut reply| reply.outcomes.pop()) {
                Ok(Some(Swapped::Applied(version))) => winners.push(version),
                Ok(Some(Swapped::Lost(found))) => drop(shown.insert(found.map(|stored| stored.version))),
                // A store that was too busy may say so; whether the write landed is then open.
                Ok(Some(Swapped::Unknown) | None) | Err(_) => {}
            }
        }
        let found = get(&*trial.a, &key).await?.map(|stored| stored.version);
        ensure!(
            winners.len() <= 1
                && found.is_some()
                && winners.iter().all(|winner| found.as_ref() == Some(winner)),
            format!("one winner of {} racing creations, and its record in the store", trial.scale.racers),
            format!("winners {winners:?}, in the store {found:?}"),
            "every winner runs the shard",
        );
        ensure!(
            shown.iter().all(|version| *version == found),
            format!("losers to be shown the winner's record, {found:?}"),
            format!("{shown:?}"),
            "a loser that is shown nothing, or something else, believes that the shard is free",
        );
    }
    Ok(Note(format!("{} racers, {} rounds", trial.scale.racers, trial.scale.wins)))
}

/// Many clients that each change one record again and again lose no update, and each version has one successor.
pub async fn racing_writers_lose_no_update(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "race").await?;
    let stores = clients(&trial).await?;
    let key = shard(0);
    let mut racers = JoinSet::new();
    for racer in 0..trial.scale.racers {
        let (store, key, wins) = (stores[racer % stores.len()].clone(), key.clone(), trial.scale.wins);
        racers.spawn(async move { append_all(&*store, &key, racer, wins).await });
    }
    let mut successors: BTreeMap<Option<Version>, usize> = BTreeMap::new();
    while let Some(won) = racers.join_next().await {
        for replaced in won.expect("no racer panics")? {
            *successors.entry(replaced).or_default() += 1;
        }
    }
    let twice: Vec<_> = successors.iter().filter(|(_, wins)| **wins > 1).collect();
    ensure!(
        twice.is_empty(),
        "each version to be replaced by one swap",
        format!("{twice:?}"),
        "two nodes that replaced the same vacant record both run the shard",
    );
    let text = words(get(&*trial.a, &key).await?.as_ref());
    let distinct: BTreeSet<&String> = text.iter().collect();
    let wanted = trial.scale.racers * trial.scale.wins;
    ensure!(
        text.len() == wanted && distinct.len() == wanted,
        format!("each of {wanted} updates once"),
        format!("{} updates, {} of them distinct", text.len(), distinct.len()),
        "an update that another one overwrote is a claim, a release or a renewal that is gone",
    );
    Ok(Note(format!("{wanted} updates by {} writers", trial.scale.racers)))
}

/// At least two, and up to four independent clients.
async fn clients(trial: &Trial<'_>) -> Result<Vec<Arc<dyn Store>>, Unmet> {
    Ok(vec![trial.a.clone(), trial.b.clone(), trial.open().await?, trial.open().await?])
}

/// Appends words until all have landed, and says which versions were replaced by swaps that were answered.
async fn append_all(
    store: &dyn Store,
    key: &Key,
    racer: usize,
    wins: usize,
) -> Result<Vec<Option<Version>>, Unmet> {
    let mut replaced = Vec::new();
    for win in 0..wins {
        let word = format!("{racer}.{win}");
        let mut failures = 0;
        loop {
            let found = match store.read(std::slice::from_ref(key)).await {
                Ok(mut reading) => reading.found.pop().flatten(),
                Err(error) => {
                    failures += 1;
                    if failures > 100 {
                        return Err(error.into());
                    }
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            let mut text = words(found.as_ref());
            // The answer to an earlier try may have been lost although it landed.
            if text.contains(&word) {
                break;
            }
            text.push(word.clone());
            let expect = found.map(|stored| stored.version);
            tokio::task::yield_now().await;
            let swap = [wish(key, expect.as_ref(), Some(text.join(" ").as_bytes()))];
            if let Ok(reply) = store.swap(Lane::Work, &swap).await
                && matches!(reply.outcomes.as_slice(), [Swapped::Applied(_)])
            {
                replaced.push(expect);
                break;
            }
        }
    }
    Ok(replaced)
}

fn words(stored: Option<&Stored>) -> Vec<String> {
    let text = stored.map(|stored| String::from_utf8_lossy(&stored.value).into_owned()).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}
