//! What stands for glibc's allocator in a program that libc is linked into (`gcc -static`).
//!
//! glibc lets a program replace `malloc` there by leaving its own out: the linker takes it from libc.a only for names that
//! nothing else defines, and then with all of them, so that `malloc` would be there twice. So the names of it that this room calls are
//! weak, and null in such a program. The few requests that are glibc's otherwise (before the library has started, and what an
//! allocator's slice has no room for) get pages of their own here.
//!
//! Layout: a mapping begins with nothing, then [`Head`] directly below the object, then the object up to the mapping's end.

use core::ffi::c_void;
use core::mem::size_of;
use core::ptr;

use spandrel_os::env::set_errno;
use spandrel_pages::PAGE_BYTES;

/// Whether glibc's allocator is there.
#[inline(always)]
pub(crate) fn glibc_is_there() -> bool {
    let malloc: usize;
    // The compiler takes the address of a function for one that is not null.
    // SAFETY: reads an entry of the global offset table; the directives make the symbols of this object file weak.
    unsafe {
        core::arch::asm!(
            ".weak __libc_malloc",
            ".weak __libc_calloc",
            ".weak __libc_realloc",
            ".weak __libc_free",
            ".weak __libc_memalign",
            "mov {malloc}, qword ptr [rip + __libc_malloc@GOTPCREL]",
            malloc = out(reg) malloc,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    malloc != 0
}

/// Below each object: its mapping.
#[derive(Clone, Copy)]
#[repr(C)]
struct Head {
    base: usize,
    len: usize,
}

const HEAD: usize = size_of::<Head>();

/// An object of `size` zeroed bytes at a multiple of `align`, a power of two; null with `ENOMEM`.
pub(crate) fn alloc(align: usize, size: usize) -> *mut u8 {
    let align = align.max(HEAD);
    // A mapping begins on a page: to reach a greater alignment takes as much again.
    let needed = size.checked_add(align).and_then(|sum| sum.checked_add(PAGE_BYTES - 1));
    let Some(len) = needed.map(|sum| sum & !(PAGE_BYTES - 1)).filter(|len| *len <= LARGEST) else {
        set_errno(libc::ENOMEM);
        return ptr::null_mut();
    };
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place that the kernel chooses.
    let base = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    let object = (base.addr() + HEAD).next_multiple_of(align);
    let head = base.with_addr(object - HEAD).cast::<Head>();
    // SAFETY: the head lies within the mapping, which is new: at most `align` bytes lie before the object.
    unsafe { head.write(Head { base: base.addr(), len }) };
    base.with_addr(object).cast()
}

/// Larger objects could not be subtracted from each other (ISO C 6.5.6).
const LARGEST: usize = isize::MAX as usize;

/// # Safety
/// `object` comes from [`alloc`] and is live.
unsafe fn head(object: *mut u8) -> Head {
    // SAFETY: the caller's promise; `alloc` has put it there.
    unsafe { object.sub(HEAD).cast::<Head>().read() }
}

/// The bytes up to the end of an object's mapping.
///
/// # Safety
/// `object` comes from [`alloc`] and is live.
pub(crate) unsafe fn usable_size(object: *mut u8) -> usize {
    // SAFETY: passed on from the caller.
    let Head { base, len } = unsafe { head(object) };
    (base + len).saturating_sub(object.addr())
}

/// As `free`.
///
/// # Safety
/// `object` is null, or comes from [`alloc`] and is live.
pub(crate) unsafe fn free(object: *mut u8) {
    if object.is_null() {
        return;
    }
    // SAFETY: the mapping is the object's alone.
    unsafe {
        let Head { base, len } = head(object);
        libc::munmap(object.with_addr(base).cast::<c_void>(), len);
    }
}

/// As `realloc`.
///
/// # Safety
/// `object` is null, or comes from [`alloc`] and is live.
pub(crate) unsafe fn realloc(object: *mut u8, size: usize) -> *mut u8 {
    if object.is_null() {
        return alloc(1, size);
    }
    // SAFETY: passed on from the caller.
    let usable = unsafe { usable_size(object) };
    if size <= usable && size > usable / 2 {
        return object;
    }
    let moved = alloc(1, size);
    if !moved.is_null() {
        // SAFETY: two objects with as many bytes at least; the old one is live until here.
        unsafe {
            ptr::copy_nonoverlapping(object, moved, usable.min(size));
            free(object);
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_pages_of_their_own_at_any_alignment() {
        for (align, size) in [(1, 0), (16, 1), (64, 5000), (4096, 1), (1 << 21, 3 << 20)] {
            let object = alloc(align, size);
            assert!(!object.is_null() && object.addr().is_multiple_of(align.max(16)));
            // SAFETY: an object of this test.
            unsafe {
                assert!(usable_size(object) >= size);
                assert!((0..size).all(|at| *object.add(at) == 0));
                object.write_bytes(7, size);
                let grown = realloc(object, 2 * size + 10_000);
                assert!((0..size).all(|at| *grown.add(at) == 7));
                let shrunk = realloc(grown, size / 2);
                assert!((0..size / 2).all(|at| *shrunk.add(at) == 7));
                free(shrunk);
            }
        }
        assert!(alloc(16, usize::MAX).is_null() && alloc(16, isize::MAX as usize).is_null());
        // SAFETY: null is no object.
        unsafe { free(ptr::null_mut()) };
    }

    #[test]
    fn where_libc_is_a_library_its_allocator_is_there() {
        assert!(glibc_is_there());
    }
}
