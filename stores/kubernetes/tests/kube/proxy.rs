//! An HTTP proxy that answers in the API server's place, for the answers that a healthy one does not give.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_servers::{Kubernetes as Server, free_port};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It is passed on, and so is the answer.
    Pass,
    /// It is answered with this code, and the server hears nothing of it.
    Answer(u16),
    /// The server carries it out, and the answer is replaced by this code.
    Carried(u16),
    /// A replacement is passed on after so long, and everything else at once.
    LateWrites(Duration),
    /// It is passed on, and so is the answer, without its date.
    Undated,
    /// A watch is told at once that the state it wants to go on from is forgotten (410), and all else is passed on.
    Forgotten,
}

/// A proxy that speaks TLS to both sides and shows the server's own certificate.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    mode: Arc<Mutex<Mode>>,
    _task: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn start(server: &Server) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let certificates: Vec<_> = CertificateDer::pem_file_iter(server.certificate())
            .expect("the server's certificate")
            .collect::<Result<_, _>>()
            .expect("certificates");
        let key = PrivateKeyDer::from_pem_file(server.certificate_key()).expect("the server's key");
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        let shown = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key);
        let acceptor = TlsAcceptor::from(Arc::new(shown.expect("a key that fits")));
        let trusting = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(trusting));
        let (port, upstream) = (free_port(), server.port());
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a free port");
        let mode = Arc::new(Mutex::new(Mode::Pass));
        let current = Arc::clone(&mode);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, connector, current) =
                    (acceptor.clone(), connector.clone(), Arc::clone(&current));
                connections.spawn(async move {
                    // A client that goes away is not an error of the proxy.
                    let _ = serve(socket, upstream, acceptor, connector, &current).await;
                });
            }
        });
        Proxy { port, mode, _task: task }
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    }
}

/// One request for each connection.
async fn serve(
    socket: TcpStream,
    upstream: u16,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    mode: &Mutex<Mode>,
) -> std::io::Result<()> {
    let mut client = acceptor.accept(socket).await?;
    let request = request(&mut client).await?;
    let mode = *mode.lock().unwrap_or_else(PoisonError::into_inner);
    if let Mode::Answer(code) = mode {
        return answer(&mut client, code).await;
    }
    if mode == Mode::Forgotten
        && request.windows(7).take(500).any(|seven| seven == b"watch=t" || seven == b"watch=1")
    {
        return forget(&mut client).await;
    }
    if let Mode::LateWrites(by) = mode
        && request.starts_with(b"PUT")
    {
        tokio::time::sleep(by).await;
    }
    let socket = TcpStream::connect(("127.0.0.1", upstream)).await?;
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    let mut server = connector.connect(name, socket).await?;
    server.write_all(&request).await?;
    match mode {
        Mode::Carried(code) => {
            let mut rest = Vec::new();
            let _ = server.read_to_end(&mut rest).await;
            answer(&mut client, code).await
        }
        Mode::Undated => {
            let mut rest = Vec::new();
            let _ = server.read_to_end(&mut rest).await;
            if let Some(at) = rest.windows(7).position(|seven| seven == b"\r\nDate:") {
                rest[at + 2..at + 6].copy_from_slice(b"Gone");
            }
            client.write_all(&rest).await?;
            client.shutdown().await
        }
        Mode::Pass | Mode::Answer(_) | Mode::LateWrites(_) | Mode::Forgotten => {
            let _ = tokio::io::copy(&mut server, &mut client).await;
            client.shutdown().await
        }
    }
}

/// Answers a watch with the end that a compacted store gives it.
async fn forget(client: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
    let event = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
    client.write_all(format!("{head}{event}\n").as_bytes()).await?;
    client.shutdown().await
}

/// The whole request, changed so that the server closes the connection after its answer.
async fn request(client: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if client.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let length = text
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let whole = head + 4 + length.unwrap_or(0usize);
    while bytes.len() < whole {
        if client.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok([text.as_bytes(), b"\r\nconnection: close\r\n\r\n", &bytes[head + 4..]].concat())
}

async fn answer(client: &mut (impl AsyncWrite + Unpin), code: u16) -> std::io::Result<()> {
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"said the proxy","reason":"Test","code":{code}}}"#
    );
    let text = format!(
        "HTTP/1.1 {code} ApiError\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(text.as_bytes()).await?;
    client.shutdown().await
}
