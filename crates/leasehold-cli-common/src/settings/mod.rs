//! Settings: a file, the environment and flags override the defaults, and each value knows where it came from. Every
//! mistake is found before anything starts, and all are reported together.

mod endings;
mod flags;
mod groups;
mod layers;
mod listen;
mod sample;
mod show;
pub mod span;
mod suggest;
mod table;
mod typed;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

pub use endings::failure_policy;
pub use flags::{BeforeCommand, Everywhere, ForLog, ForNodes};
pub use groups::GroupOfNode;
pub use listen::Listen;
pub use sample::sample;
pub use show::{redacted, reference};
pub use suggest::nearest;

use groups::GroupTable;
use layers::Layer;

use crate::sanitize::sanitize;
use crate::{log, stores};

/// A value as it was written, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    File { path: PathBuf, line: usize },
    Env(String),
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Env(name) | Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// One thing that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands.
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub advice: String,
}

impl Problem {
    /// A problem with what stands at that place.
    pub fn new(place: impl fmt::Display, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Problem { place: place.to_string(), what: what.into(), advice: advice.into() }
    }
}

/// Everything that is wrong with the settings. Nothing was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(f, "{count} invalid setting{}; nothing was started", if count == 1 { "" } else { "s" })?;
        for problem in &self.0 {
            write!(f, "\n  {}: {}\n      {}", problem.place, problem.what, problem.advice)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The settings in force.
#[derive(Clone, Debug)]
pub struct Settings {
    values: Layer,
    /// The groups that have a table of their own.
    groups: Vec<GroupTable>,
    /// The file that was read.
    file: Option<PathBuf>,
    /// Where files are looked for.
    places: Vec<PathBuf>,
    /// Variables that look like settings and are none.
    strangers: Vec<String>,
}

impl Settings {
    /// Puts the layers together and checks each value by itself. If something is wrong, the store's URL is looked at
    /// as well, so that all is told at once.
    pub fn load(flags: &Everywhere, more: Option<&ForNodes>) -> Result<Settings, Problems> {
        let (settings, mut problems) = Settings::gather(flags, more);
        settings.report_strangers();
        if !problems.is_empty() && settings.raw("store").is_some() {
            problems.extend(stores::problems(&settings));
        }
        if problems.is_empty() { Ok(settings) } else { Err(Problems(problems)) }
    }

    /// The same for a node, whose settings must also be safe together; `more_wrong` finds what else it lacks.
    pub fn load_for_node(
        flags: &Everywhere,
        more: &ForNodes,
        more_wrong: impl FnOnce(&Settings) -> Vec<Problem>,
    ) -> Result<Settings, Problems> {
        let (settings, mut problems) = Settings::gather(flags, Some(more));
        settings.report_strangers();
        let readable = settings.times_are_readable();
        problems.extend(settings.groups_named_twice());
        problems.extend(more_wrong(&settings));
        problems.extend(settings.exposed());
        problems.extend(settings.raw("store").map(|_| stores::problems(&settings)).unwrap_or_default());
        // Durations that cannot be read have no relation to others.
        if readable {
            for problem in settings.unsafe_together(&stores::facts(&settings)) {
                // Two views of the same mistake.
                if !problems.iter().any(|known| known.place == problem.place && known.what == problem.what) {
                    problems.push(problem);
                }
            }
        }
        if problems.is_empty() { Ok(settings) } else { Err(Problems(problems)) }
    }

    /// No file, no variables, no flags: all defaults.
    fn empty() -> Settings {
        Settings {
            values: Layer::new(),
            groups: Vec::new(),
            file: None,
            places: Vec::new(),
            strangers: Vec::new(),
        }
    }

    fn gather(flags: &Everywhere, more: Option<&ForNodes>) -> (Settings, Vec<Problem>) {
        let env = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        Settings::from_layers(flags, more, &env.collect())
    }

    fn from_layers(
        flags: &Everywhere,
        more: Option<&ForNodes>,
        env: &BTreeMap<String, OsString>,
    ) -> (Settings, Vec<Problem>) {
        let mut problems = Vec::new();
        let file = layers::choose_file(flags.config.as_deref(), env);
        let (mut values, mut groups) = (Layer::new(), Vec::new());
        if let Some(path) = &file {
            (values, groups) = layers::from_file(path, &mut problems);
        }
        values.extend(layers::from_env(env, &mut problems));
        values.extend(flags.values.clone());
        values.extend(more.map(|more| more.values.clone()).unwrap_or_default());
        let strangers = layers::strangers(env);
        let settings = Settings { values, groups, file, places: layers::places(env), strangers };
        settings.check_each(&mut problems);
        (settings, problems)
    }

    /// Says which variables have no effect. Not an error: another program may read them.
    fn report_strangers(&self) {
        if self.strangers.is_empty() {
            return;
        }
        let names = self.strangers.join(", ");
        let (noun, verb) = if self.strangers.len() == 1 { ("variable", "is") } else { ("variables", "are") };
        log::last_words(format!(
            "leasehold: unknown {noun} {} {verb} ignored; `leasehold config show` lists all settings\n",
            sanitize(&names)
        ));
    }

    /// The file that was read.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Where files are looked for.
    pub fn places(&self) -> &[PathBuf] {
        &self.places
    }

    /// The same in another namespace.
    pub fn in_namespace(&self, namespace: &str) -> Settings {
        let flag = || Origin::Flag("--namespace".to_owned());
        let origin = self.raw("namespace").map_or_else(flag, |raw| raw.origin.clone());
        let mut other = self.clone();
        other.values.insert("namespace", Raw { text: namespace.to_owned(), origin });
        other
    }

    /// What was written for a setting.
    pub(crate) fn raw(&self, key: &str) -> Option<&Raw> {
        self.values.get(key)
    }

    /// Where to change a setting: the place where it is set, or its flag.
    pub fn place_of(&self, key: &str) -> String {
        match (self.raw(key), table::find(key)) {
            (Some(raw), _) => raw.origin.to_string(),
            (None, Some(setting)) if setting.has_flag() => setting.flag(),
            (None, Some(setting)) => setting.variable(),
            (None, None) => key.to_owned(),
        }
    }
}
