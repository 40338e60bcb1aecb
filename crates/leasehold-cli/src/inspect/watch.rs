//! Prints a view once, or every second.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use leasehold::Client;
use leasehold::clock::{self, Clock};
use leasehold_cli_common::failure::Failure;
use leasehold_cli_common::sanitize::sanitize;
use leasehold_core::View;
use serde_json::Value;

use super::settled_view;
use crate::args::Output;

/// How often a view is painted again.
const PAINTED_EVERY: Duration = Duration::from_secs(1);
/// How often a reader of JSON is told again that the store does not answer.
const REMINDED_EVERY: Duration = Duration::from_secs(10);

/// Once, or again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watching {
    Once,
    Always,
}

/// Prints what `people` or `json` make of the view.
pub(crate) async fn present(
    client: &Client,
    output: Output,
    watching: Watching,
    people: impl Fn(&View) -> String,
    json: impl Fn(&View) -> Value,
) -> Result<(), Failure> {
    match (output, watching) {
        (Output { quiet: true, .. }, _) => Ok(()),
        (Output { json: true, .. }, Watching::Once) => {
            print(&format!("{:#}\n", json(&settled_view(client).await)))
        }
        (_, Watching::Once) => print(&people(&settled_view(client).await)),
        (Output { json: true, .. }, Watching::Always) => tell(client, json).await,
        (_, Watching::Always) => paint(client, people).await,
    }
}

/// Prints a line of JSON for every change, and says on standard error that the store does not answer.
async fn tell(client: &Client, json: impl Fn(&View) -> Value) -> Result<(), Failure> {
    let (clock, mut views, mut last) = (Clock::boot(), client.watch_view(), String::new());
    let mut remind_at = None;
    loop {
        views.borrow_and_update();
        let line = format!("{}\n", json(&client.view_now()));
        if line != last {
            print(&line)?;
            last = line;
        }
        match (lost(client), remind_at) {
            (Some(lost), at) if at.is_none_or(|at| clock.now() >= at) => {
                eprintln!("{lost}");
                remind_at = Some(clock.now() + REMINDED_EVERY);
            }
            (None, Some(_)) => {
                eprintln!("{} the store answers again", time(clock::unix_ms()));
                remind_at = None;
            }
            _ => {}
        }
        tokio::select! {
            changed = views.changed() => if changed.is_err() { return Ok(()) },
            () = clock.sleep(PAINTED_EVERY) => {}
        }
    }
}

/// Paints the view every second, on a terminal in place.
async fn paint(client: &Client, people: impl Fn(&View) -> String) -> Result<(), Failure> {
    let clock = Clock::boot();
    loop {
        let mut text = format!("{}\n", time(clock::unix_ms()));
        if let Some(lost) = lost(client) {
            text.push_str(&format!("{lost}\n"));
        }
        text.push_str(&people(&client.view_now()));
        if std::io::stdout().is_terminal() {
            over(&text)?;
        } else {
            print(&format!("---\n{text}"))?;
        }
        clock.sleep(PAINTED_EVERY).await;
    }
}

/// Prints what has changed: over what was there, on a terminal.
pub(crate) fn print_changed(text: &str, json: bool) -> Result<(), Failure> {
    if json || !std::io::stdout().is_terminal() {
        return print(&if json { text.to_owned() } else { format!("---\n{text}") });
    }
    over(text)
}

/// Prints over what was there.
fn over(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    // Home, the text with each line cleared to its end, and nothing below.
    write!(out, "\x1b[H{}\x1b[J", fitted(text).replace('\n', "\x1b[K\r\n"))?;
    Ok(out.flush()?)
}

/// Since when the store does not answer, if it does not, and how old the data is.
fn lost(client: &Client) -> Option<String> {
    let why = client.last_error()?;
    let age = client.heard_ago();
    let since = clock::unix_ms().saturating_sub(age.as_millis() as u64);
    Some(format!(
        "STORE UNREACHABLE since {}; data is {} s old ({})",
        time(since),
        age.as_secs(),
        sanitize(&why.to_string())
    ))
}

/// The time of day, in UTC like the log.
fn time(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000 % 86_400;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// As much of the text as the terminal has room for: more would scroll, and the next picture would not lie over it.
fn fitted(text: &str) -> String {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let (rows, columns) = size.map_or((24, 80), |size| (usize::from(size.ws_row), usize::from(size.ws_col)));
    fit(text, rows.max(3), columns.max(20))
}

fn fit(text: &str, rows: usize, columns: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    // The cursor stands below the last line.
    let room = rows - 1;
    let shown = if lines.len() > room { room - 1 } else { lines.len() };
    let mut fitted = String::new();
    for line in &lines[..shown] {
        match line.char_indices().nth(columns) {
            Some(_) => fitted.extend(line.chars().take(columns - 1).chain(['…', '\n'])),
            None => fitted.extend([line, "\n"]),
        }
    }
    if shown < lines.len() {
        fitted.push_str(&format!("… {} more lines\n", lines.len() - shown));
    }
    fitted
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // `leasehold shards | head` is not a failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_never_larger_than_the_terminal() {
        let text = "one\ntwo is longer than that\nthree\nfour\nfive\n";
        assert_eq!(fit(text, 6, 40), text);
        assert_eq!(fit(text, 5, 20), "one\ntwo is longer than …\nthree\n… 2 more lines\n");
    }

    #[test]
    fn the_time_of_day_is_utc() {
        assert_eq!(time(1_700_000_000_999), "22:13:20 UTC");
    }
}
