//! The object monitor (Brug, III.A): what reallocation costs, object by object, while a monitor
//! runs. Requests go the slow way meanwhile.
//!
//! An object is known from its first reallocation on, and after its end until the room is needed. A
//! record leaves the table while its object is being resized: another object may have its old place then.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use spandrel_os::{clock, slices};
use spandrel_pages::AllocatorId;
use spandrel_sync::Lock;

use crate::{observed, start};

/// What is known of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectRecord {
    /// Where it is, or was when it ended.
    pub address: usize,
    /// What was asked for last, in bytes.
    pub size: usize,
    /// Times that it was given another size.
    pub reallocations: u64,
    /// Times that it got another address.
    pub moves: u64,
    /// Times that it went from one allocator to another.
    pub migrations: u64,
    /// The sizes that were asked for, added up.
    pub requested_bytes: u64,
    /// Nanoseconds that its reallocations took.
    pub nanos: u64,
    /// The allocator that owns it.
    pub allocator: AllocatorId,
    /// Whether it has not been given back.
    pub live: bool,
}

impl ObjectRecord {
    /// A record of nothing.
    pub const EMPTY: Self = Self {
        address: 0,
        size: 0,
        reallocations: 0,
        moves: 0,
        migrations: 0,
        requested_bytes: 0,
        nanos: 0,
        allocator: AllocatorId::Sys,
        live: false,
    };
}

/// Objects that are known: 4,096 …
const SETS: usize = 512;
/// … of which this many compete for the same room.
const WAYS: usize = 8;

type Set = [ObjectRecord; WAYS];

static TABLE: Lock<[Set; SETS]> = Lock::new([[ObjectRecord::EMPTY; WAYS]; SETS]);
static WATCHERS: AtomicUsize = AtomicUsize::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

/// Whether a monitor runs.
#[inline]
pub(crate) fn is_on() -> bool {
    WATCHERS.load(Relaxed) != 0
}

/// Begins a monitor. The first one finds nothing of what was before.
pub fn monitor_begin() {
    start::start_in_full();
    if WATCHERS.fetch_add(1, Relaxed) == 0 {
        TABLE.lock().iter_mut().flatten().for_each(|record| *record = ObjectRecord::EMPTY);
        LOST.store(0, Relaxed);
        observed::apply();
    }
}

/// Ends a monitor.
pub fn monitor_end() {
    let others = WATCHERS.fetch_update(Relaxed, Relaxed, |watchers| watchers.checked_sub(1));
    if others == Ok(1) {
        observed::apply();
    }
}

/// What is known of the live object at this address; `None`: it was not resized while a monitor
/// ran, or there was no room.
pub fn monitored(address: usize) -> Option<ObjectRecord> {
    set_of(&mut TABLE.lock(), address).iter().find(|record| is(record, address)).copied()
}

/// Fills `into` with the records of most reallocations, live objects' or not, the most first; how many
/// there are.
pub fn most_resized(into: &mut [ObjectRecord]) -> usize {
    let table = TABLE.lock();
    let mut count = 0;
    for record in table.iter().flatten().filter(|record| record.reallocations > 0) {
        let known = into.get(..count).unwrap_or_default();
        let at = known.partition_point(|other| other.reallocations >= record.reallocations);
        if at == into.len() {
            continue;
        }
        let end = (count + 1).min(into.len());
        if let Some(rest) = into.get_mut(at..end) {
            rest.rotate_right(1);
            rest[0] = *record;
        }
        count = end;
    }
    count
}

/// Records that made room for others.
pub fn monitor_lost() -> u64 {
    LOST.load(Relaxed)
}

/// Gives an object another size, as `resize` does it; what that returns.
pub(crate) fn resizing(object: *mut u8, size: usize, resize: impl FnOnce() -> *mut u8) -> *mut u8 {
    let address = object as usize;
    let mut record = take(address).unwrap_or(ObjectRecord {
        address,
        allocator: slices::owner(address),
        live: true,
        ..ObjectRecord::EMPTY
    });
    let begun = clock::nanos();
    let moved = resize();
    let nanos = clock::nanos().saturating_sub(begun);
    if !moved.is_null() {
        let allocator = slices::owner(moved as usize);
        record.reallocations += 1;
        record.moves += u64::from(moved != object);
        record.migrations += u64::from(allocator != record.allocator);
        record.requested_bytes += size as u64;
        (record.address, record.size, record.allocator) = (moved as usize, size, allocator);
    }
    record.nanos += nanos;
    if record.reallocations > 0 {
        put(record);
    }
    moved
}

/// An object is about to be given back.
pub(crate) fn freeing(object: *mut u8) {
    if !is_on() {
        return;
    }
    let mut table = TABLE.lock();
    let set = set_of(&mut table, object as usize);
    if let Some(record) = set.iter_mut().find(|record| is(record, object as usize)) {
        record.live = false;
    }
}

fn is(record: &ObjectRecord, address: usize) -> bool {
    record.live && record.address == address
}

fn set_of(table: &mut [Set; SETS], address: usize) -> &mut Set {
    // Objects begin at multiples of 16.
    let hash = (address as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SETS.ilog2());
    &mut table[hash as usize % SETS]
}

fn take(address: usize) -> Option<ObjectRecord> {
    let mut table = TABLE.lock();
    let set = set_of(&mut table, address);
    let record = set.iter_mut().find(|record| is(record, address))?;
    Some(core::mem::replace(record, ObjectRecord::EMPTY))
}

/// In the place of nothing, or of what has ended, or of whatever was resized least.
fn put(record: ObjectRecord) {
    let mut table = TABLE.lock();
    let set = set_of(&mut table, record.address);
    let Some(least) = set.iter_mut().min_by_key(|other| (other.live, other.reallocations)) else {
        return;
    };
    LOST.fetch_add(u64::from(least.reallocations > 0), Relaxed);
    // A new one gets its chance: what is resized most comes back soon.
    *least = record;
}

/// Takes the lock before a `fork`.
pub(crate) fn fork_prepare() {
    TABLE.acquire();
}

/// Gives the lock back after a `fork`.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub(crate) unsafe fn fork_done() {
    // SAFETY: passed on from the caller.
    unsafe { TABLE.release() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Alone in its process's table: one test for all of it.
    #[test]
    fn records_follow_their_objects_and_the_most_resized_stay() {
        let object = |address: usize| address as *mut u8;
        WATCHERS.fetch_add(1, Relaxed);
        for size in [10, 20, 30] {
            assert_eq!(resizing(object(0x1000), size, || object(0x1000)), object(0x1000));
        }
        resizing(object(0x1000), 40, || object(0x2000));
        assert_eq!(monitored(0x1000), None);
        let record = monitored(0x2000).expect("it was resized");
        assert_eq!((record.reallocations, record.moves, record.size), (4, 1, 40));
        assert_eq!((record.requested_bytes, record.migrations, record.live), (100, 0, true));
        // A refusal leaves it as it was.
        assert!(resizing(object(0x2000), 50, core::ptr::null_mut).is_null());
        assert_eq!(monitored(0x2000).map(|r| (r.reallocations, r.size)), Some((4, 40)));
        freeing(object(0x2000));
        assert_eq!(monitored(0x2000), None);
        // The next object there is another.
        resizing(object(0x2000), 7, || object(0x2000));
        assert_eq!(monitored(0x2000).map(|r| r.reallocations), Some(1));
        for n in 0..10_000_usize {
            resizing(object(0x10_0000 + 16 * n), 16, || object(0x10_0000 + 16 * n));
        }
        let mut most = [ObjectRecord::EMPTY; 3];
        assert_eq!(most_resized(&mut most), 3);
        assert!(most[0].reallocations >= most[1].reallocations && most[2].reallocations == 1);
        assert!(monitor_lost() >= 10_000 - (SETS * WAYS) as u64);
        assert_eq!(most_resized(&mut []), 0);
        WATCHERS.fetch_sub(1, Relaxed);
    }
}
