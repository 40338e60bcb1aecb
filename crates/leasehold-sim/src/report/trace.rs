//! The story of a run: one line for everything worth telling, in true time.

use std::fmt::Write;

use crate::runner::options::Tracing;
use crate::world::clock::{Instant, MS};

/// The lines of a story, if it is told at all.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    tracing: Tracing,
    lines: Vec<Line>,
}

/// One line of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When, in true time.
    pub at: Instant,
    /// Who: a node and its process, the store, or the world.
    pub who: String,
    /// What.
    pub what: String,
}

impl Trace {
    pub(crate) fn new(tracing: Tracing) -> Self {
        Trace { tracing, lines: Vec::new() }
    }

    pub(crate) fn on(&self) -> bool {
        self.tracing == Tracing::On
    }

    pub(crate) fn tell(&mut self, at: Instant, who: impl Into<String>, what: impl Into<String>) {
        self.lines.push(Line { at, who: who.into(), what: what.into() });
    }

    pub(crate) fn into_lines(self) -> Vec<Line> {
        self.lines
    }
}

/// The story as text.
pub fn transcript(lines: &[Line]) -> String {
    let width = lines.iter().map(|line| line.who.len()).max().unwrap_or(0);
    let mut text = String::new();
    for line in lines {
        let (seconds, micros) = (line.at / (1000 * MS), line.at / 1000 % 1_000_000);
        let _ = writeln!(text, "{seconds:>4}.{micros:06}  {:width$}  {}", line.who, line.what);
    }
    text
}
