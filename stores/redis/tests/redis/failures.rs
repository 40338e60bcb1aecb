//! Servers that stall, are full, run an endless script of another client, forget scripts, or are of the wrong kind.

use std::time::Duration;

use leasehold_servers::{Program, RedisServer, RedisShell};
use leasehold_store::{Lane, Registry, Store, StoreErrorKind, Swap, Swapped, WatchEvent};

use crate::common::{applied, key, next, now, open, put, read, run, try_swap, try_swap_on, until_ok};

#[test]
fn a_stalled_server_costs_no_more_than_the_timeout_and_is_left() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let store = open(&format!("{}?timeout=700", server.address()));
    run(async {
        let version = applied(&store, put("nodes/n", None, "1")).await;
        let mut watch = store.watch().await.unwrap().unwrap();
        next(&mut watch).await;
        server.stall();
        let began_at = now();
        for lane in [Lane::Renewal, Lane::Work, Lane::Renewal] {
            let error = try_swap_on(&store, lane, put("nodes/n", Some(&version), "2")).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");
        }
        let took = now() - began_at;
        assert!(took < Duration::from_millis(3 * 700 + 900), "{took:?}");
        // Long enough for the watch to find out as well.
        tokio::time::sleep(Duration::from_secs(3)).await;
        server.resume();
        let found = until_ok(|| store.read(&[])).await;
        assert_eq!(found.generation, store.generation().await.unwrap());
        let version = read(&store, "nodes/n").await.unwrap().version;
        applied(&store, put("nodes/n", Some(&version), "3")).await;
        loop {
            match next(&mut watch).await {
                WatchEvent::Changed(changes) if *changes[0].1.as_ref().unwrap().value == *b"3" => break,
                WatchEvent::Snapshot(listing) if *listing.entries[0].1.value == *b"3" => break,
                _ => {}
            }
        }
    });
}

/// A caller that gives up on a call gets a new connection for the next one.
#[test]
fn after_a_call_that_was_given_up_the_next_one_is_on_a_new_connection() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let store = open(&server.address());
    let connections = || -> u64 { server.info("stats", "total_connections_received").parse().unwrap() };
    run(async {
        store.list().await.unwrap();
        let before = connections();
        store.list().await.unwrap();
        assert_eq!(connections(), before + 1, "only the one that counts");
        server.stall();
        assert!(tokio::time::timeout(Duration::from_millis(100), store.list()).await.is_err());
        server.resume();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let before = connections();
        store.list().await.unwrap();
        assert_eq!(connections(), before + 2);
    });
}

#[test]
fn an_evicting_server_is_refused_before_and_after_it_was_connected() {
    let settings = ["maxmemory 100mb", "maxmemory-policy allkeys-lru"];
    let Some(server) = RedisServer::start_with(Program::Valkey, &settings) else { return };
    let store = open(&server.address());
    run(async {
        for error in [store.list().await.err(), try_swap(&store, put("nodes/n", None, "1")).await.err()] {
            let error = error.expect("a refusal");
            assert_eq!(error.kind, StoreErrorKind::Refused);
            assert!(error.message.contains("noeviction"), "{error}");
        }
        server.ask(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
        store.list().await.unwrap();
        server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
        assert_eq!(store.list().await.unwrap_err().kind, StoreErrorKind::Refused);
    });
}

/// What exists can be renewed, released and read; only new records need room.
#[test]
fn a_full_server_refuses_new_records_and_nothing_else() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let store = open(&server.address());
    run(async {
        let version = applied(&store, put("nodes/n", None, "1")).await;
        let lease = store.grant(Duration::from_secs(60)).await.unwrap();
        server.ask(&["CONFIG", "SET", "maxmemory", "1mb"]);
        assert!(server.ask(&["SET", "x", "y"]).text().starts_with("OOM"));
        let error = try_swap(&store, put("nodes/m", None, "1")).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused);
        assert!(error.message.contains("maxmemory"), "{error}");
        assert_eq!(store.put(&lease, "k", b"v").await.unwrap_err().kind, StoreErrorKind::Refused);
        applied(&store, put("nodes/n", Some(&version), "2")).await;
        assert_eq!(store.list().await.unwrap().entries.len(), 1);
        assert_eq!(store.keep_alive(&lease).await.unwrap(), leasehold_store::LeaseState::Alive);
        server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
        applied(&store, put("nodes/m", None, "1")).await;
    });
}

#[test]
fn an_endless_script_of_another_client_is_reported_and_survived() {
    let Some(server) = RedisServer::start_with(Program::Redis, &["busy-reply-threshold 100"]) else { return };
    let store = open(&server.address());
    run(async {
        let version = applied(&store, put("nodes/n", None, "1")).await;
        let port = server.port;
        let endless = std::thread::Builder::new();
        let endless = endless.spawn(move || {
            RedisShell::connect(port).unwrap().ask(&["EVAL", "while true do end", "0"]).unwrap().text()
        });
        tokio::time::sleep(Duration::from_millis(400)).await;
        let error = try_swap(&store, put("nodes/n", Some(&version), "2")).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Busy);
        assert!(error.message.contains("SCRIPT KILL"), "{error}");
        server.ask(&["SCRIPT", "KILL"]);
        let again = until_ok(|| try_swap(&store, put("nodes/n", Some(&version), "2"))).await;
        assert!(matches!(again, Swapped::Applied(_)), "{again:?}");
        assert!(endless.unwrap().join().unwrap().contains("killed"));
    });
}

#[test]
fn scripts_that_the_server_forgot_are_loaded_again() {
    let Some(server) = RedisServer::start(Program::Valkey) else { return };
    let store = open(&server.address());
    run(async {
        let version = applied(&store, put("nodes/n", None, "1")).await;
        server.ask(&["SCRIPT", "FLUSH"]);
        applied(&store, put("nodes/n", Some(&version), "2")).await;
        server.ask(&["SCRIPT", "FLUSH"]);
        let lease = store.grant(Duration::from_secs(60)).await.unwrap();
        server.ask(&["SCRIPT", "FLUSH"]);
        store.put(&lease, "k", b"v").await.unwrap();
        assert_eq!(server.ask(&["GET", "{test}:key:k"]).text(), "v");
    });
}

#[test]
fn what_is_not_right_is_told_in_words() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    run(async {
        let told = async |address: String| open(&address).list().await.unwrap_err();
        let error = told(format!("{}/99", server.address())).await;
        assert!(error.message.contains("database"), "{error}");
        let error = told(format!("redis://:secret@127.0.0.1:{}", server.port)).await;
        assert!(error.message.contains("password") && !error.message.contains("secret"), "{error}");
        let error = told(format!("redis+sentinel://127.0.0.1:{}", server.port)).await;
        assert!(!error.message.is_empty());
        let Some(replica) =
            RedisServer::start_with(Program::Redis, &[&format!("replicaof 127.0.0.1 {}", server.port)])
        else {
            return;
        };
        let error = told(replica.address()).await;
        assert!(error.message.contains("replica"), "{error}");
        // Of several addresses the master's is found.
        open(&format!("redis://127.0.0.1:{},127.0.0.1:{}", replica.port, server.port)).list().await.unwrap();
    });
}

/// A message that never came is noticed with the next one.
#[test]
fn a_missed_message_is_healed_by_a_snapshot() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let (store, other) = (open(&server.address()), open(&server.address()));
    run(async {
        let mut watch = store.watch().await.unwrap().unwrap();
        next(&mut watch).await;
        let version = applied(&other, put("nodes/n", None, "1")).await;
        assert!(matches!(next(&mut watch).await, WatchEvent::Changed(_)));
        // As if a write had happened without its message.
        server.ask(&["HINCRBY", "{test}:store", "revision", "1"]);
        applied(&other, put("nodes/n", Some(&version), "2")).await;
        assert!(matches!(next(&mut watch).await, WatchEvent::Interrupted(why) if why.contains("missed")));
        let WatchEvent::Snapshot(listing) = next(&mut watch).await else { panic!("a snapshot") };
        assert_eq!(*listing.entries[0].1.value, *b"2");
        server.ask(&["PUBLISH", "{test}:events", "nonsense"]);
        assert!(matches!(next(&mut watch).await, WatchEvent::Interrupted(_)));
        assert!(matches!(next(&mut watch).await, WatchEvent::Snapshot(_)));
    });
}

/// Records that were written or deleted with redis-cli.
#[test]
fn what_people_do_by_hand_is_seen() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let store = open(&server.address());
    run(async {
        let version = applied(&store, put("nodes/n", None, "1")).await;
        applied(&store, put("shards/g/0", None, "1")).await;
        assert_eq!(server.ask(&["HGET", "{test}:node:n", "value"]).text(), "1");
        server.ask(&["SET", "{test}:node:n", "by hand"]);
        let found = read(&store, "nodes/n").await.unwrap();
        assert_eq!(*found.value, *b"by hand");
        let lost = try_swap(&store, put("nodes/n", Some(&version), "2")).await.unwrap();
        assert_eq!(lost, Swapped::Lost(Some(found.clone())));
        applied(&store, put("nodes/n", Some(&found.version), "2")).await;
        assert_eq!(server.ask(&["HGET", "{test}:node:n", "value"]).text(), "2");
        server.ask(&["DEL", "{test}:shard:g/0"]);
        let listing = store.list().await.unwrap();
        assert_eq!(listing.entries.len(), 1);
        // Without its index nothing is listed, but existing records are found again when they are used.
        server.ask(&["DEL", "{test}:index"]);
        assert!(store.list().await.unwrap().entries.is_empty());
        let lost = try_swap(&store, put("nodes/n", None, "3")).await.unwrap();
        assert!(matches!(lost, Swapped::Lost(Some(_))));
        assert_eq!(store.list().await.unwrap().entries[0].0, key("nodes/n"));
        server.ask(&["LPUSH", "{test}:shard:g/1", "a list"]);
        let strange = read(&store, "shards/g/1").await.unwrap();
        applied(&store, put("shards/g/1", Some(&strange.version), "mended")).await;
    });
}

/// Nodes are listed by a set of their names, which writers of this version keep complete: then nothing else is looked through.
/// Whatever writers of an older version did, or people, it never lacks one.
#[test]
fn the_set_of_nodes_is_complete_no_matter_who_wrote() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let store = open(&server.address());
    let upto = || server.ask(&["ZSCORE", "{test}:nodes", "upto"]).text();
    let revision = || server.ask(&["HGET", "{test}:store", "revision"]).text();
    run(async {
        let names = async || {
            let listing = store.list_nodes().await.unwrap();
            let mut names: Vec<String> = listing.entries.iter().map(|(key, _)| key.to_string()).collect();
            names.sort();
            names
        };
        let gone = applied(&store, put("nodes/gone", None, "1")).await;
        for name in ["meta", "nodes/a", "shards/g/0", "groups/g"] {
            applied(&store, put(name, None, "1")).await;
            assert_eq!(upto(), revision(), "after {name}");
        }
        store
            .swap(Lane::Work, &[Swap { key: key("nodes/gone"), expect: Some(gone), value: None }])
            .await
            .unwrap();
        assert_eq!(upto(), revision());
        assert_eq!(names().await, ["meta", "nodes/a"]);
        // An older version writes the record, the index and the revision, and knows nothing of the set.
        server.ask(&["HSET", "{test}:node:old", "version", "100.x", "value", "1"]);
        server.ask(&["ZADD", "{test}:index", "100", "node:old"]);
        server.ask(&["HSET", "{test}:store", "revision", "100"]);
        applied(&store, put("nodes/b", None, "1")).await;
        assert_ne!(upto(), revision(), "it lacked something before, and does so still");
        assert_eq!(names().await, ["meta", "nodes/a", "nodes/b", "nodes/old"]);
        assert_eq!(upto(), revision());
        server.ask(&["DEL", "{test}:nodes"]);
        assert_eq!(names().await, ["meta", "nodes/a", "nodes/b", "nodes/old"]);
        server.ask(&["DEL", "{test}:node:old", "{test}:meta"]);
        assert_eq!(names().await, ["nodes/a", "nodes/b"]);
    });
}

/// The server does one thing at a time: a listing must not keep it from everybody's renewals.
#[test]
fn a_large_listing_holds_the_server_up_only_for_moments() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let store = open(&server.address());
    run(async {
        let value = "x".repeat(300);
        let names: Vec<String> = (0..10_000).map(|i| format!("shards/g/{i}")).collect();
        for names in names.chunks(store.facts().swaps_max) {
            let swaps: Vec<_> = names.iter().map(|name| put(name, None, &value)).collect();
            store.swap(Lane::Work, &swaps).await.unwrap();
        }
        server.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
        let began_at = now();
        assert_eq!(store.list().await.unwrap().entries.len(), 10_000);
        let took = now() - began_at;
        let log = server.ask(&["SLOWLOG", "GET", "100"]);
        let longest =
            log.list().iter().filter_map(|entry| entry.list().get(2)?.text().parse::<u64>().ok()).max();
        println!("10,000 records listed in {took:?}; the server was held up for {longest:?} µs at most");
        assert!(longest.is_some_and(|longest| longest < 50_000), "{longest:?}");
    });
}

/// A command with an address that asks for no waiting must not take the waiting from the nodes.
#[test]
fn a_client_that_only_reads_does_not_lower_wait() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let store = open(&server.address());
    run(async {
        applied(&store, put("nodes/n", None, "1")).await;
        server.ask(&["HSET", "{test}:store", "wait", "1"]);
        assert_eq!(store.list().await.unwrap().entries.len(), 1);
        assert!(read(&store, "nodes/n").await.is_some());
        assert_eq!(server.ask(&["HGET", "{test}:store", "wait"]).text(), "1");
    });
}
