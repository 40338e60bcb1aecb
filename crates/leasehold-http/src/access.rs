//! Who may ask. On loopback the danger is a web page in a browser of this machine: it can send requests here, and by
//! giving its own name the address 127.0.0.1 ("DNS rebinding") even read the answers. So `Host` must name this machine, and
//! `Origin`, which browsers add, the same host. Elsewhere a token is what counts.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, HOST, HeaderName, ORIGIN, TRANSFER_ENCODING,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use subtle::ConstantTimeEq;

use crate::Listener;
use crate::problem::Kind;

/// The time in which an answer must begin.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The size of a request's body.
const BODY_BYTES_MAX: u64 = 64 * 1024;

/// A bearer token. It is compared in constant time and never printed.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// A token from a file or a variable.
    pub fn new(text: &str) -> Token {
        Token(text.into())
    }

    fn is(&self, other: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(other).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

/// Who may ask a server.
#[derive(Clone, Debug)]
pub struct Access {
    hosts: Hosts,
    token: Option<Token>,
}

/// Which names a request may be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hosts {
    /// Names of this machine's loopback.
    Loopback,
    /// A Unix socket has no name, and an address that is open to others may have any.
    Any,
}

/// Who asks: pages show strangers less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Anyone who can connect, because no token is asked for, or who has sent the token.
    Known,
    /// Somebody without the token.
    Stranger,
}

impl Access {
    /// What suits a listener: on loopback the host is checked; with a token, every request must carry it.
    pub fn new(listener: &Listener, token: Option<Token>) -> Access {
        let on_loopback = listener.address().is_some_and(|address: SocketAddr| address.ip().is_loopback());
        Access { hosts: if on_loopback { Hosts::Loopback } else { Hosts::Any }, token }
    }

    /// Who asks, or why there is no answer.
    fn check(&self, headers: &HeaderMap) -> Result<Caller, (Kind, String)> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
            (Some(Ok(host)), None) => host,
            (None, _) => return Err((Kind::Invalid, "the request has no Host header".into())),
            _ => return Err((Kind::Invalid, "the Host header is invalid".into())),
        };
        if self.hosts == Hosts::Loopback && !is_loopback(host) {
            return Err((Kind::HostNotAllowed, format!("this server is not the host {host:?}")));
        }
        if let Some(origin) = headers.get(ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            if !authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host)) {
                return Err((Kind::Forbidden, format!("the request comes from {origin:?}")));
            }
        }
        if headers.contains_key(TRANSFER_ENCODING) || body_length(headers) > BODY_BYTES_MAX {
            return Err((Kind::TooLarge, format!("a body may have at most {BODY_BYTES_MAX} bytes")));
        }
        let Some(token) = &self.token else { return Ok(Caller::Known) };
        match headers.get(AUTHORIZATION).map(HeaderValue::as_bytes) {
            None => Ok(Caller::Stranger),
            Some(sent) => match bearer(sent) {
                Some(sent) if token.is(sent) => Ok(Caller::Known),
                _ => Err((Kind::Unauthorized, "the token is wrong".into())),
            },
        }
    }
}

/// The check of every request, before any page sees it.
pub(crate) async fn check(State(access): State<Access>, mut request: Request, next: Next) -> Response {
    let mut response = match access.check(request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            match tokio::time::timeout(ANSWER_WITHIN, next.run(request)).await {
                Ok(response) => response,
                Err(_) => Kind::TooMany.with("the answer took too long"),
            }
        }
        Err((kind, detail)) => kind.with(&detail),
    };
    let fixed: [(HeaderName, &str); 2] = [(CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn body_length(headers: &HeaderMap) -> u64 {
    let Some(length) = headers.get(CONTENT_LENGTH) else { return 0 };
    length.to_str().ok().and_then(|length| length.parse().ok()).unwrap_or(u64::MAX)
}

/// The token of `Bearer TOKEN`.
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Whether a `Host` names the loopback of this machine, with any port: tunnels change it.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(access: &Access, headers: &[(&'static str, &'static str)]) -> Result<Caller, Kind> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        access.check(&map).map_err(|(kind, _)| kind)
    }

    #[test]
    fn on_loopback_only_names_of_loopback_are_served() {
        let access = Access { hosts: Hosts::Loopback, token: None };
        for host in
            ["localhost", "LOCALHOST:9464", "127.0.0.1", "127.0.0.1:1", "127.9.9.9", "[::1]", "[::1]:9464"]
        {
            assert_eq!(asked(&access, &[("host", host)]), Ok(Caller::Known), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "10.0.0.1:9464", "", "127.0.0.1.nip.io:9464"] {
            assert_eq!(asked(&access, &[("host", host)]), Err(Kind::HostNotAllowed), "{host}");
        }
        assert_eq!(asked(&access, &[]), Err(Kind::Invalid));
        assert_eq!(asked(&access, &[("host", "localhost"), ("host", "localhost")]), Err(Kind::Invalid));
    }

    #[test]
    fn web_pages_of_other_origins_get_nothing() {
        for access in [Hosts::Loopback, Hosts::Any].map(|hosts| Access { hosts, token: None }) {
            let from = |origin| asked(&access, &[("host", "localhost:1"), ("origin", origin)]);
            assert_eq!(from("http://localhost:1"), Ok(Caller::Known));
            assert_eq!(from("https://LocalHost:1"), Ok(Caller::Known));
            for other in ["http://localhost:2", "http://evil.example", "null", "localhost:1", ""] {
                assert_eq!(from(other), Err(Kind::Forbidden), "{other}");
            }
        }
    }

    #[test]
    fn a_token_makes_a_stranger_known_and_a_wrong_one_is_refused() {
        let access = Access { hosts: Hosts::Any, token: Some(Token::new("0123456789abcdef")) };
        let with = |sent| asked(&access, &[("host", "a.example"), ("authorization", sent)]);
        assert_eq!(asked(&access, &[("host", "a.example")]), Ok(Caller::Stranger));
        assert_eq!(with("Bearer 0123456789abcdef"), Ok(Caller::Known));
        assert_eq!(with("bearer 0123456789abcdef"), Ok(Caller::Known));
        for wrong in
            ["Bearer 0123456789abcdeg", "Bearer 0123456789abcde", "Bearer", "", "Basic 0123456789abcdef"]
        {
            assert_eq!(with(wrong), Err(Kind::Unauthorized), "{wrong}");
        }
        assert_eq!(format!("{access:?}"), "Access { hosts: Any, token: Some(Token(***)) }");
    }

    #[test]
    fn large_bodies_are_refused_before_they_are_read() {
        let access = Access { hosts: Hosts::Any, token: None };
        let with = |name, value| asked(&access, &[("host", "a"), (name, value)]);
        assert_eq!(with("content-length", "65536"), Ok(Caller::Known));
        assert_eq!(with("content-length", "65537"), Err(Kind::TooLarge));
        assert_eq!(with("content-length", "x"), Err(Kind::TooLarge));
        assert_eq!(with("transfer-encoding", "chunked"), Err(Kind::TooLarge));
    }
}
