//! `malloc` and its like of the program's own objects, which its linker has call these (`-Wl,--wrap=malloc`): in a command that writes, and before init, memory
//! is the state's. Libraries keep the C library's, and so do their buffers.
//!
//! An object of the state that is freed outside of a command that writes is freed by the next one.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use spandrel::durable::Arena;

use crate::{current, regions};

/// Objects of the state that were freed outside of a command.
static QUEUED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// What a command frees that was freed outside of commands. A command that is undone and runs again frees it again; one that is not to be gives it back.
#[derive(Default)]
pub struct Frees(Mutex<Vec<usize>>);

impl Frees {
    /// Frees the objects. The calling thread runs the command, which writes.
    pub fn free(&self, arena: &Arena) {
        let Ok(mut own) = self.0.lock() else { return };
        if let Ok(mut queued) = QUEUED.lock() {
            own.append(&mut queued);
        }
        for object in own.iter().filter_map(|object| NonNull::new(*object as *mut u8)) {
            // SAFETY: the program has freed it. What is no object of the arena is refused.
            let _ = unsafe { arena.free(object) };
        }
    }

    /// The command was not to be: the next one frees the objects.
    pub fn give_back(&self) {
        if let (Ok(mut own), Ok(mut queued)) = (self.0.lock(), QUEUED.lock()) {
            queued.append(&mut own);
        }
    }
}

/// The error of the C library's functions.
fn no_memory() -> *mut c_void {
    // SAFETY: the thread's own number.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    ptr::null_mut()
}

fn of(made: Result<NonNull<u8>, spandrel_pheap::Error>) -> *mut c_void {
    made.map_or_else(|_| no_memory(), |object| object.as_ptr().cast())
}

/// See the C library.
#[unsafe(no_mangle)]
pub extern "C" fn __wrap_malloc(size: usize) -> *mut c_void {
    match current::allocates() {
        Some(arena) => of(arena.alloc(size)),
        // SAFETY: the C library's own.
        None => unsafe { libc::malloc(size) },
    }
}

/// See the C library.
#[unsafe(no_mangle)]
pub extern "C" fn __wrap_calloc(count: usize, size: usize) -> *mut c_void {
    match current::allocates() {
        Some(arena) => {
            count.checked_mul(size).map_or_else(no_memory, |bytes| of(arena.alloc_zeroed(bytes)))
        }
        // SAFETY: the C library's own.
        None => unsafe { libc::calloc(count, size) },
    }
}

/// See the C library.
#[unsafe(no_mangle)]
pub extern "C" fn __wrap_aligned_alloc(align: usize, size: usize) -> *mut c_void {
    match current::allocates() {
        Some(arena) => of(arena.alloc_aligned(size, align)),
        // SAFETY: the C library's own.
        None => unsafe { libc::aligned_alloc(align, size) },
    }
}

/// See the C library.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_posix_memalign(
    out: *mut *mut c_void,
    align: usize,
    size: usize,
) -> c_int {
    let Some(arena) = current::allocates() else {
        // SAFETY: passed on from the caller.
        return unsafe { libc::posix_memalign(out, align, size) };
    };
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    match arena.alloc_aligned(size, align) {
        Ok(object) => {
            // Where the address is stored may be in the state too.
            current::note_native(out as usize, size_of::<usize>());
            // SAFETY: promised by the caller.
            unsafe { out.write(object.as_ptr().cast()) };
            0
        }
        Err(spandrel_pheap::Error::Size(_)) => libc::EINVAL,
        Err(_) => libc::ENOMEM,
    }
}

/// See the C library.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_free(object: *mut c_void) {
    let at = object as usize;
    if !regions::may_hold(at) {
        // SAFETY: passed on from the caller.
        return unsafe { libc::free(object) };
    }
    match (current::writes(), NonNull::new(object.cast())) {
        (Some(arena), Some(object)) => {
            // SAFETY: promised by the caller. What is no object of the arena is refused.
            if unsafe { arena.free(object) }.is_err() {
                crate::failure::end("free of what is no object of the state");
            }
        }
        _ => {
            if let Ok(mut queued) = QUEUED.lock() {
                queued.push(at);
            }
        }
    }
}

/// See the C library.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_realloc(object: *mut c_void, size: usize) -> *mut c_void {
    if object.is_null() {
        return __wrap_malloc(size);
    }
    if !regions::may_hold(object as usize) {
        // SAFETY: passed on from the caller.
        return unsafe { libc::realloc(object, size) };
    }
    let Some((arena, old)) = current::writes().zip(NonNull::new(object.cast())) else {
        // An object of the state does not move outside of a command: where it lies may be known to others.
        return no_memory();
    };
    if size == 0 {
        // SAFETY: passed on from the caller.
        unsafe { __wrap_free(object) };
        return ptr::null_mut();
    }
    // SAFETY: passed on from the caller.
    of(unsafe { arena.realloc(old, size) })
}

/// A copy of the first bytes of a text.
///
/// # Safety
/// `text` has `bytes` bytes.
unsafe fn duplicate(text: *const c_char, bytes: usize) -> *mut c_char {
    let copy = __wrap_malloc(bytes + 1).cast::<c_char>();
    if !copy.is_null() {
        // SAFETY: promised by the caller; the copy has room.
        unsafe {
            current::note_native(copy as usize, bytes + 1);
            ptr::copy_nonoverlapping(text, copy, bytes);
            copy.add(bytes).write(0);
        }
    }
    copy
}

/// See the C library.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_strdup(text: *const c_char) -> *mut c_char {
    // SAFETY: passed on from the caller.
    unsafe { duplicate(text, libc::strlen(text)) }
}

/// See the C library.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_strndup(text: *const c_char, most: usize) -> *mut c_char {
    // SAFETY: passed on from the caller.
    unsafe { duplicate(text, libc::strnlen(text, most)) }
}
