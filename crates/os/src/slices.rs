//! The plan of the address space: the owner of an address is one load away.
//!
//! The 47-bit user address space is divided into granules of 256 MiB, one byte
//! each in a static table. A *slice* is a run of granules reserved for one
//! allocator, normally a tebibyte or more at a random base. What no slice
//! claims is glibc's (number 0), also memory that glibc gave out before we
//! were there.
//!
//! The table is 512 KiB of zero pages, of which a slice of 1 TiB touches 4 KiB
//! and a program's working set a cache line or two per 16 GiB. A granule that
//! small lets slices shrink with `ulimit -v` while the shift stays a constant.

use core::ffi::CStr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, fence};

use spandrel_pages::{
    ADDRESS_SPACE_END, AllocatorId, MIN_ALIGN, PAGE_BYTES, TIB, align_down, align_up,
};

use crate::degrade::{Optional, refused};
use crate::{live, vm};

const GRANULE_BITS: u32 = 28;
/// Bytes per entry of the owner table; also the smallest slice.
pub const GRANULE_BYTES: usize = 1 << GRANULE_BITS;
const ADDRESS_BITS: u32 = ADDRESS_SPACE_END.trailing_zeros();
const GRANULES: usize = 1 << (ADDRESS_BITS - GRANULE_BITS);
/// Part of the address-space limit that one slice may take when there is a
/// limit: slices for all hosted allocators and ours together stay near a half.
const LIMITED_SHARE: usize = 16;

static OWNERS: [AtomicU8; GRANULES] = [const { AtomicU8::new(0) }; GRANULES];

/// Set in an owner byte while requests are counted: frees take the slow way.
pub const COUNTED: u8 = 0x80;

/// The owner byte of an address: an [`AllocatorId`], perhaps with [`COUNTED`].
#[inline(always)]
pub fn owner_byte(address: usize) -> u8 {
    // Two shifts keep the index in range whatever the address.
    let index =
        (address << (usize::BITS - ADDRESS_BITS)) >> (usize::BITS - ADDRESS_BITS + GRANULE_BITS);
    OWNERS[index].load(Relaxed)
}

/// The allocator that owns an address.
#[inline(always)]
pub fn owner(address: usize) -> AllocatorId {
    AllocatorId::from_byte(owner_byte(address) & !COUNTED).unwrap_or(AllocatorId::Sys)
}

/// The direct slice: frees of its objects need no owner byte, one comparison recognizes them.
///
/// A thread that reads the first base and a later length computes a unit beyond every length: the
/// difference to that base is at least 2^62 bytes for every address of the program.
#[repr(C, align(16))]
struct Direct {
    base: AtomicUsize,
    /// Length in units of [`MIN_ALIGN`] bytes; 0 while frees are counted.
    units: AtomicUsize,
    /// Length in the same units, whether frees are counted or not.
    all: AtomicUsize,
}

static DIRECT: Direct = Direct {
    base: AtomicUsize::new(1 << (usize::BITS - 1)),
    units: AtomicUsize::new(0),
    all: AtomicUsize::new(0),
};

/// Base of the direct slice, and the number of the unit of [`MIN_ALIGN`] bytes that begins at an address. `None`: no unit begins
/// there, the address is outside the direct slice, or frees are counted.
#[inline(always)]
pub fn direct(address: usize) -> Option<(usize, usize)> {
    let base = DIRECT.base.load(Relaxed);
    // Misaligned addresses have their low bits at the top: beyond every length.
    let unit = address.wrapping_sub(base).rotate_right(MIN_ALIGN.trailing_zeros());
    (unit < DIRECT.units.load(Relaxed)).then_some((base, unit))
}

/// Makes a slice the direct one. Once in a process.
pub fn set_direct(slice: Slice) {
    DIRECT.base.store(slice.base, SeqCst);
    DIRECT.all.store(slice.len / MIN_ALIGN, SeqCst);
    settle_direct();
}

/// Ends the direct slice before `end`, an address in it, if it is longer: what follows is given back.
pub fn shorten_direct(end: usize) {
    let units = end.saturating_sub(DIRECT.base.load(SeqCst)) / MIN_ALIGN;
    DIRECT.all.fetch_min(units, SeqCst);
    settle_direct();
}

/// Stores the length that holds now. Concurrent calls end with the last length: each looks again after its store.
fn settle_direct() {
    loop {
        let (counting, all) = (COUNTING.load(SeqCst), DIRECT.all.load(SeqCst));
        DIRECT.units.store(if counting { 0 } else { all }, SeqCst);
        if (COUNTING.load(SeqCst), DIRECT.all.load(SeqCst)) == (counting, all) {
            return;
        }
    }
}

/// Whether owner bytes are to be marked as [`COUNTED`].
static COUNTING: AtomicBool = AtomicBool::new(false);

/// Marks every owner byte as counted or not. Takes a few milliseconds: a slice
/// may be published meanwhile, and nothing of that may be lost.
pub fn set_counted(on: bool) {
    COUNTING.store(on, SeqCst);
    settle_direct();
    mark(&OWNERS, on);
}

/// Marks owner bytes; other threads may change them meanwhile.
fn mark(owners: &[AtomicU8], on: bool) {
    for owner in owners {
        if on {
            owner.fetch_or(COUNTED, Relaxed);
        // The common case leaves the zero page alone.
        } else if owner.load(Relaxed) & COUNTED != 0 {
            owner.fetch_and(!COUNTED, Relaxed);
        }
    }
}

/// Slices that there are, for [`look_at_frees`]: first granule and the one after the last, in one word each.
static PUBLISHED: [AtomicU64; MOST_PUBLISHED] = [const { AtomicU64::new(0) }; MOST_PUBLISHED];
/// One for each allocator, three for tcmalloc, and some to spare.
const MOST_PUBLISHED: usize = 16;

/// As [`set_counted`] for a short time, for what lies in slices: some microseconds. Objects of the C
/// library are not looked at. The caller excludes concurrent calls of it and of [`set_counted`].
pub fn look_at_frees(on: bool) {
    COUNTING.store(on, SeqCst);
    settle_direct();
    for slice in &PUBLISHED {
        let range = slice.load(Acquire);
        let (first, end) = ((range >> 32) as usize, range as u32 as usize);
        // Plain stores: no other thread changes the owner of what a slice has.
        for owner in OWNERS.get(first..end).unwrap_or_default() {
            let id = owner.load(Relaxed) & !COUNTED;
            owner.store(if on { id | COUNTED } else { id }, Relaxed);
        }
    }
}

/// A run of reserved address space, multiples of [`GRANULE_BYTES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// First address.
    pub base: usize,
    /// Length in bytes.
    pub len: usize,
}

impl Slice {
    /// Gives a range of the slice back, reservation and all: it counts against no limit any more, and
    /// addresses of it are glibc's like any others. Its ends are moved inwards to pages; in a slice that lies where the
    /// kernel maps, to granules, as an address in the rest of one would still be the owner's.
    ///
    /// # Safety
    /// Nothing of the range is in use, nor ever will be.
    pub unsafe fn give_back(self, from: usize, to: usize) {
        let unit = if self.len < TIB { GRANULE_BYTES } else { PAGE_BYTES };
        let Some(from) = align_up(from.max(self.base), unit) else { return };
        let to = align_down(to.min(self.base + self.len), unit);
        if from >= to {
            return;
        }
        let first = from.div_ceil(GRANULE_BYTES);
        for owner in OWNERS.get(first..to >> GRANULE_BITS).unwrap_or_default() {
            owner.fetch_and(COUNTED, Relaxed);
        }
        // SAFETY: within a reservation of ours, and the caller's promise. Where the kernel refuses, for want
        // of mappings, it stays reserved.
        let _ = unsafe { vm::release(from as *mut u8, to - from) };
    }
}

/// Reserves a slice of `want` bytes (a multiple of a tebibyte) for `owner`, or
/// a smaller one where address space is limited, not below `least`.
///
/// `None`: there is not even room for `least`; the owner cannot be hosted.
pub fn claim(owner: AllocatorId, want: usize, least: usize) -> Option<Slice> {
    let mut want = if is_shadowed() { want.min(SHADOWED_BYTES) } else { want };
    if let Some(limit) = vm::address_space_limit() {
        let share = align_down(limit / LIMITED_SHARE, GRANULE_BYTES);
        if share < want {
            refused(Optional::Reserve, libc::ENOMEM);
            want = share;
        }
    }
    while want >= least.max(GRANULE_BYTES) {
        if let Some(slice) = reserve_somewhere(want) {
            publish(slice, owner);
            return Some(slice);
        }
        refused(Optional::Reserve, libc::ENOMEM);
        want = align_down(want / 2, GRANULE_BYTES);
    }
    None
}

/// Reserves `len` bytes (a multiple of a tebibyte) for `owner` at one of the
/// tebibytes that it can use: for an allocator to which address bits mean
/// something. All or nothing, because one that works there is hard to shrink.
pub fn claim_among(
    owner: AllocatorId,
    len: usize,
    usable: impl Fn(usize) -> bool,
) -> Option<Slice> {
    let limited = vm::address_space_limit().is_some_and(|limit| limit / LIMITED_SHARE < len);
    let slice = if limited { None } else { reserve_drawn(len, usable) };
    match slice {
        Some(slice) => publish(slice, owner),
        None => refused(Optional::Reserve, libc::ENOMEM),
    }
    slice
}

/// A slice where each reserved page takes memory and time: valgrind's tools note of every byte what it is.
const SHADOWED_BYTES: usize = 64 << 30;

/// Whether the program runs on valgrind, which answers a sequence of instructions that do nothing else.
fn is_shadowed() -> bool {
    const RUNNING_ON_VALGRIND: usize = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let mut answer = 0_usize;
    // SAFETY: the rotations come to a whole turn, and the exchange is with itself; valgrind reads the
    // request and writes the answer.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") &raw const request,
            inout("rdx") answer,
            in("rdi") 0,
            options(nostack),
        );
    }
    answer != 0
}

fn publish(slice: Slice, owner: AllocatorId) {
    let first = slice.base >> GRANULE_BITS;
    let end = first + (slice.len >> GRANULE_BITS);
    let owners = OWNERS.get(first..end).unwrap_or_default();
    // Plain stores: a locked instruction for each took a tenth of the time of a small program. A mark
    // that is overwritten, or comes while we are at it, is made up for.
    for entry in owners {
        entry.store(owner as u8, Relaxed);
    }
    let mut marked = false;
    loop {
        fence(SeqCst);
        let counting = COUNTING.load(SeqCst);
        if counting == marked {
            break;
        }
        mark(owners, counting);
        marked = counting;
    }
    let range = (first as u64) << 32 | end as u64;
    let is_noted = |place: &AtomicU64| place.compare_exchange(0, range, AcqRel, Relaxed).is_ok();
    // Frees in a slice without a place are not counted.
    let _ = PUBLISHED.iter().any(is_noted);
    NAMES.store(vm::name(slice.base as *mut u8, slice.len, name_of(owner)), Relaxed);
    live::add_slice(owner, slice.base, slice.base + slice.len);
}

/// Whether the kernel has names for mappings.
static NAMES: AtomicBool = AtomicBool::new(false);

/// Names what was mapped anew within a slice as the slice is. Neighbours of different names
/// stay mappings of their own, of which there may not be many.
pub(crate) fn name_again(at: *mut u8, len: usize) {
    let owner = owner(at as usize);
    if NAMES.load(Relaxed) && owner != AllocatorId::Sys {
        vm::name(at, len, name_of(owner));
    }
}

fn name_of(owner: AllocatorId) -> &'static CStr {
    match owner {
        AllocatorId::Native => c"spandrel native",
        AllocatorId::Mmap => c"spandrel mmap",
        AllocatorId::Guarded => c"spandrel guarded",
        _ => c"spandrel hosted",
    }
}

/// Tebibytes from which bases are drawn. Below lie fixed executables and the
/// shadow memory of sanitizers (to 16 TiB and a margin); from 80 position-
/// independent executables and their heaps (0x55… is 85); from 120 the stack,
/// libraries and other mappings, which grow downwards from 127.
const DRAWN: [core::ops::Range<usize>; 2] = [18..80, 104..119];
/// Tebibytes that slices never use: persistent heaps with a fixed base and
/// durable arenas live there.
pub const FIXED_BASE_WINDOW: core::ops::Range<usize> = 88..104;

/// Reserves `len` bytes at a random one of the usable tebibytes.
fn reserve_drawn(len: usize, usable: impl Fn(usize) -> bool) -> Option<Slice> {
    let tebibytes = len.div_ceil(TIB);
    let starts = |range: &core::ops::Range<usize>| range.len().saturating_sub(tebibytes - 1);
    let choices: usize = DRAWN.iter().map(starts).sum();
    if len < TIB || choices == 0 {
        return None;
    }
    let random = entropy();
    for attempt in 0..choices {
        let mut pick = (random.wrapping_add(attempt)) % choices;
        for range in &DRAWN {
            let here = starts(range);
            if pick >= here {
                pick -= here;
                continue;
            }
            let tebibyte = range.start + pick;
            if usable(tebibyte)
                && let Ok(at) = vm::reserve_at(tebibyte * TIB, len)
            {
                return Some(Slice { base: at.as_ptr() as usize, len });
            }
            break;
        }
    }
    None
}

fn reserve_somewhere(len: usize) -> Option<Slice> {
    if let Some(slice) = reserve_drawn(len, |_| true) {
        return Some(slice);
    }
    // Small slices, or a crowded address space: wherever the kernel has room.
    let padded = len.checked_add(GRANULE_BYTES)?;
    let at = vm::reserve(padded)?.as_ptr() as usize;
    let base = align_up(at, GRANULE_BYTES)?;
    // SAFETY: both ends lie in the reservation just made, outside the slice.
    unsafe {
        if base > at {
            vm::release(at as *mut u8, base - at);
        }
        let end = base + len;
        if at + padded > end {
            vm::release(end as *mut u8, at + padded - end);
        }
    }
    (base + len <= ADDRESS_SPACE_END).then_some(Slice { base, len })
}

/// Random bits for slice bases; constant where address randomisation is off
/// (debuggers, `setarch -R`), so that such runs repeat.
fn entropy() -> usize {
    const ADDR_NO_RANDOMIZE: libc::c_int = 0x004_0000;
    // SAFETY: the argument only queries.
    let personality = unsafe { libc::personality(0xffff_ffff) };
    if personality != -1 && personality & ADDR_NO_RANDOMIZE != 0 {
        return 0;
    }
    let mut bytes = [0u8; 8];
    match rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::NONBLOCK) {
        Ok(8) => usize::from_ne_bytes(bytes),
        outcome => {
            let errno = outcome.err().map_or(libc::EAGAIN, |e| e.raw_os_error());
            refused(Optional::Random, errno);
            // The stack's address carries the kernel's own randomisation.
            (&raw const bytes as usize).rotate_right(12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_slice_is_owned_and_its_neighbours_are_not() {
        let slice = claim(AllocatorId::Mimalloc, TIB, GRANULE_BYTES).expect("address space");
        assert_eq!(slice.base % GRANULE_BYTES, 0);
        assert_eq!(owner(slice.base), AllocatorId::Mimalloc);
        assert_eq!(owner(slice.base + slice.len - 1), AllocatorId::Mimalloc);
        assert_ne!(owner(slice.base - 1), AllocatorId::Mimalloc);
        let local = 0u8;
        assert_eq!(owner(&raw const local as usize), AllocatorId::Sys);
        assert_eq!(owner(usize::MAX), AllocatorId::Sys);
    }

    #[test]
    fn a_slice_is_claimed_among_the_usable_tebibytes_or_not_at_all() {
        let usable = |tebibyte: usize| tebibyte % 8 == 3;
        let slice = claim_among(AllocatorId::Tcmalloc, TIB, usable).expect("address space");
        assert_eq!((slice.base / TIB % 8, slice.base % TIB, slice.len), (3, 0, TIB));
        assert_eq!(owner(slice.base), AllocatorId::Tcmalloc);
        assert_eq!(claim_among(AllocatorId::Tcmalloc, TIB, |_| false), None);
    }

    #[test]
    fn no_mark_is_lost_on_what_is_published_meanwhile() {
        extern crate std;
        let marks = |slice: &Slice| {
            let first = slice.base >> GRANULE_BITS;
            let owners = &OWNERS[first..first + (slice.len >> GRANULE_BITS)];
            owners.iter().filter(|owner| owner.load(Relaxed) & COUNTED != 0).count()
        };
        // Little: the thread sanitizer leaves no more address space.
        const LEN: usize = TIB / 32;
        let claimed = std::thread::scope(|scope| {
            scope.spawn(|| (0..20).for_each(|n| set_counted(n % 2 == 0)));
            let claim = || claim(AllocatorId::Jemalloc, LEN, LEN).expect("address space");
            (0..20).map(|_| claim()).collect::<std::vec::Vec<_>>()
        });
        assert!(claimed.iter().all(|slice| marks(slice) == 0));
        set_counted(true);
        let late = claim(AllocatorId::Jemalloc, 2 * LEN, 2 * LEN).expect("address space");
        let each = LEN >> GRANULE_BITS;
        assert!(claimed.iter().all(|slice| marks(slice) == each) && marks(&late) == 2 * each);
        assert_eq!(owner(late.base), AllocatorId::Jemalloc);
        set_counted(false);
    }

    #[test]
    fn what_is_given_back_is_nobodys() {
        let slice = claim(AllocatorId::Mimalloc, TIB, TIB).expect("address space");
        let (from, to) = (slice.base + GRANULE_BYTES / 2, slice.base + 4 * GRANULE_BYTES + 1);
        // SAFETY: nothing of the slice is in use.
        unsafe { slice.give_back(from, to) };
        assert!(!vm::is_mapped(from as *mut u8) && vm::is_mapped((from - PAGE_BYTES) as *mut u8));
        assert!(vm::is_mapped((to - 1) as *mut u8));
        assert_eq!(owner(slice.base + GRANULE_BYTES), AllocatorId::Sys);
        assert_eq!(owner(to - 2), AllocatorId::Sys);
        assert_eq!(owner(slice.base), AllocatorId::Mimalloc);
        assert_eq!(owner(to), AllocatorId::Mimalloc);
    }

    #[test]
    fn slices_do_not_overlap() {
        let a = claim(AllocatorId::Jemalloc, TIB, TIB).expect("address space");
        let b = claim(AllocatorId::Mmap, 4 * TIB, TIB).expect("address space");
        assert!(a.base + a.len <= b.base || b.base + b.len <= a.base);
    }
}
