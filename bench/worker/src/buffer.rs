//! One object that grows: of the C heap by `realloc`, or, for comparison, one
//! that has all its memory beforehand.

use crate::meter;
use std::ffi::c_void;
use std::hint::black_box;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// Something that grows and is filled.
pub trait Object {
    /// Changes the size to `len` bytes. True if the object now lies elsewhere.
    fn resize(&mut self, len: usize) -> bool;
    /// Writes `byte` into `[from, len)`.
    fn fill(&mut self, from: usize, byte: u8);
    /// Ends the process unless the first, middle and last byte of the first `len`
    /// bytes are `byte`: growth must keep contents.
    fn check(&self, len: usize, byte: u8);
    /// Bytes asked for.
    fn len(&self) -> usize;
}

/// An object from `malloc`; freed on drop.
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a C heap object may be used and freed by any thread; the buffer owns it.
unsafe impl Send for Buffer {}

impl Buffer {
    /// `malloc(len)`. Ends the process if there is no memory: a benchmark without
    /// its memory has no result.
    #[inline]
    pub fn new(len: usize) -> Self {
        // SAFETY: `malloc` takes any size.
        let start = unsafe { libc::malloc(len) };
        Self { start: or_die(start, len), len }
    }

    /// Writes `byte` into the first and the last `edge` bytes.
    #[inline]
    pub fn fill_edges(&mut self, edge: usize, byte: u8) {
        let edge = edge.min(self.len);
        // SAFETY: the first `edge` bytes lie inside the object.
        unsafe { self.start.write_bytes(byte, edge) };
        self.fill(self.len - edge, byte);
    }

    /// Where the object lies.
    pub fn address(&self) -> usize {
        self.start.addr().get()
    }
}

impl Object for Buffer {
    #[inline]
    fn resize(&mut self, len: usize) -> bool {
        let old = self.start;
        // SAFETY: `start` came from `malloc` or `realloc` and was not freed since.
        let new = unsafe { libc::realloc(old.as_ptr().cast(), len) };
        self.start = or_die(new, len);
        self.len = len;
        self.start.addr() != old.addr()
    }

    #[inline]
    fn fill(&mut self, from: usize, byte: u8) {
        let start = black_box(self.start);
        // SAFETY: `[from, len)` lies inside the object.
        unsafe { start.add(from).write_bytes(byte, self.len - from) };
        black_box(start);
    }

    #[inline]
    fn check(&self, len: usize, byte: u8) {
        for at in [0, len / 2, len - 1] {
            // SAFETY: callers pass a `len` that does not exceed the object's.
            let found = unsafe { self.start.add(at).read() };
            if found != byte {
                wrong(at, len, byte, found);
            }
        }
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `start` came from `malloc` or `realloc` and was not freed before.
        unsafe { libc::free(self.start.as_ptr().cast()) };
    }
}

/// Memory that is all there: mapped, touched, never given back.
pub struct Still(Buffer);

impl Still {
    /// `len` bytes.
    pub fn reserve(len: usize) -> Self {
        let mut all = Buffer::new(len);
        meter::ask_huge(all.address(), len);
        all.fill(0, 0);
        Self(all)
    }

    /// An object at its start.
    pub fn object(&self, len: usize) -> impl Object {
        let most = self.0.len;
        // Not dropped: the memory stays with `self`.
        let buffer = ManuallyDrop::new(Buffer { start: self.0.start, len: len.min(most) });
        Place { buffer, most }
    }
}

/// An object in memory that is there already.
struct Place {
    buffer: ManuallyDrop<Buffer>,
    most: usize,
}

impl Object for Place {
    #[inline]
    fn resize(&mut self, len: usize) -> bool {
        assert!(len <= self.most, "the object outgrows what was reserved");
        self.buffer.len = len;
        false
    }

    #[inline]
    fn fill(&mut self, from: usize, byte: u8) {
        self.buffer.fill(from, byte);
    }

    #[inline]
    fn check(&self, len: usize, byte: u8) {
        self.buffer.check(len, byte);
    }

    fn len(&self) -> usize {
        self.buffer.len
    }
}

#[inline]
fn or_die(start: *mut c_void, len: usize) -> NonNull<u8> {
    NonNull::new(black_box(start).cast()).unwrap_or_else(|| no_memory(len))
}

#[cold]
fn no_memory(len: usize) -> ! {
    eprintln!("spandrel-bench-worker: the allocator has no {len} bytes");
    std::process::exit(3)
}

#[cold]
fn wrong(at: usize, len: usize, expected: u8, found: u8) -> ! {
    eprintln!(
        "spandrel-bench-worker: byte {at} of {len} is {found:#x}, not {expected:#x}: contents lost"
    );
    std::process::exit(4)
}

#[cfg(test)]
mod tests {
    use super::{Buffer, Object};

    #[test]
    fn grows_and_keeps_contents() {
        let mut buffer = Buffer::new(4096);
        buffer.fill(0, 7);
        buffer.resize(1 << 20);
        buffer.check(4096, 7);
        assert_eq!(buffer.len(), 1 << 20);
        assert_ne!(buffer.address(), 0);
    }
}
