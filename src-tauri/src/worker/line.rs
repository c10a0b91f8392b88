//! Lines of JSON on a connection, and the hello that each side says first.
//!
//! Worker and clients read and write without a runtime, a supervisor with one, so there are two ways to do both. Nothing here
//! knows what the lines mean.

use std::io::{self, BufRead, ErrorKind, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};

/// Version of what worker, supervisor and clients say to each other.
pub const PROTOCOL_VERSION: u32 = 1;

/// Most bytes of a line, its end left out: 16 MiB.
pub const LINE_LIMIT: usize = 16 << 20;

/// A line could not be read, written or understood.
#[derive(Debug, Error)]
pub enum LineError {
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("the connection ended inside a line")]
    CutShort,
    #[error("a line is longer than {LINE_LIMIT} bytes")]
    TooLong,
    #[error("a line cannot be understood: {0}")]
    NotUnderstood(#[from] serde_json::Error),
    #[error("the other side does not say hello as fermata does")]
    NoHello,
    #[error(
        "the other side speaks version {theirs} of the protocol, this program version {ours}; use one fermata for both"
    )]
    OtherVersion { theirs: u64, ours: u32 },
}

/// Who is at one end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Worker,
    Supervisor,
    Client,
}

/// The first line of each side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub fermata_protocol: u32,
    pub role: Role,
    /// By which a supervisor knows the worker that it has started.
    pub token: Option<String>,
}

impl Hello {
    pub fn of(role: Role) -> Self {
        Self { fermata_protocol: PROTOCOL_VERSION, role, token: None }
    }

    pub fn of_worker(token: String) -> Self {
        Self { token: Some(token), ..Self::of(Role::Worker) }
    }

    /// Reads a hello; its version first, since all else may differ in another one.
    ///
    /// # Errors
    /// [`LineError::OtherVersion`], or [`LineError::NoHello`].
    pub fn from_line(line: &[u8]) -> Result<Self, LineError> {
        let hello: serde_json::Value = serde_json::from_slice(line).map_err(|_| LineError::NoHello)?;
        let theirs = hello.get("fermata_protocol").and_then(serde_json::Value::as_u64).ok_or(LineError::NoHello)?;
        if theirs != u64::from(PROTOCOL_VERSION) {
            return Err(LineError::OtherVersion { theirs, ours: PROTOCOL_VERSION });
        }
        serde_json::from_value(hello).map_err(|_| LineError::NoHello)
    }
}

/// A value as a line, its end included.
///
/// # Errors
/// When the value has no JSON form or is too long.
pub fn encode(value: &impl Serialize) -> Result<Vec<u8>, LineError> {
    let mut line = serde_json::to_vec(value)?;
    if line.len() > LINE_LIMIT {
        return Err(LineError::TooLong);
    }
    line.push(b'\n');
    Ok(line)
}

/// What a line says.
///
/// # Errors
/// [`LineError::NotUnderstood`].
pub fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, LineError> {
    Ok(serde_json::from_slice(line)?)
}

/// The next line without its end, waiting for it; `None` when the other side has closed.
///
/// # Errors
/// When the connection fails or ends inside a line, or the line is too long. It is then of no more use.
pub fn read_line(reader: &mut impl BufRead) -> Result<Option<Vec<u8>>, LineError> {
    let mut line = Vec::new();
    loop {
        let bytes = match reader.fill_buf() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        let part = Part::of(bytes);
        line.extend_from_slice(&bytes[..part.n_line_bytes]);
        reader.consume(part.n_used);
        if let Some(complete) = part.outcome(&mut line)? {
            return Ok(complete);
        }
    }
}

/// As [`read_line`]. What was read is lost if the future is dropped before it is done.
///
/// # Errors
/// As [`read_line`].
pub async fn read_line_async(reader: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Vec<u8>>, LineError> {
    let mut line = Vec::new();
    loop {
        let bytes = reader.fill_buf().await?;
        let part = Part::of(bytes);
        line.extend_from_slice(&bytes[..part.n_line_bytes]);
        reader.consume(part.n_used);
        if let Some(complete) = part.outcome(&mut line)? {
            return Ok(complete);
        }
    }
}

/// What some bytes add to a line.
struct Part {
    n_line_bytes: usize,
    /// With the line's end, if it is there.
    n_used: usize,
}

impl Part {
    fn of(bytes: &[u8]) -> Self {
        match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => Self { n_line_bytes: end, n_used: end + 1 },
            None => Self { n_line_bytes: bytes.len(), n_used: bytes.len() },
        }
    }

    /// `None` while the line goes on.
    fn outcome(&self, line: &mut Vec<u8>) -> Result<Option<Option<Vec<u8>>>, LineError> {
        if line.len() > LINE_LIMIT {
            return Err(LineError::TooLong);
        }
        match (self.n_used, self.n_line_bytes < self.n_used) {
            (0, _) if line.is_empty() => Ok(Some(None)),
            (0, _) => Err(LineError::CutShort),
            (_, true) => Ok(Some(Some(std::mem::take(line)))),
            (_, false) => Ok(None),
        }
    }
}

/// Writes a value as a line, to the operating system.
///
/// # Errors
/// When it has no JSON form, is too long, or the connection fails.
pub fn write_line(writer: &mut impl Write, value: &impl Serialize) -> Result<(), LineError> {
    writer.write_all(&encode(value)?)?;
    Ok(writer.flush()?)
}

/// As [`write_line`].
///
/// # Errors
/// As [`write_line`].
pub async fn write_line_async(writer: &mut (impl AsyncWrite + Unpin), value: &impl Serialize) -> Result<(), LineError> {
    writer.write_all(&encode(value)?).await?;
    Ok(writer.flush().await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn lines_of(bytes: &[u8]) -> Vec<Result<Option<Vec<u8>>, LineError>> {
        // Three bytes at a time, so that lines cross the buffer's end.
        let mut reader = BufReader::with_capacity(3, bytes);
        let mut lines = Vec::new();
        loop {
            let line = read_line(&mut reader);
            let is_last = !matches!(line, Ok(Some(_)));
            lines.push(line);
            if is_last {
                return lines;
            }
        }
    }

    #[test]
    fn lines_come_back_and_then_the_end() {
        let lines = lines_of(b"first\n\nthird\n");
        let texts: Vec<_> = lines.into_iter().map(|line| line.unwrap()).collect();
        assert_eq!(texts, [Some(b"first".to_vec()), Some(Vec::new()), Some(b"third".to_vec()), None]);
    }

    #[test]
    fn a_half_line_is_no_line() {
        assert!(matches!(lines_of(b"first\nsec")[1], Err(LineError::CutShort)));
    }

    #[test]
    fn a_line_without_end_is_given_up_at_the_limit() {
        let mut endless = BufReader::new(std::io::repeat(b'x'));
        assert!(matches!(read_line(&mut endless), Err(LineError::TooLong)));
    }

    #[test]
    fn both_ways_of_reading_agree() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut reader = tokio::io::BufReader::with_capacity(3, &b"first\nsec"[..]);
        runtime.block_on(async {
            assert_eq!(read_line_async(&mut reader).await.unwrap(), Some(b"first".to_vec()));
            assert!(matches!(read_line_async(&mut reader).await, Err(LineError::CutShort)));
            let mut written = Vec::new();
            write_line_async(&mut written, &7).await.unwrap();
            assert_eq!(written, b"7\n");
        });
    }

    #[test]
    fn a_hello_comes_back() {
        let hello = Hello::of_worker("abc".to_owned());
        let mut line = Vec::new();
        write_line(&mut line, &hello).unwrap();
        assert_eq!(line, b"{\"fermata_protocol\":1,\"role\":\"worker\",\"token\":\"abc\"}\n");
        assert_eq!(Hello::from_line(&line).unwrap(), hello);
    }

    #[test]
    fn another_version_is_named_beside_ours_whatever_else_the_line_holds() {
        let error = Hello::from_line(b"{\"fermata_protocol\":2,\"part\":\"new\"}").unwrap_err();
        assert!(matches!(error, LineError::OtherVersion { theirs: 2, ours: 1 }));
        assert!(error.to_string().contains("version 2") && error.to_string().contains("version 1"), "{error}");
    }

    #[test]
    fn what_is_no_hello_is_told_as_such() {
        for line in ["", "GET / HTTP/1.1", "{}", "[]", "{\"fermata_protocol\":1,\"role\":\"king\"}"] {
            assert!(matches!(Hello::from_line(line.as_bytes()), Err(LineError::NoHello)), "{line}");
        }
    }
}
