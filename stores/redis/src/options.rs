//! The options in an address: where the servers are and how to talk to them.

use std::fmt;
use std::time::Duration;

use leasehold_store::{Address, AddressError, Secret};

use crate::tls::Tls;

/// One server's address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServerAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// The user and the database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) db: u32,
}

/// How the servers are set up.
#[derive(Clone, Debug)]
pub(crate) enum Setup {
    /// One server, or several of which one is the master.
    Plain,
    /// Sentinels know which server is the master.
    Sentinel {
        /// The name of the master that they monitor.
        master: String,
        login: Login,
    },
    /// A cluster, of which the master of one slot is needed.
    Cluster,
}

/// What a failover means if all clients waited for replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFailover {
    /// No confirmed write is lost: work goes on.
    Continue,
    /// The promoted replica may lack confirmed writes: all sessions restart.
    NewGeneration,
}

impl std::str::FromStr for AfterFailover {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "continue" => Ok(AfterFailover::Continue),
            "new-generation" => Ok(AfterFailover::NewGeneration),
            _ => Err(()),
        }
    }
}

/// Everything that an address says.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) setup: Setup,
    pub(crate) spots: Vec<ServerAddress>,
    pub(crate) tls: Option<Tls>,
    pub(crate) login: Login,
    pub(crate) namespace: String,
    /// Where in the namespace, if it is not the namespace itself.
    pub(crate) corner: Option<String>,
    /// How many replicas must have a write before it counts.
    pub(crate) wait: u32,
    /// How long they may take.
    pub(crate) wait_for: Duration,
    pub(crate) after_failover: AfterFailover,
    /// How long one call may take in all.
    pub(crate) timeout: Duration,
}

impl Options {
    /// Reads an address, and reports all its mistakes at once.
    pub(crate) fn parse(text: &str, namespace: &str) -> Result<Self, AddressError> {
        let mut address = Address::parse(text, |name| std::env::var(name).ok())?;
        // Commands open scratch namespaces beside the one in use, so what the address says never replaces a name.
        let parent = address.param("namespace");
        let namespace = parent.map_or(namespace.to_owned(), |parent| format!("{parent}/{namespace}"));
        check_namespace(&mut address, &namespace);
        let encrypted = address.scheme.starts_with("rediss");
        let setup = setup(&mut address);
        let tls = if encrypted { Tls::from(&mut address) } else { None };
        let login = login(&mut address, &setup);
        let spots = spots(&mut address, &setup);
        // Where there are replicas a failover is meant to happen, and only a write that they have survives it.
        let wait_default = u32::from(!matches!(setup, Setup::Plain));
        let wait = address.parsed("wait", "a number of replicas").unwrap_or(wait_default);
        let wait_for = millis(&mut address, "wait_for", 500);
        let after_failover = address.parsed("after_failover", "continue or new-generation");
        let after_failover = after_failover.unwrap_or(AfterFailover::Continue);
        let timeout = millis(&mut address, "timeout", 2000);
        if wait_for >= timeout {
            address.wrong(format!("`wait_for` ({wait_for:?}) must be shorter than `timeout` ({timeout:?})"));
        }
        address.finish()?;
        let corner = None;
        Ok(Options { setup, spots, tls, login, namespace, corner, wait, wait_for, after_failover, timeout })
    }

    /// On how many replicas a failover without loss may rely, as far as we are concerned.
    pub(crate) fn relies_on(&self) -> u32 {
        match self.after_failover {
            AfterFailover::Continue => self.wait,
            AfterFailover::NewGeneration => 0,
        }
    }

    /// How long the TLS handshake may take: less than the whole connection, so that its silence gets an error of its own.
    pub(crate) fn handshake(&self) -> Duration {
        self.timeout * 2 / 5
    }

    /// A key of the namespace. What is in braces decides the slot, so all of them are in one.
    pub(crate) fn key(&self, name: impl fmt::Display) -> String {
        match &self.corner {
            None => format!("{{{}}}:{name}", self.namespace),
            Some(corner) => format!("{{{}}}:{corner}:{name}", self.namespace),
        }
    }

    /// The same, but in a corner of the namespace for test writes, which needs no other rights than the namespace.
    pub(crate) fn in_corner(&self, corner: &str) -> Options {
        Options { corner: Some(corner.to_owned()), ..self.clone() }
    }
}

fn setup(address: &mut Address) -> Setup {
    match address.scheme.trim_start_matches("rediss").trim_start_matches("redis") {
        "" => Setup::Plain,
        "+cluster" => Setup::Cluster,
        "+sentinel" => {
            let master = address.param("master").unwrap_or_else(|| "mymaster".to_owned());
            let (user, mut password) =
                (address.param("sentinel_user"), address.param("sentinel_password").map(Secret::new));
            if let Some(path) = address.param("sentinel_password_file") {
                match Secret::from_file(&path) {
                    Ok(secret) => password = Some(secret),
                    Err(problem) => address.wrong(format!("`sentinel_password_file`: {problem}")),
                }
            }
            Setup::Sentinel { master, login: Login { user, password, db: 0 } }
        }
        _ => {
            address.wrong(format!(
                "unknown scheme `{}` (use redis, redis+sentinel, redis+cluster, and rediss… for TLS)",
                address.scheme
            ));
            Setup::Plain
        }
    }
}

fn login(address: &mut Address, setup: &Setup) -> Login {
    let path = address.path.clone();
    let db = if path.is_empty() { Ok(0) } else { path.parse() };
    let db = db.unwrap_or_else(|_| {
        address.wrong("the database must be a number: write redis://host:port/0");
        0
    });
    if db > 0 && matches!(setup, Setup::Cluster) {
        address.wrong("a cluster has database 0 only");
    }
    if address.user.is_some() && address.password.is_none() {
        address
            .wrong("the address has a user without a password: write user:password@, or use `password_file`");
    }
    Login { user: address.user.clone(), password: address.password.clone(), db }
}

fn spots(address: &mut Address, setup: &Setup) -> Vec<ServerAddress> {
    let usual = if matches!(setup, Setup::Sentinel { .. }) { 26379 } else { 6379 };
    if address.hosts.is_empty() {
        address.wrong(format!("the address names no host: write {}://host:{usual}", address.scheme));
    }
    let spot = |host: &leasehold_store::Host| ServerAddress {
        host: host.name.clone(),
        port: host.port.unwrap_or(usual),
    };
    address.hosts.iter().map(spot).collect()
}

fn millis(address: &mut Address, name: &'static str, usual: u64) -> Duration {
    let given = address.parsed(name, "a number of milliseconds, from 1 to 60000").unwrap_or(usual);
    if given == 0 || given > 60_000 {
        address.wrong(format!("invalid value of `{name}`: write a number of milliseconds, from 1 to 60000"));
    }
    Duration::from_millis(given)
}

fn check_namespace(address: &mut Address, namespace: &str) {
    // The error does not repeat the value: it may be the end of a password with a slash in it.
    if leasehold_store::check_namespace(namespace).is_err() {
        address.wrong("the namespace is empty, too long, or has a control character".to_owned());
    } else if namespace.contains(['{', '}']) {
        address.wrong(
            "the namespace contains a brace, which would put its keys into different slots of a cluster"
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read() {
        let options = Options::parse("redis://u:p%40@a:1,b/3?wait=2&timeout=900", "n").unwrap();
        assert_eq!(options.spots.iter().map(ServerAddress::to_string).collect::<Vec<_>>(), ["a:1", "b:6379"]);
        assert_eq!((options.login.user.as_deref(), options.login.db, options.wait), (Some("u"), 3, 2));
        assert_eq!(
            (options.timeout, options.key("node:x")),
            (Duration::from_millis(900), "{n}:node:x".to_owned())
        );
        let options = Options::parse("redis+sentinel://a,[::1]:7/?master=m&namespace=other", "n").unwrap();
        assert_eq!(
            options.spots.iter().map(ServerAddress::to_string).collect::<Vec<_>>(),
            ["a:26379", "[::1]:7"]
        );
        assert_eq!((options.wait, options.namespace.as_str()), (1, "other/n"));
        assert!(matches!(options.setup, Setup::Sentinel { ref master, .. } if master == "m"));
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let text = "redis+cluster://user@/5?wait=many&timeout=0&ca=x&typo=1&namespace=a%7Bb";
        let error = Options::parse(text, "n").unwrap_err();
        for part in ["brace", "database 0", "password", "host", "`wait`", "`timeout`", "`ca`, `typo`"] {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
        let error = Options::parse("rediss://h?ca=/nowhere&cert=x", "n").unwrap_err().to_string();
        assert!(error.contains("/nowhere"), "{error}");
    }
}
