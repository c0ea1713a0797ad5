//! Address space for a medium, and memory for what belongs to it.

use core::ptr::NonNull;
use core::slice;

use spandrel_os::image::Image;
use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;

use crate::medium::Failed;
use crate::unmap;

/// The size of a huge page. An object of a medium whose offset is aligned is aligned in memory if the medium is.
const ALIGN_BYTES: usize = 2 << 20;

/// Reserves `bytes` bytes, rounded up to whole pages, at `base` or at any multiple of 2 MiB. Returns the address and the number of bytes.
///
/// # Errors
/// The error's number: `EADDRINUSE` where something is mapped at `base` already (not `EEXIST`, which is a file's), `ENOMEM` where the
/// address space has no room.
pub fn reserve(bytes: usize, base: Option<usize>) -> Result<(NonNull<u8>, usize), Failed> {
    let reserved = try_reserve(bytes, base);
    // A mapping in the way may be one that another thread is about to unmap.
    if reserved.is_err() && unmap::wait() { try_reserve(bytes, base) } else { reserved }
}

fn try_reserve(bytes: usize, base: Option<usize>) -> Result<(NonNull<u8>, usize), Failed> {
    let full = Failed(libc::ENOMEM);
    let bytes = bytes.max(1).checked_next_multiple_of(PAGE_BYTES).ok_or(full)?;
    if let Some(base) = base {
        return match vm::reserve_at(base, bytes) {
            Ok(at) => Ok((at, bytes)),
            Err(libc::EEXIST) => Err(Failed(libc::EADDRINUSE)),
            Err(why) => Err(Failed(why)),
        };
    }
    let all = bytes.checked_add(ALIGN_BYTES).ok_or(full)?;
    let at = vm::reserve(all).ok_or(full)?;
    let before = at.as_ptr().align_offset(ALIGN_BYTES);
    // SAFETY: the parts of the reservation before and behind what is kept.
    unsafe {
        let kept = at.as_ptr().add(before);
        if before > 0 {
            vm::release(at.as_ptr(), before);
        }
        vm::release(kept.add(bytes), ALIGN_BYTES - before);
        Ok((NonNull::new_unchecked(kept), bytes))
    }
}

/// The new length of a medium that is to have at least `bytes` bytes; `None`: it has them.
///
/// # Errors
/// `ENOMEM`: beyond the reservation.
pub fn grown(from: usize, bytes: usize, reserved: usize) -> Result<Option<usize>, Failed> {
    let to = bytes.checked_next_multiple_of(PAGE_BYTES).filter(|to| *to <= reserved);
    to.map(|to| (to > from).then_some(to)).ok_or(Failed(libc::ENOMEM))
}

/// The number of bytes of a medium that its file still has.
///
/// # Errors
/// The error's number.
pub fn present(image: &Image, bytes: usize) -> Result<usize, Failed> {
    let has = image.bytes().map_err(Failed)?;
    Ok(usize::try_from(has).map_or(bytes, |has| has.min(bytes)))
}

/// Memory of a fixed size, in whole pages.
pub struct Buffer {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer owns the mapping.
unsafe impl Send for Buffer {}

impl Buffer {
    /// A buffer of `len` zeroes, rounded up to whole pages.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(len: usize) -> Result<Self, Failed> {
        let full = Failed(libc::ENOMEM);
        let len = len.max(1).checked_next_multiple_of(PAGE_BYTES).ok_or(full)?;
        let buffer = Self { at: vm::reserve_small(len).ok_or(full)?, len };
        // SAFETY: the range was reserved by the call above.
        if unsafe { vm::open(buffer.at.as_ptr(), len) } { Ok(buffer) } else { Err(full) }
    }

    /// All bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the buffer owns `len` mapped bytes, and is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }

    /// All bytes, to be read.
    pub fn held(&self) -> &[u8] {
        // SAFETY: the buffer owns `len` mapped bytes, and is borrowed.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }

    /// Releases the memory of the buffer to the kernel: all bytes are zero then.
    pub fn release(&mut self) {
        // SAFETY: the buffer owns the mapping, and is borrowed exclusively.
        unsafe { vm::discard(self.at.as_ptr(), self.len) };
    }

    /// The address of the first byte.
    pub fn at(&self) -> NonNull<u8> {
        self.at
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: its own, and no reference to it outlives it.
        unsafe { vm::release(self.at.as_ptr(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_aligned_and_growth_is_by_pages() {
        let (at, bytes) = reserve(5000, None).unwrap();
        assert_eq!((at.as_ptr() as usize % ALIGN_BYTES, bytes), (0, 8192));
        assert_eq!(reserve(1, Some(at.as_ptr() as usize)), Err(Failed(libc::EADDRINUSE)));
        // Beyond the address space of a process.
        assert_eq!(reserve(1, Some(1 << 56)), Err(Failed(libc::ENOMEM)));
        for bytes in [usize::MAX / 2, usize::MAX] {
            assert_eq!(reserve(bytes, None), Err(Failed(libc::ENOMEM)));
        }
        // SAFETY: reserved above, and used by no other code.
        unsafe { vm::release(at.as_ptr(), bytes) };
        assert_eq!(grown(4096, 5000, 8192), Ok(Some(8192)));
        assert_eq!(grown(4096, 4000, 8192), Ok(None));
        assert_eq!(grown(4096, 8193, 8192), Err(Failed(libc::ENOMEM)));
        let mut buffer = Buffer::new(100).unwrap();
        buffer.bytes()[4095] = 1;
    }
}
