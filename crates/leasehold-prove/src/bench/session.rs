//! One cluster, from its first start to kill -9.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, clock};
use leasehold_chaos::history::History;
use leasehold_chaos::judge;
use leasehold_chaos::measure::{Gaps, Spans};
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_core::store::Key;
use leasehold_core::{GroupName, Moment, NodeName, ShardId};
use leasehold_store::Store;

use super::cost::{Cost, Sizes};
use super::{BenchOptions, Extent, cpu};
use crate::check::Progress;
use crate::cluster::{Cluster, GROUP, Ledger, NodeTemplate, Scratch, refused};

const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long anything may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many shards are moved one by one.
const ONE_BY_ONE: usize = 30;

/// What a cluster showed.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) cold_start: Duration,
    /// One shard at a time, moved by an operator.
    pub(super) planned_one: Spans,
    /// All shards of a node that leaves, and back.
    pub(super) planned_all: Spans,
    /// From SIGTERM until everything ran elsewhere.
    pub(super) handed_over: Option<Duration>,
    pub(super) failover: Spans,
    /// From the first start until nothing moved any more.
    pub(super) start: Cost,
    pub(super) rest: Cost,
    /// How large the records of nodes are at rest, and those of shards.
    pub(super) node_records: Sizes,
    pub(super) shard_records: Sizes,
    /// Promises that were broken meanwhile: must be none.
    pub(super) broken: Vec<String>,
}

pub(super) struct Session<'a> {
    request: &'a BenchOptions,
    ttl: Duration,
    url: String,
    store: Arc<dyn Store>,
    cluster: Cluster,
    ledger: Ledger,
    progress: &'a mut Progress,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        request: &'a BenchOptions,
        template: NodeTemplate,
        scratch: &Scratch,
        folder: &Path,
        progress: &'a mut Progress,
    ) -> Result<Self, Failure> {
        Ok(Session {
            request,
            ttl: template.ttl,
            url: scratch.url.clone(),
            store: scratch.store.clone(),
            cluster: Cluster::new(folder, template)?,
            ledger: Ledger::of(folder),
            progress,
        })
    }

    pub(super) async fn run(mut self) -> Result<Measured, Failure> {
        let began_at = clock::now();
        for _ in 0..self.request.nodes {
            self.cluster.add(&self.url)?;
        }
        self.until_all_run("all shards are owned").await?;
        let cold_start = self.last_start()?.since(began_at);
        self.until_quiet().await?;
        let start = Cost::until(&self.cluster.files()?, clock::now());
        let rest = self.at_rest().await?;
        let listing = self.store.list().await?;
        let one_from = clock::now();
        let (mut all_from, mut killed_at, mut handed_over) = (one_from, one_from, None);
        if self.request.extent == Extent::All {
            self.move_one_by_one().await?;
            all_from = clock::now();
            handed_over = Some(self.hand_over().await?);
            killed_at = self.fail_over().await?;
        }
        self.cluster.end()?;
        let history = self.cluster.history()?;
        // What moves when the bench itself ends is not counted.
        let moved = |from: Moment, to: Moment| {
            Gaps::of(&history, |_, after| (from.as_nanos()..to.as_nanos()).contains(&after.from_ns)).moved
        };
        let (planned_one, planned_all) = (moved(one_from, all_from), moved(all_from, killed_at));
        Ok(Measured {
            cold_start,
            planned_one,
            planned_all,
            handed_over,
            failover: Gaps::of(&history, |_, _| true).killed,
            start,
            rest,
            node_records: Sizes::of(&listing, |key| matches!(key, Key::Node(_))),
            shard_records: Sizes::of(&listing, |key| matches!(key, Key::Shard(_))),
            broken: broken(&history),
        })
    }

    /// An operator pins some shards of the first node to the second, one after the other.
    async fn move_one_by_one(&mut self) -> Result<(), Failure> {
        self.progress.say("moving shards from a to b, one by one");
        let client = Client::open(self.store.clone()).await?;
        let group = GroupName::new(GROUP).expect("a plain word is a name");
        let to = NodeName::new("b").expect("a letter is a name");
        let slots: Vec<u32> = self.ledger.slots_of("a").into_iter().take(ONE_BY_ONE).collect();
        for slot in &slots {
            client.pin(&ShardId::slot(&group, *slot), &to).await?;
            self.until("a pinned shard moved", |session| session.ledger.runs("b", *slot)).await?;
        }
        for slot in &slots {
            client.unpin(&ShardId::slot(&group, *slot)).await?;
        }
        self.until_quiet().await
    }

    /// The first node leaves, and comes back.
    async fn hand_over(&mut self) -> Result<Duration, Failure> {
        self.progress.say("stopping a gracefully, then starting it again");
        let asked_at = clock::now();
        self.cluster.drain(0)?;
        self.until("a has left", |session| !session.cluster.members()[0].is_there()).await?;
        self.until_all_run("the other nodes own all shards").await?;
        let handed_over = self.last_start()?.since(asked_at);
        self.cluster.restart(0)?;
        self.until("a has shards again", |session| session.ledger.owned_by("a") > 0).await?;
        self.until_quiet().await?;
        Ok(handed_over)
    }

    /// The second node is killed.
    async fn fail_over(&mut self) -> Result<Moment, Failure> {
        self.progress.say("killing b (SIGKILL)");
        let killed_at = clock::now();
        self.cluster.kill(1)?;
        self.ledger.update()?;
        self.until_all_run("the other nodes own all shards").await?;
        Ok(killed_at)
    }

    async fn at_rest(&mut self) -> Result<Cost, Failure> {
        self.progress.say(format!("at rest for {} s", self.request.rest_for.as_secs()));
        let used = |cluster: &Cluster| -> Duration {
            cluster.members().iter().filter_map(|member| cpu::used_by(member.pid())).sum()
        };
        let (from, before) = (clock::now(), used(&self.cluster));
        while clock::now() < from + self.request.rest_for {
            self.look().await?;
        }
        let cpu = used(&self.cluster).saturating_sub(before);
        Ok(Cost { cpu, ..Cost::between(&self.cluster.files()?, from, clock::now()) })
    }

    async fn until_all_run(&mut self, what: &str) -> Result<(), Failure> {
        let shards = self.request.shards as usize;
        self.until(what, |session| session.ledger.owned() == shards).await
    }

    /// Waits until nothing has started for a while: long enough for every stabiliser to have let its moves go.
    async fn until_quiet(&mut self) -> Result<(), Failure> {
        let quiet_for = self.ttl + Duration::from_secs(3);
        let began_at = clock::now();
        let (mut starts, mut since) = (self.ledger.starts, began_at);
        while clock::now().since(since) < quiet_for {
            self.look().await?;
            if self.ledger.starts != starts {
                (starts, since) = (self.ledger.starts, clock::now());
            }
            if clock::now().since(began_at) > PATIENCE {
                return Err(self.in_vain("shards stop moving"));
            }
        }
        Ok(())
    }

    async fn until(&mut self, what: &str, reached: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let began_at = clock::now();
        loop {
            self.look().await?;
            if reached(self) {
                return Ok(());
            }
            if clock::now().since(began_at) > PATIENCE.max(self.ttl * 4) {
                return Err(self.in_vain(what));
            }
        }
    }

    fn in_vain(&self, what: &str) -> Failure {
        let why = match self.cluster.store_failures() {
            failures if failures.is_empty() => "run `leasehold doctor`, or try a longer --ttl".to_owned(),
            failures => format!("nodes reported: {failures}; run `leasehold doctor`"),
        };
        let (run, all) = (self.ledger.owned(), self.request.shards);
        Failure::new(
            Code::Failed,
            format!("timed out waiting until {what} ({run} of {all} shards run); {why}"),
        )
    }

    async fn look(&mut self) -> Result<(), Failure> {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(unasked) = self.cluster.look()?.first() {
            return Err(Failure::new(Code::Failed, format!("{unasked}; nothing was measured")));
        }
        if let Some(refusal) = self.cluster.refusal() {
            return Err(refused(&refusal, "nothing was measured"));
        }
        self.ledger.update()?;
        self.progress.status(&format!("{} of {} shards run", self.ledger.owned(), self.request.shards));
        Ok(())
    }

    fn last_start(&self) -> Result<Moment, Failure> {
        let history: History = self.cluster.history()?;
        Ok(Moment::from_nanos(history.runs.iter().map(|run| run.from_ns).max().unwrap_or(0)))
    }
}

/// The promises that were broken. How long the grant of lost work was good is unknown here, because that work checks it only
/// when it starts and when it is told to stop.
fn broken(history: &History) -> Vec<String> {
    let violations = judge::judge(history).into_iter();
    let known = violations.filter(|violation| violation.invariant != judge::STOPPED_BEFORE_DEADLINE);
    known.map(|violation| violation.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: &str, node: &str, epoch: u64, at: u64) -> String {
        format!(
            "{{\"event\":\"{event}\",\"shard\":\"0\",\"node\":\"{node}\",\"epoch\":{epoch},\"at_ns\":{at},\"valid_until_ns\":50,\"ended_ns\":9000000000}}\n"
        )
    }

    #[test]
    fn overlaps_are_told_and_deadlines_that_nobody_knows_are_not() {
        let lost = line("started", "a", 1, 1) + &line("stopped", "a", 1, 2);
        assert_eq!(judge::judge(&History::read([("x", lost.as_str())])).len(), 1);
        assert!(broken(&History::read([("x", lost.as_str())])).is_empty());
        let twice = lost + &line("started", "b", 2, 2);
        assert_eq!(broken(&History::read([("x", twice.as_str())])).len(), 1);
    }
}
