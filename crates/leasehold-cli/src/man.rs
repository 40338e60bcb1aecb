//! `leasehold man`: manual pages, made from the same description of the command line as `--help`.

use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;
use leasehold_cli_common::failure::{Code, EXIT_CODES, Failure};

use crate::args::Arguments;

/// The section of programs for users.
const SECTION: &str = "1";

/// Prints the page of a command, or writes all pages.
pub(crate) fn man(command: &[String], dir: Option<&Path>) -> Result<(), Failure> {
    let Some(dir) = dir else {
        print!("{}", page(find(command)?)?);
        return Ok(());
    };
    let failed = |path: &Path, error: std::io::Error| {
        Failure::new(Code::Failed, format!("cannot write {}: {error}", path.display()))
    };
    std::fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
    let commands = all(built());
    for command in &commands {
        let path = dir.join(Man::new(command.clone()).get_filename());
        std::fs::write(&path, page(command.clone())?).map_err(|error| failed(&path, error))?;
    }
    println!("{} manual pages written to {}", commands.len(), dir.display());
    Ok(())
}

fn built() -> clap::Command {
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    program
}

/// The command and all commands below it.
fn all(command: clap::Command) -> Vec<clap::Command> {
    let below: Vec<clap::Command> =
        command.get_subcommands().filter(|below| !below.is_hide_set()).cloned().collect();
    std::iter::once(command).chain(below.into_iter().flat_map(all)).collect()
}

fn find(path: &[String]) -> Result<clap::Command, Failure> {
    let mut command = built();
    for name in path {
        let Some(below) = command.find_subcommand(name).cloned() else {
            let known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            let advice = match leasehold_cli_common::settings::nearest(name, known.iter().copied()) {
                Some(known) => format!("did you mean {known:?}?"),
                None if known.is_empty() => "it has no subcommands".to_owned(),
                None => format!("use one of {}", known.join(", ")),
            };
            let parent = command.get_bin_name().unwrap_or_else(|| command.get_name());
            return Err(Failure::new(Code::Usage, format!("`{parent}` has no command {name:?}: {advice}")));
        };
        command = below;
    }
    Ok(command)
}

/// The page. Name, description, options and subcommands come from the description of the command line; the rest is as
/// readers of manual pages expect it.
fn page(mut command: clap::Command) -> Result<String, Failure> {
    let failed = |error| Failure::new(Code::Failed, format!("cannot make the page: {error}"));
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    let path = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    let notes = command.get_after_help().map(ToString::to_string).filter(|notes| notes != EXIT_CODES);
    let has_subcommands = command.has_subcommands();
    let man = Man::new(command).section(SECTION);

    let (title, version) = (path.replace(' ', "-").to_uppercase(), env!("CARGO_PKG_VERSION"));
    let mut text = format!(
        ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.TH \"{}\" {SECTION} \"\" \"leasehold {version}\" \"Leasehold\"\n",
        escaped(&title)
    )
    .into_bytes();
    man.render_name_section(&mut text).map_err(failed)?;
    text.extend(section("SYNOPSIS", &usage).bytes());
    man.render_description_section(&mut text).map_err(failed)?;
    man.render_options_section(&mut text).map_err(failed)?;
    if has_subcommands {
        man.render_subcommands_section(&mut text).map_err(failed)?;
    }
    if let Some(notes) = notes {
        text.extend(section("NOTES", &notes).bytes());
    }
    let codes = EXIT_CODES.split_once('\n').map_or(EXIT_CODES, |(_, codes)| codes);
    text.extend(section("EXIT STATUS", codes).bytes());
    text.extend(format!(".SH \"SEE ALSO\"\n{}\n", see_also(&path)).bytes());
    Ok(ascii(&String::from_utf8_lossy(&text)))
}

/// The pages of the commands above, or of those to begin with.
fn see_also(path: &str) -> String {
    let words: Vec<&str> = path.split(' ').collect();
    let above: Vec<String> = (1..words.len()).map(|until| words[..until].join("-")).collect();
    let pages =
        if above.is_empty() { vec!["leasehold-run".into(), "leasehold-status".into()] } else { above };
    let pages = pages.iter().map(|page| format!("\\fB{}\\fR({SECTION})", escaped(page)));
    pages.collect::<Vec<_>>().join(", ")
}

/// A section. Paragraphs are filled; indented lines stay as they are.
fn section(title: &str, body: &str) -> String {
    let mut text = format!(".SH \"{title}\"\n");
    for paragraph in body.trim_end().split("\n\n") {
        text.push_str(".PP\n");
        for line in paragraph.lines() {
            // A dot or a quote at the start of a line would be a request.
            let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
            match line.strip_prefix("  ") {
                Some(line) => text.push_str(&format!(".br\n.nf\n    {}\n.fi\n", escaped(line))),
                None => text.push_str(&format!("{guard}{}\n", escaped(line))),
            }
        }
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\(rs").replace('-', "\\-")
}

/// Other characters as escapes, because not every reader of pages knows UTF-8.
fn ascii(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\u{2026}' => plain.push_str("..."),
            letter if letter.is_ascii() => plain.push(letter),
            letter => plain.push_str(&format!("\\[u{:04X}]", u32::from(letter))),
        }
    }
    plain
}
