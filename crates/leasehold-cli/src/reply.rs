//! What a command has to say, for people or for programs.

use leasehold_cli_common::failure::Failure;
use serde_json::{Value, json};

use crate::args::Output;

/// What a command has to say.
#[derive(Debug)]
pub(crate) struct Reply {
    text: String,
    json: Value,
}

impl Reply {
    /// The same for people and for programs.
    pub(crate) fn new(text: impl Into<String>, json: Value) -> Self {
        Reply { text: text.into(), json }
    }

    /// That something was done, with what it was done to; programs get the text too.
    pub(crate) fn done(what: &str, facts: Value, text: impl Into<String>) -> Self {
        let text = text.into();
        let mut json = json!({ "command": what, "message": text.trim_end() });
        if let (Value::Object(all), Value::Object(facts)) = (&mut json, facts) {
            all.extend(facts);
        }
        Reply { text, json }
    }

    /// Adds a line.
    pub(crate) fn append(&mut self, line: &str) {
        self.text = format!("{}\n{line}", self.text.trim_end());
        if let Value::Object(all) = &mut self.json {
            let message = all.get("message").and_then(Value::as_str).unwrap_or_default();
            all.insert("message".to_owned(), format!("{message}\n{line}").into());
        }
    }

    /// Prints it.
    pub(crate) fn print(&self, output: Output) {
        match output {
            Output { quiet: true, .. } => {}
            Output { json: true, .. } => println!("{:#}", self.json),
            Output { json: false, .. } => println!("{}", self.text.trim_end_matches('\n')),
        }
    }
}

/// Anything as JSON.
pub(crate) fn json_of(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

impl Output {
    /// A remark beside the result, on standard error.
    pub(crate) fn remark(self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }

    /// Prints the reply of what succeeded.
    pub(crate) fn reply(self, reply: Result<Reply, Failure>) -> Result<(), Failure> {
        reply?.print(self);
        Ok(())
    }
}
