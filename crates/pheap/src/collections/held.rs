//! The common part of all handles of collections: the heap, the place of the collection's head, and the claim.

use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::*};

use spandrel_pmem::Medium;

use super::claim::Claim;
use super::op::Op;
use crate::error::Error;
use crate::heap::Heap;
use crate::pointer::PPtr;
use crate::shared::Core;
use crate::superblock::ROOTS;
use crate::trace::Trace;
use crate::transaction::Transaction;

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
    _claim: Claim,
    /// The heap's [`Core`], which stays where it is as long as the heap is open.
    core: NonNull<()>,
    /// Where the collection's head is.
    at: usize,
    /// The last transaction that used this handle to change the collection; 0: none did.
    joined: AtomicU64,
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
    /// [`Error::HandleLives`], and as for [`Heap::root`] and [`Heap::alloc`].
    pub fn open<T: Trace>(heap: H, name: &str, new: impl FnOnce() -> T) -> Result<Self, Error> {
        let opened = heap.heap();
        let core = opened.core();
        let inside = core.gate.enter_to_look()?;
        let index = opened.named_root::<T>(name)?;
        let lives = || core.root_name(index).map_or(Error::RootName, Error::HandleLives);
        let claim = Claim::take(core.number.load(Relaxed), index).ok_or_else(lives)?;
        let mut head = PPtr::<T>::from_raw(core.load(ROOTS + index * 8));
        if head.is_null() {
            // The head is no part of a transaction that the thread is in: the handle outlives a rollback.
            head = opened.new_object_now(new())?;
            core.set_root_now(index, head.raw())?;
        }
        let at = opened.place_of(head)?;
        let core = opened.core.cast();
        drop(inside);
        Ok(Self { _claim: claim, core, at, joined: AtomicU64::new(0), _keeps: heap })
    }

    /// The handle of the collection whose head a pointer leads to.
    ///
    /// # Errors
    /// [`Error::Foreign`].
    ///
    /// # Safety
    /// No other handle of it lives meanwhile.
    pub unsafe fn of<T>(heap: H, head: PPtr<T>) -> Result<Self, Error> {
        let (at, core) = (heap.heap().place_of(head)?, heap.heap().core.cast());
        Ok(Self { _claim: Claim::none(), core, at, joined: AtomicU64::new(0), _keeps: heap })
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

    /// Begins an operation that changes the collection. It is part of the transaction that the thread is in.
    ///
    /// # Errors
    /// [`Error::Forked`]; [`Error::InTransaction`]: a transaction of another thread has changed the collection and has not ended.
    #[inline]
    pub fn op(&self) -> Result<Op<'_, H::Medium>, Error> {
        let core = self.core();
        let op = Op::begin(core)?;
        match op.transaction() {
            Some(id) => self.joined.store(id, Relaxed),
            None => {
                let joined = self.joined.load(Relaxed);
                if joined != 0 && joined == core.transactions.open_id() {
                    return Err(Error::InTransaction);
                }
            }
        }
        Ok(op)
    }

    /// Begins a transaction of several operations that change the collection.
    ///
    /// # Errors
    /// As for [`Held::op`] and [`Heap::transaction`].
    pub fn transaction(&self) -> Result<Transaction<'_, H::Medium>, Error> {
        // An operation that is refused must not wait first, for the very transaction that it is refused for.
        drop(self.op()?);
        Transaction::begin(self.core())
    }
}
