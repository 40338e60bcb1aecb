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
        "log.jsonl:2: this is no JSON object",
        "log.jsonl:3: there is no \"shard\"; \"epoch\" is no whole number: \"one\"; \"node\" is no text: 7.5; there is no \"at_ns\"",
        "log.jsonl:5: this is no JSON object",
        "log.jsonl:6: there is no \"event\"",
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
