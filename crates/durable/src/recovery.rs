//! Recovery: the state's file gets all that the ring has for it.

use spandrel_pmem::Failed;
use spandrel_pmem::disk::{Disk, LogOf, Which};
use spandrel_pmem::tie::{self, Found, Ties};
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
/// The disk's; [`Failed::DAMAGED_TIE`]; [`Failed::CUT_OFF`]; [`Failed::STALE_LOG`], [`Failed::DAMAGED_LOG`], [`Failed::FOREIGN_LOG`], [`Failed::NOT_A_LOG`]: the
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
    if ties.is_cut(disk.bytes(Which::Image)?) {
        return Err(Failed::CUT_OFF);
    }
    let mut buffer = spandrel_pmem::Buffer::new(BUFFER_BYTES)?;
    let newest = ties.newest();
    let state = (newest.point, newest.is_complete);
    let ring = Ring::open(&LogOf(disk), identity, state, buffer.bytes())?;
    // What was read is relied on from here: the last record and the tie may be in a cache only, and a second failure may take them from there.
    if ring.end() > ring.first() {
        ring.write_last_again(&LogOf(disk), buffer.bytes())?;
    }
    disk.allow(Which::Image, tie_at + tie::BYTES as u64)?;
    ties.write_again(disk)?;
    disk.sync(Which::Image)?;
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
