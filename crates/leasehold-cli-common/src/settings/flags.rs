//! The settings as flags. They are made from the table, so that no setting is forgotten or described twice.

use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::layers::Layer;
use super::table::{Kind, Part, SETTINGS, Setting};
use super::{Origin, Raw};

/// The flags of every command that looks at a cluster.
#[derive(Clone, Debug, Default)]
pub struct Everywhere {
    pub(crate) config: Option<PathBuf>,
    pub(crate) values: Layer,
}

/// The flags of commands that run a node or judge its settings.
#[derive(Clone, Debug, Default)]
pub struct ForNodes {
    pub(crate) values: Layer,
}

/// The flags of commands that run until they are stopped, and log.
#[derive(Clone, Debug, Default)]
pub struct ForLog(ForNodes);

impl ForLog {
    /// As a part of the flags of a node.
    pub fn as_node(&self) -> &ForNodes {
        &self.0
    }
}

fn id(setting: &Setting) -> String {
    format!("setting-{}", setting.key)
}

fn argument(setting: &'static Setting) -> Arg {
    let help = match setting.kind {
        Kind::Word(words) => {
            format!("{} ({}) [default: {}]", setting.help, words.join(", "), setting.default)
        }
        _ => format!("{} [default: {}]", setting.help, setting.default),
    };
    let mut argument = Arg::new(id(setting))
        .long(setting.key.replace('_', "-"))
        .value_name(setting.kind.placeholder())
        .help(help)
        .help_heading(setting.part.heading())
        .action(ArgAction::Set)
        .value_parser(ValueParser::string());
    if matches!(setting.kind, Kind::Count | Kind::Slots | Kind::Factor | Kind::Span) {
        // What is wrong with them is said with the other settings.
        argument = argument.allow_negative_numbers(true);
    }
    if setting.kind == Kind::Switch {
        argument = argument.num_args(0..=1).require_equals(true).default_missing_value("true");
    }
    argument
}

fn collect(matches: &ArgMatches, wanted: impl Fn(Part) -> bool) -> Layer {
    let mut layer = Layer::new();
    for setting in SETTINGS.iter().filter(|setting| wanted(setting.part)) {
        if let Ok(Some(text)) = matches.try_get_one::<String>(&id(setting)) {
            layer.insert(setting.key, Raw { text: text.clone(), origin: Origin::Flag(setting.flag()) });
        }
    }
    layer
}

/// The arguments of [`Everywhere`].
fn everywhere() -> impl Iterator<Item = Arg> {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .help("Settings file (TOML) [default: the first file that `config paths` finds]")
        .help_heading(Part::Where.heading())
        .value_parser(ValueParser::path_buf());
    let settings = SETTINGS.iter().filter(|setting| setting.part == Part::Where);
    settings.map(argument).chain([config])
}

/// The flags that may also stand before the command, for those commands that have them. The command's own flag gets the
/// value; its help shows the flag.
#[derive(Clone, Copy, Debug, Default)]
pub struct BeforeCommand;

impl BeforeCommand {
    fn arguments() -> impl Iterator<Item = Arg> {
        let output = [("json", None), ("quiet", Some('q'))].map(|(name, short)| {
            let argument = Arg::new(name).long(name).action(ArgAction::SetTrue);
            short.map_or(argument.clone(), |short| argument.short(short))
        });
        everywhere().chain(output)
    }

    /// A flag that stands before a command that does not have it. `command` is as it was declared, not built.
    pub fn misplaced(command: &Command, matches: &ArgMatches) -> Option<String> {
        let (mut leaf, mut found, mut path) = (command, matches, Vec::new());
        while let Some((name, inner)) = found.subcommand() {
            let Some(next) = leaf.find_subcommand(name) else { break };
            (leaf, found) = (next, inner);
            path.push(name);
        }
        let given = |argument: &Arg| {
            let id = argument.get_id().as_str();
            matches!(found.try_contains_id(id), Ok(true))
                && found.value_source(id) == Some(ValueSource::CommandLine)
                && !leaf.get_arguments().any(|own| own.get_id() == argument.get_id())
        };
        let flag = BeforeCommand::arguments().find(given)?;
        let flag = flag.get_long().unwrap_or_default().to_owned();
        Some(format!("`leasehold {}` does not have the flag --{flag}", path.join(" ")))
    }
}

impl Args for BeforeCommand {
    fn augment_args(command: Command) -> Command {
        let shared = BeforeCommand::arguments().map(|argument| argument.global(true).hide(true));
        shared.fold(command, Command::arg)
    }
    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for BeforeCommand {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(BeforeCommand)
    }
    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

impl Args for Everywhere {
    fn augment_args(command: Command) -> Command {
        everywhere().fold(command, Command::arg)
    }
    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Everywhere {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let config = matches.get_one::<PathBuf>("config").cloned();
        Ok(Everywhere { config, values: collect(matches, |part| part == Part::Where) })
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ForNodes {
    fn augment_args(command: Command) -> Command {
        let settings = SETTINGS.iter().filter(|setting| setting.part != Part::Where && setting.has_flag());
        settings.fold(command, |command, setting| command.arg(argument(setting)))
    }
    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ForNodes {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(ForNodes { values: collect(matches, |part| part != Part::Where) })
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ForLog {
    fn augment_args(command: Command) -> Command {
        let settings = SETTINGS.iter().filter(|setting| setting.part == Part::Log);
        settings.fold(command, |command, setting| command.arg(argument(setting)))
    }
    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ForLog {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(ForLog(ForNodes { values: collect(matches, |part| part == Part::Log) }))
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
