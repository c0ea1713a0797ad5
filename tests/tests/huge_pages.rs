//! The native allocator whatever the administrator has chosen for huge pages: memory goes back and stays back,
//! and statistics claim no huge pages where there are none.
//!
//! The setting is the machine's. Cargo runs one program of tests after the other, and its tests take turns.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use serde_json::Value;
use spandrel_tests::subject::spandrel_command;
use spandrel_tests::{Job, Program, subject};

const PLACE: &str = "/sys/kernel/mm/transparent_hugepage";

/// A setting of the kernel's, which is as it was when the value ends.
struct Setting {
    path: PathBuf,
    before: String,
}

/// Settings are the machine's: one test at a time changes them.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Setting {
    /// `None`: it cannot be changed here.
    fn new(name: &str) -> Option<Self> {
        let path = Path::new(PLACE).join(name);
        let text = std::fs::read_to_string(&path).ok()?;
        // What is chosen stands in brackets, where there is a choice.
        let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        let before = chosen.map_or(text.trim(), |(word, _)| word).to_owned();
        let setting = Self { path, before };
        std::fs::write(&setting.path, &setting.before).ok()?;
        Some(setting)
    }

    fn set(&self, value: &str) {
        std::fs::write(&self.path, value).expect("what could be written before");
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.path, &self.before);
    }
}

#[test]
fn objects_that_use_their_pages_are_packed() {
    let _turn = turn();
    Program::new("packed.c").run_each(&["auto"], |job| job);
}

#[test]
fn arrays_that_grow_side_by_side_are_held_once() {
    let _turn = turn();
    Program::new("arrays.c").run_each(&["auto"], |job| job);
}

#[test]
fn objects_that_fill_small_pages_get_huge_ones() {
    let _turn = turn();
    // Asking for huge pages of small ones is in Linux 6.1.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let number = |part: Option<&str>| part.and_then(|part| part.parse::<u32>().ok()).unwrap_or(0);
    let mut parts = release.split(['.', '-']);
    let is_recent = (number(parts.next()), number(parts.next())) >= (6, 1);
    let setting = std::fs::read_to_string(Path::new(PLACE).join("enabled")).unwrap_or_default();
    if !is_recent || !(setting.contains("[always]") || setting.contains("[madvise]")) {
        eprintln!("skipped: needs Linux 6.1, and huge pages");
        return;
    }
    Program::new("promoted.c").run_each(&["auto", "mmap"], |job| job);
}

#[test]
fn what_is_shared_or_was_only_read_gets_no_memory() {
    let _turn = turn();
    Program::new("unpromoted.c").run_each(&["auto", "mmap", "native"], |job| job);
}

#[test]
fn memory_goes_back_and_stays_back_with_any_setting() {
    let _turn = turn();
    subject().required_library();
    let program = Program::new("sleeping_heap.c");
    let names = ["enabled", "khugepaged/scan_sleep_millisecs", "khugepaged/pages_to_scan"];
    let [Some(enabled), Some(pause), Some(pages)] = names.map(Setting::new) else {
        eprintln!("skipped: needs root, and a kernel with huge pages");
        return;
    };
    // Else it would come by after the test.
    pause.set("100");
    pages.set("100000");
    for choice in ["madvise", "always", "never"] {
        enabled.set(choice);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let statistics = folder.path().join("statistics.json");
        let job = subject().job(program.path(), "native").env("SPANDREL_STATS", &statistics);
        let running = job.start();
        // It fills its heap, frees most, and sleeps for ten seconds.
        std::thread::sleep(std::time::Duration::from_secs(5));
        let stat = Job::new(spandrel_command()).args(["stat", "--json"]);
        let told = stat.arg(running.pid().to_string()).run().expect_ok().out();
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let done = running.wait().expect_ok();
        let words = done.out();
        let resident: Vec<u64> =
            words.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        assert!(resident[0] > 256 && resident[1] < 110, "{choice}: {done}");
        let at_end = std::fs::read_to_string(&statistics).expect("statistics");
        let at_end: Value = serde_json::from_str(&at_end).expect("JSON");
        for (told, when) in [(&told, "asleep"), (&at_end, "at its end")] {
            let figure = |name: &str| told["native"][name].as_u64().expect("a figure");
            let covered = figure("covered_bytes");
            assert!(figure("live_bytes") > 30 << 20, "{choice}, {when}: {told:#}");
            assert!(covered < figure("live_bytes"), "{choice}, {when}: {told:#}");
            if choice == "never" {
                assert_eq!(covered, 0, "{when}: {told:#}");
            }
        }
        let huge = told["heap"]["huge_bytes"].as_u64().expect("a number");
        assert!(choice != "never" || huge == 0, "{told:#}");
        assert_eq!(at_end["degraded"], Value::Array(Vec::new()), "{choice}: {at_end:#}");
    }
}

/// The kernel makes huge pages on request (`MADV_COLLAPSE`) also where it is set to have none.
#[test]
fn what_is_filled_again_gets_no_huge_pages_where_nobody_wants_any() {
    let _turn = turn();
    subject().required_library();
    let Some(enabled) = Setting::new("enabled") else {
        eprintln!("skipped: needs root, and a kernel with huge pages");
        return;
    };
    // Objects are made, most are freed and given back, and others made in their place.
    const SCRIPT: &str = "
import ctypes, time
libc = ctypes.CDLL(None)
kept = [bytes(2000) for _ in range(60000)]
kept = [one for at, one in enumerate(kept) if at // 500 % 3 == 0]
libc.malloc_trim(0)
kept += [bytes(1500) for _ in range(60000)]
time.sleep(3)
print(sum(int(line.split()[1]) for line in open('/proc/self/smaps') if line.startswith('AnonHuge')))
";
    enabled.set("never");
    let job = subject().job("python3", "native").env("PYTHONMALLOC", "malloc");
    let huge = job.arg("-c").arg(SCRIPT).run().expect_ok().out();
    assert_eq!(huge.trim(), "0", "KiB on huge pages");
}
