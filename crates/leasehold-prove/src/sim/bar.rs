//! A progress bar, on one line of a terminal of any width.

use std::io::{IsTerminal, Write as _};
use std::sync::Mutex;
use std::time::Duration;

use leasehold::clock;
use leasehold_core::Moment;
use leasehold_sim::Progress;

/// How often it is drawn at most.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// The widest and the narrowest bar, in columns; a terminal without room for the narrowest shows none.
const PICTURE: (usize, usize) = (40, 6);

/// Columns that stay free: some terminals go to the next line when the last one is filled, and Ctrl-C shows as ^C.
const KEPT_FREE: usize = 3;

/// A line that is drawn again and again, if there is a terminal.
#[derive(Debug)]
pub(super) struct Bar {
    began_at: Moment,
    drawn_at: Mutex<Option<Moment>>,
    shown: bool,
}

impl Bar {
    /// A bar on standard error, if that is a terminal and a bar is wanted.
    pub(super) fn new(wanted: bool) -> Bar {
        let shown = wanted && std::io::stderr().is_terminal();
        Bar { began_at: clock::now(), drawn_at: Mutex::new(None), shown }
    }

    pub(super) fn draw(&self, progress: &Progress) {
        if !self.shown {
            return;
        }
        let now = clock::now();
        let mut drawn_at = self.drawn_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let soon = drawn_at.is_some_and(|drawn_at| now.since(drawn_at) < DRAW_EVERY);
        if soon && progress.done < progress.of {
            return;
        }
        *drawn_at = Some(now);
        let line = line(progress, now.since(self.began_at), columns().saturating_sub(KEPT_FREE));
        eprint!("\r\x1b[K{line}");
        let _ = std::io::stderr().flush();
    }

    /// Goes on below it.
    pub(super) fn end(&self) {
        if self.shown {
            eprintln!();
        }
    }
}

fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.map(|size| usize::from(size.ws_col)).ok().filter(|columns| *columns > 0).unwrap_or(80)
}

/// The progress, in at most this many columns: the least important part is left out first.
fn line(progress: &Progress, took: Duration, room: usize) -> String {
    let Progress { done, of, failed } = *progress;
    let mut parts = vec![format!("{done} of {of}"), format!("{failed} failed")];
    let seconds = took.as_secs_f64();
    if done > 0 && seconds > 0.0 {
        let rate = done as f64 / seconds;
        if done < of {
            parts.push(format!("{} left", time((of - done) as f64 / rate)));
        }
        parts.push(if rate < 9.95 { format!("{rate:.1}/s") } else { format!("{rate:.0}/s") });
    }
    while parts.len() > 1 && parts.join(", ").len() > room {
        parts.pop();
    }
    let words: String = parts.join(", ").chars().take(room).collect();
    let (widest, narrowest) = PICTURE;
    let width = room.saturating_sub(words.len() + 1).min(widest);
    if width < narrowest {
        return words;
    }
    let filled = (u128::from(done) * width as u128 / u128::from(of.max(1))) as usize;
    let picture: String = (0..width).map(|column| if column < filled { '█' } else { '·' }).collect();
    format!("{picture} {words}")
}

/// A time as people say it: the two largest units.
fn time(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m {seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h {minutes:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fits_and_says_what_matters_most() {
        let progress = Progress { done: 1234, of: 20_000, failed: 2 };
        let line = |room| line(&progress, Duration::from_secs(40), room);
        for room in 0..130 {
            assert!(line(room).chars().count() <= room, "{room}: {}", line(room));
        }
        let expected = [
            (117, "██······································ 1234 of 20000, 2 failed, 10m 09s left, 31/s"),
            (57, "············· 1234 of 20000, 2 failed, 10m 09s left, 31/s"),
            (40, "1234 of 20000, 2 failed, 10m 09s left"),
            (27, "1234 of 20000, 2 failed"),
            (20, "······ 1234 of 20000"),
            (5, "1234 "),
        ];
        for (room, expected) in expected {
            assert_eq!(line(room), expected, "in {room} columns");
        }
    }

    #[test]
    fn it_is_drawn_before_anything_is_done_and_when_all_is() {
        let of = |done| Progress { done, of: 10, failed: 0 };
        assert_eq!(line(&of(0), Duration::ZERO, 27), "········· 0 of 10, 0 failed");
        assert_eq!(line(&of(10), Duration::from_secs(4), 33), "███████ 10 of 10, 0 failed, 2.5/s");
    }
}
