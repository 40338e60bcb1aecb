//! Rules of what names and values a store must carry, and of what does not belong to it.

use std::collections::BTreeMap;
use std::str::FromStr;

use leasehold_core::store::{Freshness, Key, Lane, StoreErrorKind, Swapped, WatchEvent};
use leasehold_core::{GroupName, NodeName, ShardId, ShardName};

use super::trial::{Trial, get, listed, parse, put, shard, show, swap_one, wish};
use super::verdict::ensure;
use super::watching::{Watching, next, open_watch};
use super::{Fixture, Note, Unmet, Verdict};

/// Values come back byte for byte: one byte, 64 KiB, broken JSON. Empty values and bytes that are not UTF-8, which
/// Leasehold itself never writes, are carried as well or refused with [`StoreErrorKind::Refused`].
pub async fn values_are_carried_faithfully(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "values").await?;
    let large: Vec<u8> = (0..64 * 1024).map(|i| b'a' + (i % 23) as u8).collect();
    let needed: [&[u8]; 8] = [
        b"x",
        b"{}",
        b"{\"format\":1,\"wri",
        b"null",
        b" {\"spaces\" : [1,2,  3]}\n",
        "{\"unicode\":\"\u{1f980}\u{e9}\"}".as_bytes(),
        b"'; drop table records; --",
        &large,
    ];
    let strange: [&[u8]; 4] = [b"", b"\xff\xfe\x00{", b"\0", b"{\"a\":\"\xc3\"}"];
    for (i, value) in needed.into_iter().enumerate() {
        let key = shard(i);
        put(&*trial.a, &key, None, value).await?;
        expect_value(&trial, &key, value).await?;
    }
    let mut refused = 0;
    for (i, value) in strange.into_iter().enumerate() {
        let key = shard(format_args!("strange-{i}"));
        match trial.a.swap(Lane::Work, &[wish(&key, None, Some(value))]).await {
            Ok(_) => expect_value(&trial, &key, value).await?,
            Err(error) if error.kind == StoreErrorKind::Refused => refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Note(if refused > 0 { format!("{refused} strange values refused") } else { String::new() }))
}

async fn expect_value(trial: &Trial<'_>, key: &Key, value: &[u8]) -> Result<(), Unmet> {
    let mut found = vec![("read", get(&*trial.b, key).await?)];
    if trial.a.facts().reads == Freshness::Newest {
        found.push(("list", listed(&trial.b.list().await?, key)?.cloned()));
    }
    for (how, found) in found {
        ensure!(
            found.as_ref().is_some_and(|stored| *stored.value == *value),
            format!("{} by {how}", show(value)),
            found.map_or("nothing".to_owned(), |stored| show(&stored.value)),
            "a record that comes back changed is corrupt, and its shard stays unowned for the longest ttl",
        );
    }
    Ok(())
}

/// Names that are easily mixed up or mangled. Each is another one, also where only the case differs.
const ODD: [&str; 46] = [
    "a",
    "A",
    "a.",
    "a..",
    ".a",
    ".",
    "..",
    "...",
    "../a",
    "a/b",
    "a//b",
    "/a",
    "a/",
    "a/../b",
    "a%2Fb",
    "a%2fb",
    "%",
    "%%",
    "%2E",
    "a_b",
    "axb",
    "a%b",
    "*",
    "a*",
    "?",
    "[a]",
    "{a}",
    "a:b",
    "a\\b",
    "'",
    "\"",
    ";",
    "--",
    "#",
    "a b",
    "a+b",
    "~",
    "-",
    "0",
    "00",
    "null",
    "nodes/n",
    "\u{e9}",
    "e\u{301}",
    "\u{1f980}",
    "\u{645}\u{631}",
];

/// Odd names (slashes, dots, percent signs, unicode, 200 bytes, differing only in case) come back as they were, each
/// its own record, through read, list and watch. What the name types refuse never reaches a store.
pub async fn odd_names_are_carried_faithfully(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "names").await?;
    let watching = Watching::begin(&*trial.b, &trial).await?;
    let (long, wide) = ("l".repeat(200), "\u{e9}".repeat(100));
    let mut keys: Vec<Key> = Vec::new();
    let mut refused = 0;
    for name in ODD.into_iter().chain([long.as_str(), wide.as_str()]) {
        let shard = ShardName::from_str(name)
            .map(|name| Key::Shard(ShardId::new("g".parse().expect("a group name"), name)));
        let group = GroupName::from_str(name).map(Key::Group);
        let node = NodeName::from_str(name).map(Key::Node);
        for key in [shard, group, node] {
            match key {
                Ok(key) => keys.push(key),
                Err(_) => refused += 1,
            }
        }
    }
    let mut wanted = BTreeMap::new();
    for key in keys {
        let value = format!("the value of {key}").into_bytes();
        let version = match swap_one(&*trial.a, wish(&key, None, Some(&value))).await? {
            Swapped::Applied(version) => version,
            other => return Err(mixed_up(&key, "it to be created", &format!("{other:?}"))),
        };
        wanted.insert(key, (version, value));
    }
    for (key, (version, value)) in &wanted {
        let found = get(&*trial.b, key).await?;
        if found.as_ref().is_none_or(|stored| stored.version != *version || *stored.value != **value) {
            return Err(mixed_up(key, "its own value by read", &format!("{found:?}")));
        }
    }
    let listing = trial.list_until(&*trial.b, |listing| listing.entries.len() >= wanted.len()).await?;
    expect_all(&wanted, listing.entries.into_iter().collect(), "list")?;
    if let Some(mut watching) = watching {
        watching.until(&trial, |seen| seen.records.len() >= wanted.len()).await?;
        watching.drain().await;
        expect_all(&wanted, watching.seen.records, "watch")?;
    }
    Ok(Note(format!("{} names carried, {refused} refused by their types", wanted.len())))
}

fn expect_all(
    wanted: &BTreeMap<Key, (crate::Version, Vec<u8>)>,
    seen: BTreeMap<Key, crate::Stored>,
    how: &str,
) -> Result<(), Unmet> {
    for (key, (_, value)) in wanted {
        let found = seen.get(key);
        if found.is_none_or(|stored| *stored.value != **value) {
            return Err(mixed_up(key, &format!("its own value by {how}"), &format!("{found:?}")));
        }
    }
    match seen.keys().find(|key| !wanted.contains_key(key)) {
        Some(stranger) => {
            Err(mixed_up(stranger, &format!("no such key by {how}"), "a key that was never written"))
        }
        None => Ok(()),
    }
}

fn mixed_up(key: &Key, expected: &str, seen: &str) -> Unmet {
    Unmet::failed(
        format!("{:?}: {expected}", key.to_string()),
        seen,
        "names that a store mixes up or mangles make two shards share a holder, or none be found",
    )
}

/// Two namespaces on one server never see each other, also when the name of one begins with that of the other.
pub async fn namespaces_are_apart(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "spaces").await?;
    let names = ["", "-more", "x", "0"].map(|suffix| format!("{}{suffix}", trial.namespace));
    let mut spaces = Vec::new();
    for name in &names {
        spaces.push((name, trial.fixture.open(name).await?));
    }
    let watching = Watching::begin(&*trial.b, &trial).await?;
    let keys = ["meta", "nodes/n", "shards/g/0", "shards/more/meta"].map(parse);
    // Its own records come last, so that a watch that leaks has told of the others before.
    for (name, store) in spaces.iter().rev() {
        for key in &keys {
            let outcome = swap_one(&**store, wish(key, None, Some(name.as_bytes()))).await?;
            ensure!(
                matches!(outcome, Swapped::Applied(_)),
                format!("{key} to be absent in {name}, whatever is in the other namespaces"),
                format!("{outcome:?}"),
                "two clusters that share a record fence each other and take each other's shards",
            );
        }
    }
    for (name, store) in &spaces {
        let listing = trial.list_until(&**store, |listing| listing.entries.len() >= keys.len()).await?;
        let own = listing.entries.iter().filter(|(_, stored)| *stored.value == *name.as_bytes()).count();
        let seen = (listing.entries.len(), own, listing.foreign.len());
        ensure!(
            seen == (keys.len(), keys.len(), 0),
            format!("a listing of {name} with its own {} records and nothing else", keys.len()),
            format!("{} records, {} of them its own, {} foreign keys", seen.0, seen.1, seen.2),
            "nodes of another cluster that show up in the roster are given shards that they never run",
        );
    }
    if let Some(mut watching) = watching {
        watching.until(&trial, |seen| seen.records.len() >= keys.len()).await?;
        watching.drain().await;
        let strange = watching.seen.told.iter().find(|value| ***value != *names[0].as_bytes());
        ensure!(
            strange.is_none(),
            format!("a watch of {} that tells of its own records only", names[0]),
            format!("a record with the value {}", strange.map(|value| show(value)).unwrap_or_default()),
            "nodes of another cluster that show up in the roster are given shards that they never run",
        );
    }
    Ok(Note::default())
}

/// A damaged record is shown as it is, for its reader to judge, and can be swapped by its version.
pub async fn corrupt_records_are_shown_as_they_are(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "corrupt").await?;
    let key = shard(0);
    put(&*trial.a, &key, None, b"{\"sound\":true}").await?;
    put(&*trial.a, &shard("sound"), None, b"sound").await?;
    let broken = b"{\"format\":1,\"state\":";
    if trial.fixture.put_raw(&trial.namespace, &key.to_string(), broken).await.is_none() {
        return Err(Unmet::no_lever("damage a record"));
    }
    expect_value(&trial, &key, broken).await?;
    expect_value(&trial, &shard("sound"), b"sound").await?;
    let version = get(&*trial.a, &key).await?.map(|stored| stored.version);
    put(&*trial.a, &key, version.as_ref(), b"mended").await?;
    Ok(Note::default())
}

/// Keys that Leasehold did not make are reported by listing and watch, and disturb nothing.
pub async fn foreign_keys_are_reported(fixture: &dyn Fixture) -> Verdict {
    let trial = Trial::begin(fixture, "foreign").await?;
    let key = shard(0);
    put(&*trial.a, &key, None, b"ours").await?;
    let foreign = ["something", "nodes", "else/where", "shards/without-a-name"];
    for name in foreign {
        if trial.fixture.put_raw(&trial.namespace, name, b"theirs").await.is_none() {
            return Err(Unmet::no_lever("write a foreign key"));
        }
    }
    let whole = |listing: &crate::Listing| {
        foreign.iter().all(|name| listing.foreign.iter().any(|there| there == name))
            && listing.entries.iter().map(|(key, _)| key).eq([&key])
    };
    let listing = trial.list_until(&*trial.b, whole).await?;
    ensure!(
        whole(&listing),
        format!("one record, and the foreign keys {foreign:?}"),
        format!("{listing:?}"),
        "a stray key must neither be taken for a record nor keep a namespace from being listed",
    );
    if let Some(mut watch) = open_watch(&*trial.b).await? {
        let first = next(&mut watch, &trial).await?;
        ensure!(
            matches!(&first, WatchEvent::Snapshot(listing) if whole(listing)),
            format!("a snapshot with one record, and the foreign keys {foreign:?}"),
            format!("{first:?}"),
            "a stray key must neither be taken for a record nor keep a watch from beginning",
        );
    }
    Ok(Note::default())
}
