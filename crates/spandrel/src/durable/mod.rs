//! A state in memory that survives failures: each change is durable when the call that makes it returns.
//!
//! The state consists of [collections](crate::heap::collections) and of other types of the recoverable heap. It lies in memory, and commands run at
//! the speed of memory: those that read beside each other, those that write one after the other. What a batch of commands has stored goes to a log
//! in one write; another thread brings it into a file. After a failure the state is what it was after the last command that has returned, or after
//! a later one.
//!
//! ```
//! use spandrel::durable::collections::{HashMap, Open as _};
//! use spandrel::durable::{Durable, Options};
//!
//! struct Visits {
//!     of: HashMap<u64, u64>,
//! }
//!
//! # let place = tempfile::tempdir()?;
//! # let path = place.path().join("visits");
//! # for round in 0..2 {
//! // The directory is made if it is not there, and recovered if the program was killed.
//! let db = Durable::open(&path, Options::new(), |arena| {
//!     Ok(Visits { of: HashMap::open(arena, "visits")? })
//! })?;
//! // Durable when it returns.
//! let before = db.write(|visits| visits.of.insert(7, visits.of.get(&7).unwrap_or(0) + 1))??;
//! assert_eq!(before.unwrap_or(0), round);
//! // In parallel with other reads.
//! assert_eq!(db.read(|visits| visits.of.get(&7)), Some(round + 1));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Types of the program's own
//! A collection's keys and values may be any `#[derive(Trace)]` types that are `Copy`; keys derive `Key` as well. Structures of the program's own are objects of such types in the arena, which
//! lead to each other by [`PPtr`](crate::heap::PPtr), and to which a root leads. The heap's calls note what they store.
//!
//! ```
//! use spandrel::durable::collections::{HashMap, Open as _, Str};
//! use spandrel::durable::{Arena, Durable, Options};
//! use spandrel::heap::{Error, PPtr, Trace, collections::Key};
//! use std::sync::Arc;
//!
//! #[derive(Clone, Copy, PartialEq, Eq, Trace, Key)]
//! #[repr(C)]
//! struct Article {
//!     name: Str<20>,
//!     size: u32,
//! }
//!
//! /// An order, and the one before it.
//! #[derive(Clone, Copy, Trace)]
//! #[repr(C)]
//! struct Order {
//!     before: PPtr<Order>,
//!     article: Article,
//! }
//!
//! struct Shop {
//!     arena: Arc<Arena>,
//!     stock: HashMap<Article, u64>,
//! }
//!
//! impl Shop {
//!     fn order(&mut self, article: Article) -> Result<(), Error> {
//!         let newest = self.arena.root::<Order>("orders")?;
//!         newest.set(self.arena.new_object(Order { before: newest.get(), article })?)?;
//!         let left = self.stock.get(&article).unwrap_or(10) - 1;
//!         self.stock.insert(article, left).map(drop)
//!     }
//! }
//!
//! # let place = tempfile::tempdir()?;
//! # let path = place.path().join("shop");
//! let db = Durable::open(&path, Options::new(), |arena| {
//!     Ok(Shop { arena: Arc::clone(arena), stock: HashMap::open(arena, "stock")? })
//! })?;
//! let boots = Article { name: Str::new("boots")?, size: 43 };
//! db.try_write(|shop| shop.order(boots))??;
//! assert_eq!(db.read(|shop| shop.stock.get(&boots)), Some(9));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a command must know
//! - [`Durable::write`] may run a command in another thread, together with commands of others. A command that another thread waits for must not wait for
//!   that thread, nor begin another command, of this state or another.
//! - A command changes nothing but the state. What it captures by reference it may read; its result is what it returns.
//! - A command that panics is undone. One that changes more than the log holds is undone, and runs again with a longer log. The other commands of its batch run once more: a command returns what its last
//!   run has returned. The panic goes on in the thread that called [`Durable::write`]. Where panics abort, the next process finds the state as it was before.
//! - Fields of the state that are no collections are not undone, and are not durable. If an undone command has opened a collection, its handle leads to nothing: no write is
//!   accepted any more ([`Error::Undone`]). Open collections when the state is opened.
//! - A command that returns an error of a collection keeps what it has changed before the error. [`Heap::transaction`](crate::heap::Heap::transaction) of the arena undoes that.
//! - A child of a fork is refused ([`Error::Forked`]).
//! - What lies in the arena is read within commands only: a handle or the arena, kept elsewhere, reads beside a batch.
//! - A write outside of [`Durable::write`] to what lies in the arena is found and refused.

pub mod collections;
mod command;
mod copies;
mod db;
mod escapes;
mod growth;
mod log;
mod open_batch;
mod opening;
mod options;
mod plain;
mod replica;
mod requests;
mod scrub;
mod turn;
mod verified;
mod watchpoints;

pub use db::{Client, Durable, Report, is_inside};
pub use escapes::Escaped;
#[doc(hidden)]
pub use escapes::Place as LoadedPlace;
#[doc(hidden)]
pub use open_batch::OpenBatch;
pub use opening::Opening;
pub use options::{OpenError, Options, Stores};
#[doc(hidden)]
pub use plain::start_again;
pub use plain::{Allocator, Plain, PlainClient, fix_addresses, outside};
pub use spandrel_durable::Error;
pub use spandrel_durable::live::Counts;
#[doc(hidden)]
pub use spandrel_durable::notes::Sizes as CaptureSizes;

/// The heap that a durable state lies in.
pub type Arena = spandrel_pheap::Heap<spandrel_durable::store::Memory>;
