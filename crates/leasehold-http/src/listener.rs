//! Where the server listens: a TCP address, or a Unix socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A place at which the server listens. Dropping it closes it; the file of a Unix socket goes with it.
#[derive(Debug)]
pub struct Listener(Inner);

#[derive(Debug)]
enum Inner {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, SocketFile),
}

/// Why nothing listens.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address cannot be used.
    #[error("cannot listen on {0}: {1}")]
    Tcp(SocketAddr, #[source] io::Error),
    /// The socket cannot be made.
    #[error("cannot listen on unix:{path}: {error}", path = .0.display(), error = .1)]
    Unix(PathBuf, #[source] io::Error),
    /// Another process listens there.
    #[error("cannot listen on unix:{path}: another process listens on this socket", path = .0.display())]
    InUse(PathBuf),
    /// There is a file that is no socket.
    #[error("cannot listen on unix:{path}: a file that is not a socket is in its place", path = .0.display())]
    NoSocket(PathBuf),
}

impl Listener {
    /// Listens on a TCP address; port 0 takes a free one.
    pub async fn tcp(address: SocketAddr) -> Result<Listener, BindError> {
        let bind = async {
            let listener = TcpListener::bind(address).await?;
            let local = listener.local_addr()?;
            Ok(Listener(Inner::Tcp(listener, local)))
        };
        bind.await.map_err(|error| BindError::Tcp(address, error))
    }

    /// Listens on a Unix socket that only this user can open. A socket that a dead process left behind is replaced.
    pub async fn unix(path: &Path) -> Result<Listener, BindError> {
        let failed = |error| BindError::Unix(path.to_owned(), error);
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(there) if !there.file_type().is_socket() => return Err(BindError::NoSocket(path.to_owned())),
            Ok(_) => match UnixStream::connect(path).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
                Ok(_) => return Err(BindError::InUse(path.to_owned())),
            },
        }
        // It appears under its name only once nobody else can open it.
        let mut hidden = path.as_os_str().to_owned();
        hidden.push(format!(".{}", std::process::id()));
        let hidden = PathBuf::from(hidden);
        let made = || {
            let _ = std::fs::remove_file(&hidden);
            let listener = UnixListener::bind(&hidden)?;
            std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600))?;
            let file = SocketFile { path: path.to_owned(), id: id_of(&hidden)? };
            std::fs::rename(&hidden, path)?;
            Ok(Listener(Inner::Unix(listener, file)))
        };
        made().map_err(|error| {
            let _ = std::fs::remove_file(&hidden);
            failed(error)
        })
    }

    /// The TCP address, with the port that was taken; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Inner::Tcp(_, address) => Some(*address),
            Inner::Unix(..) => None,
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Stream> {
        match &self.0 {
            Inner::Tcp(listener, _) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Inner::Unix(listener, _) => listener.accept().await.map(|(stream, _)| Stream::Unix(stream)),
        }
    }
}

/// `http://127.0.0.1:9464` or `unix:/run/leasehold.sock`
impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Tcp(_, address) => write!(f, "http://{address}"),
            Inner::Unix(_, file) => write!(f, "unix:{}", file.path.display()),
        }
    }
}

/// The file of a Unix socket: removed at the end, unless another process has put its own in its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if id_of(&self.path).is_ok_and(|id| id == self.id) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn id_of(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// One connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
