//! All objects that can be reached, in order.

use spandrel_pmem::Medium;

use crate::error::Error;
use crate::header::Header;
use crate::heap::Heap;
use crate::layout::{BLOCK_BYTES, GRANULE_BYTES};
use crate::mark::Purpose;
use crate::roots::RootType;

/// An object, as it lies in the heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    /// Where it begins: an offset in the heap.
    pub at: usize,
    /// Bytes that it has room for.
    pub bytes: usize,
}

impl<M: Medium> Heap<M> {
    /// Shows every object that can be reached from the roots, in the order in which they lie. No thread changes the heap meanwhile.
    ///
    /// # Errors
    /// As for [`Heap::collect`].
    pub fn each_object(
        &self,
        types: &[RootType<'_>],
        see: &mut dyn FnMut(Object),
    ) -> Result<(), Error> {
        let core = self.core();
        let is_known = core.check_collected().is_ok();
        let purpose = if is_known { Purpose::LookAtAllocated } else { Purpose::Look };
        let (marks, _) = core.mark(types, purpose)?;
        core.each_block(core.bytes() / BLOCK_BYTES, |block, header| {
            match header {
                Header::Free => {}
                // Each granule that something leads to; how long an object there is, is not known.
                Header::Lost => {
                    let is_marked =
                        |number: &usize| marks.word(block, number / 64) >> (number % 64) & 1 == 1;
                    for number in (0..BLOCK_BYTES / GRANULE_BYTES).filter(is_marked) {
                        let at = block.start() + number * GRANULE_BYTES;
                        see(Object { at, bytes: GRANULE_BYTES });
                    }
                }
                Header::Small(class) => {
                    let is_marked =
                        |number: &usize| marks.word(block, number / 64) >> (number % 64) & 1 == 1;
                    for number in (0..class.objects()).filter(is_marked) {
                        let at = block.start() + number * class.bytes();
                        see(Object { at, bytes: class.bytes() });
                    }
                }
                Header::Large(blocks) => {
                    if marks.word(block, 0) != 0 {
                        see(Object { at: block.start(), bytes: blocks as usize * BLOCK_BYTES });
                    }
                }
            }
            Ok(())
        })
    }

    /// Shows what looks like a pointer in an object: where it stands in it, and the object that it leads to.
    pub fn each_pointer(&self, object: Object, see: &mut dyn FnMut(usize, Object)) {
        let core = self.core();
        let end = (object.at + object.bytes).min(core.bytes());
        for at in (object.at..end).step_by(8) {
            if let Some(found) = core.meant(core.load(at)).and_then(|to| core.object_of(to)) {
                see(at - object.at, Object { at: found.start, bytes: found.bytes });
            }
        }
    }
}
