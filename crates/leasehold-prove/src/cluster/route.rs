//! What kind of store a URL names, and how each node reaches it: directly, or through a proxy of its own.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use leasehold_chaos::proxy::Proxy;
use leasehold_store::Address;

/// A store, as its URL describes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file on this machine.
    File(PathBuf),
    /// Servers that nodes connect to, directly or through a proxy.
    Network { upstreams: Vec<String> },
    /// One server that the URL does not name, and that nodes can reach through another host.
    Via { upstream: String },
    /// Something else, and why it cannot be reached through a proxy.
    Other(&'static str),
}

/// What kind of store a URL is of, also where the URL does not say everything itself.
pub(super) async fn kind(url: &str) -> Result<Kind, String> {
    match named_kind(url)? {
        Kind::Other(why) => match leasehold::store::server(url).await {
            Ok(Some(upstream)) => Ok(Kind::Via { upstream }),
            Ok(None) => Ok(Kind::Other(why)),
            Err(error) => Err(error.message),
        },
        named => Ok(named),
    }
}

fn named_kind(url: &str) -> Result<Kind, String> {
    let Some((scheme, rest)) = url.split_once("://") else {
        let path = url.strip_prefix("local:").unwrap_or(url);
        return Ok(Kind::File(PathBuf::from(path)));
    };
    let port = match scheme {
        "local" => return Ok(Kind::File(PathBuf::from(format!("//{rest}")))),
        "etcd" => 2379,
        "redis" | "rediss" => 6379,
        "postgres" | "postgresql" => 5432,
        _ if scheme.contains("+sentinel") || scheme.contains("+cluster") => {
            return Ok(Kind::Other("its servers announce other addresses than those in the URL"));
        }
        _ => return Ok(Kind::Other("its URL contains no host and port")),
    };
    let address = Address::parse(url, |_| None).map_err(|error| error.to_string())?;
    let upstreams = address.hosts.iter().map(|host| match host.port {
        Some(_) => host.to_string(),
        None => format!("{host}:{port}"),
    });
    Ok(Kind::Network { upstreams: upstreams.collect() })
}

/// The URL with other hosts. Where the connection is encrypted, the name that the certificate must have is kept.
fn with_hosts(url: &str, hosts: &[SocketAddr]) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (login, places) = match authority.rsplit_once('@') {
        Some((login, places)) => (format!("{login}@"), places),
        None => (String::new(), authority),
    };
    let hosts: Vec<String> = hosts.iter().map(SocketAddr::to_string).collect();
    let mut tail = tail.to_owned();
    let params = tail.split_once('?').map_or("", |(_, params)| params);
    let says = |name: &str| params.split('&').any(|pair| pair.split('=').next() == Some(name));
    let encrypted = scheme.starts_with("rediss") || ["tls", "ca", "cert"].into_iter().any(says);
    if encrypted && !says("server_name") {
        let first = places.split(',').next().unwrap_or_default();
        let name = match first.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, _)) => name,
            None => first.rsplit_once(':').map_or(first, |(name, _)| name),
        };
        tail.push_str(&format!("{}server_name={name}", if tail.contains('?') { "&" } else { "?" }));
    }
    format!("{scheme}://{login}{}{tail}", hosts.join(","))
}

/// How one node reaches the store.
#[derive(Debug)]
pub(crate) struct Route {
    /// What the node is told. It may hold secrets.
    pub(crate) url: String,
    /// The proxy in between, if there can be one.
    pub(crate) proxy: Option<Proxy>,
}

impl Route {
    pub(crate) fn to(url: &str, kind: &Kind) -> io::Result<Route> {
        match kind {
            Kind::File(_) | Kind::Other(_) => Ok(Route { url: url.to_owned(), proxy: None }),
            Kind::Via { upstream } => {
                let proxy = Proxy::start([upstream.clone()])?;
                let via = proxy.addresses()[0];
                let url = format!("{url}{}via={via}", if url.contains('?') { "&" } else { "?" });
                Ok(Route { url, proxy: Some(proxy) })
            }
            Kind::Network { upstreams } => {
                let proxy = Proxy::start(upstreams.iter().cloned())?;
                Ok(Route { url: with_hosts(url, &proxy.addresses()), proxy: Some(proxy) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_with_their_usual_ports() {
        let network = |url: &str| match named_kind(url).unwrap() {
            Kind::Network { upstreams } => upstreams.join(" "),
            other => panic!("{url}: {other:?}"),
        };
        assert_eq!(network("etcd://a:1,b,[::1]:3/prefix"), "a:1 b:2379 [::1]:3");
        assert_eq!(network("redis://user:se%40cret@h/0?namespace=x"), "h:6379");
        assert_eq!(named_kind("local:./x.db").unwrap(), Kind::File("./x.db".into()));
        assert!(matches!(named_kind("redis+sentinel://h:1"), Ok(Kind::Other(_))));
    }

    #[tokio::test]
    async fn a_bucket_is_reached_by_way_of_a_proxy() {
        let url = "s3://k:s@bucket/p?endpoint=http://127.0.0.1:9&allow_http=true";
        let kind = kind(url).await.unwrap();
        assert_eq!(kind, Kind::Via { upstream: "127.0.0.1:9".to_owned() });
        let route = Route::to(url, &kind).unwrap();
        let address = route.proxy.as_ref().unwrap().addresses()[0];
        assert_eq!(route.url, format!("{url}&via={address}"));
    }

    #[test]
    fn only_the_hosts_of_a_url_are_replaced() {
        let hosts: Vec<SocketAddr> = vec!["127.0.0.1:7".parse().unwrap(), "127.0.0.1:8".parse().unwrap()];
        for (url, expected) in [
            ("etcd://a:1,b:2/prefix", "etcd://127.0.0.1:7,127.0.0.1:8/prefix"),
            ("etcd://u:p%40ss@a,b?x=1", "etcd://u:p%40ss@127.0.0.1:7,127.0.0.1:8?x=1"),
            ("rediss://a:1/0", "rediss://127.0.0.1:7,127.0.0.1:8/0?server_name=a"),
            ("etcd://a:1/p?ca=x", "etcd://127.0.0.1:7,127.0.0.1:8/p?ca=x&server_name=a"),
            ("etcd://a:1/p?ca=x&server_name=n", "etcd://127.0.0.1:7,127.0.0.1:8/p?ca=x&server_name=n"),
            ("local:./x.db", "local:./x.db"),
        ] {
            assert_eq!(with_hosts(url, &hosts), expected);
        }
    }
}
