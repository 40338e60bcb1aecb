//! Whole nodes on a real cluster: no node detaches when a leader dies, and a leaving node hands over at once.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Group, Node};
use leasehold_chaos::witness::Witness;
use leasehold_servers::words::until;
use leasehold_servers::{Etcd as Server, EtcdSetup, Program};
use leasehold_store::Store;
use nix::sys::signal::Signal;

use crate::common::{Stopwatch, open};

pub(crate) const SHARDS: usize = 256;

/// The default.
const TTL: Duration = Duration::from_secs(10);

pub(crate) async fn until_all_at_work(witness: &Witness, within: Duration) {
    until("everything is at work", within, || witness.all_at_work() == SHARDS).await;
}

pub(crate) async fn start(store: Arc<dyn Store>, name: &str, ttl: Duration, witness: &Witness) -> Node {
    let group = Group::numbered("orders", SHARDS as u32);
    Node::builder(store)
        .name(name)
        .ttl(ttl)
        .new_namespace()
        .group(group, witness.worker(name))
        .start()
        .await
        .unwrap()
}

pub(crate) fn sessions(nodes: &[Node]) -> Vec<String> {
    nodes.iter().map(|node| format!("{:?}", node.view().me.as_ref().and_then(|me| me.session))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_detaches_no_node_and_a_graceful_leave_takes_no_time() {
    let Some(mut server) = Server::start(EtcdSetup::single(Program::Etcd35).members(3)) else { return };
    let witness = Witness::default();
    // Two nodes of one process share a client; the third has its own, as another process would.
    let shared: Arc<dyn Store> = Arc::new(open(&server, "nodes"));
    let mut nodes = Vec::new();
    let began = Stopwatch::start();
    for (name, store) in [("a", shared.clone()), ("b", shared), ("c", Arc::new(open(&server, "nodes")) as _)]
    {
        nodes.push(start(store, name, TTL, &witness).await);
    }
    for node in &nodes {
        node.attached().await.unwrap();
    }
    until_all_at_work(&witness, Duration::from_secs(20)).await;
    let cold = began.elapsed();
    let before = sessions(&nodes);

    let leader = server.leader().expect("there is a leader");
    server.kill(leader);
    tokio::time::sleep(Duration::from_secs(7)).await;
    server.revive(leader);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let stopped = server.leader().expect("there is a leader");
    server.process(stopped).signal(Signal::SIGSTOP);
    tokio::time::sleep(Duration::from_secs(7)).await;
    server.process(stopped).signal(Signal::SIGCONT);
    assert_eq!(sessions(&nodes), before, "no node lost its session");
    until_all_at_work(&witness, Duration::from_secs(5)).await;

    let leaving = nodes.pop().expect("there are three");
    let held = leaving.owned().len();
    let began = Stopwatch::start();
    leaving.leave().await;
    until_all_at_work(&witness, TTL).await;
    let took = began.elapsed();
    println!("cold start to all at work {cold:?}; {held} shards handed over in {took:?}");
    assert!(held > 0 && took < TTL / 2, "handed over, and no lease waited for: {held} shards took {took:?}");
    for node in nodes {
        node.leave().await;
    }
    witness.assert_no_overlap();
}

/// A node that is started before its store waits for it, and one whose store is emptied goes on under a new incarnation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_waits_for_its_store() {
    let Some(mut server) = Server::start(EtcdSetup::single(Program::Etcd34)) else { return };
    server.kill(0);
    let witness = Witness::default();
    let node = start(Arc::new(open(&server, "early")), "a", TTL, &witness).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(witness.all_at_work(), 0);
    server.revive(0);
    until_all_at_work(&witness, Duration::from_secs(20)).await;
    node.leave().await;
    assert_eq!(witness.all_at_work(), 0);
}
