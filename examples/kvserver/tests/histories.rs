//! The server is killed at random moments, also while it starts, under clients that run commands and transactions on the same keys. Their history, with what was not acknowledged
//! as a maybe, is linearizable across the restarts.
//!
//! `SPANDREL_SOAK` says how often it is killed: 200 times in CI.

mod common;

use std::path::Path;
use std::time::Duration;

use common::Server;
use spandrel_histories::resp::{judged, work};
use spandrel_histories::{History, Work};

const CLIENTS: u64 = 4;

fn kills() -> u64 {
    std::env::var("SPANDREL_SOAK").map_or(200, |kills| kills.parse().unwrap())
}

fn is_linearizable(directory: &Path, kills: u64) {
    let path = directory.with_extension("history");
    let history = History::open(&path);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..kills {
        // Some end before they listen: in recovery.
        if random.u8(..4) == 0 {
            let mut starting =
                common::command(directory).stdout(std::process::Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
            starting.kill().unwrap();
            starting.wait().unwrap();
            history.crash();
            continue;
        }
        let mut server = Server::start(directory, &[]);
        let socket = server.socket().to_owned();
        std::thread::scope(|scope| {
            for name in 0..CLIENTS {
                let (socket, history) = (&socket, &history);
                scope.spawn(move || work(socket, history, Work::new(seed, name, round), name));
            }
            std::thread::sleep(Duration::from_micros(random.u64(2_000..60_000)));
            server.kill();
        });
        history.crash();
    }
    let server = Server::start(directory, &[]);
    let calls = judged(&mut server.client(), &history, &path, kills);
    assert!(calls > kills * 20, "{calls}");
}

#[test]
fn of_a_server_on_a_disk() {
    let place = tempfile::tempdir().unwrap();
    is_linearizable(&place.path().join("state"), kills() / 2);
}

#[test]
fn of_a_server_in_memory() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    is_linearizable(&place.path().join("state"), kills() - kills() / 2);
}
