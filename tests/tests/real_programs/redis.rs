//! Redis: every kind of data, snapshots taken by a forked child, a rewritten log, and the benchmark.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use spandrel_tests::job::Running;
use spandrel_tests::job::seconds;
use spandrel_tests::{Finished, Job, installed};

use crate::compare::{Run, heavy, loads_into, same_in_main_modes};

struct Server<'a> {
    run: &'a Run<'a>,
    process: Running,
}

impl<'a> Server<'a> {
    /// Starts a server on a socket in the run's folder and waits until it answers.
    fn start(run: &'a Run<'a>) -> Self {
        let job = run.job("redis-server").args(["--port", "0", "--unixsocket", "redis.sock"]);
        let job = job.args(["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]);
        let job = job.args(["--activedefrag", "no", "--loglevel", "warning"]);
        let server = Self { run, process: job.timeout(seconds(300)).start() };
        let begun = Instant::now();
        while !server.command(&["PING"]).out().contains("PONG") {
            assert!(
                begun.elapsed() < seconds(30) && !server.process.has_ended(),
                "the server does not answer: {}",
                server.process.stderr_so_far()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// A client, which runs without the library: it is the server that is tested here.
    fn client(&self, program: &str) -> Job {
        let socket = self.run.folder().join("redis.sock");
        Job::new(installed(program)).dir(self.run.folder()).arg("-s").arg(socket)
    }

    fn command(&self, words: &[&str]) -> Finished {
        self.client("redis-cli").args(words).run()
    }

    fn ask(&self, words: &[&str]) -> String {
        self.command(words).expect_ok().out().trim().to_owned()
    }

    /// Waits until a line of `INFO persistence` is there.
    fn wait_for(&self, line: &str) {
        let begun = Instant::now();
        loop {
            let info = self.ask(&["INFO", "persistence"]);
            if info.lines().any(|l| l.trim() == line) {
                return;
            }
            assert!(begun.elapsed() < seconds(60), "{line} did not come:\n{info}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn stop(self, how: &str) {
        let _ = self.command(&["SHUTDOWN", how]);
        self.process.wait().expect_ok();
    }
}

/// Commands that are the same in every run: all kinds of values, small and large, grown, shrunk and deleted.
fn commands() -> String {
    let mut text = String::new();
    let mut state = 42_u64;
    let mut random = move |bound: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % bound
    };
    for n in 0..30_000_u64 {
        let key = random(3000);
        let size = 1 << random(if n % 200 == 0 { 18 } else { 9 });
        let value = "v".repeat(size);
        let _ = match random(13) {
            0 | 1 => writeln!(text, "SET s{key} {value}{n}"),
            2 => writeln!(text, "APPEND s{key} {value}"),
            3 => writeln!(text, "SETRANGE s{key} {} {n}", random(100_000)),
            4 => writeln!(text, "LPUSH l{} {value}{n} {n}", key % 50),
            5 => writeln!(text, "RPOP l{} 3", key % 50),
            6 => writeln!(text, "HSET h{} f{n} {value} f{} {n}", key % 100, n % 77),
            7 => writeln!(text, "SADD t{} {n} {value}", key % 100),
            8 => writeln!(text, "ZADD z{} {n} m{} {} {value}", key % 100, n % 500, random(1000)),
            // Small, as Redis keeps a stale pointer when an entry outgrows a node of 4 KiB and the new node comes
            // to lie where the last one was (XADD, streamAppendItem): that is up to the allocator's addresses.
            9 => writeln!(text, "XADD x{} {n}-1 field {}", key % 20, &value[..size.min(256)]),
            10 => writeln!(text, "DEL s{} s{}", random(3000), random(3000)),
            11 => writeln!(text, "SETBIT b{} {} 1", key % 20, random(2_000_000)),
            _ => writeln!(text, "PFADD p{} {n}", key % 20),
        };
    }
    text
}

#[test]
fn redis_data_snapshots_and_log() {
    let _alone = heavy();
    loads_into("redis-server", &["--version"]);
    let commands = commands();
    same_in_main_modes(|run| {
        let server = Server::start(run);
        let answers = server.client("redis-cli").stdin(commands.clone()).run().expect_ok();
        let errors = answers.out().lines().filter(|l| l.starts_with("ERR")).count();
        let digest = server.ask(&["DEBUG", "DIGEST"]);
        let mut account = format!("{errors} errors, digest {digest}\n");

        // A forked child writes the snapshot while the parent goes on changing what it writes.
        assert!(server.ask(&["BGSAVE"]).contains("started"));
        for n in 0..200 {
            server.ask(&["SET", &format!("during{}", n % 20), &"d".repeat(10_000)]);
            if n % 20 == 19 {
                break;
            }
        }
        server.wait_for("rdb_bgsave_in_progress:0");
        server.wait_for("rdb_last_bgsave_status:ok");
        server.ask(&["CONFIG", "SET", "appendonly", "yes"]);
        server.wait_for("aof_rewrite_in_progress:0");
        server.ask(&["BGREWRITEAOF"]);
        server.wait_for("aof_rewrite_scheduled:0");
        server.wait_for("aof_rewrite_in_progress:0");
        server.wait_for("aof_last_bgrewrite_status:ok");
        account += &format!("after changes {}\n", server.ask(&["DEBUG", "DIGEST"]));
        server.ask(&["CONFIG", "SET", "appendonly", "no"]);
        let script = "for i = 1, 20000 do redis.call('RPUSH', 'lua', string.rep('q', i % 300)) end \
                      return redis.call('LLEN', 'lua')";
        account += &server.ask(&["EVAL", script, "0"]);
        let before = server.ask(&["DEBUG", "DIGEST"]);
        server.stop("SAVE");

        let server = Server::start(run);
        assert_eq!(server.ask(&["DEBUG", "DIGEST"]), before, "data after a restart");
        account += &format!("\nafter restart {before}\n");
        assert_eq!(server.ask(&["FLUSHALL", "ASYNC"]), "OK");
        assert_eq!(server.ask(&["MEMORY", "PURGE"]), "OK");
        server.stop("NOSAVE");
        account
    });
}

#[test]
fn redis_benchmark() {
    let _alone = heavy();
    same_in_main_modes(|run| {
        let server = Server::start(run);
        for (bytes, requests) in [("100", "20000"), ("4096", "10000"), ("40960", "2000")] {
            let job = server
                .client("redis-benchmark")
                .args(["-q", "-n", requests, "-d", bytes, "-c", "20"]);
            let job = job.args([
                "-r",
                "1000",
                "-P",
                "4",
                "-t",
                "set,get,lpush,lrange_100,hset,zadd,sadd",
            ]);
            let done = job.run().expect_ok();
            let lines = done.out().matches("requests per second").count();
            assert_eq!(lines, 8, "{done}");
            assert_eq!(server.ask(&["FLUSHALL"]), "OK");
        }
        let size = server.ask(&["DBSIZE"]);
        // The benchmark client on the library as well.
        let socket = run.folder().join("redis.sock");
        let job = run.job("redis-benchmark").arg("-s").arg(socket).args(["-q", "-n", "5000"]);
        let done = job.args(["-t", "set,get", "--threads", "2"]).run().expect_ok();
        assert_eq!(done.out().matches("requests per second").count(), 2, "{done}");
        server.stop("NOSAVE");
        size
    });
}
