//! What a simulated program asks of the page heap, and where such operations come from.

use crate::error::Error;

/// One thing that a program does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// It wants a span.
    New {
        /// By which it will be named. Numbers are used again, so that they stay below the largest
        /// number of spans that live at once.
        id: u32,
        /// How many pages; at least one.
        pages: u32,
        /// Its first page's number is to be a multiple of this power of two.
        align: u32,
        /// How many objects it is for.
        objects: u32,
    },
    /// It frees a span.
    Delete {
        /// Which one.
        id: u32,
    },
    /// It wants a span to be longer, at the same place if there is room behind it.
    Grow {
        /// Which one.
        id: u32,
        /// How many pages it is to have.
        pages: u32,
    },
    /// It asks for the release of pages to the kernel.
    Release {
        /// How many.
        pages: u32,
    },
    /// It does nothing; time has passed.
    Pass,
}

/// An operation and when it happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Milliseconds since the beginning; never less than that of the event before.
    pub at_ms: u64,
    /// What happens.
    pub operation: Operation,
}

/// Where operations come from: a generator, or a recording.
pub trait Operations {
    /// Replaces what is in `batch` by the operations that follow; by nothing when all are done.
    /// Batches are a few hundred long, so that they stay in the processor's nearest cache.
    ///
    /// # Errors
    /// The source cannot be read further.
    fn fill(&mut self, batch: &mut Vec<Event>) -> Result<(), Error>;

    /// Bytes that are kept for the spans that live.
    fn bookkeeping_bytes(&self) -> usize;
}
