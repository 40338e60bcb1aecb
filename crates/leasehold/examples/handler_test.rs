//! How to test a handler, in virtual time and without a node: a planned stop, a lost lease, work that ignores both, and a late
//! write. In your crate, the four functions are `#[tokio::test(start_paused = true)]`; `docs/testing.md` explains them.
//!
//! `cargo test -p leasehold --example handler_test` runs them as tests, and `cargo run` one after the other, in a few milliseconds.

mod sink;

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Grant, Outcome, StopReason};
use sink::Sink;

/// The handler under test: counts for a second, writes what it counted, and so on.
async fn count(grant: Grant, sink: Arc<Sink>) -> Outcome {
    let mut counted = 0;
    let mut events = tokio::time::interval(Duration::from_millis(100));
    while grant.stopping().run_until_cancelled(events.tick()).await.is_some() {
        counted += 1;
        if counted == 10 {
            grant.check()?;
            sink.add(grant.shard(), grant.epoch(), counted)?;
            counted = 0;
        }
    }
    if grant.stop_reason().is_some_and(StopReason::is_planned) {
        grant.check()?;
        sink.add(grant.shard(), grant.epoch(), counted)?;
    }
    Ok(())
}

/// What the sink has for the shard, as a later holder sees it.
fn written(sink: &Sink) -> u64 {
    sink.add(&"orders/3".parse().expect("a shard"), leasehold::Epoch(1000), 0).expect("nobody is later")
}

#[cfg_attr(test, tokio::test(start_paused = true))]
async fn a_planned_stop_flushes_what_was_counted() {
    let sink = Arc::new(Sink::default());
    let (grant, lease) = Grant::for_test("orders/3", 7, Duration::from_secs(60));
    let playing = async {
        tokio::time::sleep(Duration::from_millis(2450)).await;
        lease.stop(StopReason::Moving);
        assert!(grant.check().is_ok(), "the shard is held until the handler has returned");
    };
    let (outcome, ()) = tokio::join!(lease.run(|grant| count(grant, sink.clone())), playing);
    outcome.expect("a planned stop is no failure");
    assert_eq!(written(&sink), 25, "20 in two batches, and 5 that were flushed");
}

#[cfg_attr(test, tokio::test(start_paused = true))]
async fn a_lost_lease_writes_nothing_more() {
    let sink = Arc::new(Sink::default());
    let (grant, lease) = Grant::for_test("orders/3", 7, Duration::from_secs(2));
    // One renewal comes, and then no more: the lease is lost 3.05 seconds after the start.
    let playing = async {
        tokio::time::sleep(Duration::from_millis(1050)).await;
        lease.renew(Duration::from_secs(2)).expect("it is still valid");
    };
    let (outcome, ()) = tokio::join!(lease.run(|grant| count(grant, sink.clone())), playing);
    outcome.expect("the handler noticed by itself");
    assert_eq!(grant.stop_reason(), Some(StopReason::Detached));
    assert_eq!(written(&sink), 30, "the one that was counted after the last batch is dropped");
}

#[cfg_attr(test, tokio::test(start_paused = true))]
async fn work_that_ignores_a_lost_lease_is_cut_off() {
    let (_grant, lease) = Grant::for_test("orders/3", 7, Duration::from_secs(10));
    let began_at = lease.clock().now();
    let stubborn = |_: Grant| std::future::pending::<()>();
    lease.run(stubborn).await.expect_err("it never returns by itself");
    let took = lease.clock().now().since(began_at);
    assert_eq!(took, Duration::from_secs(10) + leasehold::testing::CUT_OFF_AFTER);
}

#[cfg_attr(test, tokio::test(start_paused = true))]
async fn the_sink_refuses_a_late_writer() {
    let sink = Arc::new(Sink::default());
    let (first, _lost) = Grant::for_test("orders/3", 7, Duration::from_secs(60));
    let (second, _lease) = Grant::for_test("orders/3", 8, Duration::from_secs(60));
    sink.add(second.shard(), second.epoch(), 1).expect("the newest holder");
    sink.add(first.shard(), first.epoch(), 1).expect_err("a write that was sent in time, and arrived late");
}

#[cfg(not(test))]
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    a_planned_stop_flushes_what_was_counted().await;
    a_lost_lease_writes_nothing_more().await;
    work_that_ignores_a_lost_lease_is_cut_off().await;
    the_sink_refuses_a_late_writer().await;
    println!("four tests passed");
}
