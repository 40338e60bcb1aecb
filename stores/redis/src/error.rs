//! Turns errors of Redis and of the connection into store errors that say what to do.

use std::fmt;
use std::time::Duration;

use leasehold_store::{StoreError, StoreErrorKind};
use tokio_rustls::rustls;
use tokio_rustls::rustls::CertificateError;

use crate::options::ServerAddress;

/// Why a call failed.
#[derive(Clone, Debug)]
pub(crate) enum RedisError {
    /// The server does not answer, or the connection was lost.
    Unreachable(String),
    /// No answer in time.
    TimedOut(String),
    /// TLS failed: the certificate or the protocol is wrong.
    Tls(String),
    /// An operator must change something.
    Refused(String),
    /// Wrong user or password. Which setting to check depends on the server that was asked.
    Login(String),
    /// Try again later.
    Busy(String),
    /// The server is not the master of these keys; in a cluster it says who is.
    NotMaster(Option<ServerAddress>, String),
    /// The server does not know the script (any more).
    NoScript,
    /// The data or the response is not valid.
    Damaged(String),
}

/// What may have become of a write when an error came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It was not sent, or refused as a whole.
    Nothing,
    /// It may be there, or may yet get there.
    Unknown,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Written::Nothing => "Nothing was written.",
            Written::Unknown => "If this call writes, it is unknown whether it did.",
        })
    }
}

impl RedisError {
    /// What a broken stream means.
    pub(crate) fn broken(error: &std::io::Error, spot: &ServerAddress) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) => RedisError::Tls(format!("{spot}: TLS failed: {error}. {}", advice_on_tls(error))),
            None => RedisError::Unreachable(format!("{spot}: {error}.")),
        }
    }

    /// A server that was asked without TLS did not send a valid first answer.
    pub(crate) fn not_in_the_clear(error: &std::io::Error, spot: &ServerAddress) -> Self {
        match error.kind() {
            std::io::ErrorKind::InvalidData => RedisError::Refused(format!(
                "{spot}: {error}. If this port uses TLS, write rediss:// instead of redis://; otherwise it is not a Redis server."
            )),
            _ => RedisError::Unreachable(format!(
                "{spot}: {error}, before the first answer. If this port uses TLS, write rediss:// instead of redis://."
            )),
        }
    }

    /// A server accepts connections but does not answer the TLS handshake.
    pub(crate) fn no_handshake(spot: &ServerAddress, patience: Duration) -> Self {
        RedisError::TimedOut(format!(
            "{spot} accepts connections, but did not answer the TLS handshake within {patience:?}. If this port does not \
             use TLS, write redis:// instead of rediss://."
        ))
    }

    /// What a server's error means. Its first word is a code.
    pub(crate) fn said(error: &str, spot: &ServerAddress) -> Self {
        let code = error.split_whitespace().next().unwrap_or_default();
        let has = |part: &str| error.contains(part);
        let told = |advice: &str| format!("{spot} says {error:?}. {advice}");
        match code {
            "MOVED" => RedisError::NotMaster(moved_to(error, spot), told("The slot has moved.")),
            "READONLY" => RedisError::NotMaster(
                None,
                told("The server is a replica: a failover is under way, or the address is wrong."),
            ),
            "NOSCRIPT" => RedisError::NoScript,
            "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "UNBLOCKED" => {
                RedisError::Unreachable(told("The server cannot serve requests at the moment."))
            }
            "ASK" | "TRYAGAIN" => {
                RedisError::Busy(told("The slot of this namespace is being moved to another master."))
            }
            "BUSY" => RedisError::Busy(told(
                "A script or function of another client does not end: find it with CLIENT LIST, and stop it with SCRIPT KILL or \
                 FUNCTION KILL.",
            )),
            "NOREPLICAS" => {
                RedisError::Busy(told("min-replicas-to-write is not met: bring the replicas back."))
            }
            "NOAUTH" | "WRONGPASS" | "DENIED" => RedisError::Login(format!("{spot} says {error:?}.")),
            "NOPERM" => RedisError::Refused(told("The user needs the rights that docs/redis.md names.")),
            "OOM" => RedisError::Refused(told(
                "The server is out of memory: raise maxmemory or free some. Existing ownership can still be renewed and released.",
            )),
            "MISCONF" => RedisError::Refused(told(
                "The server cannot write its snapshot to disk: check its log and its disk.",
            )),
            _ if has("The user executing the script can't") => {
                RedisError::Refused(told("The user needs the rights that docs/redis.md names."))
            }
            _ if has("non local key") => {
                RedisError::Busy(told("The slot of this namespace is being moved to another master."))
            }
            _ if has("max number of clients") => {
                RedisError::Busy(told("Raise maxclients, or close some connections."))
            }
            _ if has("killed by user") => RedisError::Busy(told(
                "An operator or another client killed our script before it wrote anything.",
            )),
            _ if has("rror compiling") => RedisError::Refused(told("Use Redis 7.0 or newer, or Valkey.")),
            _ if has("DB index") => {
                RedisError::Refused(told("The database in the address does not exist there."))
            }
            _ if has("without any password") || has("invalid password") => {
                RedisError::Login(format!("{spot} says {error:?}."))
            }
            _ => RedisError::Damaged(told("This error is unknown to this version of Leasehold.")),
        }
    }

    /// The error for the caller.
    pub(crate) fn into_store_error(self, written: Written) -> StoreError {
        let (kind, message) = match self {
            RedisError::Unreachable(what) => (StoreErrorKind::Unreachable, what),
            RedisError::NotMaster(_, what) => (StoreErrorKind::Unreachable, what),
            RedisError::NoScript => {
                (StoreErrorKind::Busy, "the server drops scripts as soon as they are loaded.".to_owned())
            }
            RedisError::TimedOut(what) => (StoreErrorKind::TimedOut, what),
            RedisError::Login(what) => (
                StoreErrorKind::Refused,
                format!(
                    "{what} Check user and password in the address, `password_file` or LEASEHOLD_STORE_PASSWORD."
                ),
            ),
            RedisError::Tls(what) | RedisError::Refused(what) => (StoreErrorKind::Refused, what),
            RedisError::Busy(what) => (StoreErrorKind::Busy, what),
            RedisError::Damaged(what) => (StoreErrorKind::Damaged, what),
        };
        StoreError::new(kind, format!("{message} {written}"))
    }

    /// Whether the connection may be used for the next call.
    pub(crate) fn keeps_connection(&self) -> bool {
        matches!(
            self,
            RedisError::Busy(_) | RedisError::Refused(_) | RedisError::Damaged(_) | RedisError::NoScript
        )
    }
}

fn advice_on_tls(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "Its certificate was signed by an authority that is not trusted here: give that one with `ca=FILE`."
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            "Its certificate is for another name: correct the host in the address, or give the expected name with \
             `server_name=NAME`."
        }
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "Renew the server's certificate, or correct the clock of this machine.",
        rustls::Error::InvalidMessage(_) => {
            "If this port does not use TLS, write redis:// instead of rediss://."
        }
        rustls::Error::AlertReceived(_) => {
            "The server rejected the client: if it requires client certificates, give `cert=FILE` and `key=FILE` from an \
             authority that it trusts."
        }
        _ => "Check `ca`, `cert`, `key` and `server_name`.",
    }
}

/// `MOVED 3999 127.0.0.1:6381`; without a host it is the one that was asked.
fn moved_to(error: &str, asked: &ServerAddress) -> Option<ServerAddress> {
    let options = error.split_whitespace().nth(2)?;
    let (host, port) = options.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() { asked.host.clone() } else { host.to_owned() };
    Some(ServerAddress { host, port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_slot_says_where_to() {
        let asked = ServerAddress { host: "a".into(), port: 1 };
        let to = |error| match RedisError::said(error, &asked) {
            RedisError::NotMaster(Some(spot), _) => spot.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(to("MOVED 3999 10.0.0.1:6381"), "10.0.0.1:6381");
        assert_eq!(to("MOVED 3999 :6381"), "a:6381");
        assert_eq!(to("MOVED 3999 ::1:6381"), "[::1]:6381");
    }
}
