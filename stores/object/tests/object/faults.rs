//! What servers, networks and people do to a bucket. Only what is true may be answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_object::Bucket;
use leasehold_servers::{Program, S3Server};
use leasehold_store::{Key, Lane, LeaseState, Store, StoreErrorKind, Stored, Swap, Swapped, Version};

use crate::common::{BUCKET, fresh, open, open_at, server};
use crate::proxy::{Fault, Proxy};

struct Scene {
    proxy: Proxy,
    /// Behind the proxy.
    troubled: Arc<Bucket>,
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
    let troubled = open_at(&address, &namespace);
    let calm = open(server, &namespace);
    // Both pass the check of the bucket before any trouble begins.
    let version = put(&calm, &key("groups/first"), None, "{}").await;
    put(&troubled, &key("groups/first"), Some(&version), "{}").await;
    Some(Scene { proxy, troubled, calm, namespace, server })
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
    let mut version = put(&scene.troubled, &key, None, "{\"n\":0}").await;
    for (n, (status, code)) in
        [(409, "ConditionalRequestConflict"), (412, "PreconditionFailed"), (404, "NoSuchKey")]
            .into_iter()
            .enumerate()
    {
        scene.proxy.inject("PUT", "/shards/", Fault::Answered(status, code));
        version = put(&scene.troubled, &key, Some(&version), &format!("{{\"n\":{n}}}")).await;
        assert_eq!(scene.proxy.left(), 0, "the fault happened");
        assert_eq!(get(&scene.calm, &key).await.map(|stored| stored.version), Some(version.clone()));
    }
}

#[tokio::test]
async fn a_write_that_landed_without_an_answer_is_found() {
    let Some(scene) = scene(Program::SeaweedFs, "landed").await else { return };
    let key = key("nodes/n");
    let mut version = put(&scene.troubled, &key, None, "{\"n\":0}").await;
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
        version = put(&scene.troubled, &key, Some(&version), &value).await;
        let found = get(&scene.calm, &key).await.unwrap();
        assert_eq!((found.version, &*found.value), (version.clone(), value.as_bytes()), "{fault:?}");
    }
}

#[tokio::test]
async fn a_write_that_may_yet_land_stays_unknown() {
    let Some(scene) = scene(Program::SeaweedFs, "unknown").await else { return };
    let key = key("shards/g/0");
    let version = put(&scene.troubled, &key, None, "{\"n\":0}").await;
    for fault in
        [Fault::Answered(500, "InternalError"), Fault::Answered(429, "TooManyRequests"), Fault::Dropped]
    {
        scene.proxy.inject("PUT", "/shards/", fault);
        let outcome = swap(&scene.troubled, &key, Some(&version), "{\"n\":1}").await;
        assert_eq!(outcome, Swapped::Unknown, "{fault:?}");
        assert_eq!(get(&scene.calm, &key).await.unwrap().version, version);
    }
    // A swap past it settles it.
    put(&scene.troubled, &key, Some(&version), "{\"n\":2}").await;
}

#[tokio::test]
async fn a_write_whose_object_went_on_meanwhile_is_not_called_lost() {
    let Some(scene) = scene(Program::SeaweedFs, "passed").await else { return };
    let key = key("nodes/n");
    let version = put(&scene.troubled, &key, None, "{\"n\":0}").await;
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
    let (outcome, _) = tokio::join!(swap(&scene.troubled, &key, Some(&version), "{\"n\":1}"), other);
    assert_eq!(outcome, Swapped::Unknown, "it was in the store for a while");
}

#[tokio::test]
async fn a_change_whose_marker_was_lost_is_still_told() {
    let Some(scene) = scene(Program::SeaweedFs, "marker").await else { return };
    scene.calm.list().await.unwrap();
    scene.proxy.inject("PUT", "changed.json", Fault::Answered(500, "InternalError"));
    put(&scene.troubled, &key("groups/second"), None, "{}").await;
    assert!(!scene.calm.list().await.unwrap().entries.iter().any(|(k, _)| *k == key("groups/second")));
    // The next look of whoever owes it rewrites it.
    scene.troubled.list().await.unwrap();
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
    assert!(stranger.list().await.unwrap().foreign.iter().any(|name| object.ends_with(name.as_str())));
    let lost = swap(&stranger, &damaged[0].0, None, "{}").await;
    assert!(
        matches!(&lost, Swapped::Lost(Some(stored)) if stored.version == damaged[0].1.version),
        "{lost:?}"
    );
    for (key, stored) in &damaged {
        put(&stranger, key, Some(&stored.version), "{\"mended\":true}").await;
    }
    let found = scene.calm.read(&keys).await.unwrap().found;
    assert!(
        found.iter().all(|found| found.as_ref().is_some_and(|s| !s.version.as_str().starts_with("damaged:")))
    );
}

#[tokio::test]
async fn a_server_that_is_away_is_told_of_and_nothing_is_lost() {
    let Some(scene) = scene(Program::Moto, "away").await else { return };
    let nobody = scene.server.address_at("http://127.0.0.1:9", BUCKET, "");
    let error = open_at(&nobody, "x").read(&[Key::Meta]).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unreachable, "{error}");
    scene.proxy.inject("GET", "/nodes/", Fault::LandsButSilent);
    let error = scene.troubled.read(&[key("nodes/n")]).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");
}

#[tokio::test]
async fn a_server_whose_clock_steps_by_an_hour_changes_no_ownership() {
    let Some(scene) = scene(Program::Moto, "clock").await else { return };
    let key = key("shards/g/0");
    let registry = scene.troubled.registry().unwrap();
    let lease = registry.grant(Duration::from_secs(60)).await.unwrap();
    assert_eq!(registry.put(&lease, "service", b"here").await.unwrap(), LeaseState::Alive);
    let mut version = put(&scene.troubled, &key, None, "{\"n\":0}").await;
    for off in [3600, -3600, 0] {
        scene.proxy.clock_off_s.store(off, Ordering::SeqCst);
        version = put(&scene.troubled, &key, Some(&version), "{\"n\":1}").await;
        assert_eq!(get(&scene.troubled, &key).await.unwrap().version, version);
        assert!(
            scene
                .troubled
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
