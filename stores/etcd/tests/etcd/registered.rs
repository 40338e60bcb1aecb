//! Registered keys on a real etcd: one lease of a process, outages, and coming back.

use std::sync::Arc;
use std::time::Duration;

use leasehold::registry::{Registry, RegistryOptions, RegistryState};
use leasehold::{Backoff, Error, Node};
use leasehold_servers::{Etcd as Server, EtcdSetup, Program};
use leasehold_store::{Lane, Store, Swapped};

use crate::common::{Stopwatch, open, put, swap};

fn options() -> RegistryOptions {
    let steps = [250, 500, 1000].map(Duration::from_millis).to_vec();
    let (ttl, call_timeout) = (Duration::from_secs(3), Duration::from_secs(1));
    RegistryOptions { ttl, call_timeout, retry: Backoff::Steps(steps), ..RegistryOptions::default() }
}

async fn until_healthy(registry: &Registry) {
    let began = Stopwatch::start();
    while registry.health().state != RegistryState::Healthy {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", registry.health());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn leases(server: &Server) -> usize {
    server.ctl(&["lease", "list"]).lines().filter(|line| !line.contains("found")).count()
}

fn keys(server: &Server) -> Vec<String> {
    let printed = server.ctl(&["get", "--prefix", "--keys-only", "/tests/registered/keys/"]);
    printed
        .lines()
        .filter_map(|line| line.strip_prefix("/tests/registered/keys/"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_share_a_lease_and_come_back_after_an_outage() {
    for program in [Program::Etcd34, Program::Etcd35] {
        let Some(mut server) = Server::start(EtcdSetup::single(program)) else { continue };
        let store: Arc<dyn Store> = Arc::new(open(&server, "registered"));
        let (first, second) = (
            Registry::with_options(store.clone(), options()).unwrap(),
            Registry::with_options(store.clone(), options()).unwrap(),
        );
        assert_eq!(leases(&server), 0, "a lease is made at first use");
        let lease = first.register("a", "1").await.unwrap();
        assert_eq!(second.register("b", "1").await.unwrap(), lease);
        first.register("c", "1").await.unwrap();
        first.register("c", "2").await.unwrap();
        let slow = first.with_ttl(Duration::from_secs(60)).unwrap();
        assert_ne!(slow.register("slow", "1").await.unwrap(), lease, "another ttl is another lease");
        assert_eq!(leases(&server), 2);
        // Longer than the ttl: they are kept alive.
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(keys(&server), ["a", "b", "c", "slow"]);

        // Another client revokes the lease: everything is registered again under another one.
        server.ctl(&["lease", "revoke", &lease.0]);
        let began = Stopwatch::start();
        while first.health().lease.as_ref().is_none_or(|now| *now == lease) {
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", first.health());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(keys(&server), ["a", "b", "c", "slow"]);

        server.kill(0);
        let began = Stopwatch::start();
        while first.health().failures < 3 {
            assert!(began.elapsed() < Duration::from_secs(15), "{:?}", first.health());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(matches!(first.unregister("a").await, Err(Error::Store { .. })));
        assert!(matches!(second.register("b", "2").await, Err(Error::Store { .. })));
        server.revive(0);
        until_healthy(&first).await;
        assert_eq!(keys(&server), ["b", "c", "slow"], "what was unregistered stays away");
        let value = server.ctl(&["get", "--print-value-only", "/tests/registered/keys/b"]);
        assert_eq!(value.trim(), "1", "what could not be overwritten stays");

        first.close().await;
        assert_eq!(keys(&server), ["b", "slow"]);
        second.close().await;
        slow.close().await;
        assert_eq!((keys(&server), leases(&server)), (vec![], 0), "the last one to close revokes the lease");
    }
}

/// The same on every store: a removed key comes back, and a key that another program wrote stays theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_removed_comes_back_and_one_that_was_taken_is_told_of() {
    for program in [Program::Etcd34, Program::Etcd35] {
        let Some(server) = Server::start(EtcdSetup::single(program)) else { continue };
        let store: Arc<dyn Store> = Arc::new(open(&server, "registered"));
        let registry = Registry::with_options(store.clone(), options()).unwrap();
        let lease = registry.register("a", "mine").await.unwrap();
        // More than fit into one request.
        for other in 0..200 {
            registry.register(&format!("other-{other}"), "mine").await.unwrap();
        }
        let key = "/tests/registered/keys/a";
        let value = || server.ctl(&["get", "--print-value-only", key]).trim().to_owned();
        let until = async |what: &str, yes: &dyn Fn() -> bool| {
            let began = Stopwatch::start();
            while !yes() {
                assert!(began.elapsed() < Duration::from_secs(20), "{what}: {:?}", registry.health());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        server.ctl(&["del", key]);
        server.ctl(&["del", "/tests/registered/keys/other-77"]);
        until("it comes back", &|| value() == "mine" && keys(&server).len() == 201).await;
        assert_eq!(registry.health().lease, Some(lease), "nothing else was touched");
        server.ctl(&["put", key, "theirs"]);
        until("its owner is told", &|| registry.health().state == RegistryState::Overwritten).await;
        assert_eq!((registry.health().taken, value()), (vec!["a".to_owned()], "theirs".to_owned()));
        server.ctl(&["del", key]);
        until("it is free", &|| value() == "mine").await;
        until("all is well", &|| registry.health().state == RegistryState::Healthy).await;
        server.ctl(&["put", key, "theirs"]);
        until("its owner is told", &|| registry.health().state == RegistryState::Overwritten).await;
        registry.register("a", "mine").await.unwrap();
        assert_eq!((value().as_str(), registry.health().state), ("mine", RegistryState::Healthy));
        registry.close().await;
        assert_eq!((keys(&server), leases(&server)), (vec![], 0));
    }
}

/// What is refused costs nothing that is there: neither a value that is too large, nor a key for which there is no room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_key_costs_no_other() {
    for program in [Program::Etcd34, Program::Etcd35] {
        let setup = EtcdSetup::single(program).arg("--quota-backend-bytes=4000000");
        let Some(server) = Server::start(setup) else { continue };
        let store = Arc::new(open(&server, "registered"));
        let registry = Registry::with_options(store.clone(), options()).unwrap();
        let lease = registry.register("a", "1").await.unwrap();
        registry.register("b", "1").await.unwrap();
        assert!(matches!(registry.register("large", "x".repeat(3_000_000)).await, Err(Error::Store { .. })));
        until_healthy(&registry).await;
        assert_eq!((registry.health().lease, keys(&server)), (Some(lease.clone()), names(["a", "b"])));

        let mut version = put(&*store, "nodes/n", None, "small").await;
        let large = "x".repeat(500_000);
        while let Ok(Swapped::Applied(next)) =
            swap(&*store, Lane::Work, "nodes/n", Some(&version), &large).await
        {
            version = next;
        }
        assert!(server.ctl(&["alarm", "list"]).contains("NOSPACE"));
        assert!(matches!(registry.register("c", "1").await, Err(Error::Store { .. })));
        registry.unregister("b").await.expect("removing needs no room");
        until_healthy(&registry).await;
        // Longer than the ttl: renewing needs no room either.
        let (began, ttl) = (Stopwatch::start(), options().ttl);
        while began.elapsed() < ttl * 2 {
            assert_eq!((registry.health().lease, keys(&server)), (Some(lease.clone()), names(["a"])));
            tokio::time::sleep(ttl / 4).await;
        }
        server.ctl(&["compact", version.as_str()]);
        server.ctl(&["defrag"]);
        server.ctl(&["alarm", "disarm"]);
        assert_eq!(registry.register("c", "1").await.unwrap(), lease);
        registry.close().await;
        assert_eq!((keys(&server), leases(&server)), (vec![], 0));
    }
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_one_process_share_the_lease_and_closing_is_bounded() {
    let Some(mut server) = Server::start(EtcdSetup::single(Program::Etcd35)) else { return };
    let store: Arc<dyn Store> = Arc::new(open(&server, "registered"));
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        nodes.push(Node::builder(store.clone()).name(name).new_namespace().start().await.unwrap());
    }
    let (one, two) = (nodes[0].register("a", "1").await.unwrap(), nodes[1].register("b", "1").await.unwrap());
    assert_eq!(one, two);
    nodes.remove(0).leave().await;
    assert_eq!(keys(&server), ["b"]);
    nodes.remove(0).leave().await;
    assert_eq!((keys(&server), leases(&server)), (vec![], 0));

    let registry = Registry::with_options(store, options()).unwrap();
    registry.register("late", "1").await.unwrap();
    server.process(0).signal(nix::sys::signal::Signal::SIGSTOP);
    let began = Stopwatch::start();
    registry.close().await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    server.kill(0);
}
