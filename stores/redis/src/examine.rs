//! What `leasehold doctor` checks: common mistakes, the most harmful first.

use std::time::Duration;

use leasehold_store::Finding;

use crate::discovery::{field, refuse_eviction};
use crate::engine::Wait;
use crate::error::Written;
use crate::options::{AfterFailover, Options, Setup};
use crate::pipeline::Pipeline;
use crate::records::Records;
use crate::resp::{Command, Value};
use crate::script::{Call, Script};

/// Slower than this, a renewal has too few tries left.
const SLOW: Duration = Duration::from_millis(100);

/// What the server said of itself.
struct Said {
    server: String,
    clients: String,
    memory: String,
    persistence: String,
    replication: String,
    keyspace: String,
    /// Seconds since 1970, there and here.
    clocks: Option<(i64, i64)>,
    /// `None` if we may not ask.
    replicas_to_write: Option<u32>,
    /// When it writes snapshots: empty for never, `None` if we may not ask.
    snapshots: Option<String>,
    /// How many replicas all clients of the namespace have waited for, if anything was ever written.
    waited: Option<u32>,
    cluster: String,
    round_trips: Vec<Duration>,
}

/// Checks the configuration for common mistakes.
pub(crate) async fn examine(records: &Records) -> Vec<Finding> {
    let options = &records.connection.options;
    let opened = tokio::time::timeout(options.timeout, records.connection.pipeline()).await;
    let pipeline = match opened {
        Ok(Ok(pipeline)) => pipeline,
        Ok(Err(error)) => {
            let error = error.into_store_error(Written::Nothing);
            return vec![Finding::bad(
                error.to_string(),
                "Fix this first; nothing else can be checked until then.",
            )];
        }
        Err(_) => {
            let what = format!("no answer within {:?}", options.timeout);
            return vec![Finding::bad(
                what,
                "Check host, port and firewalls, and whether the server has stalled.",
            )];
        }
    };
    let Some(said) = ask(records, &pipeline).await else {
        return vec![Finding::bad(format!("{} stopped answering", pipeline.spot), "Check the server's log.")];
    };
    let mut findings = vec![identity(&said, &pipeline, options)];
    findings.push(speed(&said));
    findings.extend(secrecy(options));
    findings.extend(rights(records).await);
    findings.extend(memory(&said, &pipeline));
    findings.push(persistence(&said));
    findings.extend(replication(&said, options));
    findings.extend(agreement(&said, options));
    findings.extend(cluster(&said, options));
    findings.extend(clock(&said));
    findings.extend(clients(&said));
    findings.push(namespace(records, &said).await);
    findings
}

async fn ask(records: &Records, pipeline: &Pipeline) -> Option<Said> {
    let connection = &records.connection;
    let mut round_trips = Vec::new();
    for _ in 0..5 {
        let asked_at = boot_clock();
        connection.ask(pipeline, &[Command::new(["EXISTS", &connection.options.key("store")])]).await.ok()?;
        round_trips.push(boot_clock().saturating_sub(asked_at));
    }
    let mut commands: Vec<Command> =
        ["server", "clients", "memory", "persistence", "replication", "keyspace"]
            .map(|part| Command::new(["INFO", part]))
            .into();
    commands.push(Command::new(["TIME"]));
    commands.push(Command::new(["CONFIG", "GET", "min-replicas-to-write"]));
    commands.push(Command::new(["CONFIG", "GET", "save"]));
    commands.push(Command::new(["HGET", &connection.options.key("store"), "wait"]));
    commands.push(Command::new(["CLUSTER", "INFO"]));
    let mut answers = connection.ask(pipeline, &commands).await.ok()?.into_iter();
    let here = unix_seconds();
    let mut text = || answers.next().and_then(|answer| answer.text().map(str::to_owned)).unwrap_or_default();
    let (server, clients, memory) = (text(), text(), text());
    let (persistence, replication, keyspace) = (text(), text(), text());
    let there = answers.next().and_then(Value::list).and_then(|time| time.first()?.number());
    let mut setting =
        || answers.next().and_then(Value::list).and_then(|pair| Some(pair.get(1)?.text()?.to_owned()));
    let least = setting().and_then(|least| least.parse().ok());
    let snapshots = setting();
    let waited = answers.next().and_then(|answer| u32::try_from(answer.number()?).ok());
    let cluster = answers.next().and_then(|answer| answer.text().map(str::to_owned)).unwrap_or_default();
    Some(Said {
        server,
        clients,
        memory,
        persistence,
        replication,
        keyspace,
        clocks: there.map(|there| (there, here)),
        replicas_to_write: least,
        snapshots,
        waited,
        cluster,
        round_trips,
    })
}

fn identity(said: &Said, pipeline: &Pipeline, options: &Options) -> Finding {
    let (name, version) = match field(&said.server, "valkey_version") {
        Some(version) => ("Valkey", version),
        None => ("Redis", field(&said.server, "redis_version").unwrap_or("of unknown version")),
    };
    let how = match &options.setup {
        Setup::Plain => String::new(),
        Setup::Sentinel { master, .. } => format!(", the master {master:?} of the sentinels"),
        Setup::Cluster => ", the master of the namespace's slot".to_owned(),
    };
    Finding::good(format!("{name} {version} at {}, database {}{how}", pipeline.spot, options.login.db))
}

fn speed(said: &Said) -> Finding {
    let worst = said.round_trips.iter().max().copied().unwrap_or_default();
    let what = format!("the slowest of {} round trips took {worst:.1?}", said.round_trips.len());
    match worst > SLOW {
        true => Finding::doubtful(
            what,
            "Renewals need a fast server: look for slow commands (SLOWLOG GET) and for network latency.",
        ),
        false => Finding::good(what),
    }
}

fn secrecy(options: &Options) -> Option<Finding> {
    let near = |host: &str| host == "localhost" || host.starts_with("127.") || host == "::1";
    let far = options.spots.iter().any(|spot| !near(&spot.host));
    match (&options.tls, far) {
        (Some(_), _) => Some(Finding::good("the connection is encrypted")),
        (None, true) => Some(Finding::doubtful(
            "the connection is not encrypted",
            "Passwords and records cross the network unencrypted: use rediss:// on a shared network.",
        )),
        (None, false) => None,
    }
}

async fn rights(records: &Records) -> Option<Finding> {
    let call = Call::new(Script::Rights, vec![records.connection.options.key("store")]);
    let denied = match records.connection.call(&call, Wait::No).await {
        Ok(answer) => answer.list().unwrap_or_default(),
        Err((error, written)) => {
            let advice = "The user needs the rights that docs/redis.md names.";
            return Some(Finding::bad(error.into_store_error(written).to_string(), advice));
        }
    };
    let names: Vec<&str> = denied.iter().filter_map(Value::text).collect();
    match names.is_empty() {
        true => Some(Finding::good("the user may run all required commands")),
        false => Some(Finding::bad(
            format!("the user may not run {} on this namespace", names.join(", ")),
            "Give it the rights that docs/redis.md names.",
        )),
    }
}

fn memory(said: &Said, pipeline: &Pipeline) -> Option<Finding> {
    let number = |name| field(&said.memory, name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let (used, most) = (number("used_memory"), number("maxmemory"));
    let policy = field(&said.memory, "maxmemory_policy").unwrap_or("unknown");
    if let Err(error) = refuse_eviction(&said.memory, &pipeline.spot) {
        return Some(Finding::bad(
            error.into_store_error(Written::Nothing).message,
            "CONFIG SET maxmemory-policy noeviction",
        ));
    }
    let what = format!(
        "{} MiB of memory in use, maxmemory {} MiB, maxmemory-policy {policy}",
        used >> 20,
        most >> 20
    );
    if most > 0 && used > most / 10 * 9 {
        let advice = "When the memory is full, no new record can be created. Raise maxmemory, or free some.";
        return Some(Finding::doubtful(what, advice));
    }
    match policy.starts_with("allkeys") {
        true => Some(Finding::doubtful(
            what,
            "If maxmemory is set, Redis would evict records of ownership, and Leasehold refuses to work: use noeviction.",
        )),
        false => Some(Finding::good(what)),
    }
}

fn persistence(said: &Said) -> Finding {
    if field(&said.persistence, "rdb_last_bgsave_status") == Some("err") {
        let advice =
            "Redis refuses writes while it cannot save (stop-writes-on-bgsave-error): check its disk.";
        return Finding::bad("the last snapshot could not be written to disk", advice);
    }
    match field(&said.persistence, "aof_enabled") {
        Some("1") => Finding::good(
            "the append-only file is on; even so, every restart of the server restarts all nodes' sessions",
        ),
        _ => {
            let after = match said.snapshots.as_deref() {
                Some("") => "and it writes no snapshots: after a restart the namespace is empty",
                Some(_) => "but it writes snapshots: after a restart the namespace is as old as the last one",
                None => "after a restart the namespace is empty, or as old as the last snapshot",
            };
            Finding::doubtful(
                format!("the append-only file is off; {after}"),
                "This is safe: nodes stop, wait for a ttl and join again. Settings of operators since then (groups, pins, \
                 drains) are lost: `appendonly yes` keeps them.",
            )
        }
    }
}

/// Compares the stored `wait` of the namespace with that of this address.
fn agreement(said: &Said, options: &Options) -> Option<Finding> {
    let (waited, relied) = (said.waited?, options.relies_on());
    if waited >= relied {
        return None;
    }
    let (key, failover) = (
        options.key("store"),
        match waited {
            0 => "every failover counts as a loss of data and restarts all nodes' sessions",
            _ => "failovers rely on that number only",
        },
    );
    Some(Finding::doubtful(
        format!(
            "this address says wait={relied}, but another client has written with wait={waited}: {failover}"
        ),
        format!(
            "Give all nodes and commands the same address; then raise the stored value once: HSET {key} wait {relied}"
        ),
    ))
}

fn replication(said: &Said, options: &Options) -> Vec<Finding> {
    let count = |name| field(&said.replication, name).and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    let (replicas, wait) = (count("connected_slaves"), options.wait);
    let mut findings = Vec::new();
    let what = format!("{replicas} replicas are connected, and a write counts once {wait} of them have it");
    findings.push(if wait > replicas {
        Finding::bad(what, "No write can be confirmed: bring the replicas back, or lower `wait` (see docs/redis.md).")
    } else if replicas > 0 && wait == 0 {
        Finding::doubtful(
            what,
            "A failover stops all work for a ttl, and a master that is cut off still confirms writes: set `wait`.",
        )
    } else if wait > 0 && (wait + 1) * 2 <= replicas + 1 {
        let least = replicas.div_ceil(2);
        Finding::bad(what, format!("Both sides of a network partition could confirm writes: `wait={least}` is the smallest majority."))
    } else if wait > 0 && wait < replicas && options.after_failover == AfterFailover::Continue {
        Finding::doubtful(
            what,
            "A lagging replica may be promoted if the master and the confirming replica fail together. \
             `after_failover=new-generation` makes that harmless, but every failover then stops all work for a ttl (see \
             docs/redis.md).",
        )
    } else if wait > 0 && wait < replicas {
        Finding::good(format!("{what}; every failover restarts all nodes' sessions"))
    } else if wait > 0 {
        Finding::doubtful(what, "If one replica fails, no write is confirmed: add a replica to tolerate that.")
    } else {
        Finding::good(what)
    });
    if replicas > 0 && wait == 0 {
        findings.push(match said.replicas_to_write {
            Some(0) => Finding::doubtful(
                "min-replicas-to-write is 0",
                "Set it to 1 so that a master that is cut off from its replicas stops accepting writes.",
            ),
            Some(least) => Finding::good(format!("min-replicas-to-write is {least}")),
            None => Finding::doubtful(
                "min-replicas-to-write is unknown",
                "Allow CONFIG GET, or check it yourself.",
            ),
        });
    }
    if replicas == 0 && field(&said.replication, "repl_backlog_active") == Some("1") {
        findings.push(Finding::doubtful(
            "there were replicas, and now there are none",
            "After repl-backlog-ttl (an hour) without one, Redis changes its replication id, which restarts all nodes' sessions once.",
        ));
    }
    findings
}

fn cluster(said: &Said, options: &Options) -> Option<Finding> {
    if !matches!(options.setup, Setup::Cluster) {
        return None;
    }
    match field(&said.cluster, "cluster_state") {
        Some("ok") => Some(Finding::good("the cluster serves all slots")),
        Some(state) => {
            let slots = field(&said.cluster, "cluster_slots_ok").unwrap_or("?");
            let what = format!("the cluster's state is {state}, with {slots} of 16384 slots served");
            Some(Finding::bad(what, "Run CLUSTER NODES."))
        }
        None => Some(Finding::doubtful(
            "the state of the cluster is unknown",
            "Allow CLUSTER INFO, or check it yourself.",
        )),
    }
}

fn clock(said: &Said) -> Option<Finding> {
    let (there, here) = said.clocks?;
    let apart = (there - here).unsigned_abs();
    let what = format!("the server's clock and ours differ by {apart} s");
    match apart > 5 {
        true => Some(Finding::doubtful(
            what,
            "Ownership does not depend on it, but registered keys expire by it.",
        )),
        false => Some(Finding::good(what)),
    }
}

fn clients(said: &Said) -> Option<Finding> {
    let count = |name| field(&said.clients, name)?.parse::<u64>().ok();
    let (now, most) = (count("connected_clients")?, count("maxclients")?);
    let what = format!("{now} of at most {most} clients are connected (a node uses three connections)");
    match now > most / 10 * 8 {
        true => Some(Finding::doubtful(what, "Raise maxclients before the server rejects nodes.")),
        false => Some(Finding::good(what)),
    }
}

async fn namespace(records: &Records, said: &Said) -> Finding {
    let options = &records.connection.options;
    match records.list().await {
        Err(error) => Finding::bad(error.to_string(), "Nodes would get the same error."),
        Ok(listing)
            if listing.entries.is_empty()
                && said.keyspace.lines().filter(|l| l.starts_with("db")).count() > 1 =>
        {
            Finding::doubtful(
                format!(
                    "the namespace {:?} is empty in database {}, and other databases are in use",
                    options.namespace, options.login.db
                ),
                "Is it the right database? It is the number after the port: redis://host:6379/0",
            )
        }
        Ok(listing) => Finding::good(format!(
            "the namespace {:?} has {} records, {} foreign keys, and the generation {}",
            options.namespace,
            listing.entries.len(),
            listing.foreign.len(),
            listing.generation
        )),
    }
}

fn boot_clock() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// For display only.
fn unix_seconds() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
}
