//! Runs the plan: starts the nodes, breaks them as planned, heals them, and ends them.

use std::io;
use std::path::Path;
use std::time::Duration;

use leasehold::{Client, clock};
use leasehold_chaos::proxy::{self, Existing, Mode};
use leasehold_chaos::rng::Rng;
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_core::{Moment, NodeName};
use serde_json::json;

use super::fault::Fault;
use super::lock::Lock;
use super::operator::{Operator, OperatorRequest};
use super::plan::Plan;
use super::progress::Progress;
use super::scenario::Scenario;
use super::schedule::Step;
use crate::cluster::{Cluster, Fate, Kind, Ledger, Route, Scratch, refused};

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a cluster may take to own everything before anything is broken.
const START_PATIENCE: Duration = Duration::from_secs(120);

/// What happened, in addition to what the workers recorded.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The history, each file with its name.
    pub(super) files: Vec<(String, String)>,
    pub(super) began_at: Moment,
    /// From the first process to the last shard.
    pub(super) owned_first_after: Duration,
    pub(super) broken_from: Moment,
    pub(super) healed_at: Moment,
    pub(super) ended_at: Moment,
    /// Between these the cluster was left alone.
    pub(super) rest: (Moment, Moment),
    /// When every node was attached and every shard ran, if that came in time.
    pub(super) converged_after: Option<Duration>,
    /// Nodes that never came back, and how they stand.
    pub(super) astray: Vec<String>,
    /// Scenarios: when the node that was cut off had its fair share again.
    pub(super) share_back_after: Option<Duration>,
    /// Nodes that ended by themselves.
    pub(super) unasked: Vec<String>,
}

pub(super) struct Trial<'a> {
    plan: &'a Plan,
    cluster: Cluster,
    ledger: Ledger,
    routes: Vec<Route>,
    operator: Operator,
    file: Option<std::path::PathBuf>,
    lock: Option<Lock>,
    /// Nodes to start again as soon as they have exited.
    returning: Vec<usize>,
    unasked: Vec<String>,
    /// How nodes stood when that was last said.
    said: Vec<String>,
    progress: &'a mut Progress,
}

impl<'a> Trial<'a> {
    pub(super) async fn prepare(
        plan: &'a Plan,
        scratch: &Scratch,
        folder: &Path,
        progress: &'a mut Progress,
    ) -> Result<Self, Failure> {
        let routes = (0..plan.nodes).map(|_| Route::to(&scratch.url, &scratch.kind));
        let routes = routes.collect::<io::Result<Vec<_>>>()?;
        Ok(Trial {
            plan,
            cluster: Cluster::new(folder, plan.template.clone())?,
            ledger: Ledger::of(folder),
            routes,
            operator: Operator::of(Client::open(scratch.store.clone()).await?),
            file: match &scratch.kind {
                Kind::File(path) => Some(path.clone()),
                Kind::Network { .. } | Kind::Via { .. } | Kind::Other(_) => None,
            },
            lock: None,
            returning: Vec::new(),
            unasked: Vec::new(),
            said: Vec::new(),
            progress,
        })
    }

    pub(super) async fn run(mut self) -> Result<Outcome, Failure> {
        let began_at = clock::now();
        for place in 0..self.plan.nodes {
            self.cluster.add(&self.routes[place].url)?;
        }
        let owned_first_after = self.until_all_owned(began_at).await?;
        self.progress.say(format!("all {} shards run", self.plan.template.shards));
        if self.plan.scenario.is_some() {
            self.until_quiet(self.stabilisers()).await?;
            self.progress.say("no more moves");
        }
        let broken_from = clock::now();
        self.break_things(broken_from).await?;
        self.heal().await?;
        let healed_at = clock::now();
        self.cluster.note("healed", healed_at, json!({}))?;
        self.progress.say("all faults ended");
        let converged_after = self.until_converged(healed_at).await?;
        let share_back_after = match self.plan.scenario {
            Some(Scenario::CutOff | Scenario::Blip) => self.until_fair_share(healed_at).await?,
            Some(Scenario::Outage) => {
                // Whatever the wrong node took is moved later, and counts: moves freeze for two ttls when nodes vanish.
                self.until_quiet(self.plan.template.ttl * 2 + self.stabilisers()).await?;
                self.progress.say("no more moves");
                None
            }
            None => None,
        };
        let astray = self.astray();
        let rest = self.rest().await?;
        self.cluster.end()?;
        Ok(Outcome {
            files: self.cluster.files()?,
            began_at,
            owned_first_after,
            broken_from,
            healed_at,
            ended_at: clock::now(),
            rest,
            converged_after,
            astray,
            share_back_after,
            unasked: self.unasked,
        })
    }

    /// Begins and ends every step when its time has come.
    async fn break_things(&mut self, began_at: Moment) -> Result<(), Failure> {
        let mut changes: Vec<(Duration, bool, Step)> = Vec::new();
        for step in &self.plan.steps {
            changes.push((step.from, true, *step));
            changes.push((step.until, false, *step));
        }
        changes.sort_by_key(|(at, begins, _)| (*at, *begins));
        for (at, begins, step) in changes {
            self.watch_until(began_at + at).await?;
            let phase = if begins { "begins" } else { "ends" };
            let node = match step.fault {
                Fault::Lock => "store".to_owned(),
                _ => self.cluster.members()[step.node].name.clone(),
            };
            let told = json!({"fault": step.fault.as_str(), "on": node, "phase": phase});
            self.cluster.note("fault", clock::now(), told)?;
            if begins {
                let span = (step.until - step.from).as_millis();
                self.progress.say(format!("{node}: {} for {span} ms", step.fault.description()));
                self.begin(&step)?;
            } else {
                self.end(&step)?;
            }
        }
        self.watch_until(began_at + self.plan.run_for).await
    }

    fn begin(&mut self, step: &Step) -> Result<(), Failure> {
        match step.fault {
            Fault::Kill => self.cluster.kill(step.node)?,
            Fault::Stop => self.cluster.pause(step.node)?,
            Fault::Restart => self.cluster.drain(step.node)?,
            Fault::Drain => self.operator.send(OperatorRequest::Drain(self.name(step.node)?)),
            Fault::Lock => self.lock = self.file.as_deref().map(Lock::hold).transpose()?,
            Fault::Cut | Fault::Stall | Fault::OneWay | Fault::Delay | Fault::Reset => {
                self.set_mode(step.node, self.mode(step))?;
            }
        }
        Ok(())
    }

    fn end(&mut self, step: &Step) -> Result<(), Failure> {
        match step.fault {
            Fault::Kill | Fault::Restart => self.returning.push(step.node),
            Fault::Stop => self.cluster.resume(step.node)?,
            Fault::Drain => self.operator.send(OperatorRequest::Undrain(self.name(step.node)?)),
            Fault::Lock => self.lock = None,
            Fault::Cut | Fault::Stall | Fault::OneWay | Fault::Delay | Fault::Reset => {
                self.set_mode(step.node, Mode::Pass)?;
            }
        }
        Ok(())
    }

    fn mode(&self, step: &Step) -> Mode {
        let mut rng = Rng::of(step.flavour);
        match step.fault {
            Fault::Cut if rng.roll(2) == 0 => Mode::Cut(Existing::Silent),
            Fault::Cut => Mode::Cut(Existing::Reset),
            Fault::OneWay if rng.roll(2) == 0 => Mode::OneWay { lost: proxy::Direction::ToStore },
            Fault::OneWay => Mode::OneWay { lost: proxy::Direction::FromStore },
            // A try may take a tenth of the ttl: together both ways are sometimes below that, sometimes above.
            Fault::Delay => {
                let mut part = || self.plan.template.ttl * rng.between(1, 8) as u32 / 100;
                Mode::Delay { to_store: part(), from_store: part() }
            }
            Fault::Reset => Mode::Reset,
            _ => Mode::Stall,
        }
    }

    fn set_mode(&self, node: usize, mode: Mode) -> io::Result<()> {
        self.routes[node].proxy.as_ref().map_or(Ok(()), |proxy| proxy.set(mode))
    }

    fn name(&self, node: usize) -> Result<NodeName, Failure> {
        NodeName::new(&self.cluster.members()[node].name)
            .map_err(|error| Failure::new(Code::Failed, error.to_string()))
    }

    /// All steps end by themselves; what is left is to see that every node is there.
    async fn heal(&mut self) -> Result<(), Failure> {
        self.returning.clear();
        self.lock = None;
        for place in 0..self.plan.nodes {
            self.set_mode(place, Mode::Pass)?;
            self.cluster.resume(place)?;
            if self.cluster.members()[place].fate != Fate::Running {
                self.returning.push(place);
            }
        }
        while !self.returning.is_empty() || !self.operator.is_done() {
            self.look().await?;
        }
        Ok(())
    }

    async fn watch_until(&mut self, at: Moment) -> Result<(), Failure> {
        while clock::now() < at {
            self.look().await?;
        }
        Ok(())
    }

    async fn look(&mut self) -> Result<(), Failure> {
        tokio::time::sleep(LOOK_EVERY).await;
        self.unasked.extend(self.cluster.look()?);
        self.ledger.update()?;
        let gone = |cluster: &Cluster, place: usize| !cluster.members()[place].is_there();
        let ready: Vec<usize> =
            self.returning.iter().copied().filter(|place| gone(&self.cluster, *place)).collect();
        for place in ready {
            self.returning.retain(|waiting| *waiting != place);
            self.cluster.restart(place)?;
            self.progress.say(format!("{}: started again", self.cluster.members()[place].name));
        }
        self.progress.status(&format!(
            "{} of {} shards run, {} starts",
            self.ledger.owned(),
            self.plan.template.shards,
            self.ledger.starts
        ));
        if self.plan.scenario == Some(Scenario::Outage) {
            self.say_standings();
        }
        Ok(())
    }

    /// Prints every change of a node's session state, and how many shards each node runs then.
    fn say_standings(&mut self) {
        let standings = self.standings();
        if standings != self.said {
            let members = self.cluster.members().iter();
            let words = members.zip(&standings).map(|(member, session_state)| {
                format!("{session_state} with {} shards", self.ledger.owned_by(&member.name))
            });
            let words = words.collect::<Vec<_>>().join(", ");
            self.progress.say(words);
            self.said = standings;
        }
    }

    async fn until_all_owned(&mut self, began_at: Moment) -> Result<Duration, Failure> {
        loop {
            self.look().await?;
            let waited = clock::now().since(began_at);
            if self.ledger.owned() == self.plan.template.shards as usize {
                return Ok(waited);
            }
            if let Some(unasked) = self.unasked.first() {
                return Err(Failure::new(
                    Code::Failed,
                    format!("{unasked}; the check could not be completed"),
                ));
            }
            if let Some(refusal) = self.cluster.refusal() {
                return Err(refused(&refusal, "the check could not be completed"));
            }
            if waited > START_PATIENCE {
                let standings = self.standings().join(", ");
                let why = match self.cluster.store_failures() {
                    failures if failures.is_empty() => "try a longer --ttl, or `leasehold doctor`".to_owned(),
                    failures => format!("nodes reported: {failures}; run `leasehold doctor`"),
                };
                let message = format!(
                    "only {} of {} shards run {} s after the start, before any fault ({standings}); the check could not be completed; {why}",
                    self.ledger.owned(),
                    self.plan.template.shards,
                    waited.as_secs()
                );
                return Err(Failure::new(Code::Failed, message));
            }
        }
    }

    /// For how long a shard that has just started stays where it is.
    fn stabilisers(&self) -> Duration {
        let policy = &self.plan.template.policy;
        Duration::from_millis(policy.cooldown_ms + policy.min_run_ms)
    }

    /// Waits until nothing has started for so long.
    async fn until_quiet(&mut self, quiet_for: Duration) -> Result<(), Failure> {
        let began_at = clock::now();
        let (mut starts, mut since) = (self.ledger.starts, began_at);
        while clock::now().since(since) < quiet_for && clock::now().since(began_at) < START_PATIENCE {
            self.look().await?;
            if self.ledger.starts != starts {
                (starts, since) = (self.ledger.starts, clock::now());
            }
        }
        Ok(())
    }

    fn standings(&self) -> Vec<String> {
        let members = self.cluster.members().iter();
        members.map(|member| format!("{} {}", member.name, self.ledger.session_state(&member.name))).collect()
    }

    fn has_converged(&self) -> bool {
        self.ledger.owned() == self.plan.template.shards as usize && self.astray().is_empty()
    }

    fn astray(&self) -> Vec<String> {
        let members = self.cluster.members().iter();
        let astray = members.filter(|member| self.ledger.session_state(&member.name) != "attached");
        astray
            .map(|member| format!("{} is {}", member.name, self.ledger.session_state(&member.name)))
            .collect()
    }

    /// Waits until every node is attached and every shard runs: a little longer than the bound, to say how late it is.
    async fn until_converged(&mut self, healed_at: Moment) -> Result<Option<Duration>, Failure> {
        let patience = super::bound(&self.plan.explained) * 2 + Duration::from_secs(5);
        loop {
            self.look().await?;
            let waited = clock::now().since(healed_at);
            if self.has_converged() {
                self.progress
                    .say(format!("all nodes are attached and all {} shards run", self.plan.template.shards));
                return Ok(Some(waited));
            }
            if waited > patience {
                self.progress.say(format!("timed out: {}", self.standings().join(", ")));
                return Ok(None);
            }
        }
    }

    /// Waits until the node that was cut off has nine tenths of an equal share.
    async fn until_fair_share(&mut self, healed_at: Moment) -> Result<Option<Duration>, Failure> {
        let node = self.plan.steps.first().map_or(0, |step| step.node);
        let name = self.cluster.members()[node].name.clone();
        let fair = self.plan.template.shards as usize * 9 / 10 / self.plan.nodes;
        let patience = super::share_bound(self.plan) * 2;
        loop {
            self.look().await?;
            let waited = clock::now().since(healed_at);
            let owned = self.ledger.owned_by(&name);
            if owned >= fair {
                self.progress.say(format!("{name} runs {owned} shards, its fair share"));
                return Ok(Some(waited));
            }
            if waited > patience {
                self.progress.say(format!("{name} runs only {owned} shards"));
                return Ok(None);
            }
        }
    }

    /// Leaves everything alone for a while, to see what that costs.
    async fn rest(&mut self) -> Result<(Moment, Moment), Failure> {
        // Moves back to the nodes that returned come first.
        self.watch_until(clock::now() + self.plan.template.ttl / 2).await?;
        let from = clock::now();
        self.watch_until(from + self.plan.template.ttl.max(Duration::from_secs(3))).await?;
        Ok((from, clock::now()))
    }
}
