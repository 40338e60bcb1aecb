//! What the store says and does when the API server does not answer as it should.

use futures::StreamExt;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, PostParams};
use leasehold_kubernetes::{Kubernetes, Options};
use leasehold_servers::Kubernetes as Server;
use leasehold_store::{Finding, Grade, Lane, Store, StoreErrorKind, StoreExt, Swap, Swapped, WatchEvent};

use crate::common::{
    NOBODY, READER, annotation, applied, key, leases, now, open, options, put, read, run, shared, stranger,
    swap,
};
use crate::proxy::{Mode, Proxy};

#[test]
fn errors_of_the_server_never_count_as_done_or_not_done() {
    run(async {
        let Some(server) = shared() else { return };
        let proxy = Proxy::start(&server).await;
        let store = Kubernetes::open_with(options(&server.kubeconfig_to("admin", proxy.port)), "proxied");
        // As a node does first; it makes the anchor, so that each swap below is one request.
        store.list().await.unwrap();
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
fn a_client_with_read_access_can_read() {
    run(async {
        let Some(server) = shared() else { return };
        for args in [
            &["create", "role", "reader", "--verb=get,list,watch", "--resource=leases.coordination.k8s.io"][..],
            &["create", "rolebinding", "reader", "--role=reader", "--user", READER],
        ] {
            let said = server.kubectl(args);
            assert!(said.good, "{}", said.text);
        }
        let reader = Kubernetes::open_with(options(&server.kubeconfig(READER)), "looked-at");
        let mut tries = 0;
        while let Err(error) = reader.list().await {
            tries += 1;
            assert!(tries < 100, "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(reader.list().await.unwrap().generation, "", "nothing is made by looking");
        applied(&open(&server, "looked-at"), put("nodes/a", None, b"1")).await;
        assert!(read(&reader, "nodes/a").await.is_some());
        let error = reader.swap(Lane::Work, &[put("nodes/b", None, b"1")]).await.unwrap_err();
        assert!(error.message.contains("verb `create`"), "{error}");
    });
}

#[test]
fn what_writes_and_removes_leaves_nothing_behind() {
    run(async {
        let Some(server) = shared() else { return };
        let store = open(&server, "passing");
        let made = applied(&store, put("groups/g", None, b"1")).await;
        applied(&store, Swap { key: key("groups/g"), expect: Some(made), value: None }).await;
        let (_, found) = leases(&stranger(&server).await, "passing").await;
        assert!(found.is_empty(), "{found:?}");
    });
}

#[test]
fn expired_credentials_are_reported_and_read_again() {
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
        let findings = store.examine().await;
        let [only] = &findings[..] else { panic!("one finding says it: {findings:#?}") };
        assert!(only.grade == Grade::Bad && only.what.contains("expired or were revoked"), "{only:?}");
        assert!(!only.advice.contains("selfsubjectaccessreviews"), "{only:?}");
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
        assert!(error.message.contains("namespace nowhere does not exist"), "{error}");
        let missing = Kubernetes::open("k8s://default?kubeconfig=/nowhere/kubeconfig", "x").unwrap();
        let error = missing.list().await.unwrap_err();
        assert!(error.message.contains("/nowhere/kubeconfig"), "{error}");
        let error = open(&server, "x").zone_of("no-such-machine").await.unwrap_err();
        assert!(error.message.contains("no-such-machine"), "{error}");
        for name in ["", "../namespaces", "m1?x", "m1/status", "M1", "a b"] {
            let error = open(&server, "x").zone_of(name).await.unwrap_err();
            assert!(error.message.contains("not a valid name of a Kubernetes node"), "{error}");
        }
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
            // The node that may take it over repairs it.
            applied(&store, put(shard, Some(&stored.version), br#"{"mended":1}"#)).await;
        }
        assert_eq!(store.list().await.unwrap().entries.len(), 2);
    });
}

#[test]
fn a_lease_that_a_person_edits_for_people_is_found_by_the_doctor() {
    run(async {
        let Some(server) = shared() else { return };
        let store = open(&server, "edited");
        let held = r#"{"format":1,"write":"00000000000000000000000000000005","shard":"g/1","epoch":4,"state":{"held":{"holder":{"node":"a","session":"00000000000000000000000000000001","ttl_ms":15000}}},"why":"planned","written_unix_ms":1700000000123}"#;
        applied(&store, put("shards/g/1", None, held.as_bytes())).await;
        let before = store.examine().await;
        assert!(before.iter().all(|finding| finding.grade == Grade::Good), "{before:#?}");
        let (_, found) = leases(&stranger(&server).await, "edited").await;
        let shard =
            found.iter().find(|lease| crate::common::annotation(lease, "leasehold.dev/key") == "shards/g/1");
        let name = shard.and_then(|lease| lease.metadata.name.clone()).unwrap();
        for edit in
            [r#"{"spec":{"holderIdentity":"b"}}"#, r#"{"spec":{"holderIdentity":"a","leaseTransitions":9}}"#]
        {
            let said = server.kubectl(&["patch", "lease", &name, "--type=merge", "-p", edit]);
            assert!(said.good, "{}", said.text);
            let findings = store.examine().await;
            let told = |finding: &Finding| finding.grade == Grade::Doubtful && finding.what.contains(&name);
            assert_eq!(findings.iter().filter(|finding| told(finding)).count(), 1, "{findings:#?}");
            assert_eq!(
                &*read(&store, "shards/g/1").await.unwrap().value,
                held.as_bytes(),
                "the record stays"
            );
        }
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
        assert!(slowest < took / 2, "renewals don't wait for their turn: {slowest:?} of {took:?}");
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
        let asked_at = now();
        let findings = store.examine().await;
        let took = now() - asked_at;
        assert!(took < Duration::from_secs(11), "nobody waits for it twice: {took:?}");
        let [only] = &findings[..] else { panic!("one finding says it: {findings:#?}") };
        assert_eq!(only.grade, Grade::Bad, "{only:?}");
        assert!(!only.advice.contains("selfsubjectaccessreviews"), "{only:?}");
        server.go_on();
        let there = read(&store, "nodes/a").await.expect("the same client goes on");
        let next = swap(&store, put("nodes/a", Some(&there.version), b"3")).await;
        assert!(matches!(next, Swapped::Applied(_) | Swapped::Lost(_)), "{next:?}");
    });
}

/// A kubeconfig of `admin` whose token comes from what `script` prints.
fn with_program(server: &leasehold_servers::Kubernetes, name: &str, script: &str) -> std::path::PathBuf {
    let text = std::fs::read_to_string(server.kubeconfig("admin")).unwrap();
    let program = serde_json::json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
        "args": ["-c", script], "interactiveMode": "Never"});
    let (before, after) = text.split_once("token: admin").expect("the user has a token");
    let path = server.folder().join(format!("kubeconfig-{name}"));
    std::fs::write(&path, format!("{before}exec: {program}{after}")).unwrap();
    path
}

#[test]
fn a_program_that_makes_the_credentials_holds_nobody_up() {
    run(async {
        let Some(server) = shared() else { return };
        // These have run out when they are made, so the program is started again for each call.
        let credentials = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",
            "status":{"token":"admin","expirationTimestamp":"2020-01-01T00:00:00Z"}}"#;
        let slow = server.folder().join("slow");
        let script = format!("if [ -e {} ]; then sleep 30; fi; echo '{credentials}'", slow.display());
        let store = Kubernetes::open_with(options(&with_program(&server, "program", &script)), "program");
        let version = applied(&store, put("nodes/a", None, b"1")).await;
        let mut watch = store.watch().await.unwrap().unwrap();
        watch.next().await.expect("a snapshot");

        std::fs::write(&slow, "").unwrap();
        // On a runtime with a single thread, everything would stand still with it.
        let (error, turns) = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let alone = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                alone.block_on(async {
                    let renewal = [put("nodes/a", Some(&version), b"2")];
                    let mut call = store.swap(Lane::Renewal, &renewal);
                    let mut turns = 0;
                    loop {
                        tokio::select! {
                            answer = &mut call => return (answer.unwrap_err(), turns),
                            () = tokio::time::sleep(Duration::from_millis(50)) => turns += 1,
                        }
                    }
                })
            });
            waiting.join().unwrap()
        });
        assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");
        assert!(error.message.contains("makes the credentials"), "{error}");
        assert!(turns > 10, "others had {turns} turns meanwhile");

        std::fs::remove_file(&slow).unwrap();
        applied(&store, put("nodes/a", Some(&version), b"3")).await;
    });
}

#[test]
fn a_damaged_kubeconfig_shows_no_token() {
    run(async {
        let Some(server) = shared() else { return };
        let path = server.folder().join("kubeconfig-damaged");
        let text = std::fs::read_to_string(server.kubeconfig("admin")).unwrap();
        for broken in ["token: hush-hush\n  ]broken", "token: [hush-hush]", "token: hush-hush\n\t\tx"] {
            std::fs::write(&path, text.replace("token: admin", broken)).unwrap();
            let error = Kubernetes::open_with(options(&path), "x").list().await.unwrap_err();
            assert!(error.message.contains("line "), "{error}");
            assert!(!error.message.contains("hush"), "{error}");
        }
    });
}

#[test]
fn a_watch_whose_place_is_forgotten_lists_again() {
    run(async {
        let Some(server) = shared() else { return };
        let proxy = Proxy::start(&server).await;
        let store = Kubernetes::open_with(options(&server.kubeconfig_to("admin", proxy.port)), "forgotten");
        let first = applied(&store, put("nodes/a", None, b"1")).await;
        proxy.set(Mode::Forgotten);
        let mut watch = store.watch().await.unwrap().unwrap();
        for _ in 0..2 {
            let WatchEvent::Snapshot(listing) = watch.next().await.unwrap() else { panic!("no snapshot") };
            assert_eq!(listing.entries.len(), 1);
            let WatchEvent::Interrupted(why) = watch.next().await.unwrap() else { panic!("no interruption") };
            assert!(why.contains("410"), "{why}");
        }
        // What was written meanwhile is in the next listing, and what comes later is told.
        let second = applied(&store, put("nodes/a", Some(&first), b"2")).await;
        proxy.set(Mode::Pass);
        let mut seen = Vec::new();
        while !seen.contains(&second) {
            if let WatchEvent::Snapshot(listing) = watch.next().await.unwrap() {
                seen.extend(listing.entries.into_iter().map(|(_, stored)| stored.version));
            }
        }
        let third = applied(&store, put("nodes/a", Some(&second), b"3")).await;
        loop {
            match watch.next().await.unwrap() {
                WatchEvent::Changed(changes) => {
                    assert_eq!(changes[0].1.as_ref().unwrap().version, third);
                    break;
                }
                WatchEvent::Snapshot(listing) if listing.entries[0].1.version == third => break,
                _ => {}
            }
        }
    });
}

#[test]
fn what_others_tie_to_a_lease_survives_our_writes() {
    run(async {
        let Some(server) = shared() else { return };
        let store = open(&server, "tied");
        let mut version = applied(&store, put("shards/g/0", None, b"0")).await;
        let (api, mut found) = leases(&stranger(&server).await, "tied").await;
        let found_name = |lease: &Lease| annotation(lease, "leasehold.dev/key") == "shards/g/0";
        let mut lease = found.remove(found.iter().position(found_name).unwrap());
        let name = lease.metadata.name.clone().unwrap();
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: "somebody".into(),
            uid: "0b0d1f9e-1111-2222-3333-444455556666".into(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        lease.metadata.finalizers = Some(vec!["example.com/kept".into()]);
        lease.metadata.owner_references = Some(vec![owner.clone()]);
        let ties =
            |lease: &Lease| (lease.metadata.finalizers.clone(), lease.metadata.owner_references.clone());
        let tied = ties(&api.replace(&name, &PostParams::default(), &lease).await.unwrap());
        assert_eq!(tied.1, Some(vec![owner]));
        let Swapped::Lost(Some(there)) = swap(&store, put("shards/g/0", Some(&version), b"1")).await else {
            panic!("another client wrote in between");
        };
        // On what was read, and then on what was written.
        version = there.version;
        for value in [b"2", b"3"] {
            version = applied(&store, put("shards/g/0", Some(&version), value)).await;
            assert_eq!(ties(&api.get(&name).await.unwrap()), tied);
        }
        // A Lease that is being deleted exists until its finalizer is removed.
        api.delete(&name, &DeleteParams::default()).await.unwrap();
        let listed = store.list().await.unwrap().entries;
        let there = listed.into_iter().find(|(at, _)| *at == key("shards/g/0")).unwrap().1;
        applied(&store, put("shards/g/0", Some(&there.version), b"4")).await;
        let mut lease = api.get(&name).await.expect("our write does not complete the deletion");
        assert_eq!(ties(&lease), tied);
        lease.metadata.finalizers = None;
        api.replace(&name, &PostParams::default(), &lease).await.unwrap();
        assert!(read(&store, "shards/g/0").await.is_none());
    });
}
