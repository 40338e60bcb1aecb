//! With real threads and the boot clock: user code that blocks must not hold up renewals, and what stops work must
//! need nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::clock;
use leasehold::registry::Registry;
use leasehold::{Finish, Group, Node};
use leasehold_core::ShardId;
use leasehold_servers::wait_until;
use leasehold_store::wrap::{CutOff, Link};
use leasehold_store::{MemoryServer, Store};

fn boss() -> ShardId {
    "boss/0".parse().unwrap()
}

fn server() -> MemoryServer {
    MemoryServer::with_clock(clock::now)
}

fn wait_for(what: &str, holds: impl FnMut() -> bool) {
    assert!(wait_until(Duration::from_secs(20), holds), "never: {what}");
}

fn node(store: Arc<dyn Store>) -> leasehold::Builder {
    Node::builder(store).name("a").ttl(Duration::from_secs(2)).new_namespace()
}

/// A current-thread runtime whose only thread is blocked for longer than the ttl: the session lives on.
#[test]
fn a_blocked_runtime_does_not_starve_renewals() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let node = node(Arc::new(server().open("test"))).hold(Group::leader("boss")).start().await.unwrap();
        wait_for("it is held", || node.owns(&boss()));
        let grant = node.grant(&boss()).unwrap();
        // User code that blocks, for longer than the session would have lived without a renewal.
        let first_deadline = grant.deadline();
        wait_for("the first deadline has passed", || clock::now() > first_deadline);
        assert_eq!(grant.check(), Ok(()));
        assert_eq!(node.leave().await, Finish::Clean);
    });
}

/// The store hangs and the user's runtime is blocked: `check` fails in time all the same, and the token is cancelled
/// by a thread of our own.
#[test]
fn a_grant_is_lost_in_time_with_everything_stuck() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let link = Arc::new(CutOff::new(Arc::new(server().open("test"))));
    runtime.block_on(async {
        let node = node(link.clone()).hold(Group::leader("boss")).start().await.unwrap();
        wait_for("it is held", || node.owns(&boss()));
        let grant = node.grant(&boss()).unwrap();
        link.set(Link::Stalled);
        let cut_at = clock::now();
        // From here on nothing of the runtime runs.
        wait_for("the token", || grant.stopping().is_cancelled());
        let told_after = clock::now().since(cut_at);
        assert!(grant.is_lost());
        assert!(told_after < Duration::from_millis(1980), "told before the session is over: {told_after:?}");
        assert!(told_after > Duration::from_millis(1100), "but not while it is good: {told_after:?}");
    });
}

/// Dropping the node and its runtime at once leaves nothing behind that works on.
#[test]
fn dropping_everything_at_once_is_safe() {
    let server = server();
    let at_work = Arc::new(AtomicBool::new(false));
    struct Leaving(Arc<AtomicBool>);
    impl Drop for Leaving {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Release);
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let working = at_work.clone();
    let first = runtime.block_on(async {
        node(Arc::new(server.open("test")))
            .ttl(Duration::from_secs(10))
            .group(Group::leader("boss"), move |_| {
                let working = working.clone();
                async move {
                    working.store(true, Ordering::Release);
                    let _leaving = Leaving(working);
                    std::future::pending::<()>().await
                }
            })
            .start()
            .await
            .unwrap()
    });
    wait_for("work", || at_work.load(Ordering::Acquire));
    drop(first);
    drop(runtime);
    assert!(!at_work.load(Ordering::Acquire), "work ends with its runtime");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let began_at = clock::now();
    runtime.block_on(async {
        let second = node(Arc::new(server.open("test"))).hold(Group::leader("boss")).start().await.unwrap();
        wait_for("it is held", || second.owns(&boss()));
        assert!(clock::now().since(began_at) < Duration::from_secs(5), "the first one left by itself");
        assert_eq!(second.leave().await, Finish::Clean);
    });
}

/// A caller that was told that a key is registered finds it in the health, on any thread.
#[test]
fn an_answer_of_the_registry_comes_after_its_health() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let registry = Registry::on(Arc::new(server().open("test")));
        for keys in 1..=2_000 {
            registry.register(&format!("key-{keys}"), "x").await.unwrap();
            assert_eq!(registry.health().keys, keys);
        }
        registry.close().await;
    });
}

/// A node whose runtime is gone can run nothing: it must not keep shards, nor attract new ones.
#[test]
fn a_node_leaves_when_the_runtime_of_its_handlers_is_shut_down() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (server, short, long) = (server(), runtime(), runtime());
    let shards = || Group::numbered("orders", 8).stop_timeout(Duration::from_secs(1));
    let start = |name: &str, on: &tokio::runtime::Runtime| {
        let builder = node(Arc::new(server.open("test"))).name(name).runtime(on.handle().clone());
        let builder = builder.ttl(Duration::from_secs(10));
        let work = |grant: leasehold::Grant| async move { grant.stopped().await };
        long.block_on(builder.group(shards(), work).start()).unwrap()
    };
    let (stays, goes) = (start("stays", &long), start("goes", &short));
    wait_for("both have some", || stays.owned().len() >= 3 && goes.owned().len() >= 3);
    let holder = node(Arc::new(server.open("test"))).name("holds").runtime(short.handle().clone());
    let holder = long.block_on(holder.hold(Group::leader("boss")).start()).unwrap();
    wait_for("it holds", || holder.owns(&boss()));
    let shut_at = clock::now();
    short.shutdown_background();
    wait_for("the other one has all", || stays.owned().len() == 8);
    assert!(clock::now().since(shut_at) < Duration::from_secs(5), "they were handed over, not waited for");
    let left = async { tokio::time::timeout(Duration::from_secs(10), goes.until_left()).await };
    assert_eq!(long.block_on(left), Ok(Finish::Clean));
    assert!(holder.owns(&boss()), "what runs no user code needs no runtime");
}
