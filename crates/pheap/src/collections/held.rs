//! The common part of all handles of collections: the heap, the place of the collection's head, and the claim.

use core::mem::ManuallyDrop;
use core::ops::{Deref, Range};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::*};

use spandrel_pmem::Medium;

use super::claim::{Claim, Touched};
use super::op::Op;
use crate::error::Error;
use crate::heap::Heap;
use crate::pointer::PPtr;
use crate::registry;
use crate::shared::Core;
use crate::superblock::ROOTS;
use crate::trace::Trace;
use crate::transaction_readers::Reading;

/// What a handle of a collection keeps to have its heap open: `&Heap`, `Arc<Heap>`, `Rc<Heap>`, or the [`Heap`] itself.
///
/// A handle that has an `Arc<Heap>` borrows nothing: it is `'static`, [`Send`] and [`Sync`], and can be shared under a lock.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not keep a heap open",
    note = "give `&heap`, or `Arc::clone(&heap)` of an `Arc<Heap>` for a handle that borrows nothing"
)]
pub trait HeapRef {
    /// What the heap lies on.
    type Medium: Medium;

    /// The heap.
    fn heap(&self) -> &Heap<Self::Medium>;
}

impl<M: Medium> HeapRef for Heap<M> {
    type Medium = M;

    fn heap(&self) -> &Heap<M> {
        self
    }
}

impl<P: Deref> HeapRef for P
where
    P::Target: HeapRef,
{
    type Medium = <P::Target as HeapRef>::Medium;

    fn heap(&self) -> &Heap<Self::Medium> {
        (**self).heap()
    }
}

/// The handle of one collection. No `Drop` of its own: a handle that borrows a heap may be dropped after that was closed.
pub(crate) struct Held<H> {
    /// No other handle of a named collection lives meanwhile.
    claim: Claim,
    /// The heap's [`Core`], which stays where it is as long as the heap is open.
    core: NonNull<()>,
    /// Where the collection's head is.
    at: usize,
    /// The word of [`Touched`] of a collection that has no name.
    touched: AtomicU64,
    /// Keeps the heap open. Never handed out, and never borrowed mutably.
    _keeps: H,
}

// SAFETY: the pointer is to the heap that `H` keeps open, whose sharing `H` answers for; the rest is atomic or does not change.
unsafe impl<H: Send> Send for Held<H> {}
// SAFETY: as above.
unsafe impl<H: Sync> Sync for Held<H> {}

/// A heap that a handle or a caller keeps open, for the time of a borrow.
pub(crate) struct Lent<M: Medium>(ManuallyDrop<Heap<M>>);

impl<M: Medium> Lent<M> {
    pub fn of(core: NonNull<Core<M>>) -> Self {
        Self(ManuallyDrop::new(Heap::of(core)))
    }
}

impl<M: Medium> Deref for Lent<M> {
    type Target = Heap<M>;

    #[inline]
    fn deref(&self) -> &Heap<M> {
        &self.0
    }
}

impl<H: HeapRef> Held<H> {
    /// The handle of the collection whose head a named root leads to; `new` makes the head if the root leads to nothing.
    ///
    /// # Errors
    /// [`Error::HandleLives`]; [`Error::InTransaction`]: a transaction that has not ended has changed the collection, and is another
    /// thread's, or has changed the root; and as for [`Heap::root`] and [`Heap::alloc`].
    pub fn open<T: Trace>(heap: H, name: &str, new: impl FnOnce() -> T) -> Result<Self, Error> {
        let opened = heap.heap();
        let core = opened.core();
        let inside = core.gate.enter_to_look()?;
        let (index, claim) = core.claim_root(name, T::LAYOUT)?;
        let mut head = PPtr::<T>::from_raw(core.load(ROOTS + index * 8));
        if head.is_null() {
            // The head is no part of a transaction that the thread is in: the handle outlives a rollback.
            head = opened.new_object_now(new())?;
            core.set_root_now(index, head.raw())?;
        }
        let at = opened.place_of(head)?;
        opened.core().handles.fetch_add(1, Relaxed);
        let core = opened.core.cast();
        drop(inside);
        Ok(Self { claim, core, at, touched: AtomicU64::new(0), _keeps: heap })
    }

    /// The handle of the collection whose head a pointer leads to.
    ///
    /// # Errors
    /// [`Error::Foreign`].
    ///
    /// # Safety
    /// No other handle of it lives meanwhile, nor did one by which a transaction of another thread, that has not ended, has changed it.
    pub unsafe fn of<T>(heap: H, head: PPtr<T>) -> Result<Self, Error> {
        heap.heap().core().handles.fetch_add(1, Relaxed);
        let (at, core) = (heap.heap().place_of(head)?, heap.heap().core.cast());
        Ok(Self { claim: Claim::none(), core, at, touched: AtomicU64::new(0), _keeps: heap })
    }

    /// The heap.
    #[inline]
    pub fn core(&self) -> &Core<H::Medium> {
        // SAFETY: `_keeps` gave a reference to this heap when the handle was made. It was not borrowed mutably since, so a
        // reference to that heap could have lived as long; and the core does not move with the heap.
        unsafe { self.core.cast().as_ref() }
    }

    /// Where the collection's head is.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// The word of the last transaction that has changed the collection; see [`Touched`].
    #[inline]
    fn touched(&self) -> &AtomicU64 {
        self.claim.touched().unwrap_or(&self.touched)
    }

    /// Begins an operation that changes the collection. It is part of the transaction that the thread is in.
    ///
    /// # Errors
    /// [`Error::Forked`]; [`Error::InTransaction`]: a transaction of another thread has changed the collection and has not ended.
    #[inline]
    pub fn op(&self) -> Result<Op<'_, H::Medium>, Error> {
        let core = self.core();
        let op = Op::begin(core)?;
        match op.transaction() {
            Some(id) => {
                // What orders this with other threads: the handle is passed on, or its claim is released.
                let touched = self.touched();
                if !Touched::of(touched.load(Relaxed)).is_by(id) {
                    touched.store(Touched::collection(id).word(), Relaxed);
                }
            }
            None => {
                let open = core.transactions.open_id();
                if self.is_touched_by(open) {
                    return Err(Error::InTransaction);
                }
            }
        }
        Ok(op)
    }

    /// Whether the transaction of that number has changed the collection. No thread changes it while the handle is borrowed, but a
    /// rollback does.
    #[inline]
    fn is_touched_by(&self, open: u64) -> bool {
        open != 0 && Touched::of(self.touched().load(Relaxed)).is_by(open)
    }

    /// Whether what the collection holds may change although its handle is borrowed: by the rollback of a transaction that has not ended, or,
    /// in a child of a fork, by the parent. No transaction makes it true as long as the handle is borrowed.
    #[inline]
    pub fn may_change(&self) -> bool {
        let core = self.core();
        self.is_touched_by(core.transactions.open_id()) || core.gate.origin().is_forked()
    }

    /// Begins a read. As long as this lives, no transaction of another thread rolls back what it has changed of the collection. It lives for
    /// one call, in which the thread waits for no lock.
    #[inline]
    pub fn look(&self) -> Look<'_> {
        let open = self.core().transactions.open_id();
        if open == 0 { Look(None) } else { self.look_in_transaction(open) }
    }

    #[inline(never)]
    fn look_in_transaction(&self, open: u64) -> Look<'_> {
        let core = self.core();
        let is_own = || {
            let row = registry::row(core.number.load(Relaxed));
            row.is_some_and(|row| !row.transaction().get().is_null())
        };
        // In a child of a fork no transaction goes on, and none would end.
        let is_child = || core.gate.origin().is_forked();
        if !self.is_touched_by(open) || is_own() || is_child() {
            return Look(None);
        }
        Look(Some(core.transactions.rollbacks.keep_out()))
    }

    /// What an iterator keeps to find out that a rollback has moved what it stands on. Made within [`Held::look`].
    #[inline]
    pub fn watch(&self) -> Watch {
        let transactions = &self.core().transactions;
        let open = transactions.open_id();
        Watch(self.is_touched_by(open).then(|| transactions.rollbacks.count()))
    }

    /// Begins a step of an iterator. Returns whether there was a rollback since the step before: then what the iterator knows of the
    /// collection is void.
    #[inline]
    pub fn step(&self, watch: &mut Watch) -> (Look<'_>, bool) {
        // As long as the handle is borrowed, only a transaction that had changed the collection before changes it: by its rollback.
        let Some(seen) = &mut watch.0 else { return (Look(None), false) };
        let look = self.look();
        let now = self.core().transactions.rollbacks.count();
        let is_void = core::mem::replace(seen, now) != now;
        (look, is_void)
    }
}

/// A read that runs; see [`Held::look`].
pub(crate) struct Look<'c>(#[expect(dead_code, reason = "it is dropped")] Option<Reading<'c>>);

/// See [`Held::watch`]. `None`: no rollback can change the collection as long as the handle is borrowed.
pub(crate) struct Watch(Option<u64>);

/// Elements by their numbers. Ends early where there is none of a number any more: a rollback has removed it.
pub(crate) struct Numbered<R> {
    pub numbers: Range<usize>,
    pub read: R,
}

impl<R> Numbered<R> {
    #[inline]
    fn at<T>(&mut self, number: usize) -> Option<T>
    where
        R: FnMut(usize) -> Option<T>,
    {
        let value = (self.read)(number);
        if value.is_none() {
            self.numbers = 0..0;
        }
        value
    }
}

impl<T, R: FnMut(usize) -> Option<T>> Iterator for Numbered<R> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let number = self.numbers.next()?;
        self.at(number)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.numbers.size_hint()
    }
}

impl<T, R: FnMut(usize) -> Option<T>> DoubleEndedIterator for Numbered<R> {
    #[inline]
    fn next_back(&mut self) -> Option<T> {
        let number = self.numbers.next_back()?;
        self.at(number)
    }
}

impl<T, R: FnMut(usize) -> Option<T>> ExactSizeIterator for Numbered<R> {}
