//! Where `run` listens for HTTP, and whether that is safe.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::{Problem, Settings};

/// Shorter tokens can be guessed.
const TOKEN_LENGTH_MIN: usize = 16;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Listen {
    /// Reads `127.0.0.1:9464`, `localhost:9464`, `[::1]:9464` or `unix:PATH`.
    pub(super) fn parse(text: &str) -> Result<Listen, String> {
        match text.strip_prefix("unix:") {
            Some("") => return Err("the path of the socket is missing".into()),
            Some(path) => return Ok(Listen::Unix(path.into())),
            None => {}
        }
        let on_localhost = text.strip_prefix("localhost:").and_then(|port| port.parse::<u16>().ok());
        let address = on_localhost.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        match address.or_else(|| text.parse().ok()) {
            Some(address) => Ok(Listen::Tcp(address)),
            None => Err(format!("invalid address {text:?}")),
        }
    }

    /// The address, if other machines can reach it.
    fn wide(&self) -> Option<&SocketAddr> {
        match self {
            Listen::Tcp(address) if !address.ip().is_loopback() => Some(address),
            _ => None,
        }
    }
}

impl Settings {
    /// Where `run` listens, if it does.
    pub fn listen(&self) -> Option<Listen> {
        self.text("listen").and_then(|text| Listen::parse(text).ok())
    }

    /// What is unsafe about it.
    pub(super) fn exposed(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let token = self.text("listen_token");
        if let Some(token) = token
            && (token.len() < TOKEN_LENGTH_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            let what =
                format!("the token must have at least {TOKEN_LENGTH_MIN} characters: ASCII, without spaces");
            let advice = "make one with: openssl rand -hex 24";
            problems.push(Problem::new(self.place_of("listen_token"), what, advice));
        }
        let without_token = self.text("expose_status_without_token") == Some("true");
        let listen = self.listen();
        if let Some(address) = listen.as_ref().and_then(Listen::wide)
            && token.is_none()
            && !without_token
        {
            let what = format!("other machines can reach {address}, and no token is set");
            let advice = "listen on 127.0.0.1:PORT or unix:PATH, set a token with LEASEHOLD_LISTEN_TOKEN_FILE or \
                          LEASEHOLD_LISTEN_TOKEN, or show metrics and status to everyone with --expose-status-without-token";
            problems.push(Problem::new(self.place_of("listen"), what, advice));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_sockets_are_read() {
        let wide = |text: &str| Listen::parse(text).map(|listen| listen.wide().is_some());
        for text in ["127.0.0.1:9464", "localhost:0", "[::1]:9464", "unix:x.sock", "unix:/run/x.sock"] {
            assert_eq!(wide(text), Ok(false), "{text}");
        }
        for text in ["0.0.0.0:9464", "[::]:9464", "10.1.2.3:80"] {
            assert_eq!(wide(text), Ok(true), "{text}");
        }
        for text in ["9464", ":9464", "127.0.0.1", "example.org:80", "unix:", "", "127.0.0.1:99999"] {
            assert!(wide(text).is_err(), "{text}");
        }
    }
}
