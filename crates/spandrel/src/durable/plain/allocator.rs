//! The global allocator of a program with plain states.
//!
//! What a command allocates lies in the state that it changes; everything else is Spandrel's. The owner of an object is told by its address: durable states lie in a window
//! of the address space where nothing else does.
//!
//! Invariants:
//! - A thread allocates in a state only while it runs a command, or `init`, of the state's batch.
//! - What is freed elsewhere (an `Arc` of the state that a reader has kept) waits for the next command of the state that writes.
//! - A panic's payload is no part of the state: a panicking thread allocates outside of it.

use core::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::prelude::v1::*;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread_local;

use spandrel_adaptive as adaptive;
use spandrel_os::message::say;
use spandrel_os::slices::FIXED_BASE_WINDOW;
use spandrel_pages::{MIN_ALIGN, TIB};

use crate::durable::Arena;

/// The global allocator of a program that has plain states: Spandrel, which within the commands of such a state allocates in the state. See [`super::Plain`].
///
/// ```
/// #[global_allocator]
/// static ALLOC: spandrel::durable::Allocator = spandrel::durable::Allocator::new();
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator;

impl Allocator {
    /// The allocator.
    pub const fn new() -> Self {
        Allocator
    }
}

thread_local! {
    /// The state that the thread allocates in; null: none.
    static INSIDE: Cell<*const Arena> = const { Cell::new(ptr::null()) };
}

/// Has the calling thread allocate elsewhere until it is dropped.
pub(super) struct Scope(*const Arena);

impl Scope {
    /// In a state.
    ///
    /// # Safety
    /// The calling thread runs a batch of the state, and the arena outlives the scope.
    pub unsafe fn enter(arena: &Arena) -> Self {
        Self(INSIDE.replace(arena))
    }

    /// In none.
    pub fn leave() -> Self {
        Self(INSIDE.replace(ptr::null()))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

/// In the place of a state: the thread looks whether this is the program's allocator.
const PROBE: *const Arena = ptr::without_provenance(1);

/// Whether this is the program's allocator.
pub(super) fn is_the_programs() -> bool {
    let before = INSIDE.replace(PROBE);
    drop(std::hint::black_box(Box::new(0u64)));
    // The allocation has taken it away.
    INSIDE.replace(before).is_null()
}

/// Whether an address may lie in a state.
#[inline(always)]
fn may_be_durable(object: *mut u8) -> bool {
    (FIXED_BASE_WINDOW.start * TIB..FIXED_BASE_WINDOW.end * TIB).contains(&(object as usize))
}

/// An open plain state.
struct Open {
    base: usize,
    bytes: usize,
    /// Objects of it that were freed outside of its commands.
    freed: Mutex<Vec<usize>>,
}

static OPEN: RwLock<Vec<Open>> = RwLock::new(Vec::new());

/// Calls `f` with the open state that has an address.
fn with_state<T>(at: usize, f: impl FnOnce(&Open) -> T) -> Option<T> {
    let _scope = Scope::leave();
    let open = OPEN.read().unwrap_or_else(PoisonError::into_inner);
    open.iter().find(|state| at.wrapping_sub(state.base) < state.bytes).map(f)
}

/// A state is open, at these addresses.
pub(super) fn add(base: usize, bytes: usize) {
    let mut open = OPEN.write().unwrap_or_else(PoisonError::into_inner);
    open.push(Open { base, bytes, freed: Mutex::new(Vec::new()) });
}

/// The state at an address is about to be closed.
pub(super) fn remove(base: usize) {
    let mut open = OPEN.write().unwrap_or_else(PoisonError::into_inner);
    open.retain(|state| state.base != base);
}

/// Takes the objects of the state at an address that were freed outside of its commands.
pub(super) fn take_freed(base: usize) -> Vec<usize> {
    let take = |state: &Open| {
        std::mem::take(&mut *state.freed.lock().unwrap_or_else(PoisonError::into_inner))
    };
    with_state(base, take).unwrap_or_default()
}

/// Puts objects back that were taken and could not be freed.
pub(super) fn put_freed(base: usize, mut objects: Vec<usize>) {
    with_state(base, |state| {
        state.freed.lock().unwrap_or_else(PoisonError::into_inner).append(&mut objects);
    });
}

/// Frees an object of a state in a command of the state.
///
/// # Safety
/// The calling thread runs a batch of the state, and nothing uses the object.
pub(super) unsafe fn free_in(arena: &Arena, object: NonNull<u8>) {
    // SAFETY: passed on from the caller.
    if let Err(why) = unsafe { arena.free(object) } {
        say(format_args!("free({object:p}) in a durable state: {why}"));
        std::process::abort();
    }
}

/// Within a command: allocates in its state. Null: the state is full.
#[inline(never)]
fn alloc_in(arena: *const Arena, layout: Layout, zeroed: bool) -> *mut u8 {
    if arena == PROBE {
        INSIDE.set(ptr::null());
    }
    if arena == PROBE || std::thread::panicking() {
        let alloc = if zeroed { adaptive::alloc_zeroed_aligned } else { adaptive::alloc_aligned };
        return alloc(layout.align(), layout.size());
    }
    // SAFETY: `Scope::enter` has it that the arena lives.
    let arena = unsafe { &*arena };
    let object = match layout.align() {
        ..=MIN_ALIGN if zeroed => arena.alloc_zeroed(layout.size()),
        ..=MIN_ALIGN => arena.alloc(layout.size()),
        align => arena.alloc_aligned(layout.size(), align),
    };
    let object = object.map_or(ptr::null_mut(), NonNull::as_ptr);
    if zeroed && layout.align() > MIN_ALIGN && !object.is_null() {
        // SAFETY: a new object of that size.
        unsafe { object.write_bytes(0, layout.size()) };
    }
    object
}

/// Whether an object is one of that state.
fn is_of(arena: &Arena, object: *mut u8) -> bool {
    let (base, bytes) = arena.medium().reserved();
    (object as usize).wrapping_sub(base.as_ptr() as usize) < bytes
}

/// The state that the thread allocates in, if the object is one of it.
fn inside_of<'a>(object: *mut u8) -> Option<&'a Arena> {
    let inside = Some(INSIDE.get()).filter(|inside| *inside != PROBE)?;
    // SAFETY: null, or as `Scope::enter` has it: the arena lives as long as the scope.
    unsafe { inside.as_ref() }.filter(|arena| is_of(arena, object))
}

/// Frees an object of a state: now, in a command of the state; else in the next one that writes.
///
/// # Safety
/// As for [`GlobalAlloc::dealloc`].
#[cold]
#[inline(never)]
unsafe fn free_durable(object: *mut u8) {
    let Some(address) = NonNull::new(object) else { return };
    if let Some(arena) = inside_of(object) {
        // SAFETY: the thread runs a batch of the state; the rest is the caller's.
        return unsafe { free_in(arena, address) };
    }
    // An object of a state that was closed has no memory any more.
    with_state(object as usize, |state| {
        state.freed.lock().unwrap_or_else(PoisonError::into_inner).push(object.expose_provenance());
    });
}

/// Gives an object of a state another size: in the state within its commands, elsewhere outside of them.
///
/// # Safety
/// As for [`GlobalAlloc::realloc`].
#[cold]
#[inline(never)]
unsafe fn realloc_durable(object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
    if let (Some(arena), Some(address), ..=MIN_ALIGN) =
        (inside_of(object), NonNull::new(object), layout.align())
    {
        // SAFETY: the thread runs a batch of the state; the rest is the caller's.
        let moved = unsafe { arena.realloc(address, size) };
        return moved.map_or(ptr::null_mut(), NonNull::as_ptr);
    }
    // SAFETY: the new object has `size` bytes, and is another one than the old.
    unsafe {
        let new = Allocator.alloc(Layout::from_size_align_unchecked(size, layout.align()));
        if !new.is_null() {
            new.copy_from_nonoverlapping(object, layout.size().min(size));
            free_durable(object);
        }
        new
    }
}

// SAFETY: an object is one of `Spandrel`'s or one of a state's, which its address tells; each of both is an allocator. None of them unwinds.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let arena = INSIDE.get();
        if arena.is_null() {
            adaptive::alloc_aligned(layout.align(), layout.size())
        } else {
            alloc_in(arena, layout, false)
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let arena = INSIDE.get();
        if arena.is_null() {
            adaptive::alloc_zeroed_aligned(layout.align(), layout.size())
        } else {
            alloc_in(arena, layout, true)
        }
    }

    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        // SAFETY: passed on from the caller.
        unsafe {
            if may_be_durable(object) {
                free_durable(object);
            } else {
                adaptive::free_sized(object, layout.size(), layout.align());
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // What does not lie in the state stays outside, whatever grows it.
        // SAFETY: passed on from the caller.
        unsafe {
            if may_be_durable(object) {
                realloc_durable(object, layout, size)
            } else {
                adaptive::realloc_aligned(object, layout.size(), layout.align(), size)
            }
        }
    }
}
