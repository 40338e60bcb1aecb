//! What programs write: handlers of every kind, why they are told to stop, and how a program ends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{BoxError, Error, Finish, Grant, Group, Handler, Notice, StopReason};

use crate::bench::{Bench, cut, until};

/// What handlers have done, in order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    fn has(&self, text: &str) -> bool {
        self.0.lock().unwrap().iter().any(|line| line == text)
    }
}

/// A handler with state of its own, which fails with a chain of causes.
struct Failing(Diary);

#[derive(Debug, thiserror::Error)]
#[error("cannot write the order")]
struct OrderError(#[source] std::io::Error);

impl Handler for Failing {
    type Output = Result<(), OrderError>;

    async fn run(&self, grant: Grant) -> Self::Output {
        self.0.note(format!("type {}", grant.shard()));
        Err(OrderError(std::io::Error::other("disk full")))
    }
}

async fn with_anyhow(grant: Grant) -> anyhow::Result<()> {
    grant.check()?;
    anyhow::bail!("from anyhow")
}

#[tokio::test(start_paused = true)]
async fn handlers_return_nothing_or_any_error_and_all_causes_are_told() {
    let bench = Bench::new();
    let diary = Diary::default();
    let in_closure = diary.clone();
    let node = bench
        .node("a")
        .group(Group::leader("closure"), move |grant| {
            let diary = in_closure.clone();
            async move {
                diary.note("closure");
                grant.stopped().await;
            }
        })
        .group(Group::leader("type"), Failing(diary.clone()).into_fn())
        .group(Group::leader("anyhow"), with_anyhow)
        .start()
        .await
        .unwrap();
    let mut events = node.events();
    let mut errors = Vec::new();
    while errors.len() < 2 {
        if let Notice::WorkEnded { error: Some(error), .. } = &events.next().await.unwrap().notice
            && !errors.contains(error)
        {
            errors.push(error.clone());
        }
    }
    errors.sort();
    assert_eq!(errors, ["cannot write the order: disk full", "from anyhow"]);
    until("all ran", 5, || diary.has("closure") && diary.has("type type/0")).await;
    node.leave().await;
}

/// Notes why it was told to stop, after it has stopped.
fn tells_why(diary: Diary) -> impl Fn(Grant) -> futures::future::BoxFuture<'static, Result<(), BoxError>> {
    move |grant| {
        let diary = diary.clone();
        Box::pin(async move {
            assert_eq!(grant.stop_reason(), None);
            grant.stopped().await;
            let why = grant.stop_reason().expect("it was told to stop");
            diary.note(format!("{} {why} planned={}", grant.shard(), why.is_planned()));
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_tells_a_planned_stop_from_a_lost_lease() {
    let bench = Bench::new();
    let (left, cut_off) = (Diary::default(), Diary::default());
    let node = bench.node("a").group(Group::leader("boss"), tells_why(left.clone())).start().await.unwrap();
    until("it runs", 5, || node.owned().len() == 1).await;
    assert_eq!(node.leave().await, Finish::Clean);
    assert!(left.has("boss/0 draining planned=true"), "{:?}", left.0);

    let link = bench.link();
    let node = bench.node_on("b", link.clone());
    let node = node.group(Group::leader("boss"), tells_why(cut_off.clone())).start().await.unwrap();
    until("it runs", 60, || node.owned().len() == 1).await;
    cut(&link);
    until("it is lost", 30, || cut_off.has("boss/0 detached planned=false")).await;
}

#[tokio::test(start_paused = true)]
async fn siblings_of_failed_work_are_told_that_it_failed() {
    let bench = Bench::new();
    let diary = Diary::default();
    let node = bench
        .node("a")
        .group(Group::leader("boss"), tells_why(diary.clone()))
        .group(Group::leader("boss"), |_| async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Err("broken")
        })
        .start()
        .await
        .unwrap();
    until("the sibling stops", 5, || diary.has("boss/0 failed planned=true")).await;
    assert!(StopReason::Failed.is_planned());
    node.leave().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_says_all_that_there_is_and_the_difference_is_worked_out() {
    let bench = Bench::new();
    let worker = bench.witness.worker("a");
    let node = bench
        .node("a")
        .group(Group::named("tenants"), worker)
        .hold(Group::numbered("orders", 2))
        .start()
        .await
        .unwrap();
    let names = |node: &leasehold::Node| {
        let owned = node.owned();
        let tenants = owned.iter().filter(|shard| shard.group.as_str() == "tenants");
        tenants.map(|shard| shard.name.to_string()).collect::<Vec<_>>()
    };
    node.set_engaged("tenants", ["acme", "globex"]).unwrap();
    until("both run", 10, || names(&node) == ["acme", "globex"]).await;
    let kept = node.grant(&"tenants/globex".parse().unwrap()).unwrap();
    node.engage(&"tenants/hooli".parse().unwrap()).unwrap();
    node.set_engaged("tenants", vec!["globex".to_owned(), "initech".to_owned()]).unwrap();
    until("the difference", 10, || names(&node) == ["globex", "initech"]).await;
    assert!(kept.check().is_ok(), "what stays is not started again");
    let error = node.set_engaged("tenants", ["", "a\nb", "fine"]).unwrap_err();
    let Error::Config(problems) = &error else { panic!("{error}") };
    assert_eq!(problems.len(), 2, "{error}");
    assert!(matches!(node.set_engaged("orders", ["x"]), Err(Error::Numbered { slots: 2, .. })));
    assert!(matches!(node.set_engaged("nope", ["x"]), Err(Error::NotServed(_))));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(names(&node), ["globex", "initech"], "an error changes nothing");
    node.set_engaged("tenants", [""; 0]).unwrap();
    until("none is left", 10, || names(&node).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_leaves_on_a_signal_and_registers_nothing_after_it() {
    let bench = Bench::new();
    let worker = bench.witness.worker("a");
    let node = bench.node("a").group(Group::numbered("orders", 4), worker).start().await.unwrap();
    until("all run", 5, || bench.witness.at_work("a") == 4).await;
    let signal = tokio::time::sleep(Duration::from_secs(3));
    let began_at = bench.clock.now();
    assert_eq!(node.leave_on(signal).await, Finish::Clean);
    let took = bench.clock.now().since(began_at);
    assert!(took >= Duration::from_secs(3) && took < Duration::from_secs(5), "{took:?}");
    assert_eq!(bench.witness.at_work("a"), 0);
    assert!(matches!(node.register("k", "v").await, Err(Error::Left)));
    assert!(matches!(node.set_weight(1), Err(Error::Left)));
    // It has left: there is nothing to wait for.
    assert_eq!(node.leave_on(std::future::pending::<()>()).await, Finish::Clean);
}

/// The real signal, which the kernel sends to this process.
#[cfg(unix)]
#[tokio::test]
async fn a_real_sigterm_completes_the_signal() {
    let signal = leasehold::shutdown_signal();
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM).unwrap();
    tokio::time::timeout(Duration::from_secs(10), signal).await.expect("the signal was caught");
}

#[tokio::test(start_paused = true)]
async fn work_that_steps_down_goes_to_another_node_and_may_come_back_after_the_pause() {
    let bench = Bench::new();
    let diary = Diary::default();
    let lead = |name: &'static str| {
        let diary = diary.clone();
        move |grant: Grant| {
            let diary = diary.clone();
            async move {
                diary.note(format!("{name} leads"));
                if name == "a" && grant.epoch().0 < 3 {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    grant.step_down(Duration::from_secs(60)).unwrap();
                    grant.stopped().await;
                    diary.note(format!("{name} stops: {}", grant.stop_reason().unwrap()));
                    assert_eq!(grant.check(), Ok(()), "the shard is held until the work has returned");
                }
                grant.stopped().await;
            }
        }
    };
    let a = bench.node("a").group(Group::leader("boss"), lead("a")).start().await.unwrap();
    until("a leads", 10, || diary.has("a leads")).await;
    let b = bench.node("b").group(Group::leader("boss"), lead("b")).start().await.unwrap();
    until("b leads", 60, || diary.has("b leads")).await;
    assert!(diary.has("a stops: stepped down"));
    assert!(a.owned().is_empty() && b.owned().len() == 1);
    b.leave().await;
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(a.owned().len(), 1, "after the pause it may lead again");
    a.leave().await;
}
