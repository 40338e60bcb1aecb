//! Prints a view once, or after every change.

use std::io::{IsTerminal, Write};

use leasehold::Client;
use leasehold_cli_common::failure::Failure;
use leasehold_core::View;

/// For people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    People,
    Json,
}

/// Once, or at every change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watching {
    Once,
    Always,
}

/// Prints what `people` or `json` make of the view.
pub(crate) async fn present(
    client: &Client,
    format: Format,
    watching: Watching,
    people: impl Fn(&View) -> String,
    json: impl Fn(&View) -> serde_json::Value,
) -> Result<(), Failure> {
    let mut views = client.watch_view();
    let mut last = String::new();
    loop {
        let view = views.borrow_and_update().clone();
        let text = match (format, watching) {
            (Format::People, _) => people(&view),
            (Format::Json, Watching::Once) => format!("{:#}\n", json(&view)),
            (Format::Json, Watching::Always) => format!("{}\n", json(&view)),
        };
        if text != last {
            match watching {
                Watching::Once => print(&text, Mark::Nothing)?,
                Watching::Always => print_changed(&text, format)?,
            }
            last = text;
        }
        if watching == Watching::Once || views.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// What comes before a text that follows another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Nothing,
    Follows,
}

/// Prints what has changed: over what was there, on a terminal.
pub(crate) fn print_changed(text: &str, format: Format) -> std::io::Result<()> {
    print(text, if format == Format::People { Mark::Follows } else { Mark::Nothing })
}

fn print(text: &str, mark: Mark) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if mark == Mark::Follows && out.is_terminal() {
        // Home, the text with each line cleared to its end, and nothing below.
        let text = text.replace('\n', "\x1b[K\r\n");
        write!(out, "\x1b[H{text}\x1b[J")?;
        return out.flush();
    }
    let mark = if mark == Mark::Follows { "---\n" } else { "" };
    match out
        .write_all(mark.as_bytes())
        .and_then(|()| out.write_all(text.as_bytes()))
        .and_then(|()| out.flush())
    {
        // `leasehold shards | head` is not a failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result,
    }
}
