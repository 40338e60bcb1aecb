//! What every command prints, word for word: `tests/golden/*.txt`. Each file is a session on a store of its own, with
//! known records in it. After a wanted change, `REWRITE=1 cargo test -p leasehold-cli golden` rewrites them; read
//! the difference before it is committed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{LEASEHOLD, to_its_end};
use crate::stage;

#[test]
fn every_command_prints_what_it_should() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5);
    let rewrite = std::env::var_os("REWRITE").is_some();
    let mut wrong = Vec::new();
    for file in files {
        let before = std::fs::read_to_string(&file).unwrap();
        let after = play(&before);
        if rewrite {
            std::fs::write(&file, &after).unwrap();
        } else if before != after {
            wrong.push(format!("{}:\n{}", file.display(), difference(&before, &after)));
        }
    }
    assert!(wrong.is_empty(), "REWRITE=1 accepts this:\n{}", wrong.join("\n"));
}

#[test]
fn the_reference_of_settings_is_current() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    let output = to_its_end(Command::new(LEASEHOLD).args(["config", "reference"]));
    let now = String::from_utf8(output.stdout).unwrap();
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(&file, &now).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&file).unwrap_or_default(),
        now,
        "REWRITE=1 rewrites docs/settings.md"
    );
}

/// Runs the commands of a session, and gives it with what they print now. Lines before the first command are kept;
/// `> FILE TEXT` writes a file, and `~ RECORD TEXT` puts anything in the place of a record.
fn play(session: &str) -> String {
    let folder = tempfile::TempDir::new().unwrap();
    stage::set(&folder.path().join("x.db"));
    let mut text = String::new();
    for line in session.lines() {
        if let Some(rest) = line.strip_prefix("> ") {
            let (name, content) = rest.split_once(' ').unwrap();
            std::fs::write(folder.path().join(name), content.replace("\\n", "\n")).unwrap();
            text.push_str(&format!("{line}\n"));
        } else if let Some(rest) = line.strip_prefix("~ ") {
            let (key, value) = rest.split_once(' ').unwrap_or((rest, ""));
            stage::spoil(&folder.path().join("x.db"), key, value);
            text.push_str(&format!("{line}\n"));
        } else if let Some(command) = line.strip_prefix("$ ") {
            text.push_str(&format!("{line}\n{}\n", perform(folder.path(), command)));
        } else if line.starts_with('#') {
            text.push_str(&format!("{line}\n"));
        }
    }
    text
}

fn perform(folder: &Path, line: &str) -> String {
    let words = words(line);
    let assignments = words.iter().take_while(|word| word.contains('=') && !word.starts_with('-')).count();
    assert_eq!(words[assignments], "leasehold", "{line}");
    let mut command = Command::new(LEASEHOLD);
    command.args(&words[assignments + 1..]).current_dir(folder).env_clear();
    command.env("HOME", "/nowhere").env("PATH", "/usr/bin:/bin").env("COLUMNS", "100");
    if !words[..assignments].iter().any(|word| word.starts_with("LEASEHOLD_STORE"))
        && !line.contains("--store")
    {
        command.env("LEASEHOLD_STORE", "local:x.db");
    }
    command.envs(words[..assignments].iter().filter_map(|word| word.split_once('=')));
    let output = to_its_end(&mut command);
    let mut text = String::from_utf8(output.stdout).unwrap();
    for line in String::from_utf8(output.stderr).unwrap().lines() {
        text.push_str(&format!("! {line}\n"));
    }
    if output.status.code() != Some(0) {
        text.push_str(&format!("(exit {})\n", output.status.code().unwrap_or(-1)));
    }
    steady(&text, folder)
}

/// Words with '…' around those that hold spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Takes out what differs from run to run: the folder, measured times, wall-clock epochs, the build.
fn steady(text: &str, folder: &Path) -> String {
    let text = text.replace(&folder.display().to_string(), "FOLDER");
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for at in 0..words.len() {
            let bare = words[at].trim_start_matches('(').to_owned();
            let unit = words.get(at + 1).is_some_and(|next| next.starts_with("ms"));
            if unit && bare.contains('.') && bare.parse::<f64>().is_ok() {
                words[at] = words[at].replace(&bare, "N");
            }
            if bare.len() == 10 && bare.parse::<u64>().is_ok() {
                words[at] = "UNIXTIME".to_owned();
            }
        }
        let mut line = words.join(" ");
        if let Some(at) = line.find("Z").filter(|at| *at >= 23 && line.is_char_boundary(at - 23))
            && is_time(&line[at - 23..at])
        {
            line.replace_range(at - 23..=at, "TIME");
        }
        if let Some((before, _)) = line.split_once("\"silent_for_ms\": ") {
            line = format!("{before}\"silent_for_ms\": N,");
        }
        // What lasts as long as the commands before it took.
        let parts: Vec<&str> = line.split(" renewed ").collect();
        let parts = parts.iter().enumerate().map(|(at, part)| match part.split_once(" s ago") {
            Some((_, after)) if at > 0 => format!("N s ago{after}"),
            _ => (*part).to_owned(),
        });
        line = parts.collect::<Vec<_>>().join(" renewed ");
        let fact = ["commit   ", "rustc    ", "target   ", "profile  "]
            .into_iter()
            .find(|fact| line.starts_with(fact));
        lines.push(fact.map_or(line, |fact| format!("{fact}…")));
    }
    let mut text = lines.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// `2026-11-19T03:40:22.123`
fn is_time(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00T00:00:00.000"
}

fn difference(before: &str, after: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let part = |lines: &[&str]| {
        lines.iter().skip(same.saturating_sub(3)).take(12).map(|l| format!("    {l}\n")).collect::<String>()
    };
    format!("  from line {} on it was\n{}  and is\n{}", same + 1, part(&before), part(&after))
}
