//! Which process ran what when, as a picture in text: one row per process.

use std::fmt::Write;

use crate::report::outcome::ProcessEvent;
use crate::world::World;
use crate::world::clock::{Instant, SECOND};

/// The widest picture, in columns.
const COLUMNS: u64 = 100;

/// The lives of processes and the runs of work in them.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    names: Vec<String>,
    marks: Vec<(Instant, usize, ProcessEvent)>,
    runs: Vec<Run>,
    end: Instant,
}

#[derive(Clone, Debug)]
struct Run {
    process: usize,
    shard: usize,
    epoch: u64,
    from: Instant,
    to: Instant,
}

impl Timeline {
    pub(crate) fn of(world: &World) -> Self {
        let state = &world.oracle.state;
        let runs = state.runs.iter().map(|run| Run {
            process: state.process_of(run),
            shard: run.shard,
            epoch: run.epoch.0,
            from: run.began_at,
            to: run.ended_at.unwrap_or(world.at),
        });
        Timeline {
            names: world
                .processes
                .iter()
                .enumerate()
                .map(|(p, node)| format!("{} p{p}", node.name))
                .collect(),
            marks: world.marks.clone(),
            runs: runs.collect(),
            end: world.at,
        }
    }

    /// The picture of one shard, or of all together: `█` its work runs, `.` its process lives, `~` its process is paused. Only the last
    /// `span` is shown.
    pub fn picture(&self, shard: Option<usize>, span: Instant) -> String {
        let from = self.end.saturating_sub(span);
        let each = (self.end - from).div_ceil(COLUMNS).max(1);
        let column = |at: Instant| (at.saturating_sub(from) / each).min(COLUMNS - 1) as usize;
        let width = self.names.iter().map(String::len).max().unwrap_or(0);
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{}, from {}s to {}s, {} ms a column; █ runs, . lives, ~ paused",
            shard.map_or("any shard".to_owned(), |shard| format!("shard {shard}")),
            from / SECOND,
            self.end / SECOND,
            each / 1_000_000
        );
        for (process, name) in self.names.iter().enumerate() {
            let mut row = vec![' '; COLUMNS as usize];
            let mut since = None;
            for (at, _, mark) in self.marks.iter().filter(|(_, of, _)| *of == process) {
                if let Some((begun, sign)) = since.take() {
                    paint(&mut row, column(begun), column(*at), sign, *at >= from);
                }
                since = match mark {
                    ProcessEvent::Began | ProcessEvent::Resumed => Some((*at, '.')),
                    ProcessEvent::Paused => Some((*at, '~')),
                    ProcessEvent::Ended => None,
                };
            }
            if let Some((begun, sign)) = since {
                paint(&mut row, column(begun), column(self.end), sign, true);
            }
            let mut epochs = Vec::new();
            let shown = |run: &&Run| run.process == process && shard.is_none_or(|shard| run.shard == shard);
            for run in self.runs.iter().filter(shown) {
                if run.to >= from {
                    epochs.extend(shard.map(|_| run.epoch.to_string()));
                    for sign in &mut row[column(run.from)..=column(run.to)] {
                        *sign = if *sign == '~' { '~' } else { '█' };
                    }
                }
            }
            if row.iter().any(|sign| *sign != ' ') {
                let row: String = row.into_iter().collect();
                let epochs =
                    if epochs.is_empty() { String::new() } else { format!("  epoch {}", epochs.join(", ")) };
                let _ = writeln!(text, "{name:width$} |{row}|{epochs}");
            }
        }
        text
    }
}

fn paint(row: &mut [char], from: usize, to: usize, sign: char, seen: bool) {
    if seen {
        row[from..=to].iter_mut().for_each(|place| *place = sign);
    }
}
