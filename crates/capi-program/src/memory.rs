//! `free` and its like, in front of the program's allocator: native code of the program frees objects of the state too.
//!
//! An object is freed in the batch that the thread has open, or waits for the next one. In translated code other functions stand in the place of these (`capi-durable`, `translated`).

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use capi_durable::{current, regions};
use spandrel::durable::Arena;

use crate::batch;

/// A function of the next library that has it.
pub struct Next {
    name: &'static CStr,
    at: AtomicUsize,
}

impl Next {
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, at: AtomicUsize::new(0) }
    }

    /// Its address.
    pub fn get(&self) -> usize {
        match self.at.load(Relaxed) {
            0 => self.find(),
            at => at,
        }
    }

    /// Looks for it.
    #[cold]
    pub fn find(&self) -> usize {
        // SAFETY: the name is a string.
        let at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
        if at == 0 {
            crate::refuse(format_args!("the C library has no {}", self.name.to_string_lossy()));
        }
        self.at.store(at, Relaxed);
        at
    }
}

static FREE: Next = Next::new(c"free");
static REALLOC: Next = Next::new(c"realloc");
static USABLE: Next = Next::new(c"malloc_usable_size");

/// Looks for all of them.
pub fn find() {
    [&FREE, &REALLOC, &USABLE].into_iter().for_each(|next| {
        next.find();
    });
}

type Free = unsafe extern "C" fn(*mut c_void);
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Usable = unsafe extern "C" fn(*mut c_void) -> usize;

/// Objects that wait for a batch.
static QUEUED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Their number: most batches find none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether an address lies in the state.
#[inline(always)]
pub fn is_of_state(at: usize) -> bool {
    regions::may_hold(at)
}

/// Frees what waits. The calling thread runs a batch.
pub fn free_queued(arena: &Arena) {
    if COUNT.load(Relaxed) == 0 {
        return;
    }
    let queued = {
        let mut queued = QUEUED.lock().unwrap_or_else(PoisonError::into_inner);
        COUNT.store(0, Relaxed);
        std::mem::take(&mut *queued)
    };
    queued.into_iter().for_each(|object| free_in(arena, object));
}

fn free_in(arena: &Arena, object: usize) {
    let Some(address) = NonNull::new(object as *mut u8) else { return };
    // SAFETY: the program has freed it. What is no object of the arena is refused.
    if unsafe { arena.free(address) }.is_err() {
        crate::end(format_args!("free of {object:#x}, which is no object of the state"));
    }
}

#[cold]
fn free_of_state(object: usize) {
    if current::is_inside()
        && let Some(arena) = current::writes()
    {
        return free_in(arena, object);
    }
    if let Some(arena) = batch::in_batch() {
        return free_in(arena, object);
    }
    if batch::is_open() {
        let mut queued = QUEUED.lock().unwrap_or_else(PoisonError::into_inner);
        queued.push(object);
        COUNT.store(queued.len(), Relaxed);
    }
}

fn usable_of_state(object: usize) -> usize {
    let address = NonNull::new(object as *mut u8);
    batch::arena().zip(address).map_or(0, |(arena, at)| arena.usable_bytes(at).unwrap_or(0))
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(object: *mut c_void) {
    if is_of_state(object as usize) {
        return free_of_state(object as usize);
    }
    // SAFETY: the next function of that name; promised by the caller.
    unsafe { std::mem::transmute::<usize, Free>(FREE.get())(object) }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(object: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the next function of that name; promised by the caller.
    unsafe {
        if !is_of_state(object as usize) {
            return std::mem::transmute::<usize, Realloc>(REALLOC.get())(object, size);
        }
        // Native code resizes it: it is the process's from now on.
        let moved = libc::malloc(size);
        if !moved.is_null() {
            let bytes = size.min(usable_of_state(object as usize));
            moved.cast::<u8>().copy_from_nonoverlapping(object.cast(), bytes);
            free_of_state(object as usize);
        }
        moved
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(object: *mut c_void) -> usize {
    if is_of_state(object as usize) {
        return usable_of_state(object as usize);
    }
    // SAFETY: the next function of that name; promised by the caller.
    unsafe { std::mem::transmute::<usize, Usable>(USABLE.get())(object) }
}
