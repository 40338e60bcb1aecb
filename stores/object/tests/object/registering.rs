//! Several that register the same key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use leasehold_servers::Program;
use leasehold_store::conformance::Step;
use leasehold_store::{LeaseState, Registry, StoreErrorKind};

use crate::common::{BUCKET, fresh, open_at, server};
use crate::proxy::Proxy;

/// Both look first, and then both write: no matter who is faster, one of them must hear that it was not registered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_register_a_key_at_once_one_is_told() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    let namespace = fresh("at-once");
    let met = Arc::new(tokio::sync::Barrier::new(2));
    let contender = || {
        let (met, sent) = (met.clone(), Arc::new(AtomicU64::new(1000)));
        let count = sent.clone();
        let step: Step = Arc::new(move || {
            let (met, sent) = (met.clone(), sent.fetch_add(1, Ordering::SeqCst) + 1);
            // The lease, the key as it is, and the key as it shall be.
            async move {
                if sent == 3 {
                    met.wait().await;
                }
            }
            .boxed()
        });
        let proxy = Proxy::stepping(server.port(), Some(step));
        let address = server.address_at(&proxy.endpoint(), BUCKET, "&poll=200ms&timeout=10s");
        (open_at(&address, &namespace), count)
    };
    let ((a, a_sent), (b, b_sent)) = (contender(), contender());
    let lease = a.grant(Duration::from_secs(60)).await.unwrap();
    let other = b.grant(Duration::from_secs(60)).await.unwrap();
    for round in 0..25 {
        let key = if round % 2 == 0 { format!("k{round}") } else { format!("k{}", round - 1) };
        a_sent.store(0, Ordering::SeqCst);
        b_sent.store(0, Ordering::SeqCst);
        let (first, second) = tokio::join!(a.put(&lease, &key, b"a"), b.put(&other, &key, b"b"));
        let won = match (&first, &second) {
            (Ok(LeaseState::Alive), Err(error)) if error.kind == StoreErrorKind::Busy => b"a",
            (Err(error), Ok(LeaseState::Alive)) if error.kind == StoreErrorKind::Busy => b"b",
            both => panic!("round {round}: {both:?}"),
        };
        assert_eq!(a.values(&[key]).await.unwrap(), [Some(won.to_vec())], "round {round}");
    }
}
