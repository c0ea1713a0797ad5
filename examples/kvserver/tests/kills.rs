//! The server is killed at random moments while clients write: nothing that was acknowledged is lost, and a transaction is there as a whole
//! or not at all.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Client, Frame, Server};

const ROUNDS: u32 = 20;
const CLIENTS: usize = 4;

/// What a client was told of its own keys.
#[derive(Clone, Default, Debug)]
struct Told {
    /// The last reply of `INCR`.
    counter: i64,
    /// The last reply of a transaction's first `INCR`.
    pair: i64,
    /// The last reply of a `RPUSH`.
    list: i64,
    /// Members that a sorted set was said to have.
    members: i64,
}

fn number(frame: Option<Frame>) -> Option<i64> {
    match frame? {
        Frame::Integer(number) => Some(number),
        Frame::Array(frames) => number(frames.into_iter().next()),
        other => panic!("{other:?}"),
    }
}

/// Writes until the server has gone.
fn write(socket: &Path, name: usize, told: &mut Told) {
    let mut client = Client::new(socket);
    let mut random = fastrand::Rng::new();
    let key = |what: &str| format!("{what}:{name}");
    loop {
        let done = match random.u8(0..4) {
            0 => {
                let sent = client.send(&["INCR", &key("counter")]);
                sent.then(|| number(client.try_receive())).flatten().map(|now| {
                    assert_eq!(now, told.counter + 1);
                    told.counter = now;
                })
            }
            1 => {
                let mut bytes = Vec::new();
                for words in [
                    &["MULTI"][..],
                    &["INCR", &key("one")],
                    &["HSET", &key("hash"), "field", &(told.pair + 1).to_string()],
                    &["INCR", &key("two")],
                    &["EXEC"],
                ] {
                    bytes.extend_from_slice(&common::encoded(words));
                }
                let sent = std::io::Write::write_all(&mut client.stream, &bytes).is_ok();
                let replies = (0..4).all(|_| sent && client.try_receive().is_some());
                replies.then(|| number(client.try_receive())).flatten().map(|now| {
                    assert_eq!(now, told.pair + 1);
                    told.pair = now;
                })
            }
            2 => {
                let sent = client.send(&["RPUSH", &key("list"), &told.list.to_string()]);
                sent.then(|| number(client.try_receive())).flatten().map(|now| {
                    assert_eq!(now, told.list + 1);
                    told.list = now;
                })
            }
            _ => {
                let member = told.members.to_string();
                let sent = client.send(&["ZADD", &key("sorted"), &member, &member]);
                sent.then(|| number(client.try_receive())).flatten().map(|fresh| {
                    // One that was not acknowledged may be there.
                    assert!((0..=1).contains(&fresh));
                    told.members += 1;
                })
            }
        };
        if done.is_none() {
            return;
        }
    }
}

/// A number that was acknowledged, or that of the one command that was not.
fn check(what: &str, told: &mut i64, found: i64) {
    assert!((*told..=*told + 1).contains(&found), "{what}: {found} after {told}");
    *told = found;
}

fn check_all(client: &mut Client, name: usize, told: &mut Told) {
    let mut get = |line: String| match client.line(&line) {
        Frame::Null => 0,
        other => common::text(&other).parse::<i64>().expect("a number"),
    };
    check("counter", &mut told.counter, get(format!("GET counter:{name}")));
    let one = get(format!("GET one:{name}"));
    assert_eq!(one, get(format!("GET two:{name}")), "half of a transaction");
    assert_eq!(one, get(format!("HGET hash:{name} field")), "half of a transaction");
    check("transaction", &mut told.pair, one);
    let len = get(format!("LLEN list:{name}"));
    check("list", &mut told.list, len);
    let members = get(format!("ZCARD sorted:{name}"));
    let above = get(format!("ZCOUNT sorted:{name} -inf +inf"));
    assert_eq!(members, above, "half of a sorted set's member");
    check("sorted set", &mut told.members, members);
    let list = client.text(&format!("LRANGE list:{name} 0 -1"));
    let expected: Vec<String> = (0..len).map(|element| element.to_string()).collect();
    assert_eq!(list, format!("[{}]", expected.join(" ")));
}

fn killed(directory: &Path) {
    let mut told = vec![Told::default(); CLIENTS];
    let mut random = fastrand::Rng::new();
    for round in 0..ROUNDS {
        let mut server = Server::start(directory, &[]);
        assert_eq!(server.greeting.contains("created"), round == 0, "{}", server.greeting);
        let mut client = server.client();
        for (name, told) in told.iter_mut().enumerate() {
            check_all(&mut client, name, told);
        }
        let socket = server.socket().to_owned();
        std::thread::scope(|scope| {
            for (name, told) in told.iter_mut().enumerate() {
                let socket = &socket;
                scope.spawn(move || write(socket, name, told));
            }
            std::thread::sleep(Duration::from_millis(random.u64(5..150)));
            server.kill();
        });
    }
    assert!(told.iter().all(|told| told.counter > 0 && told.pair > 0), "{told:?}");
}

#[test]
fn nothing_that_was_acknowledged_is_lost_by_kills() {
    let place = tempfile::tempdir().unwrap();
    killed(&place.path().join("state"));
}

#[test]
fn nothing_is_lost_in_memory_either() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    killed(&place.path().join("state"));
}
