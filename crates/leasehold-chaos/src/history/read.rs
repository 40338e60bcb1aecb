use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Beat, End, Entry, Event, History, Location, Problem, Run};

/// The identity of a process: machine, node, session.
type Process = (String, String, String);

/// The identity of a piece of work: process, shard, epoch.
type WorkKey = (Process, String, u64);

/// Combines lines into runs.
#[derive(Default)]
pub(super) struct Reader {
    entries: Vec<Entry>,
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
            let location = Location { file: file.clone(), line: index + 1 };
            match Entry::parse(line, location) {
                Ok(Some(entry)) => self.entries.push(entry),
                Ok(None) => {}
                // A process that was killed while it wrote left half a line.
                Err(problem) if !whole && index + 1 == count => self.history.notes.push(Problem {
                    what: format!("the last line is incomplete and was ignored ({})", problem.what),
                    ..problem
                }),
                Err(problem) => self.history.problems.push(problem),
            }
        }
    }

    pub(super) fn finish(mut self) -> History {
        self.entries.sort_by(|a, b| (&a.boot, a.at_ns, &a.location).cmp(&(&b.boot, b.at_ns, &b.location)));
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

    /// If some lines name their machine, a line without one is a problem: its clock is unknown.
    fn machines(&mut self) {
        if self.entries.iter().all(|entry| entry.boot.is_empty()) {
            return;
        }
        for entry in self.entries.iter().filter(|entry| entry.boot.is_empty()) {
            self.history.problems.push(Problem {
                location: entry.location.clone(),
                what: "\"boot\" is missing, but other lines have it".into(),
            });
        }
    }

    fn starts(&mut self) {
        for entry in self.entries.iter().filter(|entry| entry.event == Event::Started) {
            self.history.runs.push(Run {
                shard: entry.shard.clone(),
                node: entry.node.clone(),
                session: entry.session.clone(),
                boot: entry.boot.clone(),
                epoch: entry.epoch,
                from_ns: entry.at_ns,
                to_ns: None,
                end: End::Open,
                start_stop_at_ns: entry.stop_at_ns,
                start_valid_until_ns: entry.valid_until_ns,
                last_beat: None,
                late_beat: None,
                end_stop_at_ns: None,
                end_valid_until_ns: None,
                ended_ns: None,
                stood_still_ns: 0,
                started: entry.location.clone(),
                ended: None,
            });
        }
    }

    /// Which runs there are of the same piece of work, ordered by when they began.
    fn runs_by_work(&self) -> BTreeMap<WorkKey, Vec<usize>> {
        let mut runs: BTreeMap<WorkKey, Vec<usize>> = BTreeMap::new();
        for (index, run) in self.history.runs.iter().enumerate() {
            let process = (run.boot.clone(), run.node.clone(), run.session.clone());
            runs.entry((process, run.shard.clone(), run.epoch)).or_default().push(index);
        }
        runs
    }

    /// Each beat is one of the last start before it of the same shard, node, life and epoch.
    fn beats(&mut self) {
        let starts = self.runs_by_work();
        for entry in self.entries.iter().filter(|entry| entry.event == Event::Beat) {
            let mut before = starts.get(&work_of(entry)).into_iter().flatten().rev();
            let Some(index) = before.find(|index| self.history.runs[**index].from_ns <= entry.at_ns) else {
                self.history.problems.push(unfounded(entry, "beats", "there is no start before that"));
                continue;
            };
            let run = &mut self.history.runs[*index];
            let beat = Beat {
                at_ns: entry.at_ns,
                valid_until_ns: entry.valid_until_ns,
                location: entry.location.clone(),
            };
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
        for entry in self.entries.iter().filter(|entry| matches!(entry.event, Event::Stopped | Event::Failed))
        {
            let candidates = open.get_mut(&work_of(entry));
            let found = candidates.and_then(|indices| {
                let at =
                    indices.iter().rposition(|index| self.history.runs[*index].from_ns <= entry.at_ns)?;
                Some(indices.remove(at))
            });
            let Some(index) = found else {
                self.history.problems.push(unfounded(entry, "stops", "no start before that has no end yet"));
                continue;
            };
            let run = &mut self.history.runs[index];
            run.to_ns = Some(entry.at_ns);
            run.end = match entry.event {
                Event::Failed => End::Failed,
                _ => End::Stopped(entry.why.clone()),
            };
            run.end_stop_at_ns = entry.stop_at_ns;
            run.end_valid_until_ns = entry.valid_until_ns;
            run.ended_ns = entry.ended_ns;
            run.ended = Some(entry.location.clone());
        }
    }

    /// Work without a stop ended with its process, or when a signal paused its process, if nothing shows that it ran
    /// after that.
    fn ends_of_processes(&mut self) {
        let mut process_events: BTreeMap<Process, Vec<&Entry>> = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| matches!(entry.event, Event::Gone | Event::Paused)) {
            process_events.entry(process_of(entry)).or_default().push(entry);
        }
        for run in self.history.runs.iter_mut().filter(|run| run.end == End::Open) {
            let process = (run.boot.clone(), run.node.clone(), run.session.clone());
            let Some(events) = process_events.get(&process) else { continue };
            let gone = events.iter().find(|entry| entry.event == Event::Gone && entry.at_ns >= run.from_ns);
            let seen = run.last_beat.as_ref().map_or(run.from_ns, |beat| beat.at_ns);
            let paused = events.iter().find(|entry| entry.event == Event::Paused && entry.at_ns >= seen);
            let Some(end) = paused.into_iter().chain(gone).min_by_key(|entry| entry.at_ns) else { continue };
            run.to_ns = Some(end.at_ns);
            run.end = End::Gone;
            run.ended = Some(end.location.clone());
        }
    }

    /// A paused process cannot end its work, so the time of the pause does not count.
    fn pauses(&mut self) {
        let mut pauses: BTreeMap<Process, Vec<(u64, u64)>> = BTreeMap::new();
        for entry in &self.entries {
            match entry.event {
                Event::Paused => pauses.entry(process_of(entry)).or_default().push((entry.at_ns, u64::MAX)),
                Event::Resumed => {
                    if let Some(last) =
                        pauses.get_mut(&process_of(entry)).and_then(|pauses| pauses.last_mut())
                    {
                        last.1 = last.1.min(entry.at_ns);
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

    /// Work that beats after its recorded end counts as running until its last beat.
    fn beats_after_the_end(&mut self) {
        for run in &mut self.history.runs {
            let Some(beat) = run.last_beat.clone().filter(|beat| run.to_ns.is_some_and(|to| beat.at_ns > to))
            else {
                continue;
            };
            self.history.problems.push(Problem {
                location: beat.location.clone(),
                what: format!("shard {} beats after its end: {run}", run.shard),
            });
            run.to_ns = Some(beat.at_ns);
            run.end_valid_until_ns = run.end_valid_until_ns.max(beat.valid_until_ns);
            run.ended = Some(beat.location);
        }
    }
}

fn process_of(entry: &Entry) -> Process {
    (entry.boot.clone(), entry.node.clone(), entry.session.clone())
}

/// An entry that contradicts the others.
fn unfounded(entry: &Entry, does: &str, but: &str) -> Problem {
    let Entry { shard, node, epoch, location, .. } = entry;
    Problem {
        location: location.clone(),
        what: format!("shard {shard} {does} on {node} under epoch {epoch}, but {but}"),
    }
}

fn work_of(entry: &Entry) -> WorkKey {
    (process_of(entry), entry.shard.clone(), entry.epoch)
}
