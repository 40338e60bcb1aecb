//! Prints the settings: each with its value and where it came from, and never a secret.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::stores::schemes;

use super::Settings;
use super::table::{Kind, SETTINGS};

/// A store's URL without its secrets: user name and password, and parameters that may hold some.
pub fn redacted(url: &str) -> String {
    match url.split_once("://") {
        _ if url.starts_with("local:") || url == "memory:" => url.to_owned(),
        Some((scheme, rest)) if is_plain(scheme) => format!("{scheme}://{}", redacted_rest(rest)),
        Some(_) => "***".to_owned(),
        // A slip such as redis:user:password@host: only of a file it is known that no secret is in it.
        None => match url.split_once(':') {
            Some((scheme, _)) if schemes().any(|known| known == scheme) => format!("{scheme}:***"),
            Some(_) => "***".to_owned(),
            None if url.contains(['@', '?', '#', '%']) => "***".to_owned(),
            None => url.to_owned(),
        },
    }
}

/// A password that should have been encoded may hold anything: what could be part of one is not shown.
fn redacted_rest(rest: &str) -> String {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (login, places) = match authority.rsplit_once('@') {
        Some((_, places)) => ("***@", places),
        None => ("", authority),
    };
    if tail.contains('@') || !places.split(',').all(is_place) {
        return "***".to_owned();
    }
    match tail.split_once(['?', '#']) {
        Some((path, _)) => format!("{login}{places}{path}?***"),
        None => format!("{login}{places}{tail}"),
    }
}

/// Whether this is a host, with a port or without. A forgotten host would leave a password in the place of the port.
fn is_place(text: &str) -> bool {
    let name = match text.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) if text.starts_with('[') && text.ends_with(']') => text,
        Some(_) => return false,
        None => text,
    };
    !name.contains(['%', '#'])
}

fn is_plain(scheme: &str) -> bool {
    scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-'))
}

impl Settings {
    /// What `config show` prints, with what each setting amounts to where that is known.
    pub fn show(&self, effective: &BTreeMap<&'static str, String>) -> String {
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
                Some(raw) if setting.kind == Kind::Secret => ("***".to_owned(), raw.origin.to_string()),
                Some(raw) => (raw.text.clone(), raw.origin.to_string()),
                None => match effective.get(setting.key) {
                    Some(value) if value == setting.default => (value.clone(), "default".to_owned()),
                    Some(value) => (value.clone(), format!("default: {}", setting.default)),
                    None => (setting.default.to_owned(), "default".to_owned()),
                },
            };
            let _ = writeln!(text, "  {:<27} {:<36} {origin}", setting.key, value);
        }
        for group in &self.groups {
            let _ = writeln!(text, "\nGroup {}", group.name);
            for (key, value, origin) in group.rows() {
                let _ = writeln!(text, "  {key:<23} {value:<36} {origin}");
            }
        }
        text
    }

    /// The same for programs.
    pub fn as_json(&self, effective: &BTreeMap<&'static str, String>) -> serde_json::Value {
        let entries = SETTINGS.iter().map(|setting| {
            let raw = self.raw(setting.key);
            let value = raw.map(|raw| match setting.kind {
                Kind::Url => redacted(&raw.text),
                Kind::Secret => "***".to_owned(),
                _ => raw.text.clone(),
            });
            let origin = raw.map_or_else(|| "default".to_owned(), |raw| raw.origin.to_string());
            serde_json::json!({
                "setting": setting.key, "value": value.or_else(|| effective.get(setting.key).cloned()),
                "default": setting.default, "from": origin,
            })
        });
        let of_groups = self.groups.iter().flat_map(|group| {
            let entry = |(key, value, origin): (&str, String, String)| {
                serde_json::json!({"setting": key, "group": group.name, "value": value, "from": origin})
            };
            group.rows().into_iter().map(entry)
        });
        serde_json::Value::Array(entries.chain(of_groups).collect())
    }
}

/// The reference of all settings, as a page.
pub fn reference() -> String {
    let mut text = String::from(
        "# Settings\n\nSet a value in a file (TOML), in the environment or on the command line; the later source in this list wins.\n\
         `leasehold config show` prints every value and its source; `leasehold config paths` prints where settings files are\n\
         looked for. A duration needs a unit: `250ms`, `10s`, `2m`, `1h`. To read a secret from a file, set `LEASEHOLD_X_FILE` to\n\
         its path instead of setting `LEASEHOLD_X`. Secrets are never printed. The flag of a boolean setting takes no value; in a\n\
         file or in the environment, write `true` or `false`. Each store has a page that describes its URL: `docs/etcd.md`,\n\
         `docs/redis.md`, `docs/kubernetes.md`, `docs/object.md`. The [glossary](glossary.md) explains the words.\n\n\
         A node can serve several groups: each has a `[[group]]` table at the end of the file, with its `name`, the settings of\n\
         \"The group\" below except `group` and `serve`, and `command` (a list of words), `one` (true: one child for all shards),\n\
         `kill_after` and `gate_command`. What a table leaves out is taken from the settings outside the tables; `shards` and\n\
         `names` are not. [run.md](run.md) has an example.\n\n\
         `leasehold config reference` generates this page.\n",
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
        let variable = setting.variable();
        let flag = match setting.kind {
            Kind::Switch => format!("`{}`", setting.flag()),
            Kind::Secret => "none".to_owned(),
            kind => format!("`{} {}`", setting.flag(), kind.placeholder()),
        };
        let _ = writeln!(
            text,
            "| `{}` | {flag} | `{variable}` | {} | {} |",
            setting.key, setting.default, setting.help
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
            ("etcd://u:p/q@h/x", "etcd://***"),
            ("redis://u:p", "redis://***"),
            ("redis://a:1,[::1]:2,b/0", "redis://a:1,[::1]:2,b/0"),
            ("etcd://u:p?q@h/x", "etcd://***"),
            ("redis:u:p@h", "redis:***"),
            ("u:p@h", "***"),
            ("p@h", "***"),
            ("local:./a@b.db", "local:./a@b.db"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }
}
