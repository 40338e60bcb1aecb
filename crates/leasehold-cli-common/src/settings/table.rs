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
    /// The default, in words.
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
    /// What it logs.
    Log,
    /// The time budget.
    Time,
}

impl Part {
    /// The heading over its settings.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Part::Where => "Cluster",
            Part::Node => "This node",
            Part::Group => "The group",
            Part::Run => "Running commands",
            Part::Log => "Log",
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
    /// `retry`, `quarantine:N` or `half-open:N:PAUSE`
    Failures,
    /// Names of groups, or patterns: `orders-*,billing`
    Patterns,
    /// `true` or `false`
    Switch,
    /// `HOST:PORT` or `unix:PATH`
    Listen,
    /// A secret. It has no flag, because every user of a machine sees the arguments of its processes, and is never shown.
    Secret,
}

impl Kind {
    /// The placeholder of a value in a usage line.
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
            Kind::Failures => "POLICY",
            Kind::Patterns => "PATTERN,…",
            Kind::Switch => "BOOL",
            Kind::Listen => "ADDRESS",
            Kind::Secret => "SECRET",
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
        store: Kind::Url, "none (required)", "The store that all nodes share: local:PATH on one machine; etcd://, redis://, k8s://, s3://, gs:// or az:// for clusters; memory: for a first try";
        namespace: Kind::Name, "default", "One independent cluster of nodes on the store";
    }
    Node {
        node: Kind::Name, "host name and process id", "Stable name of this node; each live process needs its own";
        weight: Kind::Count, "100", "Share of the shards that this node takes, relative to other nodes; 0 takes none";
        capacity: Kind::Count, "no limit", "Maximum number of shards on this node, over all groups";
        node_kept_min: Kind::Count, "0", "Minimum number of shards that this node keeps in voluntary moves, over all groups";
        zone: Kind::Text, "none", "Zone of this node, for groups with a zone rule; node:NAME looks up the zone of that Kubernetes node";
        address: Kind::Text, "none", "Address where callers reach this node; `locate` returns it";
        labels: Kind::Labels, "none", "Labels for your own use; shown by `nodes --json`";
        new_namespace: Kind::Switch, "false", "Start without waiting for earlier holders; only safe if the namespace was never used";
    }
    Group {
        group: Kind::Name, "none (required by `run`)", "Group that this node serves";
        serve: Kind::Patterns, "none", "Groups in the store that this node serves as they come and go, by name or pattern, for example orders-*,billing";
        shards: Kind::Slots, "none (`run` needs shards or names)", "Number of shards in the group; the value in the store overrides this";
        names: Kind::Text, "none", "Named shards that this node can run, instead of numbered ones: a,b,c or @FILE with one name per line, which is reloaded when it changes";
        group_capacity: Kind::Count, "no limit", "Maximum number of shards of this group on this node";
        balance: Kind::Factor, "1.10", "Maximum load of a node as a multiple of its fair share, rounded up";
        zones: Kind::Zones, "ignore", "Zone rule: ignore, spread, or prefer:ZONE";
        cooldown: Kind::Span, "5s", "Minimum time between two voluntary moves of a shard";
        min_run: Kind::Span, "2s", "Minimum run time of a shard before a voluntary move";
        moves_max: Kind::Count, "0 (no limit)", "Maximum number of voluntary moves that a node starts per move_window";
        move_window: Kind::Span, "1s", "Time window for moves_max";
        kept_min: Kind::Count, "0", "Minimum number of shards of the group that a node keeps in voluntary moves";
        restart_grace: Kind::Span, "0s (off)", "How long shards stay reserved for a node that left to restart";
        stop_timeout: Kind::Span, "30s", "Time limit for a planned stop; after that the shard is reported as stuck";
        on_failure: Kind::Failures, "retry", "What happens to a shard whose work keeps failing: retry, quarantine:FAILURES, or half-open:FAILURES:PAUSE";
        on_finish: Kind::Word(&["restart", "once", "done"]), "restart", "What happens to a shard whose work ends without an error: restart it, run it once per node, or never run it again";
    }
    Run {
        health_command: Kind::Text, "none", "Shell command that tells the health of this node: exit code 0 is healthy; otherwise it takes no new shards and hands over those that others can take";
        weight_command: Kind::Text, "none", "Shell command that prints the weight of this node as a whole number";
        gate_command: Kind::Text, "none", "Shell command that is asked before this node takes a shard, which is in LEASEHOLD_GROUP and LEASEHOLD_SHARD: exit code 0 takes it, any other leaves it to another node";
        hook_every: Kind::Span, "10s", "Interval between two runs of health_command and of weight_command";
        hook_timeout: Kind::Span, "5s", "Time limit for each run of health_command, weight_command and gate_command; then it is killed and counts as failed";
        shadow: Kind::Switch, "false", "Take part in the namespace NAME-shadow beside the real one, start no command, and log and count what would have been started, stopped and moved";
        kill_after: Kind::Span, "10s", "Time from SIGTERM to SIGKILL for a child; never longer than its lease";
        drain_within: Kind::Span, "30s", "Time limit for handing over shards after SIGTERM or Ctrl-C; then children are killed";
        output: Kind::Word(&["prefix", "raw"]), "prefix", "Whether to prefix each line of a child with its shard";
        isolate: Kind::Word(&["off", "pid", "auto"]), "off", "Whether each child gets its own PID namespace, so that its descendants are killed with it";
        listen: Kind::Listen, "off", "Serve /metrics, /livez, /readyz and /status over HTTP: 127.0.0.1:9464 or unix:PATH (docs/monitoring.md)";
        listen_token: Kind::Secret, "none", "Token that readers must send; required unless only this machine can reach `listen`";
        expose_status_without_token: Kind::Switch, "false", "Let everyone who can reach `listen` read the metrics and the status of all nodes";
        restart_first: Kind::Span, "200ms", "First pause before a child is restarted; it doubles each time";
        restart_max: Kind::Span, "30s", "Longest pause before a child is restarted";
        healthy_after: Kind::Span, "60s", "Run time after which earlier failures of a child no longer count";
    }
    Log {
        log: Kind::Word(&["error", "warn", "info", "debug"]), "info", "Log level on standard error";
        log_format: Kind::Word(&["text", "logfmt", "json"]), "text", "Log format: text for people, logfmt or json for programs";
    }
    Time {
        ttl: Kind::Span, "10s (the store's default)", "How long a session lives after its last renewal; failover takes slightly longer";
        ttl_max: Kind::Span, "ttl", "Longest ttl of any node; a new or emptied store stays unused for this long";
        drift_permille: Kind::Count, "10", "Maximum clock rate error of a machine, in thousandths; must be equal on all nodes";
        renew_every: Kind::Span, "ttl / 5", "Interval between renewals of the session";
        try_timeout: Kind::Span, "ttl / 10", "Time limit of one store call; after that it is retried";
        margin: Kind::Span, "ttl / 5", "Time before the end of the session at which work is told to stop";
        kill_budget: Kind::Span, "250ms, at most ttl / 20", "Time before the end of the session at which running work is killed";
        list_every: Kind::Span, "ttl × 4 / 5", "Interval between full listings, in addition to the watch";
        debounce: Kind::Span, "200ms, at most ttl / 20", "Quiet period after a membership change before replanning";
        takeover_delay: Kind::Span, "ttl / 5", "How long each node in the ranking waits before it takes an unowned shard";
        gather: Kind::Span, "debounce × 2", "How long a node that starts while no shard is owned waits for others to start";
        recover_window: Kind::Span, "ttl / 5", "How long a new session must be healthy after a detach before it takes shards";
        retry_first: Kind::Span, "50ms", "First pause after a store error; it doubles each time";
        retry_max: Kind::Span, "1s", "Longest pause after a store error";
        acquire_retry_interval: Kind::Span, "1s, at most ttl / 10", "Polling interval for shards that are planned here but not free yet; 0s turns polling off";
        acquire_retry_window: Kind::Span, "ttl", "How long after a plan change to poll; 0s turns polling off";
        vanish_freeze_permille: Kind::Count, "334", "Freeze voluntary moves when this share of the nodes vanishes at once, in thousandths";
        give_up_at_once: Kind::Count, "64", "Maximum number of shards that a node hands over at the same time";
        retired_kept: Kind::Span, "1h", "How long to keep records of nodes that are gone and of retired named shards";
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

    /// Whether it has a flag.
    pub(crate) fn has_flag(&self) -> bool {
        self.kind != Kind::Secret
    }

    /// `LEASEHOLD_RENEW_EVERY`
    pub(crate) fn variable(&self) -> String {
        format!("LEASEHOLD_{}", self.key.to_uppercase())
    }
}
