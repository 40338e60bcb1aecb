//! Several groups in one process: `[[group]]` tables in the settings file, each with the settings of one group and a
//! command of its own. What a table leaves out is taken from the settings outside the tables.

use std::collections::BTreeMap;
use std::path::Path;

use leasehold_core::GroupName;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::layers::{Layer, no_single_value, text_of};
use super::suggest::nearest;
use super::table::{self, Part, SETTINGS, Setting};
use super::{Origin, Problem, Raw, Settings};

/// What only a table has, beside the settings of a group.
const NAME: &str = "name";
const COMMAND: &str = "command";
const ONE: &str = "one";

/// Settings of `run` that each group may have of its own.
const OF_RUN: &[&str] = &["kill_after", "gate_command"];

/// Settings that are about one group alone, so that they are not taken from outside its table.
const NOT_INHERITED: &[&str] = &["group", "shards", "names"];

/// One `[[group]]` table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupTable {
    /// Where it begins.
    origin: Origin,
    pub(super) name: String,
    pub(super) values: Layer,
    command: Option<(Vec<String>, Origin)>,
    one: bool,
}

/// One group that a node serves, with its settings.
#[derive(Clone, Debug)]
pub struct GroupOfNode {
    /// The settings as they are for this group: `group`, `shards` and so on.
    pub settings: Settings,
    /// The command of its own, if it has one.
    pub command: Option<Vec<String>>,
    /// Where that command is set.
    pub command_place: String,
    /// Whether its shards share one child, whatever the other groups do.
    pub one: bool,
}

impl GroupTable {
    /// What stands in it: setting, value and place.
    pub(super) fn rows(&self) -> Vec<(&'static str, String, String)> {
        let mut rows = Vec::new();
        for setting in SETTINGS {
            if let Some(raw) = self.values.get(setting.key) {
                rows.push((setting.key, raw.text.clone(), raw.origin.to_string()));
            }
        }
        if let Some((command, origin)) = &self.command {
            rows.push((COMMAND, format!("{command:?}"), origin.to_string()));
        }
        if self.one {
            rows.push((ONE, "true".to_owned(), self.origin.to_string()));
        }
        rows
    }
}

/// Whether a table of a group may hold a setting.
fn belongs(setting: &Setting) -> bool {
    let of_group = setting.part == Part::Group && !["group", "serve"].contains(&setting.key);
    of_group || OF_RUN.contains(&setting.key)
}

/// Reads the tables; `value` is what stands under `group`. `None` if that is no list of tables.
pub(super) fn read(
    path: &Path,
    value: &DeValue<'_>,
    line_of: impl Fn(usize) -> usize,
    wrong: &mut Vec<(usize, Problem)>,
) -> Option<Vec<GroupTable>> {
    let DeValue::Array(list) = value else { return None };
    if !list.iter().all(|item| matches!(item.get_ref(), DeValue::Table(_))) {
        return None;
    }
    let mut groups: Vec<GroupTable> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for item in list {
        let DeValue::Table(inside) = item.get_ref() else { continue };
        let line = line_of(item.span().start);
        let at = |line| Origin::File { path: path.to_owned(), line };
        let group = read_one(inside, at(line), &|span| at(line_of(span)), &mut |span, problem| {
            wrong.push((line_of(span), problem));
        });
        let Some(group) = group else {
            let what = "the group has no name";
            wrong.push((line, Problem::new(at(line), what, "add `name = \"NAME\"` to its table")));
            continue;
        };
        if let Some(first) = known.insert(group.name.clone(), line) {
            let what = format!("the group {} has a table in line {first} already", group.name);
            wrong.push((line, Problem::new(at(line), what, "merge the two, or rename one")));
        }
        groups.push(group);
    }
    Some(groups)
}

fn read_one(
    inside: &DeTable<'_>,
    origin: Origin,
    place: &dyn Fn(usize) -> Origin,
    wrong: &mut dyn FnMut(usize, Problem),
) -> Option<GroupTable> {
    let mut name = None;
    let mut group =
        GroupTable { origin, name: String::new(), values: Layer::new(), command: None, one: false };
    for (key, value) in inside {
        let (start, origin) = (key.span().start, place(key.span().start));
        match (key.get_ref().as_ref(), value.get_ref()) {
            (NAME, DeValue::String(text)) => {
                if let Err(error) = GroupName::new(text.as_ref()) {
                    wrong(start, Problem::new(&origin, error.to_string(), "choose another name"));
                }
                name = Some(text.to_string());
            }
            (NAME, _) => {
                wrong(start, Problem::new(&origin, "`name` takes a text", "write `name = \"NAME\"`"));
            }
            (COMMAND, value) => match words(value) {
                Some(words) => group.command = Some((words, origin)),
                None => {
                    wrong(start, Problem::new(&origin, "`command` takes a list of words", COMMAND_ADVICE));
                }
            },
            (ONE, DeValue::Boolean(one)) => group.one = *one,
            (ONE, _) => {
                wrong(start, Problem::new(&origin, "`one` takes true or false", "write `one = true`"));
            }
            (key, value) => match table::find(key).filter(|setting| belongs(setting)) {
                None => wrong(start, stranger(&origin, key)),
                Some(setting) => match text_of(setting.kind, value) {
                    Some(text) => drop(group.values.insert(setting.key, Raw { text, origin })),
                    None => wrong(start, no_single_value(&origin, setting, value)),
                },
            },
        }
    }
    name.map(|name| GroupTable { name, ..group })
}

const COMMAND_ADVICE: &str = "write it as a list, for example command = [\"./worker\", \"--slot\", \"{shard}\"]; for a shell: \
                              [\"sh\", \"-c\", \"…\"]";

fn words(value: &DeValue<'_>) -> Option<Vec<String>> {
    let DeValue::Array(list) = value else { return None };
    let word = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    };
    list.iter().map(word).collect()
}

fn stranger(origin: &Origin, key: &str) -> Problem {
    let ours = SETTINGS.iter().filter(|setting| belongs(setting)).map(|setting| setting.key);
    let advice = match (key, table::find(key)) {
        ("group", _) => "write `name = \"NAME\"`".to_owned(),
        ("capacity", _) => {
            "`capacity` is for all groups together and stands before the first [[group]]; for this one \
                            write `group_capacity`"
                .to_owned()
        }
        (_, Some(_)) => {
            format!("`{key}` is no setting of a single group: move it before the first [[group]]")
        }
        (_, None) => match nearest(key, ours.chain([NAME, COMMAND, ONE])) {
            Some(known) => format!("did you mean `{known}`?"),
            None => "docs/settings.md lists the settings of a group".to_owned(),
        },
    };
    Problem::new(origin, format!("unknown setting `{key}` in a [[group]]"), advice)
}

impl Settings {
    /// The groups that a node with these settings serves: those of the tables, or the one group of the plain settings.
    pub fn groups(&self) -> Vec<GroupOfNode> {
        if self.groups.is_empty() {
            let only = || GroupOfNode {
                settings: self.clone(),
                command: None,
                command_place: "--".to_owned(),
                one: false,
            };
            return self.text("group").map(|_| only()).into_iter().collect();
        }
        self.groups.iter().map(|group| self.with(group)).collect()
    }

    /// Whether several groups have tables of their own.
    pub fn has_group_tables(&self) -> bool {
        !self.groups.is_empty()
    }

    fn with(&self, group: &GroupTable) -> GroupOfNode {
        let mut values = self.values.clone();
        values.retain(|key, _| !NOT_INHERITED.contains(key));
        values.extend(group.values.clone());
        values.insert("group", Raw { text: group.name.clone(), origin: group.origin.clone() });
        let (command, command_place) = match &group.command {
            Some((command, origin)) => (Some(command.clone()), origin.to_string()),
            None => (None, "--".to_owned()),
        };
        let settings = Settings { values, groups: Vec::new(), ..self.clone() };
        GroupOfNode { settings, command, command_place, one: group.one }
    }

    /// A group that is named outside the tables as well: which of them is meant, nobody can tell.
    pub(super) fn groups_named_twice(&self) -> Vec<Problem> {
        let Some(first) = self.groups.first() else { return Vec::new() };
        let outside = NOT_INHERITED.iter().filter_map(|key| Some((key, self.raw(key)?)));
        let problem = |(key, raw): (&&str, &Raw)| {
            let what = format!(
                "`{key}` is set outside the [[group]] tables of the settings file ({})",
                first.origin
            );
            Problem::new(&raw.origin, what, "set it inside a table, or remove the tables")
        };
        outside.map(problem).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::layers::from_text;
    use super::*;

    fn read(text: &str) -> (Settings, Vec<String>) {
        let mut problems = Vec::new();
        let (values, groups) = from_text(Path::new("x.toml"), text, &mut problems);
        let told = |p: &Problem| format!("{}: {} ({})", p.place, p.what, p.advice);
        let settings = Settings { values, groups, file: None, places: Vec::new(), strangers: Vec::new() };
        (settings, problems.iter().map(told).collect())
    }

    #[test]
    fn each_table_is_a_group_with_its_own_settings_and_those_outside_as_defaults() {
        let text = "cooldown = \"9s\"\nweight = 7\n\n[[group]]\nname = \"orders\"\nshards = 8\ncooldown = \"1s\"\n\
                    command = [\"./a\", \"{shard}\"]\n\n[[group]]\nname = \"tenants\"\nnames = \"x,y\"\none = true\n";
        let (settings, problems) = read(text);
        assert_eq!(problems, Vec::<String>::new());
        let groups = settings.groups();
        let of = |at: usize, key: &str| groups[at].settings.text(key).map(str::to_owned);
        assert_eq!((of(0, "group").as_deref(), of(1, "group").as_deref()), (Some("orders"), Some("tenants")));
        assert_eq!((of(0, "cooldown").as_deref(), of(1, "cooldown").as_deref()), (Some("1s"), Some("9s")));
        assert_eq!((of(0, "shards").as_deref(), of(1, "shards")), (Some("8"), None));
        assert_eq!(groups[0].command.as_deref(), Some(&["./a".to_owned(), "{shard}".to_owned()][..]));
        assert_eq!(groups[0].settings.place_of("cooldown"), "x.toml:7");
        assert_eq!((groups[0].one, groups[1].one), (false, true));
        assert_eq!(groups[1].command, None);
    }

    #[test]
    fn all_mistakes_in_tables_are_told_with_their_lines() {
        let text = "[[group]]\nshards = 8\n[[group]]\nname = \"a\"\ncapacity = 3\nshrads = 3\nttl = \"1s\"\ncommand = \"./x\"\n\
                    [[group]]\nname = \"a\"\nshards = [1]\n";
        assert_eq!(
            read(text).1,
            [
                "x.toml:1: the group has no name (add `name = \"NAME\"` to its table)",
                "x.toml:5: unknown setting `capacity` in a [[group]] (`capacity` is for all groups together and stands before \
                 the first [[group]]; for this one write `group_capacity`)",
                "x.toml:6: unknown setting `shrads` in a [[group]] (did you mean `shards`?)",
                "x.toml:7: unknown setting `ttl` in a [[group]] (`ttl` is no setting of a single group: move it before the \
                 first [[group]])",
                &format!("x.toml:8: `command` takes a list of words ({COMMAND_ADVICE})"),
                "x.toml:9: the group a has a table in line 3 already (merge the two, or rename one)",
                "x.toml:11: `shards` takes one value, not a table or a list (write `shards = NUMBER`)",
            ]
        );
    }

    #[test]
    fn a_group_outside_the_tables_is_a_contradiction() {
        assert!(read("group = \"a\"\n").0.groups_named_twice().is_empty());
        let (mut settings, _) = read("[[group]]\nname = \"a\"\nshards = 1\n");
        let flag = Raw { text: "b".into(), origin: Origin::Flag("--group".into()) };
        settings.values.insert("group", flag);
        let problems = settings.groups_named_twice();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].place, "--group");
    }
}
