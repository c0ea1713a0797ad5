//! `spandrel trace`: what is recorded of programs of all kinds, however they end, and what becomes of it.

use serde_json::Value;
use spandrel_tests::subject::{installed, spandrel_command, subject};
use spandrel_tests::{Finished, Job, Program};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A directory for recordings.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        subject().required_library();
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Files that are there, in the order of their names.
    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.0.path()).expect("the directory");
        let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        files
    }

    /// Records a program as `x.trace` and what others it starts.
    fn record<S: AsRef<std::ffi::OsStr>>(
        &self,
        options: &[&str],
        program: &Path,
        words: &[S],
    ) -> Finished {
        Job::new(spandrel_command())
            .args(["trace", "record", "--out"])
            .arg(self.path("x.trace"))
            .args(options)
            .arg("--")
            .arg(program)
            .args(words)
            .run()
    }
}

fn command(words: &[&str], path: &Path) -> Job {
    Job::new(spandrel_command()).args(words).arg(path)
}

/// What `trace info --json` says.
fn info(path: &Path) -> Value {
    let done = command(&["trace", "info", "--json"], path).run().expect_ok();
    serde_json::from_str(&done.out()).expect("JSON")
}

fn number(of: &Value, kind: &str, name: &str) -> u64 {
    of[kind][name].as_u64().unwrap_or_else(|| panic!("{kind}.{name} in {of}"))
}

/// Requests of `recorded counts`, and few of the C library's own.
fn is_counted(of: &Value, times: u64) {
    let (made, freed) = (number(of, "requests", "allocations"), number(of, "requests", "frees"));
    let resized = number(of, "requests", "resizes");
    let near = |number: u64, wanted: u64| (wanted..wanted + 100).contains(&number);
    assert!(near(made, 1000 * times) && near(freed, 1000 * times), "{of}");
    assert!(near(resized, 500 * times), "{of}");
    assert_eq!(of["missed"], 0);
}

#[test]
fn every_request_is_recorded_and_can_be_made_again() {
    let program = Program::new("recorded.c");
    for mode in ["auto", "native", "sys", "mmap", "jemalloc"] {
        let place = Place::new();
        place.record(&["--mode", mode], program.path(), &["counts"]).expect_ok();
        let trace = place.path("x.trace");
        assert_eq!(place.files(), std::slice::from_ref(&trace));
        let told = info(&trace);
        is_counted(&told, 1);
        assert_eq!(
            (told["ended"].as_str(), told["program"].as_str()),
            (Some("exit"), Some("recorded"))
        );
        assert_eq!(number(&told, "requests", "zeroed") / 10, 25, "{mode}: {told}");
        assert_eq!(number(&told, "requests", "unknown"), 0, "{mode}: {told}");
        assert_eq!(number(&told, "requests", "lost_ends"), 0, "{mode}: {told}");
        let spans = number(&told, "spans", "made");
        assert_eq!(spans > 0, matches!(mode, "auto" | "native"), "{mode}: {told}");
        let job = command(&["trace", "replay", "--runs", "1", "--peers", "jemalloc"], &trace);
        let done = job.run().expect_ok();
        assert!(done.out().contains("spandrel") && !done.out().contains("lost"), "{done}");
    }
}

#[test]
fn a_killed_program_leaves_all_that_it_did() {
    let place = Place::new();
    let program = Program::new("recorded.c");
    place.record(&[], program.path(), &["killed"]).expect_code(137);
    let told = info(&place.path("x.trace"));
    is_counted(&told, 1);
    assert_eq!(told["ended"], "open");
}

/// Waits until something is so; a test that waits for good says what for.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_command_that_gets_a_signal_leaves_a_recording() {
    let program = Program::new("recorded.c");
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
        let place = Place::new();
        let done = place.path("done");
        let job = Job::new(spandrel_command()).args(["trace", "record", "--out"]);
        let job = job.arg(place.path("x.trace")).arg("--").arg(program.path());
        let running = job.arg("waits").arg(&done).start();
        wait_until("the program is where it waits", || done.exists());
        let told_before = place.files().iter().find(|file| **file != done).map(|file| info(file));
        // SAFETY: a system call without memory arguments; the command is not reaped yet.
        unsafe { libc::kill(running.pid() as libc::pid_t, signal) };
        let ended = running.wait();
        std::fs::remove_file(&done).expect("the program's file");
        let files = place.files();
        assert_eq!(files.len(), 1, "{files:?}");
        let told = info(&files[0]);
        is_counted(&told, 1);
        assert_eq!(told["ended"], "open");
        is_counted(&told_before.expect("a recording that is being written"), 1);
        // As its caller expects of a command that a signal has ended.
        assert_eq!(ended.signal, Some(signal), "{ended}");
        if signal == libc::SIGKILL {
            // The command could not give it its name.
            assert_eq!(files[0], place.path(&format!("x.{}.trace", told["pid"])));
        } else {
            assert_eq!(files[0], place.path("x.trace"));
            assert!(ended.err().contains("not ended by itself"), "{ended}");
        }
    }
}

#[test]
fn a_forked_child_writes_its_own_file() {
    let program = Program::new("recorded.c");
    for what in ["forks", "raw-fork"] {
        let place = Place::new();
        place.record(&["--of", "requests"], program.path(), &[what]).expect_ok();
        let files = place.files();
        assert_eq!(files.len(), 2, "{files:?}");
        let parent = info(&place.path("x.trace"));
        is_counted(&parent, 1);
        let child = files.iter().find(|file| !file.ends_with("x.trace")).expect("another");
        let child = info(child);
        assert_eq!(child["ended"], "open", "it ends by _exit");
        assert_ne!(child["pid"], parent["pid"]);
        // What it frees was its parent's; what it resizes is known from then on.
        assert_eq!(number(&child, "requests", "allocations"), 1500, "{what}: {child}");
        assert_eq!(number(&child, "requests", "unknown"), 1000, "{what}: {child}");
        assert_eq!(number(&child, "requests", "lost_ends"), 0, "{what}: {child}");
    }
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_its_files() {
    let place = Place::new();
    let program = Program::new("recorded.c");
    let own = place.path("own");
    let words = ["closes".as_ref(), own.as_os_str()];
    place.record(&[], program.path(), &words).expect_ok();
    assert_eq!(std::fs::read(&own).expect("the program's file"), b"mine");
    is_counted(&info(&place.path("x.trace")), 21);
}

#[test]
fn objects_of_several_threads_are_told_apart() {
    let program = Program::new("recorded.c");
    for mode in ["auto", "native", "sys"] {
        let place = Place::new();
        place.record(&["--mode", mode], program.path(), &["threads"]).expect_ok();
        let told = info(&place.path("x.trace"));
        assert!(number(&told, "requests", "allocations") >= 80_000, "{told}");
        assert_eq!(number(&told, "requests", "resizes"), 10_000, "{told}");
        assert_eq!(number(&told, "requests", "unknown"), 0, "{mode}: {told}");
        assert_eq!(number(&told, "requests", "lost_ends"), 0, "{mode}: {told}");
        assert!((4..=6).contains(&number(&told, "requests", "threads")), "{told}");
        assert_eq!(number(&told, "spans", "unknown"), 0, "{told}");
    }
}

#[test]
fn a_program_that_executes_another_leaves_both() {
    let place = Place::new();
    let program = Program::new("recorded.c");
    place.record(&[], program.path(), &["executes"]).expect_ok();
    let files = place.files();
    assert_eq!(files.len(), 2, "{files:?}");
    files.iter().for_each(|file| is_counted(&info(file), 1));
    assert_eq!(info(&place.path("x.trace"))["ended"], "exit");
}

#[test]
fn a_recording_that_cannot_go_on_says_so_and_the_program_does() {
    let place = Place::new();
    let program = Program::new("recorded.c");
    let done = place.record(&["--limit", "800KiB"], program.path(), &["threads"]).expect_ok();
    let lines = done.library_lines();
    assert_eq!(lines.iter().filter(|line| line.contains("reached its limit")).count(), 1, "{done}");
    let told = info(&place.path("x.trace"));
    assert_eq!(told["ended"], "limit");
    assert!(number(&told, "requests", "allocations") > 1000, "{told}");

    // No larger file is allowed: a signal would end the program.
    let script = format!("ulimit -f 150; exec {} threads", program.path().display());
    let job = subject().job(installed("sh"), "auto").args(["-c", &script]);
    let done = job.env("SPANDREL_TRACE", place.path("limited.%p")).run().expect_ok();
    assert!(done.err().contains("cannot grow beyond"), "{done}");

    // Nothing at all would fit.
    let job = subject().job(program.path(), "auto").arg("counts");
    let job = job.env("SPANDREL_TRACE", place.path("little.%p"));
    let lines = job.env("SPANDREL_TRACE_LIMIT", "67KiB").run().expect_ok().library_lines();
    assert!(lines.len() == 1 && lines[0].contains("'67KiB'"), "{lines:?}");
    assert!(lines[0].contains("68KiB") && lines[0].contains("nothing is recorded"), "{lines:?}");
    let little = |file: &PathBuf| file.to_string_lossy().contains("little");
    assert!(!place.files().iter().any(little));
    let job = subject().job(program.path(), "auto").arg("counts");
    let job = job.env("SPANDREL_TRACE", place.path("enough.trace.%p"));
    job.env("SPANDREL_TRACE_LIMIT", "68KiB").env("SPANDREL_TRACE_OF", "requests").run().expect_ok();
    let files = place.files();
    let enough = files.iter().find(|file| file.to_string_lossy().contains("enough"));
    let told = info(enough.expect("a recording"));
    assert!(number(&told, "requests", "allocations") > 100, "{told}");

    let job = subject().job(program.path(), "auto").arg("counts");
    let done = job.env("SPANDREL_TRACE", "/no/such/place/x").run().expect_ok();
    let lines = done.library_lines();
    assert_eq!(lines.len(), 1, "{done}");
    assert!(lines[0].contains("/no/such/place/x.") && lines[0].contains("errno 2"), "{done}");
}

#[test]
fn what_a_limit_gives_back_is_recorded_with_its_size() {
    let place = Place::new();
    let program = Program::new("hard_limit.c");
    Job::new(spandrel_command())
        .args(["trace", "record", "--of", "spans", "--mode", "native", "--out"])
        .arg(place.path("x.trace"))
        .arg("--")
        .arg(program.path())
        .arg("64")
        .env("SPANDREL_LIMIT", "64MiB")
        .run()
        .expect_ok();
    let told = info(&place.path("x.trace"));
    let spans = |name: &str| number(&told, "spans", name);
    assert!(spans("releases") > spans("releases_of_all"), "{told}");
    // No request of the program is for more than the heap has.
    let most = spans("releases") * (64 << 20) / 8192;
    assert!((1..most).contains(&spans("released_pages")), "{told}");
}

#[test]
fn the_environment_alone_records_and_wrong_values_are_named() {
    let place = Place::new();
    let program = Program::new("recorded.c");
    let job = subject().job(program.path(), "auto").arg("counts").dir(place.0.path());
    job.env("SPANDREL_TRACE", "here").env("SPANDREL_TRACE_OF", "requests").run().expect_ok();
    let files = place.files();
    assert_eq!(files.len(), 1, "{files:?}");
    let told = info(&files[0]);
    is_counted(&told, 1);
    assert!(told["spans"].is_null());
    for (name, value) in [("SPANDREL_TRACE_OF", "some"), ("SPANDREL_TRACE_LIMIT", "much")] {
        let job = subject().job(program.path(), "auto").arg("counts");
        let job = job.env("SPANDREL_TRACE", place.path("y")).env(name, value);
        let lines = job.run().expect_ok().library_lines();
        assert!(lines.len() == 1 && lines[0].contains(name), "{lines:?}");
        let job = Job::new(spandrel_command()).args(["run", "--", "true"]);
        let job = job.env("SPANDREL_TRACE", place.path("y")).env(name, value);
        assert!(job.run().expect_code(2).err().contains(name));
    }
}

#[test]
fn damage_is_refused_with_its_place() {
    let place = Place::new();
    let program = Program::new("recorded.c");
    place.record(&[], program.path(), &["counts"]).expect_ok();
    let trace = place.path("x.trace");
    let whole = std::fs::read(&trace).expect("the recording");
    let refused = |bytes: &[u8], wanted: &str| {
        let path = place.path("damaged");
        std::fs::write(&path, bytes).expect("a file");
        for words in [&["trace", "info"][..], &["trace", "replay"], &["sim"]] {
            let done = command(words, &path).run().expect_code(2);
            assert!(done.err().contains("damaged") && done.err().contains(wanted), "{done}");
        }
    };
    refused(&whole[..whole.len() - 1000], "at byte ");
    // Between two blocks, too.
    refused(&whole[..whole.len() - 65536], &format!("at byte {}: ", whole.len() - 65536));
    refused(&whole[..4096], "at byte 4096: the file is cut off");
    refused(&whole[..100], "at byte 100: the file is cut off");
    refused(b"no recording", "at byte 0: this is no recording");
    refused(b"", "at byte 0");
    let mut changed = whole.clone();
    changed[4096 + 40] ^= 1;
    refused(&changed, "at byte 4096: a block is damaged");
    let mut newer = whole;
    newer[8] = 9;
    refused(&newer, "version 9");
    let missing = command(&["trace", "info"], &place.path("none")).run().expect_code(2);
    assert!(missing.err().contains("none: "), "{missing}");
    // What is there is not overwritten.
    let done = place.record(&[], program.path(), &["counts"]).expect_code(2);
    assert!(done.err().contains("is there already"), "{done}");
}

#[test]
fn spans_are_simulated_drawn_and_exported() {
    let place = Place::new();
    let program = Program::new("recorded.c");
    place.record(&["--mode", "native"], program.path(), &["threads"]).expect_ok();
    let trace = place.path("x.trace");
    let (svg, csv) = (place.path("x.svg"), place.path("x.csv"));
    let job = command(&["trace", "info"], &trace).arg("--out").arg(&svg).arg("--sizes").arg(&csv);
    let done = job.run().expect_ok();
    assert!(done.out().contains("page heap: ") && done.out().contains("spans:"), "{done}");
    assert!(std::fs::read_to_string(&svg).expect("a plot").starts_with("<svg"));
    let words = ["--heap", "64MiB", "--operations", "100000", "--policy", "lfr"];
    let done = command(&["sim", "--sizes"], &csv).args(words).run().expect_ok();
    assert!(done.out().contains("resident/live"), "{done}");

    let told = info(&trace);
    let json = place.path("sim.json");
    let policies = ["--policy", "lfr,fullness,best-fit", "--json"];
    command(&["sim"], &trace).args(policies).arg(&json).run().expect_ok();
    let simulated: Value =
        serde_json::from_slice(&std::fs::read(&json).expect("results")).expect("JSON");
    let outcomes = simulated["outcomes"].as_array().expect("outcomes");
    assert_eq!(outcomes.len(), 3);
    let asked = ["made", "ended", "grown"].map(|name| number(&told, "spans", name));
    for outcome in outcomes {
        assert_eq!(outcome["summary"]["operations"], asked.iter().sum::<u64>());
        assert_eq!(outcome["summary"]["refused"], 0);
    }

    let (requests, spans) = (place.path("r.parquet"), place.path("s.parquet"));
    let job = command(&["trace", "export"], &trace);
    let job = job.arg("--requests").arg(&requests).arg("--spans").arg(&spans);
    job.run().expect_ok();
    for file in [requests, spans] {
        let bytes = std::fs::read(&file).expect("a table");
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    }
}

#[test]
fn tables_of_what_was_not_recorded_are_refused_and_nothing_is_written() {
    let program = Program::new("recorded.c");
    for of in ["requests", "spans"] {
        let place = Place::new();
        place.record(&["--of", of, "--mode", "native"], program.path(), &["counts"]).expect_ok();
        let trace = place.path("x.trace");
        for asked in [&["requests"][..], &["spans"], &["requests", "spans"]] {
            let place = Place::new();
            let job = asked.iter().fold(command(&["trace", "export"], &trace), |job, table| {
                job.arg(format!("--{table}")).arg(place.path(table))
            });
            if asked == [of] {
                job.run().expect_ok();
                assert_eq!(place.files(), [place.path(of)]);
                continue;
            }
            let done = job.run().expect_code(2);
            let absent = if of == "spans" { "requests" } else { "spans" };
            let wanted = format!("--{absent}: {} has no {absent}, only {of}", trace.display());
            assert!(done.err().contains(&wanted), "{done}");
            assert!(place.files().is_empty(), "{done}");
        }
    }
}

#[test]
fn the_published_recordings_are_whole() {
    let directory = spandrel_tests::subject::workspace().join("data/traces");
    let files = std::fs::read_dir(directory).expect("recordings");
    let (mut requests, mut spans, mut all_bytes) = (0, 0, 0);
    for file in files.map(|entry| entry.expect("an entry").path()) {
        if file.extension().is_none_or(|extension| extension != "trace") {
            continue;
        }
        let told = info(&file);
        assert_eq!(told["ended"], "exit", "{told}");
        assert!(number(&told, "spans", "made") > 100, "{told}");
        command(&["sim", "--policy", "lfr"], &file).run().expect_ok();
        let bytes = std::fs::metadata(&file).expect("a file").len();
        assert!(bytes <= 1 << 20, "{}: {bytes} bytes", file.display());
        all_bytes += bytes;
        if told["requests"].is_null() {
            assert!(number(&told, "spans", "ended") > 100, "{told}");
            spans += 1;
            continue;
        }
        assert!(number(&told, "requests", "allocations") > 10_000, "{told}");
        assert_eq!(number(&told, "requests", "unknown"), 0, "{told}");
        let job = command(&["trace", "replay", "--runs", "1"], &file);
        let done = job.run().expect_ok();
        assert!(done.out().contains("spandrel") && !done.out().contains("lost"), "{done}");
        requests += 1;
    }
    assert!(requests >= 4 && spans >= 4, "{requests}, {spans}");
    assert!(all_bytes <= 4 << 20, "{all_bytes}");
}

#[test]
fn the_drivers_requests_are_made_on_real_allocators() {
    subject().required_library();
    let words = ["sim", "--on-allocators", "--heap", "64MiB", "--target", "drop"];
    let done = Job::new(spandrel_command()).args(words).run().expect_ok();
    assert!(done.out().contains("spandrel native") && done.out().contains("drop"), "{done}");
    let chosen = ["--peers", "sys-hugetlb", "--modes", "mmap", "--runs", "1"];
    let done = Job::new(spandrel_command()).args(words).args(chosen).run().expect_ok();
    let has = |name: &str| done.out().contains(name);
    assert!(has("sys-hugetlb") && has("spandrel mmap") && !has("spandrel native"), "{done}");
}

#[test]
fn real_programs_are_recorded() {
    let place = Place::new();
    let code = "import json; print(len(json.dumps([{str(i): [i] * 9} for i in range(30000)])))";
    let python = installed("python3");
    let alone = Job::new(&python).args(["-c", code]).run().expect_ok();
    let done = place.record(&["--mode", "native"], &python, &["-c", code]).expect_ok();
    assert_eq!(done.out(), alone.out());
    let files = place.files();
    assert!(!files.is_empty());
    let mut spans = 0;
    for file in &files {
        let told = info(file);
        spans += number(&told, "spans", "made");
        assert_eq!(number(&told, "spans", "unknown"), 0, "{told}");
    }
    assert!(spans > 100, "{spans}");
}
