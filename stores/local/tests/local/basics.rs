use leasehold_local::Local;
use leasehold_store::{Store, Swapped, Version};

use crate::common::*;

#[test]
fn a_swap_is_applied_once() {
    run(async {
        let folder = Folder::new();
        let store = folder.open();
        let first = applied(&store, put("meta", None, b"one")).await;
        let again = swap(&store, put("meta", None, b"two")).await;
        let Swapped::Lost(Some(there)) = again else { panic!("{again:?}") };
        assert_eq!((&there.version, &*there.value), (&first, b"one".as_slice()));
        let second = applied(&store, put("meta", Some(&first), b"two")).await;
        assert_ne!(first, second);
        assert!(matches!(swap(&store, put("meta", Some(&first), b"three")).await, Swapped::Lost(Some(_))));
        let foreign = Version::new("not ours");
        assert!(matches!(swap(&store, put("meta", Some(&foreign), b"three")).await, Swapped::Lost(Some(_))));
        assert_eq!(&*read(&store, "meta").await.expect("it is there").value, b"two");
    });
}

#[test]
fn no_version_comes_twice() {
    run(async {
        let folder = Folder::new();
        let store = folder.open();
        let mut seen = Vec::new();
        for _ in 0..5 {
            let made = applied(&store, put("meta", None, b"same bytes")).await;
            let removed = applied(&store, remove("meta", &made)).await;
            seen.extend([made, removed]);
        }
        drop(store);
        seen.push(applied(&folder.open(), put("meta", None, b"same bytes")).await);
        let numbers: Vec<u64> =
            seen.iter().map(|version| version.as_str().parse().expect("a number")).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    });
}

#[test]
fn two_namespaces_do_not_meet() {
    run(async {
        let folder = Folder::new();
        let (one, two) = (folder.open(), Local::open(folder.file(), "other").expect("it opens"));
        applied(&one, put("meta", None, b"one")).await;
        assert_eq!(read(&two, "meta").await, None);
        applied(&two, put("meta", None, b"two")).await;
        assert_eq!(&*read(&one, "meta").await.expect("it is there").value, b"one");
        assert_eq!(one.generation().await.expect("known"), two.generation().await.expect("known"));
    });
}

#[test]
fn a_watch_begins_with_a_snapshot_and_tells_changes_in_order() {
    run(async {
        let folder = Folder::new();
        let (writer, reader) = (folder.open(), folder.open());
        let first = applied(&writer, put("nodes/a", None, b"1")).await;
        let mut watch = reader.watch().await.expect("it starts").expect("there is one");
        assert_eq!(snapshot(&mut watch).await.entries.len(), 1);
        applied(&writer, put("nodes/b", None, b"2")).await;
        let (at, stored) = changed(&mut watch).await.remove(0);
        assert_eq!((at, &*stored.expect("it is there").value), (key("nodes/b"), b"2".as_slice()));
        applied(&writer, remove("nodes/a", &first)).await;
        assert_eq!(changed(&mut watch).await, [(key("nodes/a"), None)]);
    });
}
