//! Clients beside commands that take long.

use std::io::Write as _;

use spandrel_histories::resp::encoded;

use super::*;

/// Clients that connect while a script works for long are of the process: none of their bytes is in the state, and nothing of them is left.
#[test]
fn a_long_script_leaves_no_clients() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let used = |client: &mut Client| -> u64 {
        let info = client.text("INFO memory");
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        line.trim().parse().unwrap()
    };
    let mut before = None;
    for round in 0..4 {
        let mut server = Server::durable_with(place.path(), &["--lua-time-limit", "5"]);
        let mut client = server.client();
        let now = used(&mut client);
        let least = *before.get_or_insert(now);
        assert!(now < least + (1 << 20), "round {round}: {least} {now}");
        let script = "redis.call('INCR', 'n') local t = redis.call('TIME')[1] while redis.call('TIME')[1] - t < 2 do end return 1";
        assert!(client.send(&["EVAL", script, "0"]));
        std::thread::sleep(Duration::from_millis(100));
        let mut others: Vec<Client> = (0..100).map(|_| server.client()).collect();
        for other in &mut others {
            assert!(other.send(&["AUTH", "a-word-that-is-no-ones"]));
            assert!(other.send(&["SET", "key", &"x".repeat(30_000)]));
            assert!(other.try_receive().is_some() && other.try_receive().is_some());
        }
        client.receive();
        assert_eq!(client.text("SET last 1"), "OK");
        server.kill();
        for file in ["state", "log"] {
            let bytes = std::fs::read(place.path().join("state").join(file)).unwrap();
            let word = b"a-word-that-is-no-ones";
            assert!(!bytes.windows(word.len()).any(|part| part == word), "{file}");
        }
    }
    let server = Server::durable(place.path());
    assert_eq!(server.client().text("GET n"), "4");
}

/// What one client is to be told is told when it is durable, also where another client's command takes long in the same turn of the server's loop.
#[test]
fn a_long_command_acknowledges_nothing_of_its_turn() {
    const SCRIPT: &str = "redis.call('INCR', 'n') redis.call('PUBLISH', 'channel', 'x') local t = redis.call('TIME')[1] while redis.call('TIME')[1] - t < 3 do end return 1";
    for place in places() {
        for (key, long) in [("a", &["EVAL", SCRIPT, "0"][..]), ("b", &["DEBUG", "RELOAD"])] {
            let mut server = Server::durable_with(place.path(), &["--lua-time-limit", "5"]);
            let [mut busy, mut writer, mut other, mut reader] = [(); 4].map(|()| server.client());
            reader.call(&["SUBSCRIBE", "channel"]);
            // Both requests are there when the server looks again.
            assert!(busy.send(&["DEBUG", "SLEEP", "1"]));
            std::thread::sleep(Duration::from_millis(500));
            assert!(writer.send(&["SET", key, "1"]) && other.send(long));
            assert!(busy.try_receive().is_some());
            let begun = Instant::now();
            // What has been published is durable, too.
            let was_published = key == "a" && reader.try_receive().is_some();
            let reply = writer.try_receive();
            let waited = begun.elapsed();
            server.kill();
            assert!(matches!(reply, Some(Frame::SimpleString(_))), "{key}: {reply:?}");
            let server = Server::durable(place.path());
            let mut client = server.client();
            let found = client.text(&format!("GET {key}"));
            assert_eq!(found, "1", "{long:?}: it was acknowledged after {waited:?}");
            assert!(!was_published || client.text("GET n") == "1");
        }
    }
}

/// A script that does not end, in the same turn as a write, is ended by a client that has to be answered first, as in a server without Spandrel.
#[test]
fn a_script_that_does_not_end_is_ended() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut server = Server::durable_with(place.path(), &["--lua-time-limit", "5"]);
    let mut other = server.client();
    let requests = [encoded(&["SET", "a", "1"]), encoded(&["EVAL", "while true do end", "0"])];
    other.stream.write_all(&requests.concat()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut operator = server.client();
    assert!(operator.text("GET a").starts_with("BUSY"), "it is told so");
    assert!(matches!(operator.call(&["HELLO", "2"]), Frame::Array(_)));
    assert_eq!(operator.text("SCRIPT KILL"), "OK");
    assert_eq!(text(&other.receive()), "OK");
    assert!(text(&other.receive()).contains("Script killed"));
    server.kill();
    let server = Server::durable(place.path());
    assert_eq!(server.client().text("GET a"), "1");
}

/// Lists whose middle is compressed are as they were after they were only read, and the server was killed.
#[test]
fn compressed_lists_are_read_without_a_change() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let more = ["--list-compress-depth", "1", "--list-max-listpack-size", "4"];
    let values = |round: usize| (0..200).map(move |at| format!("{at} {round} ").repeat(30));
    let mut digest: Option<String> = None;
    for round in 0..5 {
        let mut server = Server::durable_with(place.path(), &more);
        let mut client = server.client();
        if let Some(digest) = digest {
            assert_eq!(client.text("DEBUG DIGEST"), digest, "round {round}");
        }
        let push = ["RPUSH".to_owned(), format!("list{round}")].into_iter().chain(values(round));
        client.call(&push.collect::<Vec<_>>());
        for list in 0..=round {
            let name = format!("list{list}");
            let found = client.call(&["LRANGE", &name, "0", "-1"]);
            let Frame::Array(found) = found else { panic!("{found:?}") };
            let expected = values(list).map(|value| Frame::BulkString(value.into_bytes()));
            assert_eq!(found, expected.collect::<Vec<_>>(), "round {round}");
            client.call(&["LINDEX", &name, "77"]);
        }
        client.line("SET key value");
        digest = Some(client.text("DEBUG DIGEST"));
        client.line("LINDEX list0 100");
        // What readers have stored by the way becomes durable within seconds.
        std::thread::sleep(Duration::from_secs(if round == 0 { 4 } else { 0 }));
        server.kill();
    }
}
