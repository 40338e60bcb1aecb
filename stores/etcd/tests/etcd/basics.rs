//! One member that is well.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use leasehold_etcd::Etcd;
use leasehold_servers::{Etcd as Server, EtcdSetup, Program, free_port};
use leasehold_store::{Lane, Registry, Store, StoreErrorKind, Swap, Swapped, WatchEvent};

use crate::common::{key, open, put, swap};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn opening_needs_neither_a_server_nor_a_runtime() {
    let address = format!("etcd://127.0.0.1:{}", free_port());
    let store = Etcd::open(&address, "lazy").unwrap();
    // Nor do the calls need tokio: the connections live on threads of the store's own.
    let error = futures::executor::block_on(store.list()).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unreachable, "{error}");
}

#[test]
fn one_store_serves_several_runtimes_and_outlives_them() {
    let Some(server) = Server::start(EtcdSetup::single(Program::Etcd35)) else { return };
    let store = Arc::new(open(&server, "runtimes"));
    let (first, second) = (runtime(), runtime());
    let mut watch = first.block_on(store.watch()).unwrap().unwrap();
    let version = first.block_on(put(&*store, "nodes/n", None, "1"));
    // The runtime that opened the connections goes away, and the other one goes on with all of them.
    drop(first);
    let renewed = second.block_on(swap(&*store, Lane::Renewal, "nodes/n", Some(&version), "2")).unwrap();
    let Swapped::Applied(version) = renewed else { panic!("{renewed:?}") };
    let told = second.block_on(async {
        loop {
            match watch.next().await {
                Some(WatchEvent::Changed(changes))
                    if changes.iter().any(|(_, stored)| {
                        stored.as_ref().is_some_and(|stored| stored.version == version)
                    }) =>
                {
                    return changes.len();
                }
                Some(_) => {}
                None => return 0,
            }
        }
    });
    assert!(told > 0, "the watch goes on");
    drop(second);
    let stored = runtime().block_on(store.read(&[key("nodes/n")])).unwrap().found.remove(0).unwrap();
    assert_eq!(&*stored.value, b"2");
}

#[tokio::test]
async fn everything_can_be_looked_at_by_hand() {
    let Some(server) = Server::start(EtcdSetup::single(Program::Etcd35)) else { return };
    let store = open(&server, "by hand");
    put(&store, "nodes/a b", None, "{\"node\":1}").await;
    put(&store, "shards/g/x/y é", None, "{\"shard\":1}").await;
    let lease = store.grant(Duration::from_secs(60)).await.unwrap();
    store.put(&lease, "service/1", b"10.0.0.1:80").await.unwrap();
    let seen = server.ctl(&["get", "--prefix", "/tests/"]);
    let expected = "/tests/by hand/keys/service/1\n10.0.0.1:80\n/tests/by hand/nodes/a b\n{\"node\":1}\n\
                    /tests/by hand/shards/g/x/y é\n{\"shard\":1}\n";
    assert_eq!(seen, expected);
    assert!(server.ctl(&["lease", "list"]).contains(&lease.0), "a lease is named as etcdctl names it");
    store.revoke(&lease).await.unwrap();
}

#[tokio::test]
async fn swaps_that_are_too_large_for_one_request_are_sent_as_several() {
    let Some(server) = Server::start(EtcdSetup::single(Program::Etcd34)) else { return };
    let store = open(&server, "large");
    let value: Arc<[u8]> = vec![b'x'; 60_000].into();
    let swaps: Vec<Swap> = (0..store.facts().swaps_max)
        .map(|n| Swap { key: key(&format!("shards/g/{n}")), expect: None, value: Some(value.clone()) })
        .collect();
    let reply = store.swap(Lane::Work, &swaps).await.unwrap();
    assert_eq!(reply.outcomes.len(), swaps.len());
    assert!(reply.outcomes.iter().all(|outcome| matches!(outcome, Swapped::Applied(_))), "{reply:?}");
    assert_eq!(store.list().await.unwrap().entries.len(), swaps.len());
}

/// etcd makes a cluster's id from its members' addresses: a backup that is restored in its place has the same one.
#[tokio::test]
async fn a_restored_backup_is_noticed_even_if_the_cluster_id_is_the_same() {
    let Some(mut server) = Server::start(EtcdSetup::single(Program::Etcd35)) else { return };
    let store = open(&server, "restored");
    let saved = put(&store, "nodes/n", None, "saved").await;
    let file = server.folder().join("backup");
    server.save(&file);
    let lost = put(&store, "nodes/n", Some(&saved), "lost").await;
    let before = store.list().await.unwrap();
    server.restore(&file, None);

    let error = loop {
        match swap(&store, Lane::Renewal, "nodes/n", Some(&lost), "renewed").await {
            Err(error) if error.kind == StoreErrorKind::Damaged => break error,
            // The connection to the old server broke.
            Err(_) => {}
            Ok(outcome) => panic!("the roll-back was not noticed: {outcome:?}"),
        }
    };
    assert!(error.message.contains("restored from a backup"), "{error}");
    assert_eq!(store.read(&[key("meta")]).await.unwrap_err().kind, StoreErrorKind::Damaged);
    let after = store.list().await.unwrap();
    assert_eq!(after.generation, before.generation, "otherwise this shows nothing");
    assert!(after.revision < before.revision, "{:?}, then {:?}", before.revision, after.revision);
    store.read(&[key("meta")]).await.expect("a client that listed knows, and goes on");
}
