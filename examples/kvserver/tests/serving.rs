//! What a client, and a person who starts the server, see of it.

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::{Client, Frame, Server};

fn started(args: &[&str]) -> (tempfile::TempDir, Server) {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(&place.path().join("state"), args);
    (place, server)
}

/// Asks until the line's reply is this one.
fn await_reply(client: &mut Client, line: &str, expected: &str) {
    let since = Instant::now();
    while client.text(line) != expected {
        assert!(since.elapsed() < Duration::from_secs(30), "{line} is not {expected}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn benchmark(server: &Server, args: &[&str]) -> String {
    let out = Command::new("redis-benchmark")
        .arg("-s")
        .arg(server.socket())
        .args(["-q", "-n", "2000", "-c", "8"])
        .args(args)
        .output()
        .expect("redis-benchmark is installed by scripts/setup");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(!text.contains("rror"), "{text}");
    text
}

#[test]
fn the_benchmark_of_redis_runs() {
    let (_place, server) = started(&[]);
    let tests = "ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange,mset";
    for pipeline in ["1", "16"] {
        let text = benchmark(&server, &["-t", tests, "-r", "500", "-P", pipeline]);
        assert_eq!(text.matches("requests per second").count(), 20, "{text}");
    }
}

#[test]
fn the_shell_of_redis_runs() {
    let (_place, server) = started(&[]);
    let run = |args: &[&str]| {
        let out = Command::new("redis-cli").arg("-s").arg(server.socket()).args(args).output();
        let out = out.expect("redis-cli is installed by scripts/setup");
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(run(&["SET", "a b", "1"]), "OK");
    assert_eq!(run(&["--scan"]), "a b");
    assert!(run(&["INFO"]).contains("db0:keys=1"));
    assert_eq!(run(&["COMMAND", "COUNT"]).parse::<usize>().map(|count| count > 100), Ok(true));
    assert!(run(&["-3", "PING"]).ends_with("PONG"), "the older version of the protocol is used");
}

#[test]
fn all_is_there_after_the_end_and_after_a_kill() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("state");
    let mut server = Server::start(&path, &[]);
    assert!(server.greeting.contains("created"), "{}", server.greeting);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::metadata(server.socket()).unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = server.client();
    assert_eq!(client.text("MSET a 1 b 2"), "OK");
    assert_eq!(client.text("SET c 3 PX 1000000"), "OK");
    assert!(server.end());
    assert!(!server.socket().exists());
    let mut server = Server::start(&path, &[]);
    assert!(server.greeting.contains("closed before"), "{}", server.greeting);
    let mut client = server.client();
    assert_eq!(client.text("MGET a b c"), "[1 2 3]");
    assert_eq!(client.integer("DBSIZE"), 3);
    assert!(client.integer("TTL c") > 900);
    assert_eq!(client.text("RPUSH list x y"), "2");
    server.kill();
    let mut server = Server::start(&path, &[]);
    assert!(server.greeting.contains("recovered"), "{}", server.greeting);
    let mut client = server.client();
    assert_eq!(client.text("LRANGE list 0 -1"), "[x y]");
    assert!(client.send(&["SHUTDOWN"]));
    assert_eq!(client.try_receive(), None);
    assert!(server.wait());
    assert!(Server::start(&path, &[]).greeting.contains("closed before"));
}

#[test]
fn a_second_server_of_a_state_is_refused() {
    let (place, server) = started(&[]);
    let out = common::command(&place.path().join("state")).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && text.contains("a process has the state open"), "{text}");
    assert_eq!(server.client().text("PING"), "PONG");
}

#[test]
fn clients_read_while_one_writes() {
    let (_place, server) = started(&["--threads", "3"]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = server.client();
                    let (mut last, mut reads) = (0, 0);
                    while !is_over.load(Relaxed) {
                        let Frame::Array(both) = client.line("MGET one two") else { panic!() };
                        let [one, two] =
                            [0, 1].map(|at| common::text(&both[at]).parse().unwrap_or(0));
                        assert_eq!(one, two, "half of a command");
                        assert!(one >= last, "{one} after {last}");
                        (last, reads) = (one, reads + 1);
                    }
                    reads
                })
            })
            .collect();
        let mut client = server.client();
        for number in 1..=1000 {
            assert_eq!(client.text(&format!("MSET one {number} two {number}")), "OK");
        }
        is_over.store(true, Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
}

/// A transaction that is longer than the log runs again: what its first run has changed is no change of another client.
#[test]
fn a_transaction_that_runs_again_is_no_change_of_what_it_watches() {
    let (_place, server) = started(&["--log-size", "1"]);
    let mut client = server.client();
    let value = vec![b'v'; 5 << 20];
    for _ in 0..2 {
        assert_eq!(client.text("WATCH a"), "OK");
        assert_eq!(client.text("MULTI"), "OK");
        assert_eq!(common::text(&client.call(&[b"SET", &b"a"[..], &value])), "QUEUED");
        assert_eq!(client.text("EXEC"), "[OK]");
    }
    assert_eq!(client.text("STRLEN a"), value.len().to_string());
}

#[test]
fn watched_keys_that_change_undo_a_transaction() {
    let (_place, server) = started(&[]);
    let (mut one, mut other) = (server.client(), server.client());
    let queue = |one: &mut Client| {
        assert_eq!(one.text("MULTI"), "OK");
        assert_eq!(one.text("SET result done"), "QUEUED");
    };
    one.text("SET a 1");
    for (change, is_done) in [
        ("SET b 2", true),
        ("SET a 1", false),
        ("DEL a", false),
        ("SET a 1", false),
        ("FLUSHALL", false),
    ] {
        assert_eq!(one.text("WATCH a"), "OK");
        queue(&mut one);
        other.text(change);
        assert_eq!(one.text("EXEC"), if is_done { "[OK]" } else { "(nil)" }, "{change}");
    }
    // Nothing is watched any more.
    queue(&mut one);
    other.text("SET a 5");
    assert_eq!(one.text("EXEC"), "[OK]");
    // A key that expires has changed.
    one.text("SET a 1 PX 300");
    assert_eq!(one.text("WATCH a"), "OK");
    queue(&mut one);
    await_reply(&mut other, "EXISTS a", "0");
    assert_eq!(one.text("EXEC"), "(nil)");
    // A change of one's own before the keys are watched is none.
    let requests = ["SET a 1", "WATCH a", "MULTI", "INCR a", "EXEC"];
    let bytes: Vec<u8> = requests
        .iter()
        .flat_map(|line| common::encoded(&line.split(' ').collect::<Vec<_>>()))
        .collect();
    one.stream.write_all(&bytes).unwrap();
    let replies: Vec<String> = requests.iter().map(|_| common::text(&one.receive())).collect();
    assert_eq!(replies, ["OK", "OK", "OK", "QUEUED", "[2]"]);
    // The end of a client that watches is not the end of anything.
    one.text("WATCH a");
    drop(one);
    assert_eq!(other.text("INCR a"), "3");
}

#[test]
fn expired_keys_and_deleted_collections_are_removed() {
    let (_place, server) = started(&[]);
    let mut client = server.client();
    for number in 0..500 {
        client.send(&["SET", &format!("key{number}"), "v", "PX", "50"]);
        client.send(&["SADD", "set", &format!("m{number}")]);
    }
    for _ in 0..1000 {
        client.receive();
    }
    assert_eq!(client.integer("SCARD set"), 500);
    assert_eq!(client.integer("DEL set"), 1);
    await_reply(&mut client, "DBSIZE", "0");
    assert!(client.text("INFO stats").contains("expired_keys:500"));
}

#[test]
fn where_the_state_is_full_writes_are_refused_and_reads_go_on() {
    let (_place, server) = started(&["--limit", "32"]);
    let mut client = server.client();
    let value = "v".repeat(100_000);
    let mut keys = 0;
    let refused = loop {
        match client.call(&["SET", &format!("key{keys}"), &value]) {
            Frame::Error(text) => break text,
            _ => keys += 1,
        }
        assert!(keys < 1000, "the state is not full");
    };
    assert!(refused.starts_with("OOM "), "{refused}");
    assert!(keys > 50, "{keys}");
    let long = "w".repeat(200_000);
    let reply = client.call(&["MSET", "small", "1", "large", &long]);
    assert!(matches!(reply, Frame::Error(_)), "{reply:?}");
    assert_eq!(client.integer("EXISTS small large"), 0, "half of a command");
    assert_eq!(client.integer("DBSIZE"), keys);
    assert_eq!(common::text(&client.line("GET key0")), value);
    assert_eq!(client.integer("DEL key0 key1 key2 key3"), 4);
    assert_eq!(client.text("MSET small 1 other 2"), "OK");
    assert_eq!(client.integer("DBSIZE"), keys - 2);
}

#[test]
fn a_client_that_does_not_read_is_read_no_more() {
    let (_place, server) = started(&[]);
    let mut client = server.client();
    let value = "v".repeat(1 << 20);
    client.call(&["SET", "key", &value]);
    let requests = common::encoded(&["GET", "key"]).repeat(1000);
    let mut writer = client.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&requests).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(server.client().text("PING"), "PONG", "others are served");
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kib: u64 = rss.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kib < 200 << 10, "{kib} KiB for replies of 1 GiB");
        for _ in 0..1000 {
            assert_eq!(client.receive(), Frame::BulkString(value.clone().into_bytes()));
        }
        // Nor has it kept what has left.
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kib < 200 << 10, "{kib} KiB at most, for replies of 1 GiB");
    });
}

#[test]
fn what_is_no_request_ends_its_connection_alone() {
    let (_place, server) = started(&[]);
    let mut other = server.client();
    for (bytes, expected) in [
        ("*2000000\r\n", "ERR Protocol error: invalid multibulk length"),
        ("*1\r\n$999999999999\r\n", "ERR Protocol error: invalid bulk length"),
        ("*1\r\nPING\r\n", "ERR Protocol error: expected '$', got 'P'"),
    ] {
        let mut client = server.client();
        assert_eq!(client.text("PING"), "PONG");
        client.stream.write_all(bytes.as_bytes()).unwrap();
        assert_eq!(client.receive(), Frame::Error(expected.to_owned()));
        assert_eq!(client.try_receive(), None);
        assert_eq!(other.text("PING"), "PONG");
    }
    // A line is a request; what follows the last one is thrown away.
    let mut client = server.client();
    client.stream.write_all(b"SET 'a b' \"\\x41\"\r\nGET \"a b\"\nQUIT\r\nGET a").unwrap();
    let replies: Vec<String> = (0..3).map(|_| common::text(&client.receive())).collect();
    assert_eq!(replies, ["OK", "A", "OK"]);
    assert_eq!(client.try_receive(), None);
}

#[test]
fn requests_may_come_in_any_pieces() {
    let (_place, server) = started(&[]);
    let mut client = server.client();
    let bytes: Vec<u8> = [&["SET", "key", "a\r\nb"][..], &["APPEND", "key", "c"], &["GET", "key"]]
        .iter()
        .flat_map(|words| common::encoded(words))
        .collect();
    for split in 0..bytes.len() {
        client.stream.write_all(&bytes[..split]).unwrap();
        // The other part comes by itself, in most cases.
        std::thread::sleep(Duration::from_micros(300));
        client.stream.write_all(&bytes[split..]).unwrap();
        let replies: Vec<String> = (0..3).map(|_| common::text(&client.receive())).collect();
        assert_eq!(replies, ["OK", "5", "a\r\nbc"]);
    }
}

/// Before a state is made.
#[test]
fn a_path_that_is_too_long_for_a_socket_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let long = place.path().join("d".repeat(110));
    let out = common::command(&long).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.code() == Some(2) && said.contains("give a shorter one by --socket"),
        "{said}"
    );
    assert!(!long.exists());
}

#[test]
fn a_password_is_wanted_where_there_is_one() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("state");
    let mut command = common::command(&path);
    command.env("KVSERVER_PASSWORD", "secret").args(["--listen", "127.0.0.1:0"]);
    let server = Server::of(command, &path);
    let mut client = server.client();
    assert_eq!(client.text("GET a"), "NOAUTH Authentication required.");
    assert_eq!(client.text("HELLO 2").split(' ').next(), Some("NOAUTH"));
    assert_eq!(client.text("AUTH wrong").split(' ').next(), Some("WRONGPASS"));
    assert_eq!(client.text("AUTH other secret").split(' ').next(), Some("WRONGPASS"));
    assert_eq!(client.text("AUTH secret"), "OK");
    assert_eq!(client.text("SET a 1"), "OK");
    let mut other = server.client();
    assert!(other.text("HELLO 2 AUTH default secret").contains("standalone"));
    assert_eq!(other.text("GET a"), "1");
    assert_eq!(other.text("HELLO 3").split(' ').next(), Some("NOPROTO"));
    // Without the password no room is made for large requests.
    let mut third = server.client();
    third.stream.write_all(b"*1\r\n$100000\r\n").unwrap();
    assert_eq!(
        third.receive(),
        Frame::Error("ERR Protocol error: unauthenticated bulk length".into())
    );
    // The address is in the greeting.
    let address = server.greeting.trim().rsplit(' ').next().unwrap().to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"AUTH secret\r\nGET a\r\n").unwrap();
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n$1\r\n1\r\n");
    assert!(
        !std::fs::read_to_string(format!("/proc/{}/cmdline", server.pid()))
            .unwrap()
            .contains("secret")
    );
}

fn refused(path: &Path, args: &[&str]) -> String {
    let out = common::command(path).args(args).output().unwrap();
    assert!(!out.status.success());
    String::from_utf8(out.stderr).unwrap()
}

#[test]
fn a_server_that_others_could_use_is_not_started() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("state");
    assert!(refused(&path, &["--listen", "0.0.0.0:0"]).contains("no loopback address"));
    let file = place.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let file = file.to_str().unwrap();
    assert!(refused(&path, &["--requirepass", file]).contains("chmod 600"));
    assert!(!path.exists(), "nothing was made");
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server::start(&path, &["--requirepass", file]);
    assert_eq!(server.client().text("AUTH secret"), "OK");
    // A file that is no socket stays.
    let other = place.path().join("other");
    assert!(refused(&other, &["--socket", file]).contains("no socket"));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "secret\n");
}

#[test]
fn keys_that_are_too_long_are_refused() {
    let (_place, server) = started(&[]);
    let mut client = server.client();
    let long = "k".repeat(70_000);
    for words in [
        &["SET", &long, "1"][..],
        &["SADD", "set", "a", &long],
        &["HSET", "hash", &long, "v"],
        &["ZADD", "z", "1", &long],
    ] {
        let reply = common::text(&client.call(words));
        assert!(reply.starts_with("ERR a key, field or member is longer"), "{reply}");
    }
    assert_eq!(client.call(&["GET", &long]), Frame::Null);
    assert_eq!(client.integer("DBSIZE"), 0, "half of a command");
    let value = "v".repeat(70_000);
    assert_eq!(common::text(&client.call(&["RPUSH", "list", &value])), "1");
}

#[test]
fn what_is_longer_than_the_log_runs_by_itself() {
    let (_place, server) = started(&["--log-size", "1", "--threads", "2"]);
    std::thread::scope(|scope| {
        for name in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client();
                let value = name.to_string().repeat(400_000);
                // Together they are too long for one batch.
                let bytes: Vec<u8> = (0..5)
                    .flat_map(|number| {
                        let key = format!("{name}:{number}");
                        [
                            common::encoded(&["SET", &key, &value]),
                            common::encoded(&["STRLEN", &key]),
                        ]
                    })
                    .flatten()
                    .collect();
                client.stream.write_all(&bytes).unwrap();
                for _ in 0..5 {
                    assert_eq!(client.receive(), Frame::SimpleString(b"OK".to_vec()));
                    assert_eq!(client.receive(), Frame::Integer(400_000));
                }
            });
        }
    });
    let mut client = server.client();
    assert_eq!(client.integer("DBSIZE"), 20);
    // One that is longer than the log has the log grow.
    let value = "v".repeat(5 << 20);
    assert_eq!(common::text(&client.call(&["SET", "large", &value])), "OK");
    assert_eq!(client.integer("STRLEN large"), 5 << 20);
}

#[test]
fn where_the_disk_is_full_writes_are_refused_and_reads_go_on() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("state");
    let value = "v".repeat(100_000);
    let mut keys = 0;
    {
        let mut command = Command::new("prlimit");
        command
            .args(["--fsize=8388608", env!("CARGO_BIN_EXE_kvserver"), "--log-size", "1"])
            .arg(&path);
        let mut server = Server::of(command, &path);
        let mut client = server.client();
        let refused = loop {
            match client.call(&["SET", &format!("key{keys}"), &value]) {
                Frame::Error(text) => break text,
                _ => keys += 1,
            }
            assert!(keys < 1000, "the disk is not full");
        };
        assert!(refused.starts_with("MISCONF "), "{refused}");
        assert!(keys > 50, "{keys}");
        assert_eq!(common::text(&client.line("GET key0")), value);
        assert!(client.text("SET other 1").starts_with("MISCONF "));
        assert_eq!(client.text("PING"), "PONG");
        server.kill();
    }
    let server = Server::start(&path, &[]);
    let mut client = server.client();
    for key in 0..keys {
        assert_eq!(client.integer(&format!("STRLEN key{key}")), 100_000);
    }
}

/// A word of a request that is refused is in the error with its beginning.
#[test]
fn an_error_is_short_whatever_it_names() {
    let (_place, server) = started(&[]);
    let mut client = server.client();
    let long = "\u{fffd}".repeat(1 << 20);
    for words in [
        &["CLIENT", &long][..],
        &["EXPIRE", "key", "1", &long],
        &["HELLO", "2", &long],
        &[&long],
        &["GET", "key", &long],
    ] {
        let reply = client.call(words);
        let Frame::Error(text) = &reply else { panic!("{reply:?}") };
        assert!(text.len() < 1024, "{} bytes", text.len());
        assert_eq!(client.text("PING"), "PONG");
    }
}

/// A server that ends has lost its socket's name to another one.
#[test]
fn a_socket_of_another_server_is_left_alone() {
    let (place, mut server) = started(&[]);
    let socket = server.socket().to_path_buf();
    std::fs::remove_file(&socket).unwrap();
    let second = place.path().join("second");
    let other = Server::start(&second, &["--socket", socket.to_str().unwrap()]);
    assert!(server.end());
    assert_eq!(common::Client::new(&socket).text("PING"), "PONG");
    drop(other);
}

#[test]
fn what_cannot_be_used_ends_with_2() {
    let place = tempfile::tempdir().unwrap();
    let (file, state) = (place.path().join("file"), place.path().join("state"));
    std::fs::write(&file, "mine").unwrap();
    let mut no_socket = common::command(&state);
    no_socket.arg("--socket").arg(&file);
    for mut command in [common::command(&file), no_socket] {
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains("/file"), "{said}");
    }
}
