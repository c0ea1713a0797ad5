//! A process with several threads is killed at random moments, again and again. After each time the heap is recovered, looked at in
//! full, and compared with a model that knows what had been done.
//!
//! No thread waits for another: while one makes a checkpoint the others go on with collections and transactions, allocate and free, and one
//! stores to an object without any lock. What the model demands after a failure is what a checkpoint promises: of each thread's collections
//! the state between two of its steps, no older than when the last checkpoint began that returned; of the object, words no older than that.
//!
//! Some heaps have sums of their pages, which are compared after each failure, before and after the recovery.
//!
//! `SPANDREL_SOAK` says how often; CI has 1,000 times, `make soak` 10,000.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use spandrel_pheap::collections::{
    HashMap, MapHead, SortedHead, SortedMap, Text, Vector, VectorHead,
};
use spandrel_pheap::{Choice, Heap, Kind, Medium, Options, RootType, Standing, check};

const THREADS: usize = 3;
/// Steps of a thread between two checkpoints that it makes, on a file.
const CHECKPOINT_STEPS: u64 = 40;
/// Words of the object that is stored to without a lock: each on a page of its own.
const WORDS: usize = 24;
const WORD_STEP: usize = 4096;

/// What the worker says of itself, in a file that it has mapped: it is there when the worker was killed.
#[repr(C)]
struct Progress {
    /// Steps that each thread has done.
    done: [AtomicU64; THREADS],
    /// Rounds of stores to the object, the last.
    stored: AtomicU64,
    /// The same at the beginning of the last checkpoint that has ended.
    kept: [AtomicU64; THREADS],
    kept_stores: AtomicU64,
    /// Checkpoints that have ended.
    checkpoints: AtomicU64,
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
            4 => drop(self.sorted.insert(key as u32 % 200, [step as u8; 40])),
            // Three collections at once.
            5 => {
                self.sorted.insert(key as u32 % 200, [step as u8; 40]);
                self.map.insert(key % 300, step);
                self.numbers.push(step);
            }
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
            4 => drop(self.sorted.insert(key as u32 % 200, [step as u8; 40]).unwrap()),
            5 => self
                .heap
                .transaction(|| {
                    self.sorted.insert(key as u32 % 200, [step as u8; 40])?;
                    self.map.insert(key % 300, step)?;
                    self.numbers.push(step)
                })
                .unwrap(),
            6 if self.numbers.len() > 3000 => self.numbers.truncate(100).unwrap(),
            6 => self.numbers.push(step).unwrap(),
            _ if self.text.len() > TEXT_BYTES => self.text.truncate(0).unwrap(),
            _ => self.text.push(["words ", "ä ", "and "][key as usize % 3]).unwrap(),
        }
        // An object without a pointer to it: a failure finds it, and it is free afterwards.
        let bytes = 16 + key as usize % if step.is_multiple_of(50) { 200_000 } else { 3000 };
        let object = self.heap.alloc(bytes).unwrap();
        if !step.is_multiple_of(9) {
            // SAFETY: the test owns the object.
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
    let object = match heap.get_root(0).unwrap() {
        Some(object) => object,
        None => {
            let object = heap.alloc_zeroed(WORDS * WORD_STEP).unwrap();
            heap.set_root(0, Some(object)).unwrap();
            object
        }
    };
    let words: Vec<&AtomicU64> = (0..WORDS)
        // SAFETY: within the object, which stays as long as the process does.
        .map(|word| unsafe { object.add(word * WORD_STEP).cast().as_ref() })
        .collect();
    let stored = progress.stored.load(Acquire);
    words.iter().for_each(|word| word.store(stored, Release));
    let one_at_a_time = Mutex::new(());
    let checkpoint = || {
        let _one = one_at_a_time.lock().unwrap();
        let done = progress.done.each_ref().map(|done| done.load(Acquire));
        let stored = progress.stored.load(Acquire);
        heap.checkpoint().unwrap();
        progress.kept.iter().zip(done).for_each(|(kept, done)| kept.store(done, Release));
        progress.kept_stores.store(stored, Release);
        progress.checkpoints.fetch_add(1, Relaxed);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in stored + 1.. {
                words.iter().for_each(|word| word.store(round, Release));
                progress.stored.store(round, Release);
                // Objects come and go meanwhile.
                let bytes = 16 + drawn(round, 9) as usize % 5000;
                let object = heap.alloc(bytes).unwrap();
                // SAFETY: the thread's own, and gone after this.
                unsafe {
                    object.write_bytes(1, bytes);
                    heap.free(object).unwrap();
                }
            }
        });
        for thread in 0..THREADS {
            let (heap, checkpoint) = (&heap, &checkpoint);
            scope.spawn(move || {
                let mut kept = Kept::open(heap, thread);
                for step in progress.done[thread].load(Acquire).. {
                    kept.step(thread, step);
                    progress.done[thread].store(step + 1, Release);
                    if keeps_log && step % CHECKPOINT_STEPS == 0 {
                        checkpoint();
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
fn soak(directory: &Path, choice: Choice, has_sums: bool, times: u64) {
    let path = directory.join("soak.heap");
    let text = path.to_str().unwrap();
    let keeps_log = choice == Choice::Logged;
    let options = Options::new().size(1 << 20).medium(choice).sums(has_sums);
    options.create(text).unwrap().close().unwrap();
    let standing = if has_sums { Standing::Compared } else { Standing::Absent };
    let compared = || Options::new().compare_sums().copy_medium(text).unwrap();
    let progress_path = directory.join("progress");
    let progress = Progress::map(&progress_path);
    let types = types();
    let mut states = vec![State::default(); THREADS];
    let mut steps = [0u64; THREADS];
    let mut all = 0;
    // The last value of any word that the parent has seen.
    let mut last_stored = 0;
    for round in 0..times {
        let mut worker = start(&path, &progress_path, keeps_log);
        // It takes a while to begin: most are killed while they work, some before or while they recover.
        let begun = Instant::now();
        // A disk is waited for.
        let most = if keeps_log { 120_000 } else { 30_000 };
        let wait = Duration::from_micros(1000 + drawn(round, 1) % most);
        while begun.elapsed() < wait {
            std::thread::sleep(Duration::from_micros(200));
        }
        worker.kill().unwrap();
        worker.wait().unwrap();
        if has_sums {
            // Of what the failure has left nothing else is certain before the recovery.
            let medium = compared();
            let mut pages = 0;
            let standing = medium.compare_sums(&mut |_, _| pages += 1);
            assert_eq!((standing, pages), (Ok(Standing::Compared), 0), "round {round}");
        }
        let (heap, _) =
            Options::new().roots(&types).open(text).unwrap_or_else(|why| panic!("{round}: {why}"));
        for thread in 0..THREADS {
            let done = progress.done[thread].load(Acquire);
            // What must be there at least; the step that was under way may be, too.
            let least = if keeps_log { progress.kept[thread].load(Acquire) } else { done };
            let found = Kept::open(&heap, thread).state();
            while steps[thread] < least || states[thread] != found {
                assert!(
                    steps[thread] <= done,
                    "round {round}, thread {thread}, {least} to {done}: {found:?}, not {:?}",
                    states[thread]
                );
                states[thread].step(thread, steps[thread]);
                steps[thread] += 1;
            }
            all += steps[thread];
            progress.done[thread].store(steps[thread], Release);
            progress.kept[thread].store(steps[thread], Release);
        }
        let stored = progress.stored.load(Acquire);
        // A worker that was killed before its first store has left the words as the round before found them.
        let is_older = keeps_log || stored == last_stored;
        let least = if is_older { progress.kept_stores.load(Acquire) } else { stored };
        if let Some(object) = heap.get_root(0).unwrap() {
            // SAFETY: within the object.
            let word = |word: usize| unsafe { object.add(word * WORD_STEP).cast::<u64>().read() };
            let words: Vec<u64> = (0..WORDS).map(word).collect();
            let is_kept = words.iter().all(|word| (least..=stored + 1).contains(word));
            assert!(is_kept, "round {round}, {least} to {stored}: {words:?}");
            // A checkpoint may have copied some words rounds after others.
            last_stored = words.iter().copied().max().unwrap_or(0);
            progress.stored.store(last_stored, Release);
            progress.kept_stores.store(words.iter().copied().min().unwrap_or(0), Release);
        } else {
            assert_eq!(least, 0, "round {round}: the object is gone");
        }
        heap.close().unwrap();
        let survey = check(&compared(), &types, &mut |finding| {
            assert_eq!(finding.kind, Kind::Lost, "round {round}: {finding}");
        });
        let survey = survey.unwrap();
        assert_eq!((survey.damaged, survey.lost), (0, 0), "round {round}");
        assert_eq!((survey.sums, survey.pages), (standing, 0), "round {round}");
        assert!(survey.record.bytes < 64 << 20, "round {round}: it leaks: {survey:?}");
    }
    assert!(all > times, "{all} steps in {times} rounds: nothing was tested");
    let checkpoints = progress.checkpoints.load(Acquire);
    assert!(checkpoints > times / 2 || !keeps_log, "{checkpoints} checkpoints in {times} rounds");
}

fn times(of_thousand: u64) -> u64 {
    let all =
        std::env::var("SPANDREL_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    (all * of_thousand / 1000).max(1)
}

#[test]
fn in_memory() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    soak(directory.path(), Choice::Mapped, false, times(600));
}

#[test]
fn on_a_disk() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    soak(directory.path(), Choice::Logged, false, times(400));
}

#[test]
fn on_a_disk_with_sums() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    soak(directory.path(), Choice::Logged, true, times(200));
}
