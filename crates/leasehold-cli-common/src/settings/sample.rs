//! A settings file to start from: every setting with its default, all of them commented out.

use std::fmt::Write as _;

use leasehold_local::Local;

use super::Settings;
use super::table::{Kind, SETTINGS, Setting};
use super::typed::check;

/// Longer lines are broken.
const WIDTH: usize = 100;

/// The file. Defaults that follow from others are those of the local store.
pub fn sample() -> String {
    let mut text = String::from(
        "# Settings of Leasehold. `leasehold config sample` prints this file: every setting, commented out, with its default or\n\
         # an example. Remove the `# ` before those that you change, and run `leasehold config check`.\n\
         #\n\
         # The first of these files that exists is read: ./leasehold.toml, ~/.config/leasehold/leasehold.toml and\n\
         # /etc/leasehold/leasehold.toml; `--config FILE` or LEASEHOLD_CONFIG names another one. Environment variables\n\
         # (LEASEHOLD_TTL) override the file, and flags (--ttl) override both. Durations need a unit: 250ms, 10s, 2m, 1h.\n\
         # A setting that is left out follows the others: with another ttl, all of the time budget is scaled.\n",
    );
    let effective = Settings::empty().effective(&Local::FACTS);
    let mut part = None;
    for setting in SETTINGS {
        if part != Some(setting.part) {
            let _ = writeln!(text, "\n\n# ==== {} ====", setting.part.heading());
            part = Some(setting.part);
        }
        let words = match setting.kind {
            Kind::Word(words) => format!("{} ({}).", setting.help, words.join(", ")),
            _ => format!("{}.", setting.help),
        };
        text.push('\n');
        wrap(&mut text, &format!("{words} Default: {}.", setting.default));
        let value = value(setting, effective.get(setting.key).map(String::as_str));
        let _ = writeln!(text, "# {} = {}", setting.key, literal(setting.kind, &value));
    }
    text
}

/// The default, or an example where there is none.
fn value(setting: &Setting, effective: Option<&str>) -> String {
    let first = setting.default.split([' ', ',']).next().unwrap_or_default();
    let takes = |text: &str| check(setting.kind, text).is_ok();
    let none = setting.default.starts_with("none") || setting.default.starts_with("no ");
    match (setting.key, effective) {
        ("node", _) => "worker-1".into(),
        ("group", _) => "orders".into(),
        ("names", _) => "@shards.txt".into(),
        ("zone", _) => "eu-1".into(),
        ("address", _) => "10.0.0.7:8080".into(),
        (_, Some(known)) if takes(known) => known.to_owned(),
        _ if !none && takes(first) => first.to_owned(),
        _ => example(setting.kind).to_owned(),
    }
}

/// What a setting of this kind may look like.
fn example(kind: Kind) -> &'static str {
    match kind {
        Kind::Url => "local:./leasehold.db",
        Kind::Name | Kind::Text => "example",
        Kind::Labels => "rack=3",
        Kind::Count | Kind::Slots => "64",
        Kind::Factor => "1.10",
        Kind::Span => "1s",
        Kind::Word(words) => words[0],
        Kind::Zones => "ignore",
        Kind::Failures => "retry",
        Kind::Switch => "false",
        Kind::Patterns => "orders-*",
        Kind::Listen => "127.0.0.1:9464",
        Kind::Secret => "a-long-random-text",
    }
}

fn literal(kind: Kind, value: &str) -> String {
    match kind {
        Kind::Count | Kind::Slots | Kind::Factor | Kind::Switch => value.to_owned(),
        _ => format!("{value:?}"),
    }
}

fn wrap(text: &mut String, about: &str) {
    let mut line = String::from("#");
    for word in about.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(text, "{line}");
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::layers;
    use super::*;

    /// What the file says once these settings are no comments any more.
    fn uncommented(keep: impl Fn(&str) -> bool) -> String {
        let text = sample();
        let lines = text.lines().map(|line| {
            let bare = line.strip_prefix("# ").unwrap_or(line);
            let key = bare.split_once(" = ").map(|(key, _)| key).unwrap_or_default();
            let is_setting = SETTINGS.iter().any(|setting| setting.key == key);
            if is_setting && keep(key) { bare.to_owned() } else { line.to_owned() }
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn every_setting_is_in_it_once_and_can_be_uncommented() {
        let mut problems = Vec::new();
        let (values, _) = layers::from_text(Path::new("sample.toml"), &uncommented(|_| true), &mut problems);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(values.len(), SETTINGS.len());
        Settings { values, ..Settings::empty() }.check_each(&mut problems);
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn it_changes_nothing_as_it_is_and_its_defaults_are_the_defaults() {
        let mut problems = Vec::new();
        let (empty, groups) = layers::from_text(Path::new("sample.toml"), &sample(), &mut problems);
        assert!(empty.is_empty() && groups.is_empty() && problems.is_empty(), "{problems:?}");

        // A group is either numbered or named.
        let text = uncommented(|key| key != "names");
        let (values, _) = layers::from_text(Path::new("sample.toml"), &text, &mut problems);
        let settings = Settings { values, ..Settings::empty() };
        let config = settings.node_config(&Local::FACTS).unwrap();
        assert_eq!(settings.effective(&Local::FACTS), Settings::empty().effective(&Local::FACTS));
        assert_eq!(config.groups.len(), 1);
    }

    #[test]
    fn lines_are_short_enough_to_read() {
        let text = sample();
        let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(longest.chars().count() <= 120, "{longest}");
    }
}
