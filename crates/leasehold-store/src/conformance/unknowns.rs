//! Rules of writes whose answer never came.

use std::time::Duration;

use leasehold_core::store::{Key, Lane, Stored, Swapped};

use super::trial::{Trial, get, put, shard, swap_one, wish};
use super::verdict::ensure;
use super::{Fixture, Note, Unmet, Verdict};
use crate::Store;
use crate::wrap::{Call, Fault, Faulty, Rates};

/// How late the suite's late writes land.
const LATE: Duration = Duration::from_millis(50);

/// A write whose answer was lost can be recognised by reading back: the bytes with its write id are there.
pub async fn a_lost_answer_can_be_resolved(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "answer").await?;
    let faulty = Faulty::new(trial.a.clone(), Rates::default(), 0);
    let key = shard(0);
    let mut version = None;
    for write in 0..3 {
        let value = format!("{{\"write\":\"{write:032x}\"}}");
        faulty.inject(Call::Swap, Fault::AnswerLost);
        let swap = [wish(&key, version.as_ref(), Some(value.as_bytes()))];
        let answer = faulty.swap(Lane::Work, &swap).await;
        ensure!(
            answer.is_err(),
            "the wrapper to lose the answer",
            format!("{answer:?}"),
            "the test needs it"
        );
        let found = get(&*trial.a, &key).await?;
        ensure!(
            found.as_ref().is_some_and(|stored| *stored.value == *value.as_bytes()),
            format!("the write whose answer was lost, {value}"),
            format!("{found:?}"),
            "a node resolves an unknown write by finding its write id, and runs the shard only then",
        );
        version = found.map(|stored| stored.version);
    }
    Ok(Note::default())
}

/// A write that is still under way never lands once its record was swapped past what it expects.
pub async fn a_late_write_loses_to_a_swap_past_it(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "late").await?;
    let faulty = Faulty::new(trial.a.clone(), Rates::default(), 0);
    let (held, created) = (shard("held"), shard("created"));
    let version = put(&*trial.a, &held, None, b"vacant").await?;
    faulty.inject(Call::Swap, Fault::LandsLate(LATE));
    let late = [wish(&held, Some(&version), Some(b"late claim")), wish(&created, None, Some(b"late claim"))];
    let answer = faulty.swap(Lane::Work, &late).await;
    ensure!(answer.is_err(), "the wrapper to delay the write", format!("{answer:?}"), "the test needs it");
    put(&*trial.b, &held, Some(&version), b"claimed by another").await?;
    put(&*trial.b, &created, None, b"claimed by another").await?;
    faulty.all_landed().await;
    for key in [held, created] {
        let found = get(&*trial.b, &key).await?;
        ensure!(
            found.as_ref().is_some_and(|stored| *stored.value == *b"claimed by another"),
            format!("{key} as the swap past the late write left it"),
            format!("{found:?}"),
            "a node that swapped past a late claim runs the shard, and so would the late one",
        );
    }
    Ok(Note::default())
}

/// A call that arrives twice is applied once.
pub async fn a_doubled_write_applies_once(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "doubled").await?;
    let faulty = Faulty::new(trial.a.clone(), Rates::default(), 0);
    let key = shard(0);
    let mut version = None;
    for value in [b"one".as_slice(), b"two"] {
        faulty.inject(Call::Swap, Fault::Doubled(LATE));
        let outcome = swap_one(&faulty, wish(&key, version.as_ref(), Some(value))).await?;
        faulty.all_landed().await;
        let found = get(&*trial.b, &key).await?;
        version = found.map(|stored| stored.version);
        ensure!(
            matches!(&outcome, Swapped::Applied(applied) if version.as_ref() == Some(applied)),
            "the record as the first copy of the call left it",
            format!("the first copy was answered with {outcome:?}, and now it is {version:?}"),
            "a second copy that applies takes the record from the node that has it by then",
        );
    }
    Ok(Note::default())
}

/// On a day when much goes wrong, no write that was answered as applied is missing, none that was answered as lost
/// is there, and none is there twice.
pub async fn a_bad_day_loses_nothing(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "bad-day").await?;
    let rates = Rates {
        error_before: 80,
        answer_lost: 150,
        lands_late: 100,
        doubled: 150,
        torn: 50,
        some_unknown: 50,
        delay_max: LATE / 5,
        ..Rates::default()
    };
    let faulty = Faulty::new(trial.a.clone(), rates, 0x5eed);
    let key = shard(0);
    let (mut applied, mut lost) = (Vec::new(), Vec::new());
    let mut found = Some(start(&trial, &key).await?);
    for write in 0..150 {
        let word = format!("w{write}");
        let text = found.as_ref().map(|stored| String::from_utf8_lossy(&stored.value).into_owned());
        let text = format!("{} {word}", text.unwrap_or_default());
        let expect = found.as_ref().map(|stored| stored.version.clone());
        let swap = [wish(&key, expect.as_ref(), Some(text.as_bytes()))];
        let answer = faulty.swap(Lane::Work, &swap).await.map(|reply| reply.outcomes);
        match answer.as_deref() {
            Ok([Swapped::Applied(_)]) => applied.push(word),
            Ok([Swapped::Lost(_)]) => lost.push(word),
            _ => {}
        }
        found = get(&*trial.b, &key).await?;
    }
    faulty.all_landed().await;
    let found = get(&*trial.b, &key).await?;
    let text = found.map(|stored| String::from_utf8_lossy(&stored.value).into_owned()).unwrap_or_default();
    let count = |word: &String| text.split_whitespace().filter(|there| there == word).count();
    let (missing, wrong): (Vec<_>, Vec<_>) = (
        applied.iter().filter(|word| count(word) != 1).collect(),
        lost.iter().filter(|word| count(word) > 0).collect(),
    );
    ensure!(
        missing.is_empty() && wrong.is_empty(),
        "every applied write once, and no lost one",
        format!("applied but not there once: {missing:?}; lost but there: {wrong:?}"),
        "an outcome that is not true makes a node run what it does not hold, or hold what it does not run",
    );
    Ok(Note(format!("{} of 150 calls went wrong", faulty.happened().len())))
}

async fn start(trial: &Trial<'_>, key: &Key) -> Result<Stored, Unmet> {
    put(&*trial.a, key, None, b"start").await?;
    Ok(get(&*trial.b, key).await?.expect("it was just written"))
}
