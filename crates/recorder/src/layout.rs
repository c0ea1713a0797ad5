//! The layout of a recording: a page that says of what, then blocks.
//!
//! ```text
//! offset  bytes  header (4096 bytes, little-endian)
//!      0      8  "SPNDRTRC"
//!      8      4  version: 1
//!     12      4  bytes of the header: 4096
//!     16      4  bytes of a block: 65536
//!     20      4  bytes of a page of the page heap: 8192
//!     24      4  process id
//!     28      4  what is recorded: 1 requests, 2 spans, 3 both
//!     32      8  when it began: nanoseconds since 1970
//!     40    256  the program's name, then zeroes
//!    296   3784  zeroes
//!   4080      4  CRC-32C of the bytes before
//!   4084      1  how it ended: 0 not (the program lives, or was killed), 1 with the program, 2 at the
//!                limit of its size, 3 the disk was full, 4 it could not be written
//!   4085      3  if it ended, how many blocks there were; 0: not known
//!   4088      8  events that could not be recorded
//!
//! offset  bytes  block (65536 bytes)
//!      0      4  "SBLK"; zero: not begun
//!      4      4  lane: 0 spans, others requests
//!      8      8  number within the lane, from 0
//!     16      8  when it began: nanoseconds since the recording did
//!     24      4  bytes of events
//!     28      4  CRC-32C of the first 24 bytes and the events
//!     32      -  events
//! ```
//!
//! A lane's blocks are in order; those of different lanes are not. The eight bytes at 24 are written
//! at once after each event, so that what a killed program leaves is whole to the last event.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Release};

use crc::{CRC_32_ISCSI, Crc, Digest, Table};
use spandrel_pages::HEAP_PAGE_BYTES;

use crate::event::{Before, Event};

/// The first bytes of a recording.
pub const MAGIC: [u8; 8] = *b"SPNDRTRC";
/// The version of the format.
pub const VERSION: u32 = 1;
/// Bytes before the first block.
pub const HEADER_BYTES: usize = 4096;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 65536;
/// Where the header's checksum is.
pub const HEADER_CRC_AT: usize = 4080;
/// Where the header says how the recording ended, and with how many blocks.
pub const END_AT: usize = 4084;
/// Where the header says how many events could not be recorded.
pub const MISSED_AT: usize = 4088;
/// The first bytes of a block.
pub const BLOCK_MAGIC: [u8; 4] = *b"SBLK";
/// Bytes of a block before its events: the first of them are under its checksum.
pub const BLOCK_HEADER_BYTES: usize = 32;
/// Where a block says how long it is.
pub const STATE_AT: usize = 24;
/// The lane of spans.
pub const SPANS_LANE: u32 = 0;
/// Bytes of the program's name.
pub const PROGRAM: core::ops::Range<usize> = 40..296;

/// CRC-32C (Castagnoli).
pub static CHECKSUM: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISCSI);

/// What is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kinds {
    /// What the program asks for: objects.
    pub requests: bool,
    /// What the native allocator asks of its page heap.
    pub spans: bool,
}

impl Kinds {
    /// Of a word: `requests`, `spans`, or `all`, as which nothing counts too.
    pub fn parse(text: &str) -> Option<Self> {
        let (requests, spans) = match text {
            "requests" => (true, false),
            "spans" => (false, true),
            "" | "all" => (true, true),
            _ => return None,
        };
        Some(Self { requests, spans })
    }

    /// As a number.
    pub const fn bits(self) -> u32 {
        self.requests as u32 | (self.spans as u32) << 1
    }

    /// Of a number; `None` if it says nothing, or more.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        match bits {
            1..=3 => Some(Self { requests: bits & 1 != 0, spans: bits & 2 != 0 }),
            _ => None,
        }
    }
}

/// How a recording ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum End {
    /// Not: the program lives, or was killed.
    Open = 0,
    /// With the program.
    Exit = 1,
    /// At the limit of its size.
    Limit = 2,
    /// The disk was full.
    Full = 3,
    /// It could not be written.
    Error = 4,
}

impl End {
    /// Of a number.
    const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Open,
            1 => Self::Exit,
            2 => Self::Limit,
            3 => Self::Full,
            4 => Self::Error,
            _ => return None,
        })
    }

    /// As the header says it, of a file of `len` bytes.
    pub fn to_bytes(self, len: u64) -> [u8; 4] {
        let blocks = len.saturating_sub(HEADER_BYTES as u64) / BLOCK_BYTES as u64;
        let blocks = if blocks < 1 << 24 { blocks as u32 } else { 0 };
        ((blocks << 8) | self as u32).to_le_bytes()
    }

    /// What the header says, and how many bytes the file had then, at least.
    pub fn from_bytes(bytes: [u8; 4]) -> Option<(Self, u64)> {
        let word = u32::from_le_bytes(bytes);
        let end = Self::from_number(word & 0xff)?;
        Some((end, HEADER_BYTES as u64 + u64::from(word >> 8) * BLOCK_BYTES as u64))
    }
}

/// The header of a recording that begins.
pub fn header(pid: i32, kinds: Kinds, began_ns: u64, program: &[u8]) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    let mut put = |at: usize, what: &[u8]| {
        if let Some(to) = bytes.get_mut(at..at + what.len()) {
            to.copy_from_slice(what);
        }
    };
    put(0, &MAGIC);
    put(8, &VERSION.to_le_bytes());
    put(12, &(HEADER_BYTES as u32).to_le_bytes());
    put(16, &(BLOCK_BYTES as u32).to_le_bytes());
    put(20, &(HEAP_PAGE_BYTES as u32).to_le_bytes());
    put(24, &pid.to_le_bytes());
    put(28, &kinds.bits().to_le_bytes());
    put(32, &began_ns.to_le_bytes());
    put(PROGRAM.start, program.get(..PROGRAM.len()).unwrap_or(program));
    let crc = CHECKSUM.checksum(bytes.get(..HEADER_CRC_AT).unwrap_or(&[]));
    if let Some(to) = bytes.get_mut(HEADER_CRC_AT..END_AT) {
        to.copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

/// A block of a file in memory, zero at first.
#[repr(C, align(4096))]
pub struct Block {
    magic: AtomicU32,
    lane: u32,
    number: u64,
    began_ns: u64,
    state: AtomicU64,
    events: [u8; BLOCK_BYTES - BLOCK_HEADER_BYTES],
}

const _: () = assert!(size_of::<Block>() == BLOCK_BYTES);
const _: () = assert!(core::mem::offset_of!(Block, state) == STATE_AT);
const _: () = assert!(core::mem::offset_of!(Block, events) == BLOCK_HEADER_BYTES);

/// Where the next event of a block goes.
pub struct Cursor {
    before: Before,
    digest: Digest<'static, u32, Table<1>>,
    len: usize,
}

impl Default for Block {
    fn default() -> Self {
        Self::new()
    }
}

impl Cursor {
    /// When the last event happened: nanoseconds since the recording began.
    pub fn ns(&self) -> u64 {
        self.before.ns
    }
}

impl Block {
    /// A block that was not begun.
    pub const fn new() -> Self {
        Self {
            magic: AtomicU32::new(0),
            lane: 0,
            number: 0,
            began_ns: 0,
            state: AtomicU64::new(0),
            events: [0; BLOCK_BYTES - BLOCK_HEADER_BYTES],
        }
    }

    /// The block as it is in a file.
    pub fn bytes(&self) -> &[u8; BLOCK_BYTES] {
        // SAFETY: the type is that many bytes long, has no padding, and any value of its fields
        // is one of bytes.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }

    /// Begins the block.
    pub fn begin(&mut self, lane: u32, number: u64, began_ns: u64) -> Cursor {
        (self.lane, self.number, self.began_ns) = (lane.to_le(), number.to_le(), began_ns.to_le());
        let mut digest = CHECKSUM.digest();
        digest.update(&BLOCK_MAGIC);
        digest.update(&lane.to_le_bytes());
        digest.update(&number.to_le_bytes());
        digest.update(&began_ns.to_le_bytes());
        let cursor = Cursor { before: Before::block(began_ns), digest, len: 0 };
        self.publish(&cursor);
        // Last: a block that says that it has begun has a length and a checksum.
        self.magic.store(u32::from_ne_bytes(BLOCK_MAGIC), Release);
        cursor
    }

    /// Adds an event; false if there is no room for it.
    #[inline]
    pub fn add(&mut self, cursor: &mut Cursor, ns: u64, event: &Event) -> bool {
        let Some(room) = self.events.get_mut(cursor.len..) else { return false };
        let Some(len) = cursor.before.encode(ns, event, room) else { return false };
        cursor.digest.update(room.get(..len).unwrap_or(&[]));
        cursor.len += len;
        self.publish(cursor);
        true
    }

    fn publish(&self, cursor: &Cursor) {
        let crc = cursor.digest.clone().finalize();
        let state = cursor.len as u64 | u64::from(crc) << 32;
        self.state.store(state.to_le(), Release);
    }
}
