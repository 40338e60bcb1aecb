//! Every setting, once: its name, what it takes, its default and why one would change it. Files, environment, flags,
//! `config show` and the reference in `docs/settings.md` are all made from this table.

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its name in a file: `renew_every`. The flag is `--renew-every`, the variable `LEASEHOLD_RENEW_EVERY`.
    pub(crate) key: &'static str,
    /// Which part of the program it belongs to.
    pub(crate) part: Part,
    /// What it takes.
    pub(crate) kind: Kind,
    /// What holds if nobody says anything, in words.
    pub(crate) default: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
}

/// Which part of the program a setting belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Which cluster: all commands have these.
    Where,
    /// This node.
    Node,
    /// The group that it serves.
    Group,
    /// What `run` does with its children.
    Run,
    /// The time budget.
    Time,
}

impl Part {
    /// The heading over its settings.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Part::Where => "Where",
            Part::Node => "This node",
            Part::Group => "The group",
            Part::Run => "Running commands",
            Part::Time => "Time budget",
        }
    }
}

/// What a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A store's URL. Passwords in it are never shown.
    Url,
    /// A name: of a namespace, node or group.
    Name,
    /// Any text.
    Text,
    /// `key=value,key=value`
    Labels,
    /// A whole number.
    Count,
    /// How many shards a numbered group has.
    Slots,
    /// A number such as 1.10, kept in thousandths.
    Factor,
    /// A number with a unit.
    Span,
    /// One of these words.
    Word(&'static [&'static str]),
    /// `ignore`, `spread` or `prefer:ZONE`
    Zones,
    /// `true` or `false`
    Switch,
}

impl Kind {
    /// What stands for a value in a usage line.
    pub(crate) fn placeholder(self) -> &'static str {
        match self {
            Kind::Url => "URL",
            Kind::Name => "NAME",
            Kind::Text => "TEXT",
            Kind::Labels => "KEY=VALUE,…",
            Kind::Count | Kind::Slots => "NUMBER",
            Kind::Factor => "FACTOR",
            Kind::Span => "DURATION",
            Kind::Word(_) => "WORD",
            Kind::Zones => "RULE",
            Kind::Switch => "BOOL",
        }
    }
}

macro_rules! settings {
    ($($part:ident { $($key:ident: $kind:expr, $default:literal, $help:literal;)* })*) => {
        /// All settings, in the order in which people read them.
        pub(crate) static SETTINGS: &[Setting] = &[$($(
            Setting { key: stringify!($key), part: Part::$part, kind: $kind, default: $default, help: $help },
        )*)*];
    };
}

settings! {
    Where {
        store: Kind::Url, "none: it must be given", "The store that all nodes share: local:PATH on one machine; etcd://, redis://, k8s://, s3://, gs:// or az:// for clusters; memory: for a try";
        namespace: Kind::Name, "default", "One independent cluster of nodes on the store";
    }
    Node {
        node: Kind::Name, "the host's name and the process id", "This node's stable name; no two live processes may share one";
        weight: Kind::Count, "100", "How much of the work this node takes, relative to the others; 0 takes nothing";
        capacity: Kind::Count, "no limit", "The most shards that this node holds in all";
        zone: Kind::Text, "none", "Where this node stands, for groups that look at zones; node:NAME asks Kubernetes for the zone of that machine";
        address: Kind::Text, "none", "Where callers reach this node: the answer of `locate`";
        labels: Kind::Labels, "none", "Free for you; shown by `nodes --json`";
        new_namespace: Kind::Switch, "false", "The namespace is known to be new: its creator need not wait for former holders";
        log: Kind::Word(&["error", "warn", "info", "debug"]), "info", "What is told on standard error";
    }
    Group {
        group: Kind::Name, "none: `run` needs it", "The group of shards";
        shards: Kind::Slots, "none: `run` needs it or names", "How many shards the group has (what the store says goes first)";
        names: Kind::Text, "none", "Named shards that this node can run, instead of numbered ones: a,b,c, or @FILE with one a line, read again when it changes";
        group_capacity: Kind::Count, "no limit", "The most shards of this group that this node holds";
        balance: Kind::Factor, "1.10", "No node gets more than this many times its fair share, rounded up";
        zones: Kind::Zones, "ignore", "How zones count: ignore, spread, or prefer:ZONE";
        cooldown: Kind::Span, "5s", "A shard that moved is not moved voluntarily again for this long";
        min_run: Kind::Span, "2s", "A shard that started is not moved voluntarily for this long";
        moves_max: Kind::Count, "0 (no limit)", "The most voluntary moves that a node begins per move_window";
        move_window: Kind::Span, "1s", "See moves_max";
        kept_min: Kind::Count, "0", "A node moves no shard away voluntarily when it would keep fewer than this";
        restart_grace: Kind::Span, "0s (off)", "How long the shards of a node that leaves to restart are kept for it";
        stop_timeout: Kind::Span, "30s", "How long a planned stop may take before the shard counts as stuck";
    }
    Run {
        kill_after: Kind::Span, "10s", "How long a child may take to end after SIGTERM; never longer than its lease";
        drain_within: Kind::Span, "30s", "How long SIGTERM or Ctrl-C hands shards over before what still runs is killed";
        output: Kind::Word(&["prefix", "raw"]), "prefix", "Whether lines of children are marked with their shard";
        isolate: Kind::Word(&["off", "pid", "auto"]), "off", "Whether each child gets a process namespace of its own, with which all that it started dies";
        restart_first: Kind::Span, "200ms", "The pause before a child that ended is started again; it doubles";
        restart_max: Kind::Span, "30s", "The longest such pause";
        quarantine_after: Kind::Count, "8", "After how many failures in a row a shard is quarantined";
        healthy_after: Kind::Span, "60s", "How long a child must run for its earlier failures to be forgotten";
    }
    Time {
        ttl: Kind::Span, "10s (the store's default)", "How long the session lives after a renewal; failover takes this and a little more";
        ttl_max: Kind::Span, "ttl", "The longest ttl of any node; a new incarnation of the store waits for it";
        drift_permille: Kind::Count, "10", "How far any machine's clock rate may be off, in thousandths; the same on all nodes";
        renew_every: Kind::Span, "ttl / 5", "How often the session is renewed";
        try_timeout: Kind::Span, "ttl / 10", "How long one store call may take before it is tried anew";
        margin: Kind::Span, "ttl / 5", "How long before the session ends all work is told to stop";
        kill_budget: Kind::Span, "250ms, at most ttl / 20", "How long before the session ends work that still runs is killed";
        list_every: Kind::Span, "ttl × 4 / 5", "How often everything is listed again, whatever the watch says";
        debounce: Kind::Span, "200ms, at most ttl / 20", "How long a change of the roster must rest before shards are planned anew";
        takeover_delay: Kind::Span, "ttl / 5", "How long each rank waits before it takes a shard that stays unowned";
        recover_window: Kind::Span, "ttl / 5", "How long a new session must be healthy after a detachment before it takes shards";
        retry_first: Kind::Span, "50ms", "The first pause after a store error; it doubles";
        retry_max: Kind::Span, "1s", "The longest pause after a store error";
        acquire_retry_interval: Kind::Span, "1s, at most ttl / 10", "How often a wanted shard is looked at if the watch is silent; 0s is off";
        acquire_retry_window: Kind::Span, "ttl", "For how long after a change of plan it is looked at; 0s is off";
        vanish_freeze_permille: Kind::Count, "334", "Voluntary moves freeze when this many thousandths of the nodes vanish at once";
        give_up_at_once: Kind::Count, "64", "How many shards a node gives up at once, in a drain or when the plan moves them";
        retired_kept: Kind::Span, "1h", "How long the records of nodes that are gone and of retired named shards are kept";
    }
}

/// The setting of that name.
pub(crate) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

impl Setting {
    /// `--renew-every`
    pub(crate) fn flag(&self) -> String {
        format!("--{}", self.key.replace('_', "-"))
    }

    /// `LEASEHOLD_RENEW_EVERY`
    pub(crate) fn variable(&self) -> String {
        format!("LEASEHOLD_{}", self.key.to_uppercase())
    }
}
