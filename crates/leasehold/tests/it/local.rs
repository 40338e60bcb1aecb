//! Nodes on the local store, with its process lock.

use std::time::Duration;

use leasehold::notice::SessionState;
use leasehold::{Finish, Group, Node, Notice};

use leasehold_chaos::witness::Witness;

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
    let witness = Witness::default();
    let start = async |name: &str| {
        let node = Node::builder(store.clone()).name(name).ttl(Duration::from_secs(2)).new_namespace();
        node.group(Group::numbered("orders", 4), witness.worker(name)).start().await.unwrap()
    };
    let a = start("a").await;
    a.attached().await.unwrap();
    let mut events = a.events();
    let b = start("b").await;
    b.attached().await.unwrap();
    // A shard moves only after it has run for a while, so both have been watched for longer than a proof takes.
    while a.owned().len() != 2 || b.owned().len() != 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(a.view().me.as_ref().unwrap().session_state, SessionState::Attached);
    assert_eq!((a.leave().await, b.leave().await), (Finish::Clean, Finish::Clean));
    while let Some(told) = events.next().await {
        let notice = &told.notice;
        assert!(!matches!(notice, Notice::Fenced { .. }), "{notice:?}");
        let detached = matches!(notice, Notice::StateChanged { to, .. } if to.as_str() == "detached");
        assert!(!detached, "{notice:?}");
    }
    witness.assert_no_overlap();
}

/// A transaction was left open: what the operator reads says so, although the calls' time was up first.
#[tokio::test]
async fn a_locked_store_is_named_where_operators_look() {
    let ended = tokio::time::timeout(Duration::from_secs(30), locked_under_a_node()).await;
    ended.expect("it degrades and comes back");
}

async fn locked_under_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("work.db");
    let store = leasehold::store::open(&format!("local:{}", file.display()), "test").unwrap();
    let shell = rusqlite::Connection::open(&file).unwrap();
    let start = async |name: &str, ttl| {
        let node = Node::builder(store.clone()).name(name).ttl(ttl).new_namespace();
        node.hold(Group::leader("boss")).start().await.unwrap()
    };
    let words = format!("is locked by process {}", std::process::id());
    // With a ttl of 2 s a call may take 200 ms, which is less than the store waits for a lock.
    let node = start("a", Duration::from_secs(2)).await;
    node.attached().await.unwrap();
    let mut events = node.events();
    shell.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let cause = loop {
        let told = events.next().await.unwrap();
        if let Notice::StateChanged { to, cause, .. } = &told.notice
            && to.as_str() == "degraded"
        {
            break cause.to_string();
        }
    };
    assert!(cause.contains(&words) && cause.contains("fuser"), "{cause}");
    // A node that cannot even join says it too.
    let late = start("b", Duration::from_secs(2)).await;
    let mut events = late.events();
    let error = loop {
        if let Notice::StoreFailed { error } = &events.next().await.unwrap().notice {
            break error.clone();
        }
    };
    assert!(error.contains(&words), "{error}");
    shell.execute_batch("COMMIT").unwrap();
    late.attached().await.unwrap();
    assert_eq!((late.leave().await, node.leave().await), (Finish::Clean, Finish::Clean));
}
