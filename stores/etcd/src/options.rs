use leasehold_store::{Address, AddressError, Host, Secret};

use crate::tls::Tls;

/// The port if the address names none.
const PORT: u16 = 2379;
/// The prefix if the address names none.
const PREFIX: &str = "leasehold";
const PREFIX_BYTES_MAX: usize = 200;

/// Where etcd is and how to talk to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The members, or some of them. If one does not answer, the next call goes to another.
    pub hosts: Vec<Host>,
    /// What all keys begin with, without the slashes at either end.
    pub prefix: String,
    /// The user, if etcd's auth is enabled and no client certificate identifies us.
    pub login: Option<Login>,
    /// How to encrypt; `None` for no encryption.
    pub tls: Option<Tls>,
}

/// A user of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: Secret,
}

impl Options {
    /// Members without TLS and without auth, under the usual prefix.
    pub fn new(hosts: impl IntoIterator<Item = Host>) -> Self {
        Options { hosts: hosts.into_iter().collect(), prefix: PREFIX.to_owned(), login: None, tls: None }
    }

    /// Reads `etcd://[user[:password]@]host:port[,host:port…][/prefix][?…]`, and reports all mistakes at once.
    ///
    /// The parameters are `tls` (`on` or `off`), `ca`, `cert`, `key` and `server_name` (any of which enable it), and
    /// `password_file`. `environment` looks a variable up.
    pub fn parse(address: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Self, AddressError> {
        let mut address = Address::parse(address, environment)?;
        if address.scheme != "etcd" {
            address.wrong(format!("the scheme is {:?}, not etcd", address.scheme));
        }
        if address.hosts.is_empty() {
            address.wrong("the address names no host: write etcd://host:2379/prefix");
        }
        let tls = Tls::of_address(&mut address);
        let login = login(&mut address);
        let prefix = match address.path.as_str() {
            "" => PREFIX.to_owned(),
            path => path.to_owned(),
        };
        if prefix.len() > PREFIX_BYTES_MAX || prefix.chars().any(char::is_control) {
            address.wrong(format!(
                "the prefix must have at most {PREFIX_BYTES_MAX} bytes and no control characters"
            ));
        }
        let hosts = std::mem::take(&mut address.hosts);
        address.finish()?;
        Ok(Options { hosts, prefix, login, tls })
    }

    /// The members as `host:port`.
    pub(crate) fn names(&self) -> Vec<String> {
        self.hosts.iter().map(|host| with_port(host).to_string()).collect()
    }
}

pub(crate) fn with_port(host: &Host) -> Host {
    Host { name: host.name.clone(), port: Some(host.port.unwrap_or(PORT)) }
}

fn login(address: &mut Address) -> Option<Login> {
    match (address.user.take(), address.password.take()) {
        (Some(user), Some(password)) => Some(Login { user, password }),
        (Some(_), None) => {
            address.wrong(
                "the address has a user without a password: write user:password@, use password_file=…, or set \
                 LEASEHOLD_STORE_PASSWORD",
            );
            None
        }
        // The environment may hold a password for another store.
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, AddressError> {
        Options::parse(text, |_| None)
    }

    #[test]
    fn an_address_says_where_and_how() {
        let options = parse("etcd://a,b:1,[::1]").unwrap();
        assert_eq!(options.names(), ["a:2379", "b:1", "[::1]:2379"]);
        assert_eq!((options.prefix.as_str(), options.login, options.tls), ("leasehold", None, None));
        let options = parse("etcd://me:p%40ss@a/team/app?server_name=etcd.internal").unwrap();
        assert_eq!(options.prefix, "team/app");
        assert_eq!(options.login.as_ref().map(|login| login.password.reveal()), Some("p@ss"));
        assert_eq!(options.tls.unwrap().server_name.as_deref(), Some("etcd.internal"));
        assert!(parse("etcd://a?tls=on").unwrap().tls.is_some());
        assert!(parse("etcd://a?tls=off").unwrap().tls.is_none());
    }

    #[test]
    fn all_mistakes_are_reported_at_once_and_without_the_secret() {
        let error = parse("etcd://:hush@/x?tls=maybe&cert=/nowhere/c.pem&frob=1").unwrap_err();
        let text = error.to_string();
        for wanted in ["no host", "`tls`", "`key`", "`frob`"] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
        assert!(!text.contains("hush"), "{text}");
        let error = parse("etcd://me@a?ca=/nowhere/ca.pem&tls=off").unwrap_err().to_string();
        assert!(error.contains("without a password") && error.contains("tls=off"), "{error}");
        assert!(parse("etcd://a?ca=/nowhere/ca.pem").unwrap_err().to_string().contains("/nowhere/ca.pem"));
    }
}
