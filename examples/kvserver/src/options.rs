//! The command line.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Parser;

/// The variable that has the password.
const PASSWORD: &str = "KVSERVER_PASSWORD";

/// A durable server that speaks Redis' protocol: a write is durable before its reply leaves.
///
/// The server listens on a Unix socket of its directory. It ends by SIGTERM, SIGINT or the command SHUTDOWN, and may be killed at any time.
#[derive(Parser, Debug)]
#[command(name = "kvserver", version)]
pub struct Options {
    /// The directory of the state; it is made if it is not there
    pub directory: PathBuf,
    /// An address to listen on, beside the Unix socket. Others than loopback need a password
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<SocketAddr>,
    /// The Unix socket [default: kvserver.sock in the directory]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// A file whose first line is the password that clients must say. The variable KVSERVER_PASSWORD is another way: other users read the
    /// arguments of a process, and not its environment
    #[arg(long, value_name = "FILE")]
    pub requirepass: Option<PathBuf>,
    /// Threads that serve clients [default: one for each processor but one, which the thread of the log needs]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// The most bytes that the state may have, in MiB
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// A directory for copies of the state: BGSAVE makes one in it, copy-TIME, with the time in milliseconds since 1970
    #[arg(long, value_name = "DIRECTORY")]
    pub copies: Option<PathBuf>,
    /// Bytes of the log, in MiB [default: 64 for a new state; longer on a disk where writes fill it soon]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub log_size: Option<u32>,
}

impl Options {
    pub fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| self.directory.join("kvserver.sock"))
    }

    /// Refuses a path that no socket has.
    ///
    /// # Errors
    /// In words.
    pub fn check_socket(&self) -> Result<(), String> {
        /// Of an address, but for the zero behind it.
        const MOST: usize = 107;
        let socket = self.socket();
        match socket.as_os_str().len() {
            ..=MOST => Ok(()),
            bytes => Err(format!(
                "{}: the path of a socket has {MOST} bytes at most, and this one {bytes}; give a shorter one by --socket",
                socket.display()
            )),
        }
    }

    /// The password that clients must say, if there is one.
    ///
    /// # Errors
    /// In words.
    pub fn password(&self) -> Result<Option<String>, String> {
        let password = match (&self.requirepass, std::env::var_os(PASSWORD)) {
            (Some(path), None) => Some(password_in(path)?),
            (None, Some(password)) => Some(
                password.into_string().map_err(|_| format!("{PASSWORD} is no text in UTF-8"))?,
            ),
            (None, None) => None,
            (Some(_), Some(_)) => {
                return Err(format!("there are two passwords; give --requirepass or {PASSWORD}"));
            }
        };
        if password.as_deref() == Some("") {
            return Err("the password is empty; give one, or none at all".into());
        }
        if password.is_none()
            && let Some(open) = self.listen.iter().find(|address| !address.ip().is_loopback())
        {
            return Err(format!(
                "{open} is no loopback address, and there is no password; give one by --requirepass or {PASSWORD}"
            ));
        }
        Ok(password)
    }
}

fn password_in(path: &Path) -> Result<String, String> {
    let words = |why: std::io::Error| format!("{}: {why}", path.display());
    let mode = std::fs::metadata(path).map_err(words)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(format!(
            "{}: other users may read the password; `chmod 600` it",
            path.display()
        ));
    }
    let text = std::fs::read_to_string(path).map_err(words)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
