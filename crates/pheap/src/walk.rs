//! All objects that can be reached, in order.

use spandrel_pmem::Medium;

use crate::error::Error;
use crate::header::Header;
use crate::heap::Heap;
use crate::layout::{BITS_WORDS, BLOCK_BYTES};
use crate::mark::Purpose;
use crate::roots::RootType;

/// An object, as it lies in the heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    /// Where it begins: an offset in the heap.
    pub at: usize,
    /// Bytes that it has room for. 0: this is a block that a repair has set aside, with objects of unknown lengths.
    pub bytes: usize,
}

impl<M: Medium> Heap<M> {
    /// The number of blocks that a repair has set aside: the lengths of the objects in them are not known, so that a list of the heap's
    /// objects does not have all that the heap has.
    ///
    /// # Errors
    /// A header is damaged.
    pub fn blocks_aside(&self) -> Result<u64, Error> {
        let (core, mut count) = (self.core(), 0);
        core.each_block(core.bytes() / BLOCK_BYTES, |_, header| {
            count += u64::from(header == Header::Lost);
            Ok(())
        })?;
        Ok(count)
    }

    /// Bytes of all objects that are allocated, reachable or not: those that a thread has in its cache are counted too. No thread changes the heap meanwhile.
    ///
    /// Takes time in proportion to the heap's blocks.
    ///
    /// # Errors
    /// A header is damaged; [`Error::NeedsRecovery`]: the mark bits are not known.
    pub fn allocated_bytes(&self) -> Result<usize, Error> {
        let core = self.core();
        core.check_collected()?;
        let mut bytes = 0;
        core.each_block(core.bytes() / BLOCK_BYTES, |block, header| {
            bytes += match header {
                Header::Free | Header::Lost => 0,
                Header::Small(class) => {
                    let words = 0..class.objects().div_ceil(64);
                    let marks = words.map(|word| core.load(block.bits() + word * 8));
                    marks.map(|marks| marks.count_ones() as usize).sum::<usize>() * class.bytes()
                }
                Header::Large(blocks) => blocks as usize * BLOCK_BYTES,
            };
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Shows every object that can be reached from the roots, in the order in which they lie. No thread changes the heap meanwhile.
    ///
    /// A block that a repair has set aside is shown once if something leads there, with [`Object::bytes`] 0, as the lengths of the objects
    /// in it are not known. [`Restoring::object`](crate::Restoring::object) refuses it.
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
                Header::Lost => {
                    if (0..BITS_WORDS).any(|word| marks.word(block, word) != 0) {
                        see(Object { at: block.start(), bytes: 0 });
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

    /// Shows what looks like a pointer in an object, or in a block that was set aside: where it stands in it, and the object that it leads to.
    pub fn each_pointer(&self, object: Object, see: &mut dyn FnMut(usize, Object)) {
        self.each_word(object, &mut |at, to, is_stale| {
            if !is_stale {
                see(at, to);
            }
        });
    }

    /// Shows the free objects that an object has words of which look like pointers, as they did before the objects were freed. Without the mark bits of a heap that
    /// was closed, or whose mark bits are exact, no object is known to be free.
    pub fn each_stale(&self, object: Object, see: &mut dyn FnMut(Object)) {
        self.each_word(object, &mut |_, to, is_stale| {
            if is_stale {
                see(to);
            }
        });
    }

    fn each_word(&self, object: Object, see: &mut dyn FnMut(usize, Object, bool)) {
        let core = self.core();
        let is_known = core.check_collected().is_ok();
        let bytes = if object.bytes == 0 { BLOCK_BYTES } else { object.bytes };
        let end = (object.at + bytes).min(core.bytes());
        for at in (object.at..end).step_by(8) {
            if let Some(found) = core.meant(core.load(at)).and_then(|to| core.object_of(to)) {
                let to = Object { at: found.start, bytes: found.bytes };
                see(at - object.at, to, is_known && !core.is_marked(&found));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::BlockId;
    use crate::{Media, Options};
    use std::vec::Vec;

    #[test]
    fn allocated_bytes_are_those_of_all_objects() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("heap").to_str().unwrap().as_bytes().to_vec();
        let heap = Options::new().size(2 << 20).create(&path).unwrap();
        let before = heap.allocated_bytes().unwrap();
        let long = heap.alloc_zeroed(3 * BLOCK_BYTES).unwrap();
        let objects: Vec<_> = (0..5000).map(|_| heap.alloc_zeroed(100).unwrap()).collect();
        let bytes = heap.usable_bytes(long).unwrap()
            + objects.iter().map(|object| heap.usable_bytes(*object).unwrap()).sum::<usize>();
        let now = heap.allocated_bytes().unwrap() - before;
        // And those that the thread has in its cache.
        assert!((bytes..bytes + BLOCK_BYTES).contains(&now), "{bytes} {now}");
        // SAFETY: allocated above, and used no more.
        objects.into_iter().chain([long]).for_each(|object| unsafe { heap.free(object).unwrap() });
        heap.close().unwrap();
        let heap = Options::new().open(&path).unwrap().0;
        assert_eq!(heap.allocated_bytes(), Ok(before));
        heap.abandon();
    }

    /// What `dump` relies on: an object of which the length is not known is not taken for one of 16 bytes.
    #[test]
    fn a_block_that_was_set_aside_is_no_object_that_has_a_length() {
        let place = tempfile::tempdir().unwrap();
        let path = |name| place.path().join(name).to_str().unwrap().as_bytes().to_vec();
        let heap = Options::new().size(2 << 20).create(path("a")).unwrap();
        let at = |object| heap.pointer::<u8>(object).offset().unwrap();
        let (kept, lost) = (heap.alloc_zeroed(64).unwrap(), heap.alloc_zeroed(500).unwrap());
        heap.set_root(0, Some(kept)).unwrap();
        heap.set_root(1, Some(lost)).unwrap();
        assert_eq!(heap.blocks_aside(), Ok(0));
        let seen = |heap: &Heap<Media>| {
            let mut all = Vec::new();
            heap.each_object(&[], &mut |object| all.push((object.at, object.bytes))).unwrap();
            all.sort_unstable();
            all
        };
        let mut expected = [(at(kept), 64), (at(lost), 512)];
        expected.sort_unstable();
        assert_eq!(seen(&heap), expected);
        let block = BlockId::of(at(lost));
        heap.core().store(block.header(), Header::Lost.word(block));
        assert_eq!(heap.blocks_aside(), Ok(1));
        let lost_at = block.start();
        assert_eq!(seen(&heap).iter().filter(|found| **found == (lost_at, 0)).count(), 1);
        // A list of such objects makes no heap.
        let mut restoring = Options::new().size(2 << 20).restore(path("b"), 0).unwrap();
        let refused = restoring.object(lost_at, 0, &[]);
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
        drop(restoring);
        heap.abandon();
    }
}
