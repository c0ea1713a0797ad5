//! Sockets of both kinds.

use std::io::{self, Read, Write};
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::sockopt;

/// How long a client is silent before the system asks whether its machine is still there, as Redis' `tcp-keepalive`.
const SILENCE: Duration = Duration::from_secs(300);
/// Between two such questions; after the third without an answer the client is gone.
const QUESTIONS_EVERY: Duration = Duration::from_secs(100);
const QUESTIONS: u32 = 3;

/// A client's socket.
pub enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A socket that clients come to.
pub enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// The next client, which does not wait for more bytes before it sends some.
    ///
    /// # Errors
    /// The system's; `WouldBlock`: no client waits.
    pub fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener) => Ok(Stream::Unix(listener.accept()?.0)),
            Self::Tcp(listener) => {
                let stream = listener.accept()?.0;
                // The client may have gone already: the first read finds that.
                let _ = stream.set_nodelay(true);
                let _ = keep_alive(&stream);
                Ok(Stream::Tcp(stream))
            }
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Unix(listener) => listener,
            Self::Tcp(listener) => listener,
        }
    }
}

/// A client whose machine was switched off is found, and its place is free again.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, QUESTIONS_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, QUESTIONS)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

impl Stream {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Unix(stream) => stream,
            Self::Tcp(stream) => stream,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

macro_rules! source {
    ($($of:ty)+) => {$(
        impl Source for $of {
            fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
                self.source().register(registry, token, interests)
            }

            fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
                self.source().reregister(registry, token, interests)
            }

            fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
                self.source().deregister(registry)
            }
        }
    )+};
}

source! { Stream Listener }
