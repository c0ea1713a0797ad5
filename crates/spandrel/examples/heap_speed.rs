//! What the recoverable heap costs on this machine: a pair of allocation and free, loops of several threads beside the program's
//! `malloc`, and recovery.
//!
//!     cargo run --release --example heap_speed -- [DIRECTORY in memory, else /dev/shm] [MiB]
//!
//! Checkpoints are measured on a file in the working directory, beside as many bytes that are written and waited for in one go.
//!
//! `LD_PRELOAD` puts another `malloc` beside it.

use spandrel::heap::{Choice, Heap, Options, PPtr, RootType, Trace};
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn malloc(bytes: usize) -> *mut c_void;
    fn free(object: *mut c_void);
}

type Failure = Box<dyn std::error::Error>;

/// The best of five.
fn best(mut work: impl FnMut() -> Result<Duration, Failure>) -> Result<Duration, Failure> {
    let mut least = Duration::MAX;
    for _ in 0..5 {
        least = least.min(work()?);
    }
    Ok(least)
}

/// Makes and frees 100,000 objects of 64 bytes 100 times, on so many threads (threadtest of the paper's Fig. 7).
fn loops(threads: usize, make: impl Fn() -> usize + Sync, free: impl Fn(usize) + Sync) -> Duration {
    let count = 100_000 / threads;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut objects = Vec::with_capacity(count);
                for _ in 0..100 {
                    objects.extend((0..count).map(|_| make()));
                    objects.drain(..).for_each(&free);
                }
            });
        }
    });
    begun.elapsed()
}

/// What the benchmark Resur of the paper (section 13.2) makes: lists of objects of up to half a page, of which every other one is kept.
#[derive(Trace)]
#[repr(C)]
struct Node {
    next: PPtr<Node>,
}

fn resur(heap: &Heap, bytes: usize) -> Result<(), Failure> {
    let mut state = 88_172_645_463_325_252u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % below
    };
    let mut made = 0;
    while made < bytes {
        let size = 16 + draw(2048);
        let object = heap.alloc(size)?;
        made += size;
        if draw(2) == 0 {
            let root = draw(512);
            let next = PPtr::from_raw(heap.root_word(root)?);
            // SAFETY: an object that is large enough, and nobody else's.
            unsafe { object.cast().write(Node { next }) };
            heap.set_root(root, Some(object))?;
        } else {
            // SAFETY: nobody uses it.
            unsafe { heap.free(object)? };
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let directory = words.next().unwrap_or_else(|| "/dev/shm".into());
    let bytes = words.next().map_or(Ok(1024), |text| text.parse::<usize>())? << 20;
    let path = format!("{directory}/heap-speed-{}.heap", std::process::id());
    let options = Options::new().size(bytes + (64 << 20)).medium(Choice::Mapped);
    let heap = options.create(&path)?;
    let outcome = measure(&heap, heap.medium().guarantee());
    let outcome = outcome.and_then(|()| resur(&heap, bytes * 9 / 10)).and_then(|()| {
        heap.abandon();
        recover(&options, &path, bytes)
    });
    std::fs::remove_file(&path)?;
    outcome?;
    checkpoints()
}

/// 1024 pages that were changed here and there become durable, and as many that lie together, in turns.
fn checkpoints() -> Result<(), Failure> {
    const PAGES: usize = 1024;
    let name = |what: &str| format!("heap-speed-{}.{what}", std::process::id());
    let (path, plain) = (name("heap"), name("plain"));
    let heap = Options::new().size(16 << 20).medium(Choice::Logged).create(&path)?;
    let file = std::fs::File::create(&plain)?;
    let object = heap.alloc_zeroed(2 * PAGES * 4096)?;
    let bytes = vec![7u8; PAGES * 4096];
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 1..=11u64 {
        for page in 0..PAGES {
            // SAFETY: a page of the object.
            unsafe { object.as_ptr().add(page * 8192).cast::<u64>().write(round) };
        }
        let begun = Instant::now();
        heap.checkpoint()?;
        ours.push(begun.elapsed());
        let begun = Instant::now();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, round % 4 * bytes.len() as u64)?;
        file.sync_data()?;
        theirs.push(begun.elapsed());
    }
    heap.close()?;
    for path in [&path, &plain, &format!("{path}.log")] {
        std::fs::remove_file(path)?;
    }
    let [ours, theirs] = [ours, theirs].map(|mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    println!(
        "checkpoint of {PAGES} pages {ours:.1?}, written together and waited for {theirs:.1?}: {ratio:.1} times"
    );
    Ok(())
}

fn measure(heap: &Heap, on: impl std::fmt::Debug) -> Result<(), Failure> {
    const PAIRS: u32 = 5_000_000;
    let pair = best(|| {
        let begun = Instant::now();
        for _ in 0..PAIRS {
            // SAFETY: nobody uses it.
            unsafe { heap.free(black_box(heap.alloc(64)?))? };
        }
        Ok(begun.elapsed())
    })?;
    println!("{on:?}: a pair of 64 bytes: {:.1} ns", pair.as_nanos() as f64 / f64::from(PAIRS));
    for threads in [1, 2, 4] {
        let give = |object: usize| {
            // SAFETY: an object, which nobody uses.
            let _ = unsafe { NonNull::new(object as *mut u8).map(|object| heap.free(object)) };
        };
        let take = || heap.alloc(64).map_or(0, |object| object.as_ptr() as usize);
        let ours = best(|| Ok(loops(threads, take, give)))?;
        // SAFETY: any number of bytes may be asked for.
        let ask = || unsafe { malloc(64) } as usize;
        // SAFETY: it is freed once.
        let free_it = |object: usize| unsafe { free(object as *mut c_void) };
        let theirs = best(|| Ok(loops(threads, ask, free_it)))?;
        let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
        println!(
            "threadtest, {threads} threads: {ours:.1?}, with malloc {theirs:.1?}: {ratio:.2} times as fast"
        );
    }
    println!("{:?}", heap.counters());
    Ok(())
}

fn recover(options: &Options<'_>, path: &str, bytes: usize) -> Result<(), Failure> {
    let types: Vec<_> = (0..512).map(RootType::numbered::<Node>).collect();
    let open = |types: &[RootType<'_>]| {
        best(|| {
            let options = Options::new().medium(Choice::Mapped).roots(types);
            let begun = Instant::now();
            let (heap, opened) = options.open(path)?;
            let took = begun.elapsed();
            assert!(opened.collected.is_some_and(|collected| collected.live > 0));
            heap.abandon();
            Ok(took)
        })
    };
    let (typed, conservative) = (open(&types)?, open(&[])?);
    println!(
        "recovery of {} MiB: by type {typed:.1?}, word by word {conservative:.1?}",
        bytes >> 20
    );
    let (heap, _) = options.open(path)?;
    let begun = Instant::now();
    heap.close()?;
    let closed = begun.elapsed();
    let begun = Instant::now();
    let (heap, opened) = options.open(path)?;
    let again = begun.elapsed();
    assert!(opened.was_clean);
    let begun = Instant::now();
    heap.close()?;
    println!(
        "closing after a recovery {closed:.1?}, opening {again:.1?}, closing what was not used {:.1?}",
        begun.elapsed()
    );
    Ok(())
}
