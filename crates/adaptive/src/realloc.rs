//! Objects that change size: kept by their owner, or migrated.

use core::ptr;

use spandrel_backends::{Backend, heed_limit, remap};
use spandrel_os::{budget, slices};
use spandrel_pages::{AllocatorId, MIN_ALIGN};
use spandrel_policy::tuner::Kind;
use spandrel_policy::{Decision, Operation};

use crate::backend::with_backend;
use crate::modes::{switch_threshold, table};
use crate::observed::resizing;
use crate::request::{
    alloc_in, decide, free_moved, glibc_may_have, glibc_may_serve, native_precedes_glibc,
};
use crate::stats::{self, Event, Path};
use crate::{counter, early, tuner, wild};

/// The object with a new size, aligned to 16; null when no allocator has
/// memory, and the object is as it was.
///
/// # Safety
/// `object` is a live object as for [`crate::free`], and `size` is not zero. If the
/// result is not null, only that address is the object's.
#[inline]
pub unsafe fn realloc(object: *mut u8, size: usize) -> *mut u8 {
    let owner = slices::owner_byte(object as usize);
    // In no mode does an object leave the slot that it grows in.
    // SAFETY: passed on from the caller, and the owner is that allocator.
    if owner == AllocatorId::Mmap as u8 && unsafe { remap::grow_warm(object, size) } {
        return object;
    }
    let decision = table().decide(Operation::Grow, size);
    // What has a slot already keeps it at sizes that deserve a warm one.
    let stays = owner == AllocatorId::Mmap as u8 && decision.is_plainly_if_warm();
    if (owner == decision.0 || stays)
        && let Some(id) = AllocatorId::from_byte(owner)
    {
        // SAFETY: passed on from the caller.
        let moved = with_backend!(id, B => unsafe { B::realloc(object, size) });
        if !moved.is_null() {
            return moved;
        }
    }
    // SAFETY: passed on from the caller.
    resizing(object, size, || unsafe { realloc_slow(object, size) })
}

#[inline(never)]
unsafe fn realloc_slow(object: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: passed on from the caller; a null result leaves the object as it was.
    unsafe {
        let moved = realloc_anew(object, size);
        // What is missing may be what our own allocators keep for later.
        if moved.is_null() && spandrel_backends::reclaim(size) {
            realloc_anew(object, size)
        } else {
            moved
        }
    }
}

unsafe fn realloc_anew(object: *mut u8, size: usize) -> *mut u8 {
    let decision = decide(Operation::Grow, size);
    let began_ns = tuner::begin(decision);
    let decision = match began_ns {
        Some(_) => tuner::steer(Operation::Grow, size, decision),
        None => decision,
    };
    let owner = slices::owner(object as usize);
    if owner == AllocatorId::Sys {
        wild::check("realloc", object);
    }
    // SAFETY: passed on from the caller, here and below.
    let usable = with_backend!(owner, B => unsafe { B::size_to_resize(object) });
    let warm = decision.has(Decision::IF_WARM) && owner != AllocatorId::Mmap && size > usable;
    let slot = if warm { slot_for(size) } else { ptr::null_mut() };
    let target = target(decision, owner, object, usable, size);
    // SAFETY: as above; the slot is a new object of `size` bytes.
    let (moved, path) = unsafe {
        if slot.is_null() {
            let resized = resize(object, owner, target, usable, size);
            if warm && resized.0 != object {
                remap::note_unserved(usable);
            }
            // A limit may have come that counts what is reserved.
            if resized.0.is_null() && heed_limit() {
                resize(object, owner, target, usable, size)
            } else {
                resized
            }
        } else {
            ptr::copy_nonoverlapping(object, slot, usable);
            free_moved(object);
            early::note_late(usable);
            (slot, Path::Migrated)
        }
    };
    if let Some(began_ns) = began_ns.filter(|_| size > usable) {
        tuner::note(Kind::Grown, size, owner, began_ns);
    }
    if decision.has(Decision::BY_COUNTER) && !moved.is_null() {
        // Not the target, when that has no memory.
        let owner = slices::owner(moved as usize);
        if owner != AllocatorId::Mmap {
            // SAFETY: `moved` is the live object now.
            let usable = with_backend!(owner, B => unsafe { B::usable_size(moved) });
            counter::follow(object, moved, usable);
        }
    }
    if decision.has(Decision::COUNTED) && !moved.is_null() {
        stats::record(slices::owner(moved as usize), Event::Reallocation, size);
        stats::record_path(path, usable.min(size), size);
    }
    moved
}

/// A slot for an object that is growing to `size` bytes: a warm one, or a fresh one where that is worth it; null: neither.
fn slot_for(size: usize) -> *mut u8 {
    let slot = remap::alloc_warm(size);
    if slot.is_null() { remap::alloc_fresh(size) } else { slot }
}

/// The allocator that serves the object from now on.
fn target(
    decision: Decision,
    owner: AllocatorId,
    object: *mut u8,
    usable: usize,
    size: usize,
) -> AllocatorId {
    let grows = size > usable;
    let named = decision.allocator();
    if decision.has(Decision::BY_COUNTER) {
        let count = if owner == AllocatorId::Mmap {
            // SAFETY: the object is live.
            let count = unsafe { remap::allocation_counter(object) };
            count.saturating_sub(u8::from(size < usable))
        } else {
            counter::note(object, usable, grows, size < usable)
        };
        if count >= switch_threshold() || owner == AllocatorId::Mmap && grows {
            return AllocatorId::Mmap;
        }
    }
    if owner == named {
        return owner;
    }
    if owner == AllocatorId::Mmap && grows {
        // It has room; leaving would be the copy that it was put there to avoid.
        return owner;
    }
    // An object that fits where it is stays: moving it gains nothing, and costs
    // a copy at each crossing of a boundary. Only pages are worth giving back.
    let gives_back_pages = owner == AllocatorId::Mmap && size <= usable / 2;
    if !grows && !gives_back_pages { owner } else { named }
}

/// Gives `object` the new size, by `owner` if it is also the target.
unsafe fn resize(
    object: *mut u8,
    owner: AllocatorId,
    target: AllocatorId,
    usable: usize,
    size: usize,
) -> (*mut u8, Path) {
    let before = budget::Moment::now();
    if owner == target {
        // SAFETY: passed on from the caller.
        let moved = with_backend!(owner, B => unsafe { B::realloc(object, size) });
        if !moved.is_null() {
            return (moved, if moved == object { Path::InPlace } else { Path::ByOwner(owner) });
        }
    } else {
        // SAFETY: passed on from the caller.
        let moved = unsafe { migrate(object, target, MIN_ALIGN, usable, size) };
        if !moved.is_null() {
            return (moved, Path::Migrated);
        }
        let may_not = || before.saw_a_refusal() || !glibc_may_serve(size);
        if owner == AllocatorId::Sys && size > usable && may_not() {
            return (ptr::null_mut(), Path::InPlace);
        }
        // SAFETY: as above; the object is as it was.
        let kept = with_backend!(owner, B => unsafe { B::realloc(object, size) });
        if !kept.is_null() {
            return (kept, Path::ByOwner(owner));
        }
    }
    if owner == AllocatorId::Mmap && native_precedes_glibc(target, size) {
        // SAFETY: as above; the object is as it was.
        let moved = unsafe { migrate(object, AllocatorId::Native, MIN_ALIGN, usable, size) };
        if !moved.is_null() {
            return (moved, Path::Migrated);
        }
    }
    if owner == AllocatorId::Sys || before.saw_a_refusal() || !glibc_may_have(size) {
        return (ptr::null_mut(), Path::InPlace);
    }
    // SAFETY: passed on from the caller.
    let moved = unsafe { migrate(object, AllocatorId::Sys, MIN_ALIGN, usable, size) };
    (moved, Path::Migrated)
}

/// Copies an object to another allocator and frees the old one.
///
/// # Safety
/// As for [`realloc`]; the object has at least `old_size` bytes.
pub(crate) unsafe fn migrate(
    object: *mut u8,
    to: AllocatorId,
    align: usize,
    old_size: usize,
    size: usize,
) -> *mut u8 {
    let moved = alloc_in(to, align, size, false);
    if !moved.is_null() {
        // SAFETY: both are live, distinct objects of at least that many bytes.
        unsafe {
            ptr::copy_nonoverlapping(object, moved, old_size.min(size));
            free_moved(object);
        }
    }
    moved
}

/// As [`realloc`], keeping an alignment beyond 16 and knowing the old size.
///
/// # Safety
/// As for [`realloc`]; the object was last sized `old_size`.
pub unsafe fn realloc_aligned(
    object: *mut u8,
    old_size: usize,
    align: usize,
    size: usize,
) -> *mut u8 {
    if align <= MIN_ALIGN {
        // SAFETY: passed on from the caller.
        return unsafe { realloc(object, size) };
    }
    resizing(object, size, || {
        // SAFETY: passed on from the caller.
        unsafe { realloc_beyond_usual(object, old_size, align, size) }
    })
}

unsafe fn realloc_beyond_usual(
    object: *mut u8,
    old_size: usize,
    align: usize,
    size: usize,
) -> *mut u8 {
    let is_kept = align <= remap::ALIGN_KEPT_BYTES;
    if slices::owner(object as usize) == AllocatorId::Mmap && size > old_size && is_kept {
        // SAFETY: passed on from the caller.
        let moved = unsafe { remap::realloc(object, size) };
        if !moved.is_null() {
            return moved;
        }
    }
    // SAFETY: passed on from the caller.
    unsafe { realloc_copying(object, old_size, align, size) }
}

unsafe fn realloc_copying(object: *mut u8, old_size: usize, align: usize, size: usize) -> *mut u8 {
    let target = decide(Operation::Grow, size.max(align)).allocator();
    let before = budget::Moment::now();
    // SAFETY: passed on from the caller.
    let mut moved = unsafe { migrate(object, target, align, old_size, size) };
    if moved.is_null() && native_precedes_glibc(target, size) {
        // SAFETY: as above; the object is as it was.
        moved = unsafe { migrate(object, AllocatorId::Native, align, old_size, size) };
    }
    if moved.is_null() && !before.saw_a_refusal() && glibc_may_have(size) {
        // SAFETY: as above; the object is as it was.
        return unsafe { migrate(object, AllocatorId::Sys, align, old_size, size) };
    }
    moved
}

/// As [`realloc_aligned`]; bytes beyond `old_size` are zero. What is known to
/// be zero is not cleared.
///
/// # Safety
/// As for [`realloc_aligned`].
pub unsafe fn realloc_zeroed(
    object: *mut u8,
    old_size: usize,
    align: usize,
    size: usize,
) -> *mut u8 {
    let owner = slices::owner(object as usize);
    if owner == AllocatorId::Mmap && align <= MIN_ALIGN && size > old_size {
        // SAFETY: passed on from the caller.
        let grow = || unsafe { remap::realloc_zeroed(object, old_size, size) };
        let moved = resizing(object, size, grow);
        if !moved.is_null() {
            return moved;
        }
    }
    // SAFETY: passed on from the caller.
    let moved = unsafe { realloc_aligned(object, old_size, align, size) };
    if !moved.is_null() && size > old_size {
        // SAFETY: the object has `size` bytes now.
        unsafe { ptr::write_bytes(moved.add(old_size), 0, size - old_size) };
    }
    moved
}
