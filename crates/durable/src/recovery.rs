//! Recovery: the state's file gets all that the ring has for it.

use spandrel_pmem::Failed;
use spandrel_pmem::disk::{Disk, LogOf};
use spandrel_pmem::tie::{Found, Ties};
use spandrel_redolog::{BUFFER_BYTES, Ring};

use crate::replica::{Lengthen, Replica};

/// What recovery has found and done.
pub struct Recovered {
    /// The ring: the state's file has all of its records.
    pub ring: Ring,
    /// What the file says of itself: that it is complete.
    pub ties: Ties,
    /// Records that were brought into the file.
    pub records: u64,
    /// When the last of them was written, in nanoseconds since 1970; 0: there was none.
    pub time: u64,
}

/// Brings all records that the state's file lacks into it. A failure in between is harmless: the next recovery begins again.
/// `see` is called with the position after each record, and with the ring's end.
///
/// # Errors
/// The disk's; [`Failed::DAMAGED_TIE`]; [`Failed::STALE_LOG`], [`Failed::DAMAGED_LOG`], [`Failed::FOREIGN_LOG`], [`Failed::NOT_A_LOG`]: the
/// ring is not the one that continues the file, or lacks records. Nothing was written then, unless the disk refused.
pub fn recover<D: Disk>(
    disk: &D,
    (identity, tie_at): (u64, u64),
    lengthen: Lengthen<'_>,
    see: &mut dyn FnMut(u64, u64),
) -> Result<Recovered, Failed> {
    let Found::Ties(ties) = Ties::read(disk, tie_at, identity)? else {
        return Err(Failed::DAMAGED_TIE);
    };
    let mut buffer = spandrel_pmem::Buffer::new(BUFFER_BYTES)?;
    let newest = ties.newest();
    let state = (newest.point, newest.is_complete);
    let ring = Ring::open(&LogOf(disk), identity, state, buffer.bytes())?;
    let mut replica = Replica::new(disk, &ring, ties)?;
    let mut records = 0;
    while replica.at() < ring.end() {
        replica.step(lengthen, None)?;
        records += 1;
        see(replica.at() - ring.first(), ring.end() - ring.first());
    }
    replica.settle(true)?;
    let time = if records > 0 { ring.time() } else { 0 };
    Ok(Recovered { ring, ties: *replica.ties(), records, time })
}
