//! The trace of a run: one entry for everything worth knowing, in true time.

use std::fmt::Write;

use crate::runner::options::Tracing;
use crate::world::clock::{Instant, MS};

/// The entries of a trace, if the run is traced.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    tracing: Tracing,
    entries: Vec<TraceEntry>,
}

/// One entry of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// When, in true time.
    pub at: Instant,
    /// What it is about: a node and its process, the store, or the world.
    pub who: String,
    /// What.
    pub what: String,
}

impl Trace {
    pub(crate) fn new(tracing: Tracing) -> Self {
        Trace { tracing, entries: Vec::new() }
    }

    pub(crate) fn on(&self) -> bool {
        self.tracing == Tracing::On
    }

    pub(crate) fn tell(&mut self, at: Instant, who: impl Into<String>, what: impl Into<String>) {
        self.entries.push(TraceEntry { at, who: who.into(), what: what.into() });
    }

    pub(crate) fn into_entries(self) -> Vec<TraceEntry> {
        self.entries
    }
}

/// The trace as text.
pub fn transcript(entries: &[TraceEntry]) -> String {
    let width = entries.iter().map(|entry| entry.who.len()).max().unwrap_or(0);
    let mut text = String::new();
    for entry in entries {
        let (seconds, micros) = (entry.at / (1000 * MS), entry.at / 1000 % 1_000_000);
        let _ = writeln!(text, "{seconds:>4}.{micros:06}  {:width$}  {}", entry.who, entry.what);
    }
    text
}
