//! Entries: objects that hold a key and its value, or a long separator. No byte of one changes as long as a reference to it may live.

use spandrel_pmem::Medium;

use super::tree::Tree;
use crate::collections::op::Op;
use crate::error::Error;
use crate::trace::{Trace, Tracer, hash};

/// The beginning of an entry; the bytes of the key follow, then those of the value.
#[repr(C)]
pub(super) struct EntryHead {
    /// The length of the key in the lower 17 bits, that of the value in the others.
    sizes: u64,
}

// SAFETY: any bytes are lengths and bytes, which hold nothing.
unsafe impl Trace for EntryHead {
    const LAYOUT: u64 = hash("SortedBytesEntry", 8);
    const HAS_POINTERS: bool = false;

    fn trace(&self, _: &mut Tracer<'_>) {}
}

/// The longest key.
pub(super) const MAX_KEY_BYTES: usize = 64 << 10;
pub(super) const HEAD_BYTES: usize = size_of::<EntryHead>();
const KEY_BITS: u32 = 17;
const MAX_VALUE_BYTES: usize = (1 << (64 - KEY_BITS)) - 1;
/// An entry of at most this many bytes is stored at once, so that its blocks are noted once.
const SMALL_BYTES: usize = 512;

/// The word of an entry's lengths.
pub(super) fn sizes(key: usize, value: usize) -> u64 {
    key as u64 | (value as u64) << KEY_BITS
}

/// Refuses keys and values that no entry holds.
///
/// # Errors
/// [`Error::Size`].
pub(super) fn check(key: &[u8], value: &[u8]) -> Result<(), Error> {
    match (key.len(), value.len()) {
        (bytes, _) if bytes > MAX_KEY_BYTES => Err(Error::Size(bytes)),
        (_, bytes) if bytes > MAX_VALUE_BYTES => Err(Error::Size(bytes)),
        _ => Ok(()),
    }
}

/// An entry that lies within the heap.
#[derive(Clone, Copy)]
pub(super) struct Entry<'c> {
    pub at: usize,
    pub key: &'c [u8],
    pub value: &'c [u8],
}

impl Entry<'_> {
    /// Bytes that it has.
    pub fn bytes(&self) -> usize {
        HEAD_BYTES + self.key.len() + self.value.len()
    }
}

impl<'c, M: Medium> Tree<'c, M> {
    /// The entry that a word leads to; `None`: it leads to none, or the entry is damaged.
    #[inline]
    pub fn entry(&self, word: u64) -> Option<Entry<'c>> {
        let at = self.object(word, HEAD_BYTES)?;
        let sizes = self.core.load(at);
        let (key, value) = (sizes as usize & ((1 << KEY_BITS) - 1), (sizes >> KEY_BITS) as usize);
        let room = self.core.bytes() - at - HEAD_BYTES;
        if key > MAX_KEY_BYTES || key + value > room {
            return None;
        }
        // SAFETY: within the heap. The bytes of an entry do not change before an operation changes the map, which has it exclusively, but for
        // the cases in which the callers keep no reference (`View::lend`).
        let bytes = |from: usize, len: usize| unsafe {
            core::slice::from_raw_parts(self.core.at(from).as_ptr(), len)
        };
        let from = at + HEAD_BYTES;
        Some(Entry { at, key: bytes(from, key), value: bytes(from + key, value) })
    }
}

/// Allocates an entry of a key, which may be in two parts, and a value. Nothing leads to it yet, and it is durable after a fence.
///
/// # Errors
/// As for [`crate::Heap::alloc`].
pub(super) fn new<M: Medium>(
    op: &mut Op<'_, M>,
    key: [&[u8]; 2],
    value: &[u8],
) -> Result<usize, Error> {
    let parts = [key[0], key[1], value];
    let bytes = HEAD_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
    let sizes = sizes(key[0].len() + key[1].len(), value.len());
    let at = op.alloc(bytes, 16)?;
    let core = op.core();
    let mut small = [0; SMALL_BYTES];
    if let Some(all) = small.get_mut(..bytes) {
        let (head, mut rest) = all.split_at_mut(HEAD_BYTES);
        head.copy_from_slice(&sizes.to_le_bytes());
        for part in parts {
            let (place, behind) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = behind;
        }
        // SAFETY: the object was allocated above with as many bytes, and nothing leads to it.
        unsafe { core.medium.store(at, all) };
    } else {
        core.store(at, sizes);
        let mut to = at + HEAD_BYTES;
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            // SAFETY: as above.
            unsafe { core.medium.store(to, part) };
            to += part.len();
        }
    }
    core.write_back(at, bytes);
    Ok(at)
}
