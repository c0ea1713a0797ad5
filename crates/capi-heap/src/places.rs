//! Where things lie, and whether they are durable.

use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};

use spandrel_pheap::{Error, Guarantee, Heap, Media, Medium as _, PPtr, Standing};

use crate::failure;
use crate::handle::{self, SpandrelHeap};

/// The offset of `len` bytes, if they lie in the heap.
pub fn offset(heap: &Heap<Media>, at: *const c_void, len: usize) -> Result<usize, Error> {
    let offset = (at as usize).wrapping_sub(heap.base().as_ptr() as usize);
    let fits = offset < heap.bytes() && len <= heap.bytes() - offset;
    if fits { Ok(offset) } else { Err(Error::Foreign(at as usize)) }
}

/// Where the heap begins, in this process; null: it is no handle.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_base(handle: *const SpandrelHeap) -> *mut c_void {
    // SAFETY: passed on from the caller.
    failure::object(unsafe { handle::heap(handle) }.map(Heap::base))
}

/// Bytes of the heap; 0: it is no handle.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_bytes(handle: *const SpandrelHeap) -> usize {
    // SAFETY: passed on from the caller.
    failure::word(unsafe { handle::heap(handle) }.map(Heap::bytes))
}

/// What stores survive; -1: it is no handle.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_guarantee(handle: *const SpandrelHeap) -> c_int {
    // SAFETY: passed on from the caller.
    let guarantee = unsafe { handle::heap(handle) }.map(|heap| heap.medium().guarantee());
    failure::count(guarantee.map(|guarantee| match guarantee {
        Guarantee::Copy => 0,
        Guarantee::Memory => 1,
        Guarantee::File => 2,
        Guarantee::Dax => 3,
    }))
}

/// The word that leads to an address wherever the heap is mapped: that of a [`PPtr`]. 0 for null, and for what lies elsewhere.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_offset(
    handle: *const SpandrelHeap,
    at: *const c_void,
) -> u64 {
    if at.is_null() {
        return 0;
    }
    // SAFETY: passed on from the caller.
    let heap = unsafe { handle::heap(handle) };
    failure::word(heap.and_then(|heap| Ok(PPtr::<u8>::to(offset(heap, at, 0)?).raw())))
}

/// Where a word leads to; null for 0, and for what leads nowhere.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_at(handle: *const SpandrelHeap, word: u64) -> *mut c_void {
    if word == 0 {
        return ptr::null_mut();
    }
    let pointer = PPtr::<u8>::from_raw(word);
    // SAFETY: passed on from the caller.
    let heap = unsafe { handle::heap(handle) };
    failure::object(heap.and_then(|heap| {
        let at: Option<NonNull<u8>> = heap.address(pointer);
        at.ok_or(Error::Foreign(pointer.offset().unwrap_or(word as usize)))
    }))
}

/// Writes back and waits: 0, or -1.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_persist(
    handle: *const SpandrelHeap,
    at: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    let heap = unsafe { handle::heap(handle) };
    failure::number(heap.and_then(|heap| {
        heap.medium().write_back(offset(heap, at, len)?, len);
        heap.medium().fence();
        Ok(())
    }))
}

/// Writes back: durable with the next fence.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_write_back(
    handle: *const SpandrelHeap,
    at: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    let heap = unsafe { handle::heap(handle) };
    failure::number(heap.and_then(|heap| {
        heap.medium().write_back(offset(heap, at, len)?, len);
        Ok(())
    }))
}

/// Waits for all that was written back: 0, or -1.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_fence(handle: *const SpandrelHeap) -> c_int {
    // SAFETY: passed on from the caller.
    failure::number(unsafe { handle::heap(handle) }.map(|heap| heap.medium().fence()))
}

/// Makes what was stored until now durable, on every medium: 0, or -1.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_checkpoint(handle: *const SpandrelHeap) -> c_int {
    // SAFETY: passed on from the caller.
    failure::number(unsafe { handle::heap(handle) }.and_then(Heap::checkpoint))
}

/// Compares all pages of the file with their sums: the number of those that are not what their sums say, or -1.
///
/// # Safety
/// Null, or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_verify_sums(handle: *const SpandrelHeap) -> c_int {
    // SAFETY: passed on from the caller.
    let verified = unsafe { handle::heap(handle) }.and_then(|heap| heap.verify_sums(&mut |_| ()));
    failure::count(verified.and_then(|verified| match verified.standing {
        Standing::Compared => Ok(c_int::try_from(verified.pages).unwrap_or(c_int::MAX)),
        _ => Err(Error::System(libc::ENODATA)),
    }))
}

/// Gives memory back that the process holds beside the file: bytes.
///
/// # Safety
/// Null, or a handle of a heap that no other thread stores to meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_heap_give_back(handle: *const SpandrelHeap) -> usize {
    // SAFETY: passed on from the caller.
    failure::word(unsafe { handle::heap(handle) }.and_then(|heap| unsafe { heap.give_back() }))
}
