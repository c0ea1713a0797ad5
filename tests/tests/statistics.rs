//! The statistics that the library writes when a program ends, and the handshake with `spandrel run`.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use serde_json::Value;
use spandrel_tests::subject::{ALL_MODES, spandrel_command};
use spandrel_tests::{Job, Program, Source, installed, subject};

fn parse(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}

/// Sum of a column over the rows whose size range holds `size`.
fn sum(statistics: &Value, column: &str, size: u64) -> u64 {
    let rows = statistics["requests"].as_array().expect("rows");
    rows.iter()
        .filter(|row| (number(&row["from"])..=number(&row["to"])).contains(&size))
        .map(|row| number(&row[column]))
        .sum()
}

#[test]
fn counts_are_plausible() {
    let program = Program::new("counted.c");
    for mode in subject().modes(ALL_MODES) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("%p.json");
        let done =
            subject().job(program.path(), mode).env("SPANDREL_STATS", &file).run().expect_ok();
        let written: Vec<_> = std::fs::read_dir(folder.path()).expect("read").flatten().collect();
        assert_eq!(written.len(), 1, "mode {mode}: {done}");
        let statistics = parse(&written[0].path());
        let shown = format!("mode {mode}: {statistics:#}");
        let pid = written[0].file_name().to_string_lossy().replace(".json", "");
        assert_eq!(number(&statistics["format"]), 1, "{shown}");
        assert_eq!(number(&statistics["pid"]).to_string(), pid, "{shown}");
        assert_eq!(statistics["program"], "counted", "{shown}");
        let word = mode.split('=').next().expect("a word");
        assert!(statistics["mode"].as_str().is_some_and(|m| m.starts_with(word)), "{shown}");
        assert!(statistics["version"].is_string(), "{shown}");

        assert!((10_000..10_500).contains(&sum(&statistics, "allocs", 100)), "{shown}");
        let bytes = sum(&statistics, "alloc_bytes", 100);
        assert!((1_000_000..1_100_000).contains(&bytes), "{shown}");
        assert!((50..60).contains(&sum(&statistics, "allocs", 300_000)), "{shown}");
        let rows = statistics["requests"].as_array().expect("rows");
        let total = |column: &str| rows.iter().map(|row| number(&row[column])).sum::<u64>();
        assert!((100..150).contains(&total("reallocs")), "{shown}");
        assert!((5_025..5_600).contains(&total("frees")), "{shown}");

        let realloc = &statistics["realloc"];
        let ways =
            ["in_place", "moved_pages", "copied", "migrated"].map(|way| number(&realloc[way]));
        assert!((100..150).contains(&ways.iter().sum::<u64>()), "{shown}");
        assert!(number(&realloc["copied_bytes"]) <= 60_000_000, "{shown}");
        assert!(number(&realloc["migrated"]) <= 150, "{shown}");
        if mode == "mmap" {
            let live = number(&statistics["mmap"]["live_bytes"]);
            assert!(live >= 25 * 5_000_000, "{shown}");
            assert!(number(&statistics["mmap"]["live_slots"]) >= 25, "{shown}");
        }
        if mode == "sys" {
            assert!(rows.iter().all(|row| row["backend"] == "sys"), "{shown}");
        }
        assert_eq!(statistics["degraded"], Value::Array(Vec::new()), "{shown}");
    }
}

#[test]
fn text_on_standard_error_or_in_a_file() {
    let program = Program::new("counted.c");
    for target in ["1", "stderr"] {
        let job = subject().job(program.path(), "auto").env("SPANDREL_STATS", target);
        let done = job.run().expect_ok();
        assert!(done.err().lines().count() > 3 && done.stdout.is_empty(), "{done}");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("statistics.txt");
    let job = subject().job(program.path(), "template=brug").env("SPANDREL_STATS", &file);
    let done = job.run().expect_ok();
    assert!(done.stderr.is_empty(), "{done}");
    let text = std::fs::read_to_string(&file).expect("read");
    for word in ["jemalloc", "mmap", "in place"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn each_process_writes_its_own() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let job = subject()
        .job(installed("bash"), "auto")
        .env("SPANDREL_STATS", folder.path().join("s-%p.json"))
        .args(["-c", "seq 1000 | sort -n | tail -1; exit 3"]);
    job.run().expect_code(3);
    let mut programs: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder.path()).expect("read").flatten() {
        let statistics = parse(&entry.path());
        programs.push(statistics["program"].as_str().expect("a name").to_owned());
    }
    for name in ["seq", "sort", "tail", "bash"] {
        assert!(programs.iter().any(|p| p == name), "{programs:?} has no {name}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_said_and_harms_nothing() {
    for target in ["/nonexistent/folder/s.json", "/", ""] {
        let job = subject().job(installed("sh"), "auto").env("SPANDREL_STATS", target);
        let done = job.args(["-c", "echo out; exit 4"]).run().expect_code(4);
        assert_eq!(done.out(), "out\n", "{done}");
        assert!(done.library_lines().len() <= 1, "{done}");
    }
    // The shell ends without its handlers.
    let program = Program::new("counted.c");
    let job = subject().job(program.path(), "auto").env("SPANDREL_STATS", "/dev/full");
    let done = job.run().expect_ok();
    // No room: ENOSPC.
    assert!(done.err().contains("/dev/full: cannot be written (errno 28)"), "{done}");
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors. Without O_CLOEXEC, as the child must inherit one.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: both are fresh and nobody else's.
    unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) }
}

fn inode(descriptor: &OwnedFd) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    std::fs::metadata(path).expect("metadata of a pipe").ino()
}

fn available(descriptor: &OwnedFd) -> String {
    let mut text = [0_u8; 4096];
    // SAFETY: the descriptor is open, the buffer as long as said.
    let got = unsafe {
        libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
        libc::read(descriptor.as_raw_fd(), text.as_mut_ptr().cast(), text.len())
    };
    String::from_utf8_lossy(&text[..got.max(0) as usize]).into_owned()
}

#[test]
fn the_handshake_proves_that_the_library_is_loaded() {
    let environment = |handshake: String| -> Job {
        subject().job(installed("env"), "mimalloc").env("SPANDREL_HANDSHAKE", handshake)
    };
    let (read, write) = pipe();
    let done = environment(format!("{}:{}", write.as_raw_fd(), inode(&write))).run().expect_ok();
    let line = available(&read);
    assert!(
        line.starts_with("spandrel ") && line.ends_with(" mode mimalloc\n"),
        "{line:?}: {done}"
    );
    assert!(!done.out().contains("SPANDREL_HANDSHAKE"), "{done}");

    // Another pipe by now, something else than a pipe, or nonsense: nothing is written anywhere.
    let (read, write) = pipe();
    let wrong = format!("{}:{}", write.as_raw_fd(), inode(&write) + 1);
    for handshake in [wrong, "1:1".into(), "x".into(), "9999999:5".into(), "-1:-1".into()] {
        let done = environment(handshake.clone()).run().expect_ok();
        assert_eq!(available(&read), "", "{handshake}");
        assert!(!done.out().starts_with("spandrel "), "{handshake}: {done}");
    }
}

#[test]
fn a_report_has_every_process_and_what_its_heap_holds() {
    subject().required_library();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = folder.path().join("report.json");
    let script = "python3 -c 'x = [b\"x\" * 5000 for i in range(2000)]'; python3 -c pass; exit 7";
    let job = Job::new(spandrel_command()).args(["run", "--mode", "native", "--report"]);
    job.arg(&report).args(["--", "bash", "-c", script]).run().expect_code(7);
    let report = parse(&report);
    assert_eq!((number(&report["exit_code"]), number(&report["unreadable"])), (7, 0), "{report:#}");
    let processes = report["processes"].as_array().expect("processes");
    let pids: std::collections::BTreeSet<u64> =
        processes.iter().map(|process| number(&process["pid"])).collect();
    assert!(pids.len() == processes.len() && pids.len() >= 2, "{report:#}");
    // A forked child may have needed nothing.
    let native = |figure: &str| number(&report["sum"]["native"][figure]);
    assert!(native("hugepages_from_kernel") > 0 && native("transfer_misses") > 0, "{report:#}");
    for process in processes {
        let native = |figure: &str| number(&process["native"][figure]);
        let (live, resident) = (native("live_bytes"), native("resident_bytes"));
        assert!(live > 0 && resident > 0 && native("tables_bytes") > 0, "{process:#}");
        // What nobody touched is not resident.
        let most = live + native("cached_bytes") + native("free_bytes");
        assert!(resident <= most, "{process:#}");
    }
}

#[test]
fn a_forked_child_tells_nothing_of_what_its_parent_did_before() {
    subject().required_library();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = folder.path().join("report.json");
    let script = "import os\nx = [b'x' * 5000 + bytes(i) for i in range(4000)]\n\
                  child = os.fork()\nif child: os.waitpid(child, 0)";
    let job = Job::new(spandrel_command()).args(["run", "--mode", "native", "--report"]);
    job.arg(&report).arg("--").arg(installed("python3")).args(["-c", script]).run().expect_ok();
    let report = parse(&report);
    let processes = report["processes"].as_array().expect("processes");
    let filled = |process: &&Value| number(&process["native"]["hugepages_from_kernel"]) >= 8;
    assert!(processes.len() >= 2, "{report:#}");
    assert_eq!(processes.iter().filter(filled).count(), 1, "{report:#}");
}

/// As many as there are, up to the size of a sample.
#[test]
fn who_resizes_objects_is_told_on_request() {
    let program = Program::with(&Source { file: "resizes.c", flags: &["-rdynamic"] });
    for mode in subject().modes(&["auto", "native", "sys", "jemalloc", "switch"]) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("s.json");
        let job = || subject().job(program.path(), mode).env("SPANDREL_STATS", &file);
        job().run().expect_ok();
        assert_eq!(parse(&file)["sites"], Value::Array(vec![]), "nobody asked");
        job().env("SPANDREL_SITES", "1").run().expect_ok();
        let statistics = parse(&file);
        let sites = statistics["sites"].as_array().expect("sites");
        let of = |function: &str, column: &str| -> u64 {
            let here = |site: &&Value| site["callers"][0]["function"] == function;
            sites.iter().filter(here).map(|site| number(&site[column])).sum()
        };
        let shown = format!("mode {mode}: {:#}", statistics["sites"]);
        // 200 objects in 159 steps of 24 bytes, and 40 large ones that cannot stay.
        assert!((31_000..32_500).contains(&of("grow_many", "reallocs")), "{shown}");
        assert!((55_000_000..66_000_000).contains(&of("grow_many", "bytes")), "{shown}");
        assert_eq!(of("grow_large", "reallocs"), 40, "{shown}");
        assert!(of("grow_large", "copied_bytes") >= 40 * 40 * 1024, "{shown}");
        assert_eq!(sites[0]["callers"][1]["function"], "main", "{shown}");
    }
}

#[test]
fn groups_of_an_experiment_are_labelled_and_compared() {
    subject().required_library();
    let program = Program::new("counted.c");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("%h-%p.json");
    let with = |experiment: &str| {
        let job = subject().job(program.path(), "auto").env("SPANDREL_STATS", &file);
        job.env("SPANDREL_EXPERIMENT", experiment).run().expect_ok()
    };
    for _ in 0..6 {
        // All hosts and none: whichever this one is.
        with("e:0,mode=sys");
        with("e:100,mode=sys");
    }
    with("another:100");
    let mut modes = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(folder.path()).expect("read").flatten() {
        let statistics = parse(&entry.path());
        let text = |key: &str| statistics[key].as_str().expect("a text").to_owned();
        let usage = &statistics["usage"];
        let used = ["peak_bytes", "faults"].map(|key| number(&usage[key]));
        assert!(used.iter().all(|used| *used > 0), "{statistics:#}");
        *modes.entry((text("experiment"), text("group"), text("mode"))).or_insert(0) += 1;
    }
    let expected = [
        (("another".into(), "variant".into(), "auto".into()), 1),
        (("e".into(), "control".into(), "auto".into()), 6),
        (("e".into(), "variant".into(), "sys".into()), 6),
    ];
    assert_eq!(modes, std::collections::BTreeMap::from(expected));

    let compare = || Job::new(spandrel_command()).args(["stat", "--compare-groups"]);
    let table = compare().arg(folder.path()).run().expect_ok().out();
    assert!(
        table.contains("e: counted, 6 processes of the control and 6 of the variant"),
        "{table}"
    );
    let json = compare().arg(folder.path()).arg("--json").run().expect_ok().out();
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json[1]["experiment"], &json[1]["control"]), (&"e".into(), &6.into()), "{json:#}");
    let none = compare().arg(folder.path().join("none")).run().expect_code(2);
    assert!(none.err().contains("SPANDREL_EXPERIMENT"), "{none}");

    let said = with("e:5,mode=nonsense");
    assert!(said.err().contains("'nonsense' is no mode"), "{said}");
    let said = with("e");
    assert!(said.err().contains("there is no experiment"), "{said}");
    let refused = Job::new(spandrel_command()).args(["run", "--", "true"]);
    refused.env("SPANDREL_EXPERIMENT", "e:5,unit=planet").run().expect_code(2);
}

#[test]
fn children_count_what_they_do_themselves() {
    subject().required_library();
    let program = Program::new("fork_child.c");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("%p.json");
    subject().job(program.path(), "auto").env("SPANDREL_STATS", &file).run().expect_ok();
    let mut counts: Vec<u64> = std::fs::read_dir(folder.path())
        .expect("read")
        .flatten()
        .map(|entry| sum(&parse(&entry.path()), "allocs", 3000))
        .collect();
    counts.sort_unstable();
    // One child ended by `exit`; the others by `_exit`, and wrote nothing.
    assert!(matches!(counts[..], [10..20, 1000..1020]), "{counts:?}");
}

fn wait_until(condition: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "it takes too long");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The figures of a running program, read from outside.
#[test]
fn stat_of_a_running_program() {
    subject().required_library();
    let program = Program::new("looked_at.c");
    let looked_at = subject().job(program.path(), "native").start();
    let stat = |options: &[&str]| {
        Job::new(spandrel_command()).arg("stat").args(options).arg(looked_at.pid().to_string())
    };
    wait_until(|| looked_at.stderr_so_far().contains("ready"));
    let done = stat(&["--json"]).run();
    let json: Value = serde_json::from_str(&done.expect_ok().out()).expect("JSON");
    assert!(number(&json["native"]["live_bytes"]) >= 1_000_000, "{json:#}");
    assert!(number(&json["native"]["spans"]) > 0, "{json:#}");
    let resident = |part: &str| number(&json[part]["resident_bytes"]);
    assert!(resident("heap") >= 4_000_000 && resident("heap") < resident("process"), "{json:#}");
    assert!((1..8 << 20).contains(&resident("tables")), "{json:#}");
    assert_eq!(number(&json["native"]["resident_bytes"]), resident("heap"), "{json:#}");
    assert!(number(&json["process"]["resident_bytes"]) > 0, "{json:#}");
    let text = stat(&[]).run().expect_ok().out();
    assert!(text.contains(" (pid ") && text.contains(" live in "), "{text}");
    // Again and again, until it ends.
    let watching = stat(&["--every", "0.02"]).start();
    wait_until(|| watching.stdout_so_far().matches(" (pid ").count() > 2);
    drop(looked_at);
    watching.wait().expect_ok();

    let done = Job::new(spandrel_command()).args(["stat", "2147483647"]).run().expect_code(2);
    assert!(done.err().contains("no process 2147483647"), "{done}");
}

/// A forked child has its parent's heap from its first moment, and tells of it when it is looked at.
#[test]
fn stat_of_a_child_that_has_done_nothing_yet() {
    subject().required_library();
    let program = Program::new("looked_at.c");
    let parent = subject().job(program.path(), "native").arg("fork").start();
    wait_until(|| parent.stderr_so_far().contains("ready"));
    let said = parent.stderr_so_far();
    let child = said.split_whitespace().nth(1).expect("its number");
    let done = Job::new(spandrel_command()).args(["stat", "--json", child]).run();
    let json: Value = serde_json::from_str(&done.expect_ok().out()).expect("JSON");
    assert!(number(&json["native"]["live_bytes"]) >= 4_000_000, "{json:#}");
    assert_eq!(number(&json["native"]["transfer_hits"]), 0, "{json:#}");
    assert_eq!(json["mode"], "native", "{json:#}");
    let text = Job::new(spandrel_command()).args(["stat", child]).run().expect_ok().out();
    assert!(text.contains(&format!("(pid {child})")) && text.contains(" live in "), "{text}");
}

/// Attempts to make huge pages whole, those that failed, their time, and what went back for which reason.
#[test]
fn attempts_at_huge_pages_and_reasons_are_told() {
    subject().required_library();
    let program = Program::new("mended.c");
    for refused in [false, true] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let report = folder.path().join("report.json");
        let job =
            Job::new(spandrel_command()).args(["run", "--stats", "--mode", "native", "--report"]);
        let job = job.arg(&report).arg("--").arg(program.path());
        let done = if refused { job.arg("refused") } else { job }.run().expect_ok();
        let json = parse(&report);
        let figure = |name: &str| number(&json["sum"]["native"][name]);
        let [attempts, failures, restored] =
            ["collapse_attempts", "collapse_failures", "restored_so_far"].map(figure);
        if attempts == 0 {
            eprintln!("a kernel without MADV_COLLAPSE: not tried");
            return;
        }
        let shown = format!("{:#}", json["sum"]["native"]);
        assert!(failures <= attempts && (refused || failures < attempts), "{shown}");
        assert!(!refused || failures > 0, "{shown}");
        assert!(restored <= attempts - failures, "{shown}");
        let [longest, all] = ["collapse_max_us", "collapse_us"].map(figure);
        assert!(longest <= all && all <= attempts * longest, "{shown}");
        assert!(refused || longest > 0, "{shown}");
        assert!(figure("released_asked_bytes") > 10 << 20, "{shown}");
        let text = done.err();
        for word in ["made whole", "failed)", "ms each", "asked for"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}

/// Who serves is told also where there is no heap of ours.
#[test]
fn stat_names_the_mode_and_who_serves() {
    subject().required_library();
    let own = std::process::id();
    for (mode, stage, words) in [
        ("auto", "young", "glibc serves until"),
        ("sys", "serving", "no allocator but glibc"),
        ("mmap", "serving", "page-mapped: "),
        ("jemalloc", "serving", "jemalloc "),
        ("native", "serving", "the page heap's records"),
    ] {
        if !subject().modes(&[mode]).contains(&mode) {
            continue;
        }
        let sleeping = subject().job(installed("sleep"), mode).arg("30").start();
        let stat = |options: &[&str]| {
            let job = Job::new(spandrel_command()).arg("stat").args(options);
            job.arg(sleeping.pid().to_string()).run()
        };
        let maps = format!("/proc/{}/comm", sleeping.pid());
        wait_until(|| std::fs::read_to_string(&maps).is_ok_and(|name| name.trim() == "sleep"));
        wait_until(|| stat(&[]).out().contains(words));
        let text = stat(&[]).expect_ok().out();
        assert!(text.contains(&format!("mode {mode}")), "{text}");
        let json: Value = serde_json::from_str(&stat(&["--json"]).expect_ok().out()).expect("JSON");
        assert_eq!((&json["mode"], &json["stage"]), (&mode.into(), &stage.into()), "{json:#}");
        assert_eq!(json["native"].is_null(), mode != "native", "{json:#}");
        if mode == "jemalloc" {
            assert!(number(&json["allocators"][mode]["resident_bytes"]) > 0, "{json:#}");
        }
    }
    // This process, which has no library, and the kernel's.
    for (pid, words) in [(own.to_string(), "does not run on Spandrel"), ("2".into(), "(pid 2)")] {
        let done = Job::new(spandrel_command()).args(["stat", &pid]).run().expect_code(2);
        assert!(done.err().contains(words), "{done}");
    }
}
