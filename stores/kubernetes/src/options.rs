use std::path::PathBuf;

use leasehold_store::{Address, StoreError};

use crate::naming;

/// Where the Leases are, and how the API server is reached. [`Options::parse`] reads them from an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The Kubernetes namespace of the Leases; without one, that of the kubeconfig's context or the service account.
    pub kube_namespace: Option<String>,
    /// What the names of all Leases begin with. Stores with different prefixes see nothing of each other.
    pub prefix: String,
    /// A kubeconfig file; without one `KUBECONFIG`, `~/.kube/config`, or the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context to use.
    pub context: Option<String>,
    /// A host and port to connect to instead, which pass everything on to the API server.
    pub via: Option<String>,
    /// How many writes a second this process sends over time, renewals not counted.
    pub writes_per_second: u32,
    /// How many of them it may send at once.
    pub writes_burst: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            kube_namespace: None,
            prefix: "leasehold".to_owned(),
            kubeconfig: None,
            context: None,
            via: None,
            writes_per_second: 100,
            writes_burst: 200,
        }
    }
}

impl Options {
    /// Reads an address: `k8s://namespace?prefix=…&kubeconfig=…&context=…&via=…&writes_per_second=…&writes_burst=…`.
    pub fn parse(address: &str) -> Result<Self, StoreError> {
        let mut address = Address::parse(address, |_| None)?;
        let plain = Options::default();
        if address.user.is_some() || address.password.is_some() {
            address.wrong("this address takes no credentials: they come from the kubeconfig or the pod");
        }
        if address.hosts.len() > 1 || address.hosts.iter().any(|host| host.port.is_some()) {
            address
                .wrong("k8s:// takes a Kubernetes namespace, not a server: the kubeconfig names the server");
        }
        if !address.path.is_empty() {
            address.wrong("the address takes no path: write k8s://namespace?prefix=…");
        }
        let kube_namespace = address.hosts.first().map(|host| host.name.clone());
        if kube_namespace.as_deref().is_some_and(|name| !naming::is_prefix(name)) {
            address.wrong(
                "invalid Kubernetes namespace after k8s://: use a-z, 0-9 and -, at most 63 characters",
            );
        }
        let prefix = address.param("prefix").unwrap_or(plain.prefix);
        if !naming::is_prefix(&prefix) {
            address.wrong(
                "invalid value of `prefix`: use a-z, 0-9 and - (not at the ends), at most 63 characters",
            );
        }
        let number = "a number from 1 to 100000";
        let options = Options {
            kube_namespace,
            prefix,
            kubeconfig: address.param("kubeconfig").map(PathBuf::from),
            context: address.param("context"),
            via: address.param("via"),
            writes_per_second: address
                .parsed::<u32>("writes_per_second", number)
                .unwrap_or(plain.writes_per_second),
            writes_burst: address.parsed::<u32>("writes_burst", number).unwrap_or(plain.writes_burst),
        };
        let rates =
            [("writes_per_second", options.writes_per_second), ("writes_burst", options.writes_burst)];
        for (name, rate) in rates {
            if !(1..=100_000).contains(&rate) {
                address.wrong(format!("invalid value of `{name}`: write {number}"));
            }
        }
        let is_place =
            |via: &&String| via.parse::<http::uri::Authority>().is_ok_and(|place| place.port_u16().is_some());
        if options.via.as_ref().is_some_and(|via| !is_place(&via)) {
            address.wrong("invalid value of `via`: write host:port");
        }
        address.finish()?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_it_all() {
        let options =
            Options::parse("k8s://jobs?prefix=app&kubeconfig=/etc/kc&context=prod&writes_burst=7").unwrap();
        assert_eq!(options.kube_namespace.as_deref(), Some("jobs"));
        assert_eq!((options.prefix.as_str(), options.context.as_deref()), ("app", Some("prod")));
        assert_eq!((options.writes_per_second, options.writes_burst), (100, 7));
        assert_eq!(Options::parse("k8s://").unwrap(), Options::default());
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let text = "k8s://me:pw@Jobs:443/x?prefix=A_b&writes_burst=0&colour=red&via=here";
        let error = Options::parse(text).unwrap_err().message;
        for part in [
            "credentials",
            "not a server",
            "no path",
            "invalid Kubernetes namespace",
            "`prefix`",
            "`writes_burst`",
            "`colour`",
            "`via`",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert!(!error.contains("pw") && !error.contains("A_b") && !error.contains("Jobs"), "{error}");
    }
}
