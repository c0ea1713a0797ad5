//! Functions that a compiler calls before each store (`-fsanitize=thread`), and the capture that they note in.
//!
//! The functions are plain Rust: the crate that gives them their C names decides which symbols a program sees. [`functions`] has those for
//! stores, [`atomics`] those that store in the place of the program, [`copies`] those in front of the C library's.
//!
//! Invariants:
//! - One batch is open in the process at a time. A second one, and one that another thread ends, is every byte of the durable regions.
//! - `OWNER` is the thread of the open batch. Only a hook of that thread reads `STATE`; a hook of any other thread costs two loads and notes
//!   nothing: the batches of a program are executed by one thread at a time.
//! - `IS_BUSY` while a hook has a reference to what was noted. A hook that interrupts another (in a handler of a signal) notes nothing: if
//!   its write is durable, the batch is every byte of the durable regions.
//! - The state has an address of its own, so that a capture can be moved while its batch is open.
//! - A hook runs to its end: a handler of a signal that interrupts one does not jump out of it.
//!
//! Not noted: stores of system calls and of code that was compiled without the hooks. Their interposers call [`wrote`].

pub mod atomics;
pub mod copies;
pub mod functions;

use core::arch::asm;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*, compiler_fence};

use crate::captured::{Captured, Extent, Sizes};
use crate::explicit::every_byte;
use crate::memory::Memory;
use crate::regions::{Region, Regions};
use crate::{Capture, Refused, Statistics};

/// The thread whose batch is open; 0: none.
static OWNER: AtomicUsize = AtomicUsize::new(0);
/// What the open batch notes in.
static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
/// Whether a batch is open, opens or closes.
static IS_OPEN: AtomicBool = AtomicBool::new(false);
/// Whether a hook of the owner notes.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
/// What hears of all writes: a [`Listener`], or null.
static LISTENER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
/// Whether a hook of the owner found another one busy.
static HAS_MISSED: AtomicBool = AtomicBool::new(false);

/// What the hooks use of a capture.
struct State {
    captured: Captured,
    /// Two, of which one is in use: a change goes to the other one, as a hook may interrupt it.
    regions: [Regions; 2],
    /// The number of the regions in use.
    active: AtomicUsize,
    /// The stack of the owner, which is transient; empty: unknown.
    stack: Region,
}

/// A capture of all writes of code that was compiled with the hooks.
pub struct CompilerHooks {
    state: NonNull<State>,
    /// Keeps the state mapped. `None` only when it is dropped.
    memory: Option<Memory>,
    /// Whether this capture's batch is the open one.
    is_open: bool,
    /// What the batch wrote is unknown.
    is_lost: bool,
    /// Batches that were lost although the table had room.
    lost: u64,
    /// The stack of the thread that begins the next batch.
    stack: Region,
    statistics: Statistics,
}

// SAFETY: the state is used by the thread that has the value while no batch is open, and by the owner of the batch while it is. A method
// that another thread calls meanwhile only reads the regions, which the owner changes through an exclusive reference to the value.
unsafe impl Send for CompilerHooks {}

/// What names the calling thread: the address of its control block, which the System V ABI has at offset 0 of `fs`.
#[inline(always)]
fn thread() -> usize {
    let thread;
    // SAFETY: reads the thread's own word, which the C library writes before the thread runs.
    unsafe {
        asm!("mov {}, fs:0", out(reg) thread, options(pure, readonly, nostack, preserves_flags))
    };
    thread
}

/// The calling thread has written, or is about to write, `bytes` bytes at `at`. Notes the durable part of them if its batch is open.
///
/// For interposers of functions that write without hooks: `read`, `strcpy`, `snprintf`.
#[inline(always)]
pub fn wrote(at: usize, bytes: usize) {
    if OWNER.load(Relaxed) == thread() {
        note(at, bytes);
    }
    let listener = LISTENER.load(Relaxed);
    if !listener.is_null() {
        // SAFETY: `listen` has stored a function of this type.
        unsafe { core::mem::transmute::<*mut (), Listener>(listener)(at, bytes) };
    }
}

/// What hears of writes beside the open batch: their address, and their length in bytes. Any thread may call it, a handler of a signal too.
pub type Listener = fn(usize, usize);

/// Has a function hear of all writes from now on: for a library that has several states, each with notes of its own. The last call holds.
pub fn listen(listener: Listener) {
    LISTENER.store(listener as *mut (), Relaxed);
}

#[inline(never)]
fn note(at: usize, bytes: usize) {
    let state = STATE.load(Relaxed);
    // SAFETY: this thread is the owner, so that the state is that of the open batch, and no other thread uses it. The regions in use are not
    // changed while a hook runs.
    if unsafe { State::regions(state) }.are_far(at, bytes) {
        return;
    }
    if IS_BUSY.load(Relaxed) {
        // SAFETY: as above.
        if unsafe { State::is_durable(state, at, bytes) } {
            HAS_MISSED.store(true, Relaxed);
        }
        return;
    }
    IS_BUSY.store(true, Relaxed);
    compiler_fence(SeqCst);
    // SAFETY: as above. No other hook of this thread has a reference to what was noted, as none was busy.
    unsafe { State::note(state, at, bytes) };
    compiler_fence(SeqCst);
    IS_BUSY.store(false, Relaxed);
}

impl State {
    /// Notes the durable part of a write.
    ///
    /// # Safety
    /// The state is live. Nothing else has a reference to `captured` meanwhile, nor an exclusive one to the regions in use.
    #[inline]
    unsafe fn note(this: *mut Self, at: usize, bytes: usize) {
        // SAFETY: promised by the caller. The stack is written between batches only.
        let (captured, regions, stack) =
            unsafe { (&mut (*this).captured, Self::regions(this), (*this).stack) };
        if at >= stack.start && at < stack.end {
            return;
        }
        if regions.main_holds(at, bytes) {
            captured.note(at, bytes);
        } else {
            regions.clip(at, bytes, |at, bytes| captured.note(at, bytes));
        }
    }

    /// Whether a part of a write is durable.
    ///
    /// # Safety
    /// As for [`State::regions`].
    unsafe fn is_durable(this: *const Self, at: usize, bytes: usize) -> bool {
        // SAFETY: promised by the caller. The stack is written between batches only.
        let (regions, stack) = unsafe { (Self::regions(this), (*this).stack) };
        let mut is_durable = false;
        regions.clip(at, bytes, |_, _| is_durable = true);
        is_durable && !(at >= stack.start && at < stack.end)
    }

    /// The regions in use.
    ///
    /// # Safety
    /// The state is live, and the regions in use are not changed as long as the reference lives.
    #[inline(always)]
    unsafe fn regions<'a>(this: *const Self) -> &'a Regions {
        // SAFETY: promised by the caller; the number is 0 or 1. The other regions get no reference.
        unsafe {
            let active = (*this).active.load(Relaxed) & 1;
            &*(&raw const (*this).regions).cast::<Regions>().add(active)
        }
    }
}

impl CompilerHooks {
    /// A capture of writes to `regions`.
    ///
    /// # Errors
    /// As for [`Captured::new`].
    pub fn new(sizes: Sizes, regions: &Regions) -> Result<Self, Refused> {
        let captured = Captured::new(sizes)?;
        let words = size_of::<State>().div_ceil(8);
        let memory = Memory::new(words, words)?;
        let state = memory.at().cast::<State>();
        let regions = [regions.clone(), Regions::new()];
        let none = Region::default();
        // SAFETY: the memory has room for a state and is aligned to a page.
        unsafe {
            state.write(State { captured, regions, active: AtomicUsize::new(0), stack: none })
        };
        Ok(Self {
            state,
            memory: Some(memory),
            is_open: false,
            is_lost: false,
            lost: 0,
            stack: none,
            statistics: Statistics::default(),
        })
    }

    /// The durable regions.
    pub fn regions(&self) -> &Regions {
        // SAFETY: the state lives as long as the value; `set_regions` needs an exclusive reference.
        unsafe { State::regions(self.state.as_ptr()) }
    }

    /// Other durable regions from now on, within a batch as well. A region may be left out between batches only: each byte that was noted stays
    /// readable up to the end of its batch.
    ///
    /// # Errors
    /// [`Refused::Thread`].
    pub fn set_regions(&mut self, regions: &Regions) -> Result<(), Refused> {
        if !self.is_exclusive() {
            return Err(Refused::Thread);
        }
        let state = self.state.as_ptr();
        // SAFETY: no other thread uses the state. A hook of this thread, which may interrupt the copy, uses the other regions.
        unsafe {
            let next = 1 - ((*state).active.load(Relaxed) & 1);
            (&raw mut (*state).regions).cast::<Regions>().add(next).write(regions.clone());
            compiler_fence(SeqCst);
            (*state).active.store(next, Relaxed);
        }
        Ok(())
    }

    /// The stack of the thread that begins the next batch, for programs whose stacks lie in durable regions: writes to it are not noted. It
    /// holds for one batch, as another thread may execute the next one.
    pub fn set_stack(&mut self, stack: Region) {
        self.stack = stack;
    }

    /// Whether this thread may use the state.
    fn is_exclusive(&self) -> bool {
        !self.is_open || OWNER.load(Relaxed) == thread()
    }

    /// Ends the open batch for the hooks; this thread is its owner. Returns whether a hook was missed.
    fn close(&mut self) -> bool {
        OWNER.store(0, Relaxed);
        compiler_fence(SeqCst);
        STATE.store(ptr::null_mut(), Relaxed);
        self.is_open = false;
        let has_missed = HAS_MISSED.swap(false, Relaxed);
        IS_OPEN.store(false, Release);
        has_missed
    }
}

impl Capture for CompilerHooks {
    /// Begins a batch of the calling thread.
    fn begin(&mut self) {
        if self.is_open {
            return;
        }
        if IS_OPEN.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            self.is_lost = true;
            return;
        }
        // SAFETY: no batch of this capture is open: no hook uses its state.
        unsafe { (*self.state.as_ptr()).stack = core::mem::take(&mut self.stack) };
        self.is_open = true;
        STATE.store(self.state.as_ptr(), Relaxed);
        compiler_fence(SeqCst);
        OWNER.store(thread(), Relaxed);
    }

    fn note(&mut self, at: *const u8, bytes: usize) {
        if !self.is_exclusive() {
            self.is_lost = true;
        } else if self.is_open {
            wrote(at as usize, bytes);
        } else {
            // SAFETY: no batch of this capture is open: no hook uses its state.
            unsafe { State::note(self.state.as_ptr(), at as usize, bytes) };
        }
    }

    /// Ends the batch, on the thread that has begun it. On another thread the batch stays open for the thread that has begun it, and every
    /// byte of the durable regions is named.
    fn end(&mut self, see: &mut dyn FnMut(*const u8, usize)) {
        let mut is_lost = core::mem::take(&mut self.is_lost);
        if !self.is_exclusive() {
            self.lost += 1;
            self.statistics.whole += 1;
            every_byte(self.regions(), see);
            return;
        }
        if self.is_open {
            is_lost |= self.close();
        }
        // SAFETY: no batch of this capture is open, so that this is the only reference.
        let captured = unsafe { &mut (*self.state.as_ptr()).captured };
        let extent = captured.drain(|at, bytes| {
            if !is_lost {
                see(at, bytes);
            }
        });
        if extent == Extent::Everything || is_lost {
            self.lost += u64::from(extent != Extent::Everything);
            every_byte(self.regions(), see);
        }
        self.statistics = captured.statistics();
        self.statistics.whole += self.lost;
    }

    /// Figures of all ended batches.
    fn statistics(&self) -> Statistics {
        self.statistics
    }
}

impl Drop for CompilerHooks {
    fn drop(&mut self) {
        if !self.is_exclusive() {
            // The owner's hooks use the state: it stays mapped.
            core::mem::forget(self.memory.take());
            return;
        }
        if self.is_open {
            self.close();
        }
        // SAFETY: the state was written by the constructor, and no hook uses it. The memory is unmapped after this.
        unsafe { self.state.drop_in_place() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_pages::PAGE_BYTES;
    use std::vec::Vec;

    /// The only unit test that opens a batch: others would share its static variables.
    #[test]
    fn a_durable_write_of_a_hook_that_interrupts_another_is_not_lost() {
        let region = Region { start: PAGE_BYTES, end: 9 * PAGE_BYTES };
        let regions = Regions::of(region.start as *const u8, region.end - region.start).unwrap();
        let mut hooks = CompilerHooks::new(Sizes::default(), &regions).unwrap();
        let mut batch = |interrupting: usize| {
            hooks.begin();
            wrote(2 * PAGE_BYTES, 8);
            IS_BUSY.store(true, Relaxed);
            wrote(interrupting, 8);
            IS_BUSY.store(false, Relaxed);
            let mut runs = Vec::new();
            hooks.end(&mut |at, bytes| runs.push((at as usize, bytes)));
            runs
        };
        assert_eq!(batch(PAGE_BYTES / 2), [(2 * PAGE_BYTES, 32)]);
        assert_eq!(batch(PAGE_BYTES - 4), [(PAGE_BYTES, 8 * PAGE_BYTES)]);
        assert_eq!(batch(9 * PAGE_BYTES), [(2 * PAGE_BYTES, 32)]);
        assert_eq!(hooks.statistics().whole, 1);
    }
}
