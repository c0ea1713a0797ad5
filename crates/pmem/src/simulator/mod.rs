//! What a power failure may leave: a medium that writes down every store, write-back and fence, and shows the images
//! that each moment could have left.
//!
//! The model is the processor's. A store sits in its cache line until the line is written back, which may happen at any
//! time. Stores to one line are durable in their order, stores to two lines in any; a line that [`Medium::write_back`]
//! was asked for is durable as far as it was then once a fence follows. So at any moment each line holds what is certain
//! and some of the stores to it since, from the first on. Which prefix it is each line decides for itself.
//!
//! A store of many bytes is one of its words in some order without a promise: images show it cut off from the left and
//! from the right.
//!
//! Moments before each fence are enough: what may be there sooner may be there then, as only fences make anything certain.
//!
//! ```
//! use spandrel_pmem::Medium;
//! use spandrel_pmem::simulator::{Bounds, Memory, Outcome};
//!
//! let memory = Memory::new(4096);
//! // A value, and a word that says that it is there: with a fence between them.
//! unsafe { memory.store_word(128, 42) };
//! memory.write_back(128, 8);
//! memory.fence();
//! unsafe { memory.store_word(0, 1) };
//! memory.write_back(0, 8);
//! memory.fence();
//!
//! let word = |image: &[u8], at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
//! let seen = memory.journal().images(&Bounds::default(), |image, _| {
//!     if word(image, 0) == 1 && word(image, 128) != 42 { Err("a value that is not there".into()) } else { Ok(()) }
//! });
//! assert!(matches!(seen, Ok(Outcome { images: 4.., .. })));
//! ```
//!
//! [`Medium::write_back`]: crate::Medium::write_back

mod disk;
mod images;
mod journal;
mod memory;

pub use disk::Disk;
pub use images::{Bounds, Drawn, Found, Outcome, Point};
pub use journal::{Event, Journal, SECTOR_BYTES, Unit};
pub use memory::Memory;
