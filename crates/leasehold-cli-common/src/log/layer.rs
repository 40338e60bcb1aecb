//! Turns the events of `tracing` into lines. The fields of the spans around an event belong to its line.

use std::fmt;
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::Log;
use super::format::{Format, Line, Value};

/// Writes the lines.
pub(super) struct Lines {
    format: Format,
    log: Log,
}

impl Lines {
    pub(super) fn new(format: Format, log: Log) -> Self {
        Lines { format, log }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut line = Line::default();
        attributes.record(&mut line);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(line);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(line) = span.extensions_mut().get_mut::<Line>()
        {
            values.record(line);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        for span in context.event_scope(event).into_iter().flatten() {
            let extensions = span.extensions();
            let around = extensions.get::<Line>().map(|line| line.fields.as_slice()).unwrap_or_default();
            for (name, value) in around {
                if !line.fields.iter().any(|(known, _)| known == name) {
                    line.fields.push((name, value.clone()));
                }
            }
        }
        let text = self.format.write(&time(), *event.metadata().level(), &line);
        let _ = self.log.clone().write_all(text.as_bytes());
    }
}

/// A line of the log itself.
pub(super) fn own(format: Format, level: Level, message: String) -> String {
    format.write(&time(), level, &Line { message, fields: Vec::new() })
}

/// The time of day in UTC, to the millisecond.
fn time() -> String {
    let mut text = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    match text.split_once('.') {
        Some((seconds, rest)) if rest.len() > 3 => format!("{seconds}.{}Z", &rest[..3]),
        _ => text,
    }
}

impl Line {
    fn note(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::Text(text)) => self.message = text,
            (name, value) => match self.fields.iter_mut().find(|(known, _)| *known == name) {
                Some((_, former)) => *former = value,
                None => self.fields.push((name, value)),
            },
        }
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.note(field, Value::Text(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field, Value::Text(value.to_owned()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.note(field, Value::Truth(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.note(field, Value::Real(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.note(field, Value::Whole(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.note(field, Value::Whole(value.to_string()));
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.note(field, Value::Whole(value.to_string()));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.note(field, Value::Whole(value.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc;
    use std::time::Duration;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    struct Told(mpsc::Sender<String>);

    impl io::Write for Told {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_has_the_fields_of_its_event_and_of_the_spans_around_it() {
        let (say, told) = mpsc::channel();
        let log = Log::start(Told(say), Format::Json).unwrap();
        let lines = tracing_subscriber::registry().with(Lines::new(Format::Json, log.clone()));
        tracing::subscriber::with_default(lines, || {
            let span =
                tracing::info_span!("work", shard = "orders/3", epoch = 5_u64, late = tracing::field::Empty);
            let _inside = span.enter();
            span.record("late", true);
            let absent: Option<u64> = None;
            tracing::warn!(epoch = 6_u64, share = 0.5, absent, error = %"a\nb", "it {}", "failed");
        });
        log.flush(Duration::from_secs(60));
        let read: serde_json::Value = serde_json::from_str(&told.recv().unwrap()).unwrap();
        let mut read = read.as_object().unwrap().clone();
        let time = read.remove("time").unwrap();
        let time = time.as_str().unwrap();
        assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
        let wanted = serde_json::json!({
            "level": "warn", "message": "it failed", "epoch": 6, "share": 0.5, "error": "a\nb", "shard": "orders/3",
            "late": true,
        });
        assert_eq!(serde_json::Value::Object(read), wanted);
    }
}
