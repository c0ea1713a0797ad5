//! Copies and backups of a server that goes on.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use spandrel_tests::Finished;

use super::*;

/// `spandrel durable` with these words.
fn durable(words: &[&str]) -> Finished {
    Job::new(built("spandrel")).arg("durable").args(words).timeout(PATIENCE).run()
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn entries(directory: &Path) -> Vec<String> {
    let found = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_server_is_copied_while_clients_write() {
    for place in places() {
        let server = Server::durable(place.path());
        let mut client = server.client();
        assert_eq!(client.text("DEBUG POPULATE 50000 key 400"), "OK");
        let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
        let copies: Vec<_> = (0..3).map(|n| place.path().join(format!("copy{n}/state"))).collect();
        let least: Vec<u64> = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = server.client();
                for turn in 1.. {
                    if stop.load(SeqCst) {
                        break;
                    }
                    // Both in one transaction: a copy has both of them or none.
                    for line in ["MULTI", "INCR first", "INCR second"] {
                        client.text(line);
                    }
                    client.call(&["EXEC"]);
                    acknowledged.store(turn, SeqCst);
                }
            });
            let least = copies.iter().map(|copy| {
                let least = acknowledged.load(SeqCst);
                std::fs::create_dir(copy.parent().unwrap()).unwrap();
                let done = durable(&["copy", name(&place.path().join("state")), name(copy)]);
                assert!(done.ok() && done.out().contains("a copy of"), "{done}");
                assert!(acknowledged.load(SeqCst) > least, "the server has stopped");
                least
            });
            let least = least.collect();
            stop.store(true, SeqCst);
            least
        });
        for (copy, least) in copies.iter().zip(least) {
            assert_eq!(entries(copy), ["state"]);
            let checked = Job::new(built("spandrel")).args(["durable", "verify"]).arg(copy).run();
            assert!(checked.ok() && checked.out().contains("sound"), "{checked}");
            let server = Server::durable(copy.parent().unwrap());
            let mut client = server.client();
            let [first, second] = ["GET first", "GET second"].map(|line| text(&client.line(line)));
            assert_eq!(first, second);
            let first: u64 = first.parse().unwrap_or(0);
            assert!((least..=acknowledged.load(SeqCst)).contains(&first), "{least} <= {first}");
            assert_eq!(client.integer("DBSIZE"), 50_002);
        }
    }
}

#[test]
fn a_copy_that_ends_early_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (state, copy) = (place.path().join("state"), place.path().join("copy"));
    let mut server = Server::durable(place.path());
    let mut client = server.client();
    assert_eq!(client.text("DEBUG POPULATE 200000 key 900"), "OK");
    let begin = || {
        let job = Job::new(built("spandrel")).args(["durable", "copy", name(&state), name(&copy)]);
        job.timeout(PATIENCE).start()
    };
    // SAFETY: the number of a process that was started here.
    let kill = |running: &Running| unsafe { libc::kill(running.pid() as i32, libc::SIGKILL) };
    let copying = begin();
    while !copy.exists() {
        assert!(!copying.has_ended());
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(&copying);
    copying.wait();
    assert_eq!(client.text("PING"), "PONG");
    // The server gives it up, or has it whole; until then no other process has the directory.
    let begun = Instant::now();
    loop {
        let done = begin().wait();
        let said = done.err();
        if done.ok() || said.contains("the directory has a state") {
            break;
        }
        assert!(said.contains("a process has the state open"), "{done}");
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
    std::fs::remove_dir_all(&copy).unwrap();
    let copying = begin();
    while !copy.exists() {
        assert!(!copying.has_ended());
        std::thread::sleep(Duration::from_millis(1));
    }
    server.kill();
    let done = copying.wait();
    match done.ok() {
        true => assert_eq!(entries(&copy), ["state"]),
        false => {
            assert!(done.code == Some(2) && done.err().contains("there is no copy"), "{done}");
            assert!(!copy.exists(), "what the killed server has made for it is there");
        }
    }
    let server = Server::durable(place.path());
    assert_eq!(server.client().integer("DBSIZE"), 200_000);
}

#[test]
fn a_copy_that_cannot_be_made_is_refused_by_the_process_that_has_the_state() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let server = Server::durable(place.path());
    let mut client = server.client();
    assert_eq!(client.text("SET a 1"), "OK");
    std::fs::write(place.path().join("file"), "").unwrap();
    for (to, words) in [
        ("state", "the directory has a state"),
        ("file", "no directory, or a symbolic link"),
        ("no/such", "o such file or directory"),
    ] {
        let to = place.path().join(to);
        let done = durable(&["copy", name(&state), name(&to)]);
        assert!(done.code == Some(2) && done.err().contains(words), "{done}");
        assert!(done.err().contains(name(&to)), "{done}");
    }
    // What sends no request, or half of one, is no harm.
    use std::io::{Read as _, Write as _};
    for request in [&b""[..], b"copy\0", b"copy\0relative\0", b"drop\0/x\0", &[b'x'; 10_000]] {
        let mut stream = UnixStream::connect(state.join("socket")).unwrap();
        let _ = stream.write_all(request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.starts_with("refused "), "{answer}");
    }
    assert_eq!(client.text("GET a"), "1");
}

/// The same data, in a file of the program's own format: for another build, and for a server without Spandrel.
#[test]
fn a_backup_of_a_running_server_is_restored() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let (state, file) = (place.path().join("state"), place.path().join("dump.rdb"));
    let mut server = Server::durable_with(place.path(), &["--requirepass", ""]);
    let mut client = server.client();
    let mut random = fastrand::Rng::with_seed(7);
    for entry in 1..3000 {
        server.ask(&mut client, &commands::random(&mut random, entry));
    }
    // While a program reads that much, it answers that it is busy.
    for number in 0..200 {
        let value: String = (0..100_000).map(|_| random.alphanumeric()).collect();
        assert_eq!(text(&client.call(&["SET", &format!("long{number}"), &value])), "OK");
    }
    let words = ["backup", name(&state), name(&file), "--", "redis-server"];
    let done = durable(&words);
    assert!(done.ok(), "{done}");
    let done = durable(&words);
    assert!(done.code == Some(2) && done.err().contains("it is there already"), "{done}");
    let again = place.path().join("again");
    std::fs::create_dir(&again).unwrap();
    let new = again.join("state");
    let words = ["restore", name(&new), name(&file), "--", "redis-server"];
    let done = durable(&words);
    assert!(done.ok(), "{done}");
    let done = durable(&words);
    assert!(done.code == Some(2) && done.err().contains("the directory has a state"), "{done}");
    assert_eq!(entries(&again), ["state"]);
    let restored = Server::durable(&again);
    // A server that keeps nothing reads the file too.
    let plain = Server::plain(place.path());
    let digests = [&server, &restored, &plain].map(|one| one.client().line("DEBUG DIGEST"));
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
    assert_ne!(text(&digests[0]), "0".repeat(40));
}

#[test]
fn a_backup_that_cannot_be_made_or_read_says_why_and_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    drop(Server::durable(place.path()).client());
    std::fs::write(path("wrong.rdb"), "this is no file of Redis").unwrap();
    let before = entries(place.path());
    let state = name(&path("new")).to_owned();
    let wrong = name(&path("wrong.rdb")).to_owned();
    let done = durable(&["restore", &state, &wrong, "--", "redis-server"]);
    let said = done.err();
    let is_named = said.contains("wrong.rdb: no state is made of it");
    assert!(done.code == Some(2) && is_named && said.contains("Wrong signature"), "{done}");
    let none = name(&path("none.rdb")).to_owned();
    let done = durable(&["restore", &state, &none, "--", "redis-server"]);
    assert!(done.code == Some(2) && done.err().contains("none.rdb: No such file"), "{done}");
    // What cannot get the state is refused before the program starts.
    let full = name(&path("full")).to_owned();
    std::fs::create_dir(path("full")).unwrap();
    std::fs::write(path("full/file"), "mine").unwrap();
    std::os::unix::fs::symlink("full", path("link")).unwrap();
    for target in [&full, &name(&path("link")).to_owned()] {
        let done = durable(&["restore", target, &wrong, "--", "redis-server"]);
        assert!(done.code == Some(2) && done.err().contains("no empty directory"), "{done}");
    }
    std::fs::remove_file(path("link")).unwrap();
    std::fs::remove_dir_all(path("full")).unwrap();
    let mine = name(&path("state")).to_owned();
    let forbidden = ["--rename-command", "SAVE", ""];
    let words = ["backup", &mine, &none, "--", "redis-server"];
    let done = durable(&[&words[..], &forbidden].concat());
    assert!(done.code == Some(1) && done.err().contains("it answers SAVE by"), "{done}");
    let done = durable(&["backup", &state, &none, "--", "redis-server"]);
    assert!(done.code == Some(2) && done.err().contains("No such file"), "{done}");
    assert_eq!(entries(place.path()), before);
}
