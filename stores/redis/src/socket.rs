//! A connection to one server: a stream, encrypted or not, that has logged in.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::error::RedisError;
use crate::options::{Login, ServerAddress};
use crate::resp::{self, Command, Value};
use crate::tls::Tls;

/// Bytes to and from a server.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection that sends one request at a time.
pub(crate) struct Socket {
    pub(crate) stream: BufReader<Box<dyn Duplex>>,
    pub(crate) spot: ServerAddress,
    /// Both sides agree on TLS or no TLS: the server answered before, or the handshake is done.
    understood: bool,
}

impl Socket {
    /// Connects, encrypts within `patience`, and logs in. The caller bounds the time of the whole, which is longer.
    pub(crate) async fn open(
        spot: &ServerAddress,
        tls: Option<&Tls>,
        login: &Login,
        patience: Duration,
    ) -> Result<Self, RedisError> {
        let unreachable = |e: io::Error| RedisError::broken(&e, spot);
        let tcp = TcpStream::connect((spot.host.as_str(), spot.port)).await.map_err(unreachable)?;
        tcp.set_nodelay(true).map_err(unreachable)?;
        let stream: Box<dyn Duplex> = match tls {
            None => Box::new(tcp),
            Some(tls) => {
                let name = tls.name.clone().unwrap_or_else(|| spot.host.clone());
                let name = ServerName::try_from(name).map_err(|_| {
                    RedisError::Refused(format!("{spot}: a certificate cannot carry this name"))
                })?;
                match tokio::time::timeout(patience, tls.connector.connect(name, tcp)).await {
                    Ok(stream) => Box::new(stream.map_err(unreachable)?),
                    // Without TLS, Redis waits for the end of a line which never comes.
                    Err(_) => return Err(RedisError::no_handshake(spot, patience)),
                }
            }
        };
        let stream = BufReader::with_capacity(64 << 10, stream);
        let mut socket = Socket { stream, spot: spot.clone(), understood: tls.is_some() };
        socket.log_in(login).await?;
        Ok(socket)
    }

    async fn log_in(&mut self, login: &Login) -> Result<(), RedisError> {
        let mut commands = Vec::new();
        if let Some(password) = &login.password {
            let mut auth = Command::new(["AUTH"]);
            login.user.iter().for_each(|user| auth.push(user));
            auth.push(password.current().reveal());
            commands.push(auth);
        }
        if login.db > 0 {
            commands.push(Command::new(["SELECT", &login.db.to_string()]));
        }
        for answer in self.ask(&commands).await? {
            if let Value::Error(error) = answer {
                return Err(RedisError::said(&error, &self.spot));
            }
        }
        Ok(())
    }

    /// Sends commands and reads one answer to each.
    pub(crate) async fn ask(&mut self, commands: &[Command]) -> Result<Vec<Value>, RedisError> {
        self.send(commands).await?;
        let mut answers = Vec::with_capacity(commands.len());
        for _ in commands {
            answers.push(self.read().await?);
        }
        Ok(answers)
    }

    /// Sends commands without waiting for answers.
    pub(crate) async fn send(&mut self, commands: &[Command]) -> Result<(), RedisError> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| command.write_to(&mut bytes));
        let written = async {
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await
        };
        written.await.map_err(|e| RedisError::broken(&e, &self.spot))
    }

    /// Reads one answer, or one message of a subscription.
    pub(crate) async fn read(&mut self) -> Result<Value, RedisError> {
        match resp::read(&mut self.stream).await {
            Ok(answer) => {
                self.understood = true;
                Ok(answer)
            }
            Err(error) if self.understood => Err(RedisError::broken(&error, &self.spot)),
            Err(error) => Err(RedisError::not_in_the_clear(&error, &self.spot)),
        }
    }
}

/// Bounds a future in time.
pub(crate) async fn within<T>(
    time: Duration,
    what: &str,
    work: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    match tokio::time::timeout(time, work).await {
        Ok(done) => done,
        Err(_) => Err(RedisError::TimedOut(format!("{what} within {time:?}"))),
    }
}
