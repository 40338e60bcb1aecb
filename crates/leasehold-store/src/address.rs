use std::collections::BTreeMap;
use std::fmt;

use leasehold_core::store::{StoreError, StoreErrorKind};

use crate::Secret;

/// The parts of a store's address: `scheme://user:password@host:port,host:port/path?name=value&name=value`.
///
/// User, password, path, names and values may be percent-encoded. Reading it goes on after a mistake, so that
/// [`Address::finish`] can report all of them at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Which kind of store, in lower case.
    pub scheme: String,
    /// The user.
    pub user: Option<String>,
    /// The password: from the address, from the file that `password_file` names, or from the environment.
    pub password: Option<Secret>,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// The text between the hosts and the question mark, without the slashes at either end.
    pub path: String,
    params: BTreeMap<String, String>,
    known: Vec<&'static str>,
    problems: Vec<String>,
}

/// One host of a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host {
    /// A name or an IP address, the latter without brackets.
    pub name: String,
    /// The port, if one was given.
    pub port: Option<u16>,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]", self.name)?,
            false => f.write_str(&self.name)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Everything that is wrong with an address. It holds no secrets: it repeats only the scheme, because anything else may be
/// part of a password that was not encoded or is in the wrong place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct AddressError(pub Vec<String>);

impl From<AddressError> for StoreError {
    fn from(error: AddressError) -> Self {
        StoreError::new(StoreErrorKind::Refused, error.to_string())
    }
}

impl Address {
    /// The variable of the environment that may hold the password.
    pub const PASSWORD_VARIABLE: &str = "LEASEHOLD_STORE_PASSWORD";

    /// Takes an address apart. `environment` looks a variable up; the password comes from `LEASEHOLD_STORE_PASSWORD`
    /// if neither the address nor `password_file` has one.
    pub fn parse(text: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Self, AddressError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            let scheme = text.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| is_scheme(scheme));
            let scheme = scheme.unwrap_or("etcd");
            return Err(AddressError(vec![format!(
                "the address has no `://` after its scheme: write {scheme}://host:port/…"
            )]));
        };
        if !is_scheme(scheme) {
            return Err(AddressError(vec![
                "the address does not begin with a scheme, such as etcd://".into(),
            ]));
        }
        // If a password contains one of these unencoded, the rest of it would be taken for a host.
        if rest.find(['/', '?', '#']).is_some_and(|end| rest[end..].contains('@')) {
            return Err(AddressError(vec![
                "there is an `@` after a `/`, a `?` or a `#`: in the user and the password write these as %40, %2F, %3F \
                 and %23, and elsewhere write `@` as %40"
                    .into(),
            ]));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, places) = match authority.rsplit_once('@') {
            Some((login, places)) => (Some(login), places),
            None => (None, authority),
        };
        let mut address = Address {
            scheme: scheme.to_lowercase(),
            user: None,
            password: None,
            hosts: Vec::new(),
            path: String::new(),
            params: BTreeMap::new(),
            known: Vec::new(),
            problems: Vec::new(),
        };
        address.path = address.decoded(path.trim_matches('/'), "the path");
        address.take_login(login);
        address.hosts =
            places.split(',').filter(|place| !place.is_empty()).filter_map(|p| address.host(p)).collect();
        address.take_params(query);
        address.find_password(environment);
        Ok(address)
    }

    /// The value of a parameter. [`Address::finish`] reports parameters that were never asked for as mistakes.
    pub fn param(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        self.params.remove(name)
    }

    /// A parameter that reads as something; a value that does not is a mistake, described by `wanted`.
    pub fn parsed<T: std::str::FromStr>(&mut self, name: &'static str, wanted: &str) -> Option<T> {
        let text = self.param(name)?;
        let parsed = text.parse().ok();
        if parsed.is_none() {
            self.problems.push(format!("invalid value of `{name}`: expected {wanted}"));
        }
        parsed
    }

    /// Notes a mistake.
    pub fn wrong(&mut self, what: impl Into<String>) {
        self.problems.push(what.into());
    }

    /// Reports all mistakes, unknown parameters among them.
    pub fn finish(mut self) -> Result<(), AddressError> {
        if !self.params.is_empty() {
            // What does not look like a name may be a part of a password that was not encoded.
            let is_name = |name: &str, value: &str| {
                !value.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            };
            let named = |(name, value): (&String, &String)| is_name(name, value).then(|| format!("`{name}`"));
            let named: Option<Vec<String>> = self.params.iter().map(named).collect();
            let what = match (named.as_deref(), self.params.len()) {
                (Some([name]), _) => format!("unknown parameter {name}"),
                (Some(names), _) => format!("unknown parameters {}", names.join(", ")),
                (None, 1) => "one unknown parameter".to_owned(),
                (None, many) => format!("{many} unknown parameters"),
            };
            self.problems.push(format!("{what} (this store takes {})", self.known.join(", ")));
        }
        match self.problems.is_empty() {
            true => Ok(()),
            false => Err(AddressError(self.problems)),
        }
    }

    fn take_login(&mut self, login: Option<&str>) {
        let Some(login) = login else { return };
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (login, None),
        };
        let user = self.decoded(user, "the user");
        self.user = (!user.is_empty()).then_some(user);
        self.password = password.map(|password| Secret::new(self.decoded(password, "the password")));
    }

    fn take_params(&mut self, query: &str) {
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) =
                (self.decoded(name, "a parameter"), self.decoded(value, "a parameter's value"));
            if self.params.insert(name, value).is_some() {
                self.problems.push("a parameter is given twice".into());
            }
        }
    }

    fn find_password(&mut self, environment: impl Fn(&str) -> Option<String>) {
        if let Some(path) = self.param("password_file") {
            match Secret::from_file(&path) {
                Ok(_) if self.password.is_some() => {
                    self.problems
                        .push("there is a password in the address and a `password_file`: keep one".into());
                }
                Ok(secret) => self.password = Some(secret),
                Err(problem) => self.problems.push(format!("`password_file`: {problem}")),
            }
        }
        if self.password.is_none() {
            self.password = environment(Address::PASSWORD_VARIABLE).map(Secret::new);
        }
    }

    fn host(&mut self, text: &str) -> Option<Host> {
        let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, "")) => (name, None),
            Some((name, port)) => (name, port.strip_prefix(':')),
            None => match text.rsplit_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            },
        };
        if name.is_empty() {
            self.problems.push("there is a port without a host".into());
            return None;
        }
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port > 0 => Some(port),
            Some(_) => {
                // The host itself is there: only the port is wrong.
                self.problems.push("the port of a host must be a number from 1 to 65535".into());
                None
            }
        };
        Some(Host { name: name.to_owned(), port })
    }

    /// What is encoded is said without the text itself, which may be a secret.
    fn decoded(&mut self, text: &str, what: &str) -> String {
        percent_decoded(text).unwrap_or_else(|| {
            self.problems.push(format!(
                "{what} has a `%` that is not followed by two hexadecimal digits, or is not UTF-8"
            ));
            String::new()
        })
    }
}

/// Whether a text looks like the name of a kind of store, and not like a slip that may hold a secret.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let code = rest.get(..2).filter(|code| code.iter().all(u8::is_ascii_hexdigit))?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Address {
        Address::parse(text, |_| None).unwrap()
    }

    #[test]
    fn all_parts_are_found() {
        let mut address = parse("ETCD://us%40er:p%3Ass@a:1,[::1]:2,c/some/prefix/?ca=x%20y&n=3");
        assert_eq!(address.scheme, "etcd");
        assert_eq!(address.user.as_deref(), Some("us@er"));
        assert_eq!(address.password.as_ref().map(Secret::reveal), Some("p:ss"));
        assert_eq!(address.hosts.iter().map(Host::to_string).collect::<Vec<_>>(), ["a:1", "[::1]:2", "c"]);
        assert_eq!(address.path, "some/prefix");
        assert_eq!(address.param("ca").as_deref(), Some("x y"));
        assert_eq!(address.parsed::<u32>("n", "a number"), Some(3));
        address.finish().unwrap();
    }

    #[test]
    fn all_mistakes_are_told_at_once_and_without_the_secret() {
        let mut address = parse("redis://u:se%cret@:1,b:99999/0?n=three&x=1&x=2");
        assert_eq!(address.parsed::<u32>("n", "must be a number"), None);
        let error = address.finish().unwrap_err();
        assert_eq!(error.0.len(), 6, "{error}");
        assert!(!error.to_string().contains("cret"), "{error}");
    }

    #[test]
    fn a_host_whose_port_is_wrong_is_still_a_host() {
        let address = parse("redis://a:99999/0");
        assert_eq!(address.hosts, [Host { name: "a".into(), port: None }]);
        assert_eq!(address.finish().unwrap_err().0.len(), 1);
    }

    #[test]
    fn a_password_that_is_not_encoded_is_not_repeated() {
        for text in ["redis://u:se@kr?et@h", "etcd://u:p@ss?word@h", "redis://u:a/b@h", "redis://u:a?b#c@h"] {
            let error = Address::parse(text, |_| None).unwrap_err().to_string();
            assert!(error.contains("%40"), "{error}");
        }
        let address = parse("redis://u:se@k:r%25et@h");
        assert_eq!(address.password.as_ref().map(Secret::reveal), Some("se@k:r%et"));
        assert_eq!(address.hosts[0].name, "h");
        // The host was forgotten.
        let error = parse("redis://u:hush?more&x=y&x=z&password_file=tail").finish().unwrap_err().to_string();
        for part in ["hush", "more", "x=", "tail"] {
            assert!(!error.contains(part), "{part} in {error}");
        }
    }

    #[test]
    fn a_password_comes_from_a_file_or_the_environment() {
        let file = std::env::temp_dir().join(format!("leasehold-address-{}", std::process::id()));
        std::fs::write(&file, "hush\n").unwrap();
        let address = parse(&format!("etcd://u@h?password_file={}", file.display()));
        assert_eq!(address.password.as_ref().map(Secret::reveal), Some("hush"));
        std::fs::remove_file(&file).unwrap();
        let address =
            Address::parse("etcd://u@h", |name| (name == "LEASEHOLD_STORE_PASSWORD").then(|| "env".into()));
        assert_eq!(address.unwrap().password.as_ref().map(Secret::reveal), Some("env"));
        assert_eq!(format!("{:?}", Secret::new("hush")), "***");
    }
}
