//! Every start of a shard carries an epoch above all earlier ones.
//!
//! Which start was earlier is known between runs of one boot. Between machines it is not, but no two starts anywhere
//! may have the same epoch.

use std::collections::BTreeMap;

use super::Violation;
use crate::history::{History, Run};

pub(super) const NAME: &str = "epochs_strictly_rise";

pub(super) fn judge(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut wrong = |shard: &str, before: &Run, run: &Run, how: &str| {
        violations.push(Violation {
            invariant: NAME,
            shard: shard.to_owned(),
            at_ns: run.from_ns,
            message: format!("shard {shard} started {how}: {before}, then {run}"),
        });
    };
    let mut used: BTreeMap<(&str, u64), &Run> = BTreeMap::new();
    for ((_, shard), runs) in history.by_shard() {
        let mut highest: Option<&Run> = None;
        for run in runs {
            match highest {
                Some(before) if run.epoch == before.epoch => {
                    wrong(shard, before, run, "twice with one epoch")
                }
                Some(before) if run.epoch < before.epoch => {
                    wrong(shard, before, run, "with an epoch below an earlier one");
                }
                _ => highest = Some(run),
            }
            match used.get(&(shard, run.epoch)) {
                Some(before) if before.boot != run.boot => {
                    wrong(shard, before, run, "with one epoch on two machines");
                }
                Some(_) => {}
                None => drop(used.insert((shard, run.epoch), run)),
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::NAME;
    use crate::history::History;
    use crate::judge::tests::{broken, line};

    #[test]
    fn an_equal_epoch_is_noticed() {
        assert_eq!(broken(&["started a 7 0", "stopped a 7 10", "started b 7 11"]), [NAME]);
        assert_eq!(
            broken(&["started a 7 0", "stopped a 7 10", "started a 7 11"]),
            [NAME],
            "on the same node"
        );
    }

    #[test]
    fn a_falling_epoch_is_noticed_also_below_one_long_ago() {
        assert_eq!(broken(&["started a 7 0", "stopped a 7 10", "started b 6 11"]), [NAME]);
        let later = ["started a 7 0", "stopped a 7 10", "started b 5 11", "stopped b 5 12", "started c 6 13"];
        assert_eq!(broken(&later), [NAME, NAME]);
    }

    #[test]
    fn one_epoch_on_two_machines_is_noticed_whatever_their_clocks_say() {
        let there = line("started b 7 900000").replace("\"boot\":\"b\"", "\"boot\":\"c\"");
        let text = format!("{}\n{there}\n", line("started a 7 0"));
        let found = crate::judge::judge(&History::read([("x", text.as_str())]));
        assert_eq!(found.iter().map(|violation| violation.invariant).collect::<Vec<_>>(), [NAME]);
        let lower = there.replace("\"epoch\":7", "\"epoch\":6");
        let text = format!("{}\n{lower}\n", line("started a 7 0"));
        assert!(crate::judge::judge(&History::read([("x", text.as_str())])).is_empty());
    }
}
