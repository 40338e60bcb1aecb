//! The log of a node in each format, as programs read it.

use std::collections::BTreeMap;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::supervisor::Sandbox;

const SLEEPER: &str = "exec sleep 1000";

/// A node that starts in a new namespace, holds two shards and leaves.
fn logged(format: &str) -> Vec<String> {
    let sandbox = Sandbox::new();
    let mut node = sandbox.run("a", &["--shards", "2", "--log-format", format], SLEEPER);
    node.wait_for_log(" started");
    node.signal(Signal::SIGTERM);
    assert!(node.end().success());
    node.log().lines().map(str::to_owned).collect()
}

#[test]
fn json_has_one_object_per_line_with_each_change_once() {
    let lines = logged("json");
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    for line in &lines {
        assert!(text(line, "time").ends_with('Z') && !text(line, "message").is_empty(), "{line}");
        assert_eq!(text(line, "level"), "info", "a first start and a leave are no problem: {line}");
    }
    let states: Vec<(String, String)> = lines
        .iter()
        .filter(|line| line.get("from").is_some())
        .map(|line| (text(line, "to"), text(line, "cause")))
        .collect();
    let pair = |to: &str, cause: &str| (to.to_owned(), cause.to_owned());
    assert_eq!(states, [pair("attached", "joined"), pair("left", "requested")]);
    assert!(lines.iter().filter(|line| line.get("from").is_some()).all(|line| line["after_ms"].is_u64()));
    // A busy machine may take one wave for two.
    let mut waves = BTreeMap::new();
    for line in lines.iter().filter(|line| line.get("shards").is_some()) {
        *waves.entry(text(line, "why")).or_insert(0) += line["shards"].as_u64().unwrap();
    }
    assert_eq!(waves, [("drain".to_owned(), 2), ("planned".to_owned(), 2)].into());
}

#[test]
fn logfmt_has_pairs_and_text_has_sentences() {
    for line in logged("logfmt") {
        assert!(line.starts_with("time=20") && line.contains(" level=info msg="), "{line}");
        assert_eq!(pairs(&line).as_deref().map(|pairs| pairs[1].1.as_str()), Some("info"), "{line}");
    }
    let lines = logged("text");
    let started = lines.iter().find(|line| line.contains(" started")).unwrap();
    assert!(started.contains("  INFO g/0, g/1 started"), "{started}");
    assert!(started.contains(" without an owner: planned node=a group=g shards=2 why=planned"), "{started}");
}

/// Reads `key=value key="quoted value"`, strictly.
fn pairs(line: &str) -> Option<Vec<(String, String)>> {
    let (mut rest, mut pairs) = (line, Vec::new());
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=')?;
        let value: String;
        if after.starts_with('"') {
            let mut values = serde_json::Deserializer::from_str(after).into_iter::<String>();
            value = values.next()?.ok()?;
            rest = &after[values.byte_offset()..];
        } else {
            let end = after.find(' ').unwrap_or(after.len());
            value = after[..end].to_owned();
            rest = &after[end..];
        }
        if key.is_empty() || key.contains([' ', '"']) || !(rest.is_empty() || rest.starts_with(' ')) {
            return None;
        }
        pairs.push((key.to_owned(), value));
        rest = rest.strip_prefix(' ').unwrap_or(rest);
    }
    Some(pairs)
}
