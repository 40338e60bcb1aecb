//! The settings for people to read: each with its value and where it came from, and never a secret.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Settings;
use super::table::{Kind, SETTINGS};

/// A store's URL without its secrets: user name and password, and parameters that may hold some.
pub(crate) fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // A slip such as redis:user:password@host: only of a file it is known that no secret is in it.
        return match url.split_once(':') {
            Some(("local" | "memory", _)) => url.to_owned(),
            Some((scheme, rest)) if rest.contains(['@', '?']) => format!("{scheme}:***"),
            None if url.contains('@') => "***".to_owned(),
            _ => url.to_owned(),
        };
    };
    // A password that should have been encoded may hold anything: what could be part of one is not shown.
    let (shown, query) = match (rest.rfind('@'), rest.find('?')) {
        (Some(at), Some(question)) if at > question => ("", "***"),
        (_, Some(question)) => (&rest[..question], "?***"),
        (_, None) => (rest, ""),
    };
    match shown.rsplit_once('@') {
        Some((_, place)) => format!("{scheme}://***@{place}{query}"),
        None => format!("{scheme}://{shown}{query}"),
    }
}

impl Settings {
    /// What `config show` prints, with what each setting amounts to where that is known.
    pub(crate) fn show(&self, effective: &BTreeMap<&'static str, String>) -> String {
        let mut text = String::new();
        let mut part = None;
        for setting in SETTINGS {
            if part != Some(setting.part) {
                let gap = if part.is_some() { "\n" } else { "" };
                let _ = writeln!(text, "{gap}{}", setting.part.heading());
                part = Some(setting.part);
            }
            let (value, origin) = match self.raw(setting.key) {
                Some(raw) if setting.kind == Kind::Url => (redacted(&raw.text), raw.origin.to_string()),
                Some(raw) => (raw.text.clone(), raw.origin.to_string()),
                None => match effective.get(setting.key) {
                    Some(value) if value == setting.default => (value.clone(), "default".to_owned()),
                    Some(value) => (value.clone(), format!("default: {}", setting.default)),
                    None => (setting.default.to_owned(), "default".to_owned()),
                },
            };
            let _ = writeln!(text, "  {:<23} {:<36} {origin}", setting.key, value);
        }
        text
    }

    /// The same for programs.
    pub(crate) fn as_json(&self, effective: &BTreeMap<&'static str, String>) -> serde_json::Value {
        let entries = SETTINGS.iter().map(|setting| {
            let raw = self.raw(setting.key);
            let value = raw.map(|raw| match setting.kind {
                Kind::Url => redacted(&raw.text),
                _ => raw.text.clone(),
            });
            let origin = raw.map_or_else(|| "default".to_owned(), |raw| raw.origin.to_string());
            serde_json::json!({
                "setting": setting.key, "value": value.or_else(|| effective.get(setting.key).cloned()),
                "default": setting.default, "from": origin,
            })
        });
        serde_json::Value::Array(entries.collect())
    }
}

/// The reference of all settings, as a page.
pub(crate) fn reference() -> String {
    let mut text = String::from(
        "# Settings\n\nA setting can stand in a file (TOML), in the environment or on the command line; later ones win.\n\
         `leasehold config show` prints what is in force and where each value came from; `leasehold config paths` where\n\
         files are looked for. Durations have a unit: `250ms`, `10s`, `2m`, `1h`. Instead of `LEASEHOLD_X`, the variable\n\
         `LEASEHOLD_X_FILE` can name a file that holds the value, for secrets; secrets are never printed.\n\n\
         This page is made by `leasehold config reference`.\n",
    );
    let mut part = None;
    for setting in SETTINGS {
        if part != Some(setting.part) {
            let _ = write!(
                text,
                "\n## {}\n\n| file | flag | environment | default | what it does |\n",
                setting.part.heading()
            );
            text.push_str("| --- | --- | --- | --- | --- |\n");
            part = Some(setting.part);
        }
        let (flag, variable) = (setting.flag(), setting.variable());
        let _ = writeln!(
            text,
            "| `{}` | `{flag} {}` | `{variable}` | {} | {} |",
            setting.key,
            setting.kind.placeholder(),
            setting.default,
            setting.help
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_shown() {
        for (url, shown) in [
            ("local:x.db", "local:x.db"),
            ("redis://:secret@host:6379/0", "redis://***@host:6379/0"),
            ("postgres://me:p@ss@host/db?password=x", "postgres://***@host/db?***"),
            ("etcd://host:2379", "etcd://host:2379"),
            ("redis://h?sentinel_password=p", "redis://h?***"),
            ("etcd://u:p/q@h/x", "etcd://***@h/x"),
            ("etcd://u:p?q@h/x", "etcd://***"),
            ("redis:u:p@h", "redis:***"),
            ("u:p@h", "u:***"),
            ("p@h", "***"),
            ("local:./a@b.db", "local:./a@b.db"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }
}
