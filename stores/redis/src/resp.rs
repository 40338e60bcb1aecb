//! The wire protocol of Redis, RESP version 2.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// The longest text that is believed to be an answer; more is a broken server.
const TEXT_BYTES_MAX: usize = 512 << 20;
/// Answers are lists of lists of lists, and no deeper.
const DEPTH_MAX: usize = 8;

/// An answer, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nothing,
    Number(i64),
    /// `OK` and the like, and texts of any bytes.
    Text(Vec<u8>),
    /// The server refused, and says why; the first word is a code.
    Error(String),
    List(Vec<Value>),
}

impl Value {
    /// As text, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// As a number, also if it came as text.
    pub(crate) fn number(&self) -> Option<i64> {
        match self {
            Value::Number(number) => Some(*number),
            other => other.text()?.parse().ok(),
        }
    }

    /// As a list, if it is one.
    pub(crate) fn list(self) -> Option<Vec<Value>> {
        match self {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// As bytes, if it is text.
    pub(crate) fn bytes(self) -> Option<Vec<u8>> {
        match self {
            Value::Text(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// One command as bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Command {
    parts: Vec<Vec<u8>>,
}

impl Command {
    pub(crate) fn new<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Self {
        Command { parts: parts.into_iter().map(|part| part.as_ref().to_vec()).collect() }
    }

    pub(crate) fn push(&mut self, part: impl AsRef<[u8]>) {
        self.parts.push(part.as_ref().to_vec());
    }

    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("*{}\r\n", self.parts.len()).as_bytes());
        for part in &self.parts {
            out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            out.extend_from_slice(part);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Reads one answer.
pub(crate) async fn read(from: &mut (impl AsyncBufRead + Unpin + Send)) -> io::Result<Value> {
    // The lists that are being read, innermost last, each with how many parts are still to come.
    let mut open: Vec<(Vec<Value>, usize)> = Vec::new();
    loop {
        let mut value = match read_head(from).await? {
            Head::Whole(value) => value,
            Head::List(0) => Value::List(Vec::new()),
            Head::List(_) if open.len() >= DEPTH_MAX => return Err(nonsense("lists nested too deeply")),
            Head::List(parts) => {
                open.push((Vec::with_capacity(parts.min(4096)), parts));
                continue;
            }
        };
        loop {
            let Some((list, left)) = open.last_mut() else { return Ok(value) };
            list.push(value);
            *left -= 1;
            if *left > 0 {
                break;
            }
            value = Value::List(open.pop().map(|(list, _)| list).unwrap_or_default());
        }
    }
}

enum Head {
    Whole(Value),
    List(usize),
}

async fn read_head(from: &mut (impl AsyncBufRead + Unpin + Send)) -> io::Result<Head> {
    let mut line = Vec::new();
    // No honest line is longer: texts that may be long come with their length.
    from.take(64 << 10).read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
    }
    let Some(line) = line.strip_suffix(b"\r\n") else { return Err(nonsense("a line without an end")) };
    let Some((kind, rest)) = line.split_first() else { return Err(nonsense("an empty line")) };
    let text = String::from_utf8_lossy(rest).into_owned();
    let number = || text.parse::<i64>().map_err(|_| nonsense("an invalid number"));
    Ok(Head::Whole(match kind {
        b'+' => Value::Text(rest.to_vec()),
        b'-' => Value::Error(text),
        b':' => Value::Number(number()?),
        b'$' => match usize::try_from(number()?) {
            Err(_) => Value::Nothing,
            Ok(bytes) if bytes <= TEXT_BYTES_MAX => Value::Text(read_text(from, bytes).await?),
            Ok(_) => return Err(nonsense("a text of impossible length")),
        },
        b'*' => match usize::try_from(number()?) {
            Err(_) => Value::Nothing,
            Ok(parts) => return Ok(Head::List(parts)),
        },
        _ => {
            return Err(nonsense(
                "something other than the Redis protocol: is this a TLS port, or another kind of server?",
            ));
        }
    }))
}

async fn read_text(from: &mut (impl AsyncBufRead + Unpin + Send), bytes: usize) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(bytes.min(1 << 20));
    from.take(bytes as u64).read_to_end(&mut text).await?;
    let mut end = [0u8; 2];
    from.read_exact(&mut end).await?;
    if text.len() != bytes || end != *b"\r\n" {
        return Err(nonsense("a text without an end"));
    }
    Ok(text)
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server answered with {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn parse(mut bytes: &[u8]) -> io::Result<Value> {
        read(&mut bytes).await
    }

    fn text(text: &str) -> Value {
        Value::Text(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn answers_are_read_as_they_are() {
        let whole = b"*4\r\n+OK\r\n*2\r\n:-7\r\n*0\r\n$3\r\na\r\n\r\n*2\r\n$-1\r\n-ERR no\r\n";
        let inner = Value::List(vec![Value::Number(-7), Value::List(Vec::new())]);
        let last = Value::List(vec![Value::Nothing, Value::Error("ERR no".into())]);
        assert_eq!(
            parse(whole).await.unwrap(),
            Value::List(vec![text("OK"), inner, text("a\r\n").clone(), last])
        );
    }

    #[tokio::test]
    async fn nonsense_is_refused() {
        for bytes in
            [&b"\x15\x03\x01\r\n"[..], b"+OK", b"$5\r\nabc\r\n", b":x\r\n", b"", b"$999999999999\r\n"]
        {
            assert!(parse(bytes).await.is_err(), "{bytes:?}");
        }
        let deep = b"*1\r\n".repeat(100);
        assert!(parse(&deep).await.is_err());
    }

    #[test]
    fn commands_are_written_with_their_lengths() {
        let mut out = Vec::new();
        Command::new(["GET", "a\r\n"]).write_to(&mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n");
    }
}
