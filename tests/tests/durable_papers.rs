//! The programs of the Mangosteen paper, by its own names (`mangosteen.h`): what they have acknowledged is there after kills.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use spandrel_tests::abi::abi_dir;
use spandrel_tests::heap::{Program, compile};
use spandrel_tests::subject::workspace;
use spandrel_tests::{Finished, Job};

fn example(file: &str) -> PathBuf {
    workspace().join("examples/c").join(file)
}

/// Kills a program a while after its first answer.
fn killed(job: Job, after: Duration) -> Finished {
    let running = job.start();
    let begun = Instant::now();
    while running.stdout_so_far().is_empty() {
        let is_late = running.has_ended() || begun.elapsed() > Duration::from_secs(60);
        assert!(!is_late, "it does not answer: {}", running.stderr_so_far());
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(after);
    // SAFETY: the number of a process that was started here.
    unsafe { libc::kill(running.pid() as i32, libc::SIGKILL) };
    running.wait()
}

#[test]
fn the_store_has_what_it_has_acknowledged() {
    const KEYS: usize = 64;
    for place in [PathBuf::from("/dev/shm"), std::env::temp_dir()] {
        let program = Program::transparent(&example("kvstore.c")).with_heaps_in(&place);
        let job =
            || Job::new(program.path()).env("SPANDREL_DURABLE_DIR", program.heaps().join("kv"));
        let mut values = vec![String::new(); KEYS];
        for round in 0..12u64 {
            let value = |turn: usize| (turn * 37 % KEYS, format!("{round}.{turn}"));
            let puts: String = (0..200_000)
                .map(value)
                .map(|(key, value)| format!("put {key} {value}\n"))
                .collect();
            let done = killed(job().stdin(puts), Duration::from_millis(round * 17 % 60));
            assert_eq!(done.signal, Some(libc::SIGKILL), "{done}");
            let acknowledged = done.out().matches("OK\n").count();
            assert!(acknowledged > 0, "{done}");
            for (key, value) in (0..acknowledged).map(value) {
                values[key] = value;
            }
            let gets: String = (0..KEYS).map(|key| format!("get {key}\n")).collect();
            let shown = job().stdin(gets).run().expect_ok().out();
            let shown: Vec<_> = shown.split_terminator('\n').map(str::to_owned).collect();
            // The next request may have been durable, and not acknowledged.
            let (key, maybe) = value(acknowledged);
            let mut later = values.clone();
            later[key] = maybe;
            assert!(shown == values || shown == later, "round {round}: {shown:?}, not {values:?}");
            values = shown;
        }
    }
}

/// Waits until a server answers at its socket, and says what.
fn answer(client: &Path, socket: &Path) -> (u64, u64) {
    let begun = Instant::now();
    loop {
        let done = Command::new(client).arg(socket).arg("0").output().expect("the client");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        if let Some((length, sum)) = said.trim().split_once(' ') {
            return (length.parse().expect("a length"), sum.parse().expect("a sum"));
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "the server does not answer");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_server_has_what_it_has_answered_to_several_clients() {
    let server = Program::transparent(&example("add_server.c"));
    let client = server.heaps().join("client").display().to_string();
    let source = example("add_client.c").display().to_string();
    compile("cc", &["-std=c11", "-o", &client, &source]);
    let (client, socket) = (PathBuf::from(client), server.heaps().join("socket"));
    let mut answered = 0;
    for round in 0..6u64 {
        let running = Job::new(server.path())
            .env("SPANDREL_DURABLE_DIR", server.heaps().join("array"))
            .env("SPANDREL_DURABLE_SOCKET", &socket)
            .env("SPANDREL_DURABLE_WORKERS", "2")
            .start();
        let (length, sum) = answer(&client, &socket);
        // Each of three clients may have had one request that was durable and not answered.
        assert!((answered..=answered + 300).contains(&length), "{length}, not {answered}");
        assert_eq!(length, sum, "the variables and the array are of one moment");
        let clients: Vec<_> =
            (0..3).map(|_| Job::new(&client).arg(&socket).arg("1000000").start()).collect();
        std::thread::sleep(Duration::from_millis(30 + round * 23 % 70));
        // SAFETY: the number of a process that was started here.
        unsafe { libc::kill(running.pid() as i32, libc::SIGKILL) };
        assert_eq!(running.wait().signal, Some(libc::SIGKILL));
        answered = length;
        for client in clients {
            let said = client.wait().out();
            let lengths = said.split_terminator('\n').filter_map(|line| line.split(' ').next());
            let most = lengths.filter_map(|length| length.parse().ok()).max();
            answered = answered.max(most.unwrap_or(0));
        }
    }
    assert!(answered > 0, "nothing was answered in any round");
}

#[test]
fn variables_by_section_objects_from_before_init_and_frees_outside_of_commands() {
    let program = Program::transparent(&abi_dir().join("durable_variables.c"));
    let job = |what: &str| {
        Job::new(program.path()).arg(what).env("SPANDREL_DURABLE_DIR", program.heaps().join("v"))
    };
    // Killed before init: nothing is there, and the next process is the first one.
    let done = job("early").run();
    assert_eq!(done.signal, Some(libc::SIGKILL), "{done}");
    for round in 0..4 {
        let done = job(&round.to_string()).run();
        assert_eq!(done.signal, Some(libc::SIGKILL), "{done}");
    }
    job("other").run().expect_ok();
    // The refused one has changed nothing.
    let done = job("4").run();
    assert_eq!(done.signal, Some(libc::SIGKILL), "{done}");
}

/// What was freed outside of a command is freed also where the command that frees it is undone and runs again.
#[test]
fn a_command_that_runs_again_frees_again() {
    let program = Program::transparent(&abi_dir().join("durable_variables.c"));
    let program = program.with_heaps_in(Path::new("/dev/shm"));
    let job = Job::new(program.path()).args(["0", "long"]);
    let done = job.env("SPANDREL_DURABLE_DIR", program.heaps().join("v")).run();
    assert_eq!(done.signal, Some(libc::SIGKILL), "{done}");
}

/// Before init the main thread's allocations are the state's: not those of a child, and an end is an end.
#[test]
fn a_program_may_end_or_fork_before_its_state_begins() {
    for place in [PathBuf::from("/dev/shm"), std::env::temp_dir()] {
        let program = Program::transparent(&abi_dir().join("durable_early.c"));
        let program = program.with_heaps_in(&place);
        let run = |what: &str| {
            Job::new(program.path())
                .arg(what)
                .env("SPANDREL_DURABLE_DIR", program.heaps().join("e"))
                .run()
        };
        for _ in 0..2 {
            assert_eq!(run("exit").code, Some(2));
        }
        // What is of a new state only.
        run("threads").expect_ok();
        std::fs::remove_dir_all(program.heaps().join("e")).unwrap();
        run("open").expect_ok();
        std::fs::remove_dir_all(program.heaps().join("e")).unwrap();
        // A new state, and one that is there.
        for _ in 0..2 {
            run("fork").expect_ok();
        }
        assert_eq!(run("exit").code, Some(2));
    }
}

/// The state's file cannot become longer, so that the log fills: what is refused then is seen by no command, in variables or in objects.
#[test]
fn what_is_refused_is_seen_by_no_command() {
    let program = Program::transparent(&abi_dir().join("durable_refused.c"));
    // A little above the log, in units of 512 bytes.
    let job = Job::new("sh").args(["-c", "ulimit -f 131200; exec \"$0\""]).arg(program.path());
    let done = job.env("SPANDREL_DURABLE_DIR", program.heaps().join("list")).run().expect_ok();
    assert!(done.out().contains("File too large"), "{done}");
}

/// Cancellation waits for the end of a command: the state goes on.
#[test]
fn a_cancelled_thread_leaves_the_state_to_others() {
    for what in ["writes", "reads"] {
        let program = Program::transparent(&abi_dir().join("durable_cancelled_client.c"));
        let job = Job::new(program.path()).arg(what);
        job.env("SPANDREL_DURABLE_DIR", program.heaps().join("c")).run().expect_ok();
    }
}
