use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::event::{Ended, Event, StopReason};

/// Hands that write down what they do. A session is good unless it is named in `over`.
#[derive(Default)]
struct Notes {
    said: Vec<String>,
    armed: Option<Moment>,
    over: Vec<SessionNo>,
    handlers: usize,
    owned: BTreeMap<ShardId, usize>,
    broken_timer: bool,
}

impl Hands for Notes {
    fn arm(&mut self, at: Option<Moment>) -> Result<(), String> {
        if self.broken_timer {
            return Err("broken".to_owned());
        }
        self.armed = at;
        Ok(())
    }
    fn open(&mut self, session: SessionNo, _: Deadlines) {
        self.said.push(format!("open {}", session.0));
    }
    fn extend(&mut self, session: SessionNo, deadlines: Deadlines) -> Result<(), SessionLost> {
        // The timer never stands behind what the grants are told next.
        assert!(self.armed.is_none_or(|at| at <= deadlines.kill_at));
        if self.over.contains(&session) { Err(SessionLost) } else { Ok(()) }
    }
    fn lose(&mut self, session: SessionNo) {
        self.over.push(session);
    }
    fn holds(&mut self, session: SessionNo) -> bool {
        !self.over.contains(&session)
    }
    fn run(&mut self, _: SessionNo, shard: &ShardId, epoch: Epoch) -> usize {
        self.said.push(format!("run {shard} {epoch}"));
        self.handlers
    }
    fn tell(&mut self, shard: &ShardId, _: Epoch, _: StopReason) {
        self.said.push(format!("tell {shard}"));
    }
    fn cut_off_at(&mut self, shard: &ShardId, _: Epoch, at: Moment) {
        self.said.push(format!("cut off {shard} at {}", at.as_millis()));
    }
    fn close(&mut self, shard: &ShardId, _: Epoch) -> bool {
        self.owned.get(shard).is_none_or(|left| *left == 0)
    }
}

fn ms(at: u64) -> Moment {
    Moment::from_millis(at)
}

fn until(kill_ms: u64) -> Deadlines {
    Deadlines { stop_at: ms(kill_ms - 100), kill_at: ms(kill_ms), valid_until: ms(kill_ms + 100) }
}

fn shard(number: u32) -> ShardId {
    format!("orders/{number}").parse().unwrap()
}

fn bench() -> (Works, Notes) {
    let mut works = Works::new(Duration::from_millis(10), Duration::from_millis(200));
    let mut notes = Notes { handlers: 1, ..Notes::default() };
    works.extend(until(1000), &mut notes).unwrap();
    (works, notes)
}

fn finished(number: u32, epoch: u64) -> Option<Event> {
    Some(Event::Ended { shard: shard(number), epoch: Epoch(epoch), how: Ended::Finished })
}

#[test]
fn the_timer_is_armed_while_something_runs_and_moves_before_the_session() {
    let (mut works, mut notes) = bench();
    assert_eq!(notes.armed, None);
    assert_eq!(works.start(shard(1), Epoch(1), &mut notes), None);
    assert_eq!(notes.armed, Some(ms(1000)));
    works.extend(until(2000), &mut notes).unwrap();
    assert_eq!(notes.armed, Some(ms(2000)));
    let end = works.handler_ended(ms(5), &shard(1), Epoch(1), Ended::Finished, &mut notes);
    assert_eq!((end, notes.armed, works.running().len()), (finished(1, 1), None, 0));
}

#[test]
fn the_timer_is_the_earliest_over_all_sessions_that_something_runs_under() {
    let (mut works, mut notes) = bench();
    works.start(shard(1), Epoch(1), &mut notes);
    works.lose(&mut notes);
    works.stop(&shard(1), Epoch(1), StopReason::Detached, Some(ms(1000)), &mut notes);
    works.open_session(&mut notes);
    works.extend(until(3000), &mut notes).unwrap();
    works.start(shard(2), Epoch(2), &mut notes);
    works.extend(until(4000), &mut notes).unwrap();
    assert_eq!(notes.armed, Some(ms(1000)), "what is stuck under the former session has no more time");
    works.handler_ended(ms(900), &shard(1), Epoch(1), Ended::Finished, &mut notes);
    assert_eq!(notes.armed, Some(ms(4000)));
}

#[test]
fn after_a_fence_the_timer_is_pulled_in_and_a_node_that_leaves_keeps_its_time() {
    let (mut works, mut notes) = bench();
    works.start(shard(1), Epoch(1), &mut notes);
    works.start(shard(2), Epoch(1), &mut notes);
    works.stop(&shard(2), Epoch(1), StopReason::Draining, Some(ms(300)), &mut notes);
    assert_eq!(notes.armed, Some(ms(1000)), "the session is still good");
    works.lose(&mut notes);
    works.stop(&shard(1), Epoch(1), StopReason::Detached, Some(ms(500)), &mut notes);
    assert_eq!(notes.armed, Some(ms(500)));
    works.stop(&shard(1), Epoch(1), StopReason::Detached, Some(ms(700)), &mut notes);
    assert_eq!(notes.armed, Some(ms(500)), "no later word gives more time");
    assert!(notes.said.contains(&"cut off orders/1 at 490".to_owned()), "{:?}", notes.said);
    works.handler_ended(ms(400), &shard(1), Epoch(1), Ended::Finished, &mut notes);
    assert_eq!(notes.armed, Some(ms(1000)));
}

#[test]
fn an_extension_that_comes_too_late_gives_no_time() {
    let (mut works, mut notes) = bench();
    works.start(shard(1), Epoch(1), &mut notes);
    notes.over.push(SessionNo(0));
    assert_eq!(works.extend(until(2000), &mut notes), Err(SessionLost));
    assert_eq!(notes.armed, Some(ms(1000)));
    assert_eq!(works.start(shard(2), Epoch(1), &mut notes), finished(2, 1), "nothing starts under it");
}

#[test]
fn without_its_timer_nothing_starts_and_no_deadline_moves() {
    let (mut works, mut notes) = bench();
    notes.broken_timer = true;
    let refused = works.start(shard(1), Epoch(1), &mut notes);
    assert!(matches!(refused, Some(Event::Ended { how: Ended::Failed(why), .. }) if why.contains("broken")));
    notes.broken_timer = false;
    works.start(shard(1), Epoch(2), &mut notes);
    notes.broken_timer = true;
    works.extend(until(2000), &mut notes).unwrap();
    notes.broken_timer = false;
    works.extend(until(2500), &mut notes).unwrap();
    assert_eq!(notes.armed, Some(ms(2500)));
}

#[test]
fn work_has_ended_only_when_nothing_that_its_grant_owns_is_left() {
    let (mut works, mut notes) = bench();
    works.start(shard(1), Epoch(1), &mut notes);
    notes.owned.insert(shard(1), 2);
    assert_eq!(works.handler_ended(ms(1), &shard(1), Epoch(1), Ended::Finished, &mut notes), None);
    assert_eq!(works.stop(&shard(1), Epoch(1), StopReason::Moving, None, &mut notes), None);
    notes.owned.insert(shard(1), 1);
    assert_eq!(works.owned_ended(ms(2), &shard(1), Epoch(1), Ended::Finished, &mut notes), None);
    assert_eq!(notes.armed, Some(ms(1000)), "it runs, so the timer is armed");
    assert!(works.start(shard(1), Epoch(2), &mut notes).is_some(), "and nothing starts beside it");
    notes.owned.insert(shard(1), 0);
    let end = works.owned_ended(ms(3), &shard(1), Epoch(1), Ended::Finished, &mut notes);
    assert_eq!((end, notes.armed), (finished(1, 1), None));
}

#[test]
fn a_failure_of_one_part_stops_the_others_and_is_what_the_core_hears() {
    let (mut works, mut notes) = bench();
    works.start(shard(1), Epoch(1), &mut notes);
    notes.owned.insert(shard(1), 1);
    let failed = Ended::Failed("no database".to_owned());
    notes.owned.insert(shard(1), 0);
    assert_eq!(works.owned_ended(ms(50), &shard(1), Epoch(1), failed.clone(), &mut notes), None);
    assert_eq!(notes.said[2..], ["tell orders/1", "cut off orders/1 at 250"]);
    let end = works.handler_ended(ms(60), &shard(1), Epoch(1), Ended::Finished, &mut notes);
    assert_eq!(end, Some(Event::Ended { shard: shard(1), epoch: Epoch(1), how: failed }));
}

#[test]
fn work_without_handlers_is_held_until_it_is_told_to_stop() {
    let (mut works, mut notes) = bench();
    notes.handlers = 0;
    works.start(shard(1), Epoch(1), &mut notes);
    assert_eq!(works.owned_ended(ms(1), &shard(1), Epoch(1), Ended::Finished, &mut notes), None);
    assert_eq!(works.running().len(), 1);
    assert_eq!(works.stop(&shard(1), Epoch(1), StopReason::Moving, None, &mut notes), finished(1, 1));
    assert_eq!(
        works.stop(&shard(1), Epoch(1), StopReason::Moving, None, &mut notes),
        finished(1, 1),
        "said again"
    );
}

#[test]
fn the_watch_loses_at_stop_at_kills_at_kill_at_and_forgets() {
    let mut watch: Watch<u32, &str> = Watch::default();
    let look = |now: u64, told: bool| {
        move |_: &u32| SessionStatus { good_until: (now < 100).then(|| ms(100)), told, kill_at: ms(150) }
    };
    watch.guard(7);
    watch.cut_off_at(ms(120), "late");
    watch.cut_off_at(ms(20), "soon");
    let mut turn = |now: u64, told| {
        let mut out = Vec::new();
        let next = watch.turn(|| ms(now), look(now, told), &mut out);
        (out, next)
    };
    assert_eq!(turn(10, false), (vec![], ms(20)));
    assert_eq!(turn(20, false), (vec![WatchdogAction::CutOff("soon")], ms(100)));
    assert_eq!(turn(100, false), (vec![WatchdogAction::Lose(7)], ms(120)));
    assert_eq!(turn(130, true), (vec![WatchdogAction::CutOff("late")], ms(150)));
    assert_eq!(turn(150, true), (vec![WatchdogAction::Kill(7)], Moment::NEVER));
    assert_eq!(turn(160, true), (vec![], Moment::NEVER), "it is watched no longer");
}
