//! Registered keys on a real API server: leases that its own clock ends, and nothing left of what is gone.

use std::sync::Arc;
use std::time::Duration;

use leasehold::registry::{Registry as Keeper, RegistryOptions};
use leasehold_kubernetes::{Kubernetes, Options};
use leasehold_servers::Kubernetes as Server;
use leasehold_store::{
    Grade, Lane, LeaseId, LeaseState, Registry, Store, StoreErrorKind, StoreExt, Throwaway, WatchEvent,
};

use crate::common::{applied, leases, now, open, options, put, run, shared, stranger};
use crate::proxy::{Mode, Proxy};

const LONG: Duration = Duration::from_secs(600);
/// The shortest that whole seconds allow. With the grace it is over three to five seconds after the last renewal.
const SHORT: Duration = Duration::from_secs(1);

async fn names(store: &Kubernetes) -> Vec<String> {
    store.keys().await.unwrap().into_iter().map(|(key, _)| key).collect()
}

/// How many Leases of a namespace there are, of all kinds.
async fn count(server: &Server, namespace: &str) -> usize {
    leases(&stranger(server).await, namespace).await.1.len()
}

fn by_hand(server: &Server, args: &[&str]) -> String {
    let said = server.kubectl(args);
    assert!(said.good, "{}", said.text);
    said.text
}

#[test]
fn a_lease_expires_by_the_servers_clock_and_its_remains_are_removed() {
    run(async {
        let Some(server) = shared() else { return };
        let (store, other) = (open(&server, "runs-out"), open(&server, "runs-out"));
        let (renewed, silent) = (store.grant(SHORT).await.unwrap(), store.grant(SHORT).await.unwrap());
        let began_at = now();
        for (lease, key) in [(&renewed, "renewed"), (&silent, "silent"), (&silent, "silent too")] {
            assert_eq!(store.put(lease, key, b"1").await, Ok(LeaseState::Alive));
        }
        let name = |lease: &LeaseId| {
            let selected =
                format!("jsonpath={{.items[?(@.spec.holderIdentity==\"{}\")].metadata.name}}", lease.0);
            by_hand(&server, &["get", "leases", "-l", "leasehold.dev/kind=lease", "-o", &selected])
        };
        let silent_name = name(&silent);
        let mut annotated = 0;
        while names(&other).await.len() > 1 {
            assert!(now() - began_at < Duration::from_secs(8), "it never runs out");
            assert_eq!(store.keep_alive(&renewed).await, Ok(LeaseState::Alive));
            // What others write into it is no sign of life.
            annotated += 1;
            let mark = format!("by-hand={annotated}");
            by_hand(&server, &["annotate", "--overwrite", "lease", &silent_name, &mark]);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let took = now() - began_at;
        println!("a lease of {SHORT:?} ran out {took:?} after it was made");
        assert!(took > SHORT, "never before its ttl: {took:?}");
        assert_eq!(names(&store).await, ["renewed"]);
        assert_eq!(store.keep_alive(&silent).await, Ok(LeaseState::Gone), "a late renewal changes nothing");
        assert_eq!(store.put(&silent, "late", b"1").await, Ok(LeaseState::Gone));
        assert_eq!(store.keep_alive(&LeaseId("unknown".to_owned())).await, Ok(LeaseState::Gone));
        assert_eq!(count(&server, "runs-out").await, 5);

        // A key whose lease is not there at all, and two whose lease ran out twice as long ago.
        by_hand(&server, &["delete", "lease", &name(&renewed)]);
        assert!(names(&store).await.is_empty());
        while now() - began_at < Duration::from_secs(8) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let mine = other.grant(LONG).await.unwrap();
        other.put(&mine, "mine", b"1").await.unwrap();
        assert_eq!(other.keep_alive(&mine).await, Ok(LeaseState::Alive));
        assert_eq!(count(&server, "runs-out").await, 2, "only what is alive is left");
        assert_eq!(names(&store).await, ["mine"]);
        other.revoke(&mine).await.unwrap();
        assert_eq!(count(&server, "runs-out").await, 0);
    });
}

#[test]
fn a_renewal_that_the_server_gets_too_late_is_none() {
    run(async {
        let Some(server) = shared() else { return };
        let proxy = Proxy::start(&server).await;
        let store = Kubernetes::open_with(options(&server.kubeconfig_to("admin", proxy.port)), "late");
        let lease = store.grant(SHORT).await.unwrap();
        store.put(&lease, "a", b"1").await.unwrap();
        proxy.set(Mode::LateWrites(Duration::from_secs(5)));
        assert_eq!(store.keep_alive(&lease).await, Ok(LeaseState::Gone), "it was alive when it was read");
        proxy.set(Mode::Pass);
        assert!(names(&store).await.is_empty());
        assert_eq!(count(&server, "late").await, 1, "the lease is removed, so that it does not come back");

        // A server, or a proxy in front of it, that sends no `Date`.
        proxy.set(Mode::Undated);
        let error = store.grant(SHORT).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused);
        assert!(error.message.contains("sends no `Date`"), "{error}");
        assert!(store.keys().await.unwrap_err().message.contains("sends no `Date`"));
    });
}

#[test]
fn odd_keys_and_bytes_are_carried_and_the_records_know_nothing_of_them() {
    run(async {
        let Some(server) = shared() else { return };
        let (throwaway, neighbour) = (Throwaway::new("test").unwrap(), open(&server, "neighbour"));
        let store = open(&server, throwaway.name());
        applied(&store, put("nodes/a", None, b"1")).await;
        let mut watch = store.watch().await.unwrap().unwrap();
        let first = leasehold_servers::words::next(&mut watch).await;
        assert!(matches!(&first, WatchEvent::Snapshot(listing) if listing.entries.len() == 1), "{first:?}");
        let lease = store.grant(Duration::from_millis(15_500)).await.unwrap();
        let long = "l".repeat(300);
        let odd = [
            "",
            "-",
            "/",
            "A",
            "a",
            "a b",
            "a-b",
            "a/b",
            "nodes/a",
            "\u{1f980}",
            "e\u{301}",
            "\u{e9}",
            &long,
        ];
        let mut wanted: Vec<(String, Vec<u8>)> = Vec::new();
        for (number, key) in odd.iter().enumerate() {
            let value: &[u8] = [b"text\n\0".as_slice(), b"", b"\xff\0\xfe", "\u{e9}".as_bytes()][number % 4];
            assert_eq!(store.put(&lease, key, value).await, Ok(LeaseState::Alive), "{key:?}");
            wanted.push(((*key).to_owned(), value.to_vec()));
        }
        wanted.sort();
        assert_eq!(open(&server, throwaway.name()).keys().await.unwrap(), wanted);
        let theirs = neighbour.grant(LONG).await.unwrap();
        neighbour.put(&theirs, "a", b"theirs").await.unwrap();
        assert_eq!(neighbour.keys().await.unwrap(), [("a".to_owned(), b"theirs".to_vec())]);
        assert_eq!(
            neighbour.put(&lease, "a", b"1").await,
            Ok(LeaseState::Gone),
            "a lease is of its namespace"
        );

        // What other tools read.
        let label = format!("leasehold.dev/namespace={},leasehold.dev/kind=lease", throwaway.name());
        let fields = "jsonpath={.items[*].spec.holderIdentity} {.items[*].spec.leaseDurationSeconds} \
                      {.items[*].spec.acquireTime} {.items[*].spec.renewTime}";
        let before = by_hand(&server, &["get", "leases", "-l", &label, "-o", fields]);
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!(store.keep_alive(&lease).await, Ok(LeaseState::Alive));
        let after = by_hand(&server, &["get", "leases", "-l", &label, "-o", fields]);
        let (before, after): (Vec<&str>, Vec<&str>) =
            (before.split(' ').collect(), after.split(' ').collect());
        assert_eq!(before[..3], after[..3], "only the renew time changes");
        assert_eq!((after[0], after[1]), (lease.0.as_str(), "16"), "the ttl is rounded up");
        assert!(before[2] == before[3] && after[3] > before[3], "{before:?} {after:?}");

        // Neither listing, watch nor doctor see them.
        let listing = store.list().await.unwrap();
        assert!(listing.entries.len() == 1 && listing.foreign.is_empty(), "{listing:?}");
        applied(&store, put("nodes/b", None, b"1")).await;
        match leasehold_servers::words::next(&mut watch).await {
            WatchEvent::Changed(changes) => assert_eq!(changes.len(), 1, "{changes:?}"),
            other => panic!("only the record changed: {other:?}"),
        }
        let findings = store.examine().await;
        assert!(findings.iter().all(|finding| finding.grade == Grade::Good), "{findings:#?}");

        store.discard(&throwaway).await.unwrap();
        assert_eq!(count(&server, throwaway.name()).await, 0);
        assert_eq!(store.keep_alive(&lease).await, Ok(LeaseState::Gone));
        assert_eq!(neighbour.keys().await.unwrap().len(), 1);
        neighbour.revoke(&theirs).await.unwrap();
    });
}

#[test]
fn renewals_of_leases_and_keys_wait_for_no_claims() {
    run(async {
        let Some(server) = shared() else { return };
        let plain =
            Options { writes_per_second: 10, writes_burst: 1, ..options(&server.kubeconfig("admin")) };
        let store = Kubernetes::open_with(plain, "unpaced");
        let lease = store.grant(LONG).await.unwrap();
        let wishes: Vec<_> = (0..20).map(|i| put(&format!("shards/g/{i}"), None, b"1")).collect();
        let began_at = now();
        let claims = async {
            let calls = wishes.chunks(4).map(|some| store.swap(Lane::Work, some));
            futures::future::join_all(calls).await
        };
        let renewals = async {
            let mut slowest = Duration::ZERO;
            for round in 0..5 {
                let sent_at = now();
                assert_eq!(store.keep_alive(&lease).await, Ok(LeaseState::Alive));
                assert_eq!(store.put(&lease, &format!("key-{round}"), b"1").await, Ok(LeaseState::Alive));
                slowest = slowest.max(now() - sent_at);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            slowest
        };
        let (claims, slowest) = futures::join!(claims, renewals);
        let took = now() - began_at;
        assert!(claims.iter().all(|reply| reply.is_ok()));
        println!("the slowest of 5 renewals with a key each took {slowest:?} beside {took:?} of claims");
        assert!(slowest < took / 2, "they don't wait for their turn: {slowest:?} of {took:?}");
        let began_at = now();
        store.revoke(&lease).await.unwrap();
        assert!(now() - began_at < Duration::from_secs(10), "closing is bounded");
    });
}

#[test]
fn a_process_shares_a_lease_and_comes_back_after_losing_it() {
    run(async {
        let Some(server) = shared() else { return };
        let store: Arc<dyn Store> = Arc::new(open(&server, "kept"));
        let (ttl, call_timeout) = (Duration::from_secs(3), Duration::from_secs(1));
        let options = RegistryOptions { ttl, call_timeout, ..RegistryOptions::default() };
        let keeper = Keeper::with_options(store, options).unwrap();
        let lease = keeper.register("a", "1").await.unwrap();
        assert_eq!(keeper.register("b", "2").await.unwrap(), lease);
        assert_eq!(count(&server, "kept").await, 3);
        let label = "leasehold.dev/namespace=kept,leasehold.dev/kind=lease";
        by_hand(&server, &["delete", "leases", "-l", label]);
        assert!(keeper.keys().await.unwrap().is_empty());
        let began_at = now();
        while keeper.keys().await.unwrap().len() < 2 {
            assert!(now() - began_at < Duration::from_secs(20), "{:?}", keeper.health());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_ne!(keeper.health().lease, Some(lease));
        keeper.close().await;
        assert_eq!(count(&server, "kept").await, 0);
    });
}
