//! What the workers logged, and what must hold of it.

use std::collections::BTreeMap;
use std::path::Path;

use leasehold_core::Moment;

/// One start of one shard's work, as its worker saw it.
#[derive(Clone, Debug)]
struct Run {
    node: String,
    epoch: u64,
    from: u64,
    to: u64,
}

/// All runs of all shards, ordered by when they began.
#[derive(Debug, Default)]
pub(crate) struct History {
    runs: BTreeMap<String, Vec<Run>>,
}

impl History {
    pub(crate) fn read(folder: &Path) -> History {
        let mut history = History::default();
        for entry in std::fs::read_dir(folder).expect("the folder is there").flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|ending| ending == "log") {
                let node = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                // A worker that was killed may have left half a line.
                let text = std::fs::read_to_string(&path).expect("a log can be read");
                text.lines().for_each(|line| history.add(&node, line));
            }
        }
        for runs in history.runs.values_mut() {
            runs.sort_by_key(|run| run.from);
        }
        history
    }

    fn add(&mut self, node: &str, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let [word, shard, epoch, at] = words[..] else { return };
        let (Ok(epoch), Ok(at)) = (epoch.parse(), at.parse()) else { return };
        let runs = self.runs.entry(shard.to_owned()).or_default();
        if word == "start" {
            runs.push(Run { node: node.to_owned(), epoch, from: at, to: at });
        } else if let Some(run) = runs.iter_mut().rev().find(|run| run.node == node && run.epoch == epoch) {
            run.to = run.to.max(at);
        }
    }

    pub(crate) fn starts(&self) -> usize {
        self.runs.values().map(Vec::len).sum()
    }

    /// How many shards have run after that moment.
    pub(crate) fn running_after(&self, at: Moment) -> usize {
        self.runs.values().filter(|runs| runs.iter().any(|run| run.to > at.as_nanos())).count()
    }

    pub(crate) fn overlaps(&self) -> Vec<String> {
        self.pairs(|before, after| after.from <= before.to)
    }

    pub(crate) fn epochs_that_did_not_rise(&self) -> Vec<String> {
        self.pairs(|before, after| after.epoch <= before.epoch)
    }

    fn pairs(&self, wrong: impl Fn(&Run, &Run) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        for (shard, runs) in &self.runs {
            let mut last: Option<&Run> = None;
            for run in runs {
                if let Some(last) = last
                    && wrong(last, run)
                {
                    found.push(format!("shard {shard}: {last:?} and {run:?}"));
                }
                last = Some(last.map_or(run, |last| if last.to > run.to { last } else { run }));
            }
        }
        found
    }

    pub(crate) fn summary(&self) -> String {
        let mut gaps: Vec<u64> = Vec::new();
        for runs in self.runs.values() {
            gaps.extend(runs.windows(2).map(|pair| pair[1].from.saturating_sub(pair[0].to) / 1_000_000));
        }
        gaps.sort_unstable();
        let at =
            |percent: usize| gaps.get(gaps.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0);
        format!(
            "{} starts of {} shards; unattended between two runs: median {} ms, 99 % within {} ms, at most {} ms",
            self.starts(),
            self.runs.len(),
            at(50),
            at(99),
            at(100)
        )
    }
}
