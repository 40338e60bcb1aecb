//! Nodes on the local store, with its process lock.

use std::time::Duration;

use leasehold::{Finish, Group, Node, Notice};

use crate::bench::Witness;

/// Two nodes of one process on one store: neither's lock may speak for the other one.
#[tokio::test]
async fn nodes_that_share_a_store_do_not_prove_each_other_dead() {
    let ended = tokio::time::timeout(Duration::from_secs(30), two_on_one_store()).await;
    ended.expect("both attach and leave");
}

async fn two_on_one_store() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("local:{}/work.db", folder.path().display());
    let store = leasehold::store::open(&address, "test").unwrap();
    let witness = Witness::new();
    let start = async |name: &str| {
        let node = Node::builder(store.clone()).name(name).ttl(Duration::from_secs(2)).new_namespace();
        node.group(Group::numbered("orders", 4), witness.worker(name)).start().await.unwrap()
    };
    let a = start("a").await;
    a.attached().await.unwrap();
    let mut events = a.events();
    let b = start("b").await;
    b.attached().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(a.view().me.as_ref().unwrap().standing, "attached");
    assert_eq!(a.owned().len() + b.owned().len(), 4);
    assert_eq!((a.leave().await, b.leave().await), (Finish::Clean, Finish::Clean));
    while let Some(told) = events.next().await {
        let notice = &told.notice;
        assert!(!matches!(notice, Notice::Fenced { .. }), "{notice:?}");
        let detached = matches!(notice, Notice::Standing { to, .. } if to.as_str() == "detached");
        assert!(!detached, "{notice:?}");
    }
    witness.assert_no_overlap();
}
