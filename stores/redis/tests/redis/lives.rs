//! Restarts, and which of them change the generation.

use leasehold_servers::{Program, RedisServer};
use leasehold_store::Store;

use crate::common::{applied, open, put, read, run, until_ok};

/// A server that comes back empty, or from a disk whose last second may be missing, is another one.
#[test]
fn every_restart_changes_the_generation() {
    for settings in [vec![], vec!["appendonly yes"], vec!["save 3600 1"]] {
        let Some(mut server) = RedisServer::start_with(Program::Redis, &settings) else { return };
        let store = open(&server.address());
        run(async {
            applied(&store, put("nodes/n", None, "1")).await;
            let before = store.list().await.unwrap();
            server.stop();
            server.start_again();
            let after = until_ok(|| store.list()).await;
            assert_ne!(before.generation, after.generation, "{settings:?}");
            assert_eq!(after.entries.len(), usize::from(!settings.is_empty()), "{settings:?}");
            assert_eq!(store.generation().await.unwrap(), after.generation);
        });
    }
}

/// The same process, over the same connection, but its data was another server's for a while.
#[test]
fn a_server_that_was_a_replica_for_a_while_is_another_one() {
    let Some(server) = RedisServer::start(Program::Valkey) else { return };
    let Some(other) = RedisServer::start(Program::Valkey) else { return };
    let store = open(&server.address());
    run(async {
        applied(&store, put("nodes/n", None, "1")).await;
        let before = store.generation().await.unwrap();
        server.ask(&["REPLICAOF", "127.0.0.1", &other.port.to_string()]);
        server.wait_for("replication", || server.info("replication", "master_link_status") == "up");
        let error = store.generation().await.unwrap_err();
        assert!(error.message.contains("replica"), "{error}");
        server.ask(&["REPLICAOF", "NO", "ONE"]);
        assert_ne!(store.generation().await.unwrap(), before);
        assert_eq!(read(&store, "nodes/n").await, None);
    });
}

/// Data that was rolled back under a running server, when the first client to notice never saw what is gone.
#[test]
fn versions_do_not_come_back_with_rolled_back_data() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let (store, other) = (open(&server.address()), open(&server.address()));
    run(async {
        let first = applied(&store, put("nodes/n", None, "1")).await;
        let fields = server.ask(&["HGETALL", "{test}:node:n"]);
        let revision = server.ask(&["HGET", "{test}:store", "revision"]).text();
        let lost = applied(&store, put("nodes/n", Some(&first), "2")).await;
        let mut back = vec!["HSET".to_owned(), "{test}:node:n".to_owned()];
        back.extend(fields.list().iter().map(|part| part.text()));
        server.ask(&back);
        server.ask(&["HSET", "{test}:store", "revision", &revision]);
        let again = applied(&other, put("nodes/n", Some(&first), "another")).await;
        assert_ne!(again, lost);
        // A client that knows more than the store makes that known to all.
        let (mine, theirs) = (open(&server.address()), other.generation().await.unwrap());
        server.ask(&["HSET", "{test}:store", "revision", "1"]);
        assert_ne!(other.generation().await.unwrap(), theirs);
        assert_ne!(mine.generation().await.unwrap(), theirs);
    });
}

/// A master that comes back from an old snapshot names its former history just as a promoted replica does.
#[test]
fn a_master_that_comes_back_from_an_old_snapshot_is_told_from_a_promoted_replica() {
    let Some(mut server) = RedisServer::start(Program::Redis) else { return };
    let follow = format!("replicaof 127.0.0.1 {}", server.port);
    let Some(replica) = RedisServer::start_with(Program::Redis, &[&follow]) else { return };
    replica.wait_for("replication", || replica.info("replication", "master_link_status") == "up");
    let store = open(&format!("{}?wait=1&wait_for=1500", server.address()));
    run(async {
        until_ok(|| store.generation()).await;
        let old = &applied(&store, put("nodes/n", None, "1")).await;
        server.ask(&["SAVE"]);
        applied(&store, put("nodes/n", Some(old), "confirmed")).await;
        let before = store.generation().await.unwrap();
        let lineage = server.info("replication", "master_replid");
        server.kill();
        server.start_again();
        assert_eq!(server.info("replication", "master_replid2"), lineage, "the case that is meant");
        let fresh = open(&format!("{}?wait=0", server.address()));
        assert_ne!(until_ok(|| fresh.generation()).await, before);
        assert_eq!(read(&fresh, "nodes/n").await.unwrap().version, *old);
    });
}

/// If there are more replicas than `wait`, a lagging one may be promoted when two servers fail at once. A client that has
/// seen more makes that known with its next call.
#[test]
fn a_lagging_replica_is_found_by_a_client_that_knows_more() {
    let Some(mut master) = RedisServer::start(Program::Redis) else { return };
    let follow = format!("replicaof 127.0.0.1 {}", master.port);
    let (Some(good), Some(lagging)) = (
        RedisServer::start_with(Program::Redis, &[&follow]),
        RedisServer::start_with(Program::Redis, &[&follow]),
    ) else {
        return;
    };
    for replica in [&good, &lagging] {
        replica.wait_for("replication", || replica.info("replication", "master_link_status") == "up");
    }
    let address =
        format!("redis://127.0.0.1:{},127.0.0.1:{}?wait=1&wait_for=1500", master.port, lagging.port);
    let (store, other) = (open(&address), open(&address));
    run(async {
        until_ok(|| store.list()).await;
        let before = other.list().await.unwrap();
        lagging.wait_for("replication", || lagging.ask(&["EXISTS", "{test}:store"]).text() == "1");
        lagging.ask(&["REPLICAOF", "127.0.0.1", &leasehold_servers::free_port().to_string()]);
        applied(&store, put("shards/g/0", None, "confirmed by the good one")).await;
        master.kill();
        lagging.ask(&["REPLICAOF", "NO", "ONE"]);
        good.ask(&["REPLICAOF", "127.0.0.1", &lagging.port.to_string()]);
        let after = until_ok(|| other.list()).await;
        assert_eq!(
            (&after.generation, after.entries.len()),
            (&before.generation, 0),
            "the loss is not seen by all"
        );
        assert_ne!(store.generation().await.unwrap(), before.generation);
        assert_ne!(other.generation().await.unwrap(), before.generation);
    });
}
