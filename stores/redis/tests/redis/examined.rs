//! What `leasehold doctor` says of servers with the usual mistakes.

use leasehold_servers::{Program, RedisCluster, RedisSentinel, RedisServer};
use leasehold_store::{Finding, Grade, Store, StoreErrorKind, StoreExt};

use crate::common::{applied, open, put, run};

fn find<'f>(findings: &'f [Finding], part: &str) -> &'f Finding {
    findings
        .iter()
        .find(|finding| finding.what.contains(part))
        .unwrap_or_else(|| panic!("{part}: {findings:#?}"))
}

#[test]
fn a_good_server_has_no_bad_findings() {
    for program in [Program::Redis, Program::Valkey] {
        let Some(server) = RedisServer::start_with(program, &["appendonly yes"]) else { return };
        let store = open(&server.address());
        run(async {
            applied(&store, put("nodes/n", None, "1")).await;
            let findings = store.examine().await;
            assert!(findings.iter().all(|finding| finding.grade == Grade::Good), "{findings:#?}");
            find(&findings, if program == Program::Redis { "Redis 7" } else { "Valkey" });
            find(&findings, "1 records");
        });
    }
}

#[test]
fn the_usual_mistakes_are_told() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    run(async {
        let examine = async |address: &str| open(address).examine().await;
        let findings = examine(&server.address()).await;
        assert_eq!(find(&findings, "append-only file is off").grade, Grade::Doubtful);
        for (snapshots, said) in [("", "the namespace is empty"), ("60 1", "as old as the last one")] {
            server.ask(&["CONFIG", "SET", "save", snapshots]);
            let findings = examine(&server.address()).await;
            assert!(find(&findings, "append-only file is off").what.contains(said), "{said}: {findings:?}");
        }
        let findings = examine(&format!("{}?wait=1", server.address())).await;
        assert_eq!(find(&findings, "once 1 of them have it").grade, Grade::Bad);
        let follow = format!("replicaof 127.0.0.1 {}", server.port);
        let Some(replica) = RedisServer::start_with(Program::Redis, &[&follow]) else { return };
        server.wait_for("a replica", || server.info("replication", "connected_slaves") == "1");
        let findings = examine(&server.address()).await;
        assert_eq!(find(&findings, "1 replicas are connected").grade, Grade::Doubtful);
        assert_eq!(find(&findings, "min-replicas-to-write is 0").grade, Grade::Doubtful);
        // Another client wrote without waiting, and that is remembered.
        applied(&open(&server.address()), put("nodes/n", None, "1")).await;
        let waiting = format!("{}?wait=1", server.address());
        let findings = examine(&waiting).await;
        let lower = find(&findings, "another client has written with wait=0");
        assert!(lower.advice.contains("HSET {test}:store wait 1"), "{lower:?}");
        server.ask(&["HSET", "{test}:store", "wait", "1"]);
        let findings = examine(&waiting).await;
        assert!(
            findings.iter().all(|finding| !finding.what.contains("another client has written")),
            "{findings:?}"
        );
        server.ask(&["FLUSHALL"]);
        drop(replica);
        server.wait_for("no replica", || server.info("replication", "connected_slaves") == "0");
        find(&examine(&server.address()).await, "there were replicas");
        server.ask(&["SELECT", "0"]);
        let mut shell = server.shell().unwrap();
        for db in ["3", "4"] {
            shell.ask(&["SELECT", db]).unwrap();
            shell.ask(&["SET", "x", "y"]).unwrap();
        }
        assert_eq!(
            find(&examine(&format!("{}/5", server.address())).await, "is empty").grade,
            Grade::Doubtful
        );
        server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        assert_eq!(find(&examine(&server.address()).await, "allkeys-lru").grade, Grade::Doubtful);
        server.ask(&[
            "ACL", "SETUSER", "few", "on", ">pw", "~*", "&*", "+@all", "-hset", "-publish", "-time",
            "-config",
        ]);
        let findings = examine(&format!("redis://few:pw@127.0.0.1:{}", server.port)).await;
        let denied = find(&findings, "may not run");
        assert!(denied.grade == Grade::Bad && denied.what.contains("HSET, PUBLISH"), "{denied:?}");
        server.ask(&["CONFIG", "SET", "maxmemory", "100mb"]);
        assert_eq!(find(&examine(&server.address()).await, "allkeys-lru").grade, Grade::Bad);
        let findings = examine(&format!("redis://127.0.0.1:{}", leasehold_servers::free_port())).await;
        assert!(findings.len() == 1 && findings[0].grade == Grade::Bad, "{findings:?}");
    });
}

#[test]
fn a_server_that_is_not_what_the_address_says_is_told() {
    let Some(servers) = RedisSentinel::start(Program::Redis, 1) else { return };
    let Some(guarded) = RedisServer::start_with(Program::Valkey, &["requirepass hush-hush"]) else { return };
    let hosts = servers.address().replace("redis+sentinel://", "");
    let one = servers.servers[0].port;
    run(async {
        for (address, wanted) in [
            (format!("redis+cluster://127.0.0.1:{one}"), "not part of a cluster: write redis://"),
            (format!("redis+sentinel://127.0.0.1:{one}"), "is not a sentinel"),
            (format!("redis://{hosts}"), "is a sentinel: write redis+sentinel://"),
            (format!("redis+sentinel://:x@127.0.0.1:{}", guarded.port), "`sentinel_password`"),
            (
                format!("redis+sentinel://127.0.0.1:{}?sentinel_password=wrong", guarded.port),
                "`sentinel_password`",
            ),
        ] {
            let error = open(&address).list().await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
            assert!(error.message.contains(wanted), "{wanted}: {error}");
            let findings = open(&address).examine().await;
            assert!(findings.len() == 1 && findings[0].what.contains(wanted), "{wanted}: {findings:?}");
        }
    });
}

#[test]
fn a_broken_cluster_is_told() {
    let Some(mut cluster) = RedisCluster::start(Program::Redis) else { return };
    let store = open(&cluster.address());
    run(async {
        let findings = store.examine().await;
        assert_eq!(find(&findings, "cluster serves all slots").grade, Grade::Good);
        assert_eq!(find(&findings, "1 replicas are connected").grade, Grade::Doubtful);
        let master = cluster.master_of("{test}:store").unwrap();
        let other = (master + 1) % 3;
        cluster.servers[other].kill();
        cluster.servers[other + 3].kill();
        let server = &cluster.servers[master];
        server.wait_for("the cluster to fail", || {
            server.ask(&["CLUSTER", "INFO"]).text().contains("state:fail")
        });
        let findings = store.examine().await;
        assert!(findings.iter().any(|finding| finding.grade == Grade::Bad), "{findings:#?}");
    });
}
