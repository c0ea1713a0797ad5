//! `spandrel durable run`: Debian's unmodified Redis, whose data survive kills.

mod clients;
mod commands;
mod copies;
mod faults;
mod starts;

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use spandrel_histories::resp::{Client, Frame, encoded, judged, text, work};
use spandrel_histories::{History, Work};
use spandrel_tests::Job;
use spandrel_tests::heap::built;
use spandrel_tests::job::Running;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// A server, killed at the end of a test.
struct Server {
    running: Option<Running>,
    socket: PathBuf,
}

/// Words of a server's command line, in a folder.
fn redis(folder: &Path, socket: &Path) -> Vec<String> {
    let mut words: Vec<String> =
        ["redis-server", "--port", "0", "--save", "", "--unixsocket"].map(str::to_owned).to_vec();
    words.push(socket.display().to_string());
    words.extend(["--enable-debug-command", "yes", "--dir"].map(str::to_owned));
    words.push(folder.display().to_string());
    words
}

impl Server {
    fn of(job: Job, socket: PathBuf) -> Self {
        Self { running: Some(job.timeout(Duration::from_secs(600)).start()), socket }
    }

    /// One whose data survive, with more words on its command line.
    fn durable_with(folder: &Path, more: &[&str]) -> Self {
        Self::durable_by(Job::new(built("spandrel")), folder, more)
    }

    /// Started by a command that is given what it starts.
    fn durable_by(job: Job, folder: &Path, more: &[&str]) -> Self {
        let socket = folder.join("durable.sock");
        let _ = std::fs::remove_file(&socket);
        let job = job.args(["durable", "run", "--dir"]).arg(folder.join("state"));
        Self::of(job.arg("--").args(redis(folder, &socket)).args(more), socket)
    }

    fn durable(folder: &Path) -> Self {
        Self::durable_with(folder, &[])
    }

    /// One that keeps nothing.
    fn plain(folder: &Path) -> Self {
        let socket = folder.join("plain.sock");
        let words = redis(folder, &socket);
        Self::of(Job::new(&words[0]).args(&words[1..]), socket)
    }

    fn client(&self) -> Client {
        let begun = Instant::now();
        loop {
            if let Ok(stream) = UnixStream::connect(&self.socket) {
                return Client::of(stream);
            }
            let running = self.running.as_ref().unwrap();
            let is_late = running.has_ended() || begun.elapsed() > PATIENCE;
            assert!(
                !is_late,
                "it does not listen: {}{}",
                running.stdout_so_far(),
                running.stderr_so_far()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The reply to a command; what the server has said, if it has ended by itself.
    fn ask(&mut self, client: &mut Client, command: &[String]) -> Frame {
        let reply = if client.send(command) { client.try_receive() } else { None };
        reply.unwrap_or_else(|| {
            let said = self
                .running
                .take()
                .map(|running| running.wait())
                .map(|done| done.err() + &done.out());
            panic!("{command:?}: {}", said.unwrap_or_default())
        })
    }

    fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            // SAFETY: the number of a process that was started here.
            unsafe { libc::kill(running.pid() as i32, libc::SIGKILL) };
            let done = running.wait();
            assert_eq!(done.signal, Some(libc::SIGKILL), "{done}");
            assert_eq!(done.err(), "", "nothing is to be said");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            // SAFETY: as above.
            unsafe { libc::kill(running.pid() as i32, libc::SIGKILL) };
            running.wait();
        }
    }
}

fn places() -> [TempDir; 2] {
    [tempfile::tempdir_in("/dev/shm").unwrap(), tempfile::tempdir().unwrap()]
}

/// `SPANDREL_SOAK` says how often servers are killed, or how many commands are sent times a thousand.
fn soak(usual: u64) -> u64 {
    std::env::var("SPANDREL_SOAK").map_or(usual, |number| number.parse().unwrap())
}

/// Random commands of all types, beside a server that keeps nothing: the same replies, and the same data after each kill.
#[test]
fn random_commands_have_the_same_effects_across_kills() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let plain = Server::plain(place.path());
    let mut theirs = plain.client();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut entry = 0;
    for _ in 0..soak(20) {
        let mut server = Server::durable(place.path());
        let mut ours = server.client();
        let digest = server.ask(&mut ours, &["DEBUG".into(), "DIGEST".into()]);
        assert_eq!(digest, theirs.line("DEBUG DIGEST"), "seed {seed}, before command {entry}");
        for _ in 0..1000 {
            entry += 1;
            let command = commands::random(&mut random, entry);
            let a = server.ask(&mut ours, &command);
            let b = theirs.call(&command);
            let is_unordered = ["SMEMBERS", "HGETALL"].contains(&command[0].as_str());
            assert!(
                is_unordered || a == b,
                "seed {seed}, command {entry}, {command:?}: {a:?} {b:?}"
            );
        }
        server.kill();
    }
    let server = Server::durable(place.path());
    let digests = [&mut server.client(), &mut theirs].map(|client| client.line("DEBUG DIGEST"));
    assert_eq!(digests[0], digests[1], "seed {seed}, at the end");
}

/// All that changes in the state is noted, whatever changes it: commands, expiry, eviction, tables that grow and shrink.
#[test]
fn nothing_is_missed() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let spandrel = built("spandrel");
    let job = Job::new(&spandrel).args(["durable", "verify", "--"]).arg(&spandrel);
    let limit = ["--maxmemory", "6mb", "--maxmemory-policy", "allkeys-random"];
    let mut server = Server::durable_by(job, place.path(), &limit);
    let mut client = server.client();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for entry in 1..4000 {
        let command = commands::random(&mut random, entry);
        // Reads are native, and note the second of a value's last use.
        if !commands::reads(&command) {
            server.ask(&mut client, &command);
        }
        if entry % 4 == 0 {
            let key = format!("short{entry}");
            server.ask(&mut client, &["SET", &key, "value", "PX", "30"].map(str::to_owned));
        }
    }
    client.send(&["SHUTDOWN", "NOSAVE"]);
    let done = server.running.take().unwrap().wait();
    assert!(done.ok() && done.out().contains("all of it was noted"), "seed {seed}: {done}");
}

/// Clients that wait, watch and subscribe are there when the server is killed: nothing of them is left.
#[test]
fn clients_that_wait_leave_nothing() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    for round in 0..10 {
        let mut server = Server::durable(place.path());
        let mut client = server.client();
        assert_eq!(client.integer("LLEN done"), round, "each push was acknowledged");
        assert_eq!(client.integer("LLEN queue"), 0, "the waiting client has had it");
        let (mut waits, mut takes, mut watches, mut hears) =
            (server.client(), server.client(), server.client(), server.client());
        assert!(waits.send(&["BLPOP", "never", "0"]));
        assert!(takes.send(&["BLMOVE", "queue", "done", "LEFT", "RIGHT", "0"]));
        assert_eq!(watches.text("WATCH queue"), "OK");
        assert!(hears.send(&["SUBSCRIBE", "news"]));
        hears.receive();
        while !client.text("CLIENT LIST").contains("cmd=blmove") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(client.integer("RPUSH queue job"), 1);
        assert_eq!(text(&takes.receive()), "job");
        assert_eq!(client.integer("PUBLISH news x"), 1);
        assert_eq!(watches.text("MULTI"), "OK");
        assert_eq!(watches.text("SET a 1"), "QUEUED");
        assert_eq!(watches.line("EXEC"), Frame::Null, "the watched list has changed");
        server.kill();
    }
}

/// Kills a server under clients that change the same keys, also while it starts: an order of all calls explains what they were told.
fn is_linearizable(folder: &Path, kills: u64) {
    let path = folder.join("history");
    let history = History::open(&path);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..kills {
        let mut server = Server::durable(folder);
        if random.u8(..4) == 0 {
            // In the middle of its start.
            std::thread::sleep(Duration::from_millis(random.u64(..300)));
            server.kill();
            history.crash();
            continue;
        }
        // On a disk the first write waits for what recovery syncs.
        assert_eq!(server.client().text("SET other 1"), "OK");
        let socket = server.socket.clone();
        std::thread::scope(|scope| {
            for name in 0..4 {
                let (socket, history) = (&socket, &history);
                scope.spawn(move || work(socket, history, Work::new(seed, name, round), name));
            }
            std::thread::sleep(Duration::from_micros(random.u64(5_000..200_000)));
            server.kill();
        });
        history.crash();
    }
    let server = Server::durable(folder);
    let calls = judged(&mut server.client(), &history, &path, kills);
    assert!(calls > kills * 3, "{calls}");
}

#[test]
fn kills_leave_histories_that_are_linearizable() {
    for place in places() {
        is_linearizable(place.path(), soak(25));
    }
}

/// Keys that expire or are evicted are gone in the next process too, and what it counts goes on.
#[test]
fn keys_that_are_gone_stay_gone() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let limit = ["--maxmemory", "20mb", "--maxmemory-policy", "allkeys-lru"];
    let used = |client: &mut Client| {
        let info = client.text("INFO memory");
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        line.unwrap().parse::<usize>().unwrap()
    };
    let mut server = Server::durable_with(place.path(), &limit);
    let mut client = server.client();
    for number in 0..200 {
        client.call(&["SET", &format!("short{number}"), "x", "PX", "50"]);
    }
    client.line("SET stays 1 EX 100000");
    std::thread::sleep(Duration::from_millis(100));
    // By a look, and by the server's own cycle.
    assert_eq!(client.line("GET short7"), Frame::Null);
    let begun = Instant::now();
    while client.integer("DBSIZE") > 1 {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
    server.kill();
    let mut server = Server::durable_with(place.path(), &limit);
    let mut client = server.client();
    assert_eq!((client.integer("DBSIZE"), client.text("GET stays")), (1, "1".into()));
    for number in 0..40_000 {
        client.call(&["SET", &format!("key{number}"), &"v".repeat(1000)]);
    }
    let (keys, bytes) = (client.integer("DBSIZE"), used(&mut client));
    assert!(keys < 20_000 && bytes > 15 << 20, "{keys} keys, {bytes} bytes");
    let digest = client.text("DEBUG DIGEST");
    server.kill();
    let server = Server::durable_with(place.path(), &limit);
    let mut client = server.client();
    assert_eq!(client.text("DEBUG DIGEST"), digest);
    let now = used(&mut client);
    assert!(now.abs_diff(bytes) < 2 << 20, "{bytes} bytes were used, and now {now}");
    client.call(&["SET", "more", &"v".repeat(1000)]);
    assert!(client.integer("DBSIZE") > keys - 1000, "no more are evicted than before");
}

/// A server that ends in order, and one that the system ends.
#[test]
fn data_are_there_after_an_end_in_order() {
    let place = tempfile::tempdir().unwrap();
    let ways = ["SHUTDOWN NOSAVE", "SHUTDOWN SAVE", "SIGTERM", "in one write"];
    for (round, way) in ways.into_iter().enumerate() {
        let mut server = Server::durable(place.path());
        let mut client = server.client();
        assert_eq!(client.integer("LLEN ends"), round as i64);
        // Both requests come in one turn of the server's loop: it ends without a reply.
        if way == "in one write" {
            let both = [encoded(&["RPUSH", "ends", way]), encoded(&["SHUTDOWN", "SAVE"])].concat();
            client.stream.write_all(&both).unwrap();
            server.running.take().unwrap().wait().expect_ok();
            continue;
        }
        client.call(&["RPUSH", "ends", way]);
        if way == "SIGTERM" {
            // SAFETY: the number of a process that was started here.
            unsafe { libc::kill(server.running.as_ref().unwrap().pid() as i32, libc::SIGTERM) };
        } else {
            client.send(&way.split(' ').collect::<Vec<_>>());
        }
        server.running.take().unwrap().wait().expect_ok();
    }
    let server = Server::durable(place.path());
    assert_eq!(server.client().integer("LLEN ends"), ways.len() as i64);
}

/// Where no more can be made durable nothing more is acknowledged, and what was is there.
#[test]
fn a_full_disk_ends_the_process_before_a_reply() {
    let place = tempfile::tempdir().unwrap();
    // Files of 80 MiB at most, as a disk that is full: the log has its 64, the state does not.
    let line = "trap '' XFSZ; exec prlimit --fsize=83886080 \"$0\" \"$@\"";
    let job = Job::new("sh").args(["-c", line]).arg(built("spandrel"));
    let mut server = Server::durable_by(job, place.path(), &[]);
    let mut client = server.client();
    let value = "v".repeat(1 << 20);
    let (mut acknowledged, mut is_told) = (0, false);
    while client.send(&["SET", &format!("key{acknowledged}"), &value]) {
        match client.try_receive() {
            Some(Frame::SimpleString(_)) => acknowledged += 1,
            Some(other) => panic!("{other:?}"),
            None => break,
        }
        assert!(acknowledged < 1000, "the limit is not met");
        let said = server.running.as_ref().unwrap().stderr_so_far();
        if !is_told && said.contains("goes on until the log is full") {
            is_told = true;
            // No thread is left that could make a copy.
            let (state, copy) = (place.path().join("state"), place.path().join("copy"));
            let shown = Job::new(built("spandrel")).args(["durable", "info"]).arg(&state).run();
            assert!(shown.out().contains("is not brought into the state any more"), "{shown}");
            let job = Job::new(built("spandrel")).args(["durable", "copy"]).arg(state).arg(copy);
            let done = job.timeout(PATIENCE).run();
            assert!(done.code == Some(2) && done.err().contains("may have failed"), "{done}");
        }
    }
    let done = server.running.take().unwrap().wait();
    assert!(is_told && done.code == Some(1), "{done}");
    assert!(done.err().contains("cannot be made durable"), "{done}");
    assert!(acknowledged > 20, "{acknowledged}");
    let server = Server::durable(place.path());
    let mut client = server.client();
    let keys = client.integer("DBSIZE");
    assert!((acknowledged..=acknowledged + 1).contains(&keys), "{keys} of {acknowledged}");
    let last = format!("STRLEN key{}", acknowledged - 1);
    assert_eq!(client.integer(&last), 1 << 20);
}

/// Data on the disk are taken in once, and the server's own files are as before.
#[test]
fn data_on_the_disk_are_taken_in() {
    let place = tempfile::tempdir().unwrap();
    let digest = {
        let server = Server::plain(place.path());
        let mut client = server.client();
        for number in 0..5000 {
            client.call(&["SET", &format!("key{number}"), &format!("value{number}")]);
        }
        client.line("RPUSH list a b c");
        assert_eq!(client.text("SAVE"), "OK");
        client.text("DEBUG DIGEST")
    };
    let mut server = Server::durable(place.path());
    assert_eq!(server.client().text("DEBUG DIGEST"), digest);
    server.client().line("SET key1 other");
    server.kill();
    let server = Server::durable(place.path());
    let mut client = server.client();
    assert_eq!((client.text("GET key1"), client.integer("DBSIZE")), ("other".into(), 5001));
    assert_eq!(client.text("BGSAVE"), "Background saving started");
    let begun = Instant::now();
    while client.text("INFO persistence").contains("rdb_bgsave_in_progress:1") {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(client.text("INFO persistence").contains("rdb_last_bgsave_status:ok"));
}
