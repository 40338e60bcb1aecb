//! All work of one process, as far as decisions go.

use std::collections::BTreeMap;
use std::time::Duration;

use super::timer::Timer;
use super::{Hands, SessionNo};
use crate::event::{Deadlines, Ended, Event, StopReason};
use crate::name::{Epoch, GroupName, ShardId};
use crate::time::Moment;

/// The session was lost before it could be extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLost;

/// The work of one process. Each call carries out what follows from it with the given hands, and answers with what the
/// core must hear at once.
#[derive(Debug)]
pub struct Works {
    /// How much earlier than the dead-man timer work is cut off from inside.
    kill_early: Duration,
    /// How long the rest of a shard's work has to stop when a part of it failed.
    siblings_stop_within: Duration,
    /// The session that new work starts under, once it has deadlines.
    session: Option<SessionNo>,
    sessions: u32,
    running: BTreeMap<ShardId, Work>,
    timer: Timer,
}

/// The work of one shard: all handlers of its group, and whatever its grant owns.
#[derive(Debug)]
struct Work {
    session: SessionNo,
    epoch: Epoch,
    handlers_left: usize,
    /// It has or had a handler. Work without any is held until it is told to stop.
    handled: bool,
    told: bool,
    failure: Option<String>,
    /// When it must be gone, if that is before its session's deadline.
    gone_by: Moment,
}

impl Works {
    /// Nothing runs. `kill_early` is how much earlier than the dead-man timer work is cut off from inside;
    /// `siblings_stop_within` how long the rest of a shard's work has to stop when a part of it failed.
    pub fn new(kill_early: Duration, siblings_stop_within: Duration) -> Self {
        Works {
            kill_early,
            siblings_stop_within,
            session: None,
            sessions: 0,
            running: BTreeMap::new(),
            timer: Timer::default(),
        }
    }

    /// The shards whose work has not ended, with their epochs.
    pub fn running(&self) -> impl ExactSizeIterator<Item = (&ShardId, Epoch)> {
        self.running.iter().map(|(shard, work)| (shard, work.epoch))
    }

    /// When the dead-man timer kills the process, as the hands were told last.
    pub fn armed(&self) -> Option<Moment> {
        self.timer.armed()
    }

    /// The session that new work starts under, once it has deadlines.
    pub fn session(&self) -> Option<SessionNo> {
        self.session
    }

    /// A new session begins: the former one is over. What still runs under that keeps its deadlines.
    pub fn open_session(&mut self, hands: &mut impl Hands) {
        if let Some(former) = self.session.take() {
            hands.lose(former);
            self.timer.forget_if_idle(former);
        }
    }

    /// The session's deadlines moved forward. Fails if it was lost before it could be told.
    pub fn extend(&mut self, deadlines: Deadlines, hands: &mut impl Hands) -> Result<(), SessionLost> {
        let Some(session) = self.session else {
            let session = SessionNo(self.sessions);
            self.sessions += 1;
            self.session = Some(session);
            self.timer.open(session, deadlines.kill_at);
            hands.open(session, deadlines);
            return Ok(());
        };
        // The kernel's timer moves first: it must never stand behind what the grants believe.
        let before = self.timer.kill_at(session);
        self.timer.set_kill_at(session, before.max(deadlines.kill_at));
        if self.arm(hands).is_err() {
            // Without the timer there is no later deadline: the session runs out.
            self.timer.set_kill_at(session, before);
            return Ok(());
        }
        hands.extend(session, deadlines).inspect_err(|SessionLost| {
            self.timer.set_kill_at(session, before);
            let _ = self.arm(hands);
        })
    }

    /// The session is lost for good.
    pub fn lose(&mut self, hands: &mut impl Hands) {
        if let Some(session) = self.session {
            hands.lose(session);
        }
    }

    /// Starts the work of a shard, if it may.
    pub fn start(&mut self, shard: ShardId, epoch: Epoch, hands: &mut impl Hands) -> Option<Event> {
        if self.running.contains_key(&shard) {
            return Some(ended(shard, epoch, Ended::Failed("its previous work has not ended".to_owned())));
        }
        let Some(session) = self.session.filter(|session| hands.holds(*session)) else {
            return Some(ended(shard, epoch, Ended::Finished));
        };
        self.timer.began(session);
        if let Err(why) = self.arm(hands) {
            self.timer.ended(session, &shard, Moment::NEVER);
            let why = format!("cannot set the dead-man timer: {why}");
            return Some(ended(shard, epoch, Ended::Failed(why)));
        }
        let handlers_left = hands.run(session, &shard, epoch);
        let handled = handlers_left > 0;
        let (told, failure, gone_by) = (false, None, Moment::NEVER);
        self.running.insert(shard, Work { session, epoch, handlers_left, handled, told, failure, gone_by });
        None
    }

    /// One more handler of a group is to join what runs of it. The answer is where.
    pub fn join(&mut self, group: &GroupName, hands: &mut impl Hands) -> Vec<(ShardId, Epoch)> {
        let of_group = self.running.iter_mut().filter(|(shard, _)| shard.group == *group);
        let joined = of_group.filter(|(_, work)| !work.told && hands.holds(work.session));
        joined
            .map(|(shard, work)| {
                work.handlers_left += 1;
                work.handled = true;
                (shard.clone(), work.epoch)
            })
            .collect()
    }

    /// Tells the work of a shard to stop.
    pub fn stop(
        &mut self,
        shard: &ShardId,
        epoch: Epoch,
        why: StopReason,
        kill_at: Option<Moment>,
        hands: &mut impl Hands,
    ) -> Option<Event> {
        let Some(work) = self.running.get_mut(shard).filter(|work| work.epoch == epoch) else {
            return Some(ended(shard.clone(), epoch, Ended::Finished));
        };
        work.told = true;
        hands.tell(shard, epoch, why);
        if work.handlers_left == 0 && hands.close(shard, epoch) {
            return Some(self.end(shard, hands));
        }
        if let Some(kill_at) = kill_at {
            let session_ends_at = self.timer.kill_at(work.session);
            // Another node may run it then: the kernel enforces it as well. A node that leaves in time keeps what is
            // stuck until its session ends.
            if !why.is_planned() && kill_at < session_ends_at.min(work.gone_by) {
                self.timer.hurry(shard, work.gone_by, kill_at);
                work.gone_by = kill_at;
            }
            // The watchdog cuts off a lost session as a whole.
            if kill_at < session_ends_at || hands.holds(work.session) {
                hands.cut_off_at(shard, epoch, kill_at - self.kill_early);
            }
            let _ = self.arm(hands);
        }
        None
    }

    /// One handler of a shard is gone.
    pub fn handler_ended(
        &mut self,
        now: Moment,
        shard: &ShardId,
        epoch: Epoch,
        how: Ended,
        hands: &mut impl Hands,
    ) -> Option<Event> {
        let work = self.running.get_mut(shard).filter(|work| work.epoch == epoch)?;
        work.handlers_left = work.handlers_left.saturating_sub(1);
        self.part_ended(now, shard, how, hands)
    }

    /// Something that the grant of a shard owned is gone.
    pub fn owned_ended(
        &mut self,
        now: Moment,
        shard: &ShardId,
        epoch: Epoch,
        how: Ended,
        hands: &mut impl Hands,
    ) -> Option<Event> {
        self.running.get(shard).filter(|work| work.epoch == epoch)?;
        self.part_ended(now, shard, how, hands)
    }

    fn part_ended(
        &mut self,
        now: Moment,
        shard: &ShardId,
        how: Ended,
        hands: &mut impl Hands,
    ) -> Option<Event> {
        let work = self.running.get_mut(shard)?;
        let failed = match how {
            Ended::Failed(error) if !work.told && hands.holds(work.session) => Some(error),
            _ => None,
        };
        let fails = failed.is_some();
        if fails {
            work.failure = failed;
            work.told = true;
            hands.tell(shard, work.epoch, StopReason::Failed);
        }
        // Work without handlers is held until it is told to stop.
        let may_end = work.handlers_left == 0 && (work.handled || work.told);
        if may_end && hands.close(shard, work.epoch) {
            return Some(self.end(shard, hands));
        }
        if fails {
            hands.cut_off_at(shard, work.epoch, now + self.siblings_stop_within);
        }
        None
    }

    /// Nothing of the work is left, and its grant has ended.
    fn end(&mut self, shard: &ShardId, hands: &mut impl Hands) -> Event {
        let work = self.running.remove(shard).expect("only work that runs can end");
        self.timer.ended(work.session, shard, work.gone_by);
        if self.session != Some(work.session) {
            self.timer.forget_if_idle(work.session);
        }
        let _ = self.arm(hands);
        ended(shard.clone(), work.epoch, work.failure.map_or(Ended::Finished, Ended::Failed))
    }

    /// Tells the kernel, if there is something new to tell.
    fn arm(&mut self, hands: &mut impl Hands) -> Result<(), String> {
        let Some(at) = self.timer.change() else { return Ok(()) };
        hands.arm(at)?;
        self.timer.told(at);
        Ok(())
    }
}

fn ended(shard: ShardId, epoch: Epoch, how: Ended) -> Event {
    Event::Ended { shard, epoch, how }
}
