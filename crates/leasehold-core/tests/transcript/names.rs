//! Short names for random ids, in the order in which they appear, so that people can follow them.

use std::collections::BTreeMap;

use leasehold_core::SessionId;
use serde_json::Value;

/// Who is who.
#[derive(Debug, Default)]
pub(crate) struct Names {
    sessions: BTreeMap<String, String>,
    lives: BTreeMap<String, u32>,
    others: BTreeMap<String, String>,
}

impl Names {
    /// The next session of a node gets the next number.
    pub(crate) fn opened(&mut self, node: &str, session: SessionId) -> String {
        let life = self.lives.entry(node.to_owned()).or_insert(0);
        *life += 1;
        let name = format!("{node}.{life}");
        self.sessions.insert(session.to_string(), name.clone());
        name
    }

    pub(crate) fn session(&self, session: SessionId) -> String {
        self.sessions.get(&session.to_string()).cloned().unwrap_or_else(|| "?".into())
    }

    /// A notice in which every `(session 1a2b3c4d)` has the short name instead.
    pub(crate) fn shorten(&self, notice: &str) -> String {
        let mut parts = notice.split("(session ");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (digits, rest) = part.split_once(')').unwrap_or((part, ""));
            let known = self.sessions.iter().find(|(id, _)| id.starts_with(digits));
            text += &format!("(session {}){rest}", known.map_or("?", |(_, name)| name));
        }
        text
    }

    /// The session of that short name.
    pub(crate) fn find(&self, short: &str) -> Option<SessionId> {
        self.sessions.iter().find(|(_, name)| *name == short).and_then(|(id, _)| id.parse().ok())
    }

    fn other(&mut self, prefix: &str, id: &str) -> String {
        let next = self.others.values().filter(|name| name.starts_with(prefix)).count() + 1;
        self.others.entry(id.to_owned()).or_insert_with(|| format!("{prefix}{next}")).clone()
    }

    /// A record as people should see it: ids short, what changes with every write left out.
    pub(crate) fn gc(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for hidden in ["write", "written_unix_ms", "format", "protocol", "policy"] {
                    fields.remove(hidden);
                }
                for (name, field) in fields {
                    match (name.as_str(), &*field) {
                        ("session", Value::String(id)) => {
                            let short = self.sessions.get(id).cloned().unwrap_or_else(|| "?".into());
                            *field = Value::String(short);
                        }
                        ("incarnation", Value::String(id)) => {
                            *field = Value::String(self.other("i", &id.clone()));
                        }
                        ("view", Value::Number(hash)) => {
                            *field = Value::String(self.other("view", &hash.to_string()));
                        }
                        _ => self.gc(field),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.gc(item)),
            _ => {}
        }
    }
}
