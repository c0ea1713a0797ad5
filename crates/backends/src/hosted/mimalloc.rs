//! mimalloc in its slice.

use core::ffi::c_void;

use spandrel_os::vm;
use spandrel_pages::{AllocatorId, MIN_ALIGN};

use super::Host;
use crate::Backend;

pub(super) static HOST: Host = Host::new(AllocatorId::Mimalloc);
super::hooks!(HOST, "spandrel_mi_hook_");

unsafe extern "C" {
    fn spandrel_mi_host_start(watch_threads: bool, lazy: bool);
    fn spandrel_mi_host_fork_prepare();
    fn spandrel_mi_host_fork_release();
    fn spandrel_mi_malloc(size: usize) -> *mut c_void;
    fn spandrel_mi_zalloc(size: usize) -> *mut c_void;
    fn spandrel_mi_malloc_aligned(size: usize, align: usize) -> *mut c_void;
    fn spandrel_mi_zalloc_aligned(size: usize, align: usize) -> *mut c_void;
    fn spandrel_mi_realloc(object: *mut c_void, size: usize) -> *mut c_void;
    fn spandrel_mi_free(object: *mut c_void);
    fn spandrel_mi_usable_size(object: *const c_void) -> usize;
    fn spandrel_mi_collect(force: bool);
}

/// mimalloc aligns objects of up to 8 bytes to 8; ours are aligned to 16.
#[inline(always)]
fn padded(size: usize) -> usize {
    size.max(MIN_ALIGN)
}

/// mimalloc.
pub enum Mimalloc {}

impl Backend for Mimalloc {
    const ID: AllocatorId = AllocatorId::Mimalloc;

    fn start() -> bool {
        HOST.start(|| {
            // SAFETY: it is to learn of ending threads by itself.
            unsafe { spandrel_mi_host_start(true, vm::is_charged_when_opened()) };
            true
        })
    }

    #[inline(always)]
    fn alloc(size: usize) -> *mut u8 {
        // SAFETY: no preconditions once started.
        unsafe { spandrel_mi_malloc(padded(size)) }.cast()
    }

    #[inline]
    fn alloc_zeroed(size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { spandrel_mi_zalloc(padded(size)) }.cast()
    }

    fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
        // SAFETY: as above; the alignment is a power of two.
        unsafe { spandrel_mi_malloc_aligned(padded(size), align) }.cast()
    }

    fn alloc_zeroed_aligned(align: usize, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { spandrel_mi_zalloc_aligned(padded(size), align) }.cast()
    }

    #[inline]
    unsafe fn realloc(object: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: passed on from the caller.
        unsafe { spandrel_mi_realloc(object.cast(), padded(size)) }.cast()
    }

    #[inline(always)]
    unsafe fn free(object: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { spandrel_mi_free(object.cast()) }
    }

    #[inline(always)]
    unsafe fn free_sized(object: *mut u8, _size: usize, _align: usize) {
        // mimalloc's own sized free only checks.
        // SAFETY: passed on from the caller.
        unsafe { spandrel_mi_free(object.cast()) }
    }

    unsafe fn usable_size(object: *mut u8) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { spandrel_mi_usable_size(object.cast()) }
    }

    fn trim() -> bool {
        if HOST.is_ready() {
            // SAFETY: started.
            unsafe { spandrel_mi_collect(true) };
        }
        // Whether anything went it does not say.
        false
    }
}

/// Takes mimalloc's locks and its slice's.
pub(super) fn fork_prepare() {
    // SAFETY: called when started; released by `fork_done`.
    HOST.fork_prepare(|| unsafe { spandrel_mi_host_fork_prepare() });
}

/// Gives them back.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub(super) unsafe fn fork_done(in_child: bool) {
    // SAFETY: passed on from the caller; called when the locks were taken.
    unsafe { HOST.fork_done(in_child, || spandrel_mi_host_fork_release()) };
}
