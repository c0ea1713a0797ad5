//! Observed requests: counted, recorded, watched by object. None of this is on the way of
//! requests that are not observed; the tables of decisions and owners see to that.

use spandrel_os::slices;
use spandrel_pages::{AllocatorId, MIN_ALIGN};
use spandrel_recorder::{self as recorder, Event};

use crate::elsewhere::is_elsewhere;
use crate::{modes, monitor, stats, tuner};

/// Whether requests are looked at.
pub(crate) fn is_on() -> bool {
    stats::counting() || recorder::records_requests() || monitor::is_on() || is_elsewhere()
}

/// Sends requests the way on which they are looked at, or back.
pub(crate) fn apply() {
    let _no_window_meanwhile = tuner::hold();
    let on = is_on();
    slices::set_counted(on);
    modes::recompile(on);
}

/// A new object; null is none.
pub(crate) fn allocated(object: *mut u8, size: usize, align: usize, zeroed: bool) {
    if object.is_null() {
        return;
    }
    stats::record(slices::owner(object as usize), stats::Event::Allocation, size);
    if recorder::records_requests() {
        let align_log2 = if align <= MIN_ALIGN { 0 } else { align.ilog2() as u8 };
        let (address, size) = (object as u64, size as u64);
        recorder::request(&Event::Allocate { address, size, align_log2, zeroed });
    }
}

/// An object that is about to be given back to its owner.
pub(crate) fn freeing(object: *mut u8, owner: AllocatorId) {
    stats::record(owner, stats::Event::Free, 0);
    monitor::freeing(object);
    recorder::request(&Event::Free { address: object as u64 });
}

/// Gives an object another size, as `resize` does it; what that returns.
#[inline]
pub(crate) fn resizing(object: *mut u8, size: usize, resize: impl FnOnce() -> *mut u8) -> *mut u8 {
    let (recorded, watched) = (recorder::records_requests(), monitor::is_on());
    if !recorded && !watched {
        return resize();
    }
    if recorded {
        recorder::request(&Event::Resize { address: object as u64, size: size as u64 });
    }
    let moved = if watched { monitor::resizing(object, size, resize) } else { resize() };
    if recorded {
        recorder::request(&Event::Resized { address: moved as u64 });
    }
    moved
}
