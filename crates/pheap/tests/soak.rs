//! A process with several threads is killed at random moments, again and again. After each time the heap is recovered, looked at in
//! full, and compared with a model that knows what had been done.
//!
//! `SPANDREL_SOAK` says how often; CI has 1,000 times, `make soak` 10,000.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use spandrel_pheap::collections::{
    HashMap, MapHead, SortedHead, SortedMap, Text, Vector, VectorHead,
};
use spandrel_pheap::{Choice, Heap, Kind, Options, RootType, check, copy};

const THREADS: usize = 3;
/// Steps between two checkpoints, on a file.
const CHECKPOINT_STEPS: u64 = 40;

/// What the worker says of itself, in a file that it has mapped: it is there when the worker was killed.
#[repr(C)]
struct Progress {
    /// Steps that each thread has done.
    done: [AtomicU64; THREADS],
    /// Steps that were done at the beginning of the last checkpoint, and of the last that has ended.
    begun: [AtomicU64; THREADS],
    kept: [AtomicU64; THREADS],
}

impl Progress {
    fn map(path: &Path) -> &'static Self {
        use std::os::fd::AsRawFd;
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).unwrap();
        file.set_len(4096).unwrap();
        // SAFETY: a new mapping of a file that is long enough; it stays.
        unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(
                std::ptr::null_mut(),
                4096,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            &*at.cast()
        }
    }
}

/// A number that follows from two.
fn drawn(one: u64, two: u64) -> u64 {
    let mut mixed = (one << 48 ^ two).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 8
}

/// Bytes of a thread's texts before it begins anew.
const TEXT_BYTES: usize = 2000;

/// What a thread has in the heap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct State {
    map: BTreeMap<u64, u64>,
    sorted: BTreeMap<u32, [u8; 40]>,
    numbers: Vec<u64>,
    text: String,
}

impl State {
    fn step(&mut self, thread: usize, step: u64) {
        let (what, key) = (drawn(thread as u64, step) % 8, drawn(7 + thread as u64, step));
        match what {
            0 => drop(self.map.remove(&(key % 300))),
            1 | 2 => drop(self.map.insert(key % 300, step)),
            3 => drop(self.sorted.remove(&(key as u32 % 200))),
            4 | 5 => drop(self.sorted.insert(key as u32 % 200, [step as u8; 40])),
            6 if self.numbers.len() > 3000 => drop(self.numbers.drain(100..)),
            6 => self.numbers.push(step),
            _ if self.text.len() > TEXT_BYTES => self.text.clear(),
            _ => self.text.push_str(["words ", "ä ", "and "][key as usize % 3]),
        }
    }
}

/// The same in the heap.
struct Kept<'h> {
    heap: &'h Heap,
    map: HashMap<'h, u64, u64>,
    sorted: SortedMap<'h, u32, [u8; 40]>,
    numbers: Vector<'h, u64>,
    text: Text<'h>,
}

const NAMES: [[&str; 4]; THREADS] =
    [["m0", "s0", "v0", "t0"], ["m1", "s1", "v1", "t1"], ["m2", "s2", "v2", "t2"]];

fn types() -> Vec<RootType<'static>> {
    let of = |[map, sorted, vector, text]: [&'static str; 4]| {
        [
            RootType::of::<MapHead<u64, u64>>(map),
            RootType::of::<SortedHead<u32, [u8; 40]>>(sorted),
            RootType::of::<VectorHead<u64>>(vector),
            RootType::of::<VectorHead<u8>>(text),
        ]
    };
    NAMES.into_iter().flat_map(of).collect()
}

impl<'h> Kept<'h> {
    fn open(heap: &'h Heap, thread: usize) -> Self {
        let [map, sorted, vector, text] = NAMES[thread];
        Self {
            heap,
            map: HashMap::open(heap, map).unwrap(),
            sorted: SortedMap::open(heap, sorted).unwrap(),
            numbers: Vector::open(heap, vector).unwrap(),
            text: Text::open(heap, text).unwrap(),
        }
    }

    fn step(&mut self, thread: usize, step: u64) {
        let (what, key) = (drawn(thread as u64, step) % 8, drawn(7 + thread as u64, step));
        match what {
            0 => drop(self.map.remove(&(key % 300)).unwrap()),
            1 | 2 => drop(self.map.insert(key % 300, step).unwrap()),
            3 => drop(self.sorted.remove(&(key as u32 % 200)).unwrap()),
            4 | 5 => drop(self.sorted.insert(key as u32 % 200, [step as u8; 40]).unwrap()),
            6 if self.numbers.len() > 3000 => self.numbers.truncate(100).unwrap(),
            6 => self.numbers.push(step).unwrap(),
            _ if self.text.len() > TEXT_BYTES => self.text.truncate(0).unwrap(),
            _ => self.text.push(["words ", "ä ", "and "][key as usize % 3]).unwrap(),
        }
        // What nobody keeps: a failure finds it, and it is free afterwards.
        let bytes = 16 + key as usize % if step.is_multiple_of(50) { 200_000 } else { 3000 };
        let object = self.heap.alloc(bytes).unwrap();
        if !step.is_multiple_of(9) {
            // SAFETY: nobody else has it.
            unsafe { self.heap.free(object).unwrap() };
        }
    }

    fn state(&self) -> State {
        State {
            map: self.map.iter().collect(),
            sorted: self.sorted.iter().collect(),
            numbers: self.numbers.iter().collect(),
            text: self.text.chars().collect(),
        }
    }
}

/// Run as a process of its own, which is killed.
#[test]
#[ignore = "is what the other tests kill"]
fn worker() {
    let (path, progress) = (std::env::var("HEAP").unwrap(), std::env::var("PROGRESS").unwrap());
    let keeps_log = std::env::var("LOGGED").is_ok();
    let progress = Progress::map(Path::new(&progress));
    let types = types();
    let (heap, _) = Options::new().roots(&types).open(&path).unwrap();
    // A checkpoint needs all others to wait.
    let order = RwLock::new(());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (heap, order) = (&heap, &order);
            scope.spawn(move || {
                let mut kept = Kept::open(heap, thread);
                for step in progress.done[thread].load(Acquire).. {
                    let may = order.read().unwrap();
                    kept.step(thread, step);
                    progress.done[thread].store(step + 1, Release);
                    drop(may);
                    if keeps_log && step % CHECKPOINT_STEPS == 0 {
                        let _all_wait = order.write().unwrap();
                        let copy = |from: &[AtomicU64; THREADS], to: &[AtomicU64; THREADS]| {
                            to.iter()
                                .zip(from)
                                .for_each(|(to, from)| to.store(from.load(Acquire), Release));
                        };
                        copy(&progress.done, &progress.begun);
                        heap.checkpoint().unwrap();
                        copy(&progress.begun, &progress.kept);
                    }
                }
            });
        }
    });
}

fn start(path: &Path, progress: &Path, keeps_log: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "worker"]).env("HEAP", path).env("PROGRESS", progress);
    if keeps_log {
        command.env("LOGGED", "1");
    }
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// Kills it so often, and looks each time.
fn soak(directory: &Path, choice: Choice, times: u64) {
    let path = directory.join("soak.heap");
    let text = path.to_str().unwrap();
    let keeps_log = choice == Choice::Logged;
    Options::new().size(1 << 20).medium(choice).create(text).unwrap().close().unwrap();
    let progress_path = directory.join("progress");
    let progress = Progress::map(&progress_path);
    let types = types();
    let mut states = vec![State::default(); THREADS];
    let mut steps = [0u64; THREADS];
    let mut all = 0;
    for round in 0..times {
        let mut worker = start(&path, &progress_path, keeps_log);
        // It takes a while to begin: most are killed while they work, some before or while they recover.
        let begun = Instant::now();
        let wait = Duration::from_micros(1000 + drawn(round, 1) % 30_000);
        while begun.elapsed() < wait {
            std::thread::sleep(Duration::from_micros(200));
        }
        worker.kill().unwrap();
        worker.wait().unwrap();
        let (heap, _) =
            Options::new().roots(&types).open(text).unwrap_or_else(|why| panic!("{round}: {why}"));
        for thread in 0..THREADS {
            let load = |of: &[AtomicU64; THREADS]| of[thread].load(Acquire);
            // What must be there, and what else may be.
            let may = if keeps_log {
                [load(&progress.kept), load(&progress.begun)]
            } else {
                [load(&progress.done), load(&progress.done) + 1]
            };
            let found = Kept::open(&heap, thread).state();
            let mut is_one = false;
            while steps[thread] <= may[1] {
                is_one |= may.contains(&steps[thread]) && states[thread] == found;
                if is_one || steps[thread] == may[1] {
                    break;
                }
                states[thread].step(thread, steps[thread]);
                steps[thread] += 1;
            }
            assert!(
                is_one,
                "round {round}, thread {thread}, after {may:?}: {found:?}, not {:?}",
                states[thread]
            );
            all += steps[thread];
            progress.done[thread].store(steps[thread], Release);
            progress.begun[thread].store(steps[thread], Release);
            progress.kept[thread].store(steps[thread], Release);
        }
        heap.close().unwrap();
        let copied = copy(text).unwrap();
        let survey = check(&copied, &types, &mut |finding| {
            assert_eq!(finding.kind, Kind::Lost, "round {round}: {finding}");
        });
        let survey = survey.unwrap();
        assert_eq!((survey.damaged, survey.lost), (0, 0), "round {round}");
        assert!(survey.record.bytes < 64 << 20, "round {round}: it leaks: {survey:?}");
    }
    assert!(all > times, "{all} steps in {times} rounds: nothing was tested");
}

fn times(of_thousand: u64) -> u64 {
    let all =
        std::env::var("SPANDREL_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    (all * of_thousand / 1000).max(1)
}

#[test]
fn in_memory() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    soak(directory.path(), Choice::Mapped, times(600));
}

#[test]
fn on_a_disk() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    soak(directory.path(), Choice::Logged, times(400));
}
