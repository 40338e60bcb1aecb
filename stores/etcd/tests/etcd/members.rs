//! Members that are killed, stopped, cut off and full, and what a client sees of it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use leasehold_servers::{Etcd as Server, EtcdSetup, Program};
use leasehold_store::{Lane, Store, StoreErrorKind, StoreExt, Swapped, Version, Watch, WatchEvent};
use nix::sys::signal::Signal;

use crate::common::{Stopwatch, key, open, put, put_patiently, swap};

/// How a driver calls: each try may take so long at a ttl of ten seconds, and the next comes after so long.
const TRY_WITHIN: Duration = Duration::from_secs(1);
const RENEW_EVERY: Duration = Duration::from_millis(200);

/// Renews as a node does, and keeps the longest time between two renewals that were confirmed.
struct Renewing {
    version: Version,
    longest: Duration,
    failures: u32,
}

impl Renewing {
    async fn begin(store: &dyn Store) -> Self {
        Renewing { version: put(store, "nodes/n", None, "0").await, longest: Duration::ZERO, failures: 0 }
    }

    async fn go_on(&mut self, store: &dyn Store, span: Duration) {
        let (all, mut confirmed) = (Stopwatch::start(), Stopwatch::start());
        while all.elapsed() < span {
            let write = format!("{:?}", all.elapsed());
            let renewal = swap(store, Lane::Renewal, "nodes/n", Some(&self.version), &write);
            match tokio::time::timeout(TRY_WITHIN, renewal).await {
                Ok(Ok(Swapped::Applied(version))) => {
                    self.version = version;
                    self.longest = self.longest.max(confirmed.elapsed());
                    confirmed = Stopwatch::start();
                }
                // A renewal without an answer may have landed: then it is the one that is there.
                Ok(Ok(Swapped::Lost(Some(stored)))) if self.failures > 0 => self.version = stored.version,
                Ok(Ok(other)) => panic!("nobody else writes this record: {other:?}"),
                Ok(Err(_)) | Err(_) => self.failures += 1,
            }
            tokio::time::sleep(RENEW_EVERY).await;
        }
        self.longest = self.longest.max(confirmed.elapsed());
    }
}

/// Reads a watch until this version of `shards/g/s` was told of, whether in a snapshot or as a change.
pub(crate) async fn until_told(watch: &mut Watch, version: &Version) -> Vec<&'static str> {
    let mut seen = Vec::new();
    let wanted = key("shards/g/s");
    let told = async {
        loop {
            let found = match watch.next().await.expect("a watch never ends") {
                WatchEvent::Snapshot(listing) => {
                    seen.push("snapshot");
                    listing.entries.iter().any(|(key, stored)| *key == wanted && stored.version == *version)
                }
                WatchEvent::Changed(changes) => changes.iter().any(|(key, stored)| {
                    *key == wanted && stored.as_ref().is_some_and(|stored| stored.version == *version)
                }),
                WatchEvent::Interrupted(_) => {
                    seen.push("interrupted");
                    false
                }
                WatchEvent::ProcessGone(_) => false,
            };
            if found {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(15), told).await.expect("the watch tells of the change");
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_or_stopped_costs_less_than_a_session_has() {
    let Some(mut server) = Server::start(EtcdSetup::single(Program::Etcd35).members(3)) else { return };
    let store = open(&server, "leader");
    let mut renewing = Renewing::begin(&store).await;
    let mut watch = store.watch().await.unwrap().unwrap();
    let version = put(&store, "shards/g/s", None, "before").await;
    until_told(&mut watch, &version).await;

    let leader = server.leader().expect("there is a leader");
    server.kill(leader);
    renewing.go_on(&store, Duration::from_secs(5)).await;
    assert!(renewing.longest < Duration::from_millis(5900), "{:?}", renewing.longest);
    println!("leader killed: {:?} without a renewal, {} failed", renewing.longest, renewing.failures);
    let version = put_patiently(&store, "shards/g/s", "without the old leader").await;
    until_told(&mut watch, &version).await;

    server.revive(leader);
    renewing.go_on(&store, Duration::from_secs(2)).await;
    let leader = server.leader().expect("there is a leader");
    renewing.longest = Duration::ZERO;
    server.process(leader).signal(Signal::SIGSTOP);
    renewing.go_on(&store, Duration::from_secs(6)).await;
    println!("leader stopped: {:?} without a renewal, {} failed in all", renewing.longest, renewing.failures);
    assert!(renewing.longest < Duration::from_millis(5900), "{:?}", renewing.longest);
    let version = put_patiently(&store, "shards/g/s", "with a stopped leader").await;
    until_told(&mut watch, &version).await;
    server.process(leader).signal(Signal::SIGCONT);
    renewing.go_on(&store, Duration::from_secs(1)).await;
    put_patiently(&store, "shards/g/s", "all well").await;
}

/// One follower takes connections and answers nothing. Whichever lane was on it goes elsewhere after one try, and the
/// watch says that it was interrupted instead of falling silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_falls_silent_is_left_by_all_who_were_on_it() {
    let Some(server) = Server::start(EtcdSetup::single(Program::Etcd34).members(3)) else { return };
    let leader = server.leader().expect("there is a leader");
    let follower = (leader + 1) % 3;
    // Clients that know the follower first, and then another one, so that all of them begin there.
    let address = format!("etcd://{}/tests", server.host(follower));
    let only = leasehold_etcd::Etcd::open(&address, "silent").unwrap();
    let mut watch = only.watch().await.unwrap().unwrap();
    let version = put(&only, "shards/g/s", None, "1").await;
    until_told(&mut watch, &version).await;

    let all: Vec<_> = (0..4).map(|_| open(&server, "silent")).collect();
    let mut watches = Vec::new();
    for store in &all {
        store.list().await.unwrap();
        watches.push(store.watch().await.unwrap().unwrap());
    }
    for watch in &mut watches {
        until_told(watch, &version).await;
    }
    server.process(follower).signal(Signal::SIGSTOP);
    let mut interrupted = 0;
    for (number, store) in all.iter().enumerate() {
        let mut slow = 0;
        for lane in [Lane::Renewal, Lane::Work] {
            let name = format!("nodes/{number}-{lane:?}");
            loop {
                match tokio::time::timeout(TRY_WITHIN, swap(store, lane, &name, None, "1")).await {
                    Ok(Ok(Swapped::Applied(_) | Swapped::Lost(Some(_)))) => break,
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => slow += 1,
                }
            }
        }
        assert!(slow <= 2, "each lane loses one try at most");
    }
    let version = put_patiently(&all[0], "shards/g/s", "2").await;
    for watch in &mut watches {
        let seen = until_told(watch, &version).await;
        interrupted += usize::from(seen.contains(&"interrupted"));
        assert!(seen.is_empty() || seen.contains(&"snapshot"), "{seen:?}");
    }
    println!("{interrupted} of {} watches were on the silent member", watches.len());
    // A client that knows no other member learns of the gap within seconds, and goes on once the member is back.
    let told = async { while !matches!(watch.next().await, Some(WatchEvent::Interrupted(_))) {} };
    tokio::time::timeout(Duration::from_secs(12), told).await.expect("silence is noticed");
    server.process(follower).signal(Signal::SIGCONT);
    until_told(&mut watch, &version).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_calls_end_in_time_and_say_why() {
    let Some(mut server) = Server::start(EtcdSetup::single(Program::Etcd35).members(3)) else { return };
    let store = open(&server, "minority");
    put(&store, "nodes/n", None, "1").await;
    let mut watch = store.watch().await.unwrap().unwrap();
    assert!(matches!(watch.next().await, Some(WatchEvent::Snapshot(_))));
    let leader = server.leader().expect("there is a leader");
    server.kill(leader);
    server.kill((leader + 1) % 3);
    let began = Stopwatch::start();
    let error = loop {
        if let Err(error) = store.list().await
            && (error.message.contains("no leader") || began.elapsed() > Duration::from_secs(15))
        {
            break error;
        }
    };
    assert!(matches!(error.kind, StoreErrorKind::Unreachable | StoreErrorKind::TimedOut), "{error}");
    assert!(error.message.contains("no leader"), "{error}");
    let findings = store.examine().await;
    assert!(findings.iter().any(|finding| finding.what.contains("has no leader")), "{findings:?}");
    let told = tokio::time::timeout(Duration::from_secs(10), watch.next()).await.expect("no silent stall");
    assert!(matches!(told, Some(WatchEvent::Interrupted(_))), "{told:?}");
    server.revive(leader);
    let began = Stopwatch::start();
    while store.read(&[key("nodes/n")]).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(15), "it comes back by itself");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A watch that reads slowly, while history is compacted under it, says that there was a gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_during_a_watch_leads_to_a_snapshot() {
    for program in [Program::Etcd34, Program::Etcd35] {
        let Some(server) = Server::start(EtcdSetup::single(program)) else { continue };
        let store = Arc::new(open(&server, "compaction"));
        let mut watch = store.watch().await.unwrap().unwrap();
        let mut version = put(&*store, "shards/g/s", None, "1").await;
        until_told(&mut watch, &version).await;
        // More than what waits in the client, in its connection and in the server together.
        let large = "x".repeat(100_000);
        for _ in 0..400 {
            version = put(&*store, "shards/g/s", Some(&version), &large).await;
        }
        server.ctl(&["compact", version.as_str()]);
        let seen = until_told(&mut watch, &version).await;
        assert_eq!(seen, ["interrupted", "snapshot"], "{program:?}");
        // A listing whose pages are overtaken starts again; a fresh one needs no old revision.
        assert_eq!(store.list().await.unwrap().entries.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_quota_is_refused_with_advice_and_ends_when_it_is_mended() {
    for program in [Program::Etcd34, Program::Etcd35] {
        let setup = EtcdSetup::single(program).arg("--quota-backend-bytes=4000000");
        let Some(server) = Server::start(setup) else { continue };
        quota_is_used_up_and_mended(&server).await;
    }
}

async fn quota_is_used_up_and_mended(server: &Server) {
    let store = open(server, "quota");
    let mut version = put(&store, "nodes/n", None, "small").await;
    let large = "x".repeat(500_000);
    let error = loop {
        match swap(&store, Lane::Work, "nodes/n", Some(&version), &large).await {
            Ok(Swapped::Applied(next)) => version = next,
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(error.message.contains("etcdctl defrag"), "{error}");
    assert_eq!(store.list().await.unwrap().entries.len(), 1, "reading goes on");
    let findings = store.examine().await;
    assert!(findings.iter().any(|finding| finding.what.contains("NOSPACE")), "{findings:?}");

    server.ctl(&["compact", version.as_str()]);
    server.ctl(&["defrag"]);
    server.ctl(&["alarm", "disarm"]);
    // The write that found the quota used up may have been carried out: etcd applies what came that far, and refuses after.
    put_patiently(&store, "nodes/n", "small again").await;
}
