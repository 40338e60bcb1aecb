//! Recorded histories: when workers ran, as they recorded it, one JSON object per line (`docs/check.md`).

mod entry;
mod read;
mod run;

pub use entry::{Entry, Event, Location, Problem};
pub(crate) use run::seconds;
pub use run::{Beat, End, Run};

use std::collections::BTreeMap;

use read::Reader;

/// Everything that was recorded: the runs of all shards, and the problems found while reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Every start of a shard's work with its end, ordered by machine, shard and moment.
    pub runs: Vec<Run>,
    /// Lines that could not be read, or that contradict others.
    pub problems: Vec<Problem>,
    /// What is worth knowing but not wrong, such as a last line that a kill cut short.
    pub notes: Vec<Problem>,
    /// How many lines there were.
    pub lines: usize,
}

impl History {
    /// Reads files, each given with its name. The order of files and lines does not matter.
    pub fn read<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> History {
        let mut reader = Reader::default();
        for (name, text) in files {
            reader.file(name, text);
        }
        reader.finish()
    }

    /// The runs of each shard of each machine (boot), ordered by when they began.
    pub fn by_shard(&self) -> BTreeMap<(&str, &str), Vec<&Run>> {
        let mut shards: BTreeMap<(&str, &str), Vec<&Run>> = BTreeMap::new();
        for run in &self.runs {
            shards.entry((run.boot.as_str(), run.shard.as_str())).or_default().push(run);
        }
        shards
    }

    /// How many machines, or boots of one, took part.
    pub fn boots(&self) -> usize {
        let mut boots: Vec<&str> = self.runs.iter().map(|run| run.boot.as_str()).collect();
        boots.sort_unstable();
        boots.dedup();
        boots.len()
    }

    /// How many shards ran.
    pub fn shards(&self) -> usize {
        let mut shards: Vec<&str> = self.runs.iter().map(|run| run.shard.as_str()).collect();
        shards.sort_unstable();
        shards.dedup();
        shards.len()
    }
}
