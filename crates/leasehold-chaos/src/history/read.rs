use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Beat, End, Event, History, Line, Place, Problem, Run};

/// What a process is known by: machine, node, life.
type Process = (String, String, String);

/// What a piece of work is known by: process, shard, epoch.
type Work = (Process, String, u64);

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
        self.machines();
        self.starts();
        self.beats();
        self.stops();
        self.ends_of_processes();
        self.beats_after_the_end();
        self.pauses();
        let runs = &mut self.history.runs;
        runs.sort_by(|a, b| {
            (&a.boot, &a.shard, a.from_ns, a.epoch).cmp(&(&b.boot, &b.shard, b.from_ns, b.epoch))
        });
        self.history.problems.sort();
        self.history
    }

    /// Whose clock a line without a machine was read from cannot be known where others name theirs.
    fn machines(&mut self) {
        if self.lines.iter().all(|line| line.boot.is_empty()) {
            return;
        }
        for line in self.lines.iter().filter(|line| line.boot.is_empty()) {
            self.history.problems.push(Problem {
                place: line.place.clone(),
                what: "there is no \"boot\", but other lines have one".into(),
            });
        }
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
                start_valid_until_ns: line.valid_until_ns,
                last_beat: None,
                late_beat: None,
                end_stop_at_ns: None,
                end_valid_until_ns: None,
                ended_ns: None,
                stood_still_ns: 0,
                started: line.place.clone(),
                ended: None,
            });
        }
    }

    /// Which runs there are of the same piece of work, ordered by when they began.
    fn runs_by_work(&self) -> BTreeMap<Work, Vec<usize>> {
        let mut runs: BTreeMap<Work, Vec<usize>> = BTreeMap::new();
        for (index, run) in self.history.runs.iter().enumerate() {
            let process = (run.boot.clone(), run.node.clone(), run.session.clone());
            runs.entry((process, run.shard.clone(), run.epoch)).or_default().push(index);
        }
        runs
    }

    /// Each beat is one of the last start before it of the same shard, node, life and epoch.
    fn beats(&mut self) {
        let starts = self.runs_by_work();
        for line in self.lines.iter().filter(|line| line.event == Event::Beat) {
            let mut before = starts.get(&work_of(line)).into_iter().flatten().rev();
            let Some(index) = before.find(|index| self.history.runs[**index].from_ns <= line.at_ns) else {
                self.history.problems.push(unfounded(line, "beats", "there is no start before that"));
                continue;
            };
            let run = &mut self.history.runs[*index];
            let beat =
                Beat { at_ns: line.at_ns, valid_until_ns: line.valid_until_ns, place: line.place.clone() };
            let latest_before = run.late_beat.as_ref().map_or(0, Beat::late_by_ns);
            if beat.late_by_ns() > latest_before {
                run.late_beat = Some(beat.clone());
            }
            run.last_beat = Some(beat);
        }
    }

    /// Each stop ends the last start before it of the same shard, node, life and epoch that has no end yet.
    fn stops(&mut self) {
        let mut open = self.runs_by_work();
        for line in self.lines.iter().filter(|line| matches!(line.event, Event::Stopped | Event::Failed)) {
            let candidates = open.get_mut(&work_of(line));
            let found = candidates.and_then(|indices| {
                let at = indices.iter().rposition(|index| self.history.runs[*index].from_ns <= line.at_ns)?;
                Some(indices.remove(at))
            });
            let Some(index) = found else {
                self.history.problems.push(unfounded(line, "stops", "no start before that has no end yet"));
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
            run.ended_ns = line.ended_ns;
            run.ended = Some(line.place.clone());
        }
    }

    /// What nobody stopped ended with its process; or when its process was stopped by a signal, if there is no word
    /// that it went on after that.
    fn ends_of_processes(&mut self) {
        let mut process_events: BTreeMap<Process, Vec<&Line>> = BTreeMap::new();
        for line in self.lines.iter().filter(|line| matches!(line.event, Event::Gone | Event::Paused)) {
            process_events.entry(process_of(line)).or_default().push(line);
        }
        for run in self.history.runs.iter_mut().filter(|run| run.end == End::Open) {
            let process = (run.boot.clone(), run.node.clone(), run.session.clone());
            let Some(events) = process_events.get(&process) else { continue };
            let gone = events.iter().find(|l| l.event == Event::Gone && l.at_ns >= run.from_ns);
            let seen = run.last_beat.as_ref().map_or(run.from_ns, |beat| beat.at_ns);
            let paused = events.iter().find(|l| l.event == Event::Paused && l.at_ns >= seen);
            let Some(end) = paused.into_iter().chain(gone).min_by_key(|line| line.at_ns) else { continue };
            run.to_ns = Some(end.at_ns);
            run.end = End::Gone;
            run.ended = Some(end.place.clone());
        }
    }

    /// A process that stands still cannot end its work: that time is not held against it.
    fn pauses(&mut self) {
        let mut pauses: BTreeMap<Process, Vec<(u64, u64)>> = BTreeMap::new();
        for line in &self.lines {
            match line.event {
                Event::Paused => pauses.entry(process_of(line)).or_default().push((line.at_ns, u64::MAX)),
                Event::Resumed => {
                    if let Some(last) = pauses.get_mut(&process_of(line)).and_then(|pauses| pauses.last_mut())
                    {
                        last.1 = last.1.min(line.at_ns);
                    }
                }
                _ => {}
            }
        }
        for run in &mut self.history.runs {
            let process = (run.boot.clone(), run.node.clone(), run.session.clone());
            let (Some(ended), Some(pauses)) = (run.ended_ns, pauses.get(&process)) else { continue };
            let from = run.end_stop_at_ns.or(run.to_ns).unwrap_or(ended);
            let within =
                pauses.iter().map(|(start, end)| (*end).min(ended).saturating_sub((*start).max(from)));
            run.stood_still_ns = within.sum();
        }
    }

    /// What beats after its end did not end there, whatever was written: it counts as running until its last beat.
    fn beats_after_the_end(&mut self) {
        for run in &mut self.history.runs {
            let Some(beat) = run.last_beat.clone().filter(|beat| run.to_ns.is_some_and(|to| beat.at_ns > to))
            else {
                continue;
            };
            self.history.problems.push(Problem {
                place: beat.place.clone(),
                what: format!("shard {} beats after its end: {run}", run.shard),
            });
            run.to_ns = Some(beat.at_ns);
            run.end_valid_until_ns = run.end_valid_until_ns.max(beat.valid_until_ns);
            run.ended = Some(beat.place);
        }
    }
}

fn process_of(line: &Line) -> Process {
    (line.boot.clone(), line.node.clone(), line.session.clone())
}

/// What a line tells of a piece of work that cannot be.
fn unfounded(line: &Line, does: &str, but: &str) -> Problem {
    let Line { shard, node, epoch, place, .. } = line;
    Problem {
        place: place.clone(),
        what: format!("shard {shard} {does} on {node} under epoch {epoch}, but {but}"),
    }
}

fn work_of(line: &Line) -> Work {
    (process_of(line), line.shard.clone(), line.epoch)
}
