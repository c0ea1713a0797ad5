//! What makes a heap durable, and how it is left: checkpoints, at which it is lent to whoever wants a copy, and its end.

use core::sync::atomic::Ordering::*;

use spandrel_os::vm;
use spandrel_pmem::Medium;

use crate::error::Error;
use crate::heap::{Heap, core_bytes};
use crate::registry;
use crate::shared::Core;
use crate::superblock::{ASKING, Record, State};

impl<M: Medium> Core<M> {
    /// Refuses to go on with a file that somebody has cut off.
    pub fn check_present(&self) -> Result<(), Error> {
        let (has, needs) = (self.medium.present()?, self.medium.bytes());
        if has < needs {
            return Err(Error::Truncated { has: has as u64, needs: needs as u64 });
        }
        Ok(())
    }

    /// Stands still until whoever asks for a copy has it. The calling thread holds no lock of the heap's.
    ///
    /// All that the heap itself writes down is under these locks: headers, mark bits, roots, the undo log, its length. So what is copied page by
    /// page is a heap of one moment, whatever other threads store to their objects meanwhile.
    #[cold]
    fn lend(&self) {
        let _roots = self.roots.lock();
        let _large = self.large.lock();
        let _partial = self.partial.each_ref().map(|partial| partial.lock());
        let _blocks = self.blocks.lock();
        // Another thread may have lent it while this one waited.
        if self.medium.is_asked(ASKING) {
            self.medium.lend(ASKING);
        }
    }
}

impl<M: Medium> Heap<M> {
    /// Makes all that was written back until now durable, on every medium. On a file nothing else does, and nobody may write
    /// meanwhile.
    ///
    /// On a medium without a log it is the moment at which others may take a copy ([`Options::copy`](crate::Options::copy)): if somebody asks for
    /// one, this returns when it is there, and threads that need more of the heap than they have wait as well.
    ///
    /// # Errors
    /// The device or the file system refused; [`Error::Truncated`]: somebody has cut the file off. The heap can only be abandoned then, and
    /// what lies in the part that is gone must not be touched.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let core = self.core();
        core.check_process()?;
        core.check_present()?;
        core.medium.checkpoint()?;
        if core.medium.is_asked(ASKING) {
            core.lend();
        }
        Ok(())
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

    /// Lets go of the heap as a failure would: it is to be recovered. What was stored is on the medium or not.
    pub fn abandon(self) {
        self.let_go(|_| Ok(())).unwrap_or_default();
        core::mem::forget(self);
    }

    fn finish(&self) -> Result<(), Error> {
        self.let_go(|core| {
            core.check_process()?;
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
        let mut outcome = Ok(());
        registry::unregister(core.number.load(Relaxed), || {
            outcome = last(core);
            core.drop_caches();
        });
        // SAFETY: placed there, and nobody has it any more.
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
