//! Connects to a healthy member.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use leasehold_store::{StoreError, StoreErrorKind};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::{Code, Status};

use crate::connection::{Connection, Method, chain};
use crate::error::{refused, status_error, timed_out};
use crate::options::{Login, Options, with_port};
use crate::proto::{AuthenticateRequest, AuthenticateResponse, StatusRequest, StatusResponse};
use crate::tls::Tls;

/// How long one member may take to become usable.
const DIAL_WITHIN: Duration = Duration::from_secs(3);
/// How long one member is tried alone before the next one is tried as well.
const NEXT_AFTER: Duration = Duration::from_millis(150);

/// Connects to the first healthy member, beginning with `first`. A silent member costs little time: the next one is soon
/// tried in parallel.
pub(crate) async fn any(options: &Options, first: usize) -> Result<Connection, StoreError> {
    let count = options.hosts.len();
    let mut waiting = (0..count).map(|step| (first + step) % count);
    let mut trying = FuturesUnordered::new();
    let mut problems = Vec::new();
    loop {
        let next = waiting.next();
        if let Some(member) = next {
            trying.push(member_if_healthy(options, member));
        } else if trying.is_empty() {
            return Err(no_member_is_healthy(problems));
        }
        tokio::select! {
            biased;
            Some(result) = trying.next() => match result {
                Ok(connection) => return Ok(connection),
                Err(problem) => problems.push(problem),
            },
            () = tokio::time::sleep(NEXT_AFTER), if next.is_some() => {}
        }
    }
}

/// A connection to one member, with its status, whatever that is.
pub(crate) async fn one(
    options: &Options,
    member: usize,
) -> Result<(Connection, StatusResponse), StoreError> {
    let name = with_port(&options.hosts[member]).to_string();
    let dialled = tokio::time::timeout(DIAL_WITHIN, connect(options, member, &name)).await;
    dialled.unwrap_or_else(|_| Err(timed_out(format!("{name}: no answer within {DIAL_WITHIN:?}"))))
}

async fn member_if_healthy(options: &Options, member: usize) -> Result<Connection, StoreError> {
    let (connection, status) = one(options, member).await?;
    let name = with_port(&options.hosts[member]).to_string();
    if status.leader == 0 {
        return Err(status_error(&name, &Status::unavailable("no leader")));
    }
    if status.is_learner {
        return Err(StoreError::new(
            StoreErrorKind::Unreachable,
            format!("{name}: the member is a learner and does not serve clients yet"),
        ));
    }
    Ok(connection)
}

async fn connect(
    options: &Options,
    member: usize,
    name: &str,
) -> Result<(Connection, StatusResponse), StoreError> {
    let stream = stream(options, member, Speaking::Http2).await?;
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let origin = format!("{scheme}://{name}").parse().map_err(|_| refused(format!("invalid host {name}")))?;
    let connection =
        Connection::over(stream, origin, member).await.map_err(|status| status_error(name, &status))?;
    // A member that is stopped still takes connections. Asking shows whether it is alive, and has a leader.
    let status = connection
        .ask::<_, StatusResponse>(Method::STATUS, StatusRequest {})
        .await
        .map_err(|status| unspoken(options, name, &status))?;
    let connection = match &options.login {
        Some(login) if status.leader != 0 => authenticate(connection, login, name).await?,
        _ => connection,
    };
    Ok((connection, status))
}

/// What is spoken over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaking {
    Http1,
    Http2,
}

/// An open connection to a member, encrypted if it must be.
pub(crate) async fn stream(
    options: &Options,
    member: usize,
    speaking: Speaking,
) -> Result<Box<dyn Duplex>, StoreError> {
    let host = with_port(&options.hosts[member]);
    let name = host.to_string();
    let address = (host.name.as_str(), host.port.unwrap_or_default());
    let stream = TcpStream::connect(address).await.map_err(|e| unreachable(&name, &e.to_string()))?;
    let _ = stream.set_nodelay(true);
    Ok(match &options.tls {
        None => Box::new(stream),
        Some(tls) => Box::new(encrypt(tls, stream, speaking, &host.name, &name).await?),
    })
}

/// Bytes in both directions.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

async fn encrypt(
    tls: &Tls,
    stream: TcpStream,
    speaking: Speaking,
    host: &str,
    name: &str,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, StoreError> {
    let protocol: &[u8] = match speaking {
        Speaking::Http1 => b"http/1.1",
        Speaking::Http2 => b"h2",
    };
    let config = tls.config(protocol).map_err(refused)?;
    let expected = tls.server_name.as_deref().unwrap_or(host).to_owned();
    let expected = ServerName::try_from(expected).map_err(|_| {
        refused(format!("{name}: a certificate cannot carry this host name; set server_name="))
    })?;
    TlsConnector::from(config).connect(expected, stream).await.map_err(|e| {
        let why = chain(&e);
        let advice = if why.contains("UnknownIssuer") {
            "; give the CA that signed the certificate with ca=FILE"
        } else if why.contains("not valid for name") || why.contains("NotValidForName") {
            "; if the server is the right one, give the name in its certificate with server_name="
        } else if why.contains("corrupt message") || why.contains("eof") {
            "; if this port does not use TLS, set tls=off"
        } else {
            ""
        };
        match e.get_ref().is_some_and(|inner| inner.is::<tokio_rustls::rustls::Error>()) {
            true => refused(format!("{name}: TLS failed ({why}{advice})")),
            false => {
                unreachable(name, &format!("the connection broke during the TLS handshake ({why}{advice})"))
            }
        }
    })
}

/// A token for this user. An etcd without auth needs none.
async fn authenticate(connection: Connection, login: &Login, name: &str) -> Result<Connection, StoreError> {
    let password = login.password.current().reveal().to_owned();
    let question = AuthenticateRequest { name: login.user.clone(), password };
    match connection.ask::<_, AuthenticateResponse>(Method::AUTHENTICATE, question).await {
        Ok(answer) => connection.with_token(&answer.token).map_err(|status| status_error(name, &status)),
        Err(status) if auth_is_off(&status) => Ok(connection),
        Err(status) => Err(status_error(name, &status)),
    }
}

pub(crate) fn auth_is_off(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition && status.message().contains("not enabled")
}

/// The first request on a new connection failed: often one side uses TLS and the other does not.
fn unspoken(options: &Options, name: &str, status: &Status) -> StoreError {
    let said = status.message();
    match &options.tls {
        None if status.code() == Code::Unavailable && said.contains("connection") => unreachable(
            name,
            &format!("{said}; if the server requires TLS, add tls=on or ca=FILE to the address"),
        ),
        // With TLS 1.3 a server rejects a client's certificate only after the connection is open.
        Some(tls) if status.code() == Code::Unavailable && said.contains("connection") => {
            let advice = match tls.identity {
                None => "the server may require a client certificate: give cert=FILE and key=FILE",
                Some(_) => "the server may have rejected the client certificate",
            };
            match said.contains("alert") {
                true => refused(format!("{name}: {said}; {advice}")),
                false => unreachable(name, &format!("{said}; {advice}")),
            }
        }
        _ => status_error(name, status),
    }
}

fn unreachable(name: &str, why: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, format!("{name}: {why}"))
}

/// All failed tries as one error. Its kind is the one that needs an operator, if there is any.
fn no_member_is_healthy(problems: Vec<StoreError>) -> StoreError {
    let kind = problems.iter().map(|problem| problem.kind).max().unwrap_or(StoreErrorKind::Unreachable);
    let all: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
    StoreError::new(kind, all.join("; "))
}
