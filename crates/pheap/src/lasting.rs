//! What makes a heap durable, and how it is left: checkpoints, at which it is lent to a process that wants a copy, and its end.

use core::cell::Cell;
use core::sync::atomic::Ordering::*;

use spandrel_os::vm;
use spandrel_pmem::Medium;

use crate::collections;
use crate::error::Error;
use crate::heap::{Heap, core_bytes};
use crate::registry;
use crate::shared::Core;
use crate::superblock::{ASKING, Record, State};

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
        let _shut = self.gate.shut()?;
        let _roots = self.roots.lock();
        let _large = self.large.lock();
        let _partial = self.partial.each_ref().map(|partial| partial.lock());
        let _blocks = self.blocks.lock();
        work();
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
    /// not be touched. [`Error::InOperation`]: the calling thread is inside a transaction.
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
        self.let_go(|_| Ok(())).unwrap_or_default();
        core::mem::forget(self);
    }

    fn finish(&self) -> Result<(), Error> {
        self.let_go(|core| {
            if core.gate.origin().is_read_only() {
                return Ok(());
            }
            core.check_present()?;
            if core.needs_collection.load(Acquire) {
                return Ok(());
            }
            core.drain_all();
            core.free_empties();
            core.settle_lines();
            core.lazy.write_back(&core.medium);
            core.fence();
            // Before anything says that the heap is closed.
            core.medium.checkpoint()?;
            // Damage was found: the next opening recovers what can be, and refuses what cannot.
            if let Some(why) = *core.damage.lock() {
                return Err(why);
            }
            let mut record = core.record.lock();
            let closed = record.generation;
            *record =
                Record { state: State::Clean, closed, sums: core.sums(record.bytes), ..*record };
            record.put(&core.medium);
            core.medium.checkpoint()?;
            Ok(core.medium.settle()?)
        })
    }

    fn let_go(&self, last: impl FnOnce(&Core<M>) -> Result<(), Error>) -> Result<(), Error> {
        let core = self.core();
        // Before any lock: in a child of a fork another thread of the parent may have it. What the child has of the heap is not touched;
        // its mappings end with it.
        if core.gate.origin().is_forked() {
            return Err(Error::Forked);
        }
        let mut outcome = Ok(());
        let number = core.number.load(Relaxed);
        registry::unregister(number, || {
            outcome = last(core);
            core.drop_caches();
            collections::forget_claims(number);
        });
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
