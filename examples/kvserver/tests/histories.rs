//! The server is killed at random moments, also while it starts, under clients that run commands and transactions on the same keys. Their history, with what was not acknowledged
//! as a maybe, is linearizable across the restarts.
//!
//! `SPANDREL_SOAK` says how often it is killed: 200 times in CI.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Client, Frame, Server, encoded};
use spandrel_histories::{Command, History, Work, judge, now};

const CLIENTS: u64 = 4;

fn kills() -> u64 {
    std::env::var("SPANDREL_SOAK").map_or(200, |kills| kills.parse().unwrap())
}

/// A command in the words of Redis.
fn words(command: &Command) -> Vec<&str> {
    let mut words = command.words();
    words[0] = match words[0] {
        "len" => "STRLEN",
        name => name,
    };
    words
}

fn result(frame: &Frame) -> Option<String> {
    match frame {
        Frame::Null => None,
        Frame::Error(why) => panic!("{why}"),
        other => Some(common::text(other)),
    }
}

/// The results of a call. `None`: the server has gone.
fn call(client: &mut Client, commands: &[Command]) -> Option<Vec<Option<String>>> {
    if let [command] = commands {
        return client
            .send(&words(command))
            .then(|| client.try_receive())
            .flatten()
            .map(|r| vec![result(&r)]);
    }
    let mut bytes = encoded(&["MULTI"]);
    commands.iter().for_each(|command| bytes.extend(encoded(&words(command))));
    bytes.extend(encoded(&["EXEC"]));
    std::io::Write::write_all(&mut client.stream, &bytes).ok()?;
    for _ in 0..=commands.len() {
        client.try_receive()?;
    }
    match client.try_receive()? {
        Frame::Array(frames) => Some(frames.iter().map(result).collect()),
        other => panic!("{other:?}"),
    }
}

/// Calls until the server has gone.
fn work(socket: &Path, history: &History, mut work: Work, name: u64) {
    let Ok(stream) = std::os::unix::net::UnixStream::connect(socket) else { return };
    let mut client = Client::of(stream);
    loop {
        let commands = work.next_call();
        let open = history.call(name, &commands);
        let Some(results) = call(&mut client, &commands) else { return };
        history.returned(open, now(), &results);
    }
}

fn judged(directory: &Path, kills: u64) {
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
    let mut client = server.client();
    for command in Work::reads_of_all(kills) {
        let commands = [command];
        let open = history.call(0, &commands);
        let results = call(&mut client, &commands).unwrap();
        history.returned(open, now(), &results);
    }
    let figures = judge(&path).expect_linearizable();
    println!("{kills} kills: {figures}");
    let calls: u64 =
        figures.split("linearizable: ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(calls > kills * 20, "{figures}");
}

#[test]
fn of_a_server_on_a_disk() {
    let place = tempfile::tempdir().unwrap();
    judged(&place.path().join("state"), kills() / 2);
}

#[test]
fn of_a_server_in_memory() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    judged(&place.path().join("state"), kills() - kills() / 2);
}
