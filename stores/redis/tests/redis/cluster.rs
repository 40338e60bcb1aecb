//! A cluster whose masters fail, and whose slots move.

use leasehold_servers::{Program, RedisCluster, RedisReply};
use leasehold_store::{Store, StoreErrorKind, WatchEvent};

use crate::common::{applied, next, open, put, read, run, try_swap, until_ok};

#[test]
fn a_failover_of_the_slots_master_is_followed() {
    let Some(mut cluster) = RedisCluster::start(Program::Valkey) else { return };
    // One replica each: after the failover there is none left to wait for.
    let store = open(&format!("{}?wait=0", cluster.address()));
    run(async {
        applied(&store, put("nodes/n", None, "1")).await;
        let before = store.generation().await.unwrap();
        let mut watch = store.watch().await.unwrap().unwrap();
        next(&mut watch).await;
        let error = open(&cluster.servers[1].address()).list().await.err();
        let elsewhere = open(&cluster.servers[2].address()).list().await.err();
        let told = error.or(elsewhere).expect("at most one of them has the slot");
        assert_eq!(told.kind, StoreErrorKind::Refused);
        assert!(told.message.contains("redis+cluster"), "{told}");
        let master = cluster.master_of("{test}:store").unwrap();
        cluster.servers[master].kill();
        let after = until_ok(|| store.list()).await;
        assert_ne!(after.generation, before, "nobody waited for the replica");
        assert!(matches!(next(&mut watch).await, WatchEvent::Interrupted(_)));
        assert!(matches!(next(&mut watch).await, WatchEvent::Snapshot(_)));
        applied(&store, put("nodes/m", None, "1")).await;
        assert!(matches!(next(&mut watch).await, WatchEvent::Changed(_)));
    });
}

/// While a slot is moved key by key, some records are here and some there: nothing is read or written wrongly then.
#[test]
fn a_slot_that_is_being_moved_is_refused_until_it_has_arrived() {
    let Some(cluster) = RedisCluster::start(Program::Redis) else { return };
    let store = open(&cluster.address());
    run(async {
        let version = applied(&store, put("nodes/n", None, "1")).await;
        applied(&store, put("shards/g/0", None, "1")).await;
        let before = store.generation().await.unwrap();
        let from = cluster.master_of("{test}:store").unwrap();
        let to = (from + 1) % 3;
        let (source, target) = (&cluster.servers[from], &cluster.servers[to]);
        let slot = source.ask(&["CLUSTER", "KEYSLOT", "{test}:store"]).text();
        let (source_id, target_id) =
            (source.ask(&["CLUSTER", "MYID"]).text(), target.ask(&["CLUSTER", "MYID"]).text());
        target.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
        source.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
        let move_key = |key: &str| {
            let port = target.port.to_string();
            let reply = source.ask(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
            assert_eq!(reply, RedisReply::Text(b"OK".to_vec()), "{key}");
        };
        move_key("{test}:node:n");
        // The record is not here any more, and must not be taken for one that does not exist.
        let error = try_swap(&store, put("nodes/n", None, "another")).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Busy, "{error}");
        let error = try_swap(&store, put("nodes/n", Some(&version), "2")).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Busy, "{error}");
        assert_eq!(store.list().await.unwrap_err().kind, StoreErrorKind::Busy);
        for key in source.ask(&["KEYS", "{test}:*"]).list() {
            move_key(&key.text());
        }
        for server in [target, source] {
            server.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
        }
        let found = until_ok(|| store.list()).await;
        assert_eq!(found.entries.len(), 2);
        assert_ne!(found.generation, before, "the history of another master is another history");
        assert_eq!(read(&store, "nodes/n").await.unwrap().version, version);
    });
}
