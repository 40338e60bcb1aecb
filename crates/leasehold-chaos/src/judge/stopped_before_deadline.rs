//! User code begins only while its grant is good, and nothing of it runs after its grant ended.
//!
//! Judged where the lines carry deadlines: `stop_at_ns` of a start, `valid_until_ns` of a stop.

use super::Violation;
use crate::history::{History, Run};

pub(super) const NAME: &str = "stopped_before_deadline";

pub(super) fn judge(history: &History) -> Vec<Violation> {
    history.runs.iter().flat_map(|run| [late_start(run), late_stop(run)]).flatten().collect()
}

fn late_start(run: &Run) -> Option<Violation> {
    let stop_at = run.start_stop_at_ns.filter(|stop_at| run.from_ns >= *stop_at)?;
    Some(violation(run, run.from_ns, format!("began {} after it had to stop", ms(run.from_ns - stop_at))))
}

fn late_stop(run: &Run) -> Option<Violation> {
    let (to, until) = (run.to_ns?, run.end_valid_until_ns?);
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
    use super::NAME;
    use crate::judge::tests::broken;

    #[test]
    fn work_past_its_grant_is_noticed() {
        assert!(broken(&["started a 1 0 stop_at_ns=5", "stopped a 1 10 valid_until_ns=10"]).is_empty());
        assert_eq!(broken(&["started a 1 0", "stopped a 1 11 valid_until_ns=10"]), [NAME]);
        assert_eq!(broken(&["started a 1 0", "failed a 1 11 valid_until_ns=10"]), [NAME]);
    }

    #[test]
    fn a_start_after_the_deadline_is_noticed() {
        assert_eq!(broken(&["started a 1 5 stop_at_ns=5"]), [NAME]);
        assert!(broken(&["started a 1 5"]).is_empty(), "what was not recorded is not judged");
    }
}
