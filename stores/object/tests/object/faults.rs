//! What servers, networks and people do to a bucket. Only what is true may be answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::Epoch;
use leasehold_core::name::WriteId;
use leasehold_core::record::{GroupRecord, Policy, Record, ShardRecord, ShardSet, Slots};
use leasehold_object::Bucket;
use leasehold_servers::{Program, S3Server};
use leasehold_store::{
    Key, Lane, LeaseState, Listing, Store, StoreErrorKind, StoreExt, Stored, Swap, Swapped, Version,
};

use crate::common::{BUCKET, fresh, open, open_at, server};
use crate::proxy::{Fault, Proxy};

struct Scene {
    proxy: Proxy,
    /// Behind the proxy.
    disturbed: Arc<Bucket>,
    /// Beside it.
    calm: Arc<Bucket>,
    namespace: String,
    server: &'static S3Server,
}

async fn scene(program: Program, hint: &str) -> Option<Scene> {
    let server = server(program)?;
    let proxy = Proxy::before(server.port());
    let namespace = fresh(hint);
    let address = server.address_at(&proxy.endpoint(), BUCKET, "&poll=200ms&timeout=1500ms");
    let disturbed = open_at(&address, &namespace);
    let calm = open(server, &namespace);
    // Both pass the check of the bucket before any fault begins.
    let version = put(&calm, &key("groups/first"), None, "{}").await;
    put(&disturbed, &key("groups/first"), Some(&version), "{}").await;
    Some(Scene { proxy, disturbed, calm, namespace, server })
}

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

fn wish(key: &Key, expect: Option<&Version>, value: &str) -> Swap {
    Swap { key: key.clone(), expect: expect.cloned(), value: Some(value.as_bytes().into()) }
}

async fn swap(store: &Bucket, key: &Key, expect: Option<&Version>, value: &str) -> Swapped {
    store.swap(Lane::Work, &[wish(key, expect, value)]).await.unwrap().outcomes.remove(0)
}

async fn put(store: &Bucket, key: &Key, expect: Option<&Version>, value: &str) -> Version {
    match swap(store, key, expect, value).await {
        Swapped::Applied(version) => version,
        other => panic!("{key}: {other:?}"),
    }
}

async fn get(store: &Bucket, key: &Key) -> Option<Stored> {
    store.read(std::slice::from_ref(key)).await.unwrap().found.remove(0)
}

#[tokio::test]
async fn a_write_that_was_refused_is_tried_again_while_its_record_is_what_was_expected() {
    let Some(scene) = scene(Program::SeaweedFs, "refused").await else { return };
    let key = key("shards/g/0");
    let mut version = put(&scene.disturbed, &key, None, "{\"n\":0}").await;
    for (n, (status, code)) in
        [(409, "ConditionalRequestConflict"), (412, "PreconditionFailed"), (404, "NoSuchKey")]
            .into_iter()
            .enumerate()
    {
        scene.proxy.inject("PUT", "/shards/", Fault::Answered(status, code));
        version = put(&scene.disturbed, &key, Some(&version), &format!("{{\"n\":{n}}}")).await;
        assert_eq!(scene.proxy.left(), 0, "the fault happened");
        assert_eq!(get(&scene.calm, &key).await.map(|stored| stored.version), Some(version.clone()));
    }
}

#[tokio::test]
async fn a_write_that_landed_without_an_answer_is_found() {
    let Some(scene) = scene(Program::SeaweedFs, "landed").await else { return };
    let key = key("nodes/n");
    let mut version = put(&scene.disturbed, &key, None, "{\"n\":0}").await;
    let faults = [
        Fault::LandsButAnswered(500, "InternalError"),
        Fault::LandsButAnswered(429, "TooManyRequests"),
        Fault::LandsButAnswered(503, "SlowDown"),
        // A proxy that sends a request twice, of which the second finds the first.
        Fault::LandsButAnswered(412, "PreconditionFailed"),
        Fault::LandsButSilent,
    ];
    for (n, fault) in faults.into_iter().enumerate() {
        scene.proxy.inject("PUT", "/nodes/", fault);
        let value = format!("{{\"n\":{n}}}");
        version = put(&scene.disturbed, &key, Some(&version), &value).await;
        let found = get(&scene.calm, &key).await.unwrap();
        assert_eq!((found.version, &*found.value), (version.clone(), value.as_bytes()), "{fault:?}");
    }
}

#[tokio::test]
async fn a_write_that_may_yet_land_stays_unknown() {
    let Some(scene) = scene(Program::SeaweedFs, "unknown").await else { return };
    let key = key("shards/g/0");
    let version = put(&scene.disturbed, &key, None, "{\"n\":0}").await;
    for fault in
        [Fault::Answered(500, "InternalError"), Fault::Answered(429, "TooManyRequests"), Fault::Dropped]
    {
        scene.proxy.inject("PUT", "/shards/", fault);
        let outcome = swap(&scene.disturbed, &key, Some(&version), "{\"n\":1}").await;
        assert_eq!(outcome, Swapped::Unknown, "{fault:?}");
        assert_eq!(get(&scene.calm, &key).await.unwrap().version, version);
    }
    // A swap past it resolves it.
    put(&scene.disturbed, &key, Some(&version), "{\"n\":2}").await;
}

#[tokio::test]
async fn a_write_whose_object_went_on_meanwhile_is_not_called_lost() {
    let Some(scene) = scene(Program::SeaweedFs, "passed").await else { return };
    let key = key("nodes/n");
    let version = put(&scene.disturbed, &key, None, "{\"n\":0}").await;
    scene.proxy.inject("PUT", "/nodes/", Fault::LandsButSilent);
    let other = async {
        // Ours has landed; another swaps past it before ours is looked for.
        let mine = loop {
            let found = get(&scene.calm, &key).await.unwrap();
            if found.version != version {
                break found.version;
            }
        };
        put(&scene.calm, &key, Some(&mine), "{\"n\":\"theirs\"}").await
    };
    let (outcome, _) = tokio::join!(swap(&scene.disturbed, &key, Some(&version), "{\"n\":1}"), other);
    assert_eq!(outcome, Swapped::Unknown, "it was in the store for a while");
}

#[tokio::test]
async fn a_change_whose_marker_was_lost_is_still_told() {
    let Some(scene) = scene(Program::SeaweedFs, "marker").await else { return };
    scene.calm.list().await.unwrap();
    scene.proxy.inject("PUT", "changed.json", Fault::Answered(500, "InternalError"));
    put(&scene.disturbed, &key("groups/second"), None, "{}").await;
    assert!(!scene.calm.list().await.unwrap().entries.iter().any(|(k, _)| *k == key("groups/second")));
    // The next look of the client that owes it rewrites it.
    scene.disturbed.list().await.unwrap();
    assert!(scene.calm.list().await.unwrap().entries.iter().any(|(k, _)| *k == key("groups/second")));
}

#[tokio::test]
async fn a_half_written_page_is_reported_and_taken_over_row_by_row() {
    let Some(scene) = scene(Program::SeaweedFs, "torn").await else { return };
    let keys: Vec<Key> = (0..40).map(|n| key(&format!("shards/g/{n}"))).collect();
    let swaps: Vec<Swap> = keys.iter().map(|key| wish(key, None, "{\"sound\":true}")).collect();
    scene.calm.swap(Lane::Work, &swaps).await.unwrap();
    let object = scene
        .server
        .objects(BUCKET, &format!("leasehold/{}", scene.namespace))
        .into_iter()
        .find(|object| object.contains("/shards/"))
        .unwrap();
    let body = scene.server.get_object(BUCKET, &object).unwrap();
    scene.server.put_object(BUCKET, &object, &body[..body.len() / 2]);
    let damaged: Vec<(Key, Stored)> = scene
        .calm
        .read(&keys)
        .await
        .unwrap()
        .found
        .into_iter()
        .zip(&keys)
        .filter_map(|(found, key)| found.map(|stored| (key.clone(), stored)))
        .filter(|(_, stored)| stored.version.as_str().starts_with("damaged:"))
        .collect();
    assert!(damaged.len() > 1 && damaged.len() < keys.len(), "one page of 16: {} rows", damaged.len());
    // A client that never saw it is told that it is there, and cannot mistake its rows for free ones.
    let stranger = open(scene.server, &scene.namespace);
    assert!(stranger.list().await.unwrap().unreadable.iter().any(|name| object.ends_with(name.as_str())));
    let lost = swap(&stranger, &damaged[0].0, None, "{}").await;
    assert!(
        matches!(&lost, Swapped::Lost(Some(stored)) if stored.version == damaged[0].1.version),
        "{lost:?}"
    );
    // Once it has been told so of one, every listing says so as well.
    assert!(sweeps(&stranger).await.iter().all(|listing| listing.entries.contains(&damaged[0])));
    for (key, stored) in &damaged {
        put(&stranger, key, Some(&stored.version), "{\"mended\":true}").await;
    }
    let found = scene.calm.read(&keys).await.unwrap().found;
    assert!(
        found.iter().all(|found| found.as_ref().is_some_and(|s| !s.version.as_str().starts_with("damaged:")))
    );
}

/// Two listings that show everything as it is, whatever the marker says.
async fn sweeps(store: &Bucket) -> Vec<Listing> {
    let mut newest = Vec::new();
    while newest.len() < 2 {
        newest.extend(Some(store.list().await.unwrap()).filter(|listing| listing.newest));
    }
    newest
}

#[tokio::test]
async fn a_client_that_misses_a_deleted_page_tells_the_others() {
    let Some(scene) = scene(Program::SeaweedFs, "deleted").await else { return };
    let (first, second) = (&scene.calm, &scene.disturbed);
    let shard = key("shards/g/0");
    let version = put(first, &shard, None, "{}").await;
    let (a, b) = (sweeps(first).await, sweeps(second).await);
    for listing in a.iter().chain(&b) {
        assert!(listing.unreadable.is_empty() && listing.entries.iter().any(|(key, _)| *key == shard));
    }
    let folder = format!("leasehold/{}/shards/g", scene.namespace);
    let page = scene.server.objects(BUCKET, &folder).remove(0);
    scene.server.delete_object(BUCKET, &page);
    // One of them lists everything, as each does now and then. The other one need not wait for its own turn.
    sweeps(first).await;
    for store in [first, second] {
        let listing = store.list().await.unwrap();
        assert!(!listing.entries.iter().any(|(key, _)| *key == shard), "it is gone: {listing:?}");
        assert_eq!(listing.unreadable.len(), 1, "and people are told: {listing:?}");
        let told = listing.unreadable[0].strip_suffix(" (deleted)").expect("what happened to it");
        assert!(page.ends_with(told), "{page}: {listing:?}");
    }
    let lost = swap(second, &shard, Some(&version), "{}").await;
    assert_eq!(lost, Swapped::Lost(None), "what is not there was not replaced");
    put(second, &shard, None, "{}").await;
    for store in [first, second] {
        let listing = store.list().await.unwrap();
        assert!(listing.unreadable.is_empty(), "it is there again: {listing:?}");
        assert!(listing.entries.iter().any(|(key, _)| *key == shard));
    }
}

/// Every node lists the nodes when it starts and after a failover, so that costs one list and a read for each node.
#[tokio::test]
async fn nodes_are_listed_at_the_cost_of_the_nodes() {
    let Some(scene) = scene(Program::SeaweedFs, "nodes").await else { return };
    let shards: Vec<Swap> = (0..200).map(|n| wish(&key(&format!("shards/g/{n}")), None, "{}")).collect();
    scene.calm.swap(Lane::Work, &shards).await.unwrap();
    put(&scene.calm, &key("meta"), None, "{}").await;
    let long = format!("nodes/{}", "x".repeat(190));
    for node in ["nodes/a", "nodes/b", "nodes/c", &long] {
        put(&scene.calm, &key(node), None, "{}").await;
    }
    let stranger = open(scene.server, &scene.namespace);
    let listing = stranger.list_nodes().await.unwrap();
    assert!(listing.newest && listing.unreadable.is_empty(), "{listing:?}");
    assert_eq!(listing.entries.len(), 5);
    let spent = stranger.requests();
    assert_eq!((spent.lists, spent.gets, spent.puts), (1, 5, 0), "four nodes and meta");
    // What cannot be read is shown as damaged, or told of where its name is not known.
    let folder = format!("leasehold/{}/nodes/", scene.namespace);
    for object in scene.server.objects(BUCKET, &folder) {
        if object.ends_with("/a.json") || object.contains("xxx") {
            scene.server.put_object(BUCKET, &object, b"garbage");
        }
    }
    let cold = open(scene.server, &scene.namespace);
    let listing = cold.list_nodes().await.unwrap();
    let damaged = listing.entries.iter().find(|(found, _)| *found == key("nodes/a"));
    assert!(
        damaged.is_some_and(|(_, stored)| stored.version.as_str().starts_with("damaged:")),
        "{listing:?}"
    );
    assert_eq!(listing.entries.len(), 4, "{listing:?}");
    assert_eq!(listing.unreadable.len(), 1, "{listing:?}");
    let known = stranger.list_nodes().await.unwrap();
    assert!(known.entries.iter().any(|(found, _)| *found == key(&long)), "who read it before knows its name");
}

#[tokio::test]
async fn a_client_that_never_read_a_damaged_object_lists_the_records_that_must_be_in_it() {
    let Some(scene) = scene(Program::SeaweedFs, "cold").await else { return };
    let group = GroupRecord {
        format: 1,
        write: WriteId::from_bits(7),
        group: "g".parse().unwrap(),
        shards: ShardSet::Numbered(40),
        policy: Policy::default(),
        epoch_floor: Epoch(0),
        filled: Slots::below(40),
        written_unix_ms: 0,
        extra: Default::default(),
    };
    put(&scene.calm, &key("groups/g"), None, &String::from_utf8(group.encode()).unwrap()).await;
    let keys: Vec<Key> = (0..40).map(|n| key(&format!("shards/g/{n}"))).collect();
    let swaps: Vec<Swap> = keys.iter().map(|key| wish(key, None, "{\"sound\":true}")).collect();
    scene.calm.swap(Lane::Work, &swaps).await.unwrap();
    put(&scene.calm, &key("nodes/a b"), None, "{}").await;
    let folder = format!("leasehold/{}", scene.namespace);
    let several = |object: &String| {
        let body = scene.server.get_object(BUCKET, object).unwrap_or_default();
        object.contains("/shards/g/") && String::from_utf8_lossy(&body).matches("sound").count() > 1
    };
    let pages: Vec<String> = scene.server.objects(BUCKET, &folder).into_iter().filter(several).collect();
    scene.server.put_object(BUCKET, &pages[0], b"garbage");
    scene.server.put_object(BUCKET, &pages[1], b"{\"format\":9}");
    scene.server.put_object(BUCKET, &format!("{folder}/nodes/a=20b.json"), b"{\"format\":9}");
    scene.server.put_object(BUCKET, &format!("{folder}/control.json"), b"");

    let stranger = open(scene.server, &scene.namespace);
    let listings = sweeps(&stranger).await;
    assert_eq!(listings[0], listings[1], "listing after listing");
    let found: BTreeMap<Key, Stored> = listings[0].entries.iter().cloned().collect();
    assert!(keys.iter().all(|key| found.contains_key(key)), "none counts as absent: {found:?}");
    assert!(listings[0].foreign.is_empty() && listings[0].unreadable.is_empty(), "{:?}", listings[0]);
    let (damaged, newer): (Vec<&Key>, Vec<&Key>) = {
        let with = |mark: &str| {
            let fits = |key: &&Key| found[*key].version.as_str().starts_with(mark);
            keys.iter().filter(fits).collect()
        };
        (with("damaged:"), with("newer:"))
    };
    assert!(!damaged.is_empty() && !newer.is_empty() && damaged.len() + newer.len() < keys.len());
    assert!(found.contains_key(&Key::Control));
    for key in newer.iter().copied().chain([&key("nodes/a b")]) {
        let stored = &found[key];
        assert!(ShardRecord::decode(&stored.value).unwrap_err().is_newer(), "{stored:?}");
        // Nothing else stops because of it, and nobody writes over what a newer version wrote.
        let error = stranger.swap(Lane::Work, &[wish(key, Some(&stored.version), "{}")]).await.unwrap_err();
        assert!(error.message.contains("upgrade this node"), "{error}");
    }
    // Taking one row over leaves the others as they are, so that no wait for them starts over.
    let (first, rest) = damaged.split_first().unwrap();
    put(&scene.calm, first, Some(&found[*first].version), "{\"mended\":true}").await;
    let now: BTreeMap<Key, Stored> =
        sweeps(&open(scene.server, &scene.namespace)).await.remove(0).entries.into_iter().collect();
    assert_eq!(&*now[*first].value, b"{\"mended\":true}");
    assert!(!rest.is_empty() && rest.iter().all(|key| now[*key] == found[*key]));
}

#[tokio::test]
async fn a_server_that_is_away_is_told_of_and_nothing_is_lost() {
    let Some(scene) = scene(Program::Moto, "away").await else { return };
    let nobody = scene.server.address_at("http://127.0.0.1:9", BUCKET, "");
    let error = open_at(&nobody, "x").read(&[Key::Meta]).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unreachable, "{error}");
    scene.proxy.inject("GET", "/nodes/", Fault::LandsButSilent);
    let error = scene.disturbed.read(&[key("nodes/n")]).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");
}

#[tokio::test]
async fn a_server_whose_clock_steps_by_an_hour_changes_no_ownership() {
    let Some(scene) = scene(Program::Moto, "clock").await else { return };
    let key = key("shards/g/0");
    let registry = scene.disturbed.registry().unwrap();
    let lease = registry.grant(Duration::from_secs(60)).await.unwrap();
    assert_eq!(registry.put(&lease, "service", b"here").await.unwrap(), LeaseState::Alive);
    let mut version = put(&scene.disturbed, &key, None, "{\"n\":0}").await;
    for off in [3600, -3600, 0] {
        scene.proxy.clock_off_s.store(off, Ordering::SeqCst);
        version = put(&scene.disturbed, &key, Some(&version), "{\"n\":1}").await;
        assert_eq!(get(&scene.disturbed, &key).await.unwrap().version, version);
        assert!(
            scene
                .disturbed
                .list()
                .await
                .unwrap()
                .entries
                .iter()
                .any(|(k, s)| *k == key && s.version == version)
        );
        // Age is counted on one clock: where all its times step, registered keys are where they were.
        assert_eq!(registry.keep_alive(&lease).await.unwrap(), LeaseState::Alive);
    }
}

/// Of two that register a key at once, one has it, and the other one is told.
#[tokio::test]
async fn a_key_that_another_process_registers_meanwhile_is_not_overwritten() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    // With as much time for a request as people have by default: writes that meet take SeaweedFS a second each.
    let bucket = open_at(&server.address(BUCKET, ""), &fresh("race"));
    let registry = bucket.registry().unwrap();
    let mut leases = Vec::new();
    for _ in 0..3 {
        leases.push(registry.grant(Duration::from_secs(60)).await.unwrap());
    }
    let mut told = 0;
    for round in 0..6 {
        // Keys that are free, and keys that are taken.
        let key = &format!("key-{}", round / 2);
        let put = |lease| async move { registry.put(lease, key, b"mine").await };
        let outcomes = futures::future::join_all(leases.iter().map(put)).await;
        assert!(outcomes.iter().any(Result::is_ok), "{outcomes:?}");
        for error in outcomes.iter().filter_map(|put| put.as_ref().err()) {
            assert_eq!(error.kind, StoreErrorKind::Busy, "{error}");
            told += 1;
        }
    }
    assert!(told > 0, "all of them wrote over each other");
}
