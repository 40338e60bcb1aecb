//! Grants without a node, as tests of programs use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::testing::CUT_OFF_AFTER;
use leasehold::{BoxError, Epoch, Grant, LostReason, Moment, Outcome, StopReason};

const SECOND: Duration = Duration::from_secs(1);

/// Counts as flushed what it has done, unless the lease was lost.
async fn consume(grant: Grant, flushed: Arc<AtomicU32>) -> Outcome {
    let mut done = 0;
    while grant.stopping().run_until_cancelled(tokio::time::sleep(SECOND)).await.is_some() {
        grant.check()?;
        done += 1;
    }
    if grant.stop_reason().is_some_and(StopReason::is_planned) {
        flushed.store(done, Ordering::Relaxed);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_planned_stop_leaves_time_to_flush_and_a_lost_lease_does_not() {
    for (planned, expected) in [(true, 3), (false, 0)] {
        let flushed = Arc::new(AtomicU32::new(0));
        let (grant, lease) = Grant::for_test("orders/3", 7, 60 * SECOND);
        assert_eq!((grant.slot(), grant.epoch()), (Some(3), Epoch(7)));
        let playing = async {
            tokio::time::sleep(SECOND * 7 / 2).await;
            if planned {
                lease.stop(StopReason::Moving)
            } else {
                lease.lose()
            }
            assert_eq!(grant.check().is_ok(), planned);
        };
        let (outcome, ()) = tokio::join!(lease.run(|grant| consume(grant, flushed.clone())), playing);
        outcome.unwrap();
        assert_eq!(flushed.load(Ordering::Relaxed), expected);
        assert!(grant.is_lost(), "its work has ended");
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_moves_with_renewals_and_passes_without_them() {
    let (grant, lease) = Grant::for_test("orders/3", 7, 10 * SECOND);
    tokio::time::sleep(8 * SECOND).await;
    assert_eq!(grant.remaining(), 2 * SECOND);
    lease.renew(10 * SECOND).unwrap();
    assert_eq!(grant.deadline(), lease.clock().now() + 10 * SECOND);
    lease.renew(SECOND).unwrap();
    assert_eq!(grant.remaining(), 10 * SECOND, "a deadline only moves forward");
    assert_eq!(grant.lost().await.why, LostReason::Session);
    assert_eq!((grant.stop_reason(), grant.deadline()), (Some(StopReason::Detached), Moment::ZERO));
    assert_eq!(lease.renew(SECOND).unwrap_err().epoch, Epoch(7));
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_return_is_cut_off_after_a_loss_and_never_in_a_planned_stop() {
    async fn stubborn(_: Grant) {
        std::future::pending().await
    }
    let (_grant, lease) = Grant::for_test("orders/3", 7, 10 * SECOND);
    let began_at = lease.clock().now();
    lease.run(stubborn).await.expect_err("nobody renewed");
    assert_eq!(lease.clock().now().since(began_at), 10 * SECOND + CUT_OFF_AFTER);

    let (_grant, lease) = Grant::for_test("orders/3", 8, 3600 * SECOND);
    lease.stop(StopReason::Draining);
    let running = lease.run(stubborn);
    assert!(tokio::time::timeout(60 * SECOND, running).await.is_err(), "it may take its time");
    let playing = async {
        tokio::time::sleep(SECOND).await;
        lease.cut_off();
    };
    let (outcome, ()) = tokio::join!(lease.run(stubborn), playing);
    assert!(outcome.unwrap_err().to_string().contains("cut off"));

    for why in [StopReason::NotOurs, StopReason::Detached] {
        let (_grant, lease) = Grant::for_test("orders/3", 9, 3600 * SECOND);
        let began_at = lease.clock().now();
        lease.stop(why);
        lease.run(stubborn).await.expect_err("the shard is another's");
        assert_eq!(lease.clock().now().since(began_at), CUT_OFF_AFTER, "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_grant_owns_is_waited_for_and_its_failure_is_the_works() {
    let (grant, lease) = Grant::for_test("orders/3", 7, 60 * SECOND);
    let flushed = Arc::new(AtomicBool::new(false));
    let (seen, began_at) = (flushed.clone(), lease.clock().now());
    let work = |grant: Grant| async move {
        grant.spawn(async move {
            tokio::time::sleep(5 * SECOND).await;
            seen.store(true, Ordering::Relaxed);
        })?;
        Ok::<_, BoxError>(())
    };
    lease.run(work).await.unwrap();
    assert!(flushed.load(Ordering::Relaxed) && grant.is_lost());
    assert_eq!(lease.clock().now().since(began_at), 5 * SECOND);

    let (_grant, lease) = Grant::for_test("orders/3", 8, 60 * SECOND);
    let work = |grant: Grant| async move {
        grant.spawn(async { panic!("a part is broken") })?;
        grant.stopped().await;
        assert_eq!(grant.stop_reason(), Some(StopReason::Failed));
        Ok::<_, BoxError>(())
    };
    assert_eq!(lease.run(work).await.unwrap_err().to_string(), "panicked: a part is broken");
}

#[tokio::test(start_paused = true)]
async fn work_that_steps_down_is_told_to_stop() {
    let (_grant, lease) = Grant::for_test("boss/0", 7, 60 * SECOND);
    assert_eq!(lease.stepped_down(), None);
    let work = |grant: Grant| async move {
        grant.step_down(30 * SECOND).unwrap();
        grant.stopped().await;
        assert_eq!(grant.stop_reason(), Some(StopReason::SteppedDown));
        assert!(grant.check().is_ok(), "the shard is held until this returns");
    };
    lease.run(work).await.unwrap();
    assert_eq!(lease.stepped_down(), Some(30 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn without_its_lease_a_grant_is_lost() {
    let (grant, lease) = Grant::for_test("orders/3", 7, 3600 * SECOND);
    let task = grant.spawn(std::future::pending::<()>()).unwrap();
    drop(lease);
    task.await.expect_err("it is cut off");
    assert!(grant.is_lost());
}
