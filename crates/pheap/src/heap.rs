//! An open heap: made, opened, collected. [`crate::allocate`] has its objects, [`crate::lasting`] its checkpoints and its end.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::*;

use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;
use spandrel_pmem::{Choice, Media, Medium};

use crate::collect::Collected;
use crate::error::Error;
use crate::layout::{BLOCK_BYTES, LEAST_BYTES, first_block};
use crate::progress::Watcher;
use crate::registry;
use crate::roots::RootType;
use crate::shared::Core;
use crate::sums::Sums;
use crate::superblock::{Identity, OLD_VERSION, Record, State, VERSION, forget_asking};
use crate::transaction_log;
use crate::undo;
use crate::window;

/// A function that [`Heap::free`] calls instead of freeing, with the object and the callback's data.
pub type FreeCallback = unsafe extern "C" fn(*mut u8, *mut u8);

/// A heap whose objects outlive the process. See the crate's documentation.
pub struct Heap<M: Medium = Media> {
    pub(crate) core: NonNull<Core<M>>,
}

// SAFETY: the core is locked or atomic; a cache belongs to one thread.
unsafe impl<M: Medium + Send> Send for Heap<M> {}
// SAFETY: as above.
unsafe impl<M: Medium + Send> Sync for Heap<M> {}

impl<M: Medium> fmt::Debug for Heap<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap")
            .field("base", &self.base())
            .field("bytes", &self.bytes())
            .field("limit", &self.medium().limit())
            .field("fixed_base", &self.fixed_base())
            .field("needs_recovery", &self.core().needs_collection.load(Relaxed))
            .finish_non_exhaustive()
    }
}

/// The state of a heap when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// The heap is new and has no objects: no process has opened it before; see [`Options::open_or_create`](crate::Options::open_or_create).
    pub created: bool,
    /// The heap had been closed, or is new. If not, it was recovered, or needs recovery.
    pub was_clean: bool,
    /// The outcome of recovery.
    pub collected: Option<Collected>,
    /// Damaged copies of the identity that were written anew: 0 to 2.
    pub mended: u64,
}

pub(crate) const fn core_bytes<M: Medium>() -> usize {
    size_of::<Core<M>>().next_multiple_of(PAGE_BYTES)
}

/// Formats a medium of zeroes as a heap that is closed and empty. Bytes from [`FORMATTED_BYTES`] on stay zero.
///
/// # Errors
/// As for [`Heap::create`].
pub(crate) fn format(medium: &impl Medium, identity: Identity, layout: u64) -> Result<(), Error> {
    let bytes = medium.bytes() / BLOCK_BYTES * BLOCK_BYTES;
    if bytes < LEAST_BYTES {
        return Err(Error::Size(medium.bytes()));
    }
    if !matches!(Identity::read(medium), Err(Error::NotAHeap | Error::Unfinished)) {
        return Err(Error::NotAHeap);
    }
    let (state, bytes, sums) = (State::Clean, bytes as u64, Sums::default());
    let (sequence, generation, features, closed) = (0, 0, 0, 0);
    Record { sequence, state, bytes, generation, layout, features, closed, sums }.put(medium);
    identity.write(medium);
    Ok(medium.checkpoint()?)
}

/// Bytes of a new heap of which some are not zero.
pub(crate) const FORMATTED_BYTES: usize = first_block(0).start();

impl<M: Medium> Heap<M> {
    /// Makes a heap of a medium of zeroes.
    ///
    /// # Errors
    /// [`Error::Size`]: the medium is too small; [`Error::NotAHeap`]: the bytes for the identity are not zero.
    pub fn create(medium: M, uuid: [u64; 2], base: u64, layout: u64) -> Result<Self, Error> {
        format(&medium, Identity { uuid, base, medium: Choice::Auto }, layout)?;
        Self::open(medium, layout, Some(&[])).map(|(heap, _)| heap)
    }

    /// Opens a heap. A heap that was not closed is recovered: objects that are not reachable from the roots become free. `types` are the
    /// types of roots.
    ///
    /// Without `types` a heap that was not closed is opened without recovery (section 10.1, `MAK_start_off`): it refuses allocations
    /// before [`Heap::collect`].
    ///
    /// # Errors
    /// The medium is no heap, or a damaged one; see [`Error`]. A recovery may have begun then, and the next opening begins it again.
    pub fn open(
        medium: M,
        layout: u64,
        types: Option<&[RootType<'_>]>,
    ) -> Result<(Self, Opened), Error> {
        // A number and memory first: without them the heap is refused before it changes.
        let number = registry::register()?;
        let place = Self::place().inspect_err(|_| registry::unregister(number))?;
        let prepared = Self::prepare(medium, layout).inspect_err(|_| {
            registry::unregister(number);
            // SAFETY: reserved above, and used by no other code.
            unsafe { vm::release(place.as_ptr().cast(), core_bytes::<M>()) };
        });
        let (core, mut opened) = prepared?;
        core.number.store(number, Release);
        core.gate.register(number);
        // SAFETY: mapped for it.
        unsafe { place.write(core) };
        let mut heap = Self { core: place };
        if let Some(types) = types
            && heap.core().needs_collection.load(Acquire)
        {
            opened.collected = Some(heap.collect(types)?);
        }
        Ok((heap, opened))
    }

    /// Reads and verifies the metadata, and writes a record that says that the heap is open.
    fn prepare(medium: M, layout: u64) -> Result<(Core<M>, Opened), Error> {
        let (identity, version) = Identity::find(&medium)?;
        let mut record = Record::read(&medium)?;
        if layout != 0 && record.layout != 0 && layout != record.layout {
            return Err(Error::Layout { heap: record.layout, given: layout });
        }
        let base = medium.base().as_ptr() as u64;
        if identity.base != 0 && identity.base != base {
            return Err(Error::BaseTaken(identity.base));
        }
        if identity.base != 0 {
            window::note(base);
        }
        let was_clean = record.state == State::Clean;
        let created = was_clean && version == VERSION && record.generation == 0;
        let canary = spandrel_os::clock::nanos().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ base;
        let core = Core::new(medium, identity, record, canary)?;
        if version == OLD_VERSION {
            record = core.upgrade(record)?;
        } else if was_clean {
            core.verify_closed(&record)?;
            undo::forget(&core.medium, record.sums.undo);
            transaction_log::forget_closed(&core.medium);
        }
        forget_asking(&core.medium);
        // Damage would meet the next opening otherwise, without a second copy.
        let mended = identity.mend(&core.medium);
        record.state = State::Dirty;
        record.bytes = (core.medium.bytes() / BLOCK_BYTES * BLOCK_BYTES) as u64;
        // A damaged record may have the last number.
        record.generation = record.generation.wrapping_add(1);
        // Durable before anything changes.
        record.put(&core.medium);
        *core.record.lock() = record;
        core.medium.checkpoint()?;
        // An atomic medium is as it was between two batches: no change is under way, and mark bits are exact, as no thread has a cache.
        if !was_clean && !core.medium.is_atomic() {
            undo::replay(&core.medium, undo::Format::Checked)?;
            transaction_log::replay(&core.medium)?;
            core.needs_collection.store(true, Release);
        }
        Ok((core, Opened { created, was_clean, collected: None, mended }))
    }

    /// Memory for the core. Its address never changes: caches have it.
    fn place() -> Result<NonNull<Core<M>>, Error> {
        let at = vm::reserve_small(core_bytes::<M>()).ok_or(Error::NoMemory)?;
        // SAFETY: reserved above, and used by no other code.
        unsafe {
            if vm::open(at.as_ptr(), core_bytes::<M>()) {
                return Ok(at.cast());
            }
            vm::release(at.as_ptr(), core_bytes::<M>());
        }
        Err(Error::NoMemory)
    }

    /// The heap of a core.
    pub(crate) fn of(core: NonNull<Core<M>>) -> Self {
        Self { core }
    }

    /// The fixed address of the heap; `None`: it may be mapped anywhere.
    pub fn fixed_base(&self) -> Option<u64> {
        Some(self.core().identity.base).filter(|base| *base != 0)
    }

    #[inline]
    pub(crate) fn core(&self) -> &Core<M> {
        // SAFETY: the core lives until the heap is dropped.
        unsafe { self.core.as_ref() }
    }

    /// The medium of the heap.
    #[inline]
    pub fn medium(&self) -> &M {
        &self.core().medium
    }

    /// The address of the heap in this process.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.core().at(0)
    }

    /// Bytes of the heap, free ones included.
    pub fn bytes(&self) -> usize {
        self.core().bytes()
    }

    /// Frees all objects that are not reachable from the roots (section 9.2). `types` are the types of roots. Each word of an object without a
    /// type is a candidate for a pointer. The program must keep pointers to objects only in the heap: a collection does not see others.
    ///
    /// # Errors
    /// A root has another type, or there is no memory. The heap does not change then.
    pub fn collect(&mut self, types: &[RootType<'_>]) -> Result<Collected, Error> {
        self.collect_watched(types, None)
    }

    /// As [`Heap::collect`], with a watcher that is called with the progress.
    ///
    /// # Errors
    /// As for [`Heap::collect`].
    pub fn collect_watched(
        &mut self,
        types: &[RootType<'_>],
        watcher: Option<Watcher<'_>>,
    ) -> Result<Collected, Error> {
        let core = self.core();
        core.check_process()?;
        registry::with(|| core.drain_all());
        let steps = 2 * (core.bytes() / BLOCK_BYTES) as u64;
        let collected = core.progress.watch(watcher, steps, || core.collect(types))?;
        core.needs_collection.store(false, Release);
        Ok(collected)
    }
}
