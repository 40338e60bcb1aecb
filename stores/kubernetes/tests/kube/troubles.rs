//! What the store says and does when the API server does not answer as it should.

use std::time::Duration;

use leasehold_kubernetes::{Kubernetes, Options};
use leasehold_servers::Kubernetes as Server;
use leasehold_store::{Finding, Grade, Lane, Store, StoreErrorKind, Swap, Swapped};

use crate::common::{
    NOBODY, applied, key, leases, now, open, options, put, read, run, shared, stranger, swap,
};
use crate::proxy::{Mode, Proxy};

#[test]
fn errors_of_the_server_never_count_as_done_or_not_done() {
    run(async {
        let Some(server) = shared() else { return };
        let proxy = Proxy::start(&server).await;
        let store = Kubernetes::open_with(options(&server.kubeconfig_to("admin", proxy.port)), "proxied");
        let made = applied(&store, put("nodes/a", None, b"1")).await;
        for (code, kind) in [
            (429, StoreErrorKind::Busy),
            (500, StoreErrorKind::Unreachable),
            (503, StoreErrorKind::Unreachable),
            (504, StoreErrorKind::TimedOut),
        ] {
            proxy.set(Mode::Answer(code));
            for lane in [Lane::Work, Lane::Renewal] {
                let error = store.swap(lane, &[put("nodes/a", Some(&made), b"2")]).await.unwrap_err();
                assert_eq!(error.kind, kind, "{error}");
            }
            assert_eq!(store.list().await.unwrap_err().kind, kind);
        }
        proxy.set(Mode::Pass);
        assert_eq!(&*read(&store, "nodes/a").await.unwrap().value, b"1");
        // The server did it, and nobody heard.
        proxy.set(Mode::Carried(500));
        let error = store.swap(Lane::Renewal, &[put("nodes/a", Some(&made), b"2")]).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unreachable, "{error}");
        proxy.set(Mode::Pass);
        let there = read(&store, "nodes/a").await.unwrap();
        assert_eq!(&*there.value, b"2");
        let again = swap(&store, put("nodes/a", Some(&made), b"3")).await;
        assert_eq!(again, Swapped::Lost(Some(there)), "nothing is sent twice unseen");
    });
}

#[test]
fn some_known_outcomes_stay_known_when_others_are_not() {
    run(async {
        let Some(server) = shared() else { return };
        let store = open(&server, "mixed");
        let too_large = vec![b'x'; 400 * 1024];
        let wishes = [put("nodes/a", None, b"1"), put("nodes/b", None, &too_large)];
        let outcomes = store.swap(Lane::Work, &wishes).await.unwrap().outcomes;
        assert!(matches!(outcomes[..], [Swapped::Applied(_), Swapped::Unknown]), "{outcomes:?}");
        let error = store.swap(Lane::Work, &wishes[1..]).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    });
}

#[test]
fn a_missing_permission_is_named() {
    run(async {
        let Some(server) = shared() else { return };
        let store = Kubernetes::open_with(options(&server.kubeconfig(NOBODY)), "forbidden");
        let error = store.list().await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused);
        for part in ["verb `list`", "`leases` of `coordination.k8s.io`", "namespace `default`"] {
            assert!(error.message.contains(part), "{part} in {error}");
        }
        let findings = store.examine().await;
        for verb in ["get", "list", "watch", "create", "update", "delete"] {
            let named = |finding: &Finding| {
                finding.grade == Grade::Bad && finding.what.contains(&format!("verb `{verb}`"))
            };
            assert!(findings.iter().any(named), "{verb}: {findings:#?}");
        }
        let allowed = open(&server, "forbidden").examine().await;
        assert!(allowed.iter().all(|finding| finding.grade == Grade::Good), "{allowed:#?}");
        assert!(allowed.iter().any(|finding| finding.what.contains("v1.20")), "{allowed:#?}");
    });
}

#[test]
fn expired_credentials_are_named_and_read_anew() {
    run(async {
        let Some(server) = shared() else { return };
        let kubeconfig = server.folder().join("kubeconfig-expiring");
        std::fs::copy(server.kubeconfig_with_token("expired"), &kubeconfig).unwrap();
        let store = Kubernetes::open_with(options(&kubeconfig), "expired");
        for _ in 0..2 {
            let error = store.list().await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
            assert!(error.message.contains("expired or were revoked"), "{error}");
        }
        std::fs::copy(server.kubeconfig("admin"), &kubeconfig).unwrap();
        store.list().await.expect("the new credentials are used without a restart");
    });
}

#[test]
fn wrong_places_are_told() {
    run(async {
        let Some(server) = shared() else { return };
        let nowhere =
            Options { kube_namespace: Some("nowhere".into()), ..options(&server.kubeconfig("admin")) };
        let error = Kubernetes::open_with(nowhere, "x").list().await.unwrap_err();
        assert!(error.message.contains("namespace nowhere is not there"), "{error}");
        let missing = Kubernetes::open("k8s://default?kubeconfig=/nowhere/kubeconfig", "x").unwrap();
        let error = missing.list().await.unwrap_err();
        assert!(error.message.contains("/nowhere/kubeconfig"), "{error}");
        let error = open(&server, "x").zone_of("no-such-machine").await.unwrap_err();
        assert!(error.message.contains("no-such-machine"), "{error}");
    });
}

#[test]
fn the_zone_is_the_label_of_the_machine() {
    run(async {
        let Some(server) = shared() else { return };
        let machine = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"m1","labels":{"topology.kubernetes.io/zone":"z-1"}}}"#;
        let said = server.kubectl_as("admin", &["create", "-f", "-"], machine);
        assert!(said.good, "{}", said.text);
        assert_eq!(open(&server, "x").zone_of("m1").await.unwrap().as_deref(), Some("z-1"));
        let nobody = Kubernetes::open_with(options(&server.kubeconfig(NOBODY)), "x");
        let error = nobody.zone_of("m1").await.unwrap_err();
        assert!(error.message.contains("verb `get`, resource `nodes`"), "{error}");
    });
}

#[test]
fn what_a_person_spoils_with_kubectl_is_not_believed() {
    run(async {
        let Some(server) = shared() else { return };
        let store = open(&server, "spoiled");
        applied(&store, put("shards/g/1", None, br#"{"sound":1}"#)).await;
        applied(&store, put("shards/g/2", None, br#"{"sound":2}"#)).await;
        let (_, found) = leases(&stranger(&server).await, "spoiled").await;
        let name = |shard: &str| {
            let named = |lease: &&k8s_openapi::api::coordination::v1::Lease| {
                crate::common::annotation(lease, "leasehold.dev/key") == shard
            };
            found.iter().find(named).and_then(|lease| lease.metadata.name.clone()).unwrap()
        };
        let said = server.kubectl(&["annotate", "lease", &name("shards/g/1"), "leasehold.dev/record-"]);
        assert!(said.good, "{}", said.text);
        let said = server.kubectl(&["label", "lease", &name("shards/g/2"), "leasehold.dev/namespace-"]);
        assert!(said.good, "{}", said.text);
        for shard in ["shards/g/1", "shards/g/2"] {
            let stored = read(&store, shard).await.expect("it is there");
            assert!(stored.value.starts_with(b"not a record"), "{stored:?}");
            // Whoever may take it over mends it.
            applied(&store, put(shard, Some(&stored.version), br#"{"mended":1}"#)).await;
        }
        assert_eq!(store.list().await.unwrap().entries.len(), 2);
    });
}

#[test]
fn a_cold_start_is_paced_and_renewals_are_not() {
    run(async {
        let Some(server) = shared() else { return };
        let plain =
            Options { writes_per_second: 50, writes_burst: 20, ..options(&server.kubeconfig("admin")) };
        let store = Kubernetes::open_with(plain, "paced");
        let mut session = applied(&store, put("nodes/a", None, b"0")).await;
        let wishes: Vec<Swap> = (0..120).map(|i| put(&format!("shards/g/{i}"), None, b"1")).collect();
        let began_at = now();
        let claims = async {
            let calls = wishes.chunks(8).map(|some| store.swap(Lane::Work, some));
            futures::future::join_all(calls).await
        };
        let renewals = async {
            let mut slowest = Duration::ZERO;
            for round in 0..10 {
                let sent_at = now();
                let renewal = put("nodes/a", Some(&session), format!("{round}").as_bytes());
                let reply = store.swap(Lane::Renewal, &[renewal]).await.unwrap();
                let [Swapped::Applied(next)] = &reply.outcomes[..] else { panic!("{reply:?}") };
                session = next.clone();
                slowest = slowest.max(now() - sent_at);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            slowest
        };
        let (claims, slowest) = futures::join!(claims, renewals);
        let took = now() - began_at;
        assert!(claims.iter().all(|reply| reply.is_ok()));
        assert!(
            took > Duration::from_millis(1900),
            "120 writes at 50 a second, 20 of them at once: {took:?}"
        );
        assert!(slowest < Duration::from_secs(1), "renewals don't wait for their turn: {slowest:?}");
        println!("120 claims took {took:?}, the slowest of 10 renewals meanwhile {slowest:?}");
    });
}

#[test]
fn a_stalled_server_is_an_error_in_time_and_the_same_client_goes_on_afterwards() {
    run(async {
        let Some(server) = Server::start(&[]) else { return };
        let store = open(&server, "stalled");
        let made = applied(&store, put("nodes/a", None, b"1")).await;
        server.stall();
        let renewal = [put("nodes/a", Some(&made), b"2")];
        // As a node would, which gives a try a tenth of its ttl.
        let dropped =
            tokio::time::timeout(Duration::from_millis(1500), store.swap(Lane::Renewal, &renewal)).await;
        assert!(dropped.is_err(), "a frozen server does not answer: {dropped:?}");
        let error = store.read(&[key("nodes/a")]).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");
        server.go_on();
        let there = read(&store, "nodes/a").await.expect("the same client goes on");
        let next = swap(&store, put("nodes/a", Some(&there.version), b"3")).await;
        assert!(matches!(next, Swapped::Applied(_) | Swapped::Lost(_)), "{next:?}");
    });
}
