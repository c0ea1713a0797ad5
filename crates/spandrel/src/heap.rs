//! The recoverable heap: objects that outlive the process.
//!
//! A heap is a file. What is allocated in it stays as long as it can be reached from one of its roots, whatever happens to the
//! process; what cannot is free again after a failure, so that nothing leaks. Allocating and freeing cost what they cost in
//! any allocator, as next to nothing is made durable for it.
//!
//! ```
//! use spandrel::heap::{self, collections::HashMap};
//!
//! # let directory = tempfile::tempdir()?;
//! # std::env::set_current_dir(&directory)?;
//! # let user = 7;
//! # for visit in 1..3 {
//! let heap = heap::open("visits.heap")?; // made if it is not there, recovered if the program was killed
//! let mut visits = HashMap::<u64, u64>::open(&heap, "visits")?;
//! visits.insert(user, visits.get(&user).unwrap_or(0) + 1)?; // all of it or nothing, whatever happens
//! heap.checkpoint()?; // on an ordinary file: durable from here on
//! # assert_eq!(visits.get(&user), Some(visit));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Recovery looks at every word that may be a pointer. With the types of the roots it looks at pointers alone, and is faster:
//!
//! ```
//! use spandrel::heap::collections::{HashMap, MapHead, Vector, VectorHead};
//! use spandrel::heap::{Options, RootType};
//!
//! const TYPES: &[RootType] = &[
//!     RootType::of::<VectorHead<u64>>("numbers"),
//!     RootType::of::<MapHead<u64, u64>>("squares"),
//! ];
//!
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("numbers.heap");
//! let (heap, opened) = Options::new().roots(TYPES).open_or_create(&path)?;
//! assert!(opened.created);
//! let mut numbers = Vector::<u64>::open(&heap, "numbers")?;
//! let mut squares = HashMap::<u64, u64>::open(&heap, "squares")?;
//! for number in 0..1000 {
//!     numbers.push(number)?;
//!     squares.insert(number, number * number)?;
//! }
//! heap.close()?;
//!
//! // The next program, perhaps after the first was killed.
//! let (heap, opened) = Options::new().roots(TYPES).open_or_create(&path)?;
//! assert!(!opened.created && opened.was_clean);
//! assert_eq!(Vector::<u64>::open(&heap, "numbers")?.len(), 1000);
//! assert_eq!(HashMap::<u64, u64>::open(&heap, "squares")?.get(&12), Some(144));
//! # Ok::<(), spandrel::heap::OpenError>(())
//! ```
//!
//! [`Options::open`] opens a heap that must exist, and [`Options::create`] makes one that must not. Their errors name the file, the reason
//! and the way out: `visits.heap: process 1234 (redis-server) has it open; close it there first`.
//!
//! Several operations, of any collections, are one transaction: all of them, or none.
//!
//! ```
//! use spandrel::heap::collections::{HashMap, Key, Queue, Str};
//! use spandrel::heap::{Checked, Enumeration, Heap, Options, Trace};
//! use std::sync::{Arc, RwLock};
//!
//! #[derive(Clone, Copy, PartialEq, Eq, Debug, Trace, Key)]
//! #[repr(C)]
//! struct Article {
//!     name: Str<24>,
//!     size: u32,
//! }
//!
//! #[derive(Clone, Copy, PartialEq, Debug, Enumeration)]
//! #[repr(u8)]
//! enum State {
//!     Ordered,
//!     Sent,
//! }
//!
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("shop.heap");
//! # let path = path.to_str().unwrap();
//! let heap = Arc::new(Options::new().create(path)?);
//! // Handles that have the heap borrow nothing: a server shares them under locks.
//! let stock = RwLock::new(HashMap::<Article, u64>::open(Arc::clone(&heap), "stock")?);
//! let orders = RwLock::new(Queue::<(Article, Checked<State>)>::open(Arc::clone(&heap), "orders")?);
//! let order = |article: Article| {
//!     let (mut stock, mut orders) = (stock.write().unwrap(), orders.write().unwrap());
//!     heap.transaction(|| {
//!         stock.update(article, |count| count.unwrap_or(10) - 1)?;
//!         orders.push_back((article, State::Ordered.into()))
//!     })
//! };
//! let article = Article { name: Str::new("boots")?, size: 43 };
//! order(article)?;
//! assert_eq!(stock.read().unwrap().get(&article), Some(9));
//! assert_eq!(orders.read().unwrap().front().unwrap().1.get(), Some(State::Ordered));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Own structures are made of `#[derive(Trace)] #[repr(C)]` types and [`PPtr`]s. What survives which failure depends on what the
//! file lies on: see [`Guarantee`].

mod options;
mod path;

pub use options::{Options, copy, open};
pub use path::AsPath;
pub use spandrel_derive::{Enumeration, Trace};
// `Options` and `copy` of the room below take paths as bytes: those above hide them.
pub use spandrel_pheap::*;

/// Collections that live in a heap; see [`spandrel_pheap::collections`].
pub mod collections {
    pub use spandrel_derive::Key;
    pub use spandrel_pheap::collections::*;
}

use allocator_api2::alloc::{AllocError, Allocator, Layout};
use core::ptr::NonNull;

/// A heap with a base of its own as the allocator of standard-style containers, which may lie in it themselves: it is known by its
/// base, which is the same in the next process.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use spandrel::heap::{InHeap, Options};
///
/// # let directory = tempfile::tempdir_in("/dev/shm").unwrap();
/// # let path = directory.path().join("a.heap");
/// # let path = path.to_str().unwrap();
/// let heap = Options::new().fixed().create(path)?;
/// // SAFETY: the vector is gone, or not used any more, before the heap is closed.
/// let allocator = unsafe { InHeap::new(&heap) }.unwrap();
/// let mut numbers = Vec::new_in(allocator);
/// numbers.extend(0..1000u64);
/// # drop(numbers);
/// # Ok::<(), spandrel::heap::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InHeap {
    base: u64,
}

impl InHeap {
    /// The allocator of a heap; `None`: it has no base of its own, and pointers in it would lead nowhere in the next process.
    ///
    /// # Safety
    /// Nothing is allocated, freed or used through it while the heap is being closed or after that. (In the next process, when the heap
    /// is open again, it may be.)
    pub unsafe fn new(heap: &Heap) -> Option<Self> {
        heap.fixed_base().map(|base| Self { base })
    }
}

// SAFETY: objects stay where they are until they are freed; copies are of the same heap.
unsafe impl Allocator for InHeap {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: promised when it was made.
        let object = unsafe {
            with_fixed(self.base, |heap| heap.alloc_aligned(layout.size(), layout.align()))
        };
        let object = object.and_then(Result::ok).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(object, layout.size()))
    }

    unsafe fn deallocate(&self, object: NonNull<u8>, _: Layout) {
        // SAFETY: promised by the caller. What a closed heap has is not freed: it is found by recovery.
        let _ = unsafe { with_fixed(self.base, |heap| heap.free(object)) };
    }
}
