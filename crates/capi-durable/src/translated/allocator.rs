//! What translated code calls instead of `malloc` and its like: objects lie in the state of the command, and those of the process stay what they are.
//!
//! - What the dynamic loader allocates belongs to the program (memory of threads for a library's variables): it is the process's.
//! - An object of the process is freed at once. A command that is undone and runs again would free it twice: a command frees what it has allocated, or what the state has.
//!
//! The functions are native: they return and do not unwind.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use spandrel::durable::Arena;
use spandrel_capture::translate;
use spandrel_os::modules::Module;
use spandrel_pages::PAGE_BYTES;

use crate::{current, regions};

/// Where the code of the dynamic loader lies.
static LOADER: OnceLock<Range<usize>> = OnceLock::new();

/// Finds the loader, before any command.
pub fn prepare() {
    let find = || Module::named(c"ld-linux-x86-64.so.2").map(|module| module.addresses());
    LOADER.get_or_init(|| find().unwrap_or_default());
}

/// The arena that the calling command allocates in; `None`: the process allocates.
fn inside<'a>() -> Option<&'a Arena> {
    let arena = current::allocates()?;
    // SAFETY: translated code has called the caller of this function.
    let caller = unsafe { translate::caller() };
    let is_loaders = LOADER.get().is_some_and(|loader| loader.contains(&caller));
    (!is_loaders).then_some(arena)
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
enum Owner<'a> {
    Process,
    /// The state of the command.
    State(&'a Arena),
    /// A state, and no command that writes runs: in a child of a fork.
    Gone,
}

fn owner_of<'a>(object: *mut c_void) -> Owner<'a> {
    match current::writes() {
        _ if !regions::may_hold(object as usize) => Owner::Process,
        Some(arena) => Owner::State(arena),
        None => Owner::Gone,
    }
}

/// # Safety
/// As for the C library's.
pub unsafe extern "C" fn free(object: *mut c_void) {
    match (owner_of(object), NonNull::new(object.cast())) {
        // SAFETY: passed on from the caller.
        (Owner::Process, _) => unsafe { libc::free(object) },
        (Owner::State(arena), Some(address)) => {
            // SAFETY: promised by the caller. What is no object of the arena is refused.
            let freed = unsafe { arena.free(address) };
            freed.unwrap_or_else(|_| {
                crate::failure::end("free of what is no object of the command's state")
            });
        }
        _ => {}
    }
}

/// # Safety
/// As for the C library's.
pub unsafe extern "C" fn realloc(object: *mut c_void, size: usize) -> *mut c_void {
    let Some(address) = NonNull::new(object.cast::<u8>()) else { return malloc(size) };
    // SAFETY: passed on from the caller.
    unsafe {
        match owner_of(object) {
            Owner::Process => libc::realloc(object, size),
            Owner::State(_) if size == 0 => {
                free(object);
                ptr::null_mut()
            }
            Owner::State(arena) => match arena.realloc(address, size) {
                Err(spandrel_pheap::Error::Foreign(_) | spandrel_pheap::Error::DoubleFree(_)) => {
                    crate::failure::end("realloc of what is no object of the command's state")
                }
                made => of(made),
            },
            Owner::Gone => no_memory(),
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
    match (owner_of(object), NonNull::new(object.cast())) {
        // SAFETY: passed on from the caller.
        (Owner::Process, _) => unsafe { libc::malloc_usable_size(object) },
        (Owner::State(arena), Some(address)) => arena.usable_bytes(address).unwrap_or(0),
        _ => 0,
    }
}
