//! User code begins only while its grant is good, and nothing of it runs after its grant ended.
//!
//! Judged where the lines carry deadlines: both of a start, `valid_until_ns` of a beat and of a stop.

use super::Violation;
use crate::history::{History, Run};

/// The name of the promise.
pub const NAME: &str = "stopped_before_deadline";

/// Work that was told to stop notes its end when it is next given the processor, which a busy machine may put off: until
/// then it has done nothing. What it did is told by beats and by `at_ns`, which are judged without any such time.
const STARVED_NS: u64 = 1_000_000_000;

pub(super) fn judge(history: &History) -> Vec<Violation> {
    history
        .runs
        .iter()
        .flat_map(|run| [late_start(run), late_beat(run).or_else(|| late_stop(run))])
        .flatten()
        .collect()
}

/// How many runs have no deadline at their end, or no end.
pub(super) fn without_deadline(history: &History) -> usize {
    history.runs.iter().filter(|run| run.to_ns.is_none() || run.end_valid_until_ns.is_none()).count()
}

fn late_start(run: &Run) -> Option<Violation> {
    let stop_at = run.start_stop_at_ns.filter(|stop_at| run.from_ns >= *stop_at);
    let until = run.start_valid_until_ns.filter(|until| run.from_ns > *until);
    let what = match (stop_at, until) {
        (Some(stop_at), _) => format!("began {} after it had to stop", ms(run.from_ns - stop_at)),
        (None, Some(until)) => format!("began {} after its grant ended", ms(run.from_ns - until)),
        (None, None) => return None,
    };
    Some(violation(run, run.from_ns, what))
}

fn late_beat(run: &Run) -> Option<Violation> {
    let beat = run.late_beat.as_ref()?;
    let what = format!("ran {} after its grant ended ({})", ms(beat.late_by_ns()), beat.location);
    Some(violation(run, beat.at_ns, what))
}

fn late_stop(run: &Run) -> Option<Violation> {
    // Work that stood still with its process is judged by how long it went on when it could.
    let ended = run.ended_ns.map_or(0, |ended| ended.saturating_sub(run.stood_still_ns + STARVED_NS));
    let (to, until) = (run.to_ns?.max(ended), run.end_valid_until_ns?);
    (to > until).then(|| violation(run, to, format!("ran {} after its grant ended", ms(to - until))))
}

fn violation(run: &Run, at_ns: u64, what: String) -> Violation {
    let message = format!("shard {} {what}: {run}", run.shard);
    Violation { invariant: NAME, shard: run.shard.clone(), at_ns, message }
}

fn ms(ns: u64) -> String {
    format!("{}.{:03} ms", ns / 1_000_000, ns / 1_000 % 1_000)
}

#[cfg(test)]
mod tests {
    use super::{NAME, STARVED_NS};
    use crate::judge::not_judged;
    use crate::judge::tests::{broken, history};

    #[test]
    fn work_past_its_grant_is_noticed() {
        assert!(broken(&["started a 1 0 stop_at_ns=5", "stopped a 1 10 valid_until_ns=10"]).is_empty());
        assert_eq!(broken(&["started a 1 0", "stopped a 1 11 valid_until_ns=10"]), [NAME]);
        assert_eq!(broken(&["started a 1 0", "failed a 1 11 valid_until_ns=10"]), [NAME]);
    }

    #[test]
    fn the_real_end_counts_but_not_the_time_in_which_the_process_stood_still() {
        let stop = |ended: u64| {
            format!(
                "stopped a 1 4 stop_at_ns=7 valid_until_ns=10 ended_ns={}",
                ended + STARVED_NS / 1_000_000
            )
        };
        assert!(broken(&["started a 1 0", &stop(10)]).is_empty());
        assert_eq!(broken(&["started a 1 0", &stop(11)]), [NAME]);
        assert!(broken(&["started a 1 0", "paused a 5", "resumed a 50", &stop(53)]).is_empty());
        assert_eq!(broken(&["started a 1 0", "paused a 5", "resumed a 50", &stop(54)]), [NAME]);
        assert_eq!(broken(&["started a 1 0", "paused a 5", "resumed a 6", &stop(11)]), [NAME]);
        assert_eq!(broken(&["started a 1 0", "paused a 11", "resumed a 50", &stop(51)]), [NAME]);
        assert_eq!(
            broken(&["started a 1 0", "paused b 5", "resumed b 50", &stop(53)]),
            [NAME],
            "another one"
        );
    }

    #[test]
    fn a_beat_past_its_grant_is_noticed() {
        let good = ["started a 1 0 valid_until_ns=3", "beat a 1 9 valid_until_ns=9", "stopped a 1 10"];
        assert!(broken(&good).is_empty(), "it was renewed");
        assert_eq!(broken(&["started a 1 0", "beat a 1 9 valid_until_ns=3"]), [NAME]);
        let renewed_late = ["started a 1 0", "beat a 1 9 valid_until_ns=3", "beat a 1 10 valid_until_ns=20"];
        assert_eq!(broken(&renewed_late), [NAME]);
        let told_once = ["started a 1 0", "beat a 1 9 valid_until_ns=3", "stopped a 1 10 valid_until_ns=3"];
        assert_eq!(broken(&told_once), [NAME]);
    }

    #[test]
    fn runs_without_a_deadline_at_their_end_are_counted() {
        let count = |lines: &[&str]| not_judged(NAME, &history(lines));
        assert_eq!(
            count(&["started a 1 0 valid_until_ns=5", "stopped a 1 10"]),
            1,
            "it may have been renewed"
        );
        assert_eq!(count(&["started a 1 0 valid_until_ns=5"]), 1);
        assert_eq!(count(&["started a 1 0 valid_until_ns=5", "gone a 10"]), 1);
        let one = ["started a 1 0", "stopped a 1 4 valid_until_ns=5", "started a 2 6", "stopped a 2 10"];
        assert_eq!(count(&one), 1);
        assert_eq!(not_judged("epochs_strictly_rise", &history(&one)), 0);
    }

    #[test]
    fn a_start_after_the_deadline_is_noticed() {
        assert_eq!(broken(&["started a 1 5 stop_at_ns=5"]), [NAME]);
        assert_eq!(broken(&["started a 1 5 valid_until_ns=3"]), [NAME]);
        assert_eq!(broken(&["started a 1 5 stop_at_ns=2 valid_until_ns=3"]), [NAME], "told once");
        assert!(broken(&["started a 1 5"]).is_empty(), "what was not recorded is not judged");
    }
}
