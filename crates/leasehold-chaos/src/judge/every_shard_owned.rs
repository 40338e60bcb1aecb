//! Once all faults are over, every shard is owned within the stated bound.

use std::time::Duration;

use super::Violation;
use crate::history::History;
use crate::history::seconds;

/// The name of the promise.
pub const NAME: &str = "every_shard_owned";

/// Whether each of these shards ran at some moment from `healed_at_ns` on, no later than `within` after it, and when
/// the last of them did.
pub fn judge(
    history: &History,
    shards: impl IntoIterator<Item = String>,
    healed_at_ns: u64,
    within: Duration,
) -> Result<Duration, Vec<Violation>> {
    let bound = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
    let mut slowest = 0;
    let mut violations = Vec::new();
    for shard in shards {
        let runs = history.runs.iter().filter(|run| run.shard == shard);
        let after = runs.filter(|run| run.to_ns.is_none_or(|to| to >= healed_at_ns));
        let first = after.map(|run| run.from_ns.max(healed_at_ns) - healed_at_ns).min();
        match first {
            Some(after) if after <= bound => slowest = slowest.max(after),
            late => violations.push(Violation {
                invariant: NAME,
                at_ns: healed_at_ns,
                message: match late {
                    Some(after) => format!(
                        "shard {shard} ran only {} after all faults were over, bound {}",
                        seconds(after),
                        seconds(bound)
                    ),
                    None => format!("shard {shard} never ran after all faults were over"),
                },
                shard,
            }),
        }
    }
    if violations.is_empty() { Ok(Duration::from_nanos(slowest)) } else { Err(violations) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tests::history;

    fn owned(lines: &[&str]) -> Result<Duration, Vec<Violation>> {
        judge(&history(lines), ["0".to_owned()], 100_000_000, Duration::from_millis(50))
    }

    #[test]
    fn holes_are_noticed() {
        assert_eq!(owned(&["started a 1 0"]), Ok(Duration::ZERO));
        assert_eq!(
            owned(&["started a 1 0", "stopped a 1 90", "started b 2 130"]),
            Ok(Duration::from_millis(30))
        );
        assert!(owned(&["started a 1 0", "stopped a 1 90", "started b 2 151"]).is_err());
        assert!(owned(&["started a 1 0", "stopped a 1 90"]).is_err());
        assert!(owned(&[]).is_err());
    }
}
