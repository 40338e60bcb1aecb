//! The promises, judged over a recorded history. They are pure functions, one file each, and carry the names that the
//! simulator gives them.

mod at_most_one_running_worker;
mod epochs_strictly_rise;
mod every_shard_owned;
pub mod no_stampede;
mod stopped_before_deadline;

use std::fmt;

use serde::Serialize;

use crate::history::History;

pub use every_shard_owned::{NAME as EVERY_SHARD_OWNED, judge as every_shard_owned};
pub use stopped_before_deadline::NAME as STOPPED_BEFORE_DEADLINE;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The name of the promise.
    pub invariant: &'static str,
    /// The shard that it is about; empty if it is about many.
    pub shard: String,
    /// When it was broken, in nanoseconds on the boot clock.
    pub at_ns: u64,
    /// What happened, with the lines that tell of it.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.message)
    }
}

/// Finds all that breaks one promise.
pub type Judge = fn(&History) -> Vec<Violation>;

/// The promises that hold of every history, each with its judge.
pub const ALWAYS: &[(&str, Judge)] = &[
    (at_most_one_running_worker::NAME, at_most_one_running_worker::judge),
    (epochs_strictly_rise::NAME, epochs_strictly_rise::judge),
    (stopped_before_deadline::NAME, stopped_before_deadline::judge),
];

/// Those of them that compare moments of several runs, and so are not judged between machines. Of the epochs it is
/// still judged there that none is used twice.
pub const NOT_BETWEEN_MACHINES: &[&str] = &[at_most_one_running_worker::NAME, epochs_strictly_rise::NAME];

/// How many runs could not be judged to their end. Renewals are not recorded, so an earlier deadline does not tell how
/// long a grant was good: only a deadline recorded at the end does.
pub fn not_judged(promise: &str, history: &History) -> usize {
    match promise {
        stopped_before_deadline::NAME => stopped_before_deadline::without_deadline(history),
        _ => 0,
    }
}

/// Everything that is wrong with a history, in the order of the promises.
pub fn judge(history: &History) -> Vec<Violation> {
    ALWAYS.iter().flat_map(|(_, judge)| judge(history)).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A line of a test's history, written shortly: `started a 7 10` is node a, epoch 7, 10 ms.
    pub(crate) fn line(text: &str) -> String {
        let words: Vec<&str> = text.split(' ').collect();
        let (event, node) = (words[0], words[1]);
        let ns = |ms: &str| ms.parse::<u64>().unwrap() * 1_000_000;
        let mut object = serde_json::json!({"event": event, "node": node, "session": "s", "boot": "b"});
        match words[..] {
            [_, _, at] => object["at_ns"] = ns(at).into(),
            [_, _, epoch, at, ref more @ ..] => {
                object["shard"] = "0".into();
                object["epoch"] = epoch.parse::<u64>().unwrap().into();
                object["at_ns"] = ns(at).into();
                for (name, value) in more.iter().filter_map(|word| word.split_once('=')) {
                    object[name] =
                        if name.ends_with("_ns") { ns(value).into() } else { value.to_owned().into() };
                }
            }
            _ => panic!("{text}"),
        }
        object.to_string()
    }

    pub(crate) fn history(lines: &[&str]) -> History {
        let text: String = lines.iter().map(|text| format!("{}\n", line(text))).collect();
        let history = History::read([("x", text.as_str())]);
        assert!(history.problems.is_empty(), "{:?}", history.problems);
        history
    }

    pub(crate) fn broken(lines: &[&str]) -> Vec<&'static str> {
        judge(&history(lines)).iter().map(|violation| violation.invariant).collect()
    }

    #[test]
    fn a_good_history_is_good() {
        let good = ["started a 1 0", "stopped a 1 10", "started b 2 11", "stopped b 2 20", "started a 3 21"];
        assert!(broken(&good).is_empty());
        assert!(broken(&[]).is_empty());
    }

    #[test]
    fn order_of_lines_does_not_matter() {
        let mixed = ["started b 2 11", "stopped a 1 10", "stopped b 2 20", "started a 1 0"];
        assert!(broken(&mixed).is_empty());
    }
}
