//! Collections that lie in a heap. Every operation is all or nothing after a failure. It is durable
//! - when it returns, on memory and persistent memory,
//! - with the next checkpoint, on a file,
//! - together with all others of its transaction, in one ([`Heap::transaction`](crate::Heap::transaction)).
//!
//! A program uses a collection through a handle, which keeps the heap open by `&Heap`, or by an `Arc<Heap>`. A handle with an `Arc<Heap>`
//! borrows nothing and can be shared: `Arc<RwLock<HashMap<'static, u64, u64, Arc<Heap>>>>`.
//!
//! A named collection has one handle at a time: to open it again is an error ([`Error::HandleLives`](crate::Error::HandleLives)) until the
//! first handle is dropped. Its root is neither set nor removed meanwhile. What a transaction has changed, other threads neither change nor
//! open before it ends ([`Error::InTransaction`](crate::Error::InTransaction)).
//!
//! ```
//! use spandrel_pheap::{Heap, Options};
//! use spandrel_pheap::collections::HashMap;
//! use std::sync::{Arc, RwLock};
//!
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("visits.heap");
//! # let path = path.to_str().unwrap();
//! let heap = Arc::new(Options::new().create(path)?);
//! let visits = HashMap::<u64, u64>::open(Arc::clone(&heap), "visits")?;
//! let visits: Arc<RwLock<HashMap<'static, u64, u64, Arc<Heap>>>> = Arc::new(RwLock::new(visits));
//! let counted = {
//!     let visits = Arc::clone(&visits);
//!     std::thread::spawn(move || visits.write().unwrap().insert(7, 1))
//! };
//! assert_eq!(counted.join().unwrap()?, None);
//! assert_eq!(visits.read().unwrap().get(&7), Some(1));
//! assert!(HashMap::<u64, u64>::open(&heap, "visits").is_err(), "it has a handle");
//! # Ok::<(), spandrel_pheap::Error>(())
//! ```

mod bytes;
mod claim;
#[cfg(test)]
mod full_tests;
mod held;
mod key;
mod map;
#[cfg(test)]
mod model_tests;
mod op;
#[cfg(test)]
mod opening_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod popped_tests;
mod queue;
mod set;
#[cfg(test)]
mod sharing_tests;
mod sorted;
mod str;
#[cfg(test)]
mod tests;
mod text;
mod typed;
mod vector;

pub use bytes::{BytesRange, SortedBytes, SortedBytesHead};
pub(crate) use claim::{
    Claim, forget as forget_claims, is_taken as is_claimed, touch_root, touched,
};
pub use held::HeapRef;
pub(crate) use held::Lent;
pub use key::Key;
pub use map::{HashMap, MapHead};
pub(crate) use op::{Op, Part};
pub use queue::{Queue, QueueHead, Ring};
pub use set::{HashSet, SetHead, SortedSet, SortedSetHead};
pub use sorted::{SortedHead, SortedMap};
pub use str::Str;
pub use text::Text;
pub use typed::Root;
pub use vector::{Elements, Vector, VectorHead};
