//! What a watchdog decides: it needs the clock and the sessions' deadlines, and nothing else.

use std::collections::BTreeMap;

use crate::time::Moment;

/// A session as the watchdog sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// Until when it is good; `None` once it is lost, by the clock or by word of the core.
    pub good_until: Option<Moment>,
    /// Whether everybody was told that it is lost.
    pub told: bool,
    /// When what still runs under it is cut off.
    pub kill_at: Moment,
}

/// What the watchdog does. `S` stands for a session and `K` for work that is cut off alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchdogAction<S, K> {
    /// Tells everybody that this session is lost.
    Lose(S),
    /// Cuts off all that runs under this session; it is watched no longer.
    Kill(S),
    /// Cuts off this.
    CutOff(K),
}

/// Watches over sessions, and over work that has until some moment to stop.
#[derive(Clone, Debug)]
pub struct Watch<S, K> {
    sessions: Vec<S>,
    cuts: BTreeMap<(Moment, u64), K>,
    count: u64,
}

impl<S, K> Default for Watch<S, K> {
    fn default() -> Self {
        Watch { sessions: Vec::new(), cuts: BTreeMap::new(), count: 0 }
    }
}

impl<S: Clone, K> Watch<S, K> {
    /// From now on watches this session.
    pub fn guard(&mut self, session: S) {
        self.sessions.push(session);
    }

    /// Cuts this off at that moment.
    pub fn cut_off_at(&mut self, at: Moment, what: K) {
        self.count += 1;
        self.cuts.insert((at, self.count), what);
    }

    /// What is due, and when to come again. `now` reads the clock, and `look` looks at a session.
    pub fn turn(
        &mut self,
        now: impl Fn() -> Moment,
        look: impl Fn(&S) -> SessionStatus,
        out: &mut Vec<WatchdogAction<S, K>>,
    ) -> Moment {
        let mut next = Moment::NEVER;
        self.sessions.retain(|session| {
            let seen = look(session);
            if let Some(stop_at) = seen.good_until {
                next = next.min(stop_at);
                return true;
            }
            if !seen.told {
                out.push(WatchdogAction::Lose(session.clone()));
            }
            let over = now() >= seen.kill_at;
            if over {
                out.push(WatchdogAction::Kill(session.clone()));
            } else {
                next = next.min(seen.kill_at);
            }
            !over
        });
        while let Some(first) = self.cuts.first_entry() {
            if now() < first.key().0 {
                next = next.min(first.key().0);
                break;
            }
            out.push(WatchdogAction::CutOff(first.remove()));
        }
        next
    }

    /// The owner is gone: nothing that it started may run on.
    pub fn end(self, out: &mut Vec<WatchdogAction<S, K>>) {
        out.extend(self.sessions.into_iter().map(WatchdogAction::Kill));
        out.extend(self.cuts.into_values().map(WatchdogAction::CutOff));
    }
}
