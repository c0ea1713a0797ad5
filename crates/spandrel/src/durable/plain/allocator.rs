//! The global allocator of a program with plain states.
//!
//! What a command allocates lies in the state that it changes; everything else is Spandrel's. The owner of an object is told by its address: durable states lie in a window
//! of the address space where nothing else does.
//!
//! Invariants:
//! - A thread allocates in a state only while it runs a command, or `init`, of the state's batch.
//! - The thread that runs a batch frees the state's objects at once, also where it allocates outside.
//! - What is freed elsewhere (an `Arc` of the state that a reader has kept) waits for the next batch of the state. What is freed elsewhere while a batch runs may have been
//!   freed by the batch's commands (in another thread): it is forgotten if the batch is undone, and waits for the next one if not.
//! - A panic's payload is no part of the state: a thread that begins to panic in a command allocates outside of it. What it allocates then is remembered: a command that catches its
//!   panic and leaves such an object in the state is undone.

use core::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::prelude::v1::*;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread_local;

use spandrel_adaptive as adaptive;
use spandrel_os::message::say;
use spandrel_os::slices::FIXED_BASE_WINDOW;
use spandrel_pages::{MIN_ALIGN, TIB};
use spandrel_pmem::{Medium as _, Notes as _};

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
    /// The state whose batch the thread runs; null: none.
    static BATCH: Cell<*const Arena> = const { Cell::new(ptr::null()) };
    /// What the thread has allocated outside of a state since it began to panic in the present command.
    static PANIC: Panic = const { Panic::new() };
}

/// Objects that a thread allocates while it panics in a command.
struct Panic {
    /// The thread panicked before the command began: the destructor of something runs the command.
    was_before: Cell<bool>,
    objects: [Cell<(usize, usize)>; Panic::MOST],
    count: Cell<usize>,
}

impl Panic {
    /// A payload and its text, and what few destructors allocate.
    const MOST: usize = 64;

    const fn new() -> Self {
        let objects = [const { Cell::new((0, 0)) }; Self::MOST];
        Self { was_before: Cell::new(false), objects, count: Cell::new(0) }
    }

    fn begin(&self) {
        self.was_before.set(std::thread::panicking());
        self.count.set(0);
    }

    /// Whether the command panics.
    fn is_here(&self) -> bool {
        !self.was_before.get() && std::thread::panicking()
    }

    fn note(&self, object: *mut u8, bytes: usize) {
        if let Some(place) = self.objects.get(self.count.get()) {
            place.set((object as usize, bytes.max(1)));
        }
        self.count.set(self.count.get() + 1);
    }

    fn has(&self, address: usize) -> bool {
        let noted = self.objects.iter().take(self.count.get()).map(Cell::get);
        noted.into_iter().any(|(at, bytes)| address.wrapping_sub(at) < bytes)
    }
}

/// A command begins in the calling thread.
pub(super) fn begin_command() {
    PANIC.with(Panic::begin);
}

/// Whether the state may lead to what the calling thread has allocated outside while it panicked in the present command, which has caught that panic.
///
/// # Safety
/// The calling thread runs a batch of the state, and no other thread stores there meanwhile but to whole words.
pub(super) unsafe fn has_objects_of_a_panic(arena: &Arena) -> bool {
    PANIC.with(|panic| match panic.count.get() {
        0 => false,
        Panic::MOST.. => true,
        _ => {
            let (medium, word) = (arena.medium(), size_of::<usize>());
            let base = medium.base().as_ptr().cast::<usize>();
            // SAFETY: whole words of the open part of the state. Volatile: an owner outside may change a count.
            (0..medium.bytes() / word).any(|n| panic.has(unsafe { base.add(n).read_volatile() }))
        }
    })
}

/// Has the calling thread allocate elsewhere until it is dropped.
pub(super) struct Scope {
    inside: *const Arena,
    batch: *const Arena,
}

impl Scope {
    /// In a state.
    ///
    /// # Safety
    /// The calling thread runs a batch of the state, and the arena outlives the scope.
    pub unsafe fn enter(arena: &Arena) -> Self {
        Self { inside: INSIDE.replace(arena), batch: BATCH.replace(arena) }
    }

    /// In none, in the batch of a state: the thread frees the state's objects.
    ///
    /// # Safety
    /// As for [`Scope::enter`].
    pub unsafe fn of_batch(arena: &Arena) -> Self {
        Self { inside: INSIDE.replace(ptr::null()), batch: BATCH.replace(arena) }
    }

    /// In none.
    pub fn leave() -> Self {
        Self { inside: INSIDE.replace(ptr::null()), batch: BATCH.get() }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        INSIDE.set(self.inside);
        BATCH.set(self.batch);
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

/// What a command calls to allocate in its state and to free there: it notes its own stores.
pub(super) fn functions() -> [usize; 3] {
    [
        alloc_in as *const () as usize,
        free_durable as *const () as usize,
        realloc_durable as *const () as usize,
    ]
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
    freed: Mutex<Freed>,
}

/// Objects of a state that were freed outside of its batches.
#[derive(Default)]
struct Freed {
    /// A batch runs.
    is_in_batch: bool,
    /// Freed by the batch that runs, as the first thing that it does; they were freed before it began.
    by_batch: Vec<usize>,
    /// Freed since the batch began.
    since: Vec<usize>,
    /// For the next batch.
    before: Vec<usize>,
}

static OPEN: RwLock<Vec<Open>> = RwLock::new(Vec::new());

/// Calls `f` with what was freed of the open state that has an address.
fn with_freed<T>(at: usize, f: impl FnOnce(&mut Freed) -> T) -> Option<T> {
    let _scope = Scope::leave();
    let open = OPEN.read().unwrap_or_else(PoisonError::into_inner);
    let state = open.iter().find(|state| at.wrapping_sub(state.base) < state.bytes)?;
    Some(f(&mut state.freed.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Keeps the allocator in the knowledge of an open state. It lives as long as the state's memory is not to be unmapped.
#[derive(Debug)]
pub(in crate::durable) struct Known(usize);

impl Known {
    /// A state is open.
    pub fn new(arena: &Arena) -> Self {
        let (base, bytes) = arena.medium().reserved();
        let base = base.as_ptr() as usize;
        let mut open = OPEN.write().unwrap_or_else(PoisonError::into_inner);
        open.push(Open { base, bytes, freed: Mutex::default() });
        Self(base)
    }

    /// A batch begins, or begins again after it was undone: frees what waits for it.
    ///
    /// # Safety
    /// The calling thread runs the batch of the state.
    pub unsafe fn begin_batch(&self, arena: &Arena) {
        with_freed(self.0, |freed| {
            freed.is_in_batch = true;
            freed.since.clear();
            freed.by_batch.append(&mut freed.before);
            for object in &freed.by_batch {
                if let Some(object) = NonNull::new(ptr::with_exposed_provenance_mut(*object)) {
                    // SAFETY: an object of the state that was given to the allocator, once.
                    unsafe { free_in(arena, object) };
                }
            }
        });
    }

    /// The batch has ended, and was undone or not.
    pub fn end_batch(&self, is_undone: bool) {
        with_freed(self.0, |freed| {
            freed.is_in_batch = false;
            if is_undone {
                freed.before.append(&mut freed.by_batch);
            } else {
                freed.before.append(&mut freed.since);
            }
            (freed.by_batch, freed.since) = (Vec::new(), Vec::new());
        });
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let mut open = OPEN.write().unwrap_or_else(PoisonError::into_inner);
        open.retain(|state| state.base != self.0);
    }
}

/// Frees an object of a state in a batch of the state.
///
/// # Safety
/// The calling thread runs a batch of the state, and nothing uses the object.
unsafe fn free_in(arena: &Arena, object: NonNull<u8>) {
    // SAFETY: passed on from the caller.
    if let Err(why) = unsafe { arena.free(object) } {
        say(format_args!("free({object:p}) in a durable state: {why}"));
        std::process::abort();
    }
}

/// The program learns only that an allocation has failed, and ends for most: the reason is said, that of a full state once (`try_reserve` may meet it again and again).
#[cold]
fn refused(bytes: usize, why: crate::heap::Error) -> *mut u8 {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    let is_full = why.is_full();
    if !is_full || !IS_SAID.swap(true, Relaxed) {
        say(format_args!("a command has no {bytes} bytes in its durable state: {why}"));
    }
    ptr::null_mut()
}

/// Within a command: allocates in its state. Null: the state is full.
#[inline(never)]
fn alloc_in(arena: *const Arena, layout: Layout, zeroed: bool) -> *mut u8 {
    if arena == PROBE {
        INSIDE.set(ptr::null());
    }
    let panics = arena != PROBE && PANIC.with(Panic::is_here);
    if arena == PROBE || panics {
        let alloc = if zeroed { adaptive::alloc_zeroed_aligned } else { adaptive::alloc_aligned };
        let object = alloc(layout.align(), layout.size());
        if panics {
            PANIC.with(|panic| panic.note(object, layout.size()));
        }
        return object;
    }
    // SAFETY: `Scope::enter` has it that the arena lives.
    let arena = unsafe { &*arena };
    let object = match layout.align() {
        ..=MIN_ALIGN if zeroed => arena.alloc_zeroed(layout.size()),
        ..=MIN_ALIGN => arena.alloc(layout.size()),
        align => arena.alloc_aligned(layout.size(), align),
    };
    let object = object.map_or_else(|why| refused(layout.size(), why), NonNull::as_ptr);
    if zeroed && layout.align() > MIN_ALIGN && !object.is_null() {
        note(arena, object, layout.size());
        // SAFETY: a new object of that size.
        unsafe { object.write_bytes(0, layout.size()) };
    }
    object
}

/// Bytes of a state are stored here, in a function that is not translated.
fn note(arena: &Arena, at: *mut u8, bytes: usize) {
    arena.medium().notes().note(at, bytes);
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

/// The state whose batch the thread runs, if the object is one of it.
fn batch_of<'a>(object: *mut u8) -> Option<&'a Arena> {
    // SAFETY: null, or as `Scope::enter` has it: the arena lives as long as the scope.
    unsafe { BATCH.get().as_ref() }.filter(|arena| is_of(arena, object))
}

/// Frees an object of a state: now, in a batch of the state; else in the next one.
///
/// # Safety
/// As for [`GlobalAlloc::dealloc`].
#[cold]
#[inline(never)]
unsafe fn free_durable(object: *mut u8) {
    let Some(address) = NonNull::new(object) else { return };
    if let Some(arena) = batch_of(object) {
        // SAFETY: the thread runs a batch of the state; the rest is the caller's.
        return unsafe { free_in(arena, address) };
    }
    // An object of a state that was closed has no memory any more.
    with_freed(object as usize, |freed| {
        let list = if freed.is_in_batch { &mut freed.since } else { &mut freed.before };
        list.push(object.expose_provenance());
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
        return moved.map_or_else(|why| refused(size, why), NonNull::as_ptr);
    }
    // SAFETY: the new object has `size` bytes, and is another one than the old.
    unsafe {
        let new = Allocator.alloc(Layout::from_size_align_unchecked(size, layout.align()));
        if !new.is_null() {
            let bytes = layout.size().min(size);
            if let Some(arena) = inside_of(new) {
                note(arena, new, bytes);
            }
            new.copy_from_nonoverlapping(object, bytes);
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
