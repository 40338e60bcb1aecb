//! The manifests under `deploy/`, against a real API server.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_kubernetes::{Clusters, Kubernetes, Options};
use leasehold_store::{Grade, LeaseState, Registry, Store, StoreExt, Throwaway};

use crate::common::{ACCOUNT, applied, options, put, read, run, shared};

fn manifests(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    folder.canonicalize().expect("the manifests").display().to_string()
}

#[test]
fn every_manifest_is_taken_and_the_role_is_enough_and_no_more() {
    run(async {
        let Some(server) = shared() else { return };
        let said = server.kubectl(&["create", "namespace", "workers"]);
        assert!(said.good, "{}", said.text);
        for name in ["deployment", "statefulset", "zone", "clusters"] {
            let dry = ["apply", "--dry-run=server", "-n", "workers", "-k", &manifests(name)];
            let said = server.kubectl(&dry);
            assert!(said.good, "{name}: {}", said.text);
        }
        let plain =
            Options { kube_namespace: Some("workers".into()), ..options(&server.kubeconfig(ACCOUNT)) };
        let store = Kubernetes::open_with(plain.clone(), "deployed");
        let before = store.list().await.unwrap_err();
        assert!(before.message.contains("verb `list`"), "{before}");
        let said = server.kubectl(&["apply", "-n", "workers", "-k", &manifests("base")]);
        assert!(said.good, "{}", said.text);
        // RBAC takes a moment to be known to the server's own cache.
        for _ in 0..100 {
            if store.list().await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let made = applied(&store, put("nodes/a", None, b"1")).await;
        let next = applied(&store, put("nodes/a", Some(&made), b"2")).await;
        assert!(store.watch().await.unwrap().is_some());
        let gone = leasehold_store::Swap { key: "nodes/a".parse().unwrap(), expect: Some(next), value: None };
        applied(&store, gone).await;
        assert_eq!(read(&store, "nodes/a").await, None);
        // Registered keys need no more rights, and neither does the removal of a temporary namespace.
        let throwaway = Throwaway::new("deploy").unwrap();
        let tried = Kubernetes::open_with(plain.clone(), throwaway.name());
        let lease = tried.grant(Duration::from_secs(60)).await.unwrap();
        for key in ["a", "b"] {
            assert_eq!(tried.put(&lease, key, b"1").await, Ok(LeaseState::Alive));
        }
        tried.remove(&lease, "a").await.unwrap();
        assert_eq!(tried.keep_alive(&lease).await, Ok(LeaseState::Alive));
        assert_eq!(tried.keys().await.unwrap(), [("b".to_owned(), b"1".to_vec())]);
        tried.discard(&throwaway).await.unwrap();
        let label = format!("leasehold.dev/namespace={throwaway}");
        let left = server.kubectl(&["get", "leases", "-n", "workers", "-l", &label, "-o", "name"]);
        assert_eq!((left.good, left.text.as_str()), (true, ""), "nothing is left");
        let findings = store.examine().await;
        assert!(findings.iter().all(|finding| finding.grade == Grade::Good), "{findings:#?}");
        for forbidden in [["list", "secrets"], ["list", "pods"], ["get", "nodes"]] {
            let ask = ["auth", "can-i", forbidden[0], forbidden[1], "-n", "workers"];
            assert!(!server.kubectl_as(ACCOUNT, &ask, "").good, "{forbidden:?} must not be allowed");
        }
        let elsewhere = Options { kube_namespace: Some("default".into()), ..plain.clone() };
        assert!(Kubernetes::open_with(elsewhere, "deployed").list().await.is_err());
        // Without the provider's own rule nothing is engaged, and the error is retried.
        let mut told = 0;
        let clusters = Clusters::new(plain);
        let _ = tokio::time::timeout(Duration::from_millis(500), clusters.follow(|_| told += 1)).await;
        assert_eq!(told, 0);
    });
}
