//! google/tcmalloc in its slices.
//!
//! It keeps what its memory is for in bits 42 to 44 of the addresses, so that
//! each use has a slice where these bits are right. It maps at random addresses
//! with the bits that it wants and takes no other; one in 16 lies in the slice,
//! and the others are refused here without a system call.
//!
//! tcmalloc ends the program when there is no memory for its own data. So some
//! of that is always open ahead, and while it cannot be, because of a limit,
//! there is none for objects either.

use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use spandrel_os::env::set_errno;
use spandrel_os::vm;
use spandrel_pages::{AllocatorId, GIB, HUGEPAGE_BYTES, MIB, MIN_ALIGN, align_down};

use super::space::{Space, tag_of};
use super::{Host, refuse_memory};
use crate::Backend;

/// What tcmalloc calls `kNormal`: the objects.
const NORMAL: u8 = 4;
/// `kMetadata`: its own data.
const METADATA: u8 = 3;
/// `kSampled`: guarded pages are reserved at the start, and never used.
const SAMPLED: u8 = 0;

pub(super) static HOST: Host = Host::tagged(AllocatorId::Tcmalloc, NORMAL);
static META: Space = Space::tagged(AllocatorId::Tcmalloc, METADATA);
static SAMPLES: Space = Space::tagged(AllocatorId::Tcmalloc, SAMPLED);
/// Whether huge pages have been advised for the objects.
static ADVISED: AtomicBool = AtomicBool::new(false);

/// Huge pages are not advised for the end of the first region of objects: there
/// tcmalloc begins, and there a small program stays.
const BASE_PAGES_BYTES: usize = 16 * MIB;

/// Of tcmalloc's own data, what is open before it is asked for.
const AHEAD_BYTES: usize = 8 * MIB;
/// Lowest address of its own data in use; regions of a gibibyte are filled from
/// the top. Both under tcmalloc's lock.
static DATA_FROM: AtomicUsize = AtomicUsize::new(0);
/// Lowest address open below it.
static OPEN_FROM: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    fn spandrel_tc_start();
    fn spandrel_tc_fork_prepare();
    fn spandrel_tc_fork_release();
    fn spandrel_tc_malloc(size: usize) -> *mut c_void;
    fn spandrel_tc_calloc(count: usize, size: usize) -> *mut c_void;
    fn spandrel_tc_memalign(align: usize, size: usize) -> *mut c_void;
    fn spandrel_tc_realloc(object: *mut c_void, size: usize) -> *mut c_void;
    fn spandrel_tc_free(object: *mut c_void);
    fn spandrel_tc_free_sized(object: *mut c_void, size: usize);
    fn spandrel_tc_usable_size(object: *mut c_void) -> usize;
    fn spandrel_tc_trim() -> bool;
}

/// tcmalloc, with a cache for each thread.
pub enum Tcmalloc {}

/// It ends the program when it has no memory for its own records: some is kept for these.
pub(super) fn give_back_reserve() {
    const KEPT_BYTES: usize = 128 << 20;
    HOST.space.give_back_reserve(0);
    META.give_back_reserve(KEPT_BYTES);
    SAMPLES.give_back_reserve(0);
}

impl Backend for Tcmalloc {
    const ID: AllocatorId = AllocatorId::Tcmalloc;

    fn start() -> bool {
        HOST.start(|| {
            // Without any of its slices it would end the program.
            let prepared = META.prepare() && SAMPLES.prepare();
            if prepared {
                // SAFETY: called once, and nothing else before it.
                unsafe { spandrel_tc_start() };
            }
            prepared
        })
    }

    #[inline(always)]
    fn alloc(size: usize) -> *mut u8 {
        // SAFETY: no preconditions once started.
        unsafe { spandrel_tc_malloc(size) }.cast()
    }

    #[inline]
    fn alloc_zeroed(size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { spandrel_tc_calloc(1, size) }.cast()
    }

    fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
        if align > HUGEPAGE_BYTES {
            // tcmalloc would end the program.
            return ptr::null_mut();
        }
        // SAFETY: as above; the alignment is a power of two.
        unsafe { spandrel_tc_memalign(align, size) }.cast()
    }

    fn alloc_zeroed_aligned(align: usize, size: usize) -> *mut u8 {
        let object = Self::alloc_aligned(align, size);
        if !object.is_null() {
            // SAFETY: a new object of this size.
            unsafe { ptr::write_bytes(object, 0, size) };
        }
        object
    }

    #[inline]
    unsafe fn realloc(object: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: passed on from the caller.
        unsafe { spandrel_tc_realloc(object.cast(), size) }.cast()
    }

    #[inline(always)]
    unsafe fn free(object: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { spandrel_tc_free(object.cast()) }
    }

    #[inline]
    unsafe fn free_sized(object: *mut u8, size: usize, align: usize) {
        // SAFETY: passed on from the caller; the size is what was asked for.
        unsafe {
            if align <= MIN_ALIGN {
                spandrel_tc_free_sized(object.cast(), size);
            } else {
                spandrel_tc_free(object.cast());
            }
        }
    }

    unsafe fn usable_size(object: *mut u8) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { spandrel_tc_usable_size(object.cast()) }
    }

    fn trim() -> bool {
        // SAFETY: started.
        HOST.is_ready() && unsafe { spandrel_tc_trim() }
    }
}

/// Takes tcmalloc's locks and its slices'.
pub(super) fn fork_prepare() {
    // SAFETY: called when started; released by `fork_done`.
    HOST.fork_prepare(|| unsafe { spandrel_tc_fork_prepare() });
    META.fork_prepare();
    SAMPLES.fork_prepare();
}

/// Gives them back.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub(super) unsafe fn fork_done(in_child: bool) {
    // SAFETY: passed on from the caller; called when the locks were taken.
    unsafe {
        SAMPLES.fork_done();
        META.fork_done();
        HOST.fork_done(in_child, || spandrel_tc_fork_release());
    }
}

/// The space with a tag; other tags are not used in this configuration.
fn space(tag: u8) -> Option<&'static Space> {
    match tag {
        NORMAL => Some(&HOST.space),
        METADATA => Some(&META),
        SAMPLED => Some(&SAMPLES),
        _ => None,
    }
}

/// Where huge pages may be advised in a range.
fn huge(at: usize, len: usize) -> Range<usize> {
    let end = at + len;
    match tag_of(at) {
        NORMAL if ADVISED.swap(true, Relaxed) => at..end,
        NORMAL => at..end.saturating_sub(BASE_PAGES_BYTES).max(at),
        _ => at..at,
    }
}

/// Opens memory for tcmalloc's own data, and what is to be open ahead.
///
/// # Safety
/// The range lies in a region that tcmalloc maps for its own data; it holds its
/// lock.
unsafe fn open_data(at: usize, len: usize) -> bool {
    let ahead = OPEN_FROM.load(Relaxed)..DATA_FROM.load(Relaxed);
    let is_open = ahead.contains(&at) && at + len == ahead.end;
    if !is_open {
        // SAFETY: passed on from the caller.
        if !unsafe { vm::open(at as *mut u8, len) } {
            return false;
        }
        OPEN_FROM.store(at, Relaxed);
    }
    DATA_FROM.store(at, Relaxed);
    // SAFETY: passed on from the caller. If it fails, objects have to wait.
    unsafe { open_ahead() };
    true
}

/// Opens what is to be open ahead, unless it is; whether it is open now.
///
/// # Safety
/// tcmalloc holds its lock.
unsafe fn open_ahead() -> bool {
    let (data, open) = (DATA_FROM.load(Relaxed), OPEN_FROM.load(Relaxed));
    let from = data.saturating_sub(AHEAD_BYTES).max(align_down(data, GIB));
    if from >= open {
        return true;
    }
    // SAFETY: the part of the region for its own data that comes next.
    let is_open = unsafe { vm::open(from as *mut u8, open - from) };
    if is_open {
        OPEN_FROM.store(from, Relaxed);
    }
    is_open
}

mod hooks {
    use super::*;

    /// A new range exactly where it is wanted, or anywhere if that is said.
    ///
    /// # Safety
    /// None: it maps nothing over anything.
    unsafe extern "C" fn mmap(
        hint: *mut c_void,
        len: usize,
        access: c_int,
        flags: c_int,
        _fd: c_int,
        _offset: libc::off_t,
    ) -> *mut c_void {
        let accessible = access != libc::PROT_NONE;
        if flags & libc::MAP_FIXED != 0 || flags & libc::MAP_ANONYMOUS == 0 {
            return refuse_memory();
        }
        if hint.is_null() {
            let at = META.map(len, accessible);
            return if at.is_null() { refuse_memory() } else { at.cast() };
        }
        match space(tag_of(hint as usize)) {
            Some(space) if space.map_at(hint as usize, len, accessible) => hint,
            _ => refuse_memory(),
        }
    }

    unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
        // SAFETY: passed on from tcmalloc.
        if space(tag_of(at as usize)).is_some_and(|space| unsafe { space.unmap(at.cast(), len) }) {
            return 0;
        }
        set_errno(libc::EINVAL);
        -1
    }

    unsafe extern "C" fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
        let range = match advice {
            libc::MADV_HUGEPAGE => huge(at as usize, len),
            _ => at as usize..at as usize + len,
        };
        if range.is_empty() {
            return 0;
        }
        // SAFETY: passed on from tcmalloc; the range is a part of its own.
        unsafe { libc::madvise(range.start as *mut c_void, range.len(), advice) }
    }

    unsafe extern "C" fn mprotect(at: *mut c_void, len: usize, access: c_int) -> c_int {
        // SAFETY: passed on from tcmalloc, which holds its lock.
        unsafe {
            let is_open = match tag_of(at as usize) {
                METADATA => open_data(at as usize, len),
                _ => open_ahead() && libc::mprotect(at, len, access) == 0,
            };
            if is_open {
                return 0;
            }
        }
        set_errno(libc::ENOMEM);
        -1
    }

    crate::hosted::trampoline!("spandrel_tc_hook_", "mmap", mmap);
    crate::hosted::trampoline!("spandrel_tc_hook_", "munmap", munmap);
    crate::hosted::trampoline!("spandrel_tc_hook_", "madvise", madvise);
    crate::hosted::trampoline!("spandrel_tc_hook_", "mprotect", mprotect);
}
