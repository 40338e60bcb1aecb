//! The network between a client and etcd: stalled, cut, reset, and one way only.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use leasehold_chaos::proxy::{Direction, Existing, Mode, Proxy};
use leasehold_chaos::witness::Witness;
use leasehold_core::notice::SessionState;
use leasehold_etcd::Etcd;
use leasehold_servers::words::until;
use leasehold_servers::{Etcd as Server, EtcdSetup, Program};
use leasehold_store::{Lane, Store, WatchEvent};

use crate::common::{Stopwatch, put_patiently, swap};
use crate::members::until_told;
use crate::nodes::{SHARDS, start, until_all_at_work};

const FAULTS: [Mode; 5] = [
    Mode::Stall,
    Mode::Cut(Existing::Silent),
    Mode::Cut(Existing::Reset),
    Mode::Reset,
    Mode::OneWay { lost: Direction::FromStore },
];

fn through(proxy: &Proxy, namespace: &str) -> Etcd {
    let hosts: Vec<String> = proxy.addresses().iter().map(ToString::to_string).collect();
    Etcd::open(&format!("etcd://{}/tests", hosts.join(",")), namespace).unwrap()
}

fn proxy(server: &Server) -> Proxy {
    // It has a runtime of its own, and starts it here.
    tokio::task::block_in_place(|| Proxy::start(server.hosts().split(',').map(str::to_owned)).unwrap())
}

/// Every call ends in time, whatever the network does, and the same client works again once it is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_ends_in_time_and_works_again_afterwards() {
    let Some(server) = Server::start(EtcdSetup::single(Program::Etcd35)) else { return };
    let proxy = proxy(&server);
    let store = through(&proxy, "cut");
    let mut watch = store.watch().await.unwrap().unwrap();
    put_patiently(&store, "shards/g/s", "0").await;
    for (number, fault) in FAULTS.into_iter().enumerate() {
        proxy.set(fault).unwrap();
        let began = Stopwatch::start();
        let (renewal, listing) =
            tokio::join!(swap(&store, Lane::Renewal, "nodes/n", None, "1"), store.list(),);
        assert!(renewal.is_err() && listing.is_err(), "{fault:?}");
        assert!(began.elapsed() < Duration::from_secs(10), "{fault:?}: {:?}", began.elapsed());
        let gap = async { while !matches!(watch.next().await, Some(WatchEvent::Interrupted(_))) {} };
        let noticed = tokio::time::timeout(Duration::from_secs(10), gap).await;
        assert!(noticed.is_ok(), "{fault:?}: the watch says that there is a gap");
        proxy.set(Mode::Pass).unwrap();
        let began = Stopwatch::start();
        let value = (number + 1).to_string();
        let version = put_patiently(&store, "shards/g/s", &value).await;
        assert!(began.elapsed() < Duration::from_secs(10), "{fault:?}: {:?}", began.elapsed());
        let seen = until_told(&mut watch, &version).await;
        assert!(seen.contains(&"snapshot"), "{fault:?}: the watch goes on with a snapshot");
    }
}

/// The case that broke others: a node that is cut off stops before the others take over, and comes back by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_stops_in_time_and_comes_back() {
    let Some(server) = Server::start(EtcdSetup::single(Program::Etcd35).members(3)) else { return };
    let (proxy, witness, ttl) = (proxy(&server), Witness::default(), Duration::from_secs(5));
    let direct: Arc<dyn Store> = Arc::new(crate::common::open(&server, "cut-off"));
    let far = start(Arc::new(through(&proxy, "cut-off")), "far", ttl, &witness).await;
    far.attached().await.unwrap();
    until_all_at_work(&witness, Duration::from_secs(20)).await;
    let near = start(direct, "near", ttl, &witness).await;
    near.attached().await.unwrap();

    proxy.set(Mode::Stall).unwrap();
    let began = Stopwatch::start();
    until("the others have all", ttl * 3, || witness.at_work("near") == SHARDS).await;
    let failover = began.elapsed();
    assert_eq!(witness.at_work("far"), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    proxy.set(Mode::Pass).unwrap();
    let began = Stopwatch::start();
    let attached = || far.view().me.as_ref().is_some_and(|me| me.session_state == SessionState::Attached);
    until("it is attached again", Duration::from_secs(20), attached).await;
    println!(
        "{SHARDS} shards over in {failover:?} at a ttl of {ttl:?}; attached {:?} after the cut",
        began.elapsed()
    );
    near.leave().await;
    until_all_at_work(&witness, Duration::from_secs(20)).await;
    assert_eq!(witness.at_work("far"), SHARDS);
    far.leave().await;
    witness.assert_no_overlap();
}
