use std::time::Duration;

use leasehold_local::{Local, Options};
use leasehold_store::{Lane, Store, StoreErrorKind, StoreExt};

use crate::common::*;

fn hold_lock(folder: &Folder) -> rusqlite::Connection {
    let shell = rusqlite::Connection::open(folder.file()).expect("opened");
    shell.execute_batch("BEGIN EXCLUSIVE").expect("locked");
    shell
}

#[test]
fn a_locked_file_is_busy_in_time_and_recovers() {
    run(async {
        let folder = Folder::new();
        let options = Options { busy_for: Duration::from_millis(200), ..Options::default() };
        let store = Local::open_with(folder.file(), "test", options).expect("it opens");
        let first = applied(&store, put("meta", None, b"1")).await;
        let shell = hold_lock(&folder);
        let me = format!("is locked by process {} (", std::process::id());
        for lane in [Lane::Renewal, Lane::Work] {
            let since = now();
            let error = store.swap(lane, &[put("meta", Some(&first), b"2")]).await.expect_err("it is locked");
            let took = now() - since;
            assert_eq!(error.kind, StoreErrorKind::Busy, "{error}");
            for words in ["Nothing was written", "fuser", &me] {
                assert!(error.message.contains(words), "{error}");
            }
            assert!((200..3_000).contains(&took.as_millis()), "{took:?}");
        }
        // Readers are not kept out.
        assert_eq!(read(&store, "meta").await.expect("there").version, first);
        shell.execute_batch("COMMIT").expect("unlocked");
        applied(&store, put("meta", Some(&first), b"2")).await;
    });
}

#[test]
fn a_call_that_was_given_up_is_never_done() {
    run(async {
        let folder = Folder::new();
        let options = Options { busy_for: Duration::from_secs(5), ..Options::default() };
        let store = Local::open_with(folder.file(), "test", options).expect("it opens");
        let shell = hold_lock(&folder);
        let brief = Duration::from_millis(50);
        let swaps = [[put("meta", None, b"1")], [put("nodes/a", None, b"2")], [put("nodes/b", None, b"3")]];
        // The first is given up while it waits for the lock, the second while it waits for its turn. The third is
        // not given up; the fourth, behind it, is.
        let (first, second) = tokio::join!(
            tokio::time::timeout(brief, store.swap(Lane::Work, &swaps[0])),
            tokio::time::timeout(brief, store.swap(Lane::Work, &swaps[1])),
        );
        assert!(first.is_err() && second.is_err(), "they were given up");
        let held_up_by = store.held_up_by().expect("it knows by whom");
        assert!(held_up_by.contains("is locked by process"), "{held_up_by}");
        let unlock = async {
            tokio::time::sleep(brief * 2).await;
            shell.execute_batch("COMMIT").expect("unlocked");
        };
        let (third, fourth, ()) = tokio::join!(
            store.swap(Lane::Work, &swaps[2]),
            tokio::time::timeout(brief, store.swap(Lane::Work, &swaps[0])),
            unlock,
        );
        assert!(fourth.is_err(), "it was given up");
        third.expect("the lock was free in time");
        until("nobody waits any more", PLENTY, || store.held_up_by().is_none()).await;
        let there = store.list().await.expect("listed").entries;
        assert_eq!(there.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>(), ["nodes/b"]);
    });
}

#[test]
fn a_write_into_a_file_that_was_replaced_meanwhile_does_not_count() {
    run(async {
        let (folder, elsewhere) = (Folder::new(), Folder::new());
        drop(elsewhere.open());
        checkpoint(&elsewhere.file());
        let options = Options { busy_for: Duration::from_secs(5), ..Options::default() };
        let store = Local::open_with(folder.file(), "test", options).expect("it opens");
        let shell = hold_lock(&folder);
        let swaps = [put("meta", None, b"1")];
        let replace = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            std::fs::rename(elsewhere.file(), folder.file()).expect("replaced");
            shell.execute_batch("COMMIT").expect("unlocked");
        };
        let (swapped, ()) = tokio::join!(store.swap(Lane::Renewal, &swaps), replace);
        let error = swapped.expect_err("it went into the former file");
        assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}");
        assert_eq!(store.list().await.expect("listed").entries, []);
    });
}

#[test]
fn the_runtime_goes_on_while_a_call_waits() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let folder = Folder::new();
        let store = folder.open();
        let _shell = hold_lock(&folder);
        let swaps = [put("meta", None, b"1")];
        let ticks = async {
            let mut worst = Duration::ZERO;
            for _ in 0..40 {
                let since = now();
                tokio::time::sleep(Duration::from_millis(10)).await;
                worst = worst.max(now() - since);
            }
            worst
        };
        let (busy, worst) = tokio::join!(store.swap(Lane::Renewal, &swaps), ticks);
        assert_eq!(busy.expect_err("locked").kind, StoreErrorKind::Busy);
        assert!(
            worst < Duration::from_millis(200),
            "the only thread of the runtime stood still for {worst:?}"
        );
    });
}
