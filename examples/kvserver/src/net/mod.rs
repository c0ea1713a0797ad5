//! The server's side of its sockets: requests of many connections become rounds of commands, and replies leave when their round is durable.
//!
//! ```text
//!  acceptor (a thread)   listeners -> connections, dealt to the workers in turn
//!  worker (a thread each) epoll -> bytes -> requests -> steps of all ready connections -> one round -> replies
//! ```

pub mod acceptor;
mod connection;
mod inline;
pub mod protocol;
mod round;
pub mod session;
pub mod stream;
pub mod worker;
