//! The files of a state compared with each other, in a copy in memory. Nothing of the files changes.
//!
//! 1. The batches that the state has and the log still holds are applied to the copy, one after the other: the last one that stores a byte decides what the state has there.
//!    What the file has otherwise is damage, of the file or of what wrote it.
//! 2. Where batches store that the state lacks, the file may have what they store, or parts of it: these bytes are not compared.
//! 3. The batches that the state lacks are applied. The copy is what the next opening finds, and its heap can be checked.
//!
//! Memory: the copy takes what an opening takes. The log is read piece by piece, however long it is: nothing is kept of a batch.

use core::{cmp, slice};

use spandrel_pheap::replicated::FILES_OWN;
use spandrel_pmem::disk::{Disk, LogOf, Which};
use spandrel_pmem::{Buffer, Captured, Failed, Medium, Notes};
use spandrel_redolog::{BUFFER_BYTES, Header, Point, Reader, Ring};

use crate::directory::Paths;
use crate::error::Error;
use crate::inspect::{Inspection, Read, inspect};
use crate::store::read_into;

/// Stores to the copy are not noted.
pub struct Unnoted;

impl Notes for Unnoted {
    fn note(&self, _: *const u8, _: usize) {}
}

/// A state in memory, at its addresses, whose stores reach no file.
pub type Memory = Captured<Unnoted>;

/// What the comparison has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compared {
    /// Batches that the state has and the log still holds.
    pub batches: u64,
    /// Bytes of the state that differ from what these have stored.
    pub differing: u64,
    /// The offset in the file of the first of them.
    pub first: Option<u64>,
}

impl Compared {
    fn compare(&mut self, at: u64, stored: &[u8], there: &[u8]) {
        if stored == there {
            return;
        }
        let pairs = stored.iter().zip(there).zip(at..);
        for (_, at) in pairs.filter(|((stored, there), _)| stored != there) {
            self.differs(at, 1);
        }
    }

    fn differs(&mut self, at: u64, bytes: u64) {
        self.differing += bytes;
        self.first = Some(self.first.map_or(at, |first| cmp::min(first, at)));
    }
}

/// See the head of this file.
pub struct Verified {
    /// What the files say.
    pub found: Inspection,
    /// What differs between them.
    pub compared: Compared,
    /// The state with all batches, for [`spandrel_pheap::check`].
    pub memory: Memory,
}

/// Verifies the files of a directory that no process has open: each batch that the state lacks, and that the state has what the batches before these have stored, as far as the log
/// still holds them. `see` is called with the bytes of the log that were read, and all.
///
/// # Errors
/// As for opening the state.
pub fn verify(paths: &Paths, see: &mut dyn FnMut(u64, u64)) -> Result<Verified, Error> {
    let found = inspect(paths)?;
    let (disk, ties, state) = Read::open(paths)?;
    let tie = ties.newest();
    let limit = usize::try_from(found.most_bytes).map_err(|_| Error::System(libc::EFBIG))?;
    let memory = Memory::new(Some(state.base), state.bytes, limit, Unnoted);
    let memory = memory.map_err(|why| match why {
        Failed(libc::EADDRINUSE) => spandrel_pheap::Error::BaseTaken(state.base as u64).into(),
        why => Error::of(why),
    })?;
    read_into(disk.state(), &memory, 0, state.bytes)?;
    let mut compared = Compared::default();
    if disk.has_log() {
        let mut buffer = Buffer::new(BUFFER_BYTES)?;
        let key = (tie.point, tie.is_complete);
        let ring = Ring::open(&LogOf(&disk), state.identity, key, buffer.bytes())?;
        compared = compare(&disk, &ring, tie.point, &memory, see)?;
    }
    Ok(Verified { found, compared, memory })
}

/// Compares a file that is at a point with what its ring holds. `memory` has what the file has, and the state with all batches afterwards.
pub(crate) fn compare<D: Disk>(
    disk: &D,
    ring: &Ring,
    point: Point,
    memory: &Memory,
    see: &mut dyn FnMut(u64, u64),
) -> Result<Compared, Failed> {
    let (piece, mut buffer) = (Buffer::new(BUFFER_BYTES)?, Buffer::new(BUFFER_BYTES)?);
    let held = ring.held(&LogOf(disk), point, buffer.bytes())?;
    let pending = (Reader::new(ring, point), ring.end());
    let mut both = Both { disk, memory, piece, buffer, compared: Compared::default() };
    if let Some(held) = held {
        let bytes = held.1 - held.0.at();
        both.compared.batches = both.pass(held, Step::Apply, &mut |done| see(done, 2 * bytes))?;
        both.pass(pending, Step::SetAside, &mut |_| ())?;
        both.pass(held, Step::Compare, &mut |done| see(bytes + done, 2 * bytes))?;
    }
    both.pass(pending, Step::Complete, &mut |_| ())?;
    Ok(both.compared)
}

/// What is done with each run of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The copy gets what it stores.
    Apply,
    /// The copy gets what the file has there.
    SetAside,
    /// The copy is compared with the file there.
    Compare,
    /// The copy gets what it stores, and becomes as long as the batch says.
    Complete,
}

/// Both files, and the copy.
struct Both<'a, D> {
    disk: &'a D,
    memory: &'a Memory,
    /// What the file has.
    piece: Buffer,
    /// What the log has.
    buffer: Buffer,
    compared: Compared,
}

impl<D: Disk> Both<'_, D> {
    /// Takes a step with all batches from a reader's on, up to a position. `see` is called with the bytes of the log behind each of them. Returns their number.
    fn pass(
        &mut self,
        (mut reader, stop): (Reader, u64),
        step: Step,
        see: &mut dyn FnMut(u64),
    ) -> Result<u64, Failed> {
        let Self { disk, memory, piece, buffer, compared } = self;
        let (from, mut batches, mut longest) = (reader.at(), 0, 0);
        while reader.at() < stop {
            let begin = |header: &Header| {
                longest = longest.max(header.image_bytes);
                let bytes = usize::try_from(header.image_bytes).unwrap_or(usize::MAX);
                if step == Step::Complete { memory.grow(bytes) } else { Ok(()) }
            };
            let apply = |at: u64, part: &[u8]| {
                outside(at, part).into_iter().try_for_each(|(at, part)| match step {
                    Step::Apply | Step::Complete => {
                        put(memory, at, part);
                        Ok(())
                    }
                    Step::SetAside | Step::Compare => {
                        let there = piece.bytes().get_mut(..part.len()).unwrap_or(&mut []);
                        let read = disk.read(Which::Image, at, there)?;
                        there.get_mut(read..).unwrap_or(&mut []).fill(0);
                        if step == Step::Compare {
                            compared.compare(at, view(memory, at, there.len()), there);
                        }
                        // Each byte is counted once.
                        put(memory, at, there);
                        Ok(())
                    }
                })
            };
            reader.next(&LogOf(*disk), buffer.bytes(), begin, apply)?;
            batches += 1;
            see(reader.at() - from);
        }
        let bytes = disk.bytes(Which::Image)?;
        if step == Step::Compare && longest > bytes {
            compared.differs(bytes, longest - bytes);
        }
        Ok(batches)
    }
}

/// The parts of a run that are not the file's own, which lies on pages that no batch stores to.
fn outside(at: u64, run: &[u8]) -> [(u64, &[u8]); 2] {
    let within =
        |to: u64| usize::try_from(to.saturating_sub(at)).unwrap_or(usize::MAX).min(run.len());
    let (before, behind) = (within(FILES_OWN.start), within(FILES_OWN.end));
    [(at, run.get(..before).unwrap_or(&[])), (at + behind as u64, run.get(behind..).unwrap_or(&[]))]
}

/// The part of a range of the state that the copy has.
fn clip(memory: &Memory, at: u64, len: usize) -> (usize, usize) {
    let bytes = memory.bytes();
    let at = usize::try_from(at).unwrap_or(usize::MAX).min(bytes);
    (at, len.min(bytes - at))
}

/// The copy's bytes at an offset of the state, as far as it has them.
fn view(memory: &Memory, at: u64, len: usize) -> &[u8] {
    let (at, len) = clip(memory, at, len);
    // SAFETY: open bytes of the copy, which has one thread, and which that thread does not store to while it looks.
    unsafe { slice::from_raw_parts(memory.base().as_ptr().add(at), len) }
}

/// Stores to the copy at an offset of the state, as far as it has that.
fn put(memory: &Memory, at: u64, bytes: &[u8]) {
    let (at, len) = clip(memory, at, bytes.len());
    // SAFETY: open bytes of the copy, which has one thread.
    unsafe { memory.store(at, bytes.get(..len).unwrap_or(&[])) }
}
