//! What was asked of the store and is not answered yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Node;
use super::context::Context;
use super::session::Session;
use crate::event::Action;
use crate::mirror::Mirror;
use crate::name::{NodeName, SessionId, ShardId, WriteId};
use crate::store::{Answer, Key, Lane, Op, Request, RequestId, StoreError, StoreErrorKind, Swap};
use crate::time::Moment;

/// How long after `give_up_at` we stop waiting for a driver's word.
const GRACE: Duration = Duration::from_millis(50);

/// Why something was asked.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// List everything.
    List,
    /// Renew the session with this write.
    Renew(WriteId),
    /// Open a session.
    Join,
    /// Say that the session is over: of a former session, or our last word.
    Left(SessionId),
    /// Write `meta`.
    Meta,
    /// See whether `meta` may be opened.
    Open,
    /// See what became of records which something that may be behind shows gone or changed.
    LookAgain,
    /// See who publishes shards that we claimed, and that the incarnation is still the same.
    Nodes,
    /// Write a group's settings.
    Group,
    /// Remove records of what is long gone.
    Gc,
    /// See whether these nodes are silent, or what became of their sessions.
    Probe(Vec<NodeName>),
    /// Fence this session with this value.
    Fence { node: NodeName, session: SessionId, silent_from: Moment, value: Arc<[u8]> },
    /// Claim, release and rewrite shards, each with its write.
    Shards(Vec<(ShardId, WriteId)>),
    /// See what became of writes of unknown outcome, or whether what we hold is still ours.
    Look(Vec<ShardId>),
}

impl Purpose {
    /// Whether single records are read for it.
    pub(super) fn reads_records(&self) -> bool {
        matches!(self, Purpose::Probe(_) | Purpose::Look(_) | Purpose::Open | Purpose::LookAgain)
    }

    /// Whether something is written for it.
    pub(super) fn writes(&self) -> bool {
        !self.reads_records() && !matches!(self, Purpose::List | Purpose::Nodes)
    }
}

/// What is to be asked of the store, and why.
#[derive(Debug)]
pub(super) struct Ask {
    lane: Lane,
    op: Op,
    purpose: Purpose,
}

impl Ask {
    /// For everything but the session itself.
    pub(super) fn work(op: Op, purpose: Purpose) -> Self {
        Ask { lane: Lane::Work, op, purpose }
    }

    /// Reads these records.
    pub(super) fn read(keys: Vec<Key>, purpose: Purpose) -> Self {
        Ask::work(Op::Read(keys), purpose)
    }

    /// Writes one record.
    pub(super) fn swap(lane: Lane, swap: Swap, purpose: Purpose) -> Self {
        Ask { lane, op: Op::Swap(vec![swap]), purpose }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) purpose: Purpose,
    pub(super) keys: Vec<Key>,
    /// Our logical time when it was sent: what we had seen by then is not newer than the answer.
    pub(super) issued: u64,
    pub(super) sent_at: Moment,
    give_up_at: Moment,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    next: u64,
    sent: BTreeMap<RequestId, Sent>,
}

impl Requests {
    pub(super) fn give_up_at(&self) -> Moment {
        self.sent.values().map(|sent| sent.give_up_at + GRACE).min().unwrap_or(Moment::NEVER)
    }

    pub(super) fn any(&self, which: impl Fn(&Purpose) -> bool) -> bool {
        self.sent.values().any(|sent| which(&sent.purpose))
    }

    pub(super) fn count(&self, which: impl Fn(&Purpose) -> bool) -> usize {
        self.sent.values().filter(|sent| which(&sent.purpose)).count()
    }

    pub(super) fn forget(&mut self, which: impl Fn(&Purpose) -> bool) {
        self.sent.retain(|_, sent| !which(&sent.purpose));
    }

    /// Asks the store. A call never outlasts the time that the session has left, so that nobody waits for it past the deadline.
    fn ask(&mut self, ask: Ask, session: Option<&Session>, mirror: &mut Mirror, ctx: &mut Context) {
        let Ask { lane, op, purpose } = ask;
        let id = RequestId(self.next);
        self.next += 1;
        let within = match op {
            Op::List => ctx.config.list_within(),
            Op::Read(_) | Op::ListNodes | Op::Swap(_) => ctx.config.try_timeout,
        };
        let mut give_up_at = ctx.now.at + within;
        if let Some(session) = session {
            give_up_at = give_up_at.min(session.over_at().max(ctx.now.at));
        }
        let keys = match &op {
            Op::Read(keys) => keys.clone(),
            Op::List | Op::ListNodes => Vec::new(),
            Op::Swap(swaps) => swaps.iter().map(|swap| swap.key.clone()).collect(),
        };
        let (issued, sent_at) = (mirror.tick(), ctx.now.at);
        self.sent.insert(id, Sent { purpose, keys, issued, sent_at, give_up_at });
        ctx.out.push(Action::Ask(Request { id, lane, op, give_up_at }));
    }
}

impl Node {
    /// Asks the store. A part returns what it wants to ask; only this asks.
    pub(super) fn ask(&mut self, ask: Ask) {
        self.requests.ask(ask, self.session.as_ref(), &mut self.mirror, &mut self.ctx);
    }

    pub(super) fn on_answer(&mut self, id: RequestId, answer: Answer) {
        // An answer that comes twice, or after we gave up, is ignored: reading back shows what became of it.
        let Some(sent) = self.requests.sent.remove(&id) else { return };
        self.take_answer(sent, answer);
    }

    pub(super) fn give_up_requests(&mut self) {
        let at = self.ctx.now.at;
        let over: Vec<RequestId> = (self.requests.sent.iter())
            .filter(|(_, sent)| at >= sent.give_up_at + GRACE)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            let error = StoreError::new(StoreErrorKind::TimedOut, "no answer");
            self.on_answer(id, Answer::Failed(error));
        }
    }
}
