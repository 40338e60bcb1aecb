//! A member that is cut off from the other members while its clients still reach it: it must not be trusted, and no node
//! may wait for it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_chaos::witness::Witness;
use leasehold_etcd::Etcd;
use leasehold_servers::{Etcd as Server, EtcdSetup, Program};
use leasehold_store::{Lane, Store};

use crate::common::{Stopwatch, key, open, put, put_patiently, swap};
use crate::members::until_told;
use crate::nodes::{sessions, start, until_all_at_work};

/// The default.
const TTL: Duration = Duration::from_secs(10);
/// Longer than a session that cannot be renewed would last.
const CUT_FOR: Duration = Duration::from_secs(13);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_its_peers_answers_nothing_old_and_nobody_stalls_on_it() {
    for program in [Program::Etcd34, Program::Etcd35] {
        let Some(server) = Server::start(EtcdSetup::single(program).members(3).doors()) else { continue };
        let store = open(&server, "peers");
        let version = put(&store, "shards/g/s", None, "old").await;
        let leader = server.leader().expect("there is a leader");
        for cut in [(leader + 1) % 3, leader] {
            // A client that knows no other member.
            let alone = Etcd::open(&format!("etcd://{}/tests", server.host(cut)), "peers").unwrap();
            alone.read(&[key("shards/g/s")]).await.unwrap();
            let mut watch = store.watch().await.unwrap().unwrap();
            until_told(&mut watch, &put_patiently(&store, "shards/g/s", "before").await).await;
            server.cut_off(cut);
            let newer = put_patiently(&store, "shards/g/s", &format!("newer than {cut}")).await;
            until_told(&mut watch, &newer).await;
            // Whatever it is asked, it says nothing, or what is true now.
            let (began, mut silent) = (Stopwatch::start(), 0);
            while began.elapsed() < Duration::from_secs(3) {
                let read =
                    tokio::time::timeout(Duration::from_secs(1), alone.read(&[key("shards/g/s")])).await;
                if let Ok(Ok(reading)) = read {
                    assert_eq!(
                        reading.found[0].as_ref().map(|found| &found.version),
                        Some(&newer),
                        "{program:?}"
                    );
                } else {
                    silent += 1;
                }
                let list = tokio::time::timeout(Duration::from_secs(1), alone.list()).await;
                if let Ok(Ok(listing)) = list {
                    assert!(listing.entries.iter().any(|(_, found)| found.version == newer), "{program:?}");
                }
                let late = swap(&alone, Lane::Work, "shards/g/s", Some(&version), "wrong");
                if let Ok(Ok(outcome)) = tokio::time::timeout(Duration::from_secs(1), late).await {
                    assert!(matches!(outcome, leasehold_store::Swapped::Lost(_)), "{program:?}: {outcome:?}");
                }
                // Those who know the others go on: a try of a driver is never longer than this.
                let read =
                    tokio::time::timeout(Duration::from_secs(1), store.read(&[key("shards/g/s")])).await;
                let found = read.expect("no stall").expect("the majority answers").found.remove(0);
                assert_eq!(found.map(|found| found.version), Some(newer.clone()));
            }
            assert!(silent > 0, "{program:?}: member {cut} is cut off and answers");
            server.reconnect();
            put_patiently(&alone, "shards/g/s", "well again").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_lose_nothing_when_members_are_cut_off_killed_and_restarted() {
    let setup = EtcdSetup::single(Program::Etcd35).members(3).doors();
    let Some(mut server) = Server::start(setup) else { return };
    let witness = Witness::default();
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        let store: Arc<dyn Store> = Arc::new(open(&server, "peered"));
        nodes.push(start(store, name, TTL, &witness).await);
    }
    for node in &nodes {
        node.attached().await.unwrap();
    }
    until_all_at_work(&witness, Duration::from_secs(20)).await;
    let before = sessions(&nodes);

    let leader = server.leader().expect("there is a leader");
    for cut in [leader, (leader + 1) % 3] {
        server.cut_off(cut);
        tokio::time::sleep(CUT_FOR).await;
        assert_eq!(sessions(&nodes), before, "nobody lost its session without member {cut}");
        server.reconnect();
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let leader = server.leader().expect("there is a leader");
    server.kill(leader);
    tokio::time::sleep(Duration::from_secs(6)).await;
    server.revive(leader);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(sessions(&nodes), before, "nobody lost its session without its leader");
    until_all_at_work(&witness, Duration::from_secs(5)).await;

    // While a member is cut off a node ends: the others take its shards over in time.
    server.cut_off(server.leader().expect("there is a leader"));
    let dead = nodes.pop().expect("there are three");
    let held = dead.owned().len();
    let began = Stopwatch::start();
    drop(dead);
    while witness.at_work("c") > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    until_all_at_work(&witness, TTL + Duration::from_secs(5)).await;
    println!("{held} shards of a node that ended ran elsewhere after {:?}", began.elapsed());
    for node in nodes {
        node.leave().await;
    }
    witness.assert_no_overlap();
}
