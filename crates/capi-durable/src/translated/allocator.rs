//! What translated code calls instead of `malloc` and its like: objects lie in the state of the command, and those of the process stay what they are.
//!
//! - What the C library and the dynamic loader keep is the process's ([`owner`]).
//! - An object of the process is freed at once. A command that is undone and runs again would free it twice: a command frees what it has allocated, or what the state has.
//!
//! The functions are native: they return and do not unwind.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use spandrel::durable::Arena;
use spandrel_pages::PAGE_BYTES;

use super::owner::{self, Owner};
use crate::{current, regions};

/// The arena that the calling command allocates in; `None`: the process allocates.
fn inside<'a>() -> Option<&'a Arena> {
    let arena = current::allocates()?;
    // SAFETY: translated code has called the caller of this function.
    let owner = unsafe { owner::of_allocation(regions::may_hold) };
    (owner != Owner::Process).then_some(arena)
}

/// The same, where an object of the process is to be the calling command's with its new size.
fn given<'a>() -> Option<&'a Arena> {
    let arena = current::allocates()?;
    // SAFETY: as above.
    let owner = unsafe { owner::of_allocation(regions::may_hold) };
    (owner == Owner::Given).then_some(arena)
}

fn set_errno(number: c_int) {
    // SAFETY: the thread's own number.
    unsafe { *libc::__errno_location() = number };
}

fn no_memory() -> *mut c_void {
    set_errno(libc::ENOMEM);
    ptr::null_mut()
}

fn of(made: Result<NonNull<u8>, spandrel_pheap::Error>) -> *mut c_void {
    made.map_or_else(|_| no_memory(), |object| object.as_ptr().cast())
}

/// A new object of the state, aligned as it is to be.
fn aligned(arena: &Arena, size: usize, align: usize) -> *mut c_void {
    of(arena.alloc_aligned(size, align))
}

pub extern "C" fn malloc(size: usize) -> *mut c_void {
    match inside() {
        Some(arena) => of(arena.alloc(size)),
        // SAFETY: the process's own.
        None => unsafe { libc::malloc(size) },
    }
}

pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    match inside() {
        Some(arena) => {
            count.checked_mul(size).map_or_else(no_memory, |bytes| of(arena.alloc_zeroed(bytes)))
        }
        // SAFETY: the process's own.
        None => unsafe { libc::calloc(count, size) },
    }
}

pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    match inside() {
        Some(arena) => aligned(arena, size, align),
        // SAFETY: the process's own.
        None => unsafe { libc::aligned_alloc(align, size) },
    }
}

/// As glibc's: any alignment, of which the next power of two is taken.
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    match (inside(), align.max(1).checked_next_power_of_two()) {
        (Some(arena), Some(align)) => aligned(arena, size, align),
        // SAFETY: the process's own.
        _ => unsafe { libc::memalign(align, size) },
    }
}

pub extern "C" fn valloc(size: usize) -> *mut c_void {
    memalign(PAGE_BYTES, size)
}

pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(PAGE_BYTES) {
        Some(size) => memalign(PAGE_BYTES, size),
        None => no_memory(),
    }
}

/// # Safety
/// As for the C library's.
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    let Some(arena) = inside() else {
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
        Err(_) => libc::ENOMEM,
    }
}

/// Which memory an object is of.
enum Memory<'a> {
    Process,
    /// The state of the command.
    State(&'a Arena),
    /// A state, and no command that writes runs: in a child of a fork.
    Gone,
}

fn memory_of<'a>(object: *mut c_void) -> Memory<'a> {
    match current::writes() {
        _ if !regions::may_hold(object as usize) => Memory::Process,
        Some(arena) => Memory::State(arena),
        None => Memory::Gone,
    }
}

/// # Safety
/// As for the C library's.
pub unsafe extern "C" fn free(object: *mut c_void) {
    match (memory_of(object), NonNull::new(object.cast())) {
        // SAFETY: passed on from the caller.
        (Memory::Process, _) => unsafe { libc::free(object) },
        (Memory::State(arena), Some(address)) => {
            // SAFETY: promised by the caller. What is no object of the arena is refused.
            let freed = unsafe { arena.free(address) };
            freed.unwrap_or_else(|_| {
                crate::failure::end("free of what is no object of the command's state")
            });
        }
        _ => {}
    }
}

/// Copies an object of the process to the state, and frees it.
///
/// # Safety
/// As for the C library's `realloc`.
unsafe fn give(arena: &Arena, object: *mut c_void, size: usize) -> *mut c_void {
    let given = of(arena.alloc(size));
    if !given.is_null() {
        // SAFETY: the new object has that size, and the old one has its own.
        unsafe {
            let bytes = size.min(libc::malloc_usable_size(object));
            current::note_native(given as usize, bytes);
            given.cast::<u8>().copy_from_nonoverlapping(object.cast(), bytes);
            libc::free(object);
        }
    }
    given
}

/// # Safety
/// As for the C library's.
pub unsafe extern "C" fn realloc(object: *mut c_void, size: usize) -> *mut c_void {
    let Some(address) = NonNull::new(object.cast::<u8>()) else { return malloc(size) };
    // SAFETY: passed on from the caller.
    unsafe {
        match memory_of(object) {
            Memory::Process => match given().filter(|_| size > 0) {
                Some(arena) => give(arena, object, size),
                None => libc::realloc(object, size),
            },
            Memory::State(_) if size == 0 => {
                free(object);
                ptr::null_mut()
            }
            Memory::State(arena) => match arena.realloc(address, size) {
                Err(spandrel_pheap::Error::Foreign(_) | spandrel_pheap::Error::DoubleFree(_)) => {
                    crate::failure::end("realloc of what is no object of the command's state")
                }
                made => of(made),
            },
            Memory::Gone => no_memory(),
        }
    }
}

/// # Safety
/// As for the C library's.
pub unsafe extern "C" fn reallocarray(
    object: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: passed on from the caller.
        Some(bytes) => unsafe { realloc(object, bytes) },
        None => no_memory(),
    }
}

/// # Safety
/// As for the C library's.
pub unsafe extern "C" fn malloc_usable_size(object: *mut c_void) -> usize {
    match (memory_of(object), NonNull::new(object.cast())) {
        // SAFETY: passed on from the caller.
        (Memory::Process, _) => unsafe { libc::malloc_usable_size(object) },
        (Memory::State(arena), Some(address)) => arena.usable_bytes(address).unwrap_or(0),
        _ => 0,
    }
}

/// A copy of some characters and an end.
///
/// # Safety
/// The characters are there, and may be copied.
unsafe fn duplicate<T>(text: *const T, count: usize, end: T) -> *mut T {
    let bytes = (count + 1) * size_of::<T>();
    let copy = malloc(bytes).cast::<T>();
    if !copy.is_null() {
        current::note_native(copy as usize, bytes);
        // SAFETY: the new object has room for both.
        unsafe {
            copy.copy_from_nonoverlapping(text, count);
            copy.add(count).write(end);
        }
    }
    copy
}

/// # Safety
/// As for the C library's.
pub unsafe extern "C" fn strdup(text: *const c_char) -> *mut c_char {
    // SAFETY: passed on from the caller.
    unsafe { duplicate(text, libc::strlen(text), 0) }
}

/// # Safety
/// As for the C library's.
pub unsafe extern "C" fn strndup(text: *const c_char, most: usize) -> *mut c_char {
    // SAFETY: passed on from the caller.
    unsafe { duplicate(text, libc::strnlen(text, most), 0) }
}

/// # Safety
/// As for the C library's.
pub unsafe extern "C" fn wcsdup(text: *const libc::wchar_t) -> *mut libc::wchar_t {
    // SAFETY: passed on from the caller.
    unsafe { duplicate(text, libc::wcslen(text), 0) }
}
