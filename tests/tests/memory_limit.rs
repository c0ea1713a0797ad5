//! `SPANDREL_LIMIT`: what our own allocators hold, and what happens beyond it.

use spandrel_tests::subject::{installed, spandrel_command, subject};
use spandrel_tests::{Job, Program};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[test]
fn a_program_stays_within_a_hard_limit() {
    subject().required_library();
    let program = Program::new("hard_limit.c");
    for limit in ["64", "256"] {
        for mode in ["auto", "native"] {
            let job = subject().job(program.path(), mode).arg(limit);
            job.env("SPANDREL_LIMIT", format!("{limit}MiB")).run().expect_ok();
        }
    }
}

#[test]
fn threads_at_the_limit_get_what_there_is_and_no_more() {
    subject().required_library();
    let program = Program::new("limit_races.c");
    let tries =
        [("64", "one-of-two"), ("64", "never-both"), ("64", "comes-back"), ("800", "moves")];
    for (limit, what) in tries {
        for mode in ["auto", "native", "mmap"] {
            let job = subject().job(program.path(), mode).args([limit, what]);
            job.env("SPANDREL_LIMIT", format!("{limit}MiB")).run().expect_ok();
        }
    }
}

#[test]
fn glibc_is_no_way_round() {
    subject().required_library();
    let program = Program::new("limit_and_glibc.c");
    for mode in ["auto", "template=0-64KiB:sys,64KiB-:mmap", "template=0-64KiB:sys,64KiB-:native"] {
        let job = subject().job(program.path(), mode);
        job.env("SPANDREL_LIMIT", "64MiB").run().expect_ok();
    }
}

#[test]
fn large_objects_that_were_freed_go_back_in_a_quiet_program() {
    subject().required_library();
    let program = Program::new("quiet_mapped.c");
    let done = subject().job(program.path(), "mmap").run().expect_ok();
    let numbers: Vec<i64> =
        done.out().split_whitespace().map(|word| word.parse().expect("a number")).collect();
    assert!(numbers[0] > 40, "something is kept for later: {done}");
    assert!(numbers[1] < 16, "{done}");
}

/// Mebibytes that are resident before and ten seconds after a program has freed most of its heap,
/// an eighth of each huge page being live. Nothing goes back of these but for limits.
fn freed(prepare: impl Fn(Job) -> Job) -> (u64, u64) {
    let program = Program::new("sleeping_heap.c");
    let job = subject().job(program.path(), "native").env("SPANDREL_RELEASE_RATE", "0");
    let done = prepare(job).run().expect_ok();
    let text = done.out();
    let numbers: Vec<u64> =
        text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    assert_eq!(numbers.len(), 3, "{text}");
    (numbers[0], numbers[1])
}

#[test]
fn beyond_a_soft_limit_memory_goes_back() {
    subject().required_library();
    let (before, after) = freed(|job| job.env("SPANDREL_LIMIT", "hard=1GiB"));
    assert!(before > 200 && after > 200, "far below a hard limit: {before} {after}");
    let (before, after) = freed(|job| job.env("SPANDREL_LIMIT", "soft=64MiB"));
    assert!(before > 200 && after < 90, "{before} {after}");
}

/// A control group of the kernel's, if this process may make one.
struct Group(PathBuf);

impl Group {
    fn with_limit(bytes: u64) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Relaxed);
        let name = format!("spandrel-test-{}-{number}", std::process::id());
        let mounts =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.high")];
        mounts.into_iter().find_map(|(mount, file)| {
            let group = Self(Path::new(mount).join(&name));
            std::fs::create_dir(&group.0).ok()?;
            std::fs::write(group.0.join(file), bytes.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Mebibytes that are resident before and ten seconds after a program in a control group with so large
/// a limit has freed most of its heap; `None`: there is no such group here.
fn freed_in_group(limit_mib: u64, what: &str, prepare: impl Fn(Job) -> Job) -> Option<(u64, u64)> {
    let Some(group) = Group::with_limit(limit_mib << 20) else {
        eprintln!("control groups are not this user's to make: not tried");
        return None;
    };
    let program = Program::new("sleeping_heap.c");
    let procs = group.0.join("cgroup.procs");
    let script =
        format!("echo $$ > {} && exec {} {what}", procs.display(), program.path().display());
    let job = subject().job(installed("sh"), "native").args(["-c", &script]);
    let done = prepare(job.env("SPANDREL_RELEASE_RATE", "0")).run().expect_ok();
    let text = done.out();
    let numbers: Vec<u64> =
        text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    Some((numbers[0], numbers[1]))
}

#[test]
fn near_the_limit_of_its_control_group_memory_goes_back() {
    subject().required_library();
    let Some((_, after)) = freed_in_group(272, "", |job| job) else { return };
    // Without the group's limit more than 200, as above.
    assert!(after < 245, "{after}");
}

#[test]
fn programs_without_the_thread_look_at_their_control_group_too() {
    subject().required_library();
    let without = |job: Job| job.env("SPANDREL_BACKGROUND", "0");
    let Some((_, after)) = freed_in_group(272, "busy", without) else { return };
    assert!(after < 245, "{after}");
    // Far from a limit nothing goes.
    let far = freed_in_group(2048, "busy", without);
    assert!(far.is_some_and(|(before, after)| before > 250 && after > 250), "{far:?}");
    // A child has no thread until it has grown itself, and its parent does nothing.
    let Some((_, after)) = freed_in_group(272, "child", without) else { return };
    assert!(after < 245, "{after}");
}

/// The look is beside requests: on the stack that there is, and whatever the program is just doing.
#[test]
fn looking_whether_others_need_memory_harms_nothing() {
    subject().required_library();
    let program = Program::new("looks.c");
    for mode in ["native", "auto", "mmap"] {
        for what in ["thread", "vfork", "exhausted"] {
            let job = subject().job(program.path(), mode).arg(what);
            job.env("SPANDREL_BACKGROUND", "0").run().expect_ok();
        }
    }
}

#[test]
fn python_sees_a_memory_error_and_goes_on() {
    let code = "
import sys
kept = []
try:
    while True:
        kept.append(bytearray(1 << 20))
except MemoryError:
    count = len(kept)
    kept = None
    print('limit', count, len(bytearray(64 << 20)))
";
    let done = subject()
        .job(installed("python3"), "auto")
        .args(["-c", code])
        .env("SPANDREL_LIMIT", "128MiB")
        .run()
        .expect_ok();
    let text = done.out();
    let mut words = text.split_whitespace();
    assert_eq!(words.next(), Some("limit"), "{text}");
    let count: u64 = words.next().and_then(|word| word.parse().ok()).expect("a number");
    assert!((90..128).contains(&count), "{text}");
    assert_eq!(words.next(), Some("67108864"), "{text}");
}

#[test]
fn statistics_tell_of_the_limit() {
    let program = Program::new("limit_and_glibc.c");
    // Also where the native heap has never begun.
    for mode in ["auto", "mmap"] {
        let done = subject()
            .job(program.path(), mode)
            .env("SPANDREL_LIMIT", "hard=64MiB,soft=48MiB")
            .env("SPANDREL_STATS", "1")
            .run()
            .expect_ok();
        let text = done.err();
        assert!(text.contains("hard limit: 64MiB; "), "{mode}: {text}");
        assert!(text.contains("soft limit: 48MiB; "), "{mode}: {text}");
        assert!(!text.contains(" 0 refusals"), "{mode}: {text}");
    }
}

#[test]
fn a_limit_that_nobody_is_held_to_is_said_once() {
    for (mode, is_held) in [
        ("auto", true),
        ("mmap", true),
        ("switch=sys", true),
        ("template=0-4KiB:sys,4KiB-:native", true),
        ("sys", false),
        ("mimalloc", false),
        ("template=0-4KiB:sys,4KiB-:jemalloc", false),
    ] {
        let job = subject().job(installed("true"), mode).env("SPANDREL_LIMIT", "1GiB");
        let done = job.run().expect_ok();
        let lines = done.library_lines();
        assert_eq!(lines.len(), usize::from(!is_held), "{mode}: {done}");
        let wanted = format!("SPANDREL_LIMIT: without effect in mode {mode}: ");
        assert!(lines.iter().all(|line| line.contains(&wanted)), "{mode}: {done}");
    }
}

#[test]
fn what_is_no_limit_is_said_once_and_ignored_or_refused() {
    let wrong = ["much", "1GiB,2GiB", "soft=2GiB,hard=1GiB", "4KiB", "firm=1GiB"];
    for value in wrong {
        let job = subject().job(installed("true"), "auto").env("SPANDREL_LIMIT", value);
        let done = job.run().expect_ok();
        let lines = done.library_lines();
        assert_eq!(lines.len(), 1, "{value}: {done}");
        assert!(lines[0].contains("SPANDREL_LIMIT: "), "{done}");
        let job = Job::new(spandrel_command()).args(["run", "--", "true"]);
        let done = job.env("SPANDREL_LIMIT", value).run().expect_code(2);
        assert!(done.err().contains("SPANDREL_LIMIT in the environment: "), "{done}");
    }
}

#[test]
fn no_limit_is_asked_for_in_words_or_by_zero() {
    subject().required_library();
    for value in ["0", "off", "none", "soft=0", ""] {
        // Nobody is told that it is without effect, either.
        let job = subject().job(installed("true"), "sys").env("SPANDREL_LIMIT", value);
        let done = job.env("SPANDREL_STATS", "1").run().expect_ok();
        assert!(!done.err().contains("SPANDREL_LIMIT") && !done.err().contains(" limit"), "{done}");
        let job = Job::new(spandrel_command()).args(["run", "--stats", "--", "true"]);
        let done = job.env("SPANDREL_LIMIT", value).run().expect_ok();
        assert!(!done.err().contains(" limit"), "{value}: {done}");
    }
}
