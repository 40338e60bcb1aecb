//! Settings as typed values, and the node's configuration built from them.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::config::{Backoff, Config, Namespace};
use leasehold_core::record::{Policy, SLOTS_MAX, ShardSet, ZoneRule};
use leasehold_core::store::Facts;
use leasehold_core::{GroupConfig, GroupName, NodeName};

use super::table::{self, Kind, Part, SETTINGS};
use super::{Listen, Problem, Problems, Settings, failure_policy, nearest, span};

/// Whether a value is what its setting takes; what is wrong, and what to do.
pub(super) fn check(kind: Kind, text: &str) -> Result<(), (String, String)> {
    let fail = |what: String, advice: &str| Err((what, advice.to_owned()));
    match kind {
        // It is shown to others, in tables and in answers of `locate`.
        Kind::Text | Kind::Labels | Kind::Zones | Kind::Failures if text.contains(char::is_control) => {
            fail(format!("{text:?} contains a control character"), "remove it")
        }
        Kind::Text | Kind::Url | Kind::Secret => Ok(()),
        Kind::Name => match NodeName::new(text) {
            Ok(_) => Ok(()),
            Err(error) => {
                let what = error.to_string().replacen("the node name", "the name", 1);
                fail(what.replacen("a node name", "a name", 1), "choose another name")
            }
        },
        Kind::Labels => {
            labels(text).map(drop).map_err(|what| (what, "use the form key=value,key=value".to_owned()))
        }
        Kind::Count => {
            whole(text, 0, u32::MAX).map_err(|what| (what, "use a whole number, for example 8".to_owned()))
        }
        // Judged here and not only with the rules of its group, so that it is told of whatever else is wrong.
        Kind::Slots => whole(text, 1, SLOTS_MAX).map_err(|what| {
            let advice =
                "use a few times the largest number of nodes that you expect; 1 shard is leader election";
            (what, advice.to_owned())
        }),
        Kind::Factor => match factor(text) {
            Some(_) => Ok(()),
            None => fail(format!("invalid factor {text:?}"), "use a number, for example 1.10"),
        },
        Kind::Span => match span::parse(text) {
            Ok(_) => Ok(()),
            Err(what) => fail(what, "use a number with a unit: 250ms, 10s, 2m or 1h"),
        },
        Kind::Word(words) if words.contains(&text) => Ok(()),
        Kind::Word(words) => {
            let advice = match nearest(text, words.iter().copied()) {
                Some(word) => format!("did you mean {word:?}?"),
                None => format!("use one of {}", words.join(", ")),
            };
            Err((format!("invalid value {text:?}"), advice))
        }
        Kind::Zones => match zones(text) {
            Some(_) => Ok(()),
            None => fail(format!("invalid zone rule {text:?}"), "use ignore, spread or prefer:ZONE"),
        },
        Kind::Failures => match failure_policy(text) {
            Ok(_) => Ok(()),
            Err(what) => match what.split_once("; ") {
                Some((what, advice)) => fail(what.to_owned(), advice),
                None => fail(what, ""),
            },
        },
        Kind::Patterns => {
            let patterns = patterns(text);
            let invalid = patterns.iter().find_map(|p| GroupName::new(p.replace('*', "x")).err());
            let advice = "use names or patterns, for example orders-*,billing";
            match invalid {
                _ if patterns.is_empty() => fail("no group is named".to_owned(), advice),
                Some(error) => fail(error.to_string(), advice),
                None => Ok(()),
            }
        }
        Kind::Listen => match Listen::parse(text) {
            Ok(_) => Ok(()),
            Err(what) => fail(what, "use 127.0.0.1:9464 or unix:PATH"),
        },
        Kind::Switch => match text {
            "true" | "false" => Ok(()),
            _ => fail(format!("invalid value {text:?}"), "use true or false"),
        },
    }
}

/// Whether it is a whole number in this range; a number that is too long for us is still one.
fn whole(text: &str, min: u32, max: u32) -> Result<(), String> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    match digits.parse::<u32>() {
        Ok(number) if (min..=max).contains(&number) => Ok(()),
        Err(_) if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            Err(format!("invalid whole number {text:?}"))
        }
        _ if min == 0 => Err(format!("{text} is too large; the maximum is {max}")),
        _ => Err(format!("{text} is out of range; use {min} to {max}")),
    }
}

fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let split = |pair: &str| match pair.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("invalid label {pair:?}")),
    };
    pairs.map(split).collect()
}

/// `orders-*,billing`
fn patterns(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// `1.10` as 1100 thousandths.
fn factor(text: &str) -> Option<u32> {
    span::scaled(text, 1000).and_then(|thousandths| u32::try_from(thousandths).ok())
}

fn zones(text: &str) -> Option<ZoneRule> {
    match text {
        "ignore" => Some(ZoneRule::Ignore),
        "spread" => Some(ZoneRule::Spread),
        _ => text
            .strip_prefix("prefer:")
            .filter(|zone| !zone.is_empty())
            .map(|zone| ZoneRule::Prefer(zone.into())),
    }
}

impl Settings {
    /// Checks every value by itself.
    pub(super) fn check_each(&self, problems: &mut Vec<Problem>) {
        let outside = SETTINGS.iter().filter_map(|setting| Some((setting, self.raw(setting.key)?)));
        let of_groups = self.groups.iter().flat_map(|group| &group.values);
        let of_groups = of_groups.filter_map(|(key, raw)| Some((table::find(key)?, raw)));
        for (setting, raw) in outside.chain(of_groups) {
            if let Err((what, advice)) = check(setting.kind, &raw.text) {
                problems.push(Problem::new(&raw.origin, what, advice));
            }
        }
    }

    /// Whether every duration of the time budget can be read.
    pub(super) fn times_are_readable(&self) -> bool {
        let times = SETTINGS.iter().filter(|setting| setting.part == Part::Time);
        times
            .filter_map(|setting| Some((setting.kind, self.raw(setting.key)?)))
            .all(|(kind, raw)| check(kind, &raw.text).is_ok())
    }

    /// The groups in the store that this node serves, by name or pattern.
    pub fn serve(&self) -> Vec<String> {
        self.text("serve").map(patterns).unwrap_or_default()
    }

    /// A text, if it was given.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.raw(key).map(|raw| raw.text.as_str())
    }

    /// A number, if it was given.
    pub fn count(&self, key: &str) -> Option<u32> {
        self.text(key).and_then(|text| text.parse().ok())
    }

    /// A duration, if it was given.
    pub fn span(&self, key: &str) -> Option<Duration> {
        self.text(key).and_then(|text| span::parse(text).ok())
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.text("namespace").unwrap_or("default")
    }

    /// The configuration of a node, checked as a whole.
    pub fn node_config(&self, facts: &Facts) -> Result<Config, Problems> {
        let mut problems = Vec::new();
        let config = self.assemble(facts, &mut problems);
        self.relate(&config, facts, &mut problems);
        if problems.is_empty() { Ok(config) } else { Err(Problems(problems)) }
    }

    /// What is wrong with the settings of a node as a whole. The rules of a group are judged even if nobody said which
    /// group it is.
    pub(super) fn unsafe_together(&self, facts: &Facts) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut config = self.assemble(facts, &mut problems);
        if config.groups.is_empty()
            && let Ok(any) = GroupName::new("any")
        {
            config.groups.push(GroupConfig { shards: ShardSet::Numbered(1), ..self.group_config(any) });
        }
        self.relate(&config, facts, &mut problems);
        problems
    }

    fn relate(&self, config: &Config, facts: &Facts, problems: &mut Vec<Problem>) {
        if let Err(errors) = config.check_on(facts) {
            let groups: Vec<Settings> = self.groups().into_iter().map(|group| group.settings).collect();
            // Defaults follow from the ttl: with another one they are right.
            let ttl_is_wrong = (&errors).into_iter().any(|error| setting_of(&error.setting) == "ttl");
            for error in &errors {
                let key = setting_of(&error.setting);
                let about = groups.iter().find(|group| {
                    let name = group.text("group").unwrap_or_default();
                    error.setting.starts_with(&format!("groups[{name}]"))
                });
                let about = about.unwrap_or(self);
                if ttl_is_wrong && key != "ttl" && about.raw(key).is_none() {
                    continue;
                }
                let place = about.place_of(key);
                let said = error.message.starts_with(key) || error.message.contains(&format!(" {key} "));
                let what = if said { error.message.clone() } else { format!("{key}: {}", error.message) };
                problems.push(Problem::new(place, what, error.advice.clone()));
            }
        }
    }

    fn assemble(&self, facts: &Facts, problems: &mut Vec<Problem>) -> Config {
        // What is wrong with a name that was given is told where it is read.
        let given = self.text("node");
        let name = given.map_or_else(default_name, str::to_owned);
        let name = NodeName::new(&name).unwrap_or_else(|error| {
            if given.is_none() {
                let advice = "give this node a name with --node";
                problems.push(Problem::new(self.place_of("node"), error.to_string(), advice));
            }
            NodeName::new("unnamed").expect("a plain word is a name")
        });
        let mut config = match self.span("ttl") {
            Some(ttl) => Config::with_ttl(name, ttl),
            None => Config::new(name, facts),
        };
        self.set_node(&mut config);
        self.set_times(&mut config);
        for group in self.groups() {
            if let Some(Ok(name)) = group.settings.text("group").map(GroupName::new) {
                config.groups.push(group.settings.group_config(name));
            }
        }
        config
    }

    fn set_node(&self, config: &mut Config) {
        config.weight = self.count("weight").unwrap_or(config.weight);
        config.capacity = self.count("capacity").or(config.capacity);
        config.kept_min = self.count("node_kept_min").unwrap_or(config.kept_min);
        config.zone = self.text("zone").map(str::to_owned);
        config.address = self.text("address").map(str::to_owned);
        config.labels = self.text("labels").and_then(|text| labels(text).ok()).unwrap_or_default();
        if self.text("new_namespace") == Some("true") {
            config.namespace = Namespace::New;
        }
        config.drift_permille = self.count("drift_permille").unwrap_or(config.drift_permille);
        config.vanish_freeze_permille =
            self.count("vanish_freeze_permille").unwrap_or(config.vanish_freeze_permille);
        config.give_up_at_once =
            self.count("give_up_at_once").map_or(config.give_up_at_once, |count| count as usize);
    }

    fn set_times(&self, config: &mut Config) {
        let set = |key: &str, field: &mut Duration| *field = self.span(key).unwrap_or(*field);
        set("ttl_max", &mut config.ttl_max);
        set("renew_every", &mut config.renew_every);
        set("try_timeout", &mut config.try_timeout);
        set("margin", &mut config.margin);
        set("kill_budget", &mut config.kill_budget);
        set("list_every", &mut config.list_every);
        set("debounce", &mut config.debounce);
        set("takeover_delay", &mut config.takeover_delay);
        set("recover_window", &mut config.recover_window);
        // Programs are started as several replicas at once, also in a new namespace.
        config.gather = Some(self.span("gather").unwrap_or(config.debounce.saturating_mul(2)));
        set("acquire_retry_interval", &mut config.acquire_retry_interval);
        set("acquire_retry_window", &mut config.acquire_retry_window);
        set("healthy_after", &mut config.healthy_after);
        set("retired_kept", &mut config.retired_kept);
        config.retry = self.backoff("retry", config.retry.clone());
        config.restart = self.backoff("restart", config.restart.clone());
    }

    fn backoff(&self, which: &str, default: Backoff) -> Backoff {
        let (first, max) = (self.span(&format!("{which}_first")), self.span(&format!("{which}_max")));
        if first.is_none() && max.is_none() {
            return default;
        }
        let Backoff::Doubling { first: first_default, max: max_default } = default else { return default };
        let max = max.unwrap_or(max_default);
        Backoff::Doubling { first: first.unwrap_or(first_default.min(max)), max }
    }

    /// The group that this node serves.
    fn group_config(&self, group: GroupName) -> GroupConfig {
        let shards = match self.text("names") {
            Some(_) => ShardSet::Named,
            // The rest is checked even without a size: a child of `run` knows its group but not its size.
            None => {
                ShardSet::Numbered(self.count("shards").filter(|n| (1..=SLOTS_MAX).contains(n)).unwrap_or(1))
            }
        };
        GroupConfig { group, shards, policy: self.policy(), capacity: self.count("group_capacity") }
    }

    /// The rules of the group, as far as they were given.
    fn policy(&self) -> Policy {
        let mut policy = Policy::default();
        let ms = |key: &str, field: &mut u64| {
            if let Some(span) = self.span(key) {
                *field = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
            }
        };
        ms("cooldown", &mut policy.cooldown_ms);
        ms("min_run", &mut policy.min_run_ms);
        ms("move_window", &mut policy.move_window_ms);
        ms("restart_grace", &mut policy.restart_grace_ms);
        ms("stop_timeout", &mut policy.stop_timeout_ms);
        policy.on_failure =
            self.text("on_failure").and_then(|text| failure_policy(text).ok()).unwrap_or_default();
        policy.on_finish = self.text("on_finish").and_then(|text| text.parse().ok()).unwrap_or_default();
        policy.moves_max = self.count("moves_max").unwrap_or(policy.moves_max);
        policy.kept_min = self.count("kept_min").unwrap_or(policy.kept_min);
        policy.balance_permille = self.text("balance").and_then(factor).unwrap_or(policy.balance_permille);
        policy.zones = self.text("zones").and_then(zones).unwrap_or(policy.zones);
        policy
    }
}

/// What a setting amounts to in a configuration, for those that follow from others.
fn effective(config: &Config, key: &str) -> Option<String> {
    let backoff = |backoff: &Backoff, which: &str| match backoff {
        Backoff::Doubling { first, .. } if which == "first" => Some(span::show(*first)),
        Backoff::Doubling { max, .. } => Some(span::show(*max)),
        _ => None,
    };
    let span = match key {
        "ttl" => config.ttl,
        "ttl_max" => config.ttl_max,
        "renew_every" => config.renew_every,
        "try_timeout" => config.try_timeout,
        "margin" => config.margin,
        "kill_budget" => config.kill_budget,
        "list_every" => config.list_every,
        "debounce" => config.debounce,
        "takeover_delay" => config.takeover_delay,
        "gather" => config.gather_for(),
        "recover_window" => config.recover_window,
        "acquire_retry_interval" => config.acquire_retry_interval,
        "acquire_retry_window" => config.acquire_retry_window,
        "healthy_after" => config.healthy_after,
        "retired_kept" => config.retired_kept,
        "retry_first" | "restart_first" | "retry_max" | "restart_max" => {
            let (which, part) = key.split_once('_')?;
            return backoff(if which == "retry" { &config.retry } else { &config.restart }, part);
        }
        "weight" => return Some(config.weight.to_string()),
        "drift_permille" => return Some(config.drift_permille.to_string()),
        "vanish_freeze_permille" => return Some(config.vanish_freeze_permille.to_string()),
        "give_up_at_once" => return Some(config.give_up_at_once.to_string()),
        _ => return None,
    };
    Some(span::show(span))
}

impl Settings {
    /// What each setting amounts to on a store with these facts, by name; safe or not.
    pub fn effective(&self, facts: &Facts) -> BTreeMap<&'static str, String> {
        let config = self.assemble(facts, &mut Vec::new());
        SETTINGS.iter().filter_map(|setting| Some((setting.key, effective(&config, setting.key)?))).collect()
    }
}

/// The setting that a relation of the core is about: `groups[orders].policy.balance_permille` is `balance`.
fn setting_of(path: &str) -> &str {
    let last = path.rsplit('.').next().unwrap_or(path);
    let plain = last.strip_suffix("_ms").unwrap_or(last);
    match plain {
        "balance_permille" => "balance",
        "capacity" if path.starts_with("groups") => "group_capacity",
        "kept_min" if !path.starts_with("groups") => "node_kept_min",
        "retry" => "retry_max",
        "restart" => "restart_max",
        "namespace" => "new_namespace",
        _ if path.starts_with("groups[") && !path.contains('.') => "group",
        other => other,
    }
}

fn default_name() -> String {
    let host = rustix::system::uname();
    let host: String =
        host.nodename().to_string_lossy().chars().filter(|c| !c.is_control()).take(100).collect();
    format!("{}-{}", if host.is_empty() { "node" } else { &host }, std::process::id())
}
