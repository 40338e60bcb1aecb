//! One store under several runtimes, and calls that nobody waits for.

use std::sync::Arc;
use std::time::Duration;

use leasehold_servers::{Program, RedisServer};
use leasehold_store::{Lane, Registry, Store, Swapped, WatchEvent};

use crate::common::{applied, key, next, open, put, read, run};

/// A driver, a registry and a client have a runtime each, and those come and go.
#[test]
fn one_store_serves_runtimes_that_come_and_go() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let store = Arc::new(open(&server.address()));
    let version = run(async { applied(&*store, put("nodes/n", None, "1")).await });
    // The runtime of the first call is gone, with all that ran on it.
    let version = run(async { applied(&*store, put("nodes/n", Some(&version), "2")).await });
    // A runtime that stands still while others work.
    let idle = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut watch = idle.block_on(async { store.watch().await.unwrap().unwrap() });
    let first = idle.block_on(next(&mut watch));
    assert!(matches!(first, WatchEvent::Snapshot(listing) if listing.entries.len() == 1));
    idle.block_on(async { store.list().await.unwrap() });
    run(async {
        applied(&*store, put("nodes/n", Some(&version), "3")).await;
        let lease = store.grant(Duration::from_secs(60)).await.unwrap();
        store.put(&lease, "service", b"here").await.unwrap();
    });
    let told = idle.block_on(next(&mut watch));
    assert!(matches!(told, WatchEvent::Changed(changes) if changes.len() == 1));
    // A watch outlives the handle that it came from.
    let version = run(async { read(&*store, "nodes/n").await.unwrap().version });
    let other = open(&server.address());
    drop(store);
    run(async { applied(&other, put("nodes/n", Some(&version), "4")).await });
    assert!(matches!(idle.block_on(next(&mut watch)), WatchEvent::Changed(_)));
}

/// A call that is dropped leaves its answer to nobody: each of the others gets its own.
#[test]
fn answers_of_dropped_calls_go_to_nobody() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let store = Arc::new(open(&server.address()));
    run(async {
        for i in 0..20 {
            applied(&*store, put(&format!("nodes/n{i}"), None, &i.to_string())).await;
        }
        for round in 0..50_u64 {
            for i in 0..20 {
                let at = [key(&format!("nodes/n{i}"))];
                let short = Duration::from_micros(round * i % 300);
                let answer = tokio::time::timeout(short, store.read(&at)).await;
                let Ok(Ok(reading)) = answer else { continue };
                assert_eq!(*reading.found[0].as_ref().unwrap().value, *i.to_string().as_bytes());
            }
            let at = [key(&format!("nodes/n{}", round % 20))];
            let reading = store.read(&at).await.unwrap();
            assert_eq!(*reading.found[0].as_ref().unwrap().value, *(round % 20).to_string().as_bytes());
        }
    });
}

/// Nothing is connected when a store is opened, and it comes to life when the server does.
#[test]
fn a_store_may_be_opened_before_its_server() {
    let port = leasehold_servers::free_port();
    let store = open(&format!("redis://127.0.0.1:{port}"));
    run(async {
        let error = store.list().await.unwrap_err();
        assert_eq!(error.kind, leasehold_store::StoreErrorKind::Unreachable, "{error}");
        let mut watch = store.watch().await.unwrap().unwrap();
        let Some(_server) = RedisServer::start_at(Program::Redis, port, &[]) else { return };
        assert!(matches!(next(&mut watch).await, WatchEvent::Snapshot(_)));
        let reply = store.swap(Lane::Renewal, &[put("nodes/n", None, "1")]).await.unwrap();
        assert!(matches!(reply.outcomes[..], [Swapped::Applied(_)]));
        assert!(matches!(next(&mut watch).await, WatchEvent::Changed(_)));
    });
}
