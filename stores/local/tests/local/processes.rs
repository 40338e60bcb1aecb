use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::SessionId;
use leasehold_store::{Store, StoreExt, Watch, WatchEvent};
use rustix::process::{Pid, Signal, kill_process};

use crate::child::Process;
use crate::common::*;

#[test]
fn two_processes_count_to_two_thousand_together() {
    run(async {
        let folder = Folder::new();
        let racers = [(); 2].map(|()| Process::start("count 1000", &folder.file()));
        for racer in racers {
            racer.ends_well();
        }
        assert_eq!(&*read(&folder.open(), "control").await.expect("it is there").value, b"2000");
    });
}

#[test]
fn a_watch_hears_of_another_process_at_once() {
    run(async {
        let folder = Folder::new();
        let store = folder.open();
        let mut watch = store.watch().await.expect("it starts").expect("there is one");
        assert_eq!(snapshot(&mut watch).await.entries, []);
        let mut other = Process::start("put hello", &folder.file());
        let (at, stored) = changed(&mut watch).await.remove(0);
        assert_eq!((at, &*stored.expect("there").value), (key("control"), b"hello".as_slice()));
        other.expect("written");
    });
}

/// Starts a process that lives as a session, and a watch that has seen its record.
async fn watch_a_session(folder: &Folder, role: &str) -> (Process, SessionId, Watch, String) {
    let store = folder.open();
    let mut watch = store.watch().await.expect("it starts").expect("there is one");
    snapshot(&mut watch).await;
    let mut other = Process::start(role, &folder.file());
    let (_, stored) = changed(&mut watch).await.remove(0);
    let text = String::from_utf8(stored.expect("there").value.to_vec()).expect("text");
    let session = text.split('"').nth(3).expect("its session").parse().expect("a session");
    let word = other.says().expect("a word");
    (other, session, watch, word)
}

async fn nothing_for(watch: &mut Watch, time: Duration) {
    if let Ok(event) = tokio::time::timeout(time, next(watch)).await {
        panic!("the watch says {event:?}");
    }
}

/// Waits for the proof of death and returns how long it took.
async fn proved_after(watch: &mut Watch, session: SessionId, since: Duration) -> Duration {
    assert_eq!(next(watch).await, WatchEvent::ProcessGone(session));
    now() - since
}

#[test]
fn kill_9_is_proved_without_waiting_for_a_lease() {
    run(async {
        let folder = Folder::new();
        let (other, session, mut watch, _) = watch_a_session(&folder, "claim alone").await;
        nothing_for(&mut watch, Duration::from_millis(600)).await;
        let since = now();
        other.signal(Signal::KILL);
        let took = proved_after(&mut watch, session, since).await;
        assert!(took < Duration::from_secs(5), "{took:?}");
        // Once is enough, until a new snapshot.
        nothing_for(&mut watch, Duration::from_millis(600)).await;
        let mut second = folder.open().watch().await.expect("it starts").expect("there is one");
        snapshot(&mut second).await;
        assert_eq!(next(&mut second).await, WatchEvent::ProcessGone(session));
    });
}

#[test]
fn a_child_that_lives_on_holds_its_parents_lock() {
    run(async {
        let folder = Folder::new();
        let (other, session, mut watch, child) = watch_a_session(&folder, "claim with a child").await;
        other.signal(Signal::KILL);
        nothing_for(&mut watch, Duration::from_millis(1_000)).await;
        let child = Pid::from_raw(child.parse().expect("a pid")).expect("a pid");
        let since = now();
        kill_process(child, Signal::KILL).expect("it is killed");
        let took = proved_after(&mut watch, session, since).await;
        assert!(took < Duration::from_secs(5), "{took:?}");
    });
}

#[test]
fn a_stopped_process_is_not_dead() {
    run(async {
        let folder = Folder::new();
        let (other, session, mut watch, _) = watch_a_session(&folder, "claim alone").await;
        other.signal(Signal::STOP);
        nothing_for(&mut watch, Duration::from_millis(1_000)).await;
        let since = now();
        other.signal(Signal::KILL);
        proved_after(&mut watch, session, since).await;
    });
}

#[test]
fn a_claim_ends_when_it_is_released_and_not_with_another_one_or_with_the_handle() {
    run(async {
        let folder = Folder::new();
        let store = folder.open();
        let session = SessionId::from_bits;
        let record = |bits| format!(r#"{{"session":"{}","state":"draining"}}"#, session(bits));
        store.claim_session(session(1)).await.expect("claimed");
        applied(&store, put("nodes/a", None, record(1).as_bytes())).await;
        applied(&store, put("nodes/b", None, record(2).as_bytes())).await;
        applied(&store, put("nodes/c", None, record(3).as_bytes())).await;
        let reader = folder.open();
        let mut watch = reader.watch().await.expect("it starts").expect("there is one");
        snapshot(&mut watch).await;
        // Session 3 never had a lock, which proves nothing.
        nothing_for(&mut watch, Duration::from_millis(400)).await;
        // Another node of this process on the same store: the first one lives on.
        store.claim_session(session(2)).await.expect("claimed");
        nothing_for(&mut watch, Duration::from_millis(400)).await;
        store.release_session(session(1));
        drop(store);
        // Other tests' children may have been started in between and inherit the lock for a while.
        assert_eq!(next(&mut watch).await, WatchEvent::ProcessGone(session(1)));
        nothing_for(&mut watch, Duration::from_millis(400)).await;
    });
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    run(async {
        let folder = Folder::new();
        let mut acknowledged = BTreeSet::new();
        for round in 0..5u32 {
            let mut writer = Process::start("write", &folder.file());
            for _ in 0..=20 + 13 * round {
                acknowledged.insert(writer.says().expect("a number"));
            }
            writer.signal(Signal::KILL);
            while let Some(number) = writer.says() {
                acknowledged.insert(number);
            }
        }
        let listing = folder.open().list().await.expect("it is listed");
        let mut whole = 0;
        let keys: BTreeSet<String> = listing.entries.iter().map(|(key, _)| key.to_string()).collect();
        for number in &acknowledged {
            for part in 0..3 {
                assert!(keys.contains(&format!("shards/{part}/{number}")), "{number} is not whole");
            }
            whole += 3;
        }
        // What nobody acknowledged may be there, but only as a whole.
        assert_eq!(keys.len() % 3, 0);
        assert!(whole > 200 && keys.len() >= whole, "{whole} acknowledged, {} there", keys.len());
    });
}
