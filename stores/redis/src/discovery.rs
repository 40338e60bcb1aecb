//! Finds the master: the only server, the one that the sentinels name, or the one that has the namespace's slot.

use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};

use crate::error::RedisError;
use crate::options::{Login, Options, ServerAddress, Setup};
use crate::resp::{Command, Value};
use crate::script;
use crate::socket::{Socket, within};

/// How many redirects of a cluster are followed.
const HOPS_MAX: usize = 5;
/// How long to wait for the other sentinels once one has answered: a newer answer counts more.
const SENTINELS_MORE_FOR: Duration = Duration::from_millis(200);

/// A connection to the master, and the names that it gave to our scripts.
pub(crate) struct Master {
    pub(crate) socket: Socket,
    pub(crate) scripts: Vec<String>,
}

/// Connects to the master. `known` are servers that were named by others before, best first.
pub(crate) async fn master(options: &Options, known: &[ServerAddress]) -> Result<Master, RedisError> {
    match &options.setup {
        Setup::Plain => first_of(options, &options.spots).await,
        Setup::Cluster => {
            let mut spots = known.to_vec();
            spots.extend(options.spots.iter().filter(|spot| !known.contains(spot)).cloned());
            first_of(options, &spots).await
        }
        Setup::Sentinel { master, login } => {
            let spot = ask_sentinels(options, master, login).await?;
            reach(options, &spot).await
        }
    }
}

/// Tries all at once; the first that is, or leads to, the master wins.
async fn first_of(options: &Options, spots: &[ServerAddress]) -> Result<Master, RedisError> {
    let mut tries: FuturesUnordered<_> = spots.iter().map(|spot| reach(options, spot)).collect();
    let mut errors = Vec::new();
    while let Some(tried) = tries.next().await {
        match tried {
            Ok(master) => return Ok(master),
            Err(error) => errors.push(error),
        }
    }
    Err(worst(errors))
}

/// The error if no server could be used. One that needs an operator comes first.
fn worst(mut errors: Vec<RedisError>) -> RedisError {
    let acts = |error: &RedisError| {
        matches!(
            error,
            RedisError::Refused(_) | RedisError::Login(_) | RedisError::Tls(_) | RedisError::Busy(_)
        )
    };
    match errors.iter().position(acts) {
        Some(at) => errors.swap_remove(at),
        None => {
            errors.pop().unwrap_or_else(|| RedisError::Unreachable("the address names no server.".into()))
        }
    }
}

/// Connects to a server and follows its redirects.
async fn reach(options: &Options, spot: &ServerAddress) -> Result<Master, RedisError> {
    let mut spot = spot.clone();
    for _ in 0..HOPS_MAX {
        let what = format!("{spot} did not accept the connection");
        match within(options.timeout / 2, &what, enter(options, &spot)).await {
            Err(RedisError::NotMaster(Some(next), _)) if matches!(options.setup, Setup::Cluster) => {
                spot = next
            }
            other => return other,
        }
    }
    Err(RedisError::Unreachable(format!("{spot}: the cluster redirects in a loop.")))
}

async fn enter(options: &Options, spot: &ServerAddress) -> Result<Master, RedisError> {
    let mut socket = Socket::open(spot, options.tls.as_ref(), &options.login, options.handshake()).await?;
    let mut commands = vec![
        Command::new(["CLIENT", "SETNAME", "leasehold"]),
        Command::new(["INFO", "server"]),
        Command::new(["INFO", "memory"]),
        Command::new(["INFO", "replication"]),
        Command::new(["EXISTS", &options.key("store")]),
    ];
    let questions = commands.len();
    commands.extend(script::load_all());
    let mut answers = socket.ask(&commands).await?.into_iter();
    // The name is for people who read CLIENT LIST; it works without, if we may not set it.
    answers.next();
    let mut said = Vec::with_capacity(questions);
    for answer in answers.by_ref().take(questions - 1) {
        match answer {
            Value::Error(error) => return Err(misled(options, RedisError::said(&error, spot))),
            other => said.push(other.text().unwrap_or_default().to_owned()),
        }
        if let [server] = &said[..] {
            refuse_other_modes(options, server, spot)?;
        }
    }
    refuse_eviction(&said[1], spot)?;
    if field(&said[2], "role") != Some("master") {
        return Err(RedisError::NotMaster(None, format!("{spot} is a replica, not the master.")));
    }
    let names = answers.map(|answer| match answer {
        Value::Error(error) => Err(RedisError::said(&error, spot)),
        other => Ok(other.text().unwrap_or_default().to_owned()),
    });
    let scripts = names.collect::<Result<Vec<_>, _>>()?;
    Ok(Master { socket, scripts })
}

/// A redirect of a cluster, for an address that names a single server.
fn misled(options: &Options, error: RedisError) -> RedisError {
    match error {
        RedisError::NotMaster(Some(_), said) if !matches!(options.setup, Setup::Cluster) => {
            RedisError::Refused(format!("{said} The server is part of a cluster: write redis+cluster://…"))
        }
        other => other,
    }
}

/// Compares what a server says that it is with what the address says.
fn refuse_other_modes(options: &Options, server: &str, spot: &ServerAddress) -> Result<(), RedisError> {
    let mode = ["redis_mode", "server_mode"].into_iter().find_map(|name| field(server, name));
    let wrong = match (&options.setup, mode) {
        (_, Some("sentinel")) => {
            "is a sentinel: write redis+sentinel://…, or give the address of a server that it monitors"
        }
        (Setup::Cluster, Some("standalone")) => "is a single server, not part of a cluster: write redis://…",
        _ => return Ok(()),
    };
    Err(RedisError::Refused(format!("{spot} {wrong}.")))
}

/// Refuses a server that may evict keys which have no expiry: it would evict ownership.
pub(crate) fn refuse_eviction(memory: &str, spot: &ServerAddress) -> Result<(), RedisError> {
    let limited = field(memory, "maxmemory").is_some_and(|bytes| bytes != "0");
    let policy = field(memory, "maxmemory_policy").unwrap_or("noeviction");
    match limited && policy.starts_with("allkeys") {
        true => Err(RedisError::Refused(format!(
            "{spot} has maxmemory-policy {policy}: it would evict records of ownership when its memory is full. Set \
             maxmemory-policy to noeviction, or to one that begins with volatile, or use another server."
        ))),
        false => Ok(()),
    }
}

/// One line of what INFO says.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|connection| connection.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// The master that the sentinels name. If they disagree, the one of the latest failover counts.
async fn ask_sentinels(options: &Options, master: &str, login: &Login) -> Result<ServerAddress, RedisError> {
    let ask = |spot: &ServerAddress| {
        let spot = spot.clone();
        async move {
            let what = format!("sentinel {spot} did not answer");
            within(options.timeout / 2, &what, ask_sentinel(options, &spot, master, login)).await
        }
    };
    let mut tries: FuturesUnordered<_> = options.spots.iter().map(ask).collect();
    let (mut best, mut errors): (Option<(u64, ServerAddress)>, _) = (None, Vec::new());
    loop {
        let next = match best {
            None => tries.next().await,
            Some(_) => tokio::time::timeout(SENTINELS_MORE_FOR, tries.next()).await.ok().flatten(),
        };
        match next {
            Some(Ok(found)) if best.as_ref().is_none_or(|(epoch, _)| found.0 > *epoch) => best = Some(found),
            Some(Ok(_)) => {}
            Some(Err(error)) => errors.push(error),
            None => break,
        }
    }
    best.map(|(_, spot)| spot).ok_or_else(|| worst(errors))
}

/// A sentinel has a login of its own, which is not the one in front of the hosts.
fn of_sentinels(error: RedisError) -> RedisError {
    match error {
        RedisError::Login(what) => RedisError::Refused(format!(
            "sentinel {what} Check `sentinel_user` and `sentinel_password` (or `sentinel_password_file`): the login in \
             front of the hosts is for the servers only."
        )),
        other => other,
    }
}

/// While a failover is under way a sentinel already gives the new address, but still describes the old master: so it is
/// asked for the address, and for the description only because that counts the failovers.
async fn ask_sentinel(
    options: &Options,
    spot: &ServerAddress,
    master: &str,
    login: &Login,
) -> Result<(u64, ServerAddress), RedisError> {
    let opened = Socket::open(spot, options.tls.as_ref(), login, options.handshake()).await;
    let mut socket = opened.map_err(of_sentinels)?;
    let commands = [
        Command::new(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master]),
        Command::new(["SENTINEL", "MASTER", master]),
    ];
    let mut answers = socket.ask(&commands).await?.into_iter();
    let address = match answers.next() {
        Some(Value::Error(error)) if error.contains("unknown command") => {
            return Err(RedisError::Refused(format!(
                "{spot} is not a sentinel: name the sentinels (usually at port 26379), or write the address of a single \
                 server as redis://…"
            )));
        }
        Some(Value::Error(error)) => return Err(of_sentinels(RedisError::said(&error, spot))),
        Some(Value::List(address)) => address,
        _ => {
            return Err(RedisError::Refused(format!(
                "sentinel {spot} does not know the master {master:?}: give the name that it monitors with `master=`."
            )));
        }
    };
    let described = answers.next().and_then(Value::list).unwrap_or_default();
    let epoch = described.chunks_exact(2).find(|pair| pair[0].text() == Some("config-epoch"));
    let epoch = epoch.and_then(|pair| u64::try_from(pair[1].number()?).ok()).unwrap_or(0);
    let found = || {
        let port = u16::try_from(address.get(1)?.number()?).ok()?;
        Some((epoch, ServerAddress { host: address.first()?.text()?.to_owned(), port }))
    };
    found().ok_or_else(|| {
        RedisError::Damaged(format!("sentinel {spot} did not return the address of its master."))
    })
}
