//! Nodes of the library on a real server: cold start, a planned move and a failover, each within its bound.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock;
use leasehold::{Group, Node};
use leasehold_object::Bucket;
use leasehold_servers::Program;
use leasehold_store::Store;
use leasehold_store::wrap::{CutOff, Link};

use crate::common::{BUCKET, fresh, open_at, server};

const SHARDS: u32 = 30;
const TTL: Duration = Duration::from_secs(6);
const GROUP: &str = "work";
const POLL: Duration = Duration::from_millis(1000);

async fn start(store: Arc<dyn Store>, name: &str) -> Node {
    start_with(store, name, TTL).await
}

async fn start_with(store: Arc<dyn Store>, name: &str, ttl: Duration) -> Node {
    let group = Group::numbered(GROUP, SHARDS);
    let node = Node::builder(store)
        .name(name)
        .ttl(ttl)
        .new_namespace()
        .group(group, |grant| async move { grant.stopped().await });
    node.start().await.expect("the settings are right")
}

/// How long it takes until these nodes own all shards between them.
async fn until_owned(nodes: &[&Node], within: Duration) -> Duration {
    let began_at = clock::now();
    loop {
        let took = clock::now().since(began_at);
        let owned: Vec<usize> = nodes.iter().map(|node| node.owned().len()).collect();
        if owned.iter().sum::<usize>() == SHARDS as usize && owned.iter().all(|owned| *owned > 0) {
            return took;
        }
        assert!(took < within, "after {took:?} the nodes own {owned:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_start_move_and_fail_over_within_their_bounds() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    let namespace = fresh("nodes");
    let address = server.address(BUCKET, &format!("&poll={}ms", POLL.as_millis()));
    let stores: Vec<Arc<Bucket>> = (0..3).map(|_| open_at(&address, &namespace)).collect();
    // Once a process and bucket; it is not what is measured here.
    leasehold_store::Registry::grant(&*stores[0], TTL).await.unwrap();
    let cut = Arc::new(CutOff::new(stores[2].clone()));
    let (a, b, c) =
        tokio::join!(start(stores[0].clone(), "a"), start(stores[1].clone(), "b"), start(cut.clone(), "c"));
    let cold = until_owned(&[&a, &b, &c], TTL * 4).await;

    // Five renewals; six looks, a listing and some, and two reads of each of the two others. What the start stirred up
    // comes to rest first, which on a busy machine takes a while.
    let mut seen = Vec::new();
    while !seen.last().is_some_and(|(puts, gets)| (4..=6).contains(puts) && *gets <= 16) {
        assert!(seen.len() < 6, "writes and reads of a node at rest in one ttl: {seen:?}");
        let before = stores[0].requests();
        tokio::time::sleep(TTL).await;
        let after = stores[0].requests();
        seen.push((after.puts - before.puts, after.gets - before.gets));
    }
    println!("writes and reads in one ttl: {seen:?}");

    let began_at = clock::now();
    let stay = [&a, &c];
    let (_, moved) = tokio::join!(b.leave(), until_owned(&stay, POLL * 2 + TTL));
    let moved = moved.max(clock::now().since(began_at));

    cut.set(Link::Stalled);
    let failover = until_owned(&[&a], TTL + TTL / 2 + Duration::from_secs(5)).await;
    println!(
        "cold start {cold:.1?}, everything of a leaving node moved in {moved:.1?}, failover {failover:.1?}"
    );
    assert!(moved < POLL * 2 + TTL / 2, "handed over, and no lease waited for: {moved:?}");
    assert!(failover >= TTL / 2, "nobody is fenced before its time: {failover:?}");
    cut.heal();
    a.leave().await;
    c.leave().await;
}

/// The lease of the nodes that take over what was in a damaged page: they wait until a record that they cannot read is silent.
const SHORT_TTL: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_in_a_damaged_page_is_taken_over_also_after_a_cold_start() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    let namespace = fresh("cold");
    let address = server.address(BUCKET, "&poll=500ms");
    let first = start_with(open_at(&address, &namespace), "first", SHORT_TTL).await;
    until_owned(&[&first], SHORT_TTL * 10).await;
    first.leave().await;
    server.put_object(BUCKET, &format!("leasehold/{namespace}/shards/{GROUP}/00.json"), b"garbage");
    server.put_object(BUCKET, &format!("leasehold/{namespace}/nodes/newer.json"), b"{\"format\":9}");

    let second = start_with(open_at(&address, &namespace), "second", SHORT_TTL).await;
    let began_at = clock::now();
    // Everything else runs once the record of a newer version has been silent for a lease.
    while second.owned().is_empty() {
        assert!(clock::now().since(began_at) < SHORT_TTL * 10, "nothing runs");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = until_owned(&[&second], SHORT_TTL * 40).await;
    println!("owned again after {took:.1?}");
    assert!(clock::now().since(began_at) < SHORT_TTL * 10, "nobody says that it holds it: {took:?}");
    second.leave().await;
}
