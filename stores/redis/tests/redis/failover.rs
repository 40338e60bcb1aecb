//! A real failover by Sentinel: what is lost without waiting for replicas, and that nothing is with it.

use leasehold_servers::{Program, RedisSentinel};
use leasehold_store::{Lane, Store, StoreErrorKind, Swapped, WatchEvent};

use crate::common::{applied, next, now, open, put, read, run, try_swap, try_swap_on, until_ok};

#[test]
fn a_failover_of_redis_keeps_everything_that_replicas_confirmed() {
    keeps_everything(Program::Redis);
}

#[test]
fn a_failover_of_valkey_keeps_everything_that_replicas_confirmed() {
    keeps_everything(Program::Valkey);
}

fn keeps_everything(program: Program) {
    let Some(mut servers) = RedisSentinel::start(program, 2) else { return };
    let address = format!("{}?wait_for=1500", servers.address());
    let (store, other) = (open(&address), open(&address));
    run(async {
        let mut versions = Vec::new();
        for i in 0..50 {
            versions.push(applied(&store, put(&format!("shards/g/{i}"), None, "held")).await);
        }
        let node = applied(&store, put("nodes/n", None, "1")).await;
        let before = store.list().await.unwrap();
        let mut watch = other.watch().await.unwrap().unwrap();
        next(&mut watch).await;
        servers.servers[0].kill();
        let killed_at = now();
        let renewed = until_ok(|| try_swap_on(&store, Lane::Renewal, put("nodes/n", Some(&node), "2"))).await;
        println!("a renewal was confirmed again {:?} after the master was killed", now() - killed_at);
        // A try may have landed without being confirmed: then it was lost to itself.
        assert!(matches!(&renewed, Swapped::Applied(_) | Swapped::Lost(Some(_))), "{renewed:?}");
        let after = until_ok(|| other.list()).await;
        assert_eq!(after.generation, before.generation, "nothing that was confirmed is gone");
        assert!(after.revision > before.revision);
        for (i, version) in versions.iter().enumerate() {
            assert_eq!(read(&other, &format!("shards/g/{i}")).await.unwrap().version, *version);
        }
        assert!(matches!(next(&mut watch).await, WatchEvent::Interrupted(_)));
        assert!(matches!(next(&mut watch).await, WatchEvent::Snapshot(_)));
    });
}

#[test]
fn without_waiting_acknowledged_writes_are_lost_and_the_generation_says_so() {
    let Some(mut servers) = RedisSentinel::start(Program::Valkey, 1) else { return };
    let address = format!("{}?wait=0", servers.address());
    let (store, other) = (open(&address), open(&address));
    run(async {
        applied(&store, put("nodes/n", None, "1")).await;
        let before = store.list().await.unwrap();
        servers.servers[0]
            .wait_for("replication", || servers.servers[1].ask(&["EXISTS", "{test}:node:n"]).text() == "1");
        servers.cut_replication();
        let lost = applied(&store, put("shards/g/0", None, "acknowledged")).await;
        servers.servers[0].kill();
        let after = until_ok(|| other.list()).await;
        assert_ne!(after.generation, before.generation);
        assert_eq!(after.entries.len(), 1, "the acknowledged claim is gone: {:?}", after.entries);
        let again = applied(&other, put("shards/g/0", None, "acknowledged")).await;
        assert_ne!(again, lost);
        assert_eq!(store.generation().await.unwrap(), other.generation().await.unwrap());
    });
}

/// With waiting, the same cut lets nothing be confirmed, so that nothing confirmed can be lost.
#[test]
fn a_master_without_its_replicas_confirms_nothing() {
    let Some(mut servers) = RedisSentinel::start(Program::Redis, 1) else { return };
    let (store, other) = (open(&servers.address()), open(&servers.address()));
    run(async {
        let node = applied(&store, put("nodes/n", None, "1")).await;
        let before = store.generation().await.unwrap();
        let mut watch = store.watch().await.unwrap().unwrap();
        next(&mut watch).await;
        servers.cut_replication();
        for lane in [Lane::Renewal, Lane::Work] {
            let error = try_swap_on(&store, lane, put("nodes/n", Some(&node), "2")).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::TimedOut);
            assert!(error.message.contains("0 of 1 replicas"), "{error}");
        }
        let error = try_swap(&store, put("shards/g/0", None, "claimed")).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");
        // redis-cli shows it, but no node is told so, not even by its own watch.
        assert_eq!(servers.servers[0].ask(&["HGET", "{test}:shard:g/0", "value"]).text(), "claimed");
        assert_eq!(store.read(&[]).await.unwrap_err().kind, StoreErrorKind::TimedOut);
        servers.servers[0].kill();
        // The one server that is left has no replica, so that nothing can be confirmed before it gets one.
        servers.servers[1].wait_for("a failover", || servers.master() == Some(1));
        assert_eq!(other.read(&[]).await.unwrap_err().kind, StoreErrorKind::TimedOut);
        servers.servers[0].start_again();
        let after = until_ok(|| other.list()).await;
        assert_eq!(after.generation, before);
        assert_eq!(after.entries.len(), 1, "{:?}", after.entries);
        assert_eq!(after.entries[0].1.version, node);
        loop {
            match next(&mut watch).await {
                WatchEvent::Changed(changes) => panic!("the watch told of what did not count: {changes:?}"),
                WatchEvent::Snapshot(listing) => break assert_eq!(listing.entries, after.entries),
                _ => {}
            }
        }
    });
}

/// One node that waits for fewer than the others makes every failover count as one with losses.
#[test]
fn who_waits_for_fewer_replicas_makes_it_known() {
    let Some(mut servers) = RedisSentinel::start(Program::Redis, 2) else { return };
    let (careful, hasty) = (open(&servers.address()), open(&format!("{}?wait=0", servers.address())));
    run(async {
        applied(&careful, put("nodes/a", None, "1")).await;
        assert_eq!(servers.servers[0].ask(&["HGET", "{test}:store", "wait"]).text(), "1");
        applied(&hasty, put("nodes/b", None, "1")).await;
        assert_eq!(servers.servers[0].ask(&["HGET", "{test}:store", "wait"]).text(), "0");
        applied(&careful, put("nodes/c", None, "1")).await;
        assert_eq!(servers.servers[0].ask(&["HGET", "{test}:store", "wait"]).text(), "0");
        let before = careful.generation().await.unwrap();
        servers.servers[0].kill();
        assert_ne!(until_ok(|| careful.generation()).await, before);
    });
}

/// A client that does not rely on the sentinels' choice starts a new generation after every failover.
#[test]
fn a_failover_starts_a_new_generation_if_configured() {
    let Some(mut servers) = RedisSentinel::start(Program::Valkey, 2) else { return };
    let store = open(&format!("{}?after_failover=new-generation&wait_for=1500", servers.address()));
    run(async {
        applied(&store, put("nodes/a", None, "1")).await;
        assert_eq!(servers.servers[0].ask(&["HGET", "{test}:store", "wait"]).text(), "0");
        let before = store.list().await.unwrap();
        servers.servers[0].kill();
        let after = until_ok(|| store.list()).await;
        assert_ne!(after.generation, before.generation);
        assert_eq!(after.entries, before.entries);
    });
}
