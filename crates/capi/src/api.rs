//! `spandrel.h`: modes, scopes, allocators by name, statistics.

use core::ffi::{CStr, c_char, c_int, c_void};

use spandrel_adaptive as adaptive;
use spandrel_adaptive::ModeChange;
use spandrel_os::env::set_errno;
use spandrel_pages::AllocatorId;
use spandrel_sync::thread_slot;

const LARGEST: usize = isize::MAX as usize;

/// The version, as `"0.1.0"`.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_version() -> *const c_char {
    crate::info::version()
}

/// The process's mode, in the form that `spandrel_set_mode` reads. The text
/// stays valid.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_mode() -> *const c_char {
    adaptive::mode_name().as_ptr()
}

fn text_of<'a>(mode: *const c_char) -> Option<&'a str> {
    if mode.is_null() {
        return None;
    }
    // SAFETY: the callers' contract: a NUL-terminated string.
    unsafe { CStr::from_ptr(mode) }.to_str().ok()
}

fn errno_of(error: &ModeChange<'_>) -> c_int {
    match error {
        ModeChange::Refused(error) => match error.kind {
            spandrel_policy::ModeErrorKind::NotBuiltIn(_) => libc::ENOTSUP,
            _ => libc::EINVAL,
        },
        ModeChange::TooMany => libc::ENOSPC,
    }
}

/// Puts the process into a mode: 0, or EINVAL (no such mode), ENOTSUP (not
/// built in), ENOSPC (32 different modes were used).
///
/// # Safety
/// `mode` is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_set_mode(mode: *const c_char) -> c_int {
    let Some(text) = text_of(mode) else {
        return libc::EINVAL;
    };
    adaptive::set_mode(text).map_or_else(|error| errno_of(&error), |()| 0)
}

/// Enters a mode on this thread, until `spandrel_scope_leave`. Results as for
/// `spandrel_set_mode`, and EAGAIN when scopes are nested too deeply (24).
///
/// # Safety
/// `mode` is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_scope_enter(mode: *const c_char) -> c_int {
    let Some(text) = text_of(mode) else {
        return libc::EINVAL;
    };
    let slot = thread_slot();
    let depth = slot.c_depth.get() as usize;
    if depth >= slot.c_scopes.len() {
        return libc::EAGAIN;
    }
    match adaptive::enter_scope(text) {
        Ok(previous) => {
            let index = adaptive::scope_index(previous);
            if let Some(saved) = slot.c_scopes.get(depth) {
                saved.set(index);
            }
            slot.c_depth.set(depth as u8 + 1);
            0
        }
        Err(error) => errno_of(&error),
    }
}

/// Leaves the innermost scope of this thread; nothing if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_scope_leave() {
    let slot = thread_slot();
    let Some(depth) = (slot.c_depth.get() as usize).checked_sub(1) else {
        return;
    };
    slot.c_depth.set(depth as u8);
    if let Some(saved) = slot.c_scopes.get(depth) {
        // SAFETY: saved by the matching `spandrel_scope_enter` on this thread.
        unsafe { adaptive::leave_scope(adaptive::scope_at(saved.get())) };
    }
}

fn allocator(number: c_int) -> Option<AllocatorId> {
    u8::try_from(number)
        .ok()
        .and_then(AllocatorId::from_byte)
        .filter(|id| adaptive::available().has(*id))
}

fn refuse(errno: c_int) -> *mut c_void {
    set_errno(errno);
    core::ptr::null_mut()
}

fn place(number: c_int, align: usize, size: usize, zeroed: bool) -> *mut c_void {
    let Some(id) = allocator(number) else {
        return refuse(libc::EINVAL);
    };
    if !align.is_power_of_two() {
        return refuse(libc::EINVAL);
    }
    adaptive::start();
    let object = if size > LARGEST || align > LARGEST / 2 {
        core::ptr::null_mut()
    } else {
        adaptive::direct::alloc_in(id, align, size, zeroed)
    };
    if object.is_null() { refuse(libc::ENOMEM) } else { object.cast() }
}

/// As `malloc`, from the allocator of that number whatever the mode.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_malloc_in(number: c_int, size: usize) -> *mut c_void {
    place(number, 1, size, false)
}

/// As `calloc`, from the allocator of that number whatever the mode.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_calloc_in(number: c_int, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(bytes) => place(number, 1, bytes, true),
        None => refuse(libc::ENOMEM),
    }
}

/// As `aligned_alloc`, from the allocator of that number whatever the mode.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_aligned_alloc_in(
    number: c_int,
    align: usize,
    size: usize,
) -> *mut c_void {
    place(number, align, size, false)
}

/// As `realloc`; the result is owned by the allocator of that number.
///
/// # Safety
/// `object` is null or a live object of this program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_realloc_in(
    number: c_int,
    object: *mut c_void,
    size: usize,
) -> *mut c_void {
    let Some(id) = allocator(number) else {
        return refuse(libc::EINVAL);
    };
    if object.is_null() {
        return place(number, 1, size, false);
    }
    if size == 0 {
        // SAFETY: passed on from the caller.
        unsafe { adaptive::free(object.cast()) };
        return core::ptr::null_mut();
    }
    if size > LARGEST {
        return refuse(libc::ENOMEM);
    }
    // SAFETY: passed on from the caller.
    let moved = unsafe {
        let usable = adaptive::usable_size(object.cast());
        adaptive::direct::realloc_in(id, object.cast(), usable, 1, size)
    };
    if moved.is_null() { refuse(libc::ENOMEM) } else { moved.cast() }
}

/// The number of the allocator that owns an address; glibc's for whatever no
/// other claims.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_owner(object: *const c_void) -> c_int {
    adaptive::owner(object.cast()) as c_int
}

/// `struct spandrel_stats`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct SpandrelStats {
    allocations: [u64; AllocatorId::ALL.len()],
    allocated_bytes: [u64; AllocatorId::ALL.len()],
    reallocations: [u64; AllocatorId::ALL.len()],
    frees: [u64; AllocatorId::ALL.len()],
    realloc_in_place: u64,
    realloc_moved_pages: u64,
    realloc_copied: u64,
    realloc_copied_bytes: u64,
    realloc_migrated: u64,
    mmap_live_objects: u64,
    mmap_live_bytes: u64,
    mmap_warm_bytes: u64,
    mmap_reused_bytes: u64,
    counting: u64,
}

/// Fills the first `size` bytes of `out`; 0, or EINVAL for a null pointer.
/// Later versions may append fields: the size tells which the caller knows.
///
/// # Safety
/// `out` is null or valid for writing `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_stats(out: *mut SpandrelStats, size: usize) -> c_int {
    if out.is_null() {
        return libc::EINVAL;
    }
    let stats = adaptive::stats();
    let mut answer = SpandrelStats {
        realloc_in_place: stats.realloc.in_place,
        realloc_moved_pages: stats.realloc.moved_pages,
        realloc_copied: stats.realloc.copied,
        realloc_copied_bytes: stats.realloc.copied_bytes,
        realloc_migrated: stats.realloc.migrated,
        mmap_live_objects: stats.mmap.live_slots as u64,
        mmap_live_bytes: stats.mmap.live_bytes as u64,
        mmap_warm_bytes: stats.mmap.warm_bytes as u64,
        mmap_reused_bytes: stats.mmap.reused_bytes,
        counting: u64::from(stats.counting),
        ..SpandrelStats::default()
    };
    for row in stats.requests() {
        let id = row.allocator as usize;
        answer.allocations[id] += row.allocs;
        answer.allocated_bytes[id] += row.alloc_bytes;
        answer.reallocations[id] += row.reallocs;
    }
    for id in AllocatorId::ALL {
        answer.frees[id as usize] = stats.frees(id);
    }
    let bytes = size.min(size_of::<SpandrelStats>());
    // SAFETY: passed on from the caller; the source is as long as `bytes`.
    unsafe {
        core::ptr::copy_nonoverlapping((&raw const answer).cast::<u8>(), out.cast(), bytes);
        // What this version does not know is zero.
        core::ptr::write_bytes(out.cast::<u8>().add(bytes), 0, size - bytes);
    }
    0
}

/// A figure of the native allocator by its name: 0, or EINVAL for null pointers and ENOENT for
/// a name that is none.
///
/// # Safety
/// `name` is null or a string, `out` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_figure(name: *const c_char, out: *mut u64) -> c_int {
    if name.is_null() || out.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: passed on from the caller.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(value) = adaptive::native_figure(name.to_bytes()) else { return libc::ENOENT };
    // SAFETY: as above.
    unsafe { out.write(value) };
    0
}

/// Writes the statistics to standard error.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_stats_print() {
    crate::info::malloc_stats();
}

/// Turns the counting of requests on (not 0) or off (0).
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_count_requests(on: c_int) {
    adaptive::start();
    adaptive::count_requests(on != 0);
}
