//! The server of programs whose memory is the state (`mangosteen.h`, RPC mode), beside clients that are many, slow, greedy or gone.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use spandrel_tests::Job;
use spandrel_tests::heap::Program;
use spandrel_tests::job::Running;
use spandrel_tests::subject::workspace;

/// The paper's server, and what a test has of it.
struct Server {
    program: Program,
}

impl Server {
    fn new() -> Self {
        Self { program: Program::transparent(&workspace().join("examples/c/add_server.c")) }
    }

    fn socket(&self) -> PathBuf {
        self.program.heaps().join("socket")
    }

    /// With one worker. `limits`: words of a shell before it.
    fn start(&self, limits: &str) -> Running {
        Job::new("sh")
            .args(["-c", &format!("{limits} exec \"$0\"")])
            .arg(self.program.path())
            .env("SPANDREL_DURABLE_DIR", self.program.heaps().join("array"))
            .env("SPANDREL_DURABLE_SOCKET", self.socket())
            .env("SPANDREL_DURABLE_WORKERS", "1")
            .start()
    }

    fn connect(&self) -> UnixStream {
        let begun = Instant::now();
        loop {
            if let Ok(stream) = UnixStream::connect(self.socket()) {
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                return stream;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "the server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Ends a server when a test ends.
struct Killed(Option<Running>);

impl Killed {
    fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().pid()
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            // SAFETY: the number of a process that was started here.
            unsafe { libc::kill(running.pid() as i32, libc::SIGKILL) };
            running.wait();
        }
    }
}

fn request(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

/// The length of the array that an answer has.
fn answer(stream: &mut UnixStream) -> u64 {
    let mut bytes = [0; 16];
    stream.read_exact(&mut bytes).expect("an answer");
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

fn ask(stream: &mut UnixStream, bytes: &[u8]) -> u64 {
    stream.write_all(&request(bytes)).unwrap();
    answer(stream)
}

/// To connect to a file that is no socket is refused, as it is where a server was killed. The file is not removed.
#[test]
fn a_file_at_the_sockets_path_is_not_removed() {
    let server = Server::new();
    for name in ["file", "link"] {
        let (path, kept) = (server.socket(), server.program.heaps().join(name));
        std::fs::write(&kept, "precious").unwrap();
        match name {
            "file" => std::fs::copy(&kept, &path).map(drop).unwrap(),
            _ => std::os::unix::fs::symlink(&kept, &path).unwrap(),
        }
        let done = server.start("").wait();
        assert!(done.err().contains("Address already in use"), "{done}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        std::fs::remove_file(path).unwrap();
    }
    // A socket that a killed server has left is.
    for _ in 0..2 {
        let _running = Killed(Some(server.start("umask 0;")));
        assert_eq!(ask(&mut server.connect(), b""), 0);
        let mode = server.socket().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_path_that_no_socket_has_is_an_error_with_a_reason() {
    let server = Server::new();
    let job = |socket: &str| {
        Job::new(server.program.path())
            .env("SPANDREL_DURABLE_DIR", server.program.heaps().join("array"))
            .env("SPANDREL_DURABLE_SOCKET", socket)
    };
    assert!(job("").run().err().contains("No such file"));
    assert!(job(&"x".repeat(200)).run().err().contains("File name too long"));
    let done = Job::new(server.program.path())
        .env("SPANDREL_DURABLE_DIR", server.program.heaps().join("array"))
        .run();
    assert!(done.err().contains("set SPANDREL_DURABLE_SOCKET"), "{done}");
}

/// A client with many requests does not keep another one waiting until it has all of its answers.
#[test]
fn clients_of_a_worker_have_turns() {
    const REQUESTS: u64 = 8000;
    let server = Server::new();
    let _running = Killed(Some(server.start("")));
    let (mut greedy, mut modest) = (server.connect(), server.connect());
    assert_eq!((ask(&mut greedy, b""), ask(&mut modest, b"")), (0, 0));
    greedy.write_all(&request(b"x").repeat(REQUESTS as usize)).unwrap();
    assert_eq!(answer(&mut greedy), 1);
    let seen = ask(&mut modest, b"");
    assert!(seen < REQUESTS / 2, "{seen} requests of another client came first");
    // All of them are answered, in order.
    assert!((2..=REQUESTS).all(|length| answer(&mut greedy) == length));
}

/// The same of one that always has another request, and takes its answers.
#[test]
fn a_client_that_never_rests_does_not_keep_others_waiting() {
    let server = Server::new();
    let _running = Killed(Some(server.start("")));
    let (greedy, mut modest) = (server.connect(), server.connect());
    assert_eq!(ask(&mut modest, b""), 0);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let over = || is_over.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        let _ = scope.spawn(|| {
            let requests = request(b"").repeat(10_000);
            while !over() && (&greedy).write_all(&requests).is_ok() {}
        });
        let _ = scope.spawn(|| {
            let mut answers = vec![0; 64 << 10];
            while !over() && (&greedy).read(&mut answers).is_ok_and(|count| count > 0) {}
        });
        std::thread::sleep(Duration::from_secs(3));
        let begun = Instant::now();
        let mut waits: Vec<_> = (0..20)
            .map(|_| {
                let before = begun.elapsed();
                assert_eq!(ask(&mut modest, b""), 0);
                begun.elapsed() - before
            })
            .collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        greedy.shutdown(Shutdown::Both).unwrap();
        waits.sort();
        // A turn of the other is 64 requests that read.
        assert!(waits[10] < Duration::from_millis(20), "{waits:?}");
    });
}

/// Time that a process has used, in ticks of 10 ms.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(") ").next().unwrap().split(' ');
    fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// More clients than the process has descriptors for: they wait, and cost nothing meanwhile.
#[test]
fn too_many_clients_wait_and_cost_nothing() {
    let server = Server::new();
    let running = Killed(Some(server.start("ulimit -n 40;")));
    let mut first = server.connect();
    assert_eq!(ask(&mut first, b"one"), 3);
    let mut others: Vec<_> = (0..60).map(|_| server.connect()).collect();
    std::thread::sleep(Duration::from_millis(300));
    let before = ticks(running.pid());
    std::thread::sleep(Duration::from_secs(1));
    let used = ticks(running.pid()) - before;
    assert!(used < 30, "{used} ticks of 100");
    assert_eq!(ask(&mut first, b"two"), 6, "those that are connected are served");
    let mut last = others.pop().unwrap();
    drop(others);
    assert_eq!(ask(&mut last, b""), 6, "the last one has its turn");
}

/// Clients leave descriptors for the state, which takes some for a longer log.
#[test]
fn clients_leave_descriptors_for_the_state() {
    let server = Server::new();
    let running = Killed(Some(server.start("ulimit -n 64;")));
    let mut first = server.connect();
    assert_eq!(ask(&mut first, b"one"), 3);
    let others: Vec<_> = (0..60).map(|_| server.connect()).collect();
    std::thread::sleep(Duration::from_millis(300));
    let open = std::fs::read_dir(format!("/proc/{}/fd", running.pid())).unwrap().count();
    assert!((40..=48).contains(&open), "{open}");
    assert_eq!(ask(&mut first, b"two"), 6);
    drop(others);
}

#[test]
fn clients_that_leave_or_send_nonsense_harm_nothing() {
    let server = Server::new();
    let _running = Killed(Some(server.start("")));
    let mut other = server.connect();
    assert_eq!(ask(&mut other, b""), 0);
    for round in 0..50usize {
        // Answers that no client takes, and a request by half.
        let mut leaves = server.connect();
        leaves.write_all(&request(b"").repeat(round * 50)).unwrap();
        leaves.write_all(&[5, 0][..round % 3]).unwrap();
    }
    let mut nonsense = server.connect();
    nonsense.write_all(&[0xff; 100]).unwrap();
    assert_eq!(nonsense.read(&mut [0; 1]).unwrap_or(0), 0, "it is closed");
    // What was asked before it is answered.
    let mut nonsense = server.connect();
    nonsense.write_all(&[request(b"").repeat(2), vec![0xff; 100]].concat()).unwrap();
    let mut answers = Vec::new();
    let _ = nonsense.read_to_end(&mut answers);
    assert_eq!(answers.len(), 32);
    // And before the end of the requests.
    let mut ends = server.connect();
    ends.write_all(&request(b"").repeat(100)).unwrap();
    ends.shutdown(Shutdown::Write).unwrap();
    let mut all = Vec::new();
    ends.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 1600);
    // A request in pieces.
    let whole = request(&[7; 300]);
    for piece in whole.chunks(7) {
        other.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(answer(&mut other), 300);
}
