//! Clients beside commands that take long.

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
