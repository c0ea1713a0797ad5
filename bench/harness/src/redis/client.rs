//! As much of Redis' protocol as it takes to ask a server how it is.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A server that does not answer for so long is stuck.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A connection.
pub struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects to a server's socket.
    pub fn connect(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a command of plain words; the answer if it is text.
    pub fn ask(&mut self, command: &str) -> std::io::Result<String> {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        let mut head = String::new();
        self.0.read_line(&mut head)?;
        let head = head.trim_end();
        match head.split_at_checked(1) {
            Some(("+" | ":", text)) => Ok(text.into()),
            Some(("$", length)) => {
                let mut text = vec![0; length.parse::<usize>().unwrap_or(0) + 2];
                std::io::Read::read_exact(&mut self.0, &mut text)?;
                Ok(String::from_utf8_lossy(&text).trim_end().into())
            }
            _ => Err(std::io::Error::other(format!("'{command}' was answered by '{head}'"))),
        }
    }
}

/// The number behind `name:` in the answer to INFO.
pub fn field(info: &str, name: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_info() {
        let info = "# Memory\r\nused_memory:1024\r\nused_memory_human:1K\r\n";
        assert_eq!(field(info, "used_memory"), Some(1024));
        assert_eq!(field(info, "used"), None);
    }
}
