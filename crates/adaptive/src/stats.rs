//! Counting: off unless asked for, and then a few nanoseconds per request.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use spandrel_backends::remap::{self, RemapStats};
use spandrel_pages::{AllocatorId, Figure, Figures};
use spandrel_sync::thread_slot;

use crate::{observed, sites};

const ALLOCATORS: usize = AllocatorId::ALL.len();
/// Powers of two of sizes that are told apart.
pub(crate) const OCTAVES: usize = 48;
/// Threads are spread over this many sets of counters.
const SHARDS: usize = 16;
const PATHS: usize = 3;

static COUNTING: AtomicBool = AtomicBool::new(false);

#[repr(C, align(64))]
struct Shard {
    allocs: Counters,
    bytes: Counters,
    reallocs: Counters,
    realloc_bytes: Counters,
    frees: [AtomicU64; ALLOCATORS],
    paths: [AtomicU64; PATHS],
    copied: AtomicU64,
}

/// One counter for each octave of each allocator.
type Counters = [[AtomicU64; OCTAVES]; ALLOCATORS];

static SHARD: [Shard; SHARDS] = [const {
    Shard {
        allocs: [const { [const { AtomicU64::new(0) }; OCTAVES] }; ALLOCATORS],
        bytes: [const { [const { AtomicU64::new(0) }; OCTAVES] }; ALLOCATORS],
        reallocs: [const { [const { AtomicU64::new(0) }; OCTAVES] }; ALLOCATORS],
        realloc_bytes: [const { [const { AtomicU64::new(0) }; OCTAVES] }; ALLOCATORS],
        frees: [const { AtomicU64::new(0) }; ALLOCATORS],
        paths: [const { AtomicU64::new(0) }; PATHS],
        copied: AtomicU64::new(0),
    }
}; SHARDS];

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Allocation,
    Reallocation,
    Free,
}

/// How a reallocation was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Path {
    /// The address stayed.
    InPlace,
    /// The owner gave another address: copied, or moved by page tables.
    ByOwner(AllocatorId),
    /// Copied to another allocator.
    Migrated,
}

fn shard() -> &'static Shard {
    // Thread slots are at least a page apart.
    let address = core::ptr::from_ref(thread_slot()) as u64 >> 12;
    let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SHARDS.ilog2());
    &SHARD[hash as usize % SHARDS]
}

fn octave(size: usize) -> usize {
    (size.max(1).ilog2() as usize).min(OCTAVES - 1)
}

#[cold]
pub(crate) fn record(id: AllocatorId, event: Event, size: usize) {
    if !counting() {
        return;
    }
    let (shard, id, octave) = (shard(), id.named() as usize, octave(size));
    match event {
        Event::Allocation => {
            shard.allocs[id][octave].fetch_add(1, Relaxed);
            shard.bytes[id][octave].fetch_add(size as u64, Relaxed);
        }
        Event::Reallocation => {
            shard.reallocs[id][octave].fetch_add(1, Relaxed);
            shard.realloc_bytes[id][octave].fetch_add(size as u64, Relaxed);
        }
        Event::Free => {
            shard.frees[id].fetch_add(1, Relaxed);
        }
    }
}

/// An object has got `size` bytes, and kept `kept` of those that it had.
#[cold]
pub(crate) fn record_path(path: Path, kept: usize, size: usize) {
    if !counting() {
        return;
    }
    // The page-mapped backend moves pages.
    let copies = !matches!(path, Path::InPlace | Path::ByOwner(AllocatorId::Mmap));
    sites::resized(size, if copies { kept } else { 0 });
    let shard = shard();
    let (index, copied) = match path {
        // The page-mapped backend counts its own.
        Path::ByOwner(AllocatorId::Mmap) => return,
        Path::InPlace => (0, 0),
        Path::ByOwner(_) => (1, kept),
        Path::Migrated => (2, kept),
    };
    shard.paths[index].fetch_add(1, Relaxed);
    shard.copied.fetch_add(copied as u64, Relaxed);
}

pub(crate) fn counting() -> bool {
    COUNTING.load(Relaxed)
}

/// A child of `fork` begins to count anew: its parent tells of what was before.
pub(crate) fn forget() {
    if !counting() {
        return;
    }
    sites::forget();
    let clear = |counters: &Counters| {
        counters.iter().flatten().for_each(|counter| counter.store(0, Relaxed));
    };
    for shard in &SHARD {
        for counters in [&shard.allocs, &shard.bytes, &shard.reallocs, &shard.realloc_bytes] {
            clear(counters);
        }
        shard.frees.iter().chain(&shard.paths).for_each(|counter| counter.store(0, Relaxed));
        shard.copied.store(0, Relaxed);
    }
}

/// Turns the counting of requests on or off. While it is on, each request takes
/// a few nanoseconds longer; counts go on from where they were.
pub fn count_requests(on: bool) {
    // Requests are counted by allocator, which is not known of a young process.
    crate::youth::end();
    if COUNTING.swap(on, Relaxed) != on {
        observed::apply();
    }
}

/// Requests of one power of two of sizes to one allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestRow {
    /// The allocator that served them.
    pub allocator: AllocatorId,
    /// Smallest size in bytes.
    pub from: usize,
    /// Largest size in bytes.
    pub to: usize,
    /// New objects.
    pub allocs: u64,
    /// Bytes asked for by them.
    pub alloc_bytes: u64,
    /// Reallocations to such a size.
    pub reallocs: u64,
    /// Bytes asked for by them: the sizes that the objects then had.
    pub realloc_bytes: u64,
}

/// How reallocations were done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReallocStats {
    /// The address stayed.
    pub in_place: u64,
    /// Page-table entries moved; no byte was copied.
    pub moved_pages: u64,
    /// Copied within the owner (a moved glibc mapping counts here too).
    pub copied: u64,
    /// Bytes copied, migrations included.
    pub copied_bytes: u64,
    /// Copied to another allocator.
    pub migrated: u64,
}

/// What the handler has counted since the start.
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    allocs: [[u64; OCTAVES]; ALLOCATORS],
    bytes: [[u64; OCTAVES]; ALLOCATORS],
    reallocs: [[u64; OCTAVES]; ALLOCATORS],
    realloc_bytes: [[u64; OCTAVES]; ALLOCATORS],
    frees: [u64; ALLOCATORS],
    /// How reallocations were done; moves and copies of the page-mapped backend
    /// are known even while nothing is counted.
    pub realloc: ReallocStats,
    /// The page-mapped backend.
    pub mmap: RemapStats,
    /// The native allocator, once it has started.
    pub native: Option<Figures>,
    /// Whether requests are being counted.
    pub counting: bool,
}

impl Stats {
    /// The requests, by allocator and power of two of the size; empty rows are
    /// left out. Empty while requests are not counted.
    pub fn requests(&self) -> impl Iterator<Item = RequestRow> + '_ {
        AllocatorId::ALL.into_iter().flat_map(move |allocator| {
            (0..OCTAVES).filter_map(move |octave| {
                let id = allocator as usize;
                let row = RequestRow {
                    allocator,
                    from: if octave == 0 { 0 } else { 1 << octave },
                    to: (2usize << octave) - 1,
                    allocs: self.allocs[id][octave],
                    alloc_bytes: self.bytes[id][octave],
                    reallocs: self.reallocs[id][octave],
                    realloc_bytes: self.realloc_bytes[id][octave],
                };
                (row.allocs + row.reallocs > 0).then_some(row)
            })
        })
    }

    /// Objects given back to an allocator.
    pub fn frees(&self, allocator: AllocatorId) -> u64 {
        self.frees[allocator as usize]
    }
}

/// What the page-mapped backend counts: a part of [`stats`], which is large.
pub fn mapped() -> RemapStats {
    remap::stats()
}

/// Bytes of the native heap's objects, and bytes that it has from the kernel, of which some may
/// be untouched.
pub fn native_bytes() -> (usize, usize) {
    use Figure::{Cached, Free, InCaches, InSpans, InTransfer, Live};
    let Some(figures) = spandrel_backends::native_figures() else { return (0, 0) };
    let sum = |of: &[Figure]| of.iter().map(|figure| figures[*figure as usize] as usize).sum();
    let free: usize = sum(&[InCaches, InSpans, InTransfer]);
    (sum(&[Live]).saturating_sub(free), sum(&[Live, Cached, Free]))
}

/// Resident bytes of what hosted allocators have mapped: they do not tell what of it objects use.
pub fn hosted_bytes() -> usize {
    spandrel_backends::hosted_resident_bytes()
}

/// Bytes of glibc's objects; 0 where it cannot tell.
pub fn glibc_bytes() -> usize {
    spandrel_backends::Sys::bytes()
}

/// As [`stats`], with what the native heap has resident as it is now. The kernel looks at each page of it:
/// some microseconds for each 100 MiB on small pages.
pub fn measured_stats() -> Stats {
    spandrel_backends::measure_resident();
    stats()
}

/// A figure of the native allocator by its name, which is its name in JSON; `None`: there is no such
/// figure. Zero before the allocator has started.
pub fn native_figure(name: &[u8]) -> Option<u64> {
    let figure = *Figure::ALL.iter().find(|figure| figure.name().as_bytes() == name)?;
    if matches!(
        figure,
        Figure::Resident
            | Figure::Tables
            | Figure::PageHeap
            | Figure::PeakResident
            | Figure::PeakLive
            | Figure::Covered
    ) {
        spandrel_backends::measure_resident();
    }
    let figures = spandrel_backends::native_figures();
    Some(figures.map_or(0, |figures| figures[figure as usize]))
}

/// What has been counted so far; what is resident as it was when it was measured last.
pub fn stats() -> Stats {
    let mmap = remap::stats();
    let mut stats = Stats {
        allocs: [[0; OCTAVES]; ALLOCATORS],
        bytes: [[0; OCTAVES]; ALLOCATORS],
        reallocs: [[0; OCTAVES]; ALLOCATORS],
        realloc_bytes: [[0; OCTAVES]; ALLOCATORS],
        frees: [0; ALLOCATORS],
        realloc: ReallocStats {
            moved_pages: mmap.moved,
            copied: mmap.copied,
            copied_bytes: mmap.copied_bytes,
            ..ReallocStats::default()
        },
        mmap,
        native: spandrel_backends::native_figures(),
        counting: counting(),
    };
    let add = |to: &mut [u64; OCTAVES], from: &[AtomicU64; OCTAVES]| {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from.load(Relaxed));
    };
    for shard in &SHARD {
        for id in 0..ALLOCATORS {
            add(&mut stats.allocs[id], &shard.allocs[id]);
            add(&mut stats.bytes[id], &shard.bytes[id]);
            add(&mut stats.reallocs[id], &shard.reallocs[id]);
            add(&mut stats.realloc_bytes[id], &shard.realloc_bytes[id]);
            stats.frees[id] += shard.frees[id].load(Relaxed);
        }
        stats.realloc.in_place += shard.paths[0].load(Relaxed);
        stats.realloc.copied += shard.paths[1].load(Relaxed);
        stats.realloc.migrated += shard.paths[2].load(Relaxed);
        stats.realloc.copied_bytes += shard.copied.load(Relaxed);
    }
    stats
}
