use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A stranger's connection to Redis, as a person with redis-cli has.
#[derive(Debug)]
pub struct RedisShell {
    stream: BufReader<TcpStream>,
}

/// What Redis answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisReply {
    /// There is no such thing.
    Nothing,
    /// A number.
    Number(i64),
    /// Text of any bytes.
    Text(Vec<u8>),
    /// A refusal.
    Error(String),
    /// Several answers.
    List(Vec<RedisReply>),
}

impl RedisReply {
    /// As text; of a refusal what it says, of a number its digits.
    pub fn text(&self) -> String {
        match self {
            RedisReply::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            RedisReply::Error(error) => error.clone(),
            RedisReply::Number(number) => number.to_string(),
            RedisReply::Nothing => String::new(),
            RedisReply::List(list) => list.iter().map(RedisReply::text).collect::<Vec<_>>().join(" "),
        }
    }

    /// Its parts, if it is a list.
    pub fn list(&self) -> &[RedisReply] {
        match self {
            RedisReply::List(list) => list,
            _ => &[],
        }
    }
}

impl RedisShell {
    /// Connects, within a second, and waits at most ten for an answer.
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(RedisShell { stream: BufReader::new(stream) })
    }

    /// Asks one thing.
    pub fn ask<P: AsRef<[u8]>>(&mut self, parts: &[P]) -> Result<RedisReply> {
        let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
        for part in parts {
            bytes.extend_from_slice(format!("${}\r\n", part.as_ref().len()).as_bytes());
            bytes.extend_from_slice(part.as_ref());
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes)?;
        self.read()
    }

    fn read(&mut self) -> Result<RedisReply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let nonsense = || Error::new(ErrorKind::InvalidData, "not Redis' protocol");
        let rest = line.get(1..).map(str::trim_end).ok_or_else(nonsense)?;
        let count = rest.parse::<i64>();
        match (line.as_bytes()[0], count) {
            (b'+', _) => Ok(RedisReply::Text(rest.as_bytes().to_vec())),
            (b'-', _) => Ok(RedisReply::Error(rest.to_owned())),
            (b':', Ok(number)) => Ok(RedisReply::Number(number)),
            (b'$' | b'*', Ok(-1)) => Ok(RedisReply::Nothing),
            (b'$', Ok(bytes)) => {
                let mut text = vec![0; bytes as usize + 2];
                self.stream.read_exact(&mut text)?;
                text.truncate(bytes as usize);
                Ok(RedisReply::Text(text))
            }
            (b'*', Ok(parts)) => {
                Ok(RedisReply::List((0..parts).map(|_| self.read()).collect::<Result<_>>()?))
            }
            _ => Err(nonsense()),
        }
    }
}
