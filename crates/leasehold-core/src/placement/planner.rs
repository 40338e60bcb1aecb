//! What the core plans with.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::choices::Choices;
use super::rendezvous::{self, Spill};
use super::{Assignment, Placement, Question, Ranked, Rendezvous};
use crate::name::ShardId;
use crate::rules::{Rule, Rules};

/// Plans one group, over and over, and recomputes only what changed since the last question. Use one per group.
pub struct Planner {
    algorithm: Algorithm,
    spill: Spill,
    last: Option<(Question, Arc<Assignment>)>,
    wrong_answer: Option<WrongAnswer>,
}

/// What was wrong with the answer of a rule of the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrongAnswer {
    /// It panicked, and said this.
    Panicked(String),
    /// It answered for so many shards, which are not those that it was asked about.
    Length(usize),
}

enum Algorithm {
    Rendezvous(Box<Choices>),
    Own(Arc<dyn Placement>),
}

impl Planner {
    /// Plans with weighted rendezvous and bounded load, version 1.
    pub fn rendezvous() -> Self {
        Planner {
            algorithm: Algorithm::Rendezvous(Box::default()),
            spill: Spill::On,
            last: None,
            wrong_answer: None,
        }
    }

    /// Plans with a rule of the user's own. What it answers is not trusted: a node that does not exist counts as
    /// nobody, and so does an answer that is missing.
    pub fn own(placement: Arc<dyn Placement>) -> Self {
        Planner { algorithm: Algorithm::Own(placement), spill: Spill::On, last: None, wrong_answer: None }
    }

    /// Lets a test break the rule of spill-over: a shard that does not fit its first choice then stays unplaced.
    pub fn obeying(mut self, rules: &Rules) -> Self {
        self.spill = if rules.hold(Rule::SpillOver) { Spill::On } else { Spill::Off };
        self
    }

    /// Names the rule and its version; see [`Placement::id`].
    pub fn id(&self) -> String {
        match &self.algorithm {
            Algorithm::Rendezvous(_) => Rendezvous.id(),
            Algorithm::Own(placement) => {
                caught(|| placement.id()).unwrap_or_else(|_| "a placement that panicked".into())
            }
        }
    }

    /// Answers the question; the same question gets the same answer, whatever was asked before.
    pub fn plan(&mut self, question: Question) -> Arc<Assignment> {
        if let Some((last, answer)) = &self.last
            && same(last, &question)
        {
            return answer.clone();
        }
        let answer = match &mut self.algorithm {
            Algorithm::Rendezvous(choices) => rendezvous::place(choices, &question, self.spill),
            Algorithm::Own(placement) => {
                let placement = placement.clone();
                self.ask(&*placement, &question)
            }
        };
        let answer = Arc::new(answer);
        self.last = Some((question, answer.clone()));
        answer
    }

    /// What was wrong with the last answer.
    pub fn wrong_answer(&self) -> Option<&WrongAnswer> {
        self.wrong_answer.as_ref()
    }

    /// Asks a rule of the user's own, which must not bring this node down.
    fn ask(&mut self, placement: &dyn Placement, question: &Question) -> Assignment {
        self.wrong_answer = None;
        let mut answer = match caught(|| placement.place(question)) {
            Ok(answer) => answer,
            Err(panic) => {
                self.wrong_answer = Some(WrongAnswer::Panicked(panic));
                self.go_on(question)
            }
        };
        if answer.to.len() != question.shards.len() {
            self.wrong_answer = Some(WrongAnswer::Length(answer.to.len()));
        }
        answer.to.resize(question.shards.len(), None);
        for to in &mut answer.to {
            *to = to.filter(|&node| (node as usize) < question.nodes.len());
        }
        answer
    }

    /// The last answer, as far as its nodes are still there, and for the rest Leasehold's own: nothing stays without a node
    /// because a rule panics.
    fn go_on(&self, question: &Question) -> Assignment {
        let mut answer = Rendezvous.place(question);
        let Some((last, before)) = &self.last else { return answer };
        for (shard, to) in question.shards.iter().zip(&mut answer.to) {
            let former = last.shards.binary_search(shard).ok().and_then(|at| *before.to.get(at)?);
            let name = former.and_then(|node| last.nodes.get(node as usize)).map(|node| &node.name);
            let still = name.and_then(|name| question.nodes.iter().position(|node| node.name == *name));
            let declines = |node: usize| {
                let by = question.declined.get(shard);
                by.is_some_and(|by| by.contains(&question.nodes[node].name))
            };
            if let Some(node) = still.filter(|node| !declines(*node)) {
                *to = Some(node as u32);
            }
        }
        answer
    }

    /// The candidates in the order in which they should have this shard; see [`Placement::rank`].
    pub fn rank(&self, question: &Question, shard: &ShardId) -> Vec<u32> {
        match &self.algorithm {
            Algorithm::Rendezvous(_) => rendezvous::rank(question, shard),
            Algorithm::Own(placement) => {
                let ranked = caught(|| placement.rank(question, shard));
                let mut ranked = ranked.unwrap_or_else(|_| rendezvous::rank(question, shard));
                ranked.retain(|&node| (node as usize) < question.nodes.len());
                ranked
            }
        }
    }

    /// The same with scores, for explaining; a rule of the user's own has none.
    pub fn ranked(&self, question: &Question, shard: &ShardId) -> Vec<Ranked> {
        match &self.algorithm {
            Algorithm::Rendezvous(_) => rendezvous::ranked(question, shard),
            Algorithm::Own(_) => {
                self.rank(question, shard).into_iter().map(|node| Ranked { node, score: None }).collect()
            }
        }
    }

    /// The most shards that each node may get, as things are: by balance, and never above its capacity. A rule of the
    /// user's own is only bound by capacity, if it cares.
    pub fn caps(&self, question: &Question) -> Vec<Option<u32>> {
        match &self.algorithm {
            Algorithm::Rendezvous(_) => rendezvous::caps(question).into_iter().map(Some).collect(),
            Algorithm::Own(_) => question.nodes.iter().map(|node| node.capacity).collect(),
        }
    }
}

/// Runs user code that may panic; if it does, what it said.
fn caught<T>(ask: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(ask)).map_err(|panic| {
        let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
        said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
    })
}

/// Whether two questions have the same answer because nothing that placement looks at differs.
fn same(a: &Question, b: &Question) -> bool {
    a.nodes == b.nodes
        && a.policy == b.policy
        && a.pins == b.pins
        && a.declined == b.declined
        && (Arc::ptr_eq(&a.shards, &b.shards) || a.shards == b.shards)
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner").field("id", &self.id()).finish_non_exhaustive()
    }
}
