//! What happens when the work of a shard ends by itself: rules of a group, and what a shard's record says of it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What happens to a shard whose work fails again and again. Every failure is followed by a pause that grows, up to a
/// bound; see `restart` in the node's settings. Work that ran for `healthy_after` starts counting again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailurePolicy {
    /// It is tried again forever: it comes back by itself when whatever it needs comes back.
    #[default]
    Retry,
    /// After this many failures in a row it is held but not run, until an operator allows it again.
    Quarantine {
        /// How many. At least 1.
        after: u32,
    },
    /// After this many failures in a row it is held but not run. After the pause it is tried once, and if that fails as
    /// well, another node waits for the pause and tries it once, and so on.
    HalfOpen {
        /// How many. At least 1.
        after: u32,
        /// How long it is not run, in milliseconds. Above zero.
        pause_ms: u64,
    },
}

impl FailurePolicy {
    /// Quarantine after this many failures in a row.
    pub fn quarantine(after: u32) -> Self {
        FailurePolicy::Quarantine { after }
    }

    /// After this many failures in a row, one try after each pause.
    pub fn half_open(after: u32, pause: Duration) -> Self {
        FailurePolicy::HalfOpen { after, pause_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX) }
    }

    /// After how many failures in a row the work is not run for a while.
    pub(crate) fn failures_max(self) -> Option<u32> {
        match self {
            FailurePolicy::Retry => None,
            FailurePolicy::Quarantine { after } | FailurePolicy::HalfOpen { after, .. } => Some(after),
        }
    }

    /// How long it is not run then, if it is tried again by itself.
    pub(crate) fn pause(self) -> Option<Duration> {
        match self {
            FailurePolicy::HalfOpen { pause_ms, .. } => Some(Duration::from_millis(pause_ms)),
            FailurePolicy::Retry | FailurePolicy::Quarantine { .. } => None,
        }
    }
}

/// As it is written in settings: `retry`, `quarantine:8`, `half-open:8:5m`.
impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailurePolicy::Retry => f.write_str("retry"),
            FailurePolicy::Quarantine { after } => write!(f, "quarantine:{after}"),
            FailurePolicy::HalfOpen { after, pause_ms } => {
                write!(f, "half-open:{after}:{}", super::group::span(*pause_ms))
            }
        }
    }
}

/// What happens when the work of a shard finishes without an error and was not told to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishPolicy {
    /// It is started again after a pause that grows, as after a failure.
    #[default]
    Restart,
    /// It is not started again as long as this node holds the shard. The next holder runs it once more.
    Once,
    /// It is done: no node starts it again until an operator asks for it.
    Done,
}

impl FinishPolicy {
    /// The word for it in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            FinishPolicy::Restart => "restart",
            FinishPolicy::Once => "once",
            FinishPolicy::Done => "done",
        }
    }
}

impl fmt::Display for FinishPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FinishPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [FinishPolicy::Restart, FinishPolicy::Once, FinishPolicy::Done]
            .into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or_else(|| format!("invalid policy {text:?}: use restart, once or done"))
    }
}

/// Whether the work of a held shard is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkState {
    /// It is.
    #[default]
    Runs,
    /// It is tried once: it failed too often before.
    Trial,
    /// It is not: it failed too often.
    Quarantined,
    /// It is not: it has finished, for good.
    Done,
}

impl WorkState {
    /// Whether it is run.
    pub fn is_run(self) -> bool {
        matches!(self, WorkState::Runs | WorkState::Trial)
    }

    /// The usual state, which is not written.
    pub(super) fn is_usual(&self) -> bool {
        *self == WorkState::Runs
    }

    /// What a new claim makes of it under these rules.
    pub(crate) fn under(self, on_failure: FailurePolicy, on_finish: FinishPolicy) -> Self {
        let stays = match self {
            WorkState::Runs => true,
            WorkState::Trial => on_failure.pause().is_some(),
            WorkState::Quarantined => on_failure != FailurePolicy::Retry,
            WorkState::Done => on_finish == FinishPolicy::Done,
        };
        if stays { self } else { WorkState::Runs }
    }
}
