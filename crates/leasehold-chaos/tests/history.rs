//! Histories as people write them: also wrong ones.

use leasehold_chaos::history::{End, History};
use leasehold_chaos::judge;

fn read(text: &str) -> History {
    History::read([("log.jsonl", text)])
}

fn problems(history: &History) -> Vec<String> {
    history.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn every_line_that_is_wrong_is_told_with_its_number() {
    let history = read(concat!(
        "{\"event\":\"started\",\"shard\":\"0\",\"node\":\"a\",\"epoch\":1,\"at_ns\":5}\n",
        "garbage\n",
        "{\"event\":\"started\",\"node\":7.5,\"epoch\":\"one\"}\n",
        "\n",
        "[1]\n",
        "{\"what\":1}\n",
        "{\"event\":\"renewed\",\"took\":1}\n",
        "{\"event\":\"stopped\",\"shard\":\"9\",\"node\":\"a\",\"epoch\":1,\"at_ns\":6}\n",
        "{\"event\":\"stopped\",\"shard\":\"0\",\"node\":\"a\",\"epoch\":1,\"at_ns\":4}\n",
    ));
    let problems = problems(&history);
    assert_eq!(problems.len(), 6, "{problems:#?}");
    for (problem, start) in problems.iter().zip([
        "log.jsonl:2: not a JSON object",
        "log.jsonl:3: \"shard\" is missing; \"epoch\" is not a whole number: \"one\"; \"node\" is not a string: 7.5; \"at_ns\" is missing",
        "log.jsonl:5: not a JSON object",
        "log.jsonl:6: \"event\" is missing",
        "log.jsonl:8: shard 9 stops on a under epoch 1, but no start",
        "log.jsonl:9: shard 0 stops on a under epoch 1, but no start",
    ]) {
        assert!(problem.starts_with(start), "{problem}\n should begin with\n{start}");
    }
    assert_eq!(history.runs.len(), 1);
    assert_eq!(history.lines, 9);
}

#[test]
fn a_last_line_that_a_kill_cut_short_is_only_noted() {
    let text = "{\"event\":\"started\",\"shard\":3,\"node\":\"a\",\"epoch\":1,\"at_ns\":5}\n{\"event\":\"sto";
    let history = read(text);
    assert!(history.problems.is_empty());
    assert_eq!(history.notes.len(), 1);
    assert_eq!((history.runs[0].shard.as_str(), &history.runs[0].end), ("3", &End::Open));
    assert_eq!(read(&format!("{text}\n")).problems.len(), 1, "a whole line must be right");
}

#[test]
fn a_stop_ends_the_right_start() {
    let line = |event: &str, epoch: u64, at: u64| {
        format!(
            "{{\"event\":\"{event}\",\"group\":\"g\",\"shard\":\"0\",\"node\":\"a\",\"epoch\":{epoch},\"at_ns\":{at},\"why\":\"moved\"}}\n"
        )
    };
    let text =
        [line("stopped", 2, 40), line("started", 1, 1), line("stopped", 1, 10), line("started", 2, 20)];
    let history = read(&text.concat());
    assert!(history.problems.is_empty(), "{:?}", history.problems);
    let ends: Vec<_> = history.runs.iter().map(|run| (run.epoch, run.from_ns, run.to_ns)).collect();
    assert_eq!(ends, [(1, 1, Some(10)), (2, 20, Some(40))]);
    assert_eq!(history.runs[0].end, End::Stopped(Some("moved".into())));
    assert_eq!(history.runs[0].shard, "g/0");
    assert!(judge::judge(&history).is_empty());
}

#[test]
fn several_files_are_one_history() {
    let line = |event: &str, node: &str, epoch: u64, at: u64| {
        format!(
            "{{\"event\":\"{event}\",\"shard\":\"0\",\"node\":\"{node}\",\"epoch\":{epoch},\"at_ns\":{at}}}\n"
        )
    };
    let (a, b) = (line("started", "a", 1, 5), line("started", "b", 2, 7));
    let history = History::read([("b.jsonl", b.as_str()), ("a.jsonl", a.as_str())]);
    let found = judge::judge(&history);
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("a.jsonl:1") && found[0].message.contains("b.jsonl:1"), "{}", found[0]);
}

#[test]
fn what_beats_after_its_end_did_not_end_there() {
    let line = |event: &str, node: &str, epoch: u64, at: u64| {
        format!(
            "{{\"event\":\"{event}\",\"shard\":\"0\",\"node\":\"{node}\",\"epoch\":{epoch},\"at_ns\":{at}}}\n"
        )
    };
    for end in ["stopped", "failed", "gone"] {
        let (start, end) = (line("started", "a", 1, 0), line(end, "a", 1, 2));
        let other = line("started", "b", 2, 5) + &line("stopped", "b", 2, 20);
        let good = read(&[&start, &line("beat", "a", 1, 2), &end, &other].map(String::as_str).concat());
        assert!(good.problems.is_empty() && judge::judge(&good).is_empty(), "{:?}", good.problems);

        let history = read(&[&start, &end, &other, &line("beat", "a", 1, 9)].map(String::as_str).concat());
        let found = judge::judge(&history);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains("ran twice at once"), "{}", found[0]);
        assert!(found[0].message.contains("[log.jsonl:1, log.jsonl:5]"), "{}", found[0]);
        let problems = problems(&history);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("log.jsonl:5: shard 0 beats after its end"), "{problems:?}");
    }
}

#[test]
fn a_beat_without_a_start_is_told() {
    let beat = "{\"event\":\"beat\",\"shard\":\"0\",\"node\":\"a\",\"epoch\":1,\"at_ns\":4}\n";
    let start = beat.replace("beat", "started").replace(":4", ":5");
    for text in [beat.to_owned(), start + beat] {
        let problems = problems(&read(&text));
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("beats on a under epoch 1, but there is no start"), "{problems:?}");
    }
}

#[test]
fn a_line_without_a_machine_among_lines_with_one_is_told() {
    let line = |node: &str, epoch: u64, boot: &str| {
        format!(
            "{{\"event\":\"started\",\"shard\":\"0\",\"node\":\"{node}\",\"epoch\":{epoch},\"at_ns\":{epoch}{boot}}}\n"
        )
    };
    let (here, there) = (",\"boot\":\"x\"", ",\"boot\":\"y\"");
    for more in ["", ",\"boot\":null", ",\"boot\":\"\""] {
        let history = read(&(line("a", 1, here) + &line("b", 2, more)));
        assert_eq!(problems(&history), ["log.jsonl:2: \"boot\" is missing, but other lines have it"]);
    }
    assert!(read(&(line("a", 1, "") + &line("b", 2, ""))).problems.is_empty());
    assert!(read(&(line("a", 1, here) + &line("b", 2, there))).problems.is_empty());
}
