//! Virtual memory: reserve, open, discard, advise, populate, move.
//!
//! All lengths and addresses are multiples of the page size. A *reserved* range
//! is mapped without access and costs nothing; an *opened* one is readable and
//! writable and zero until written.

use core::ffi::{CStr, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};

use spandrel_pages::PAGE_BYTES;

use crate::call::call;
use crate::degrade::{Optional, available, give_up, refused};
use crate::slices;

const RESERVED: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

/// Reserves `len` bytes anywhere. `None` when the address space is exhausted.
pub fn reserve(len: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let at = unsafe { mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), RESERVED) };
    NonNull::new(at.ok()?.cast())
}

/// As [`reserve`], far from libraries if there is room: what is to lie within 2 GiB of their code finds places.
pub fn reserve_apart(len: usize) -> Option<NonNull<u8>> {
    /// Places that are tried lie this far from each other.
    const STEP: usize = 128 << 30;
    /// Places that are tried.
    const TRIES: usize = 64;
    let near = reserve(len)?;
    let places = (1..=TRIES).filter_map(|n| (near.as_ptr() as usize).checked_sub(n * STEP));
    match places.filter(|_| len <= STEP).find_map(|place| reserve_at(place, len).ok()) {
        Some(apart) => {
            // SAFETY: reserved by the call above, and not used.
            let _ = unsafe { mm::munmap(near.as_ptr().cast(), len) };
            Some(apart)
        }
        None => Some(near),
    }
}

/// As [`reserve`], of small pages also where the kernel has huge ones unasked: for what is seldom used as a whole.
pub fn reserve_small(len: usize) -> Option<NonNull<u8>> {
    let at = reserve(len)?;
    // SAFETY: reserved by the call above.
    let _ = unsafe { advise_small(at.as_ptr(), len) };
    Some(at)
}

/// Reserves `len` bytes at exactly `base`, if nothing is mapped there.
///
/// # Errors
/// The error's number: `EEXIST` where something is mapped in the range, `ENOMEM` where a limit of the address space (`ulimit -v`) or of
/// the number of mappings is reached, or the range is no part of the address space.
pub fn reserve_at(base: usize, len: usize) -> Result<NonNull<u8>, i32> {
    let flags = RESERVED | MapFlags::FIXED_NOREPLACE;
    // SAFETY: FIXED_NOREPLACE never replaces a mapping.
    let at = unsafe { mm::mmap_anonymous(base as *mut c_void, len, ProtFlags::empty(), flags) };
    let at = at.map_err(Errno::raw_os_error)?;
    if at as usize != base {
        // A kernel before 4.17 takes the flag for a hint.
        // SAFETY: the range was mapped by the call above, and no other code has its address.
        let _ = unsafe { mm::munmap(at, len) };
        return Err(libc::EEXIST);
    }
    NonNull::new(at.cast()).ok_or(libc::EEXIST)
}

/// Maps `len` zero bytes that are zero again in a child of a fork. `None` where the kernel cannot
/// (before Linux 4.14).
pub fn map_wiped_on_fork(len: usize) -> Option<NonNull<u8>> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let at = unsafe { mm::mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the mapping was just made, and no other thread has its address.
    unsafe {
        if mm::madvise(at, len, Advice::LinuxWipeOnFork).is_err() {
            let _ = mm::munmap(at, len);
            return None;
        }
    }
    NonNull::new(at.cast())
}

/// Where glibc's main heap ends.
pub fn main_heap_end() -> usize {
    // SAFETY: no preconditions; the call changes nothing.
    unsafe { libc::sbrk(0) as usize }
}

/// Whether the kernel would map `len` bytes more for reading and writing, as it is asked to: limits of
/// the process and of overcommitted memory say so only then.
pub fn would_map(len: usize) -> bool {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping at an address of the kernel's choice; no other thread has its address.
    unsafe {
        mm::mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE)
            .is_ok_and(|at| mm::munmap(at, len).is_ok())
    }
}

/// Whether anything is mapped at a page, readable or not; true where the kernel does not tell.
pub fn is_mapped(page: *mut u8) -> bool {
    // SAFETY: what pages are advised at first, and no contents change.
    unsafe { mm::madvise(page.cast(), PAGE_BYTES, Advice::Normal) != Err(Errno::NOMEM) }
}

/// Bytes of a mapped range that are resident: on pages of this process. `None`: the kernel does not
/// tell.
#[inline(never)]
pub fn resident(at: *mut u8, len: usize) -> Option<usize> {
    // Also on the stacks of threads that have little.
    let mut pages = [0u8; 512];
    let mut count = 0;
    for from in (0..len).step_by(pages.len() * PAGE_BYTES) {
        let part = (len - from).min(pages.len() * PAGE_BYTES);
        // SAFETY: there is a byte for each page of the part; nothing else is written to.
        let told = unsafe {
            let at = at.expose_provenance() + from;
            call(libc::SYS_mincore, [at, part, pages.as_mut_ptr().expose_provenance()])
        };
        told.ok()?;
        let part = pages.iter().take(part.div_ceil(PAGE_BYTES));
        count += part.filter(|page| **page & 1 != 0).count();
    }
    Some(count * PAGE_BYTES)
}

/// Gives a range back to the kernel altogether.
///
/// # Safety
/// The range is a mapping of the caller's, and no thread uses it any more.
pub unsafe fn release(at: *mut u8, len: usize) -> bool {
    // SAFETY: passed on from the caller.
    unsafe { mm::munmap(at.cast(), len) }.is_ok()
}

/// Opens a reserved range for reading and writing. False: the kernel refused
/// (memory is overcommitted under mode 2, or the mapping count is at its limit).
///
/// # Safety
/// The range lies in a reservation of the caller's.
pub unsafe fn open(at: *mut u8, len: usize) -> bool {
    // SAFETY: passed on from the caller.
    unsafe { mm::mprotect(at.cast(), len, MprotectFlags::READ | MprotectFlags::WRITE) }.is_ok()
}

/// Opens a reserved range for reading alone: it reads as zero and takes no
/// memory, also when memory is locked.
///
/// # Safety
/// As for [`open`].
pub unsafe fn open_to_read(at: *mut u8, len: usize) -> bool {
    // SAFETY: passed on from the caller.
    unsafe { mm::mprotect(at.cast(), len, MprotectFlags::READ) }.is_ok()
}

/// Maps fresh, zero, accessible pages over a range of a reservation.
///
/// # Safety
/// The range lies in a reservation of the caller's; its contents are given up.
pub unsafe fn open_fresh(at: *mut u8, len: usize) -> bool {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the caller owns the range, so that replacing it changes no other mapping.
    unsafe { mm::mmap_anonymous(at.cast(), len, access, RESERVED | MapFlags::FIXED) }
        .inspect(|_| slices::name_again(at, len))
        .is_ok()
}

/// Turns a range back into a bare reservation: its pages, its charge against
/// overcommit and any splits of its mapping are gone.
///
/// # Safety
/// The range lies in a reservation of the caller's; its contents are given up.
pub unsafe fn close(at: *mut u8, len: usize) -> bool {
    // SAFETY: as in `open_fresh`.
    unsafe { mm::mmap_anonymous(at.cast(), len, ProtFlags::empty(), RESERVED | MapFlags::FIXED) }
        .inspect(|_| slices::name_again(at, len))
        .is_ok()
        // There are too many mappings, or the limit of the address space was
        // lowered below what is in use: at least the pages are released.
        // SAFETY: as above.
        || unsafe {
            discard(at, len) && mm::mprotect(at.cast(), len, MprotectFlags::empty()).is_ok()
        }
}

/// Drops the pages of a range; it stays open and reads as zero.
///
/// # Safety
/// The range is the caller's; its contents are given up.
pub unsafe fn discard(at: *mut u8, len: usize) -> bool {
    // SAFETY: passed on from the caller.
    unsafe {
        mm::madvise(at.cast(), len, Advice::LinuxDontNeed).is_ok()
            // Locked memory has an advice of its own (Linux 5.18).
            || settle(
                Optional::Discard,
                mm::madvise(at.cast(), len, Advice::LinuxDontneedLocked),
            )
    }
}

/// Whether a page is resident.
pub fn is_resident(at: *mut u8) -> bool {
    let mut resident = 0u8;
    // SAFETY: the kernel looks at the page tables only, and answers one byte.
    let told = unsafe {
        call(
            libc::SYS_mincore,
            [at.expose_provenance(), PAGE_BYTES, (&raw mut resident).expose_provenance()],
        )
    };
    told.is_ok() && resident & 1 != 0
}

/// Asks for huge pages in a range from now on.
///
/// # Safety
/// The range is an open mapping of the caller's.
pub unsafe fn advise_huge(at: *mut u8, len: usize) -> bool {
    if !available(Optional::HugePage) {
        return false;
    }
    // SAFETY: passed on from the caller; the advice changes no contents.
    settle(Optional::HugePage, unsafe { mm::madvise(at.cast(), len, Advice::LinuxHugepage) })
}

/// Asks for small pages in a range from now on, also where the kernel has huge ones unasked.
///
/// # Safety
/// The range is a mapping of the caller's.
pub unsafe fn advise_small(at: *mut u8, len: usize) -> bool {
    if !available(Optional::SmallPages) {
        return false;
    }
    // SAFETY: passed on from the caller; the advice changes no contents.
    let advised = unsafe { mm::madvise(at.cast(), len, Advice::LinuxNoHugepage) };
    settle(Optional::SmallPages, advised)
}

/// Whether memory comes in huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugePages {
    /// It never does: the kernel, the administrator or the program has them off.
    Never,
    /// Where it is advised.
    Advised,
    /// Wherever a huge page fits.
    Always,
}

/// Whether memory comes in huge pages in this process, as the kernel has it now: three system calls
/// and one more.
pub fn huge_pages() -> HugePages {
    let mut buffer = [0; 64];
    let path = c"/sys/kernel/mm/transparent_hugepage/enabled";
    let setting = crate::env::read_file(path, &mut buffer).unwrap_or(b"[madvise]");
    let is = |word: &[u8]| setting.windows(word.len()).any(|part| part == word);
    // SAFETY: it tells a number.
    let told = unsafe { call(libc::SYS_prctl, [libc::PR_GET_THP_DISABLE as usize, 0, 0, 0, 0]) };
    let disabled = told == Ok(1);
    if disabled || !available(Optional::HugePage) || is(b"[never]") {
        HugePages::Never
    } else if is(b"[always]") {
        HugePages::Always
    } else {
        HugePages::Advised
    }
}

/// What became of an attempt to make a huge page whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whole {
    /// It is one huge page now.
    Done,
    /// Not now: no huge page is free, or one of its pages is held.
    Busy,
    /// This kernel cannot.
    Unsupported,
}

/// Whether huge pages can be made of small ones, as far as is known.
pub fn can_collapse() -> bool {
    available(Optional::Collapse)
}

/// Makes huge pages of a range that is mapped by small ones, at once
/// (`MADV_COLLAPSE`, Linux 6.1); what is not resident is filled with zeroes.
///
/// # Safety
/// The range is an open mapping of the caller's.
pub unsafe fn collapse(at: *mut u8, len: usize) -> Whole {
    if !available(Optional::Collapse) {
        return Whole::Unsupported;
    }
    // SAFETY: passed on from the caller; the advice changes no contents.
    let made =
        unsafe { call(libc::SYS_madvise, [at.expose_provenance(), len, MADV_COLLAPSE as usize]) };
    match made {
        Ok(_) => {
            INVALID.store(WAS_VALID, Relaxed);
            Whole::Done
        }
        Err(libc::EAGAIN | libc::ENOMEM | libc::EBUSY) => Whole::Busy,
        // A kernel that does not know the advice says so of every range; one that does, of
        // some: whose pages a child of a fork shares, or that were never touched.
        Err(libc::EINVAL) if INVALID.load(Relaxed) < MOST_INVALID => {
            let _ = INVALID
                .fetch_update(Relaxed, Relaxed, |count| (count != WAS_VALID).then(|| count + 1));
            Whole::Busy
        }
        Err(libc::EINVAL) if INVALID.load(Relaxed) == WAS_VALID => Whole::Busy,
        Err(why) => {
            refused(Optional::Collapse, why);
            Whole::Unsupported
        }
    }
}

/// The kernel may refuse this number of ranges in a row as invalid before it is taken for one that does
/// not know the advice.
const MOST_INVALID: u32 = 8;
/// In [`INVALID`]: the kernel knows it.
const WAS_VALID: u32 = u32::MAX;
static INVALID: AtomicU32 = AtomicU32::new(0);

/// Not in every libc's headers yet.
const MADV_COLLAPSE: libc::c_int = 25;

/// Faults in a range at once, writable.
///
/// # Safety
/// The range is an open mapping of the caller's.
pub unsafe fn populate(at: *mut u8, len: usize) -> bool {
    if !available(Optional::PopulateWrite) {
        return false;
    }
    // SAFETY: passed on from the caller; populating changes no contents.
    let done = unsafe { mm::madvise(at.cast(), len, Advice::LinuxPopulateWrite) };
    settle(Optional::PopulateWrite, done)
}

/// What became of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// The pages have moved.
    Done,
    /// Nothing has changed: the range consists of several mappings, of which
    /// kernels before 6.17 move one at a time.
    SeveralMappings,
    /// The pages are where they were, and the target is open and empty.
    Refused,
    /// The pages are where they were, but the target is not mapped any more.
    TargetLost,
}

/// Moves the pages of `from` to `to` through the page tables. Afterwards `from`
/// is open and reads as zero.
///
/// Cheap (a pointer per 2 MiB) when both are congruent modulo the huge page.
///
/// # Safety
/// Both ranges are `len` bytes of the caller's, disjoint, private and anonymous;
/// the contents of `to` are given up.
pub unsafe fn move_pages(from: *mut u8, to: *mut u8, len: usize) -> Move {
    if !available(Optional::Mremap) {
        return Move::Refused;
    }
    // MREMAP_FIXED unmaps the target before the source is looked at. Growing in
    // place has no such effect and tells whether the source is one mapping: it
    // is EFAULT if not, and else ENOMEM, because something is mapped behind it.
    // SAFETY: passed on from the caller; nothing moves without MAYMOVE.
    match unsafe { mm::mremap(from.cast(), len, len + PAGE_BYTES, MremapFlags::empty()) } {
        Err(Errno::FAULT) => return Move::SeveralMappings,
        // Nothing was mapped behind it: a slice ends here.
        // SAFETY: the page was mapped by the call above, and no other thread has its address.
        Ok(_) => unsafe {
            release(from.add(len), PAGE_BYTES);
        },
        Err(_) => {}
    }
    // DONTUNMAP (Linux 5.7) leaves no hole in which another thread's mmap could land.
    let flags = MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP;
    // SAFETY: passed on from the caller.
    let moved = unsafe { mm::mremap_fixed(from.cast(), len, len, flags, to.cast()) };
    let Err(errno) = moved else { return Move::Done };
    refused(Optional::Mremap, errno.raw_os_error());
    // SAFETY: the target is the caller's, and its contents are given up.
    if unsafe { open_fresh(to, len) } {
        return Move::Refused;
    }
    // A limit of the address space that was lowered below what is in use: each
    // try would lose another target.
    give_up(Optional::Mremap);
    Move::TargetLost
}

/// Names a range in `/proc/PID/smaps` (`[anon:name]`); false: this kernel has no such names.
pub(crate) fn name(at: *mut u8, len: usize, name: &CStr) -> bool {
    const PR_SET_VMA: usize = 0x5356_4d41;
    const PR_SET_VMA_ANON_NAME: usize = 0;
    let name = name.as_ptr().expose_provenance();
    // SAFETY: naming changes no contents; the kernel copies `name`.
    unsafe {
        call(libc::SYS_prctl, [PR_SET_VMA, PR_SET_VMA_ANON_NAME, at.expose_provenance(), len, name])
    }
    .is_ok()
}

/// The soft limit of the address space in bytes, if there is one.
pub fn address_space_limit() -> Option<usize> {
    rustix::process::getrlimit(rustix::process::Resource::As)
        .current
        .and_then(|limit| usize::try_from(limit).ok())
}

/// The soft limit of the data segment in bytes, if there is one.
pub fn data_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Data).current
}

/// Whether opening memory counts against a limit although no thread touches it:
/// under `vm.overcommit_memory` = 2, or with a limit on the data segment.
pub fn is_charged_when_opened() -> bool {
    let mut buffer = [0u8; 8];
    let mode = crate::env::read_file(c"/proc/sys/vm/overcommit_memory", &mut buffer);
    matches!(mode, Ok([b'2', ..])) || data_limit().is_some()
}

fn settle(what: Optional, outcome: Result<(), Errno>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(errno) => {
            refused(what, errno.raw_os_error());
            false
        }
    }
}
