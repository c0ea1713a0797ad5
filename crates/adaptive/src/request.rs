//! New objects, and objects given back.

use spandrel_backends::{Backend, Native, Remap, Sys, guarded, heed_limit, remap};
use spandrel_os::{budget, slices, vm};
use spandrel_pages::{AllocatorId, HUGEPAGE_BYTES, KIB, MIN_ALIGN};
use spandrel_policy::tuner::Kind;
use spandrel_policy::{Decision, MAPPED_FROM, Operation, SMALL_BYTES};

use crate::backend::with_backend;
use crate::early;
use crate::modes::{table, table_of_thread};
use crate::observed;
use crate::start;
use crate::stats;
use crate::tuner;
use crate::wild;
use crate::youth;

/// What glibc maps, as it is set at first (mallopt(3)).
const GLIBC_MAPS_FROM: usize = 128 * KIB;

const SYS: u8 = AllocatorId::Sys as u8;
const NATIVE: u8 = AllocatorId::Native as u8;
const MMAP: u8 = AllocatorId::Mmap as u8;
#[cfg(feature = "jemalloc")]
const JEMALLOC: u8 = AllocatorId::Jemalloc as u8;
#[cfg(feature = "mimalloc")]
const MIMALLOC: u8 = AllocatorId::Mimalloc as u8;

/// Makes the compiler compare for this branch after the one before it, instead
/// of in the order of the numbers.
#[cold]
fn second() {}

/// `size` bytes aligned to 16 if the native allocator is to serve them and has
/// them at hand; else null, which says nothing.
///
/// For callers whose other way is a single call of a function that is not
/// inlined: they need no stack frame.
#[inline(always)]
pub fn alloc_cached(size: usize) -> *mut u8 {
    if table().begins_small(size) {
        const { assert!(SMALL_BYTES <= Native::SMALL_MAX) };
        // SAFETY: the table says so, and the assertion.
        return unsafe { Native::alloc_cached_small(size) };
    }
    second();
    if table().begins_with(AllocatorId::Native, size) {
        Native::alloc_cached_larger(size)
    } else {
        core::ptr::null_mut()
    }
}

/// `size` bytes aligned to 16, by the allocator that the policy names for the
/// size; null when no allocator has memory.
#[inline(always)]
pub fn alloc(size: usize) -> *mut u8 {
    let object = alloc_cached(size);
    if object.is_null() { alloc_uncached(size) } else { object }
}

/// As [`alloc`], after [`alloc_cached`] had none.
///
/// The usual allocators are compared for first and called directly; a match over
/// all of them would compile to an indirect jump.
#[inline(never)]
pub fn alloc_uncached(size: usize) -> *mut u8 {
    tuner::tick();
    let table = table();
    let object = if table.begins_with(AllocatorId::Native, size) {
        let guarded =
            if guarded::is_on() { guarded::sample(size, MIN_ALIGN) } else { core::ptr::null_mut() };
        if guarded.is_null() { Native::alloc_uncached(size) } else { guarded }
    } else if table.ends_mapped(size) {
        Remap::alloc(size)
    } else if table.may_pack(size) {
        packed(size)
    } else if table.looks_early(size) {
        let object = early::alloc(size);
        if object.is_null() { Native::alloc(size) } else { object }
    } else {
        #[cfg(feature = "mimalloc")]
        if table.begins_with(AllocatorId::Mimalloc, size) {
            second();
            let object = spandrel_backends::Mimalloc::alloc(size);
            return if object.is_null() { last_resort(size, MIN_ALIGN, false) } else { object };
        }
        #[cfg(feature = "jemalloc")]
        if table.begins_with(AllocatorId::Jemalloc, size) {
            second();
            let object = spandrel_backends::Jemalloc::alloc(size);
            return if object.is_null() { last_resort(size, MIN_ALIGN, false) } else { object };
        }
        return alloc_other(size, false);
    };
    if object.is_null() { last_resort(size, MIN_ALIGN, false) } else { object }
}

/// An object that is page-mapped unless it is better packed with others.
fn packed(size: usize) -> *mut u8 {
    let object = remap::alloc_unless_packed(size);
    if object.is_null() { Native::alloc_apart(size) } else { object }
}

/// As [`alloc`], zeroed.
#[inline]
pub fn alloc_zeroed(size: usize) -> *mut u8 {
    if table().begins_with(AllocatorId::Native, size) || table().looks_early(size) {
        let guarded = if guarded::is_on() { zeroed_guarded(size) } else { core::ptr::null_mut() };
        let object = if guarded.is_null() { Native::alloc_zeroed(size) } else { guarded };
        return if object.is_null() { last_resort(size, MIN_ALIGN, true) } else { object };
    }
    alloc_other(size, true)
}

/// A zeroed object that the caches have or that is guarded; null: neither.
#[cold]
#[inline(never)]
fn zeroed_guarded(size: usize) -> *mut u8 {
    let cached = alloc_cached(size);
    let object = if cached.is_null() { guarded::sample(size, MIN_ALIGN) } else { cached };
    if !object.is_null() {
        // SAFETY: the object has this number of bytes, and no other thread knows of it.
        unsafe { object.write_bytes(0, size) };
    }
    object
}

/// An aligned object between guard pages; null: it is not this request's turn.
#[cold]
fn aligned_guarded(size: usize, align: usize, zeroed: bool) -> *mut u8 {
    let object = guarded::sample(size, align);
    if zeroed && !object.is_null() {
        // SAFETY: the object has this number of bytes, and no other thread knows of it.
        unsafe { object.write_bytes(0, size) };
    }
    object
}

/// Requests to the allocators that are not compared for first, and those whose
/// decision carries a flag.
#[inline(never)]
fn alloc_other(size: usize, zeroed: bool) -> *mut u8 {
    let decision = table().decide(Operation::Allocate, size);
    if decision.0 == SYS {
        let object = if zeroed { Sys::alloc_zeroed(size) } else { Sys::alloc(size) };
        return if object.is_null() { without_glibc(size, zeroed) } else { object };
    }
    if AllocatorId::from_byte(decision.0).is_none() {
        return alloc_slow(size, MIN_ALIGN, zeroed);
    }
    let object = alloc_in(decision.allocator(), MIN_ALIGN, size, zeroed);
    if object.is_null() { last_resort(size, MIN_ALIGN, zeroed) } else { object }
}

/// `size` bytes aligned to `align`, a power of two.
#[inline]
pub fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
    if align <= MIN_ALIGN { alloc(size) } else { alloc_slow(size, align, false) }
}

/// `size` zero bytes aligned to `align`, a power of two.
#[inline]
pub fn alloc_zeroed_aligned(align: usize, size: usize) -> *mut u8 {
    if align <= MIN_ALIGN { alloc_zeroed(size) } else { alloc_slow(size, align, true) }
}

/// From this alignment on objects that are smaller than it are served as large ones are: they leave room between them, which small pages leave to the kernel.
const APART_FROM: usize = 16 * KIB;

/// The size whose allocator serves an aligned request: alignment beyond the size costs as much as a larger object.
fn size_like(size: usize, align: usize) -> usize {
    let like = size.max(align);
    if align > size && align >= APART_FROM { like.max(MAPPED_FROM) } else { like }
}

/// Aligned requests, and requests whose decision carries a flag.
#[cold]
#[inline(never)]
fn alloc_slow(size: usize, align: usize, zeroed: bool) -> *mut u8 {
    let like = size_like(size, align);
    let decision = decide(Operation::Allocate, like);
    let began_ns = tuner::begin(decision);
    let decision = match began_ns {
        Some(_) => tuner::steer(Operation::Allocate, like, decision),
        None => decision,
    };
    let may_be_early = decision.has(Decision::IF_WARM) && align <= MIN_ALIGN && !zeroed;
    let may_be_guarded =
        align > MIN_ALIGN && guarded::is_on() && decision.allocator() == AllocatorId::Native;
    let object = if may_be_early && decision.allocator() == AllocatorId::Mmap {
        packed(size)
    } else if may_be_early {
        early::alloc(size)
    } else if may_be_guarded {
        aligned_guarded(size, align, zeroed)
    } else {
        core::ptr::null_mut()
    };
    let object =
        if object.is_null() { alloc_in(decision.allocator(), align, size, zeroed) } else { object };
    let object = if object.is_null() { last_resort(size, align, zeroed) } else { object };
    if let Some(began_ns) = began_ns {
        tuner::note(Kind::Made, like, slices::owner(object as usize), began_ns);
    }
    if decision.has(Decision::COUNTED) {
        observed::allocated(object, size, align, zeroed);
    }
    object
}

/// A decision without the flags that this room resolves: `ELSEWHERE` by
/// starting and by asking the scope's table, `EXACT` by looking at the mode.
pub(crate) fn decide(operation: Operation, size: usize) -> Decision {
    let mut decision = table().decide(operation, size);
    if decision.has(Decision::ELSEWHERE) {
        if !start::start_from_environment() || youth::lasts(size) {
            return Decision(SYS);
        }
        decision = table_of_thread().decide(operation, size);
    }
    if decision.has(Decision::EXACT) {
        let counted = decision.0 & Decision::COUNTED;
        decision = Decision(crate::modes::decide_exactly(operation, size).0 | counted);
    }
    decision
}

/// `size` bytes aligned to `align` from allocator `id`; null if it has none.
pub(crate) fn alloc_in(id: AllocatorId, align: usize, size: usize, zeroed: bool) -> *mut u8 {
    with_backend!(id, B => {
        if !B::start() {
            return core::ptr::null_mut();
        }
        match (align <= MIN_ALIGN, zeroed) {
            (true, false) => B::alloc(size),
            (true, true) => B::alloc_zeroed(size),
            (false, false) => B::alloc_aligned(align, size),
            (false, true) => B::alloc_zeroed_aligned(align, size),
        }
    })
}

/// The chosen allocator has no memory (its slice is full, or could not be
/// reserved, or a limit is reached): the native heap or glibc may have, or our own keep what is
/// missing.
#[cold]
#[inline(never)]
fn last_resort(size: usize, align: usize, zeroed: bool) -> *mut u8 {
    let chosen = decide(Operation::Allocate, size_like(size, align)).allocator();
    if native_precedes_glibc(chosen, size) {
        let object = alloc_in(AllocatorId::Native, align, size, zeroed);
        if !object.is_null() {
            return object;
        }
    }
    // Within a limit ours are asked again first, to see whether it is that which is in the way.
    if budget::hard().is_none() {
        let in_glibc = || {
            let object = alloc_in_glibc(align, size, zeroed);
            (!object.is_null()).then_some(object)
        };
        // A limit may have come that counts what is reserved.
        let again = || if heed_limit() { in_glibc() } else { None };
        if let Some(object) = in_glibc().or_else(again) {
            return object;
        }
    }
    if spandrel_backends::reclaim(size) {
        let before = budget::Moment::now();
        let object = alloc_in(chosen, align, size, zeroed);
        if !object.is_null() || before.saw_a_refusal() {
            return object;
        }
        let object = alloc_in_glibc(align, size, zeroed);
        if !object.is_null() {
            return object;
        }
    }
    alloc_in_native(chosen, align, size, zeroed)
}

/// Whether the native heap is asked before glibc for what the `chosen` allocator has no room for: for page-mapped objects whose slots are
/// all in use. The native heap leaves large objects of which few pages are used on small pages; glibc leaves that to the kernel, which may
/// back all of them with huge pages. Objects that are larger than any slot are glibc's: it refuses what the machine cannot hold.
pub(crate) fn native_precedes_glibc(chosen: AllocatorId, size: usize) -> bool {
    chosen == AllocatorId::Mmap && remap::has_slots_for(size) && Remap::start()
}

/// glibc has no memory, or gives none to a thread that has no arena yet.
#[cold]
#[inline(never)]
fn without_glibc(size: usize, zeroed: bool) -> *mut u8 {
    if heed_limit() {
        let object = alloc_in_glibc(MIN_ALIGN, size, zeroed);
        if !object.is_null() {
            return object;
        }
    }
    alloc_in_native(AllocatorId::Sys, MIN_ALIGN, size, zeroed)
}

/// As [`alloc_in`] by the native allocator, which may keep what neither the `chosen` one nor glibc has, if it
/// has been started and was not asked yet.
fn alloc_in_native(chosen: AllocatorId, align: usize, size: usize, zeroed: bool) -> *mut u8 {
    if chosen == AllocatorId::Native || !Native::is_started() {
        return core::ptr::null_mut();
    }
    alloc_in(AllocatorId::Native, align, size, zeroed)
}

/// As [`alloc_in`] by glibc, for what our own allocators have no room for; null if that is
/// because of a limit.
fn alloc_in_glibc(align: usize, size: usize, zeroed: bool) -> *mut u8 {
    if glibc_may_have(size) {
        alloc_in(AllocatorId::Sys, align, size, zeroed)
    } else {
        core::ptr::null_mut()
    }
}

/// Whether it is of use to ask glibc for a new object that another has refused, though not for a limit of
/// ours. A large one it would map, and where the kernel refuses that (a limit of the data segment) it would
/// go on to arenas of its own, which hold all that it gets from then on and do not give it back.
pub(crate) fn glibc_may_have(size: usize) -> bool {
    glibc_may_serve(size) && (size < GLIBC_MAPS_FROM || vm::would_map(size))
}

/// Whether glibc may serve what another has refused: not if that would be beyond the limit of
/// what ours may hold, which take memory by the huge page. A request that was refused for the limit may not go to
/// glibc even so: room that has come since is for all requests, and what glibc serves is not counted.
pub(crate) fn glibc_may_serve(size: usize) -> bool {
    budget::missing(size.saturating_add(HUGEPAGE_BYTES)) == 0
}

/// Gives an object back; null is nothing.
///
/// # Safety
/// `object` is null or a live object of any allocator behind this room, or of
/// glibc, and not used any more.
#[inline(always)]
pub unsafe fn free(object: *mut u8) {
    // SAFETY: passed on from the caller.
    unsafe { free_or(object, free_other) }
}

/// As [`free`]; what goes the long way there goes to `other` here, with its owner byte. All objects go there
/// while [`is_elsewhere`](crate::is_elsewhere).
///
/// # Safety
/// As for [`free`], for `other` as well.
#[inline(always)]
pub unsafe fn free_or(object: *mut u8, other: unsafe fn(*mut u8, u8)) {
    // SAFETY: passed on from the caller.
    if unsafe { Native::free_direct(object) } {
        return;
    }
    let owner = slices::owner_byte(object as usize);
    // SAFETY: passed on from the caller; the owner byte names the allocator.
    unsafe {
        if owner == NATIVE {
            return Native::free_seldom(object);
        }
        #[cfg(feature = "mimalloc")]
        if owner == MIMALLOC {
            second();
            return spandrel_backends::Mimalloc::free(object);
        }
        #[cfg(feature = "jemalloc")]
        if owner == JEMALLOC {
            second();
            return spandrel_backends::Jemalloc::free(object);
        }
        other(object, owner);
    }
}

/// As [`free`], for an object whose size and alignment are known.
///
/// # Safety
/// As for [`free`]; the object was last sized `size` and requested with `align`.
#[inline(always)]
pub unsafe fn free_sized(object: *mut u8, size: usize, align: usize) {
    // SAFETY: passed on from the caller.
    unsafe { free_sized_or(object, size, align, free_other) }
}

/// As [`free_or`], for an object whose size and alignment are known.
///
/// # Safety
/// As for [`free_or`] and [`free_sized`].
#[inline(always)]
pub unsafe fn free_sized_or(
    object: *mut u8,
    size: usize,
    align: usize,
    other: unsafe fn(*mut u8, u8),
) {
    // Hosted allocators alone need them.
    #[cfg(not(any(feature = "jemalloc", feature = "mimalloc")))]
    let _ = (size, align);
    // SAFETY: passed on from the caller.
    if unsafe { Native::free_direct(object) } {
        return;
    }
    let owner = slices::owner_byte(object as usize);
    // SAFETY: passed on from the caller; the owner byte names the allocator.
    unsafe {
        if owner == NATIVE {
            return Native::free_seldom(object);
        }
        #[cfg(feature = "mimalloc")]
        if owner == MIMALLOC {
            second();
            return spandrel_backends::Mimalloc::free_sized(object, size, align);
        }
        #[cfg(feature = "jemalloc")]
        if owner == JEMALLOC {
            second();
            return spandrel_backends::Jemalloc::free_sized(object, size, align);
        }
        other(object, owner);
    }
}

/// As [`free`], for an object whose contents live on elsewhere.
///
/// # Safety
/// As for [`free`].
pub(crate) unsafe fn free_moved(object: *mut u8) {
    let owner = slices::owner(object as usize);
    stats::record(owner, stats::Event::Free, 0);
    // SAFETY: passed on from the caller.
    with_backend!(owner, B => unsafe { B::free(object) })
}

/// Frees by the allocators that are not compared for first, and all frees
/// while requests are looked at.
///
/// # Safety
/// As for [`free`]; `owner` is the object's owner byte.
#[inline(never)]
pub unsafe fn free_other(object: *mut u8, owner: u8) {
    if owner == SYS {
        wild::check("free", object);
        // SAFETY: passed on from the caller.
        return unsafe { Sys::free(object) };
    }
    if owner == MMAP {
        // SAFETY: as above.
        return unsafe { Remap::free(object) };
    }
    let id = AllocatorId::from_byte(owner & !slices::COUNTED).unwrap_or(AllocatorId::Sys);
    if owner & slices::COUNTED != 0 {
        if object.is_null() {
            return;
        }
        observed::freeing(object, id);
        if tuner::is_open() {
            // SAFETY: passed on from the caller.
            return unsafe { tuner::free(object, id) };
        }
    }
    // SAFETY: passed on from the caller.
    with_backend!(id, B => unsafe { B::free(object) })
}

/// Bytes that the object may use; 0 for null.
///
/// # Safety
/// `object` is null or a live object, as for [`free`].
#[inline]
pub unsafe fn usable_size(object: *mut u8) -> usize {
    if object.is_null() {
        return 0;
    }
    let id = slices::owner(object as usize);
    if id == AllocatorId::Sys {
        wild::check("malloc_usable_size", object);
    }
    // SAFETY: passed on from the caller.
    with_backend!(id, B => unsafe { B::usable_size(object) })
}

/// Gives unused memory of all allocators back to the kernel; true if there was
/// any of one that tells: mimalloc and jemalloc do not.
pub fn trim() -> bool {
    // Each is asked, whatever the others say.
    AllocatorId::ALL.into_iter().fold(false, |any, id| {
        let trimmed = available_now(id) && with_backend!(id, B => B::trim());
        any | trimmed
    })
}

fn available_now(id: AllocatorId) -> bool {
    crate::available().has(id)
}
