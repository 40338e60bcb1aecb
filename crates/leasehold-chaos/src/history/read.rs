use std::collections::BTreeMap;
use std::sync::Arc;

use super::{End, Event, History, Line, Place, Problem, Run};

/// What a process is known by: machine, node, life.
type Process = (String, String, String);

/// Puts lines together to runs.
#[derive(Default)]
pub(super) struct Reader {
    lines: Vec<Line>,
    history: History,
}

impl Reader {
    pub(super) fn file(&mut self, name: &str, text: &str) {
        let file: Arc<str> = name.into();
        let whole = text.ends_with('\n');
        let count = text.lines().count();
        self.history.lines += count;
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let place = Place { file: file.clone(), line: index + 1 };
            match Line::parse(line, place) {
                Ok(Some(line)) => self.lines.push(line),
                Ok(None) => {}
                // Whoever was killed while it wrote left half a line.
                Err(problem) if !whole && index + 1 == count => self.history.notes.push(Problem {
                    what: format!("the last line is cut short, and was left out ({})", problem.what),
                    ..problem
                }),
                Err(problem) => self.history.problems.push(problem),
            }
        }
    }

    pub(super) fn finish(mut self) -> History {
        self.lines.sort_by(|a, b| (&a.boot, a.at_ns, &a.place).cmp(&(&b.boot, b.at_ns, &b.place)));
        self.starts();
        self.stops();
        self.ends_of_processes();
        let runs = &mut self.history.runs;
        runs.sort_by(|a, b| {
            (&a.boot, &a.shard, a.from_ns, a.epoch).cmp(&(&b.boot, &b.shard, b.from_ns, b.epoch))
        });
        self.history.problems.sort();
        self.history
    }

    fn starts(&mut self) {
        for line in self.lines.iter().filter(|line| line.event == Event::Started) {
            self.history.runs.push(Run {
                shard: line.shard.clone(),
                node: line.node.clone(),
                session: line.session.clone(),
                boot: line.boot.clone(),
                epoch: line.epoch,
                from_ns: line.at_ns,
                to_ns: None,
                end: End::Open,
                start_stop_at_ns: line.stop_at_ns,
                end_stop_at_ns: None,
                end_valid_until_ns: None,
                end_written_ns: None,
                started: line.place.clone(),
                ended: None,
            });
        }
    }

    /// Each stop ends the last start before it of the same shard, node, life and epoch that has no end yet.
    fn stops(&mut self) {
        let mut open: BTreeMap<(Process, String, u64), Vec<usize>> = BTreeMap::new();
        for (index, run) in self.history.runs.iter().enumerate() {
            let process = (run.boot.clone(), run.node.clone(), run.session.clone());
            open.entry((process, run.shard.clone(), run.epoch)).or_default().push(index);
        }
        for line in self.lines.iter().filter(|line| matches!(line.event, Event::Stopped | Event::Failed)) {
            let key = (process_of(line), line.shard.clone(), line.epoch);
            let candidates = open.get_mut(&key);
            let found = candidates.and_then(|indices| {
                let at = indices.iter().rposition(|index| self.history.runs[*index].from_ns <= line.at_ns)?;
                Some(indices.remove(at))
            });
            let Some(index) = found else {
                self.history.problems.push(Problem {
                    place: line.place.clone(),
                    what: format!(
                        "shard {} stops on {} under epoch {}, but no start before that has no end yet",
                        line.shard, line.node, line.epoch
                    ),
                });
                continue;
            };
            let run = &mut self.history.runs[index];
            run.to_ns = Some(line.at_ns);
            run.end = match line.event {
                Event::Failed => End::Failed,
                _ => End::Stopped(line.why.clone()),
            };
            run.end_stop_at_ns = line.stop_at_ns;
            run.end_valid_until_ns = line.valid_until_ns;
            run.end_written_ns = line.written_ns;
            run.ended = Some(line.place.clone());
        }
    }

    /// What nobody stopped ended with its process; or when its process was stopped by a signal, if there is no word
    /// that it went on after that.
    fn ends_of_processes(&mut self) {
        let mut beats: BTreeMap<(Process, &str, u64), u64> = BTreeMap::new();
        let mut process_events: BTreeMap<Process, Vec<&Line>> = BTreeMap::new();
        for line in &self.lines {
            match line.event {
                Event::Beat => {
                    let last = beats.entry((process_of(line), line.shard.as_str(), line.epoch)).or_default();
                    *last = line.at_ns.max(*last);
                }
                Event::Gone | Event::Paused => {
                    process_events.entry(process_of(line)).or_default().push(line);
                }
                Event::Started | Event::Stopped | Event::Failed => {}
            }
        }
        for run in self.history.runs.iter_mut().filter(|run| run.end == End::Open) {
            let process = (run.boot.clone(), run.node.clone(), run.session.clone());
            let Some(events) = process_events.get(&process) else { continue };
            let gone = events.iter().find(|l| l.event == Event::Gone && l.at_ns >= run.from_ns);
            let seen = beats.get(&(process, run.shard.as_str(), run.epoch)).copied();
            let seen = seen.unwrap_or(0).max(run.from_ns);
            let paused = events.iter().find(|l| l.event == Event::Paused && l.at_ns >= seen);
            let Some(end) = paused.into_iter().chain(gone).min_by_key(|line| line.at_ns) else { continue };
            run.to_ns = Some(end.at_ns);
            run.end = End::Gone;
            run.ended = Some(end.place.clone());
        }
    }
}

fn process_of(line: &Line) -> Process {
    (line.boot.clone(), line.node.clone(), line.session.clone())
}
