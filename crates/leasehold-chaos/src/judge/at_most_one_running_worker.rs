//! At any instant, user code runs for a shard in at most one place.
//!
//! Moments of two machines cannot be compared, so this is judged between runs of the same boot only.

use super::Violation;
use crate::history::{History, Run};

pub(super) const NAME: &str = "at_most_one_running_worker";

pub(super) fn judge(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    for ((_, shard), runs) in history.by_shard() {
        let mut latest: Option<&Run> = None;
        for run in runs {
            if let Some(before) = latest
                && before.to_ns.is_none_or(|to| run.from_ns <= to)
            {
                violations.push(Violation {
                    invariant: NAME,
                    shard: shard.to_owned(),
                    at_ns: run.from_ns,
                    message: format!("shard {shard} ran twice at once: {before}, and {run}"),
                });
            }
            let later = |before: &Run| before.to_ns.is_some_and(|to| run.to_ns.is_none_or(|new| new > to));
            if latest.is_none_or(later) {
                latest = Some(run);
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::NAME;
    use crate::history::History;
    use crate::judge::tests::{broken, history, line};

    #[test]
    fn two_at_once_are_noticed() {
        assert_eq!(broken(&["started a 1 0", "stopped a 1 10", "started b 2 9", "stopped b 2 20"]), [NAME]);
        assert_eq!(broken(&["started a 1 0", "stopped a 1 10", "started b 2 10"]), [NAME], "ends count");
        let hidden =
            ["started a 1 0", "stopped a 1 100", "started b 2 10", "stopped b 2 20", "started c 3 50"];
        assert_eq!(broken(&hidden), [NAME, NAME], "the first one still ran when the third began");
    }

    #[test]
    fn a_start_without_an_end_counts_as_running_to_the_end() {
        assert_eq!(broken(&["started a 1 0", "started b 2 1000000"]), [NAME]);
    }

    #[test]
    fn work_ends_with_its_process() {
        assert!(broken(&["started a 1 0", "gone a 10", "started b 2 11"]).is_empty());
        assert_eq!(broken(&["started a 1 0", "gone a 12", "started b 2 11"]), [NAME]);
        assert_eq!(
            broken(&["gone a 5", "started a 1 7", "started b 2 11"]),
            [NAME],
            "that was another process"
        );
    }

    #[test]
    fn work_that_stood_still_with_its_process_did_not_run_unless_it_says_so() {
        let still = ["started a 1 0", "paused a 10", "started b 2 50", "gone a 70"];
        assert!(broken(&still).is_empty());
        assert!(broken(&still[..3]).is_empty(), "it still stands still");
        let went_on = ["started a 1 0", "paused a 10", "started b 2 50", "beat a 1 60", "gone a 70"];
        assert_eq!(broken(&went_on), [NAME]);
        let ran_on = ["started a 1 0", "paused a 10", "beat a 1 20", "gone a 40", "started b 2 30"];
        assert_eq!(broken(&ran_on), [NAME], "a short pause ends nothing");
    }

    #[test]
    fn other_shards_and_other_machines_do_not_count() {
        let other = line("started b 2 5").replace("\"shard\":\"0\"", "\"shard\":\"1\"");
        let far = line("started b 2 5").replace("\"boot\":\"b\"", "\"boot\":\"c\"");
        for text in [other, far] {
            let text = format!("{}\n{text}\n", line("started a 1 0"));
            let history = History::read([("x", text.as_str())]);
            assert!(crate::judge::judge(&history).is_empty());
        }
        let one = crate::judge::judge(&history(&["started a 1 0", "started b 2 1"]));
        assert!(one[0].message.contains("x:1") && one[0].message.contains("x:2"), "{}", one[0]);
    }
}
