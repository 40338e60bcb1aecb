//! Whole nodes on real servers: what their workers did, and not what the store says.

use std::sync::Arc;
use std::time::Duration;

use leasehold::registry::{Registry, RegistryOptions, RegistryState};
use leasehold::{Client, Group, Node, Notice};
use leasehold_chaos::witness::Witness;
use leasehold_core::notice::SessionState;
use leasehold_redis::Redis;
use leasehold_servers::{Program, RedisSentinel, RedisServer, words};
use leasehold_store::Store;

use crate::common::{now, run};
use crate::relay::Relay;

fn store(address: &str) -> Arc<dyn Store> {
    Arc::new(Redis::open(address, "test").expect("the address is right"))
}

async fn node(address: &str, name: &str, ttl: u64, slots: u32, witness: &Witness) -> Node {
    let builder = Node::builder(store(address)).name(name).ttl(Duration::from_secs(ttl)).new_namespace();
    builder.group(Group::numbered("orders", slots), witness.worker(name)).start().await.expect("it starts")
}

async fn until(what: &str, yes: impl Fn() -> bool) {
    words::until(what, Duration::from_secs(40), yes).await;
}

/// Waits until no shard has moved for a while.
async fn at_rest(witness: &Witness) {
    let mut starts = 0;
    while starts != witness.all_starts() {
        starts = witness.all_starts();
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
}

/// Why any of the nodes was detached since its events were taken.
async fn detachments(events: Vec<leasehold::Events>) -> Vec<String> {
    let mut causes = Vec::new();
    for mut events in events {
        while let Ok(Some(told)) = tokio::time::timeout(Duration::from_millis(100), events.next()).await {
            if let Notice::StateChanged { to: SessionState::Detached, cause, .. } = &told.notice {
                causes.push(cause.to_string());
            }
        }
    }
    causes
}

/// Sentinels that do not agree at their first vote take twelve seconds more. No lease of ten survives that, and it shows
/// nothing about a failover of two.
#[test]
fn a_failover_detaches_nobody_at_the_default_ttl() {
    assert!((0..3).any(|_| a_quick_failover_detaches_nobody()), "the sentinels took too long three times");
}

/// `false` if the sentinels took long.
fn a_quick_failover_detaches_nobody() -> bool {
    let Some(mut servers) = RedisSentinel::start(Program::Redis, 2) else { return true };
    let (address, witness) = (servers.address(), Witness::default());
    run(async {
        let mut nodes = Vec::new();
        for name in ["a", "b", "c"] {
            nodes.push(node(&address, name, 10, 24, &witness).await);
        }
        until("everything to be at work, and shared", || {
            witness.all_at_work() == 24 && ["a", "b", "c"].iter().all(|name| witness.at_work(name) >= 6)
        })
        .await;
        at_rest(&witness).await;
        let (starts, events) = (witness.all_starts(), nodes.iter().map(Node::events).collect());
        servers.servers[0].kill();
        let killed_at = now();
        until("another master", || servers.master().is_some_and(|master| master != 0)).await;
        let took = now() - killed_at;
        println!("the sentinels had another master after {took:?}");
        witness.assert_no_overlap();
        if took > Duration::from_secs(4) {
            return false;
        }
        tokio::time::sleep(Duration::from_secs(12).saturating_sub(took)).await;
        assert_eq!(detachments(events).await, [""; 0]);
        assert_eq!((witness.all_at_work(), witness.all_starts()), (24, starts), "nothing stopped");
        assert!(
            nodes.iter().all(|node| node.view().me.as_ref().unwrap().session_state == SessionState::Attached)
        );
        witness.assert_no_overlap();
        true
    })
}

/// Claims that the old master acknowledged are gone with it. All nodes stop, and start again with higher epochs.
#[test]
fn a_failover_that_lost_claims_stops_everybody_before_anybody_starts() {
    let Some(mut servers) = RedisSentinel::start(Program::Redis, 1) else { return };
    let (address, witness) = (format!("{}?wait=0", servers.address()), Witness::default());
    run(async {
        let a = node(&address, "a", 6, 8, &witness).await;
        let b = node(&address, "b", 6, 8, &witness).await;
        until("everything to be at work", || witness.all_at_work() == 8 && witness.at_work("b") > 2).await;
        servers.servers[1].wait_for("replication", || {
            servers.servers[1].ask(&["ZCARD", "{test}:index"])
                == servers.servers[0].ask(&["ZCARD", "{test}:index"])
        });
        servers.cut_replication();
        // Twelve more slots are claimed and run, which only the master knows of.
        let client = Client::open(store(&address)).await.unwrap();
        client.set_group(Group::numbered("orders", 20)).await.unwrap();
        until("more to be at work", || witness.all_at_work() == 20).await;
        let events = vec![a.events(), b.events()];
        servers.servers[0].kill();
        until("everything to stop", || witness.all_at_work() == 0).await;
        until("what is known of to be at work again", || witness.all_at_work() == 8).await;
        assert_eq!(detachments(events).await.len(), 2);
        client.set_group(Group::numbered("orders", 20)).await.unwrap();
        until("all to be at work again", || witness.all_at_work() == 20).await;
        witness.assert_no_overlap();
    });
}

/// Three servers, split by hand: the old master goes on without replicas, and one of them is made master beside it.
fn split(wait: u32) -> Option<(Witness, bool)> {
    let master = RedisServer::start(Program::Valkey)?;
    let follow = format!("replicaof 127.0.0.1 {}", master.port);
    let replicas = [0, 1].map(|_| RedisServer::start_with(Program::Valkey, &[&follow]));
    let [Some(left), Some(right)] = &replicas else { return None };
    let address = |server: &RedisServer| format!("{}?wait={wait}&wait_for=150", server.address());
    let witness = Witness::default();
    let stopped = run(async {
        for replica in [left, right] {
            replica.wait_for("replication", || replica.info("replication", "master_link_status") == "up");
        }
        let _a = node(&address(&master), "a", 3, 4, &witness).await;
        until("a to work", || witness.at_work("a") == 4).await;
        left.ask(&["REPLICAOF", "NO", "ONE"]);
        right.ask(&["REPLICAOF", "127.0.0.1", &left.port.to_string()]);
        let _b = node(&address(left), "b", 3, 4, &witness).await;
        until("b to work", || witness.at_work("b") == 4).await;
        witness.at_work("a") == 0
    });
    Some((witness, stopped))
}

#[test]
fn a_node_on_the_wrong_side_of_a_split_stops_in_time() {
    let Some((witness, stopped)) = split(1) else { return };
    witness.assert_no_overlap();
    assert!(stopped);
}

/// What Redis cannot promise, as GUARANTEES.md says: if this fails, the documents are too modest.
#[test]
fn without_waiting_both_sides_of_a_split_work() {
    let Some((witness, stopped)) = split(0) else { return };
    assert!(!stopped && !witness.overlaps().is_empty());
}

#[test]
fn settings_that_are_pushed_are_picked_up_at_once() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let (address, witness) = (server.address(), Witness::default());
    run(async {
        let a = node(&address, "a", 10, 4, &witness).await;
        let b = node(&address, "b", 10, 4, &witness).await;
        until("all to be at work", || witness.all_at_work() == 4 && witness.at_work("b") > 0).await;
        let client = Client::open(store(&address)).await.unwrap();
        let pushed_at = now();
        client.set_group(Group::numbered("orders", 40)).await.unwrap();
        until("all slots to be at work", || witness.all_at_work() == 40).await;
        let took = now() - pushed_at;
        println!("36 more slots were at work {took:?} after the setting was pushed");
        assert!(took < Duration::from_secs(5), "told, not found out by the next listing: {took:?}");
        let leaving_at = now();
        b.leave().await;
        until("a to have all", || witness.at_work("a") == 40).await;
        let took = now() - leaving_at;
        println!("a graceful leave handed everything over in {took:?}");
        assert!(took < Duration::from_secs(5), "handed over, and no lease waited for: {took:?}");
        witness.assert_no_overlap();
        drop(a);
    });
}

/// A key that a node registers can be read with GET, and comes back by itself when the server lost it.
#[test]
fn registered_keys_are_plain_keys_and_come_back() {
    let Some(mut server) = RedisServer::start(Program::Valkey) else { return };
    let (address, witness) = (server.address(), Witness::default());
    run(async {
        let a = node(&address, "a", 3, 1, &witness).await;
        a.attached().await.unwrap();
        a.register("services/a", "10.0.0.1:80").await.unwrap();
        assert_eq!(server.ask(&["GET", "{test}:key:services/a"]).text(), "10.0.0.1:80");
        assert!(server.ask(&["PTTL", "{test}:key:services/a"]).text().parse::<i64>().unwrap() > 0);
        server.start_again();
        until("the key to come back", || server.ask(&["EXISTS", "{test}:key:services/a"]).text() == "1")
            .await;
        a.leave().await;
        until("the key to go", || server.ask(&["EXISTS", "{test}:key:services/a"]).text() == "0").await;
    });
}

/// The same on every store: a removed key comes back, and a key that another program wrote stays theirs.
#[test]
fn a_registered_key_that_was_removed_comes_back_and_one_that_was_taken_is_told_of() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let key = "{test}:key:services/a";
    run(async {
        let options = RegistryOptions { ttl: Duration::from_secs(4), ..RegistryOptions::default() };
        let registry = Registry::with_options(store(&server.address()), options).unwrap();
        let lease = registry.register("services/a", "mine").await.unwrap();
        server.ask(&["DEL", key]);
        until("the key to come back", || server.ask(&["GET", key]).text() == "mine").await;
        assert_eq!(registry.health().lease, Some(lease), "nothing else was touched");
        server.ask(&["SET", key, "theirs"]);
        until("its owner to be told", || registry.health().state == RegistryState::Overwritten).await;
        assert_eq!(registry.health().taken, ["services/a"]);
        assert_eq!(server.ask(&["GET", key]).text(), "theirs");
        registry.register("services/a", "mine").await.unwrap();
        assert_eq!(server.ask(&["GET", key]).text(), "mine");
        registry.close().await;
        assert!(server.ask(&["KEYS", "*"]).list().is_empty());
    });
}

/// 2,048 shards, three nodes: the time to everything at work is printed, and once everybody has its share, nothing is
/// sent for a shard.
#[test]
fn three_nodes_and_two_thousand_shards_start_and_come_to_rest() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let (address, witness) = (server.address(), Witness::default());
    run(async {
        let began_at = now();
        let mut nodes = Vec::new();
        for name in ["a", "b", "c"] {
            nodes.push(node(&address, name, 10, 2048, &witness).await);
        }
        until("all to be at work", || witness.all_at_work() == 2048).await;
        println!("2048 shards at work {:?} after the first node was started", now() - began_at);
        let calls = || -> u64 {
            let line = server.info("commandstats", "cmdstat_evalsha");
            line.strip_prefix("calls=").and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap()
        };
        // 15 renewals and about 24 pages of listings in 10 s. The moves to the nodes that came later go before, and on
        // a busy machine they take a while; one write per shard would be thousands each time.
        let mut seen = Vec::new();
        while seen.last().is_none_or(|calls| *calls > 80) {
            assert!(seen.len() < 6, "scripts in 10 s, again and again: {seen:?}");
            let before = calls();
            tokio::time::sleep(Duration::from_secs(10)).await;
            seen.push(calls() - before);
        }
        println!("scripts in 10 s, until all was at rest: {seen:?}");
        witness.assert_no_overlap();
    });
}

/// The case that gave others two owners for hundreds of shards: connections that stand, and nothing comes through.
/// First for five seconds, which nobody notices; then for longer than the lease.
#[test]
fn a_node_whose_connections_stall_is_replaced_and_comes_back() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let witness = Witness::default();
    run(async {
        let relay = Relay::to(server.port).await;
        let a = node(&format!("redis://127.0.0.1:{}", relay.port), "a", 10, 2048, &witness).await;
        let b = node(&server.address(), "b", 10, 2048, &witness).await;
        let c = node(&server.address(), "c", 10, 2048, &witness).await;
        let fair = || ["a", "b", "c"].iter().all(|name| witness.at_work(name) > 500);
        until("a fair share for all", || witness.all_at_work() == 2048 && fair()).await;
        at_rest(&witness).await;
        let (starts, events) = (witness.all_starts(), vec![a.events(), b.events(), c.events()]);
        relay.stall();
        tokio::time::sleep(Duration::from_secs(5)).await;
        relay.heal();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(detachments(events).await, [""; 0]);
        assert_eq!((witness.all_at_work(), witness.all_starts()), (2048, starts), "nothing stopped");

        let events = vec![a.events()];
        relay.stall();
        let stalled_at = now();
        until("a to stop", || witness.at_work("a") == 0).await;
        let stopped = now() - stalled_at;
        until("the others to have everything", || witness.all_at_work() == 2048).await;
        let taken = now() - stalled_at;
        assert!(
            stopped < Duration::from_secs(10) && taken < Duration::from_secs(14),
            "{stopped:?}, {taken:?}"
        );
        tokio::time::sleep(Duration::from_secs(4)).await;
        relay.heal();
        let healed_at = now();
        until("a to be back with its share", fair).await;
        println!(
            "stalled: stopped after {stopped:?}, taken over after {taken:?}, back {:?} after it was over",
            now() - healed_at
        );
        assert!(!detachments(events).await.is_empty());
        witness.assert_no_overlap();
    });
}
