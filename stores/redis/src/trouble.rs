//! What goes wrong between a node and Redis, and what it means, in words that say what to do.

use std::fmt;
use std::time::Duration;

use leasehold_store::{StoreError, StoreErrorKind};
use tokio_rustls::rustls;
use tokio_rustls::rustls::CertificateError;

use crate::place::Spot;

/// Why a call was not answered as it should have been.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
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
    NotMaster(Option<Spot>, String),
    /// The server does not know the script (any more).
    NoScript,
    /// The data is not what it should be.
    Damaged(String),
}

/// What may have become of a write when there was trouble.
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

impl Trouble {
    /// What a broken stream means.
    pub(crate) fn broken(error: &std::io::Error, spot: &Spot) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) => Trouble::Tls(format!("{spot}: no TLS with it: {error}. {}", advice_on_tls(error))),
            None => Trouble::Unreachable(format!("{spot}: {error}.")),
        }
    }

    /// The first answer of a server that was asked without TLS is none.
    pub(crate) fn not_in_the_clear(error: &std::io::Error, spot: &Spot) -> Self {
        match error.kind() {
            std::io::ErrorKind::InvalidData => Trouble::Refused(format!(
                "{spot}: {error}. If this port wants TLS, write rediss:// in place of redis://; otherwise it is no Redis."
            )),
            _ => Trouble::Unreachable(format!(
                "{spot}: {error}, before it answered anything. If this port wants TLS, write rediss:// in place of redis://."
            )),
        }
    }

    /// A server that takes connections does not answer to TLS.
    pub(crate) fn no_handshake(spot: &Spot, patience: Duration) -> Self {
        Trouble::TimedOut(format!(
            "{spot} takes connections, but did not answer to TLS within {patience:?}. If this port speaks without TLS, \
             write redis:// in place of rediss://."
        ))
    }

    /// What a server's error means. Its first word is a code.
    pub(crate) fn said(error: &str, spot: &Spot) -> Self {
        let code = error.split_whitespace().next().unwrap_or_default();
        let has = |part: &str| error.contains(part);
        let told = |advice: &str| format!("{spot} says {error:?}. {advice}");
        match code {
            "MOVED" => Trouble::NotMaster(moved_to(error, spot), told("The slot is elsewhere now.")),
            "READONLY" => Trouble::NotMaster(
                None,
                told("It is a replica: a failover is under way, or the address is wrong."),
            ),
            "NOSCRIPT" => Trouble::NoScript,
            "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "UNBLOCKED" => {
                Trouble::Unreachable(told("It cannot serve just now."))
            }
            "ASK" | "TRYAGAIN" => {
                Trouble::Busy(told("The slot of this namespace is being moved to another master."))
            }
            "BUSY" => Trouble::Busy(told(
                "Somebody's script runs without end: look at CLIENT LIST, then SCRIPT KILL or FUNCTION KILL.",
            )),
            "NOREPLICAS" => Trouble::Busy(told("min-replicas-to-write is not met: bring the replicas back.")),
            "NOAUTH" | "WRONGPASS" | "DENIED" => Trouble::Login(format!("{spot} says {error:?}.")),
            "NOPERM" => Trouble::Refused(told("The user needs the rights that docs/redis.md names.")),
            "OOM" => Trouble::Refused(told(
                "Its memory is full: raise maxmemory or free some. What is owned can still be renewed and released.",
            )),
            "MISCONF" => {
                Trouble::Refused(told("It cannot write its snapshot to disk: look at its log and its disk."))
            }
            _ if has("The user executing the script can't") => {
                Trouble::Refused(told("The user needs the rights that docs/redis.md names."))
            }
            _ if has("non local key") => {
                Trouble::Busy(told("The slot of this namespace is being moved to another master."))
            }
            _ if has("max number of clients") => Trouble::Busy(told("Raise maxclients, or close some.")),
            _ if has("killed by user") => {
                Trouble::Busy(told("Somebody killed our script before it wrote anything."))
            }
            _ if has("rror compiling") => Trouble::Refused(told("Redis 7.0 or newer, or Valkey, is needed.")),
            _ if has("DB index") => {
                Trouble::Refused(told("The database in the address does not exist there."))
            }
            _ if has("without any password") || has("invalid password") => {
                Trouble::Login(format!("{spot} says {error:?}."))
            }
            _ => Trouble::Damaged(told("That is not what this version expects.")),
        }
    }

    /// The error for the caller.
    pub(crate) fn tell(self, written: Written) -> StoreError {
        let (kind, message) = match self {
            Trouble::Unreachable(what) => (StoreErrorKind::Unreachable, what),
            Trouble::NotMaster(_, what) => (StoreErrorKind::Unreachable, what),
            Trouble::NoScript => {
                (StoreErrorKind::Busy, "the server forgets scripts as soon as they are loaded.".to_owned())
            }
            Trouble::TimedOut(what) => (StoreErrorKind::TimedOut, what),
            Trouble::Login(what) => (
                StoreErrorKind::Refused,
                format!(
                    "{what} Check user and password in the address, `password_file` or LEASEHOLD_STORE_PASSWORD."
                ),
            ),
            Trouble::Tls(what) | Trouble::Refused(what) => (StoreErrorKind::Refused, what),
            Trouble::Busy(what) => (StoreErrorKind::Busy, what),
            Trouble::Damaged(what) => (StoreErrorKind::Damaged, what),
        };
        StoreError::new(kind, format!("{message} {written}"))
    }

    /// Whether the connection may be used for the next call.
    pub(crate) fn keeps_connection(&self) -> bool {
        matches!(self, Trouble::Busy(_) | Trouble::Refused(_) | Trouble::Damaged(_) | Trouble::NoScript)
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
            "If this port speaks without TLS, write redis:// in place of rediss://."
        }
        rustls::Error::AlertReceived(_) => {
            "The server refuses us: if it wants to know who we are, give `cert=FILE` and `key=FILE` of an authority that \
             it trusts."
        }
        _ => "Check `ca`, `cert`, `key` and `server_name`.",
    }
}

/// `MOVED 3999 127.0.0.1:6381`; without a host it is the one that was asked.
fn moved_to(error: &str, asked: &Spot) -> Option<Spot> {
    let place = error.split_whitespace().nth(2)?;
    let (host, port) = place.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() { asked.host.clone() } else { host.to_owned() };
    Some(Spot { host, port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_slot_says_where_to() {
        let asked = Spot { host: "a".into(), port: 1 };
        let to = |error| match Trouble::said(error, &asked) {
            Trouble::NotMaster(Some(spot), _) => spot.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(to("MOVED 3999 10.0.0.1:6381"), "10.0.0.1:6381");
        assert_eq!(to("MOVED 3999 :6381"), "a:6381");
        assert_eq!(to("MOVED 3999 ::1:6381"), "[::1]:6381");
    }
}
