//! What happens to a shard whose handler fails or finishes: the policies of its group.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{
    Client, ClientOptions, Epoch, Error, FailurePolicy, FinishPolicy, Grant, Group, Node, Notice, Outcome,
    ShardId,
};

use crate::bench::{Bench, until};

fn shard(text: &str) -> ShardId {
    text.parse().unwrap()
}

/// A handler that fails while its downstream is away. Its starts are counted.
#[derive(Clone, Default)]
struct Downstream {
    starts: Arc<AtomicU32>,
    away: Arc<AtomicU32>,
}

impl Downstream {
    fn starts(&self) -> u32 {
        self.starts.load(Ordering::Relaxed)
    }

    /// It fails this many more times.
    fn fails(&self, times: u32) {
        self.away.store(times, Ordering::Relaxed);
    }

    fn handler(
        &self,
        bench: &Bench,
        node: &'static str,
    ) -> impl Fn(Grant) -> WorkFuture + Send + Sync + 'static {
        let (this, witness) = (self.clone(), bench.witness.clone());
        move |grant| {
            let (this, witness) = (this.clone(), witness.clone());
            Box::pin(async move {
                let _at_work = witness.begin(node, &grant);
                this.starts.fetch_add(1, Ordering::Relaxed);
                let fails =
                    this.away.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                if fails.is_ok() {
                    return Err("connection refused".into());
                }
                grant.stopped().await;
                Ok(())
            })
        }
    }
}

type WorkFuture = std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>>;

async fn quarantined(node: &Node) {
    let mut events = node.events();
    while !matches!(events.next().await.unwrap().notice, Notice::Quarantined { .. }) {}
}

async fn client(bench: &Bench) -> Client {
    let options = ClientOptions { clock: bench.clock.clone(), ..ClientOptions::default() };
    Client::open_with(bench.store(), options).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn by_default_an_outage_of_an_hour_heals_by_itself() {
    let bench = Bench::new();
    let downstream = Downstream::default();
    downstream.fails(u32::MAX);
    let node = bench.node("a").group(Group::leader("boss"), downstream.handler(&bench, "a"));
    let node = node.start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let tries = downstream.starts();
    assert!((100..200).contains(&tries), "one try about every 30 s, not {tries} in an hour");
    downstream.fails(0);
    until("it runs", 40, || bench.witness.at_work("a") == 1).await;
    assert_eq!(downstream.starts(), tries + 1);
    assert_eq!(node.view().problems, []);
    bench.witness.assert_no_overlap();
}

#[tokio::test(start_paused = true)]
async fn work_that_fails_starts_again_with_a_higher_epoch_until_it_is_quarantined() {
    let bench = Bench::new();
    let tries = Arc::new(AtomicU32::new(0));
    let counted = tries.clone();
    let witness = bench.witness.clone();
    let boss = Group::leader("boss").on_failure(FailurePolicy::quarantine(3));
    let node = bench.node("a").group(boss, move |grant| {
        let (counted, witness) = (counted.clone(), witness.clone());
        async move {
            let _at_work = witness.begin("a", &grant);
            match counted.fetch_add(1, Ordering::Relaxed) {
                0 => panic!("first"),
                _ => Err("again"),
            }
        }
    });
    let node = node.start().await.unwrap();
    quarantined(&node).await;
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    assert!(bench.witness.epoch(&shard("boss/0")).unwrap() >= Epoch(3));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(tries.load(Ordering::Relaxed), 3, "it is held back");
    node.unquarantine(&shard("boss/0")).unwrap();
    until("it runs once more", 60, || tries.load(Ordering::Relaxed) > 3).await;
    bench.witness.assert_no_overlap();
}

#[tokio::test(start_paused = true)]
async fn a_whole_group_is_let_go_at_once() {
    let bench = Bench::new();
    let (orders, mails) = (Downstream::default(), Downstream::default());
    orders.fails(8);
    mails.fails(1);
    let quarantine = FailurePolicy::quarantine(1);
    let node = bench
        .node("a")
        .group(Group::numbered("orders", 8).on_failure(quarantine), orders.handler(&bench, "a"))
        .group(Group::leader("mails").on_failure(quarantine), mails.handler(&bench, "a"))
        .start()
        .await
        .unwrap();
    until("all are quarantined", 10, || node.view().problems.len() == 9).await;
    let client = client(&bench).await;
    let unknown = client.unquarantine_group("ordres").await.unwrap_err();
    assert!(matches!(&unknown, Error::UnknownGroup(name) if name == "ordres"), "{unknown}");
    let released = client.unquarantine_group("orders").await.unwrap();
    assert_eq!(released.len(), 8, "{released:?}");
    until("they run", 10, || bench.witness.at_work("a") == 8).await;
    until("the other group is left alone", 5, || node.view().problems.len() == 1).await;
    assert_eq!(mails.starts(), 1);
    node.unquarantine_group("mails").unwrap();
    until("it runs as well", 10, || bench.witness.at_work("a") == 9).await;
    until("nothing is quarantined", 5, || node.view().problems.is_empty()).await;
    assert_eq!(client.unquarantine_all().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_half_open_quarantine_tries_once_after_each_pause_and_then_elsewhere() {
    let bench = Bench::new();
    let pause = Duration::from_secs(300);
    let boss = || Group::leader("boss").on_failure(FailurePolicy::half_open(2, pause));
    // Something is wrong with node a alone.
    let (broken, fine) = (Downstream::default(), Downstream::default());
    broken.fails(u32::MAX);
    let a = bench.node("a").group(boss(), broken.handler(&bench, "a")).start().await.unwrap();
    until("it is quarantined", 10, || !a.view().problems.is_empty()).await;
    assert_eq!(broken.starts(), 2);
    tokio::time::sleep(pause * 3).await;
    assert_eq!(broken.starts(), 5, "alone it tries once after each pause");
    let b = bench.node("b").group(boss(), fine.handler(&bench, "b")).start().await.unwrap();
    until("node b runs it", 700, || bench.witness.at_work("b") == 1).await;
    assert_eq!((broken.starts(), fine.starts()), (6, 1), "one more try here, then one there");
    until("it is as good as any other", 70, || b.view().problems.is_empty()).await;
    bench.witness.assert_no_overlap();
}

#[tokio::test(start_paused = true)]
async fn work_that_finishes_runs_again_or_once_per_holder_or_once_for_all() {
    let bench = Bench::new();
    let runs: [Arc<AtomicU32>; 3] = Default::default();
    let count = |which: usize| {
        let runs = runs[which].clone();
        move |_: Grant| {
            runs.fetch_add(1, Ordering::Relaxed);
            async {}
        }
    };
    let start = |name: &str| {
        let group = |name: &str, policy| Group::leader(name).on_finish(policy);
        bench
            .node(name)
            .group(group("again", FinishPolicy::Restart), count(0))
            .group(group("once", FinishPolicy::Once), count(1))
            .group(group("done", FinishPolicy::Done), count(2))
            .start()
    };
    let ran = || runs.each_ref().map(|runs| runs.load(Ordering::Relaxed));
    let a = start("a").await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let [again, once, done] = ran();
    assert!(again > 3, "{again}");
    assert_eq!((once, done), (1, 1));
    let b = start("b").await.unwrap();
    b.attached().await.unwrap();
    a.leave().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let [_, once, done] = ran();
    assert_eq!((once, done), (2, 1), "the next holder runs the one once more, and not the other");
    assert_eq!(b.view().problems, []);
    b.unquarantine(&shard("done/0")).unwrap();
    until("it runs once more", 5, || ran()[2] == 2).await;
}
