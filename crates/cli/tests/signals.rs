//! A signal that ends the command ends its children too, leaves no temporary file, and is what the caller sees.

mod common;

use common::Place;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SigHandler, Signal, kill, signal as set_disposition};
use nix::unistd::Pid;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A slow machine takes seconds for what takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// A job that says which process it is, and that a child of its own does the waiting.
const JOB: &str = "echo $$ >> \"$0\"; sleep 1000 & echo $! >> \"$0\"; wait; wait";
/// A worker with a file where its real one has it.
const IN_MEMORY: &str = "place=/dev/shm\nwhile [ $# -gt 0 ]; do [ $1 != --directory ] || place=$2; shift; done\n\
                         : >$place/spandrel-bench-$$.pool";

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs. A zombie does not: in a container without an init it stays.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// A command with a directory for temporary files, and a job that writes its processes to a file.
struct Run {
    place: Place,
    temporary: PathBuf,
    pids: PathBuf,
}

impl Run {
    fn new() -> Self {
        let place = Place::new();
        let temporary = place.directory.path().join("temporary");
        std::fs::create_dir(&temporary).unwrap();
        let pids = place.directory.path().join("pids");
        Self { place, temporary, pids }
    }

    fn path(&self, name: &str) -> String {
        self.place.directory.path().join(name).to_str().unwrap().into()
    }

    /// `spandrel WORDS…`, in a process group of its own, so that its children get no signal from the test.
    fn spandrel(&self, words: &[&str]) -> Command {
        let mut command = common::spandrel();
        command
            .args(words)
            .env("SPANDREL_LIB", &self.place.library)
            .env("TMPDIR", &self.temporary)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        // SAFETY: between fork and exec, calls that POSIX allows in signal handlers.
        unsafe {
            command.pre_exec(|| {
                // Tests may run with signals ignored (`nohup`, a job in the background).
                for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTERM] {
                    set_disposition(signal, SigHandler::SigDfl)?;
                }
                Ok(())
            });
        }
        command
    }

    fn pids(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(&self.pids).unwrap_or_default();
        // A line that is just being written has no end.
        text.split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n')?.parse().ok())
            .collect()
    }

    /// Waits until the job has written this number of processes.
    fn started(&self, processes: usize) {
        until("the job starts", || self.pids().len() >= processes);
    }

    /// Sends a signal, and checks the end of all.
    fn ends_by(&self, mut child: Child, signal: Signal) {
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        until("the command ends", || child.try_wait().unwrap().is_some());
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(signal as i32), "{status:?}");
        assert!(!status.core_dumped());
        for pid in self.pids() {
            assert!(!is_alive(pid), "{signal}: {pid} lives");
        }
        self.is_clean();
    }

    /// No temporary file is left.
    fn is_clean(&self) {
        assert_eq!(names(&self.temporary), Vec::<String>::new());
        let left: Vec<String> = names(self.place.directory.path())
            .into_iter()
            .filter(|name| name.starts_with(".spandrel"))
            .collect();
        assert_eq!(left, Vec::<String>::new());
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

const ALL: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGQUIT, Signal::SIGHUP];

#[test]
fn tune_ends_with_its_job() {
    for signal in ALL {
        let run = Run::new();
        let out = run.path("out.profile");
        let pids = run.pids.to_str().unwrap();
        let words = ["tune", "--out", &out, "--", "sh", "-c", JOB, pids];
        let child = run.spandrel(&words).spawn().unwrap();
        run.started(2);
        run.ends_by(child, signal);
        assert!(!Path::new(&out).exists());
    }
}

#[test]
fn a_comparison_ends_with_its_job() {
    for signal in ALL {
        let run = Run::new();
        let (report, pids) = (run.path("report.html"), run.pids.to_str().unwrap());
        // The run itself ends at once; what comes after it does not.
        let job = format!("test -e \"$0\" || {{ : > \"$0\"; exit; }}; {JOB}");
        let words = ["run", "--report", &report, "--compare", "sys", "--", "sh", "-c", &job, pids];
        let child = run.spandrel(&words).spawn().unwrap();
        run.started(2);
        assert!(
            names(run.place.directory.path()).iter().any(|n| n.starts_with(".spandrel-report"))
        );
        run.ends_by(child, signal);
    }
}

#[test]
fn a_run_with_a_report_has_one_when_a_signal_ends_it() {
    for signal in ALL {
        let run = Run::new();
        let (report, pids) = (run.path("report.html"), run.pids.to_str().unwrap());
        let job = "echo $$ > \"$0\"; exec sleep 1000";
        let words = ["run", "--report", &report, "--", "sh", "-c", job, pids];
        let child = run.spandrel(&words).spawn().unwrap();
        run.started(1);
        run.ends_by(child, signal);
        let page = std::fs::read_to_string(&report).unwrap();
        assert!(page.contains(&(128 + signal as i32).to_string()), "{page}");
    }
}

#[test]
fn a_program_that_outlives_a_signal_is_waited_for() {
    let run = Run::new();
    let pids = run.pids.to_str().unwrap();
    let job = "trap 'exit 7' QUIT; echo $$ > \"$0\"; while :; do sleep 0.05; done";
    let mut child = run.spandrel(&["run", "--", "sh", "-c", job, pids]).spawn().unwrap();
    run.started(1);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGQUIT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn bench_and_its_likes_end_with_the_worker() {
    for (words, signal) in [
        (&["bench", "vec", "--peers", "sys"][..], Signal::SIGTERM),
        (&["bench", "startup", "--peers", "sys"], Signal::SIGQUIT),
        (&["bench", "heap", "--only", "larson"], Signal::SIGINT),
        (&["sim", "--on-allocators", "--heap", "64MiB", "--peers", "sys"], Signal::SIGTERM),
    ] {
        let run = Run::new();
        let worker = run.place.directory.path().join("worker");
        // What is measured in files has them in memory.
        let file = if words.contains(&"heap") { IN_MEMORY } else { "" };
        let job = JOB.replace("$0", "$1");
        let script = format!("#!/bin/sh\n{file}\nset -- {}\n{job}\n", run.pids.display());
        std::fs::write(&worker, script).unwrap();
        std::fs::set_permissions(&worker, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let shared = || {
            let mine = |name: &String| name.starts_with("spandrel-bench-");
            names(Path::new("/dev/shm")).into_iter().filter(mine).collect::<Vec<_>>()
        };
        let before = shared();
        let child = run.spandrel(words).env("SPANDREL_BENCH_WORKER", &worker).spawn().unwrap();
        run.started(2);
        run.ends_by(child, signal);
        let left: Vec<_> = shared().into_iter().filter(|name| !before.contains(name)).collect();
        assert_eq!(left, Vec::<String>::new(), "{words:?}");
    }
}

#[test]
fn a_job_that_ignores_signals_is_killed_with_what_it_has_started() {
    let run = Run::new();
    let pids = run.pids.to_str().unwrap();
    let job = "trap '' TERM INT; echo $$ >> \"$0\"; (setsid sleep 1000) & \
               echo $! >> \"$0\"; while :; do sleep 0.05; done";
    let child = run.spandrel(&["tune", "--", "sh", "-c", job, pids]).spawn().unwrap();
    run.started(2);
    run.ends_by(child, Signal::SIGINT);
}

#[test]
fn what_a_killed_command_leaves_is_removed_by_the_next() {
    let run = Run::new();
    let (report, pids) = (run.path("report.html"), run.pids.to_str().unwrap());
    let job = "echo $$ > \"$0\"; exec sleep 1000";
    let words = ["run", "--report", &report, "--", "sh", "-c", job, pids];
    let mut child = run.spandrel(&words).spawn().unwrap();
    run.started(1);
    // Another command at the same time leaves it alone.
    let quick = ["run", "--report", &run.path("other.html"), "--", "true"];
    assert!(run.spandrel(&quick).status().unwrap().success());
    let hidden = |directory: &Path| {
        names(directory).into_iter().filter(|name| name.contains("spandrel-")).count()
    };
    assert_eq!((hidden(&run.temporary), hidden(run.place.directory.path())), (1, 1));
    child.kill().unwrap();
    child.wait().unwrap();
    kill(Pid::from_raw(run.pids()[0] as i32), Signal::SIGKILL).unwrap();
    assert!(run.spandrel(&quick).status().unwrap().success());
    run.is_clean();
}

#[test]
fn a_reader_that_does_not_read_keeps_no_command() {
    let run = Run::new();
    let (reader, writer) = nix::unistd::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while nix::unistd::write(&writer, &[b' '; 4096]).is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let words = ["bench", "startup", "--peers", "sys"];
    let worker = run.path("worker");
    let mut command = run.spandrel(&words);
    command.env("SPANDREL_BENCH_WORKER", &worker).stdout(writer);
    std::fs::write(&worker, "").unwrap();
    let child = command.spawn().unwrap();
    drop(command);
    // It writes its first line, and waits: there is no room.
    let state =
        || std::fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap_or_default();
    let begun = Instant::now();
    // Not every kernel says where a process waits.
    let soon = || begun.elapsed() > Duration::from_secs(3);
    until("the command waits", || state().contains("pipe") || soon());
    run.ends_by(child, Signal::SIGTERM);
    drop(reader);
}

#[test]
fn two_recordings_do_not_get_the_same_name() {
    let run = Run::new();
    let (out, pids) = (run.path("x.trace"), run.pids.to_str().unwrap());
    let job = "echo $$ > \"$0\"; exec sleep 1000";
    let words = ["trace", "record", "-o", &out, "--", "sh", "-c", job, pids];
    let first = run.spandrel(&words).spawn().unwrap();
    run.started(1);
    let second = run.spandrel(&words).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains("x.trace' is where another recording goes"), "{said}");
    // The stand-in for the library records nothing: the name is free again.
    run.ends_by(first, Signal::SIGTERM);
    assert!(!Path::new(&out).exists());
}

#[test]
fn signals_that_are_ignored_stay_ignored() {
    let run = Run::new();
    let (pids, out) = (run.pids.to_str().unwrap(), run.path("out.profile"));
    let job = "echo $$ >> \"$0\"; exec sleep 0.5";
    let mut command =
        run.spandrel(&["tune", "--runs", "1", "--out", &out, "--", "sh", "-c", job, pids]);
    // SAFETY: as above.
    unsafe {
        command.pre_exec(|| {
            set_disposition(Signal::SIGHUP, SigHandler::SigIgn)?;
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    run.started(1);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGHUP).unwrap();
    run.started(2);
    assert!(child.try_wait().unwrap().is_none());
    run.ends_by(child, Signal::SIGTERM);
}
