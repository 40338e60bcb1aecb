use std::fmt;

use super::Location;

/// One start of one shard's work, and its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// `group/shard`.
    pub shard: String,
    /// Where it ran.
    pub node: String,
    /// In which session of that node.
    pub session: String,
    /// On which boot of which machine.
    pub boot: String,
    /// Under which epoch.
    pub epoch: u64,
    /// When it began, on the boot clock.
    pub from_ns: u64,
    /// When it ended; `None` if that was not recorded; then it counts as running forever.
    pub to_ns: Option<u64>,
    /// How it ended.
    pub end: End,
    /// When it had to stop, as known when it began.
    pub start_stop_at_ns: Option<u64>,
    /// When its grant ended, as known when it began.
    pub start_valid_until_ns: Option<u64>,
    /// Its last beat.
    pub last_beat: Option<Beat>,
    /// The beat that was the longest after the end of the grant that it ran under.
    pub late_beat: Option<Beat>,
    /// When it had to stop, as known when it ended.
    pub end_stop_at_ns: Option<u64>,
    /// When its grant ended, as known when it ended.
    pub end_valid_until_ns: Option<u64>,
    /// When it had really ended, which may be later than the last moment at which it ran with a good grant.
    pub ended_ns: Option<u64>,
    /// For how long its process was paused between the moment at which it had to stop and its real end.
    pub stood_still_ns: u64,
    /// The line of its start.
    pub started: Location,
    /// The line of its end.
    pub ended: Option<Location>,
}

/// A moment at which a run said that it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Beat {
    /// When, on the boot clock.
    pub at_ns: u64,
    /// When its grant ended, as known then.
    pub valid_until_ns: Option<u64>,
    /// Its line.
    pub location: Location,
}

impl Beat {
    /// For how long its grant had been over.
    pub(crate) fn late_by_ns(&self) -> u64 {
        self.valid_until_ns.map_or(0, |until| self.at_ns.saturating_sub(until))
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Its worker said so, with this reason if it gave one.
    Stopped(Option<String>),
    /// Its worker failed.
    Failed,
    /// Its process ended, or was paused and never ran again.
    Gone,
    /// Its end was not recorded.
    Open,
}

impl Run {
    /// Whether it ran at that moment.
    pub fn ran_at(&self, at_ns: u64) -> bool {
        self.from_ns <= at_ns && self.to_ns.is_none_or(|to| at_ns <= to)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (epoch {}) from {}", self.node, self.epoch, seconds(self.from_ns))?;
        match self.to_ns {
            Some(to) => write!(f, " to {}", seconds(to))?,
            None => f.write_str(" on, without an end")?,
        }
        write!(f, " [{}", self.started)?;
        if let Some(ended) = &self.ended {
            write!(f, ", {ended}")?;
        }
        f.write_str("]")
    }
}

/// Nanoseconds as seconds with all digits that matter.
pub(crate) fn seconds(ns: u64) -> String {
    format!("{}.{:06} s", ns / 1_000_000_000, ns / 1_000 % 1_000_000)
}
