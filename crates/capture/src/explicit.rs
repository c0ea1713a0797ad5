//! The code names its writes.

use crate::captured::{Captured, Extent, Sizes};
use crate::regions::Regions;
use crate::{Capture, Refused, Statistics};

/// A capture whose caller notes each write. Writes outside of the durable regions are ignored.
pub struct Explicit {
    captured: Captured,
    regions: Regions,
}

impl Explicit {
    /// A capture of writes to `regions`.
    ///
    /// # Errors
    /// As for [`Captured::new`].
    pub fn new(sizes: Sizes, regions: Regions) -> Result<Self, Refused> {
        Ok(Self { captured: Captured::new(sizes)?, regions })
    }

    /// The durable regions.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// The durable regions, for a change. A region is removed between batches only: each byte that was noted stays readable up to the end
    /// of its batch.
    pub fn regions_mut(&mut self) -> &mut Regions {
        &mut self.regions
    }

    /// As [`Capture::note`], for a caller that knows the type.
    #[inline]
    pub fn wrote(&mut self, at: usize, bytes: usize) {
        if self.regions.main_holds(at, bytes) {
            self.captured.note(at, bytes);
        } else {
            self.clip(at, bytes);
        }
    }

    #[cold]
    fn clip(&mut self, at: usize, bytes: usize) {
        self.regions.clip(at, bytes, |at, bytes| self.captured.note(at, bytes));
    }
}

impl Capture for Explicit {
    fn begin(&mut self) {}

    #[inline]
    fn note(&mut self, at: *const u8, bytes: usize) {
        self.wrote(at as usize, bytes);
    }

    fn end(&mut self, see: &mut dyn FnMut(*const u8, usize)) {
        end(&mut self.captured, &self.regions, see);
    }

    fn statistics(&self) -> Statistics {
        self.captured.statistics()
    }
}

/// Drains what was noted, or names every byte of the regions if that was too much.
pub fn end(captured: &mut Captured, regions: &Regions, see: &mut dyn FnMut(*const u8, usize)) {
    if captured.drain(&mut *see) == Extent::Everything {
        every_byte(regions, see);
    }
}

/// Names every byte of the regions.
pub fn every_byte(regions: &Regions, see: &mut dyn FnMut(*const u8, usize)) {
    for region in regions.iter() {
        see(core::ptr::with_exposed_provenance(region.start), region.end - region.start);
    }
}
