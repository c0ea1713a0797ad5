//! What makes a heap durable, and how it is left: checkpoints, at which it is lent to a process that wants a copy, and its end.

use core::cell::Cell;
use core::sync::atomic::Ordering::*;

use spandrel_os::vm;
use spandrel_pmem::Medium;
use spandrel_sync::Gate;

use crate::collections;
use crate::error::Error;
use crate::heap::{Heap, core_bytes};
use crate::registry;
use crate::shared::Core;
use crate::superblock::{ASKING, Record, State};

/// The gate of threads that end, shut until this is dropped.
struct Ends<'a>(&'a Gate<1>);

impl<'a> Ends<'a> {
    fn shut(gate: &'a Gate<1>) -> Self {
        Gate::shut_all(&[gate]);
        Self(gate)
    }
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl<M: Medium> Core<M> {
    /// Refuses to go on with a file that another process has truncated.
    pub fn check_present(&self) -> Result<(), Error> {
        // The length first: another thread may make the file longer in between.
        let needs = self.medium.bytes();
        let has = self.medium.present()?;
        if has < needs {
            return Err(Error::Truncated { has: has as u64, needs: needs as u64 });
        }
        Ok(())
    }

    /// Does something while nothing changes that the heap itself writes down: no collection is in the middle of an operation, as the gate is shut,
    /// and headers, mark bits, roots, the undo log and the heap's length are all under these locks. What is copied page by page meanwhile is a
    /// heap of one moment, whatever other threads store to their objects. The calling thread holds no lock of the heap's.
    ///
    /// # Errors
    /// [`Error::InOperation`]: the thread is inside an operation itself. Nothing was done then.
    fn still(&self, work: &mut dyn FnMut()) -> Result<(), Error> {
        {
            let _shut = self.gate.shut()?;
            let _ends = Ends::shut(&self.ends);
            let _roots = self.roots.lock();
            let _large = self.large.lock();
            let _partial = self.partial.each_ref().map(|partial| partial.lock());
            let _blocks = self.blocks.lock();
            work();
        }
        self.drain_orphans();
        Ok(())
    }

    /// Makes all that was stored until now durable.
    fn checkpoint(&self) -> Result<(), Error> {
        let refused = Cell::new(None);
        let outcome = self.medium.checkpoint_still(&|copy| {
            if let Err(why) = self.still(copy) {
                refused.set(Some(why));
            }
        });
        refused.get().map_or(Ok(()), Err)?;
        Ok(outcome?)
    }

    /// Makes the heap durable with a record that says that it is closed. A heap that needs a collection, or that has damage, stays one that is
    /// to be recovered. No thread has a cache of the heap any more, and no thread uses the heap.
    pub(crate) fn close(&self) -> Result<(), Error> {
        self.check_present()?;
        if self.needs_collection.load(Acquire) {
            return Ok(());
        }
        self.drain_all();
        self.free_empties();
        self.settle_lines();
        self.lazy.write_back(&self.medium);
        self.fence();
        // Before anything says that the heap is closed.
        self.medium.checkpoint()?;
        // Damage was found: the next opening recovers what can be, and refuses what cannot.
        if let Some(why) = *self.damage.lock() {
            return Err(why);
        }
        let mut record = self.record.lock();
        let closed = record.generation;
        *record = Record { state: State::Clean, closed, sums: self.sums(record.bytes), ..*record };
        record.put(&self.medium);
        self.medium.checkpoint()?;
        Ok(self.medium.settle()?)
    }

    /// Stands still until the process that asks for a copy has it.
    #[cold]
    fn lend(&self) -> Result<(), Error> {
        self.still(&mut || {
            // Another thread may have lent it while this one waited.
            if self.medium.is_asked(ASKING) {
                self.medium.lend(ASKING);
            }
        })
    }
}

impl<M: Medium> Heap<M> {
    /// Makes what was stored until now durable, on every medium; on a file nothing else does. When it has returned, no failure loses what it
    /// has: not of the process, not of the kernel, not of the power, and no later checkpoint harms it, whether that ends or not.
    ///
    /// Other threads may go on meanwhile. What the heap itself writes down is in a checkpoint as of one moment: the objects that are
    /// allocated, the roots, each collection between two operations, each transaction as a whole or not at all. Objects that another thread stores
    /// to just then are in it word by word as the copy finds them: each aligned word as some store has left it, those of before the call
    /// always. Threads that begin an operation of a collection, or need a block or a root, wait while the pages are copied, and not while the disk
    /// is waited for. A buffer that the kernel writes to by itself (`io_uring`, direct input that was begun before) is the program's to wait for.
    ///
    /// On a medium without a log it is the moment at which another process may take a copy ([`Options::copy`](crate::Options::copy)): if one
    /// asks, this returns when the copy is there.
    ///
    /// # Errors
    /// The device or the file system refused: what was durable before still is. [`Error::DiskFull`]: the next checkpoint tries again, with all
    /// of it. [`Error::Truncated`]: the file was cut off; the heap can only be abandoned then, and what lies in the part that is gone must
    /// not be touched. [`Error::Replaced`]: another file has the path of the heap, or the heap's file was removed, or moved without its log;
    /// the next checkpoint looks again. [`Error::InOperation`]: the calling thread is inside a transaction.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let core = self.core();
        if core.gate.origin().is_read_only() {
            return Ok(());
        }
        core.gate.check_outside()?;
        core.check_present()?;
        core.checkpoint()?;
        if core.medium.is_asked(ASKING) { core.lend() } else { Ok(()) }
    }

    /// Gives memory back that the process holds beside the file, on a medium with a log, for what the last checkpoint has: the pages read the same
    /// afterwards, from the file. Returns the number of bytes. A process of one thread need not call it: its checkpoints do that, after each
    /// 32 MiB.
    ///
    /// # Errors
    /// [`Error::InOperation`], [`Error::Forked`], [`Error::ReadOnly`], [`Error::NoMemory`].
    ///
    /// # Safety
    /// No other thread stores to an object of the heap meanwhile, but by collections and transactions, which wait; no system call that was
    /// begun before does.
    pub unsafe fn give_back(&self) -> Result<usize, Error> {
        let core = self.core();
        let mut bytes = 0;
        core.still(&mut || {
            // SAFETY: promised by the caller for objects; all else is under the locks that are held.
            bytes = unsafe { core.medium.give_back() };
        })?;
        Ok(bytes)
    }

    /// Closes the heap, so that it need not be recovered. Dropping it does the same, and says nothing of errors.
    ///
    /// # Errors
    /// As for [`Heap::checkpoint`]; the heap is to be recovered then.
    pub fn close(self) -> Result<(), Error> {
        let outcome = self.finish();
        core::mem::forget(self);
        outcome
    }

    /// Releases the heap without closing it, as a failure would: the next opening recovers it.
    pub fn abandon(self) {
        self.let_go(false).unwrap_or_default();
        core::mem::forget(self);
    }

    fn finish(&self) -> Result<(), Error> {
        self.let_go(true)
    }

    /// Releases the heap. If `closes` is set and the heap can be closed, its record says so first.
    ///
    /// The registry is locked only while threads lose their caches of this heap, and while its number becomes free. Between the two the disk
    /// is waited for, and threads end, heaps are opened and processes fork meanwhile.
    fn let_go(&self, closes: bool) -> Result<(), Error> {
        let core = self.core();
        let origin = core.gate.origin();
        // Before any lock: in a child of a fork another thread of the parent may have it. What the child has of the heap is not touched;
        // its mappings end with it.
        if origin.is_forked() {
            return Err(Error::Forked);
        }
        let closes = closes && !origin.is_read_only();
        let number = core.number.load(Relaxed);
        registry::unbind(number, || core.take_caches_from_threads());
        let outcome = if closes { core.close() } else { Ok(()) };
        core.drop_caches();
        collections::forget_claims(number);
        registry::unregister(number);
        // SAFETY: placed there when the heap was opened; the heap is unregistered, and `let_go` runs once.
        let core = unsafe {
            let core = self.core.read();
            vm::release(self.core.as_ptr().cast(), core_bytes::<M>());
            core
        };
        drop(core);
        outcome
    }
}

impl<M: Medium> Drop for Heap<M> {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests {
    use core::ptr::NonNull;
    use core::sync::atomic::AtomicBool;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use spandrel_pmem::Failed;
    use spandrel_pmem::simulator::Memory;

    use super::*;
    use crate::check;

    const BYTES: usize = 2 << 20;
    /// The disk of this test answers after this time at the latest.
    const MOST: Duration = Duration::from_secs(20);

    /// A medium whose checkpoints wait while `is_slow` is set.
    struct Slow<'a> {
        memory: &'a Memory,
        is_slow: &'a AtomicBool,
        is_waited_for: &'a AtomicBool,
    }

    // SAFETY: the bytes are those of `memory`.
    unsafe impl Medium for Slow<'_> {
        fn base(&self) -> NonNull<u8> {
            self.memory.base()
        }

        fn bytes(&self) -> usize {
            self.memory.bytes()
        }

        unsafe fn store(&self, at: usize, bytes: &[u8]) {
            // SAFETY: passed on from the caller.
            unsafe { self.memory.store(at, bytes) }
        }

        unsafe fn store_word(&self, at: usize, word: u64) {
            // SAFETY: passed on from the caller.
            unsafe { self.memory.store_word(at, word) }
        }

        fn write_back(&self, at: usize, len: usize) {
            self.memory.write_back(at, len);
        }

        fn fence(&self) {
            self.memory.fence();
        }

        fn checkpoint_still(&self, still: &dyn Fn(&mut dyn FnMut())) -> Result<(), Failed> {
            let begun = Instant::now();
            while self.is_slow.load(Acquire) && begun.elapsed() < MOST {
                self.is_waited_for.store(true, Release);
                std::thread::sleep(Duration::from_millis(1));
            }
            self.memory.checkpoint_still(still)
        }
    }

    fn wait_for(flag: &AtomicBool) {
        while !flag.load(Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A process copies the heap meanwhile, or a disk is waited for: a thread that has a cache of it ends all the same, and what waits for
    /// that goes on. Its free objects are the heap's again afterwards.
    #[test]
    fn a_thread_ends_while_the_heap_stands_still() {
        let memory = Memory::new(BYTES);
        let heap = Heap::create(&memory, [1, 2], 0, 0).unwrap();
        let (has_cache, ends) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let with_cache = scope.spawn(|| {
                let object = heap.alloc(64).unwrap();
                // SAFETY: the thread's own object.
                unsafe { heap.free(object).unwrap() };
                has_cache.store(true, Release);
                wait_for(&ends);
            });
            wait_for(&has_cache);
            let (send, ended) = std::sync::mpsc::channel();
            scope.spawn(move || {
                with_cache.join().unwrap();
                send.send(()).unwrap();
            });
            let mut is_finished = false;
            let mut still = || {
                ends.store(true, Release);
                is_finished = ended.recv_timeout(MOST).is_ok();
                assert!(heap.core().orphaned() > 0);
                // As forks do, and threads that end.
                registry::with(|| ());
            };
            heap.core().still(&mut still).unwrap();
            assert!(is_finished, "the thread has not ended");
            assert_eq!(heap.core().orphaned(), 0);
        });
        heap.close().unwrap();
    }

    /// Threads end, also those that had a cache of the heap; other heaps are opened and closed; the process forks.
    #[test]
    fn a_heap_that_waits_for_its_disk_when_it_is_closed_delays_nothing_else() {
        let (memory, other) = (Memory::new(BYTES), Memory::new(BYTES));
        let (is_slow, is_waited_for, has_cache) =
            (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        let slow = Slow { memory: &memory, is_slow: &is_slow, is_waited_for: &is_waited_for };
        let heap = Arc::new(Heap::create(slow, [1, 2], 0, 0).unwrap());
        is_slow.store(true, Release);
        std::thread::scope(|scope| {
            let threads_own = Arc::clone(&heap);
            let (has_cache, is_waited_for) = (&has_cache, &is_waited_for);
            let with_cache = scope.spawn(move || {
                let object = threads_own.alloc(64).unwrap();
                // SAFETY: the thread's own object.
                unsafe { threads_own.free(object).unwrap() };
                drop(threads_own);
                has_cache.store(true, Release);
                wait_for(is_waited_for);
            });
            wait_for(has_cache);
            let close = scope.spawn(move || Arc::into_inner(heap).unwrap().close());
            wait_for(is_waited_for);
            with_cache.join().unwrap();
            let heap = Heap::create(&other, [3, 4], 0, 0).unwrap();
            let heap = scope.spawn(move || heap.alloc(64).map(|_| heap)).join().unwrap().unwrap();
            heap.close().unwrap();
            // SAFETY: the child ends at once.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: no destructor has to run in the child.
                unsafe { libc::_exit(0) };
            }
            let mut status = -1;
            // SAFETY: waits for the child.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
            assert!(!close.is_finished(), "the disk has not answered yet");
            is_slow.store(false, Release);
            close.join().unwrap().unwrap();
        });
        let last = Memory::from_image(&memory.journal().last());
        let survey = check(&last, &[], &mut |found| std::panic!("{found}")).unwrap();
        assert_eq!((survey.record.state, survey.damaged, survey.lost), (State::Clean, 0, 0));
    }
}
