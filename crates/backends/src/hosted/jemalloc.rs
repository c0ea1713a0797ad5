//! jemalloc in its slice.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;

use spandrel_os::vm;
use spandrel_pages::{AllocatorId, MIN_ALIGN};

use super::Host;
use crate::Backend;

pub(super) static HOST: Host = Host::new(AllocatorId::Jemalloc);
super::hooks!(HOST, "spandrel_je_hook_");

unsafe extern "C" {
    /// Configuration that jemalloc reads when it starts; null is none.
    static mut spandrel_je_malloc_conf: *const c_char;
    fn spandrel_je_malloc(size: usize) -> *mut c_void;
    fn spandrel_je_calloc(count: usize, size: usize) -> *mut c_void;
    fn spandrel_je_realloc(object: *mut c_void, size: usize) -> *mut c_void;
    fn spandrel_je_free(object: *mut c_void);
    fn spandrel_je_mallocx(size: usize, flags: c_int) -> *mut c_void;
    fn spandrel_je_sdallocx(object: *mut c_void, size: usize, flags: c_int);
    fn spandrel_je_malloc_usable_size(object: *const c_void) -> usize;
    fn spandrel_je_mallctl(
        name: *const c_char,
        old: *mut c_void,
        old_len: *mut usize,
        new: *mut c_void,
        new_len: usize,
    ) -> c_int;
}

/// `MALLOCX_ZERO` of jemalloc's interface.
const ZERO: c_int = 0x40;

/// jemalloc aligns objects below 16 bytes to 8; ours are aligned to 16.
#[inline(always)]
fn padded(size: usize) -> usize {
    size.max(MIN_ALIGN)
}

/// Larger requests are never served.
const NEVER_BYTES: usize = 1 << 47;

/// What a request of `size` bytes gets. jemalloc takes no small object from a large free range that it has not purged, and asks for fresh memory instead. Where that is
/// refused it gets the request again after a purge.
#[inline(always)]
fn with_purge(size: usize, request: impl Fn() -> *mut c_void) -> *mut u8 {
    let object = request();
    if object.is_null() && size < NEVER_BYTES { after_purge(&request) } else { object.cast() }
}

#[cold]
#[inline(never)]
fn after_purge(request: &dyn Fn() -> *mut c_void) -> *mut u8 {
    Jemalloc::trim();
    request().cast()
}

/// `MALLOCX_LG_ALIGN`.
fn align_flag(align: usize) -> c_int {
    align.trailing_zeros() as c_int
}

/// jemalloc. It would start by itself at its first request, but a fork must not
/// come in between.
pub enum Jemalloc {}

impl Backend for Jemalloc {
    const ID: AllocatorId = AllocatorId::Jemalloc;

    fn start() -> bool {
        HOST.start(|| {
            if vm::is_charged_when_opened() {
                // What it keeps mapped for later counts against the limit.
                // SAFETY: it has not started, so that no thread reads this yet.
                unsafe { spandrel_je_malloc_conf = c"retain:false".as_ptr() };
            }
            // SAFETY: an object that no other thread has seen.
            unsafe { spandrel_je_free(spandrel_je_malloc(MIN_ALIGN)) };
            true
        })
    }

    #[inline(always)]
    fn alloc(size: usize) -> *mut u8 {
        // SAFETY: no preconditions.
        with_purge(size, || unsafe { spandrel_je_malloc(padded(size)) })
    }

    #[inline]
    fn alloc_zeroed(size: usize) -> *mut u8 {
        // SAFETY: no preconditions.
        with_purge(size, || unsafe { spandrel_je_calloc(1, padded(size)) })
    }

    fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
        // SAFETY: the size is not zero, and the alignment is a power of two.
        with_purge(size, || unsafe { spandrel_je_mallocx(padded(size), align_flag(align)) })
    }

    fn alloc_zeroed_aligned(align: usize, size: usize) -> *mut u8 {
        // SAFETY: as above.
        with_purge(size, || unsafe { spandrel_je_mallocx(padded(size), align_flag(align) | ZERO) })
    }

    #[inline]
    unsafe fn realloc(object: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: passed on from the caller; a request that gets nothing leaves the object as it was.
        with_purge(size, || unsafe { spandrel_je_realloc(object.cast(), padded(size)) })
    }

    #[inline(always)]
    unsafe fn free(object: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { spandrel_je_free(object.cast()) }
    }

    #[inline]
    unsafe fn free_sized(object: *mut u8, size: usize, align: usize) {
        let flags = if align <= MIN_ALIGN { 0 } else { align_flag(align) };
        // SAFETY: passed on from the caller; the size is what was asked for.
        unsafe { spandrel_je_sdallocx(object.cast(), padded(size), flags) }
    }

    unsafe fn usable_size(object: *mut u8) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { spandrel_je_malloc_usable_size(object.cast()) }
    }

    fn trim() -> bool {
        if HOST.is_ready() {
            // 4096 is jemalloc's `MALLCTL_ARENAS_ALL`.
            let none = ptr::null_mut();
            // SAFETY: both names are valid and take no value.
            unsafe {
                spandrel_je_mallctl(c"thread.tcache.flush".as_ptr(), none, none.cast(), none, 0);
                spandrel_je_mallctl(c"arena.4096.purge".as_ptr(), none, none.cast(), none, 0);
            }
        }
        // Whether anything was purged it does not say.
        false
    }
}
