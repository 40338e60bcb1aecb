//! Short ways to say what the tests do.

use futures::StreamExt;
use leasehold_store::{Key, Lane, Store, Stored, Swap, Swapped, Version, Watch, WatchEvent};

pub(crate) fn key(text: &str) -> Key {
    text.parse().expect("a key")
}

pub(crate) fn swap(at: &str, expect: Option<&Version>, value: Option<&str>) -> Swap {
    Swap { key: key(at), expect: expect.cloned(), value: value.map(|v| v.as_bytes().into()) }
}

pub(crate) async fn one(store: &dyn Store, wish: Swap) -> Swapped {
    let mut reply = store.swap(Lane::Work, &[wish]).await.expect("the store answers");
    assert_eq!(reply.outcomes.len(), 1);
    reply.outcomes.remove(0)
}

pub(crate) async fn put(store: &dyn Store, at: &str, expect: Option<&Version>, value: &str) -> Version {
    match one(store, swap(at, expect, Some(value))).await {
        Swapped::Applied(version) => version,
        other => panic!("{at} was not written: {other:?}"),
    }
}

pub(crate) async fn get(store: &dyn Store, at: &str) -> Option<Stored> {
    store.read(&[key(at)]).await.expect("the store answers").found.remove(0)
}

pub(crate) async fn text(store: &dyn Store, at: &str) -> Option<String> {
    get(store, at).await.map(|stored| String::from_utf8(stored.value.to_vec()).expect("text"))
}

/// The next event, or `None` when nothing waits to be told.
pub(crate) async fn next(watch: &mut Watch) -> Option<WatchEvent> {
    match futures::poll!(watch.next()) {
        std::task::Poll::Ready(event) => event,
        std::task::Poll::Pending => None,
    }
}
