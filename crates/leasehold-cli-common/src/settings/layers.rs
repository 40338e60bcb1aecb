//! Where settings come from: a file, then the environment, then flags. Later ones win.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::groups::{self, GroupTable};
use super::suggest::nearest;
use super::table::{self, Kind, SETTINGS, Setting};
use super::{Origin, Problem, Raw};

/// Says which file to read.
pub(crate) const CONFIG_VARIABLE: &str = "LEASEHOLD_CONFIG";

/// Values by setting.
pub(crate) type Layer = BTreeMap<&'static str, Raw>;

/// The places where a file is looked for, the first that exists counts.
pub(crate) fn places(env: &BTreeMap<String, OsString>) -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from("leasehold.toml")];
    let home = || env.get("HOME").map(|home| Path::new(home).join(".config"));
    if let Some(folder) = env.get("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home) {
        places.push(folder.join("leasehold/leasehold.toml"));
    }
    places.push(PathBuf::from("/etc/leasehold/leasehold.toml"));
    places
}

/// The file to read, if any: as told, or the first place where there is one.
pub(crate) fn choose_file(told: Option<&Path>, env: &BTreeMap<String, OsString>) -> Option<PathBuf> {
    let variable = env.get(CONFIG_VARIABLE).map(PathBuf::from);
    told.map(Path::to_owned).or(variable).or_else(|| places(env).into_iter().find(|place| place.is_file()))
}

/// Reads a file.
pub(super) fn from_file(path: &Path, problems: &mut Vec<Problem>) -> (Layer, Vec<GroupTable>) {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            problems.push(Problem::new(
                path.display(),
                format!("cannot read the file: {error}"),
                "check the path and its permissions",
            ));
            return (Layer::new(), Vec::new());
        }
    };
    from_text(path, &text, problems)
}

/// Reads the text of a file: its settings, and its `[[group]]` tables.
pub(super) fn from_text(path: &Path, text: &str, problems: &mut Vec<Problem>) -> (Layer, Vec<GroupTable>) {
    let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let mut layer = Layer::new();
    let mut tables = Vec::new();
    let mut wrong = Vec::new();
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            let line = error.span().map_or(1, |span| line_of(span.start));
            let what = format!("invalid TOML: {}", error.message());
            problems.push(Problem::new(
                format!("{}:{line}", path.display()),
                what,
                "use the form `setting = value`",
            ));
            return (layer, tables);
        }
    };
    for (key, value) in &table {
        let line = line_of(key.span().start);
        let origin = Origin::File { path: path.to_owned(), line };
        let name: &str = key.get_ref();
        let Some(setting) = table::find(name) else {
            wrong.push((line, unknown(&origin, name)));
            continue;
        };
        if setting.key == "group"
            && let Some(groups) = groups::read(path, value.get_ref(), line_of, &mut wrong)
        {
            tables = groups;
            continue;
        }
        match text_of(setting.kind, value.get_ref()) {
            Some(text) => drop(layer.insert(setting.key, Raw { text, origin })),
            None => wrong.push((line, no_single_value(&origin, setting, value.get_ref()))),
        }
    }
    wrong.sort_by_key(|(line, _)| *line);
    problems.extend(wrong.into_iter().map(|(_, problem)| problem));
    (layer, tables)
}

fn unknown(origin: &Origin, name: &str) -> Problem {
    let advice = match nearest(name, SETTINGS.iter().map(|setting| setting.key)) {
        Some(known) => format!("did you mean `{known}`?"),
        None => "`leasehold config show` lists all settings".to_owned(),
    };
    Problem::new(origin, format!("unknown setting `{name}`"), advice)
}

/// A value as text. Only labels may be a table of their own: for every other setting its pairs would be taken for a
/// strange name.
pub(super) fn text_of(kind: Kind, value: &DeValue<'_>) -> Option<String> {
    let plain = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(yes) => Some(yes.to_string()),
        DeValue::Table(_) | DeValue::Array(_) | DeValue::Datetime(_) => None,
    };
    match (kind, value) {
        (Kind::Labels, DeValue::Table(table)) => {
            let pairs = table
                .iter()
                .map(|(key, value)| Some(format!("{}={}", key.get_ref(), plain(value.get_ref())?)));
            Some(pairs.collect::<Option<Vec<String>>>()?.join(","))
        }
        (Kind::Patterns, DeValue::Array(list)) => {
            let items = list.iter().map(|item| plain(item.get_ref()));
            Some(items.collect::<Option<Vec<String>>>()?.join(","))
        }
        (_, value) => plain(value),
    }
}

/// A table may be an attempt to group settings, which are all at the top level: the error names the settings in it.
pub(super) fn no_single_value(origin: &Origin, setting: &Setting, value: &DeValue<'_>) -> Problem {
    let key = setting.key;
    let mut advice = format!("write `{key} = {}`", setting.kind.placeholder());
    if let DeValue::Table(table) = value {
        let inside = table.keys().filter_map(|name| table::find(name.get_ref())).map(|setting| setting.key);
        let inside: Vec<String> = inside.map(|key| format!("`{key}`")).collect();
        if !inside.is_empty() {
            let _ = write!(
                advice,
                ", and {} before any [section]: the only sections of a settings file are [[group]] tables, for \
                 several groups",
                inside.join(", ")
            );
        }
    }
    Problem::new(origin, format!("`{key}` takes one value, not a table or a list"), advice)
}

/// Reads the environment. `LEASEHOLD_X_FILE` names a file that holds the value of `x`, for secrets. Variables that
/// look like a setting of ours but are none are reported; others are left alone, because schedulers add their own. An
/// empty variable counts as not set.
pub(crate) fn from_env(env: &BTreeMap<String, OsString>, problems: &mut Vec<Problem>) -> Layer {
    let mut layer = Layer::new();
    let variables: Vec<String> = SETTINGS.iter().map(table::Setting::variable).collect();
    for (name, value) in env {
        if !name.starts_with("LEASEHOLD_")
            || name == CONFIG_VARIABLE
            || TOLD_TO_CHILDREN.contains(&name.as_str())
        {
            continue;
        }
        if value.is_empty() {
            continue;
        }
        let origin = Origin::Env(name.clone());
        let direct = variables.iter().position(|variable| variable == name);
        let by_file = || name.strip_suffix("_FILE").and_then(|name| variables.iter().position(|v| v == name));
        let twice = || {
            by_file()
                .map(|at| &variables[at])
                .filter(|other| env.get(*other).is_some_and(|value| !value.is_empty()))
        };
        if let Some(other) = twice() {
            let what = format!("the value is also set by {other}");
            problems.push(Problem::new(&origin, what, "remove one of the two"));
        } else if let Some(at) = direct {
            let text = value.to_string_lossy().into_owned();
            layer.insert(SETTINGS[at].key, Raw { text, origin });
        } else if let Some(at) = by_file() {
            match std::fs::read_to_string(value) {
                Ok(text) => {
                    drop(layer.insert(SETTINGS[at].key, Raw { text: text.trim().to_owned(), origin }))
                }
                Err(error) => problems.push(Problem::new(
                    &origin,
                    format!("cannot read {}: {error}", Path::new(value).display()),
                    format!("set it to the path of a file that contains the value of `{}`", SETTINGS[at].key),
                )),
            }
        } else if let Some(known) = nearest(bare(name), variables.iter().map(|variable| bare(variable))) {
            let advice = format!("did you mean LEASEHOLD_{known}?");
            problems.push(Problem::new(&origin, "unknown setting".to_owned(), advice));
        }
    }
    layer
}

/// Variables with our prefix that are no settings, without those that look mistyped (they are errors) and those that
/// schedulers and `run` set.
pub(crate) fn strangers(env: &BTreeMap<String, OsString>) -> Vec<String> {
    let variables: Vec<String> = SETTINGS.iter().map(table::Setting::variable).collect();
    let known = |name: &str| variables.iter().any(|variable| variable == name);
    let is_stranger = |(name, value): &(&String, &OsString)| {
        name.starts_with("LEASEHOLD_")
            && !value.is_empty()
            && *name != CONFIG_VARIABLE
            && !known(name)
            && !name.strip_suffix("_FILE").is_some_and(known)
            && !name.starts_with(OF_THE_BUILD)
            && !OF_OTHERS.contains(&name.as_str())
            && !TOLD_TO_CHILDREN.contains(&name.as_str())
            && !is_service_link(bare(name))
            && nearest(bare(name), variables.iter().map(|variable| bare(variable))).is_none()
    };
    env.iter().filter(is_stranger).map(|(name, _)| name.clone()).collect()
}

/// Whether Kubernetes sets such a variable in every container, for a service whose name begins with `leasehold`.
fn is_service_link(bare: &str) -> bool {
    let ends = ["SERVICE_HOST", "SERVICE_PORT", "PORT"];
    ends.iter().any(|end| bare == *end || bare.ends_with(&format!("_{end}")))
        || ["SERVICE_PORT_", "PORT_"]
            .iter()
            .any(|part| bare.starts_with(part) || bare.contains(&format!("_{part}")))
}

fn bare(variable: &str) -> &str {
    variable.strip_prefix("LEASEHOLD_").unwrap_or(variable)
}

/// Variables that `run` gives to its children, so that a command run inside one is not misled.
const TOLD_TO_CHILDREN: &[&str] = &["LEASEHOLD_SHARD", "LEASEHOLD_EPOCH", "LEASEHOLD_PROTOCOL"];

/// Variables that other parts of the program read: the password of a store, and where tests note what they skip.
const OF_OTHERS: &[&str] =
    &["LEASEHOLD_STORE_PASSWORD", "LEASEHOLD_SKIPS", "LEASEHOLD_RESULTS", "LEASEHOLD_TEST_LIMIT"];

/// What the build script tells the compiler, which `cargo run` and `cargo test` hand on.
const OF_THE_BUILD: &str = "LEASEHOLD_BUILD_";

#[cfg(test)]
mod tests {
    use super::*;

    fn told(problems: &[Problem]) -> Vec<String> {
        problems
            .iter()
            .map(|problem| format!("{}: {} ({})", problem.place, problem.what, problem.advice))
            .collect()
    }

    #[test]
    fn all_mistakes_in_a_file_are_found_with_their_lines() {
        let text =
            "ttl = \"5s\"\nrenew_evry = \"1s\"\n\nmargin = [1]\nweight = 7\nlabels = { a = 1, b = \"x\" }\n";
        let mut problems = Vec::new();
        let (layer, _) = from_text(Path::new("x.toml"), text, &mut problems);
        assert_eq!(layer["ttl"].text, "5s");
        assert_eq!(layer["weight"].text, "7");
        assert_eq!(layer["labels"].text, "a=1,b=x");
        assert_eq!(
            told(&problems),
            [
                "x.toml:2: unknown setting `renew_evry` (did you mean `renew_every`?)",
                "x.toml:4: `margin` takes one value, not a table or a list (write `margin = DURATION`)",
            ]
        );
    }

    #[test]
    fn only_labels_may_be_a_table() {
        let text = "weigth = 7\n[group]\nname = \"orders\"\nshards = 8\n[labels]\nrack = 3\n[zone]\n";
        let mut problems = Vec::new();
        let (layer, _) = from_text(Path::new("x.toml"), text, &mut problems);
        assert_eq!(layer.keys().copied().collect::<Vec<_>>(), ["labels"]);
        assert_eq!(
            told(&problems),
            [
                "x.toml:1: unknown setting `weigth` (did you mean `weight`?)",
                "x.toml:2: `group` takes one value, not a table or a list (write `group = NAME`, and `shards` before any \
                 [section]: the only sections of a settings file are [[group]] tables, for several groups)",
                "x.toml:7: `zone` takes one value, not a table or a list (write `zone = TEXT`)",
            ]
        );
    }

    #[test]
    fn the_environment_is_read_and_strangers_are_left_alone() {
        let env = [
            ("LEASEHOLD_TTL", "5s"),
            ("LEASEHOLD_TTTL", "6s"),
            ("LEASEHOLD_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("LEASEHOLD_PORT", "tcp://10.0.0.1:80"),
            ("LEASEHOLD_COLOUR", "red"),
            ("LEASEHOLD_API_SERVICE_HOST", "10.0.0.2"),
            ("LEASEHOLD_STORE_PASSWORD", "secret"),
            ("LEASEHOLD_ZONE", ""),
            ("LEASEHOLD_SHARD", "3"),
            ("PATH", "/bin"),
            ("LEASEHOLD_STORE_FILE", "/no/such/secret"),
            ("LEASEHOLD_NODE", "a"),
            ("LEASEHOLD_NODE_FILE", "/no/such/file"),
        ];
        let env: BTreeMap<String, OsString> =
            env.into_iter().map(|(name, value)| (name.to_owned(), OsString::from(value))).collect();
        let mut problems = Vec::new();
        let layer = from_env(&env, &mut problems);
        assert_eq!(strangers(&env), ["LEASEHOLD_COLOUR"]);
        assert_eq!(layer.len(), 2);
        assert_eq!(layer["ttl"].origin.to_string(), "LEASEHOLD_TTL");
        assert_eq!(problems.len(), 3, "{:?}", told(&problems));
        assert_eq!(
            told(&problems)[0],
            "LEASEHOLD_NODE_FILE: the value is also set by LEASEHOLD_NODE (remove one of the two)"
        );
        assert!(told(&problems)[2].contains("did you mean LEASEHOLD_TTL?"));
    }
}
