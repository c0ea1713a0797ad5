//! Restartable sequences: the area that the C library has registered with the
//! kernel for each thread.
//!
//! Code that names itself in its thread's area is sent back to its beginning
//! when the thread is interrupted in it, so that what it does to the data of a
//! processor is undisturbed as long as it ends with one store (rseq(2), glibc
//! 2.35 and later). The area is glibc's; all that may be written is `rseq_cs`.

use core::mem::offset_of;
use core::sync::atomic::{AtomicIsize, AtomicU32, AtomicU64, Ordering::*};

use crate::call::call;
use crate::degrade::{Optional, refused};

/// What precedes the code to which the kernel sends a thread; glibc's choice.
pub const SIGNATURE: u32 = 0x5305_3053;
/// Processors that may be numbered at most.
pub const CPUS_MOST: usize = 1024;

/// A thread's area, as far as we know it.
#[repr(C, align(32))]
pub struct Area {
    cpu_id_start: AtomicU32,
    /// The processor that the thread runs on. Negative: there are no restartable sequences.
    pub cpu_id: AtomicU32,
    rseq_cs: AtomicU64,
}

/// Where in an area the processor's number is.
pub const CPU_ID: usize = offset_of!(Area, cpu_id);
/// Where in an area the running sequence's descriptor is named.
pub const RSEQ_CS: usize = offset_of!(Area, rseq_cs);

/// Where the area is, from the thread pointer; 0: there is none.
static OFFSET: AtomicIsize = AtomicIsize::new(0);

/// Looks for the area, once. To be called where the C library may be asked for
/// symbols. An older one that knows nothing of all this is no cause for a report.
pub fn start() {
    // SAFETY: the names are terminated; glibc documents both as such numbers.
    unsafe {
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        if size.is_null() || offset.is_null() {
            return;
        }
        if *size != 0 && numbers_are_small() {
            OFFSET.store(*offset, Relaxed);
        }
    }
    if area().is_none() {
        refused(Optional::Rseq, libc::ENOSYS);
    }
}

/// Whether every processor's number is below [`CPUS_MOST`]: the kernel refuses to
/// write a mask that would not hold them all.
fn numbers_are_small() -> bool {
    let mut mask = [0_u8; CPUS_MOST / 8];
    let arguments = [0, mask.len(), mask.as_mut_ptr().expose_provenance()];
    // SAFETY: the kernel writes at most `mask.len()` bytes.
    unsafe { call(libc::SYS_sched_getaffinity, arguments) }.is_ok()
}

/// The calling thread's area; `None` where there are no restartable sequences.
pub fn area() -> Option<&'static Area> {
    let offset = OFFSET.load(Relaxed);
    if offset == 0 {
        return None;
    }
    let area: *const Area;
    // SAFETY: the first word of the thread control block is its own address, and
    // the area lies where glibc says. It is there as long as the thread; it is not
    // `Sync` to others in effect, as no caller passes it on.
    let area = unsafe {
        core::arch::asm!(
            "mov {area}, qword ptr fs:[0]",
            area = out(reg) area,
            options(pure, readonly, nostack, preserves_flags),
        );
        &*area.byte_offset(offset)
    };
    (area.cpu_id.load(Relaxed) as i32 >= 0).then_some(area)
}

/// Says in the record of a thread, at its thread pointer, that the kernel knows nothing of its area.
///
/// # Safety
/// The record is writable memory, as long as glibc's, of a thread that is not there yet.
pub unsafe fn mark_unregistered(record: *mut u8) {
    let offset = OFFSET.load(Relaxed);
    if offset != 0 {
        // SAFETY: glibc's offset of an area in a thread's record or among its variables.
        let area = unsafe { &*record.byte_offset(offset).cast::<Area>() };
        area.cpu_id.store(u32::MAX, Relaxed);
    }
}

impl Area {
    /// The processor that the calling thread, whose area this is, ran on just now.
    pub fn cpu(&self) -> usize {
        self.cpu_id.load(Relaxed) as usize % CPUS_MOST
    }
}
