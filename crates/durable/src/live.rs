//! Figures of an open state, for other processes: the file `figures` beside the state and the log.
//!
//! The thread that runs a batch adds to [`Live`], which it alone changes; the replica's thread writes all of it to the file now and then. Nothing depends on the file:
//! it is not synced, recovery does not read it, and an error of the disk there is no error of the state.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spandrel_capture::Statistics;
use spandrel_os::clock;
use spandrel_os::image::{self, Access, Image};
use spandrel_redolog::word;

use crate::control::Control;
use crate::sealed::{is_sealed, sealed};

const MAGIC: u64 = u64::from_le_bytes(*b"SPNDFIG1");
/// Bounds of the histogram: the first bucket has what took less than 2^10 ns, each following one twice as much, and the last one the rest, from half a minute on.
pub const BUCKETS: usize = 26;
const FIRST_BITS: u32 = 10;
/// A wait that is at least as long is a disk's: each of them is measured, as two looks at the clock are nothing beside it.
const LONG_NANOS: u64 = 20_000;
/// Of shorter waits one in this number is measured, and counts as all of them.
const SHORT_ONE_IN: u64 = 16;

/// Counts by name, and as the words of a file.
macro_rules! counts {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// What was counted since the state was opened. Words of the file, in this order.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counts {
            $($(#[$about])* pub $name: u64,)*
        }

        const COUNTS: usize = [$(stringify!($name)),*].len();

        impl Counts {
            fn words(&self) -> [u64; COUNTS] {
                [$(self.$name),*]
            }

            fn of(words: &[u64; COUNTS]) -> Self {
                let [$($name),*] = *words;
                Self { $($name),* }
            }
        }
    };
}

counts! {
    /// Batches that changed something. Each is one record of the log.
    batches,
    /// Fences and durable writes that commands waited for: one for a batch. A record that goes over the log's end is two writes. In memory that outlives the process (tmpfs) there is nothing to wait for.
    durable_waits,
    /// Commands that write, those of batches that changed nothing as well. One that was undone and ran again counts once.
    commands,
    /// Runs of bytes that the batches had stored.
    runs,
    /// Bytes of these runs.
    bytes,
    /// Blocks that capture has noted.
    blocks,
    /// Blocks that were noted once more in the same batch.
    duplicates,
    /// Notes that found the table full.
    overflowed,
    /// Batches that were noted in whole pages.
    coarse,
    /// Batches of every byte of the state.
    whole,
    /// Nanoseconds that the measured batches have waited, those that stand for others times their number.
    waited_nanos,
    /// The last durable batch: its epoch, ...
    epoch,
    /// ... its sequence, ...
    sequence,
    /// ... and when it was written, in nanoseconds since 1970; 0: none since the state was opened.
    time,
}

/// Counts that one thread changes and others read.
pub struct Live {
    counts: [AtomicU64; COUNTS],
    waits: [AtomicU64; BUCKETS],
}

impl Default for Live {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; COUNTS],
            waits: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

impl Counts {
    /// Takes what capture counts.
    pub fn set_capture(&mut self, of: Statistics) {
        let Statistics { blocks, duplicates, overflowed, coarse, whole, .. } = of;
        (self.blocks, self.duplicates, self.overflowed) = (blocks, duplicates, overflowed);
        (self.coarse, self.whole) = (coarse, whole);
    }
}

impl Live {
    /// Shows these counts. Called by one thread at a time.
    pub fn show(&self, counts: &Counts) {
        self.counts.iter().zip(counts.words()).for_each(|(place, word)| place.store(word, Relaxed));
    }

    /// A batch waited that long, and stands for that number of batches. Called by one thread at a time.
    fn note_wait(&self, nanos: u64, number: u64) {
        let bits = u64::BITS - (nanos >> FIRST_BITS).leading_zeros();
        if let Some(bucket) = self.waits.get((bits as usize).min(BUCKETS - 1)) {
            bucket.store(bucket.load(Relaxed) + number, Relaxed);
        }
    }
}

/// Measures how long batches wait for the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stopwatch {
    turn: u64,
    was_long: bool,
}

impl Stopwatch {
    /// Runs `work`, and notes how long it took if it is its turn. The nanoseconds, times the number of batches that they stand for.
    pub fn measure<R>(&mut self, live: &Live, work: impl FnOnce() -> R) -> (R, u64) {
        self.turn = self.turn.wrapping_add(1);
        if !self.was_long && !self.turn.is_multiple_of(SHORT_ONE_IN) {
            return (work(), 0);
        }
        let before = clock::nanos();
        let result = work();
        let nanos = clock::nanos().saturating_sub(before);
        // A wait that began as a short one stands for others.
        let number = if self.was_long { 1 } else { SHORT_ONE_IN };
        live.note_wait(nanos, number);
        self.was_long = nanos >= LONG_NANOS;
        (result, nanos.saturating_mul(number))
    }
}

/// How a state was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// Batches that only the log had.
    pub replayed: u64,
    /// How long it took until the state was in memory, whole.
    pub nanos: u64,
}

/// What the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figures {
    /// The number that the state is known by.
    pub identity: u64,
    /// The process that has written it, in its own namespace.
    pub process: u64,
    /// When the state was opened, in nanoseconds since 1970.
    pub opened: u64,
    /// When this was written.
    pub written: u64,
    /// The state was closed in order since.
    pub is_closed: bool,
    /// Bytes of the state.
    pub state_bytes: u64,
    /// The log's length.
    pub log_bytes: u64,
    /// Bytes of the log that the state's file may lack.
    pub log_used: u64,
    /// Batches that are durable in the log, and that the replica has not brought into the state's file yet.
    pub lag: u64,
    /// Times that the state's file was synced. Commands wait for it where the log is full.
    pub syncs: u64,
    /// How the state was opened.
    pub opening: Opened,
    /// Why the log is not brought into the state's file any more: the number that [`Control::failure`] has. 0: it is.
    pub failure: u64,
    /// See [`Counts`].
    pub counts: Counts,
    /// Batches by the time that they waited for the log: see [`bound_nanos`].
    pub waits: [u64; BUCKETS],
}

/// The time that the waits of a bucket are below, in nanoseconds; `None`: the last one has no bound.
pub fn bound_nanos(bucket: usize) -> Option<u64> {
    (bucket + 1 < BUCKETS).then(|| 1 << (FIRST_BITS as usize + bucket))
}

const HEAD: usize = 14;
const WORDS: usize = HEAD + COUNTS + BUCKETS;
/// Bytes of the file: words, and XXH64 of them.
pub const BYTES: usize = (WORDS + 1) * size_of::<u64>();

/// Has any bytes say that they are such a file, whole: for tests, as nothing else makes files of figures that no state had.
pub fn seal(bytes: &mut [u8; BYTES]) {
    let words = core::array::from_fn::<u64, WORDS, _>(|at| bytes.get(at * 8..).map_or(0, word));
    *bytes = sealed(MAGIC, core::iter::once(MAGIC).chain(words.into_iter().skip(1)));
}

impl Figures {
    /// The bytes of the file.
    pub fn to_bytes(self) -> [u8; BYTES] {
        let head: [u64; HEAD] = [
            MAGIC,
            self.identity,
            self.process,
            self.opened,
            self.written,
            self.is_closed.into(),
            self.state_bytes,
            self.log_bytes,
            self.log_used,
            self.lag,
            self.syncs,
            self.opening.replayed,
            self.opening.nanos,
            self.failure,
        ];
        let words = head.into_iter().chain(self.counts.words()).chain(self.waits);
        sealed(MAGIC, words)
    }

    /// The figures that the bytes of a file say. `None`: they are no such file, or not whole.
    pub fn parse(bytes: &[u8; BYTES]) -> Option<Self> {
        if !is_sealed(MAGIC, bytes) {
            return None;
        }
        let at = |index: usize| bytes.get(index * 8..).map_or(0, word);
        Some(Self {
            identity: at(1),
            process: at(2),
            opened: at(3),
            written: at(4),
            is_closed: at(5) != 0,
            state_bytes: at(6),
            log_bytes: at(7),
            log_used: at(8),
            lag: at(9),
            syncs: at(10),
            opening: Opened { replayed: at(11), nanos: at(12) },
            failure: at(13),
            counts: Counts::of(&core::array::from_fn(|index| at(HEAD + index))),
            waits: core::array::from_fn(|index| at(HEAD + COUNTS + index)),
        })
    }

    /// Reads the file of a path. `None`: there is none, or none that is whole.
    pub fn read(path: &CStr) -> Option<Self> {
        /// A process may be writing it.
        const TURNS: usize = 10;
        let image = Image::open(path, Access::Read).ok()?;
        (0..TURNS).find_map(|_| {
            let mut bytes = [0; BYTES];
            let read = image.read_at(&mut bytes, 0).ok()?;
            (read == BYTES).then(|| Self::parse(&bytes)).flatten()
        })
    }
}

/// Whether a file is one of figures, or an empty one of this user: another file of that name is the user's own.
fn is_ours(file: &Image) -> bool {
    let mut magic = [0; size_of::<u64>()];
    let read = file.read_at(&mut magic, 0);
    let is_figures = read == Ok(0) || read == Ok(magic.len()) && word(&magic) == MAGIC;
    is_figures && crate::directory::check_file(file).is_ok()
}

/// Removes the file of an earlier process: it says nothing of the one that opens the state.
pub fn forget(path: &CStr) {
    if Image::open(path, Access::Read).is_ok_and(|file| is_ours(&file)) {
        // What cannot be removed is written over.
        let _ = image::remove(path);
    }
}

/// Writes the file of an open state.
pub struct Publisher {
    /// `None`: there is no such file, and none can be made.
    file: Option<Image>,
    identity: u64,
    opened: u64,
    opening: Opened,
}

/// What the replica knows when it writes the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// See [`Figures`].
    pub state_bytes: u64,
    /// See [`Figures`].
    pub log_bytes: u64,
    /// See [`Figures`].
    pub syncs: u64,
    /// See [`Figures`].
    pub is_closed: bool,
}

impl Publisher {
    /// Of the state with that number; the file has that path. Where another file has it, no figures are written.
    pub fn new(path: &CStr, identity: u64, opening: Opened) -> Self {
        let there = || Image::open(path, Access::Write).ok().filter(is_ours);
        let file = Image::create(path).ok().or_else(there);
        Self { file, identity, opened: clock::calendar_nanos(), opening }
    }

    /// Writes the file. An error of the disk is none of the state: the file says when it was written.
    pub fn publish(&self, control: &Control, now: Now) {
        let Some(file) = &self.file else { return };
        let live = control.live();
        let counts = Counts::of(&live.counts.each_ref().map(|word| word.load(Relaxed)));
        let figures = Figures {
            identity: self.identity,
            process: spandrel_os::env::pid().unsigned_abs().into(),
            opened: self.opened,
            written: clock::calendar_nanos(),
            is_closed: now.is_closed,
            state_bytes: now.state_bytes,
            log_bytes: now.log_bytes,
            log_used: control.tail().saturating_sub(control.head()),
            lag: counts.batches.saturating_sub(control.applied()),
            syncs: now.syncs,
            opening: self.opening,
            failure: control.failure().map_or(0, |why| why.unsigned_abs().into()),
            counts,
            waits: live.waits.each_ref().map(|word| word.load(Relaxed)),
        };
        let _ = file.write_at(&figures.to_bytes(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    fn figures() -> Figures {
        let counts = Counts::of(&core::array::from_fn(|index| index as u64 + 100));
        let waits = core::array::from_fn(|index| index as u64);
        Figures {
            identity: 1,
            process: 2,
            opened: 3,
            written: 4,
            is_closed: true,
            state_bytes: 5,
            log_bytes: 6,
            log_used: 7,
            lag: 8,
            syncs: 9,
            opening: Opened { replayed: 10, nanos: 11 },
            failure: 12,
            counts,
            waits,
        }
    }

    #[test]
    fn a_file_is_read_as_it_was_written_or_not_at_all() {
        let bytes = figures().to_bytes();
        assert_eq!(Figures::parse(&bytes), Some(figures()));
        for bit in 0..BYTES * 8 {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Figures::parse(&other), None, "bit {bit}");
        }
    }

    /// A fixed part of what the fuzz target `figures` tries.
    #[test]
    fn any_words_that_are_sealed_are_figures() {
        let mut seed = 7u64;
        for _ in 0..2000 {
            let mut bytes = [0; BYTES];
            for place in bytes.chunks_exact_mut(8) {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let word = if seed >> 62 == 0 { u64::MAX } else { seed >> (seed >> 58) };
                place.copy_from_slice(&word.to_le_bytes());
            }
            assert_eq!(Figures::parse(&bytes), None);
            seal(&mut bytes);
            let figures = Figures::parse(&bytes).unwrap();
            assert_eq!(Figures::parse(&figures.to_bytes()), Some(figures));
        }
    }

    #[test]
    fn waits_are_counted_by_their_length() {
        let live = Live::default();
        for (nanos, bucket) in
            [(0, 0), (1023, 0), (1024, 1), (2047, 1), (1 << 20, 11), (u64::MAX, BUCKETS - 1)]
        {
            let before = live.waits[bucket].load(Relaxed);
            live.note_wait(nanos, 3);
            assert_eq!(live.waits[bucket].load(Relaxed), before + 3, "{nanos}");
            assert!(bound_nanos(bucket).is_none_or(|bound| nanos < bound));
        }
    }

    #[test]
    fn short_waits_count_as_those_that_were_not_measured() {
        let (live, mut watch) = (Live::default(), Stopwatch::default());
        for _ in 0..10 * SHORT_ONE_IN {
            watch.measure(&live, || ());
        }
        let all: u64 = live.waits.iter().map(|word| word.load(Relaxed)).sum();
        // The machine may have made some of them long.
        assert!((9 * SHORT_ONE_IN..=11 * SHORT_ONE_IN).contains(&all), "{all}");
    }
}
