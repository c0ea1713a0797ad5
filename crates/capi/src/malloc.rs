//! The C allocation functions: ISO C, POSIX, and glibc's own.

use core::ffi::{c_int, c_void};
use core::ptr;

use spandrel_adaptive as adaptive;
use spandrel_os::env::set_errno;
use spandrel_pages::{PAGE_BYTES, align_up};

use crate::elsewhere;

/// Larger objects could not be subtracted from each other (ISO C 6.5.6).
const LARGEST: usize = isize::MAX as usize;

#[cold]
#[inline(never)]
fn no_memory() -> *mut c_void {
    set_errno(libc::ENOMEM);
    ptr::null_mut()
}

#[inline(always)]
fn answer(object: *mut u8) -> *mut c_void {
    if object.is_null() { no_memory() } else { object.cast() }
}

/// ISO C `malloc`.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    let object = adaptive::alloc_cached(size);
    if object.is_null() { malloc_uncached(size) } else { object.cast() }
}

/// `malloc`, the long way.
#[inline(never)]
extern "C" fn malloc_uncached(size: usize) -> *mut c_void {
    // No allocator has memory for more than `LARGEST`: they all refuse.
    answer(adaptive::alloc_uncached(size))
}

/// ISO C `free`. `errno` stays as it is.
///
/// # Safety
/// `object` is null or a live object of this program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(object: *mut c_void) {
    // SAFETY: passed on from the caller.
    unsafe { adaptive::free(object.cast()) }
}

/// ISO C `calloc`.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(bytes) if bytes <= LARGEST => answer(adaptive::alloc_zeroed(bytes)),
        _ => no_memory(),
    }
}

/// ISO C `realloc`; as in glibc, `realloc(p, 0)` frees and returns null.
///
/// # Safety
/// `object` is null or a live object of this program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(object: *mut c_void, size: usize) -> *mut c_void {
    if object.is_null() {
        return malloc(size);
    }
    if size == 0 {
        // SAFETY: passed on from the caller.
        unsafe { free(object) };
        return ptr::null_mut();
    }
    if size > LARGEST {
        return no_memory();
    }
    // SAFETY: passed on from the caller.
    answer(unsafe { adaptive::realloc(object.cast(), size) })
}

/// BSD and glibc `reallocarray`.
///
/// # Safety
/// As for [`realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    object: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: passed on from the caller.
        Some(bytes) if elsewhere::is_elsewhere() => unsafe { elsewhere::realloc(object, bytes) },
        // SAFETY: as above.
        Some(bytes) => unsafe { realloc(object, bytes) },
        None => no_memory(),
    }
}

/// C23 `free_sized`.
///
/// # Safety
/// `object` is null or a live object that was asked for with `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(object: *mut c_void, size: usize) {
    // SAFETY: passed on from the caller.
    unsafe { adaptive::free_sized_or(object.cast(), size, 1, elsewhere::free_other) }
}

/// C23 `free_aligned_sized`.
///
/// # Safety
/// `object` is null or came from `aligned_alloc(align, size)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(object: *mut c_void, align: usize, size: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        adaptive::free_sized_or(object.cast(), size, align.max(1), elsewhere::free_other);
    }
}

/// SunOS `cfree`: as `free`.
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(object: *mut c_void) {
    // SAFETY: passed on from the caller.
    unsafe { adaptive::free_or(object.cast(), elsewhere::free_other) }
}

/// glibc rounds an alignment up to a power of two; beyond half the address
/// space there is none.
fn aligned(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) if size <= LARGEST && align <= LARGEST / 2 => {
            answer(adaptive::alloc_aligned(align, size))
        }
        Some(_) => no_memory(),
        None => {
            set_errno(libc::EINVAL);
            ptr::null_mut()
        }
    }
}

/// `memalign` as in glibc: any alignment, rounded up to a power of two.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    aligned(align, size)
}

/// ISO C `aligned_alloc`; the size need not be a multiple of the alignment
/// (C17). As in glibc from 2.38 on, an alignment that is no power of two is EINVAL.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    aligned(align, size)
}

/// POSIX `posix_memalign`: EINVAL unless the alignment is a power of two and a
/// multiple of a pointer's size; `errno` is not changed.
///
/// # Safety
/// `out` is valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    let errno = spandrel_os::env::errno();
    let object = aligned(align, size);
    set_errno(errno);
    if object.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: passed on from the caller.
    unsafe { out.write(object) };
    0
}

/// `valloc`: aligned to a page.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    aligned(PAGE_BYTES, size)
}

/// `pvalloc`: aligned to a page, in whole pages.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match align_up(size, PAGE_BYTES) {
        Some(size) => aligned(PAGE_BYTES, size.max(PAGE_BYTES)),
        None => no_memory(),
    }
}

/// glibc `malloc_usable_size`: all these bytes may be used.
///
/// # Safety
/// `object` is null or a live object of this program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(object: *mut c_void) -> usize {
    // SAFETY: passed on from the caller.
    unsafe { adaptive::usable_size(object.cast()) }
}
