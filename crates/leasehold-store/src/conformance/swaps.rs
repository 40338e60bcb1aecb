//! Rules of single swaps and of many in one call.

use std::collections::BTreeMap;

use leasehold_core::store::{Lane, StoreErrorKind, Swap, Swapped, Version};

use super::trial::{Trial, get, listed, parse, put, read_all, remove, shard, show, swap_all, swap_one, wish};
use super::verdict::ensure;
use super::{Fixture, Note, Unmet, Verdict};
use crate::Store;

/// A record can be created, replaced and removed, and each state is what was written.
pub async fn creates_replaces_removes(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "create").await?;
    for key in ["meta", "control", "groups/g", "nodes/n", "shards/g/0"].map(parse) {
        let mut version: Option<Version> = None;
        for value in [b"first".as_slice(), b"second", b"third"] {
            version = Some(put(&*trial.a, &key, version.as_ref(), value).await?);
            let found = get(&*trial.b, &key).await?;
            ensure!(
                found.as_ref().is_some_and(|stored| *stored.value == *value),
                format!("{key} to hold {} after a swap was applied", show(value)),
                format!("{found:?}"),
                "an applied claim that is not in the store is a shard that runs without being held",
            );
        }
        if !trial.a.facts().removes {
            continue;
        }
        remove(&*trial.a, &key, &version.expect("it was written")).await?;
        let found = get(&*trial.b, &key).await?;
        ensure!(
            found.is_none(),
            format!("{key} to be gone after its removal was applied"),
            format!("{found:?}"),
            "named shards that are long vacant are removed, and must not come back with an old epoch",
        );
    }
    Ok(Note::default())
}

/// A swap applies only to exactly what it expects: absent, or one version. Otherwise nothing changes.
pub async fn applies_only_to_what_it_expects(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "expect").await?;
    let key = shard(0);
    let stranger = put(&*trial.a, &shard("other"), None, b"other").await?;
    let old = put(&*trial.a, &key, None, b"old").await?;
    let new = put(&*trial.b, &key, Some(&old), b"new").await?;
    let absent = shard("absent");
    let mut wrong = vec![
        (wish(&key, None, Some(b"x")), "expecting nothing where a record is"),
        (wish(&key, Some(&old), Some(b"x")), "expecting a version that was replaced"),
        (wish(&key, Some(&stranger), Some(b"x")), "expecting the version of another record"),
        (wish(&absent, Some(&old), Some(b"x")), "expecting a version where nothing is"),
    ];
    if trial.a.facts().removes {
        wrong.push((wish(&key, Some(&old), None), "removing a version that was replaced"));
        wrong.push((wish(&absent, Some(&old), None), "removing what is not there"));
    }
    for (wrong, what) in wrong {
        let outcome = swap_one(&*trial.a, wrong).await?;
        ensure!(
            matches!(outcome, Swapped::Lost(_)),
            format!("a swap {what} to be lost"),
            format!("{outcome:?}"),
            "compare-and-swap is all that keeps two nodes from holding one shard",
        );
    }
    let found = get(&*trial.b, &key).await?;
    ensure!(
        found.as_ref().is_some_and(|stored| stored.version == new && *stored.value == *b"new"),
        "lost swaps to leave the record alone",
        format!("{found:?}"),
        "a swap that was reported as lost but applied is a claim that no node knows of",
    );
    let found = get(&*trial.b, &absent).await?;
    ensure!(
        found.is_none(),
        "lost swaps to leave an absent record absent",
        format!("{found:?}"),
        "a swap that was reported as lost but applied is a claim that no node knows of",
    );
    Ok(Note::default())
}

/// A lost swap says what is there now, so that the loser need not ask again.
pub async fn lost_shows_what_is_there(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "lost").await?;
    let key = shard(0);
    let old = put(&*trial.a, &key, None, b"old").await?;
    put(&*trial.a, &key, Some(&old), b"new").await?;
    let now = get(&*trial.a, &key).await?;
    for expect in [None, Some(&old)] {
        let outcome = swap_one(&*trial.b, wish(&key, expect, Some(b"mine"))).await?;
        ensure!(
            outcome == Swapped::Lost(now.clone()),
            format!("{:?}", Swapped::Lost(now.clone())),
            format!("{outcome:?}"),
            "a loser that is not shown the winner plans with a stale record",
        );
    }
    let outcome = swap_one(&*trial.b, wish(&shard("absent"), Some(&old), Some(b"mine"))).await?;
    ensure!(
        outcome == Swapped::Lost(None),
        "a swap that expected a version where nothing is to be lost to nothing",
        format!("{outcome:?}"),
        "a vanished record starts a new wait, which begins only when it is known to have vanished",
    );
    Ok(Note::default())
}

/// No two states of a record ever have the same version: not with the same bytes, not after removal and re-creation.
pub async fn versions_never_repeat(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "versions").await?;
    let key = shard(0);
    let mut given: BTreeMap<Version, usize> = BTreeMap::new();
    let mut version: Option<Version> = None;
    for step in 0..20 {
        let next = match &version {
            Some(current) if step % 3 == 2 && trial.a.facts().removes => {
                let gone = remove(&*trial.a, &key, current).await?;
                version = None;
                gone
            }
            current => {
                let next = put(&*trial.a, &key, current.as_ref(), b"the same bytes").await?;
                version = Some(next.clone());
                next
            }
        };
        let before = given.insert(next.clone(), step);
        ensure!(
            before.is_none(),
            format!("a version at write {step} that no earlier write had"),
            format!("{next:?}, which write {} had as well", before.unwrap_or_default()),
            "a renewal is told from silence by its version, and a late swap must not fit a later state",
        );
    }
    if let Some(stale) = given.keys().find(|given| Some(*given) != version.as_ref()) {
        let outcome = swap_one(&*trial.b, wish(&key, Some(stale), Some(b"stale"))).await?;
        ensure!(
            matches!(outcome, Swapped::Lost(_)),
            "a swap with a version of an earlier life of the record to be lost",
            format!("{outcome:?}"),
            "a write that was delayed since then would take the shard from its holder",
        );
    }
    Ok(Note::default())
}

/// The version of a state is the same wherever it is shown: applied, read, listed, lost, and by any client.
pub async fn versions_agree_everywhere(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "agree").await?;
    let key = parse("nodes/n");
    let mut version = None;
    for value in [b"one".as_slice(), b"two"] {
        let applied = put(&*trial.a, &key, version.as_ref(), value).await?;
        let mut shown = Vec::new();
        for store in [&trial.a, &trial.b] {
            shown.push(("read", get(&**store, &key).await?.map(|stored| stored.version)));
            if trial.a.facts().reads == crate::Freshness::Newest {
                let listing = store.list().await?;
                shown.push(("list", listed(&listing, &key)?.map(|stored| stored.version.clone())));
            }
            if let Swapped::Lost(found) = swap_one(&**store, wish(&key, None, Some(b"x"))).await? {
                shown.push(("lost swap", found.map(|stored| stored.version)));
            }
        }
        for (how, shown) in shown {
            ensure!(
                shown.as_ref() == Some(&applied),
                format!("the version that was applied, {applied:?}, by {how}"),
                format!("{shown:?}"),
                "a session that seems to change its version seems to be alive, and is never fenced",
            );
        }
        version = Some(applied);
    }
    Ok(Note::default())
}

/// The swaps of one call are independent of each other, and their outcomes come in the order asked.
pub async fn swaps_stand_for_themselves(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "mixed").await?;
    if trial.a.facts().swaps_max < 4 {
        return Err(Unmet::Skipped("the store takes fewer than four swaps at once".to_owned()));
    }
    let old = put(&*trial.a, &shard(1), None, b"old").await?;
    put(&*trial.a, &shard(2), None, b"taken").await?;
    let swaps = [
        wish(&shard(0), None, Some(b"created")),
        wish(&shard(2), None, Some(b"mine")),
        wish(&shard(1), Some(&old), Some(b"replaced")),
        wish(&shard(3), Some(&old), Some(b"mine")),
    ];
    let reply = swap_all(&*trial.b, &swaps).await?;
    let kinds: Vec<&str> = reply
        .outcomes
        .iter()
        .map(|outcome| match outcome {
            Swapped::Applied(_) => "applied",
            Swapped::Lost(Some(_)) => "lost to a record",
            Swapped::Lost(None) => "lost to nothing",
            Swapped::Unknown => "unknown",
        })
        .collect();
    ensure!(
        kinds == ["applied", "lost to a record", "applied", "lost to nothing"],
        "applied, lost to a record, applied, lost to nothing",
        kinds.join(", "),
        "one shard that another node took must not keep a node from claiming the rest",
    );
    let keys: Vec<_> = (0..4).map(shard).collect();
    let reading = read_all(&*trial.a, &keys).await?;
    let values: Vec<String> = reading
        .found
        .iter()
        .map(|found| match found {
            Some(stored) => String::from_utf8_lossy(&stored.value).into_owned(),
            None => "nothing".to_owned(),
        })
        .collect();
    ensure!(
        values == ["created", "replaced", "taken", "nothing"],
        "created, replaced, taken, nothing, in the order of the keys that were read",
        values.join(", "),
        "outcomes that don't match what is in the store make nodes run shards that they don't hold",
    );
    for (swap, outcome) in swaps.iter().zip(&reply.outcomes) {
        let Swapped::Applied(version) = outcome else { continue };
        let found = get(&*trial.a, &swap.key).await?;
        ensure!(
            found.as_ref().is_some_and(|stored| stored.version == *version),
            format!("{} under the version that its swap was answered with, {version:?}", swap.key),
            format!("{found:?}"),
            "the next swap of that record would be lost, so that the shard could not be released",
        );
    }
    Ok(Note::default())
}

/// As many swaps in one call as the facts allow are carried out; one more is either carried out as well, or refused
/// as a whole with [`StoreErrorKind::Refused`].
pub async fn keeps_to_its_most_swaps(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "many").await?;
    let most = trial.a.facts().swaps_max;
    ensure!(
        most > 0,
        "room for at least one swap in a call",
        "swaps_max 0",
        "a node on such a store can write nothing",
    );
    if most > 20_000 {
        return Err(Unmet::Skipped(format!("the store takes {most} swaps at once")));
    }
    let creations = |prefix: &str, count: usize| -> Vec<Swap> {
        (0..count).map(|i| wish(&shard(format_args!("{prefix}{i}")), None, Some(b"1"))).collect()
    };
    let reply = swap_all(&*trial.a, &creations("fits-", most)).await?;
    let applied = count_applied(&reply.outcomes);
    ensure!(
        applied == most,
        format!("all of {most} creations to be applied"),
        format!("{applied} applied"),
        "nodes send up to swaps_max at once, to claim many shards in one round trip",
    );
    let too_many = creations("more-", most + 1);
    match trial.a.swap(Lane::Work, &too_many).await {
        Ok(reply) => {
            let applied = count_applied(&reply.outcomes);
            ensure!(
                applied == most + 1,
                format!("{} swaps to be carried out or refused as a whole", most + 1),
                format!("{applied} of {} outcomes applied", reply.outcomes.len()),
                "what was cut off without a word is a claim that its node believes in or waits for",
            );
        }
        Err(error) => refused_whole(&*trial.b, &too_many, error.kind).await?,
    }
    Ok(Note(format!("swaps_max {most}")))
}

fn count_applied(outcomes: &[Swapped]) -> usize {
    outcomes.iter().filter(|outcome| matches!(outcome, Swapped::Applied(_))).count()
}

async fn refused_whole(store: &dyn Store, swaps: &[Swap], kind: StoreErrorKind) -> Result<(), Unmet> {
    ensure!(
        kind == StoreErrorKind::Refused,
        "too many swaps to be refused with StoreErrorKind::Refused",
        format!("{kind:?}"),
        "another kind of error means that trying again may help, and it never does",
    );
    for swap in swaps {
        let found = get(store, &swap.key).await?;
        ensure!(
            found.is_none(),
            "nothing of a refused call to be carried out",
            format!("{} is there", swap.key),
            "a refusal is a programming error, and must not leave half of the writes behind",
        );
    }
    Ok(())
}

/// A store that says it cannot remove on condition refuses to, and one that says it can does.
pub async fn removes_as_it_says(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "remove").await?;
    let key = shard(0);
    let version = put(&*trial.a, &key, None, b"1").await?;
    let answer = trial.a.swap(Lane::Work, &[wish(&key, Some(&version), None)]).await;
    let found = get(&*trial.b, &key).await?;
    if trial.a.facts().removes {
        ensure!(
            matches!(answer.as_ref().map(|reply| reply.outcomes.as_slice()), Ok([Swapped::Applied(_)]))
                && found.is_none(),
            "a removal on condition of the right version to be applied, as facts().removes says",
            format!("{answer:?}, and then {found:?}"),
            "records of named shards that came and went would stay forever",
        );
    } else {
        ensure!(
            matches!(&answer, Err(error) if error.kind == StoreErrorKind::Refused) && found.is_some(),
            "a removal to be refused with StoreErrorKind::Refused, as facts().removes says",
            format!("{answer:?}, and then {found:?}"),
            "a removal without its condition deletes the record of a node that wrote in between",
        );
    }
    Ok(Note::default())
}

/// Both lanes reach the same records.
pub async fn lanes_share_the_records(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "lanes").await?;
    let key = parse("nodes/n");
    let mut version = put(&*trial.a, &key, None, b"0").await?;
    for (i, lane) in [Lane::Renewal, Lane::Work, Lane::Renewal, Lane::Renewal].into_iter().enumerate() {
        let value = i.to_string();
        let reply = trial.a.swap(lane, &[wish(&key, Some(&version), Some(value.as_bytes()))]).await?;
        let [Swapped::Applied(applied)] = reply.outcomes.as_slice() else {
            return Err(Unmet::failed(
                format!("a swap in the lane {lane:?} to see what the other lane wrote"),
                format!("{:?}", reply.outcomes),
                "the lanes are connections to one store, and a renewal follows a join in the other lane",
            ));
        };
        version = applied.clone();
        let found = get(&*trial.b, &key).await?;
        ensure!(
            found.as_ref().is_some_and(|stored| stored.version == version),
            format!("what the lane {lane:?} wrote, {version:?}"),
            format!("{found:?}"),
            "a renewal that others don't see does not keep the session alive",
        );
    }
    Ok(Note::default())
}

/// A call that is dropped before it is answered leaves its record old or new, never between, and the client usable.
pub async fn dropped_calls_do_no_harm(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "dropped").await?;
    let key = shard(0);
    let mut version = put(&*trial.a, &key, None, b"start").await?;
    for i in 0..20 {
        let value = format!("try {i}");
        let before = get(&*trial.b, &key).await?;
        let swap = [wish(&key, Some(&version), Some(value.as_bytes()))];
        {
            let mut call = trial.a.swap(Lane::Work, &swap);
            for _ in 0..i % 3 {
                if futures::poll!(&mut call).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let found = get(&*trial.b, &key).await?;
        ensure!(
            found == before || found.as_ref().is_some_and(|stored| *stored.value == *value.as_bytes()),
            format!("{before:?}, or {value:?}"),
            format!("{found:?}"),
            "every call has a timeout, and a record that is neither old nor new is corrupt",
        );
        // The dropped write may still be under way; only a swap past it resolves that.
        version = loop {
            let current = get(&*trial.a, &key).await?.map(|stored| stored.version);
            match swap_one(&*trial.a, wish(&key, current.as_ref(), Some(b"past it"))).await? {
                Swapped::Applied(version) => break version,
                Swapped::Lost(_) | Swapped::Unknown => {}
            }
        };
    }
    Ok(Note::default())
}
