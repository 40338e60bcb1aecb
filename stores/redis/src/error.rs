//! What goes wrong between a node and Redis, and what it means, in words that say what to do.

use std::fmt;
use std::time::Duration;

use leasehold_store::{StoreError, StoreErrorKind};
use tokio_rustls::rustls;
use tokio_rustls::rustls::CertificateError;

use crate::options::ServerAddress;

/// Why a call was not answered as it should have been.
#[derive(Clone, Debug)]
pub(crate) enum RedisError {
    /// Nobody answers, or no longer.
    Unreachable(String),
    /// No answer in time.
    TimedOut(String),
    /// The other side is not who it should be.
    Tls(String),
    /// Somebody must act.
    Refused(String),
    /// User or password are wrong. What to look at depends on whom we asked.
    Login(String),
    /// Try again later.
    Busy(String),
    /// The server is not the master of these keys; in a cluster it says who is.
    NotMaster(Option<ServerAddress>, String),
    /// The server does not know the script (any more).
    NoScript,
    /// The data is not what it should be.
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
            Written::Unknown => "If something was to be written, it is unknown whether it was.",
        })
    }
}

impl RedisError {
    /// What a broken stream means.
    pub(crate) fn broken(error: &std::io::Error, spot: &ServerAddress) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) => {
                RedisError::Tls(format!("{spot}: no TLS with it: {error}. {}", advice_on_tls(error)))
            }
            None => RedisError::Unreachable(format!("{spot}: {error}.")),
        }
    }

    /// The first answer of a server that was asked without TLS is none.
    pub(crate) fn not_in_the_clear(error: &std::io::Error, spot: &ServerAddress) -> Self {
        match error.kind() {
            std::io::ErrorKind::InvalidData => RedisError::Refused(format!(
                "{spot}: {error}. If this port wants TLS, write rediss:// in options of redis://; otherwise it is no Redis."
            )),
            _ => RedisError::Unreachable(format!(
                "{spot}: {error}, before it answered anything. If this port wants TLS, write rediss:// in options of redis://."
            )),
        }
    }

    /// A server that takes connections does not answer to TLS.
    pub(crate) fn no_handshake(spot: &ServerAddress, patience: Duration) -> Self {
        RedisError::TimedOut(format!(
            "{spot} takes connections, but did not answer to TLS within {patience:?}. If this port speaks without TLS, \
             write redis:// in options of rediss://."
        ))
    }

    /// What a server's error means. Its first word is a code.
    pub(crate) fn said(error: &str, spot: &ServerAddress) -> Self {
        let code = error.split_whitespace().next().unwrap_or_default();
        let has = |part: &str| error.contains(part);
        let told = |advice: &str| format!("{spot} says {error:?}. {advice}");
        match code {
            "MOVED" => RedisError::NotMaster(moved_to(error, spot), told("The slot is elsewhere now.")),
            "READONLY" => RedisError::NotMaster(
                None,
                told("It is a replica: a failover is under way, or the address is wrong."),
            ),
            "NOSCRIPT" => RedisError::NoScript,
            "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "UNBLOCKED" => {
                RedisError::Unreachable(told("It cannot serve just now."))
            }
            "ASK" | "TRYAGAIN" => {
                RedisError::Busy(told("The slot of this namespace is being moved to another master."))
            }
            "BUSY" => RedisError::Busy(told(
                "Somebody's script runs without end: look at CLIENT LIST, then SCRIPT KILL or FUNCTION KILL.",
            )),
            "NOREPLICAS" => {
                RedisError::Busy(told("min-replicas-to-write is not met: bring the replicas back."))
            }
            "NOAUTH" | "WRONGPASS" | "DENIED" => RedisError::Login(format!("{spot} says {error:?}.")),
            "NOPERM" => RedisError::Refused(told("The user needs the rights that docs/redis.md names.")),
            "OOM" => RedisError::Refused(told(
                "Its memory is full: raise maxmemory or free some. What is owned can still be renewed and released.",
            )),
            "MISCONF" => RedisError::Refused(told(
                "It cannot write its snapshot to disk: look at its log and its disk.",
            )),
            _ if has("The user executing the script can't") => {
                RedisError::Refused(told("The user needs the rights that docs/redis.md names."))
            }
            _ if has("non local key") => {
                RedisError::Busy(told("The slot of this namespace is being moved to another master."))
            }
            _ if has("max number of clients") => RedisError::Busy(told("Raise maxclients, or close some.")),
            _ if has("killed by user") => {
                RedisError::Busy(told("Somebody killed our script before it wrote anything."))
            }
            _ if has("rror compiling") => {
                RedisError::Refused(told("Redis 7.0 or newer, or Valkey, is needed."))
            }
            _ if has("DB index") => {
                RedisError::Refused(told("The database in the address does not exist there."))
            }
            _ if has("without any password") || has("invalid password") => {
                RedisError::Login(format!("{spot} says {error:?}."))
            }
            _ => RedisError::Damaged(told("That is not what this version expects.")),
        }
    }

    /// The error for the caller.
    pub(crate) fn into_store_error(self, written: Written) -> StoreError {
        let (kind, message) = match self {
            RedisError::Unreachable(what) => (StoreErrorKind::Unreachable, what),
            RedisError::NotMaster(_, what) => (StoreErrorKind::Unreachable, what),
            RedisError::NoScript => {
                (StoreErrorKind::Busy, "the server forgets scripts as soon as they are loaded.".to_owned())
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
            "Its certificate was signed by an authority that is not trusted here: name that with `ca=FILE`."
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            "Its certificate is for another name: mend the host in the address, or say which name to expect with \
             `server_name=NAME`."
        }
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "Renew the server's certificate, or set the clock of this machine.",
        rustls::Error::InvalidMessage(_) => {
            "If this port speaks without TLS, write redis:// in options of rediss://."
        }
        rustls::Error::AlertReceived(_) => {
            "The server refuses us: if it wants to know who we are, give `cert=FILE` and `key=FILE` of an authority that \
             it trusts."
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
