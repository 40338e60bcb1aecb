//! One line of the log in each format. Nothing that comes from others can end a line or look like a field of ours.

use std::fmt::Write as _;

use tracing::Level;

use crate::sanitize::sanitize;

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people: time, level, a sentence, and the facts behind it.
    #[default]
    Text,
    /// `key=value` pairs.
    Logfmt,
    /// An object per line.
    Json,
}

/// The names that every line has. A field of the same name gets another one.
const RESERVED: [&str; 4] = ["time", "level", "message", "msg"];

/// A fact.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    /// A whole number, as it is written.
    Whole(String),
    Real(f64),
    Truth(bool),
}

/// One line.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) message: String,
    pub(super) fields: Vec<(&'static str, Value)>,
}

impl Format {
    /// The format of that name.
    pub(crate) fn of(name: Option<&str>) -> Format {
        match name {
            Some("logfmt") => Format::Logfmt,
            Some("json") => Format::Json,
            _ => Format::Text,
        }
    }

    /// The line, with its end.
    pub(super) fn write(self, time: &str, level: Level, line: &Line) -> String {
        let mut text = String::with_capacity(128);
        match self {
            Format::Text => {
                let _ = write!(text, "{time} {level:>5} {}", sanitize(&line.message));
                line.fields.iter().for_each(|(name, value)| push_pair(&mut text, name, value));
            }
            Format::Logfmt => {
                let _ = write!(text, "time={time} level={}", lower(level));
                push_pair(&mut text, "msg", &Value::Text(line.message.clone()));
                line.fields.iter().for_each(|(name, value)| push_pair(&mut text, &free(name), value));
            }
            Format::Json => {
                let (level, message) = (lower(level), escaped(&line.message));
                let _ = write!(text, r#"{{"time":"{time}","level":"{level}","message":"{message}""#);
                for (name, value) in &line.fields {
                    let name = free(name);
                    let _ = match value {
                        Value::Whole(number) => write!(text, r#","{name}":{number}"#),
                        Value::Real(number) if number.is_finite() => write!(text, r#","{name}":{number}"#),
                        Value::Real(number) => write!(text, r#","{name}":"{number}""#),
                        Value::Truth(truth) => write!(text, r#","{name}":{truth}"#),
                        Value::Text(value) => write!(text, r#","{name}":"{}""#, escaped(value)),
                    };
                }
                text.push('}');
            }
        }
        text.push('\n');
        text
    }
}

fn lower(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

fn free(name: &str) -> String {
    if RESERVED.contains(&name) { format!("field_{name}") } else { name.to_owned() }
}

fn push_pair(text: &mut String, name: &str, value: &Value) {
    let _ = match value {
        Value::Whole(number) => write!(text, " {name}={number}"),
        Value::Real(number) => write!(text, " {name}={number}"),
        Value::Truth(truth) => write!(text, " {name}={truth}"),
        Value::Text(value) if is_plain(value) => write!(text, " {name}={value}"),
        Value::Text(value) => write!(text, " {name}=\"{}\"", escaped(value)),
    };
}

/// Whether a value is clear without quotes.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.contains(|letter| letter == '=' || letter == ' ' || must_escape(letter))
}

fn must_escape(letter: char) -> bool {
    matches!(letter, '"' | '\\' | '\u{2028}' | '\u{2029}') || letter.is_control()
}

/// The inside of a JSON string. Readers of logfmt expect the same.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        let _ = match letter {
            '"' => out.write_str("\\\""),
            '\\' => out.write_str("\\\\"),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            letter if must_escape(letter) => write!(out, "\\u{:04x}", u32::from(letter)),
            letter => out.write_char(letter),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        let text = |text: &str| Value::Text(text.to_owned());
        Line {
            message: "work of orders/3 failed: \"no\"\nsuch \u{1b}[31mfile".to_owned(),
            fields: vec![
                ("node", text("e1")),
                ("empty", text("")),
                ("pair", text("a=b")),
                ("path", text(r"C:\temp")),
                ("error", text("a \"b\"\r\n\tc\u{7f}\u{9b}\u{2028}\u{0}")),
                ("place", text("東京")),
                ("level", text("high")),
                ("epoch", Value::Whole("9007199254740991".to_owned())),
                ("share", Value::Real(0.5)),
                ("ratio", Value::Real(f64::NAN)),
                ("last", Value::Truth(true)),
            ],
        }
    }

    #[test]
    fn each_format_quotes_what_must_be_quoted() {
        let write = |format: Format| format.write("2026-11-19T03:40:22.123Z", Level::WARN, &line());
        assert_eq!(
            write(Format::Text),
            "2026-11-19T03:40:22.123Z  WARN work of orders/3 failed: \"no\"\\nsuch \\u{1b}[31mfile node=e1 empty=\"\" \
             pair=\"a=b\" path=\"C:\\\\temp\" error=\"a \\\"b\\\"\\r\\n\\tc\\u007f\\u009b\\u2028\\u0000\" place=東京 level=high \
             epoch=9007199254740991 share=0.5 ratio=NaN last=true\n"
        );
        assert_eq!(
            write(Format::Logfmt),
            "time=2026-11-19T03:40:22.123Z level=warn msg=\"work of orders/3 failed: \\\"no\\\"\\nsuch \\u001b[31mfile\" \
             node=e1 empty=\"\" pair=\"a=b\" path=\"C:\\\\temp\" error=\"a \\\"b\\\"\\r\\n\\tc\\u007f\\u009b\\u2028\\u0000\" \
             place=東京 field_level=high epoch=9007199254740991 share=0.5 ratio=NaN last=true\n"
        );
        assert_eq!(
            write(Format::Json),
            "{\"time\":\"2026-11-19T03:40:22.123Z\",\"level\":\"warn\",\
             \"message\":\"work of orders/3 failed: \\\"no\\\"\\nsuch \\u001b[31mfile\",\"node\":\"e1\",\"empty\":\"\",\
             \"pair\":\"a=b\",\"path\":\"C:\\\\temp\",\"error\":\"a \\\"b\\\"\\r\\n\\tc\\u007f\\u009b\\u2028\\u0000\",\
             \"place\":\"東京\",\"field_level\":\"high\",\"epoch\":9007199254740991,\"share\":0.5,\"ratio\":\"NaN\",\
             \"last\":true}\n"
        );
    }

    /// Another reader of JSON gets back what was logged.
    #[test]
    fn json_reads_back() {
        let text = Format::Json.write("t", Level::INFO, &line());
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["message"], line().message);
        assert_eq!(read["error"], "a \"b\"\r\n\tc\u{7f}\u{9b}\u{2028}\u{0}");
        assert_eq!(read["epoch"], 9007199254740991_u64);
        assert_eq!((read["share"].as_f64(), read["last"].as_bool()), (Some(0.5), Some(true)));
        assert_eq!(read["level"], "info");
    }
}
