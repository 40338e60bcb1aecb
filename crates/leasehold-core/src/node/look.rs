//! The view of a node, and the questions that it answers.

use super::Node;
use super::hold::Phase;
use crate::explain::{self, Difference, Explanation, WhatIf};
use crate::may_move::Unmoved;
use crate::name::{Epoch, ShardId};
use crate::record::WorkState;
use crate::time::Now;
use crate::view::{self, Hearing, Me, Problem, ProblemKind, ShardPhase, View};
use crate::warning::Warning;

impl Node {
    /// What the node knows and does, as plain data.
    pub fn view(&self, now: Now) -> View {
        let mut view = view::of_mirror(
            &self.mirror,
            self.planner.roster(),
            self.planner.settings(),
            self.planner.plan(),
            // We hear of nobody: that says nothing of them.
            if self.fencing.is_deaf() { Hearing::Deaf } else { Hearing::Hears },
            now,
        );
        let ms = |span: std::time::Duration| span.as_millis() as u64;
        let stop_in = self.session.as_ref().map(|session| session.stop_at().since(now.at));
        view.me = Some(Me {
            node: self.ctx.me(),
            session: self.session_id(),
            session_state: self.life.state(),
            session_state_for_ms: ms(now.at.since(self.life.since())),
            cause: self.life.cause().to_string(),
            waiting_for: self.life.waiting_for().cloned(),
            stop_in_ms: stop_in.map(ms),
            renewals_failed: self.life.renewals_failed(),
            draining: self.departure.hands_over(&self.offer, &self.mirror, &self.ctx),
            held: self.holds.values().filter(|hold| hold.has_work()).count(),
            wanted: self.planner.plan().wanted_counts().get(&self.ctx.config.node).copied().unwrap_or(0),
        });
        if now.at < self.freeze.until() && view.frozen.is_none() {
            view.frozen = Some("many nodes vanished at once".into());
        }
        for shard in &mut view.shards {
            if let Some(hold) = self.holds.get(&shard.id.0) {
                shard.state = phase_of(hold.phase(), hold.work());
                let told = shard.id.0.to_string();
                if hold.is_stuck()
                    && !view.problems.iter().any(|p| p.kind == ProblemKind::Stuck && p.subject == told)
                {
                    view.problems.push(Problem::stuck(&shard.id.0, hold.epoch()));
                }
            }
        }
        // Everybody can see from the records which placements are in use.
        for warning in self.reported.warnings().filter(|it| !matches!(it, Warning::PlacementsDiffer(_))) {
            view.problems.push(Problem::of_warning(warning));
        }
        if self.reported.was_name_taken() && self.session.is_none() {
            view.problems.push(Problem {
                kind: ProblemKind::NameTaken,
                subject: self.ctx.config.node.to_string(),
                message:
                    "another live process uses this node name: give this one another name, or stop that one"
                        .into(),
            });
        }
        view
    }

    /// How many plans this node has made. A driver that measures its steps learns from it which of them made one.
    pub fn plans_made(&self) -> u64 {
        self.planner.made()
    }

    /// The epoch under which this shard runs here.
    pub fn owns(&self, shard: &ShardId) -> Option<Epoch> {
        self.holds.get(shard).filter(|hold| hold.phase() == Phase::Running).map(|hold| hold.epoch())
    }

    /// Why a shard is where it is, and why it has not moved; `None` if there is no such shard.
    pub fn explain(&self, shard: &ShardId) -> Option<Explanation> {
        let mut explanation = explain::explain(
            &self.mirror,
            self.planner.roster(),
            self.planner.planning(),
            self.planner.plan(),
            shard,
        )?;
        if let Some(hold) = self.holds.get(shard).filter(|hold| hold.is_stuck()) {
            explanation.unmoved_because = Some(view::stuck(hold.epoch()));
        } else if self.owns(shard).is_some() {
            explanation.unmoved_because = self.why_unmoved(shard).map(|why| why.to_string());
        }
        Some(explanation)
    }

    /// Why a shard that runs here has not moved to where it is wanted.
    pub(super) fn why_unmoved(&self, shard: &ShardId) -> Option<Unmoved> {
        let to = self.planner.plan().wanted(shard).filter(|node| !self.ctx.is_me(node));
        // No stabiliser delays a hand-over to leave; only a missing receiver can.
        match (self.departure.hands_over(&self.offer, &self.mirror, &self.ctx), to) {
            (true, None) => Some(Unmoved::NoReceiver),
            (false, Some(_)) => self.movability().may_move(shard, to).err(),
            (true, Some(_)) | (false, None) => None,
        }
    }

    /// What would move if something changed.
    pub fn what_if(&self, change: &WhatIf) -> Result<Difference, String> {
        explain::what_if(
            &self.mirror,
            self.planner.roster(),
            self.planner.settings(),
            self.planner.planning(),
            change,
        )
    }
}

fn phase_of(phase: Phase, work: WorkState) -> ShardPhase {
    match phase {
        Phase::Asking | Phase::Claiming | Phase::Claimed { .. } => ShardPhase::Claiming,
        Phase::Running => ShardPhase::Running,
        Phase::Stopping { stuck: true, .. } => ShardPhase::Stuck,
        Phase::Stopping { .. } => ShardPhase::Stopping,
        Phase::Resting { .. } => ShardPhase::Backoff,
        Phase::Idle { .. } if work == WorkState::Quarantined => ShardPhase::Quarantined,
        Phase::Idle { .. } => ShardPhase::Done,
        Phase::Stopped { .. } | Phase::Releasing => ShardPhase::Releasing,
    }
}
