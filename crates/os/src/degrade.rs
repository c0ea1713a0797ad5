//! System calls that are only optimisations: what happens when they are refused.
//!
//! Old kernels, seccomp filters and containers answer ENOSYS, EPERM or EINVAL.
//! Each such call has a slot here: it counts refusals, is reported once when
//! the user asked for messages, and, where trying again is pointless, is not
//! tried again.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};

use crate::message::{Fd, say};

/// An optional system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Optional {
    /// Moving page-table entries instead of bytes.
    Mremap = 0,
    /// `madvise(MADV_POPULATE_WRITE)`.
    PopulateWrite = 1,
    /// `madvise(MADV_HUGEPAGE)`.
    HugePage = 2,
    /// Reserving address space of the full slice size.
    Reserve = 3,
    /// `getrandom`, for the choice of slice bases.
    Random = 4,
    /// `membarrier`, for trimming behind live objects.
    Membarrier = 5,
    /// `madvise(MADV_COLLAPSE)`, which makes a huge page whole again.
    Collapse = 6,
    /// A thread for work beside the program.
    Thread = 7,
    /// Restartable sequences, as the C library registers them.
    Rseq = 8,
    /// `membarrier` for restartable sequences, with which others' caches are emptied.
    Restart = 9,
    /// `madvise(MADV_DONTNEED)`, which releases memory.
    Discard = 10,
    /// `madvise(MADV_NOHUGEPAGE)`, by which what was broken stays so.
    SmallPages = 11,
}

impl Optional {
    /// Every optional call.
    pub const ALL: [Self; 12] = [
        Self::Mremap,
        Self::PopulateWrite,
        Self::HugePage,
        Self::Reserve,
        Self::Random,
        Self::Membarrier,
        Self::Collapse,
        Self::Thread,
        Self::Rseq,
        Self::Restart,
        Self::Discard,
        Self::SmallPages,
    ];

    /// The name used in messages and statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mremap => "mremap",
            Self::PopulateWrite => "madvise(MADV_POPULATE_WRITE)",
            Self::HugePage => "madvise(MADV_HUGEPAGE)",
            Self::Reserve => "address-space reservation",
            Self::Random => "getrandom",
            Self::Membarrier => "membarrier",
            Self::Collapse => "madvise(MADV_COLLAPSE)",
            Self::Thread => "pthread_create",
            Self::Rseq => "rseq",
            Self::Restart => "membarrier(RSEQ)",
            Self::Discard => "madvise(MADV_DONTNEED)",
            Self::SmallPages => "madvise(MADV_NOHUGEPAGE)",
        }
    }

    const fn consequence(self) -> &'static str {
        match self {
            Self::Mremap => "large objects are copied when they outgrow their slot",
            Self::PopulateWrite => "pages of growing objects are faulted in one by one",
            Self::HugePage => "large objects use base pages",
            Self::Reserve => "slices are smaller; what does not fit is served by glibc",
            Self::Collapse => "huge pages that were broken are left to the kernel to mend",
            Self::Thread => "memory is released beside requests for memory only",
            Self::Membarrier => "spare pages behind live objects stay where they are",
            Self::Rseq | Self::Restart => {
                "free objects are cached for each thread, not for each processor"
            }
            Self::Discard => "memory that was freed stays with the process",
            Self::SmallPages => "the kernel may take back for huge pages what was given to it",
            Self::Random => "slice bases follow the kernel's own randomisation",
        }
    }
}

struct Slot {
    count: AtomicU64,
    errno: AtomicI32,
    off: AtomicBool,
    is_said: AtomicBool,
}

static SLOTS: [Slot; Optional::ALL.len()] = [const {
    Slot {
        count: AtomicU64::new(0),
        errno: AtomicI32::new(0),
        off: AtomicBool::new(false),
        is_said: AtomicBool::new(false),
    }
}; Optional::ALL.len()];
static VERBOSE: AtomicBool = AtomicBool::new(false);
/// A refusal is not reported yet, as it met a thread without standard error.
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// Turns messages on or off. Refusals from before are reported when turned on.
pub fn set_verbose(on: bool) {
    VERBOSE.store(on, Relaxed);
    if on {
        say_all();
    }
}

/// Reports what met a thread that cannot say it. One load where there is nothing.
#[inline]
pub fn say_late() {
    if IS_LATE.load(Relaxed) && IS_LATE.swap(false, Relaxed) {
        say_all();
    }
}

#[cold]
fn say_all() {
    for what in Optional::ALL {
        let (count, errno) = count(what);
        if count > 0 {
            report(what, errno);
        }
    }
}

/// Whether `what` is worth trying.
#[inline]
pub fn available(what: Optional) -> bool {
    !SLOTS[what as usize].off.load(Relaxed)
}

/// Notes that `what` was refused with `errno`; ENOSYS, EPERM and EINVAL are
/// taken for the kernel's last word.
#[cold]
pub fn refused(what: Optional, errno: i32) {
    let slot = &SLOTS[what as usize];
    slot.errno.store(errno, Relaxed);
    if matches!(errno, libc::ENOSYS | libc::EPERM | libc::EINVAL) {
        slot.off.store(true, Relaxed);
    }
    if slot.count.fetch_add(1, Relaxed) == 0 && VERBOSE.load(Relaxed) {
        report(what, errno);
    }
}

/// Stops trying `what`.
#[cold]
pub fn give_up(what: Optional) {
    SLOTS[what as usize].off.store(true, Relaxed);
}

/// How often `what` was refused and the last `errno`.
pub fn count(what: Optional) -> (u64, i32) {
    let slot = &SLOTS[what as usize];
    (slot.count.load(Relaxed), slot.errno.load(Relaxed))
}

/// Once for each kind. A thread may have no standard error: it has a table of open files of its own.
fn report(what: Optional, errno: i32) {
    if !Fd(2).is_open() {
        return IS_LATE.store(true, Relaxed);
    }
    if SLOTS[what as usize].is_said.swap(true, Relaxed) {
        return;
    }
    say(format_args!(
        "{} is not available here (errno {errno}): {}",
        what.name(),
        what.consequence()
    ));
}
