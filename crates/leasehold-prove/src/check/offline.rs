//! Judges recorded histories, of any program and any time.

use leasehold_chaos::history::History;
use leasehold_chaos::judge;
use leasehold_chaos::measure::Gaps;
use leasehold_cli_common::failure::{Code, Failure};
use serde_json::json;

use super::arguments::Check;
use super::findings::{partly_judged, people};
use super::print::promise_line;

/// How many lines that could not be read are shown.
const SHOWN_MAX: usize = 20;

/// Reads the files, judges them, and says so.
pub(super) fn check(what: &Check) -> Result<(), Failure> {
    let mut unread = Vec::new();
    let mut files = Vec::new();
    for path in &what.history {
        match std::fs::read(path) {
            Ok(bytes) => {
                files.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()))
            }
            Err(error) => unread.push(format!("{}: {error}", path.display())),
        }
    }
    if !unread.is_empty() {
        let message =
            format!("nothing was judged because some files cannot be read\n  {}", unread.join("\n  "));
        return Err(Failure::new(Code::Usage, message));
    }
    let history = History::read(files.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let broken = judge::judge(&history);
    let verdict = verdict(&history, broken.len());
    if what.json {
        let problems: Vec<String> = history.problems.iter().map(ToString::to_string).collect();
        let notes: Vec<String> = history.notes.iter().map(ToString::to_string).collect();
        let gaps = Gaps::of(&history, |_, _| true);
        println!(
            "{:#}",
            json!({
                "verdict": match &verdict {
                    Ok(()) => "pass",
                    Err(failure) if failure.code == Code::Unhealthy => "fail",
                    Err(_) => "unknown",
                },
                "why": verdict.as_ref().err().map(|failure| &failure.message),
                "lines": history.lines, "starts": history.runs.len(), "shards": history.shards(),
                "boots": history.boots(),
                "without_deadline_at_their_end": judge::ALWAYS.iter().map(|(name, _)| judge::not_judged(name, &history)).sum::<usize>(),
                "not_judged_between_machines": if history.boots() > 1 { judge::NOT_BETWEEN_MACHINES } else { &[] },
                "broken": broken, "problems": problems, "notes": notes,
                "spans": {"moved": gaps.moved, "detached": gaps.detached, "killed": gaps.killed, "ended": gaps.ended},
            })
        );
    } else {
        print!("{}", told(&history));
    }
    verdict
}

fn told(history: &History) -> String {
    let mut text = format!(
        "{}: {} of {} on {}\n",
        many(history.lines, "line"),
        many(history.runs.len(), "start"),
        many(history.shards(), "shard"),
        many(history.boots(), "machine")
    );
    if history.boots() > 1 {
        text.push_str(
            "clocks of different machines cannot be compared: across machines, only the uniqueness of epochs is judged\n",
        );
    }
    let open = history.runs.iter().filter(|run| run.to_ns.is_none()).count();
    if open > 0 {
        let told = format!("starts without an end (they count as still running): {open}\n");
        text.push_str(&told);
    }
    for note in &history.notes {
        text.push_str(&format!("{note}\n"));
    }
    for problem in history.problems.iter().take(SHOWN_MAX) {
        text.push_str(&format!("{problem}\n"));
    }
    if history.problems.len() > SHOWN_MAX {
        text.push_str(&format!("… and {} more such lines\n", history.problems.len() - SHOWN_MAX));
    }
    if history.runs.is_empty() {
        text.push_str("nothing to judge\n");
        return text;
    }
    for (name, judge) in judge::ALWAYS {
        let broken: Vec<String> = judge(history).into_iter().map(|violation| violation.message).collect();
        let not_judged = judge::not_judged(name, history);
        if broken.is_empty() && not_judged == history.runs.len() {
            let how = format!("not judged; runs whose end has no deadline: {not_judged}");
            text.push_str(&format!("{:<6}  {name:<28} {how}\n", "-"));
            continue;
        }
        let mut how = format!("in {}", many(history.runs.len(), "run"));
        how.push_str(&partly_judged(not_judged));
        if history.boots() > 1 && judge::NOT_BETWEEN_MACHINES.contains(name) {
            how.push_str(", not judged across machines");
        }
        promise_line(&mut text, name, &how, &broken);
    }
    let gaps = Gaps::of(history, |_, _| true);
    for (title, spans) in [
        ("planned moves", &gaps.moved),
        ("after a lost session", &gaps.detached),
        ("after the end of a process", &gaps.killed),
        ("other", &gaps.ended),
    ] {
        if let (Some(median), Some(longest)) = (spans.at(500), spans.at(1000)) {
            text.push_str(&format!(
                "without a worker, {title}: {}, median {}, longest {}\n",
                many(spans.all().len(), "gap"),
                people(median),
                people(longest)
            ));
        }
    }
    text
}

fn verdict(history: &History, broken: usize) -> Result<(), Failure> {
    let problems = history.problems.len();
    match (broken, problems) {
        (0, 0) if history.runs.is_empty() => {
            Err(Failure::new(Code::Usage, "nothing was judged because these files contain no start"))
        }
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::new(
            Code::Usage,
            format!(
                "the result is incomplete because {} could not be used: fix or remove them",
                many(problems, "line")
            ),
        )),
        _ => Err(Failure::new(Code::Unhealthy, format!("promises were broken {broken} times"))),
    }
}

/// A number of things, in words.
fn many(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
