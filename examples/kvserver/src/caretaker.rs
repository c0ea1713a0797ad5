//! The caretaker: a thread that removes expired keys and the elements of deleted collections, in slices. Where the disk was full it looks for
//! room, and then has the server open the state anew.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use spandrel::durable::Durable;

use crate::commands::Context;
use crate::keyspace::records;
use crate::keyspace::state::State;
use crate::reply::Out;
use crate::server::Server;

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(100);
/// The most records of a slice: commands of clients wait for no more than these.
const SLICE: usize = 200;
/// The signal that has the main thread open the state anew, if the server says so.
pub const REOPEN: i32 = signal_hook::consts::SIGUSR2;
/// The state is not opened again sooner.
const PAUSE: Duration = Duration::from_secs(5);
/// Bytes that a disk has free, beside the length of the log, before the state is opened anew.
const MARGIN: u64 = 16 << 20;

/// Whether the disk has room for what is in the log, and some more.
fn has_room(directory: &Path) -> bool {
    let log = fs::metadata(directory.join("log")).map_or(0, |log| log.len());
    rustix::fs::statvfs(directory)
        .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= log + MARGIN)
}

/// Works until the server ends; the end wakes the thread.
pub fn run(server: &Server, db: &Durable<State>) {
    let mut client = db.client();
    while !server.is_ending() {
        let now = server.time();
        let mut more = client.read(|data| records::needs_cleaning(data, now));
        while more && !server.is_ending() {
            let cleaned = client.write(|data| {
                let mut context = Context::new(server, now, 0, Out::default());
                let more = records::clean(&mut context, data, SLICE);
                (more, context.keys)
            });
            if let Err(why) = &cleaned {
                server.note_refusal(why);
            }
            // What is refused now is tried again after a period.
            let (cleaned, keys) = cleaned.map_or((Ok(false), 0), |cleaned| cleaned);
            server.keys.fetch_add(keys, Relaxed);
            server.expired.fetch_add(keys.unsigned_abs(), Relaxed);
            more = cleaned.unwrap_or(false);
        }
        let is_time = server.is_full.load(Relaxed) && server.started.elapsed() > PAUSE;
        if is_time && has_room(&server.directory) && !server.reopens.swap(true, Relaxed) {
            // The main thread waits for it. Without it the next period tries again.
            let woken = signal_hook::low_level::raise(REOPEN);
            server.reopens.store(woken.is_ok(), Relaxed);
        }
        thread::park_timeout(PERIOD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn room_is_found_in_a_directory_of_any_name() {
        let place = tempfile::tempdir().expect("a directory");
        let odd = place.path().join(OsStr::from_bytes(b"\xff"));
        fs::create_dir(&odd).expect("a directory");
        assert_eq!(has_room(&odd), has_room(place.path()));
        assert!(!has_room(&place.path().join("missing")));
    }
}
