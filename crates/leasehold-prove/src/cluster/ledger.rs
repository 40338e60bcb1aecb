//! Follows the growing history: which node runs what right now, without reading everything again.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// What was read from the files of a folder so far.
#[derive(Debug)]
pub(crate) struct Ledger {
    folder: PathBuf,
    /// How far each file was read.
    read: BTreeMap<PathBuf, u64>,
    /// Where each shard runs: node, process and epoch.
    running: BTreeMap<String, BTreeSet<(String, String, u64)>>,
    /// The session state of each node, as it reported it.
    session_state: BTreeMap<String, String>,
    pub(crate) starts: usize,
}

impl Ledger {
    pub(crate) fn of(folder: &Path) -> Ledger {
        Ledger {
            folder: folder.to_owned(),
            read: BTreeMap::new(),
            running: BTreeMap::new(),
            session_state: BTreeMap::new(),
            starts: 0,
        }
    }

    /// Takes in what was written since.
    pub(crate) fn update(&mut self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "jsonl") {
                let mut file = std::fs::File::open(&path)?;
                let from = self.read.get(&path).copied().unwrap_or(0);
                file.seek(SeekFrom::Start(from))?;
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes)?;
                // Half a line is left for the next time.
                let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                self.read.insert(path, from + whole as u64);
                String::from_utf8_lossy(&bytes[..whole]).lines().for_each(|line| self.take(line));
            }
        }
        Ok(())
    }

    fn take(&mut self, line: &str) {
        let Ok(line) = serde_json::from_str::<Value>(line) else { return };
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let run = (text("node"), text("session"), line["epoch"].as_u64().unwrap_or(0));
        match line["event"].as_str() {
            Some("started") => {
                self.starts += 1;
                self.running.entry(text("shard")).or_default().insert(run);
            }
            Some("stopped" | "failed") => {
                self.running.entry(text("shard")).or_default().remove(&run);
            }
            Some("gone") => {
                for runs in self.running.values_mut() {
                    runs.retain(|(node, session, _)| (node, session) != (&run.0, &run.1));
                }
                self.session_state.remove(&run.0);
            }
            Some("session_state") => drop(self.session_state.insert(run.0, text("to"))),
            _ => {}
        }
    }

    /// How many shards run on some node.
    pub(crate) fn owned(&self) -> usize {
        self.running.values().filter(|runs| !runs.is_empty()).count()
    }

    /// How many shards a node runs.
    pub(crate) fn owned_by(&self, node: &str) -> usize {
        self.running.values().filter(|runs| runs.iter().any(|run| run.0 == node)).count()
    }

    /// The shards of numbered groups that a node runs.
    pub(crate) fn slots_of(&self, node: &str) -> Vec<u32> {
        let mine = self.running.iter().filter(|(_, runs)| runs.iter().any(|run| run.0 == node));
        mine.filter_map(|(shard, _)| shard.parse().ok()).collect()
    }

    /// Whether a node runs a shard.
    pub(crate) fn runs(&self, node: &str, slot: u32) -> bool {
        self.running.get(&slot.to_string()).is_some_and(|runs| runs.iter().any(|run| run.0 == node))
    }

    /// The session state of a node, as it reported it.
    pub(crate) fn session_state(&self, node: &str) -> &str {
        self.session_state.get(node).map_or("not joined", String::as_str)
    }
}
