//! Passwords, users with few rights, and TLS.

use std::time::Duration;

use leasehold_redis::Redis;
use leasehold_servers::{Program, RedisServer, free_port};
use leasehold_store::{Grade, Lane, Registry, Store, StoreError, StoreErrorKind, StoreExt, Throwaway};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::common::{open, put, run, until_ok};

#[test]
fn a_password_is_sent_and_never_shown() {
    let Some(server) = RedisServer::start_with(Program::Valkey, &["requirepass hush-hush"]) else { return };
    run(async {
        for (login, said) in [("", "NOAUTH"), (":wrong@", "WRONGPASS"), ("nobody:hush-hush@", "WRONGPASS")] {
            let error = open(&format!("redis://{login}127.0.0.1:{}", server.port)).list().await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Refused);
            assert!(error.message.contains(said) && !error.message.contains("hush"), "{error}");
        }
        let file = server.folder().join("password");
        std::fs::write(&file, "hush-hush\n").unwrap();
        for address in [
            format!("redis://:hush-hush@127.0.0.1:{}", server.port),
            format!("redis://127.0.0.1:{}?password_file={}", server.port, file.display()),
        ] {
            let store = open(&address);
            store.list().await.unwrap();
            assert!(!format!("{store:?}").contains("hush-hush"));
        }
    });
}

#[test]
fn a_password_that_was_replaced_is_found_in_its_file() {
    let Some(server) = RedisServer::start_with(Program::Redis, &["requirepass first"]) else { return };
    let mut shell = server.shell().unwrap();
    shell.ask(&["AUTH", "first"]).unwrap();
    run(async {
        let file = server.folder().join("password");
        std::fs::write(&file, "first\n").unwrap();
        let store = open(&format!("redis://127.0.0.1:{}?password_file={}", server.port, file.display()));
        store.list().await.unwrap();
        shell.ask(&["CONFIG", "SET", "requirepass", "second"]).unwrap();
        std::fs::write(&file, "second\n").unwrap();
        shell.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        until_ok(|| store.list()).await;
    });
}

#[test]
fn what_a_doctor_tries_is_covered_by_the_rights_of_the_namespace_and_leaves_nothing() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let rights = documented_rights();
    let mut command = vec!["ACL", "SETUSER", "leasehold", "reset"];
    command.extend(rights.iter().map(String::as_str));
    assert_eq!(server.ask(&command).text(), "OK");
    run(async {
        let store = open(&format!("redis://leasehold:secret@127.0.0.1:{}", server.port));
        store.swap(Lane::Work, &[put("nodes/n", None, "1")]).await.unwrap();
        let before = server.ask(&["KEYS", "*"]).list().len();
        let throwaway = Throwaway::new("doctor").unwrap();
        let aside = store.aside(&throwaway).unwrap().expect("Redis has one");
        aside.swap(Lane::Work, &[put("nodes/n", None, "2")]).await.unwrap();
        assert_eq!(aside.list().await.unwrap().entries.len(), 1);
        let ours = store.list().await.unwrap();
        assert_eq!((ours.entries.len(), ours.foreign.len()), (1, 0), "nobody else sees it");
        assert_eq!(&*ours.entries[0].1.value, b"1");
        assert!(store.discard(&throwaway).await.is_err(), "the namespace itself is not thrown away");
        aside.discard(&throwaway).await.unwrap();
        assert_eq!(server.ask(&["KEYS", "*"]).list().len(), before);
    });
}

/// The rights that the documentation names, of the namespace `test`.
fn documented_rights() -> Vec<String> {
    let text = include_str!("../../../../docs/redis.md");
    let line =
        text.lines().find(|line| line.starts_with("ACL SETUSER leasehold ")).expect("the rule is there");
    line.split_whitespace().skip(3).map(|word| word.replace("work", "test")).collect()
}

/// Everything that a node does, once.
async fn tour(store: &Redis) -> Result<(), StoreError> {
    use futures::StreamExt;
    let mut watch = store.watch().await?.expect("a watch");
    let version =
        match store.swap(leasehold_store::Lane::Work, &[put("nodes/n", None, "1")]).await?.outcomes.remove(0)
        {
            leasehold_store::Swapped::Applied(version) => version,
            leasehold_store::Swapped::Lost(Some(found)) => found.version,
            other => panic!("{other:?}"),
        };
    store.read(&[put("nodes/n", None, "").key]).await?;
    store.list().await?;
    let mut removal = put("nodes/n", Some(&version), "");
    removal.value = None;
    store
        .swap(leasehold_store::Lane::Renewal, &[put("nodes/n", None, "2"), put("nodes/m", None, "2")])
        .await?;
    store.swap(leasehold_store::Lane::Work, &[removal]).await?;
    let lease = store.grant(Duration::from_secs(60)).await?;
    store.put(&lease, "k", b"v").await?;
    store.put(&lease, "l", b"v").await?;
    store.keep_alive(&lease).await?;
    store.keys().await?;
    store.remove(&lease, "k").await?;
    store.revoke(&lease).await?;
    // A watch never fails; one that may not subscribe never begins.
    let told = tokio::time::timeout(Duration::from_millis(300), watch.next()).await;
    told.map(drop).map_err(|_| StoreError::new(StoreErrorKind::Refused, "no watch"))
}

#[test]
fn the_documented_rights_are_enough_and_all_of_them_are_needed() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let rights = documented_rights();
    let set = |rights: &[String]| {
        let mut command = vec!["ACL", "SETUSER", "leasehold", "reset"];
        command.extend(rights.iter().map(String::as_str));
        assert_eq!(server.ask(&command).text(), "OK", "{rights:?}");
        server.ask(&["FLUSHALL"]);
        // More removals than are kept, so that the forgetting happens too.
        for i in 0..1000 {
            server.ask(&["ZADD", "{test}:removed", "0", &format!("node:{i}")]);
        }
        let password = rights.iter().find_map(|right| right.strip_prefix('>')).unwrap();
        open(&format!("redis://leasehold:{password}@127.0.0.1:{}?wait=0", server.port))
    };
    run(async {
        tour(&set(&rights)).await.unwrap();
        let neighbour =
            Redis::open(&format!("redis://leasehold:{}@127.0.0.1:{}", "secret", server.port), "tests");
        assert_eq!(neighbour.unwrap().list().await.unwrap_err().kind, StoreErrorKind::Refused);
        // These are asked for seldom, or only for people to see.
        let rare = ["+ping", "+client|setname", "+wait", "+select", "+time", "+config|get", "+cluster|info"];
        for (i, right) in rights.iter().enumerate().filter(|(_, right)| right.starts_with(['+', '~', '&'])) {
            if rare.contains(&right.as_str()) {
                continue;
            }
            let mut fewer = rights.clone();
            fewer.remove(i);
            let error = tour(&set(&fewer)).await.expect_err(right);
            assert_eq!(error.kind, StoreErrorKind::Refused, "{right}: {error}");
        }
    });
}

#[test]
fn tls_is_spoken_and_strangers_are_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let authority = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        std::fs::write(file(name), params.self_signed(&key).unwrap().pem()).unwrap();
        Issuer::new(params, key)
    };
    let (ours, _stranger) = (authority("ca.pem"), authority("stranger.pem"));
    for (name, subject) in [("server", "127.0.0.1"), ("client", "leasehold")] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![subject.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, subject);
        std::fs::write(file(&format!("{name}.pem")), params.signed_by(&key, &ours).unwrap().pem()).unwrap();
        std::fs::write(file(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    let port = free_port();
    let settings = [
        format!("tls-port {port}"),
        format!("tls-cert-file {}", file("server.pem")),
        format!("tls-key-file {}", file("server.key")),
        format!("tls-ca-cert-file {}", file("ca.pem")),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let Some(server) = RedisServer::start_with(Program::Redis, &settings) else { return };
    let (ca, pair) = (file("ca.pem"), format!("cert={}&key={}", file("client.pem"), file("client.key")));
    run(async {
        let store = open(&format!("rediss://127.0.0.1:{port}?ca={ca}&{pair}"));
        tour(&store).await.unwrap();
        let told = async |address: String| open(&address).list().await.unwrap_err();
        // What a call is told, `leasehold doctor` tells too.
        for (address, advice) in [
            (format!("rediss://127.0.0.1:{port}?ca={}&{pair}", file("stranger.pem")), "`ca=FILE`"),
            (
                format!("rediss://127.0.0.1:{port}?ca={ca}&{pair}&server_name=else.where"),
                "`server_name=NAME`",
            ),
            (format!("rediss://127.0.0.1:{port}?ca={ca}"), "`cert=FILE` and `key=FILE`"),
            (format!("redis://127.0.0.1:{port}"), "write rediss:// instead of redis://"),
            (
                format!("rediss://127.0.0.1:{}?ca={ca}&timeout=600&wait_for=100", server.port),
                "write redis:// instead of rediss://",
            ),
        ] {
            let error = told(address.clone()).await;
            assert!(error.message.contains(advice), "{advice} in {error}");
            let findings = open(&address).examine().await;
            assert!(findings.len() == 1 && findings[0].grade == Grade::Bad, "{findings:?}");
            assert!(findings[0].what.contains(advice), "{advice} in {findings:?}");
        }
    });
}
