//! `kvserver`: a durable server that speaks Redis' protocol. A write is durable before its reply leaves; reads run beside each other at the
//! speed of memory.
//!
//! ```text
//!  net        sockets, requests, rounds of commands
//!  commands   a file for each family
//!  keyspace   keys of five types as records of one ordered map, which is the durable state
//! ```
//!
//! The state is [`spandrel::durable`]; nothing here writes to a file.

/// Writes a line to the standard output. A pipe that nothing reads any more does not end the server.
macro_rules! say {
    ($($words:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{}\n", format_args!($($words)*)));
    }};
}

/// As [`say`], to the standard output of errors.
macro_rules! complain {
    ($($words:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($words)*)));
    }};
}

mod caretaker;
mod commands;
#[cfg(any(test, feature = "fuzzing"))]
pub mod exercise;
mod glob;
mod keyspace;
mod net;
mod numbers;
mod options;
mod reply;
mod run;
mod saves;
mod server;
mod watched;

pub use run::main;
