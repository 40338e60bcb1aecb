//! Auth and TLS, right and wrong.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use leasehold::Node;
use leasehold_etcd::Etcd;
use leasehold_servers::{Etcd as Server, EtcdSetup, Program};
use leasehold_store::{Finding, Grade, Lane, Registry, Store, StoreErrorKind, StoreExt, WatchEvent};

use crate::common::{key, put, swap};

const PASSWORD: &str = "h0lder:of@keys/100%";
const IN_ADDRESS: &str = "h0lder%3Aof%40keys%2F100%25";

/// Switches auth on, with a user who may do what docs/etcd.md says is needed and nothing else.
fn with_auth(program: Program) -> Option<Server> {
    let mut server = Server::start(EtcdSetup::single(program).arg("--auth-token-ttl=2"))?;
    server.ctl(&["user", "add", "root:secret"]);
    server.ctl(&["user", "grant-role", "root", "root"]);
    server.ctl(&["role", "add", "leasehold"]);
    server.ctl(&["role", "grant-permission", "leasehold", "--prefix=true", "readwrite", "/tests/"]);
    server.ctl(&["user", "add", &format!("worker:{PASSWORD}")]);
    server.ctl(&["user", "grant-role", "worker", "leasehold"]);
    server.ctl(&["auth", "enable"]);
    server.log_in("root:secret");
    Some(server)
}

fn all_text(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{} {}\n", finding.what, finding.advice)).collect()
}

async fn refused(store: &Etcd, wanted: &str) {
    let error = store.list().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(error.message.contains(wanted), "{wanted:?} in {error}");
    let findings = all_text(&store.examine().await);
    for text in [&error.message, &findings] {
        assert!(!text.contains("h0lder") && !text.contains("wrong-secret"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_least_that_a_role_needs_is_enough_for_everything() {
    for program in [Program::Etcd34, Program::Etcd35] {
        let Some(server) = with_auth(program) else { continue };
        let address = |login: &str, prefix: &str| format!("etcd://{login}@{}/{prefix}", server.hosts());
        let store = Etcd::open(&address(&format!("worker:{IN_ADDRESS}"), "tests"), "auth").unwrap();
        let mut version = put(&store, "nodes/n", None, "1").await;
        let mut watch = store.watch().await.unwrap().unwrap();
        assert!(matches!(watch.next().await, Some(WatchEvent::Snapshot(_))));
        let lease = store.grant(Duration::from_secs(60)).await.unwrap();
        store.put(&lease, "service", b"here").await.unwrap();
        assert_eq!(store.keys().await.unwrap().len(), 1);
        store.revoke(&lease).await.unwrap();
        // Setting a user up takes etcd longer than such a call has time; it goes on, and a later one finds it done.
        let hasty = Etcd::open(&address(&format!("worker:{IN_ADDRESS}"), "tests"), "auth").unwrap();
        let mut tries = 0;
        while tokio::time::timeout(Duration::from_millis(15), hasty.list()).await.is_err() {
            tries += 1;
            assert!(tries < 200, "calls in haste get through at last");
        }
        // Tokens wear out: after a while without use, and with every restart of a member.
        tokio::time::sleep(Duration::from_secs(4)).await;
        for lane in [Lane::Renewal, Lane::Work] {
            let outcome = swap(&store, lane, "nodes/n", Some(&version), "2").await.unwrap();
            let leasehold_store::Swapped::Applied(next) = outcome else { panic!("{outcome:?}") };
            version = next;
        }
        let findings = store.examine().await;
        assert!(findings.iter().all(|finding| finding.grade != Grade::Bad), "{findings:?}");

        server.ctl(&["role", "add", "reader"]);
        server.ctl(&["role", "grant-permission", "reader", "--prefix=true", "read", "/tests/"]);
        server.ctl(&["user", "add", "visitor:look"]);
        server.ctl(&["user", "grant-role", "visitor", "reader"]);
        let visitor = Etcd::open(&address("visitor:look", "tests"), "auth").unwrap();
        assert_eq!(visitor.list().await.unwrap().entries.len(), 1, "a user who may read can list");
        let error = swap(&visitor, Lane::Work, "nodes/n", Some(&version), "3").await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
        put(&store, "nodes/m", None, "users and roles were changed").await;

        let file = server.folder().join("password");
        std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
        let by_file = format!("{}?password_file={}", address("worker", "tests"), file.display());
        assert_eq!(Etcd::open(&by_file, "auth").unwrap().list().await.unwrap().entries.len(), 2);

        refused(
            &Etcd::open(&address("worker:wrong-secret", "tests"), "auth").unwrap(),
            "wrong user or password",
        )
        .await;
        refused(
            &Etcd::open(&address(&format!("worker:{IN_ADDRESS}"), "other"), "auth").unwrap(),
            "grant-permission",
        )
        .await;
        let nobody = format!("etcd://{}/tests", server.hosts());
        refused(&Etcd::open(&nobody, "auth").unwrap(), "user:password@").await;
    }
}

#[tokio::test]
async fn a_password_is_no_harm_where_auth_is_off() {
    let Some(server) = Server::start(EtcdSetup::single(Program::Etcd35)) else { return };
    let store = Etcd::open(&format!("etcd://worker:x@{}/tests", server.hosts()), "off").unwrap();
    put(&store, "nodes/n", None, "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_client_certificates() {
    for program in [Program::Etcd34, Program::Etcd35] {
        let Some(server) = Server::start(EtcdSetup::single(program).tls()) else { continue };
        let certificates = server.certificates().unwrap();
        let file = |name: &str| certificates.file(name).display().to_string();
        let (ca, cert, key_file) = (file("ca.pem"), file("client.pem"), file("client.key"));
        let open =
            |params: String| Etcd::open(&format!("etcd://{}/tests?{params}", server.hosts()), "tls").unwrap();

        let store = open(format!("ca={ca}&cert={cert}&key={key_file}"));
        put(&store, "nodes/n", None, "1").await;
        let mut watch = store.watch().await.unwrap().unwrap();
        assert!(matches!(watch.next().await, Some(WatchEvent::Snapshot(_))));
        let findings = all_text(&store.examine().await);
        assert!(findings.contains("TLS and a client certificate"), "{findings}");
        assert!(findings.contains("of a quota of 2147 MB"), "{findings}");

        // Whether its refusal can still be read or the connection just breaks is a matter of chance.
        let error = open(format!("ca={ca}")).list().await.unwrap_err();
        assert!(error.message.contains("give cert=FILE and key=FILE"), "{error}");
        refused(&open(format!("ca={}&cert={cert}&key={key_file}", file("other-ca.pem"))), "ca=FILE").await;
        refused(&open(format!("ca={ca}&cert={cert}&key={key_file}&server_name=elsewhere")), "server_name=")
            .await;
        let error = open("tls=off".to_owned()).list().await.unwrap_err();
        assert!(error.message.contains("requires TLS"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_was_replaced_is_found_in_its_file() {
    let Some(server) = with_auth(Program::Etcd35) else { return };
    let file = server.folder().join("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    let address = format!("etcd://worker@{}/tests?password_file={}", server.hosts(), file.display());
    let store = Etcd::open(&address, "auth").unwrap();
    put(&store, "nodes/n", None, "1").await;
    server.ctl(&["user", "delete", "worker"]);
    server.ctl(&["user", "add", "worker:another"]);
    server.ctl(&["user", "grant-role", "worker", "leasehold"]);
    let error = store.list().await.unwrap_err();
    assert!(error.message.contains("wrong user or password"), "{error}");
    std::fs::write(&file, "another\n").unwrap();
    assert_eq!(store.list().await.unwrap().entries.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_mistakes_are_told_in_words_too() {
    let Some(server) = Server::start(EtcdSetup::single(Program::Etcd35)) else { return };
    let store = Etcd::open(&format!("etcd://{}/tests?tls=on", server.hosts()), "mistakes").unwrap();
    let error = store.list().await.unwrap_err();
    assert!(error.message.contains("tls=off"), "{error}");
    let findings = store.examine().await;
    assert!(findings.iter().all(|finding| !finding.what.starts_with("TLS")), "{}", all_text(&findings));
    let store = Etcd::open("etcd://no-such-host.invalid:2379/tests", "mistakes").unwrap();
    let error = store.read(&[key("meta")]).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unreachable, "{error}");
    assert!(error.message.contains("no-such-host.invalid"), "{error}");
    // One member that is gone is no reason to fail.
    let store = Etcd::open(&format!("etcd://127.0.0.1:1,{}/tests", server.hosts()), "mistakes").unwrap();
    put(&store, "nodes/n", None, "1").await;
    let findings = store.examine().await;
    let text = all_text(&findings);
    for wanted in [
        "1 of 2 named members answer",
        "127.0.0.1:1",
        "etcd 3.5",
        "no node is alive; each one at a ttl of 10s will renew 43200 times a day",
        "no alarm",
        "of a quota of 2147 MB",
        "median of 5",
        "compact",
    ] {
        assert!(text.contains(wanted), "{wanted:?} in {text}");
    }
    assert!(findings.iter().all(|finding| finding.grade != Grade::Bad), "{findings:?}");
    server.ctl(&["compact", &store.list().await.unwrap().revision.unwrap().to_string()]);
    let text = all_text(&store.examine().await);
    assert!(text.contains("perhaps by hand"), "{text}");
    put(&store, "nodes/m", None, "1").await;
    server.ctl(&["compact", &store.list().await.unwrap().revision.unwrap().to_string()]);
    let text = all_text(&store.examine().await);
    assert!(text.contains("it was compacted 2 times since the member was started"), "{text}");

    // Of those that have left nothing is to be expected.
    let store: Arc<dyn Store> =
        Arc::new(Etcd::open(&format!("etcd://{}/tests", server.hosts()), "alive").unwrap());
    let node = async |name: &str, ttl: u64| {
        let node = Node::builder(store.clone()).name(name).ttl(Duration::from_secs(ttl));
        let node = node.new_namespace().start().await.unwrap();
        node.attached().await.unwrap();
        node
    };
    let (_short, _long, gone) = (node("a", 4).await, node("b", 40).await, node("c", 10).await);
    gone.leave().await;
    let text = all_text(&store.examine().await);
    let wanted = "the nodes that are alive (1 at a ttl of 4s, 1 at a ttl of 40s) renew 118800 times a day";
    assert!(text.contains(wanted), "{text}");
}
