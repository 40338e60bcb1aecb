use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use leasehold_local::{Create, Local, Options};
use leasehold_store::{Lane, Store, StoreError, StoreErrorKind, Swapped, WatchEvent};

use crate::common::*;

fn refusal(path: impl AsRef<Path>) -> StoreError {
    match Local::open(path.as_ref(), "test") {
        Err(error) => error,
        Ok(_) => panic!("{} was opened", path.as_ref().display()),
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let folder = Folder::new();
    let at = |name: &str| folder.dir.path().join(name);
    fs::create_dir(at("folder")).expect("made");
    fs::write(at("text"), "this is no database, it is a text that is long enough".repeat(50))
        .expect("written");
    std::os::unix::fs::symlink(at("nowhere"), at("link")).expect("linked");
    let other = rusqlite::Connection::open(at("other")).expect("opened");
    other.execute_batch("CREATE TABLE theirs (x)").expect("made");
    drop(Local::open(at("newer"), "test").expect("it opens"));
    let newer = rusqlite::Connection::open(at("newer")).expect("opened");
    newer.execute_batch("PRAGMA user_version = 99").expect("written");
    // A file with two names would be two stores: locks and SQLite's own files go by name.
    let first = Local::open(at("first"), "test").expect("it opens");
    fs::hard_link(at("first"), at("second")).expect("linked");

    use StoreErrorKind::{Damaged, Refused, Unreachable};
    for (path, kind, words) in [
        ("missing/x.db", Unreachable, "create it first"),
        ("folder", Refused, "is a directory"),
        ("text", Damaged, "not an SQLite database"),
        ("link", Refused, "link to a missing file"),
        ("other", Refused, "database of another program"),
        ("newer", Damaged, "layout 99"),
        ("text/x.db", Refused, "Not a directory"),
        ("first", Refused, "has 2 names"),
        ("second", Refused, "has 2 names"),
    ] {
        let error = refusal(at(path));
        assert_eq!(error.kind, kind, "{path}: {error}");
        assert!(error.message.contains(words), "{path}: {error}");
    }
    drop(first);
    fs::remove_file(at("second")).expect("removed");
    drop(Local::open(at("first"), "test").expect("with one name it is as it was"));
    let never = Options { create: Create::Never, ..Options::default() };
    let error = Local::open_with(at("absent"), "test", never).expect_err("it is not made");
    assert!(error.message.contains("does not exist"), "{error}");
    assert!(!at("absent").exists() && !at("absent-live").exists(), "nothing is left behind");
    for namespace in ["", "a\nb", &"x".repeat(201)] {
        assert_eq!(Local::open(at("x"), namespace).expect_err("refused").kind, Refused);
    }
}

#[test]
fn an_empty_file_becomes_a_store() {
    run(async {
        let folder = Folder::new();
        fs::write(folder.file(), "").expect("written");
        applied(&folder.open(), put("meta", None, b"1")).await;
    });
}

fn quick() -> Options {
    Options { recreate_after: Duration::from_millis(300), ..Options::default() }
}

#[test]
fn a_deleted_file_is_an_error_then_another_generation() {
    run(async {
        let folder = Folder::new();
        let store = Local::open_with(folder.file(), "test", quick()).expect("it opens");
        let first = applied(&store, put("meta", None, b"1")).await;
        let before = store.generation().await.expect("known");
        let mut watch = store.watch().await.expect("it starts").expect("there is one");
        snapshot(&mut watch).await;
        fs::remove_file(folder.file()).expect("deleted");
        for lane in [Lane::Renewal, Lane::Work] {
            let error = store.swap(lane, &[put("meta", Some(&first), b"2")]).await.expect_err("deleted");
            assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}");
            assert!(error.message.contains("does not exist"), "{error}");
        }
        assert!(matches!(next(&mut watch).await, WatchEvent::Interrupted(_)));
        assert!(!folder.file().exists(), "it is not created again at once");
        // The watch polls, and creates it again after a while.
        let listing = snapshot(&mut watch).await;
        assert_eq!(listing.entries, []);
        assert_ne!(listing.generation, before);
        let reply = store.swap(Lane::Renewal, &[put("meta", Some(&first), b"2")]).await.expect("answered");
        assert_eq!(reply.outcomes, [leasehold_store::Swapped::Lost(None)]);
        assert_eq!(reply.generation, listing.generation);
    });
}

/// What is in the `-wal` could be used forever by those who have it open, and by nobody else.
#[test]
fn a_file_that_is_cut_to_nothing_keeps_no_newcomer_out() {
    run(async {
        let folder = Folder::new();
        let stores = [folder.open(), folder.open()];
        let mut watch = stores[1].watch().await.expect("it starts").expect("there is one");
        snapshot(&mut watch).await;
        applied(&stores[0], put("meta", None, b"1")).await;
        fs::File::create(folder.file()).expect("cut");
        let since = now();
        let newcomer = loop {
            for store in &stores {
                for lane in [Lane::Renewal, Lane::Work] {
                    let _ = store.swap(lane, &[put("control", None, b"1")]).await;
                }
            }
            match Local::open(folder.file(), "test") {
                Ok(store) => break store,
                Err(error) => assert!(now() - since < Duration::from_secs(15), "{error}"),
            }
        };
        for store in &stores {
            until_listed(store).await;
            let (ours, theirs) =
                (store.list().await.expect("listed"), newcomer.list().await.expect("listed"));
            assert_eq!((ours.entries, ours.generation), (theirs.entries, theirs.generation));
        }
        check_file(&folder);
    });
}

async fn until_listed(store: &Local) {
    let since = now();
    while let Err(error) = store.list().await {
        assert!(now() - since < Duration::from_secs(15), "{error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The whole directory is deleted and created again, under handles that are all busy.
#[test]
fn a_folder_that_is_deleted_and_made_again_gets_a_new_store() {
    run(async {
        for round in 0..6 {
            let folder = Folder::new();
            let stores: Vec<Local> =
                (0..3).map(|_| Local::open_with(folder.file(), "test", quick()).expect("it opens")).collect();
            let mut watches = Vec::new();
            for store in &stores {
                let mut watch = store.watch().await.expect("it starts").expect("there is one");
                snapshot(&mut watch).await;
                watches.push(watch);
            }
            applied(&stores[0], put("meta", None, b"1")).await;
            let before = stores[0].generation().await.expect("known");
            for path in fs::read_dir(folder.dir.path()).expect("there").flatten().map(|file| file.path()) {
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
            let _ = fs::remove_dir_all(folder.dir.path());
            // In every other round it comes back only after all have noticed.
            for store in stores.iter().filter(|_| round % 2 == 1) {
                assert!(store.generation().await.is_err());
            }
            let _ = fs::create_dir(folder.dir.path());
            // Errors may come until it is created again, and each of them says why.
            let mut left: Vec<usize> = vec![0, 1, 2];
            let since = now();
            while !left.is_empty() {
                let mut still = Vec::new();
                for which in left {
                    let swaps = [put(&format!("nodes/{which}"), None, b"x")];
                    for lane in [Lane::Renewal, Lane::Work] {
                        match stores[which].swap(lane, &swaps).await {
                            Ok(reply) => assert_ne!(reply.generation, before),
                            Err(error) => {
                                assert!(!error.message.contains("already exists"), "{error}");
                                still.push(which);
                            }
                        }
                    }
                }
                still.dedup();
                left = still;
                assert!(now() - since < Duration::from_secs(10), "{left:?} never came back");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            check_file(&folder);
            let generation = stores[0].generation().await.expect("known");
            for store in &stores {
                assert_eq!(store.generation().await.expect("known"), generation);
                assert_eq!(store.list().await.expect("listed").entries.len(), 3);
            }
        }
    });
}

#[test]
fn a_file_that_is_put_back_goes_on() {
    run(async {
        let folder = Folder::new();
        let store = folder.open();
        let first = applied(&store, put("meta", None, b"1")).await;
        let before = store.generation().await.expect("known");
        let away = folder.dir.path().join("away");
        fs::rename(folder.file(), &away).expect("moved");
        assert_eq!(store.list().await.expect_err("away").kind, StoreErrorKind::Damaged);
        fs::rename(&away, folder.file()).expect("moved back");
        applied(&store, put("meta", Some(&first), b"2")).await;
        assert_eq!(store.generation().await.expect("known"), before);
    });
}

#[test]
fn a_replaced_file_is_another_generation_and_the_two_never_mix() {
    run(async {
        let folder = Folder::new();
        let elsewhere = Folder::new();
        applied(&elsewhere.open(), put("meta", None, b"theirs")).await;
        checkpoint(&elsewhere.file());
        let (store, second) = (folder.open(), folder.open());
        for number in 0..50 {
            applied(&store, put(&format!("nodes/{number}"), None, [b'x'; 900])).await;
        }
        let before = second.generation().await.expect("known");
        fs::rename(elsewhere.file(), folder.file()).expect("replaced");
        for handle in [&store, &second, &folder.open()] {
            let listing = handle.list().await.expect("it is listed");
            assert_eq!(listing.entries.len(), 1);
            assert_eq!(&*listing.entries[0].1.value, b"theirs");
            assert_ne!(listing.generation, before);
        }
        applied(&second, put("control", None, b"1")).await;
        assert_eq!(store.list().await.expect("listed").entries.len(), 2);
        check_file(&folder);
    });
}

#[test]
fn an_older_copy_in_its_place_is_noticed_and_gives_no_version_twice() {
    run(async {
        let folder = Folder::new();
        let store = folder.open();
        let first = applied(&store, put("meta", None, b"1")).await;
        drop(store);
        let copy = folder.dir.path().join("copy");
        let kept = checkpointed_copy(&folder, &copy);
        let store = folder.open();
        let before = store.generation().await.expect("known");
        let newest = applied(&store, put("meta", Some(&first), b"2")).await;
        let mut watch = store.watch().await.expect("it starts").expect("there is one");
        snapshot(&mut watch).await;
        fs::rename(&copy, folder.file()).expect("restored");
        assert!(matches!(next(&mut watch).await, WatchEvent::Interrupted(_)));
        let listing = snapshot(&mut watch).await;
        assert_eq!(&*listing.entries[0].1.value, kept.as_slice());
        assert_ne!(listing.generation, before);
        let next = applied(&store, put("control", None, b"1")).await;
        assert!(number(&next) > number(&newest), "{next:?} after {newest:?}");
        assert_eq!(store.generation().await.expect("known"), listing.generation);
    });
}

#[test]
fn a_copy_restored_while_nobody_ran_is_noticed() {
    run(async {
        let folder = Folder::new();
        applied(&folder.open(), put("meta", None, b"1")).await;
        let copy = folder.dir.path().join("copy");
        checkpointed_copy(&folder, &copy);
        let store = folder.open();
        let before = store.generation().await.expect("known");
        let newest = applied(&store, put("control", None, b"2")).await;
        drop(store);
        checkpoint(&folder.file());
        // Over the same file, so that its inode stays.
        fs::copy(&copy, folder.file()).expect("restored");
        let store = folder.open();
        assert_ne!(store.generation().await.expect("known"), before);
        assert!(number(&applied(&store, put("control", None, b"3")).await) > number(&newest));
    });
}

fn number(version: &leasehold_store::Version) -> u64 {
    version.as_str().parse().expect("a number")
}

fn checkpointed_copy(folder: &Folder, to: &Path) -> Vec<u8> {
    checkpoint(&folder.file());
    fs::copy(folder.file(), to).expect("copied");
    b"1".to_vec()
}

fn check_file(folder: &Folder) {
    let shell = rusqlite::Connection::open(folder.file()).expect("opened");
    let verdict: String = shell.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("checked");
    assert_eq!(verdict, "ok");
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().write(true).open(path).expect("opened");
    file.seek(SeekFrom::Start(at)).expect("there");
    file.write_all(bytes).expect("written");
}

async fn filled(folder: &Folder) {
    let store = folder.open();
    let swaps: Vec<_> = (0..400).map(|n| put(&format!("nodes/{n}"), None, [b'y'; 500])).collect();
    for outcome in store.swap(Lane::Work, &swaps).await.expect("answered").outcomes {
        assert!(matches!(outcome, leasehold_store::Swapped::Applied(_)));
    }
    drop(store);
    checkpoint(&folder.file());
}

#[test]
fn a_damaged_file_is_not_opened() {
    run(async {
        for (at, words) in [(0, "first page"), (100, "damaged"), (5 * 4096, "damaged")] {
            let folder = Folder::new();
            filled(&folder).await;
            overwrite(&folder.file(), at, &[0xa5; 2000]);
            let error = refusal(folder.file());
            assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}");
            assert!(error.message.contains(words), "{at}: {error}");
        }
    });
}

#[test]
fn damage_under_a_running_store_is_an_error_and_never_a_wrong_answer() {
    run(async {
        let folder = Folder::new();
        filled(&folder).await;
        let store = folder.open();
        let good = store.list().await.expect("it is listed");
        let length = fs::metadata(folder.file()).expect("there").len();
        for page in 1..length / 4096 {
            overwrite(&folder.file(), page * 4096, &[0x5a; 4096]);
        }
        let fresh = Local::open(folder.file(), "test").expect_err("a second handle sees it at once");
        assert_eq!(fresh.kind, StoreErrorKind::Damaged, "{fresh}");
        // Pages in memory may still answer, rightly; a write makes SQLite read the rest.
        for _ in 0..3 {
            match store.list().await {
                Ok(listing) => assert_eq!(listing.entries, good.entries),
                Err(error) => assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}"),
            }
        }
    });
}

/// A connection may go on in what it has cached, or in a `-wal` that nobody else sees: so what one thread of a handle
/// finds out, all of them look at.
#[test]
fn damage_that_one_thread_finds_is_looked_at_by_the_others() {
    run(async {
        let folder = Folder::new();
        filled(&folder).await;
        let store = folder.open();
        let version = applied(&store, put("meta", None, b"1")).await;
        let renewal = async |expect| store.swap(Lane::Renewal, &[put("meta", Some(expect), b"2")]).await;
        renewal(&version).await.expect("answered");
        store.list().await.expect("listed");
        overwrite(&folder.file(), 0, &[0x5a; 4096]);
        // A third thread, which reads the file itself.
        let mut watch = store.watch().await.expect("it starts").expect("there is one");
        let first = next(&mut watch).await;
        assert!(matches!(&first, WatchEvent::Interrupted(why) if why.contains("damaged")), "{first:?}");
        assert_eq!(store.generation().await.expect_err("looked at").kind, StoreErrorKind::Damaged);
        assert_eq!(renewal(&version).await.expect_err("looked at").kind, StoreErrorKind::Damaged);
    });
}

#[test]
fn odd_names_and_bytes_are_carried_faithfully() {
    run(async {
        let folder = Folder::new();
        let long = format!("shards/g/{}", "长".repeat(66));
        let odd =
            ["nodes/ünïcödé 🦀", "nodes/..", "nodes/a'b\"c%_;--", "shards/g/a/b//c", "shards/../.", &long];
        let values: [&[u8]; 6] =
            [b"", b"\0", b"\xff\xfe\0", "{\"é\":1}".as_bytes(), b"text\0with nul", &[7; 100_000]];
        let name = folder.dir.path().join("ein ordner'; drop%20?.db");
        let store = Local::open(&name, "näme'space/%").expect("it opens");
        for (at, value) in odd.iter().zip(values) {
            applied(&store, put(at, None, value)).await;
        }
        drop(store);
        let store = Local::open(&name, "näme'space/%").expect("it opens");
        for (at, value) in odd.iter().zip(values) {
            assert_eq!(&*read(&store, at).await.expect("there").value, value, "{at}");
        }
        assert_eq!(store.list().await.expect("listed").entries.len(), odd.len());
    });
}

#[test]
fn keys_that_leasehold_did_not_make_are_shown_and_left_alone() {
    run(async {
        let folder = Folder::new();
        let store = folder.open();
        applied(&store, put("meta", None, b"1")).await;
        let shell = rusqlite::Connection::open(folder.file()).expect("opened");
        let theirs = "INSERT INTO records VALUES
            ('test', 'theirs', -5, 'x'), ('test', x'ff', 900, 7), ('test', 'nodes/', 2, x'00')";
        shell.execute_batch(theirs).expect("written");
        let listing = store.list().await.expect("listed");
        assert_eq!(listing.foreign, ["nodes/", "theirs", "\u{fffd}"]);
        assert_eq!(listing.entries.len(), 1);
        applied(&store, put("control", None, b"1")).await;
    });
}

#[test]
fn ten_thousand_records_are_listed_at_once() {
    run(async {
        let folder = Folder::new();
        let store = folder.open();
        for chunk in 0..40 {
            let swaps: Vec<_> =
                (0..250).map(|n| put(&format!("shards/g/{}", chunk * 250 + n), None, [b'z'; 200])).collect();
            store.swap(Lane::Work, &swaps).await.expect("answered");
        }
        assert_eq!(store.list().await.expect("listed").entries.len(), 10_000);
    });
}

#[test]
fn a_watch_that_missed_removals_takes_a_snapshot() {
    run(async {
        let folder = Folder::new();
        let store = folder.open();
        let mut watch = store.watch().await.expect("it starts").expect("there is one");
        snapshot(&mut watch).await;
        // More removals than are remembered, more often than events are queued for a reader that does not read.
        for round in 0..40 {
            let swaps: Vec<_> = (0..100).map(|n| put(&format!("nodes/{round}-{n}"), None, b"x")).collect();
            let made = store.swap(Lane::Work, &swaps).await.expect("answered").outcomes;
            let swaps: Vec<_> = made
                .iter()
                .enumerate()
                .map(|(n, outcome)| match outcome {
                    leasehold_store::Swapped::Applied(version) => {
                        remove(&format!("nodes/{round}-{n}"), version)
                    }
                    other => panic!("{other:?}"),
                })
                .collect();
            store.swap(Lane::Work, &swaps).await.expect("answered");
        }
        applied(&store, put("control", None, b"the end")).await;
        // Whatever way it is told, the reader ends with what is there.
        let mut there = std::collections::BTreeMap::new();
        let mut last = 0;
        while !there.contains_key(&key("control")) {
            match next(&mut watch).await {
                WatchEvent::Snapshot(listing) => there = listing.entries.into_iter().collect(),
                WatchEvent::Changed(changes) => {
                    for (key, stored) in changes {
                        match stored {
                            Some(stored) => {
                                assert!(number(&stored.version) > last, "out of order");
                                last = number(&stored.version);
                                there.insert(key, stored);
                            }
                            None => drop(there.remove(&key)),
                        }
                    }
                }
                WatchEvent::Interrupted(_) | WatchEvent::ProcessGone(_) => {}
            }
        }
        assert_eq!(there.len(), 1);
        let shell = rusqlite::Connection::open(folder.file()).expect("opened");
        let removals: i64 = shell
            .query_row("SELECT count(*) FROM records WHERE value IS NULL", [], |row| row.get(0))
            .expect("counted");
        assert!(removals < 2_100, "{removals} removals are remembered");
    });
}

#[test]
fn a_watch_goes_on_when_the_folder_of_the_bell_is_removed() {
    run(async {
        let folder = Folder::new();
        let seldom = Options { look_every: Duration::from_secs(2), ..Options::default() };
        let reader = Local::open_with(folder.file(), "test", seldom).expect("it opens");
        let (writer, mut watch) =
            (folder.open(), reader.watch().await.expect("it starts").expect("there is one"));
        snapshot(&mut watch).await;
        fs::remove_dir_all(folder.dir.path().join("x.db-live")).expect("removed");
        let mut slowest = Duration::ZERO;
        for number in 0..20 {
            applied(&writer, put(&format!("nodes/{number}"), None, b"x")).await;
            let since = now();
            assert_eq!(changed(&mut watch).await.len(), 1);
            let took = now() - since;
            // The first may only be found by the watch's own look; from then on the notify file is heard again.
            if number > 2 {
                slowest = slowest.max(took);
            }
        }
        assert!(slowest < Duration::from_millis(1_500), "{slowest:?}");
    });
}

#[test]
fn a_store_opens_beside_a_long_transaction_and_for_every_user_who_may() {
    let folder = Folder::new();
    drop(folder.open());
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o660);
    fs::set_permissions(folder.file(), permissions).expect("set");
    let shell = rusqlite::Connection::open(folder.file()).expect("opened");
    shell.execute_batch("BEGIN EXCLUSIVE; UPDATE store SET forgotten = 0").expect("locked");
    drop(folder.open());
    for (name, wanted) in [("", 0o770), ("notify", 0o660), ("open", 0o660), ("file", 0o660)] {
        let path = folder.dir.path().join("x.db-live").join(name);
        let Ok(found) = fs::metadata(&path) else { continue };
        let mode = std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o777;
        assert_eq!(mode, wanted, "{}", path.display());
    }
}

#[test]
fn the_wal_stays_small_also_when_only_renewals_are_written() {
    run(async {
        let folder = Folder::new();
        let store = folder.open();
        let mut version = applied(&store, put("nodes/a", None, b"0")).await;
        let mut largest = 0;
        for round in 0..1_500 {
            let swaps = [put("nodes/a", Some(&version), format!("{round:0600}").as_bytes())];
            let mut reply = store.swap(Lane::Renewal, &swaps).await.expect("written");
            let Swapped::Applied(next) = reply.outcomes.remove(0) else { panic!("round {round}") };
            version = next;
            largest =
                largest.max(std::fs::metadata(folder.dir.path().join("x.db-wal")).expect("there").len());
        }
        // 256 pages and what one write adds to them; without checkpoints it would be some megabytes.
        assert!(largest < 1_200_000, "the -wal grew to {largest} bytes");
    });
}
