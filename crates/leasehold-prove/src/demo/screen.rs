//! The terminal: colours, keys, and restoring it at the end.

use std::io::{self, Write};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::{
    Attribute, Color, Print, ResetColor, SetAttribute, SetBackgroundColor, SetForegroundColor,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{cursor, execute, queue, terminal};
use leasehold_cli_common::sanitize::sanitize;
use tokio::sync::mpsc;

use super::picture::{Style, StyledLine};

/// The nodes' colours: apart from each other, readable with black letters, and safe for most colour-blind people.
const COLOURS: [u8; 12] = [75, 214, 114, 176, 220, 80, 209, 147, 150, 181, 109, 222];

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    Kill,
    Pause,
    Drain,
    Add,
    Quit,
}

/// A terminal that is drawn on. Dropping it gives the terminal back as it was.
#[derive(Debug)]
pub(super) struct Screen;

impl Screen {
    pub(super) fn open() -> io::Result<Screen> {
        terminal::enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            usual(panic);
        }));
        Ok(Screen)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        terminal::size().map_or((80, 24), |(columns, rows)| (columns.max(20).into(), rows.max(8).into()))
    }

    pub(super) fn show(&self, lines: &[StyledLine]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let (columns, _) = self.size();
        queue!(out, BeginSynchronizedUpdate)?;
        for (row, line) in lines.iter().enumerate() {
            queue!(out, cursor::MoveTo(0, row as u16))?;
            let mut room = columns;
            for piece in line {
                let text: String = sanitize(&piece.text).chars().take(room).collect();
                room -= text.chars().count();
                apply(&mut out, piece.style)?;
                queue!(out, Print(text), SetAttribute(Attribute::Reset), ResetColor)?;
            }
            queue!(out, Clear(ClearType::UntilNewLine))?;
        }
        queue!(out, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
}

fn apply(out: &mut impl Write, style: Style) -> io::Result<()> {
    let colour = |place: usize| Color::AnsiValue(COLOURS[place % COLOURS.len()]);
    match style {
        Style::Plain => Ok(()),
        Style::Bold => queue!(out, SetAttribute(Attribute::Bold)),
        Style::Dim => queue!(out, SetForegroundColor(Color::AnsiValue(245))),
        Style::Good => queue!(out, SetForegroundColor(Color::AnsiValue(114)), SetAttribute(Attribute::Bold)),
        Style::Bad => queue!(out, SetForegroundColor(Color::AnsiValue(203)), SetAttribute(Attribute::Bold)),
        Style::Block(place) => {
            queue!(out, SetBackgroundColor(colour(place)), SetForegroundColor(Color::AnsiValue(16)))
        }
        Style::Ink(place) => queue!(out, SetForegroundColor(colour(place))),
        Style::Nobody => {
            queue!(out, SetBackgroundColor(Color::AnsiValue(237)), SetForegroundColor(Color::AnsiValue(203)))
        }
    }
}

/// Reads keys on a separate thread, as long as the receiver exists.
pub(super) fn keys() -> io::Result<mpsc::UnboundedReceiver<Key>> {
    let (sender, keys) = mpsc::unbounded_channel();
    std::thread::Builder::new().name("lh-demo-keys".to_owned()).spawn(move || {
        while !sender.is_closed() {
            match event::poll(Duration::from_millis(100)) {
                Ok(false) => continue,
                Err(_) => return,
                Ok(true) => {}
            }
            if let Ok(Event::Key(key)) = event::read()
                && key.kind != KeyEventKind::Release
                && let Some(key) = meaning(key.code, key.modifiers)
                && sender.send(key).is_err()
            {
                return;
            }
        }
    })?;
    Ok(keys)
}

fn meaning(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
    Some(match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Key::Quit,
        KeyCode::Up => Key::Up,
        KeyCode::Down | KeyCode::Tab => Key::Down,
        KeyCode::Char('k' | 'K') => Key::Kill,
        KeyCode::Char('p' | 'P') => Key::Pause,
        KeyCode::Char('d' | 'D') => Key::Drain,
        KeyCode::Char('a' | 'A') => Key::Add,
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Key::Quit,
        _ => return None,
    })
}
