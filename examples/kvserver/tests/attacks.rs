//! Clients that ask for too much, a page of a browser that speaks to the server, descriptors and disks that run out.

mod common;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Client, Frame, Server, text};

/// A server of a process that may have that many open files.
fn limited(directory: &Path, files: u32) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_kvserver")]).arg(directory);
    command.args(["--threads", "2", "--log-size", "1"]).env_remove("KVSERVER_PASSWORD");
    command
}

#[test]
fn a_reply_without_end_is_an_error() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let server = Server::start(&place.path().join("state"), &[]);
    let mut client = server.client();
    let value = vec![b'v'; 4 << 20];
    assert_eq!(client.call(&[b"SET", &b"long"[..], &value]), Frame::SimpleString(b"OK".to_vec()));
    let error = "ERR the reply is longer than 1 GiB; ask for less at a time";
    let mut request = vec!["MGET"];
    request.resize(400, "long");
    assert_eq!(text(&client.call(&request)), error);
    assert_eq!(text(&client.call(&[b"SADD", &b"set"[..], &value[..60_000]])), "1");
    assert_eq!(client.text("SRANDMEMBER set -100000"), error);
    // In a transaction writes are made, and their replies are left out when there are too many.
    assert_eq!(client.text("MULTI"), "OK");
    for _ in 0..300 {
        assert_eq!(
            client.call(&[&b"SET"[..], b"long", b"short", b"NX", b"GET"]),
            Frame::SimpleString(b"QUEUED".to_vec())
        );
    }
    for line in ["GET long", "INCR counter", "GETSET long short"] {
        assert_eq!(client.text(line), "QUEUED");
    }
    // The end of the reply is enough.
    assert!(client.send(&["EXEC"]));
    let expected = "-ERR the reply of the transaction is too long\r\n:1\r\n-ERR the command was run, but the reply of the transaction is too long\r\n";
    let (mut end, mut room) = (Vec::new(), vec![0; 1 << 20]);
    while !end.ends_with(expected.as_bytes()) {
        let count = client.stream.read(&mut room).unwrap();
        assert!(count > 0, "the server is there");
        end.extend_from_slice(&room[..count]);
        let kept = end.len().saturating_sub(expected.len());
        end.drain(..kept);
    }
    assert_eq!(client.text("GET long"), "short");
}

/// Watched keys and names of clients are memory of the server.
#[test]
fn what_a_client_watches_and_is_called_is_bounded() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let server = Server::start(&place.path().join("state"), &[]);
    let (mut client, mut other) = (server.client(), server.client());
    let long = vec![b'k'; 70_000];
    assert!(text(&client.call(&[&b"WATCH"[..], &long])).starts_with("ERR a key, field or member"));
    let keys: Vec<String> = (0..1_000_000).map(|number| format!("key{number}")).collect();
    let words: Vec<&str> = ["WATCH"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    let begun = Instant::now();
    let refused = "ERR too many keys are watched; UNWATCH, or EXEC first";
    assert_eq!(text(&client.call(&words)), refused);
    // As many as there may be, and a client beside them.
    assert_eq!(text(&client.call(&words[..65_000])), "OK");
    assert_eq!(other.text("PING"), "PONG");
    assert_eq!(text(&client.call(&words[..2000])), refused);
    assert_eq!(client.text("UNWATCH"), "OK");
    assert_eq!(text(&client.call(&words[..2000])), "OK");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let name = vec![b'n'; 1 << 20];
    let refused = "ERR Client names cannot be that long.";
    assert_eq!(text(&client.call(&[b"CLIENT", &b"SETNAME"[..], &name])), refused);
    // Of the names that are asked for some replies are made at a time.
    assert_eq!(text(&client.call(&[b"CLIENT", &b"SETNAME"[..], &name[..60_000]])), "OK");
    let asked: Vec<u8> = b"CLIENT GETNAME\r\n".repeat(20_000);
    client.stream.write_all(&asked).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kibibytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kibibytes < 200 << 10, "{kibibytes} KiB");
    assert_eq!(other.text("PING"), "PONG");
}

#[test]
fn a_page_of_a_browser_is_no_client() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(&place.path().join("state"), &[]);
    for head in ["POST / HTTP/1.1\r\n", "Host: localhost\r\n", "*1\r\n$4\r\npost\r\n"] {
        let mut client = server.client();
        client.stream.write_all(format!("{head}\r\nSET key stolen\r\n").as_bytes()).unwrap();
        let mut bytes = Vec::new();
        client.stream.read_to_end(&mut bytes).unwrap();
        assert!(bytes.is_empty(), "{head}");
    }
    assert_eq!(server.client().text("EXISTS key"), "0");
}

#[test]
fn clients_take_no_descriptor_that_the_state_needs() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("state");
    let out = limited(&path, 70).output().unwrap();
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && error.contains("have 'ulimit -n' allow more"), "{error}");
    let server = Server::of(limited(&path, 90), &path);
    let mut first = server.client();
    assert_eq!(first.text("CONFIG GET maxclients"), "[maxclients 20]");
    let mut others: Vec<Client> = (0..100).map(|_| server.client()).collect();
    // Those that are one too many read why.
    for client in &mut others[20..] {
        assert!(
            client
                .try_receive()
                .is_none_or(|why| text(&why) == "ERR max number of clients reached")
        );
    }
    // The log becomes longer, which takes a descriptor.
    let value = vec![b'v'; 3 << 20];
    assert_eq!(text(&first.call(&[b"SET", &b"long"[..], &value])), "OK");
    assert_eq!(first.text("STRLEN long"), value.len().to_string());
}

#[test]
fn copies_are_made_while_clients_write() {
    let place = tempfile::tempdir().unwrap();
    let copies = place.path().join("copies");
    let server =
        Server::start(&place.path().join("state"), &["--copies", copies.to_str().unwrap()]);
    let mut client = server.client();
    let before = client.integer("LASTSAVE");
    // The write of the same round is in the copy.
    client.stream.write_all(b"SET key copied\r\nBGSAVE\r\nSET other 1\r\n").unwrap();
    let replies: Vec<String> = (0..3).map(|_| text(&client.receive())).collect();
    assert_eq!(replies, ["OK", "Background saving started", "OK"]);
    let since = Instant::now();
    while client.text("INFO persistence").contains("rdb_bgsave_in_progress:1") {
        client.line("INCR counter");
        assert!(since.elapsed() < Duration::from_secs(60), "the copy ends");
    }
    assert!(client.text("INFO persistence").contains("rdb_last_bgsave_status:ok"));
    assert!(client.integer("LASTSAVE") >= before);
    let copy = std::fs::read_dir(&copies).unwrap().next().unwrap().unwrap().path();
    drop(server);
    let server = Server::start(&copy, &[]);
    assert_eq!(server.client().text("GET key"), "copied");
}

#[test]
fn without_a_directory_for_copies_there_is_nothing_to_save() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(&place.path().join("state"), &[]);
    let mut client = server.client();
    assert!(client.text("BGSAVE").starts_with("Every acknowledged write is durable already"));
    assert_eq!(client.text("SAVE"), "OK");
    assert_eq!(client.text("BGSAVE x"), "ERR syntax error");
}

/// A file system in memory of that size; `None`: the test may not mount one.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(mebibytes: u32) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let size = format!("size={mebibytes}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(place.path())
            .output();
        mounted.is_ok_and(|out| out.status.success()).then_some(Self(place))
    }

    fn grow(&self, mebibytes: u32) {
        let size = format!("remount,size={mebibytes}m");
        assert!(
            Command::new("mount")
                .args(["-o", &size])
                .arg(self.0.path())
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_refuses_writes_until_it_has_room() {
    let Some(mount) = Mount::new(24) else {
        eprintln!("not tested: the user may not mount a file system");
        return;
    };
    let path = mount.0.path().join("state");
    let server = Server::start(&path, &["--log-size", "2"]);
    let mut client = server.client();
    let value = vec![b'v'; 10_000];
    let mut acknowledged = 0;
    let error = loop {
        match client.call(&[b"SET", format!("key:{acknowledged}").as_bytes(), &value]) {
            Frame::SimpleString(_) => acknowledged += 1,
            other => break text(&other),
        }
        assert!(acknowledged < 10_000, "the disk becomes full");
    };
    assert!(error.starts_with("MISCONF") && error.contains("No space left"), "{error}");
    assert_eq!(client.text("STRLEN key:0"), "10000");
    assert!(client.text("DEL key:0").starts_with("MISCONF"));
    mount.grow(200);
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < Duration::from_secs(60), "writes go on");
        std::thread::sleep(Duration::from_millis(200));
        if std::os::unix::net::UnixStream::connect(server.socket()).is_err() {
            continue;
        }
        let mut client = server.client();
        if client.send(&["SET", "after", "1"])
            && client.try_receive().is_some_and(|frame| text(&frame) == "OK")
        {
            for number in 0..acknowledged {
                assert_eq!(client.text(&format!("STRLEN key:{number}")), "10000");
            }
            return;
        }
    }
}

/// Requests of a crowd are several commands of the state: the log is long enough for each of them.
#[test]
fn a_crowd_of_requests_needs_no_longer_log() {
    for threads in ["1", "2"] {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        let server = Server::start(&path, &["--log-size", "1", "--threads", threads]);
        let log = || path.join("log").metadata().unwrap().len();
        let before = log();
        let value = "v".repeat(200_000);
        let some: Vec<u8> =
            (0..5).flat_map(|n| common::encoded(&["SET", &format!("key{n}"), &value])).collect();
        let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
        std::thread::scope(|scope| {
            for client in &mut clients {
                let some = &some;
                scope.spawn(move || {
                    for _ in 0..10 {
                        client.stream.write_all(some).unwrap();
                        for _ in 0..5 {
                            assert_eq!(text(&client.receive()), "OK");
                        }
                    }
                });
            }
        });
        assert_eq!(log(), before, "{threads} threads");
    }
}

#[test]
fn a_command_without_room_for_a_longer_log_is_an_error_of_its_own() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("state");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 3072; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_kvserver")]);
    command.arg(&path).args(["--log-size", "1"]).env_remove("KVSERVER_PASSWORD");
    let server = Server::of(command, &path);
    let mut client = server.client();
    let long = "v".repeat(2 << 20);
    for _ in 0..2 {
        let said = text(&client.call(&["SET", "key", &long]));
        assert!(said.starts_with("ERR ") && said.contains("was undone"), "{said}");
        assert_eq!(client.text("SET key short"), "OK");
    }
    assert_eq!(client.text("GET key"), "short");
}

#[test]
fn each_thread_has_a_place_at_the_state() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(&place.path().join("state"), &["--threads", "256"]);
    let mut clients: Vec<Client> = (0..300).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.text(&format!("SET key{number} 1")), "OK");
    }
    assert_eq!(clients[0].text("DBSIZE"), "300");
}
