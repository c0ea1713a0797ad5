//! Restoring: a heap is made from a list of objects, each at the offset that it had.
//!
//! Blocks get headers, and objects get their bytes. Then the heap is abandoned, as a failure would leave it, and opened. Recovery marks
//! what can be reached, and all other metadata follows from the marks: this file need not know how a closed heap says what is free.

use core::mem::ManuallyDrop;

use spandrel_pmem::{Buffer, Media, Medium};

use crate::class::{Class, LARGEST};
use crate::error::Error;
use crate::header::Header;
use crate::heap::{Heap, Opened};
use crate::layout::{BLOCK_BYTES, BlockId, first_block};
use crate::open::Options;
use crate::open_error::Text;
use crate::pointer::PPtr;
use crate::superblock::ROOT_COUNT;

/// A heap that is being restored. Dropped before [`Restoring::finish`], it is a heap that was not closed, with the objects that it has so
/// far.
pub struct Restoring<'a> {
    heap: ManuallyDrop<Heap<Media>>,
    /// How the restored heap is opened, and its path.
    options: Options<'a>,
    path: Text,
    /// Where the last object ends.
    end: usize,
    /// Objects so far.
    objects: u64,
    /// A bit for each place of an object: a free one that words lead to. `None`: there is none so far.
    stale: Option<Bits>,
}

/// A bit for each 16 bytes of a heap, of which the smallest objects are multiples.
struct Bits(Buffer);

impl Bits {
    fn new(heap_bytes: usize) -> Result<Self, Error> {
        Ok(Self(Buffer::new(heap_bytes / SMALLEST / 8 + 1)?))
    }

    fn byte(&mut self, at: usize) -> Option<(&mut u8, u8)> {
        let number = at / SMALLEST;
        self.0.bytes().get_mut(number / 8).map(|byte| (byte, 1 << (number % 8)))
    }

    fn set(&mut self, at: usize) {
        if let Some((byte, bit)) = self.byte(at) {
            *byte |= bit;
        }
    }

    /// Clears the bit of a place; returns whether it was set.
    fn take(&mut self, at: usize) -> bool {
        let Some((byte, bit)) = self.byte(at) else { return false };
        let was = *byte & bit != 0;
        *byte &= !bit;
        was
    }
}

/// Bytes of the smallest objects.
const SMALLEST: usize = 16;

impl core::fmt::Debug for Restoring<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Restoring")
            .field("heap", &*self.heap)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl Drop for Restoring<'_> {
    fn drop(&mut self) {
        // SAFETY: `drop` runs once, and no other code takes the heap.
        unsafe { ManuallyDrop::take(&mut self.heap) }.abandon();
    }
}

impl<'a> Options<'a> {
    /// Makes a heap for objects that lay in another heap. Size and layout are those of the options. The heap is fixed at `base`; 0: it has
    /// no base of its own.
    ///
    /// # Errors
    /// As for [`Options::create`]; [`Error::BaseTaken`].
    pub fn restore(&self, path: impl AsRef<[u8]>, base: u64) -> Result<Restoring<'a>, Error> {
        let path = path.as_ref();
        let kept = Text::new(path).ok_or(Error::NoMemory)?;
        let heap = self.at_base(base).create(path)?;
        Ok(Restoring {
            heap: ManuallyDrop::new(heap),
            options: *self,
            path: kept,
            end: 0,
            objects: 0,
            stale: None,
        })
    }
}

impl Restoring<'_> {
    /// Puts an object at an offset, which has room for `bytes` bytes and begins with `held`; the rest of it is zero. Objects come in the
    /// order in which they lie.
    ///
    /// # Errors
    /// [`Error::Damaged`]: no object of that size can lie there, or something of it lies in the one before; its length is not known (0
    /// bytes: a repair has set its block aside).
    pub fn object(&mut self, at: usize, bytes: usize, held: &[u8]) -> Result<(), Error> {
        let wrong = |what| Error::Damaged { at: at as u64, what };
        let core = self.heap.core();
        let block = BlockId::of(at);
        let end = at.checked_add(bytes).filter(|end| *end <= core.bytes());
        let end = end.ok_or(wrong("an object that ends behind the heap"))?;
        if bytes == 0 {
            return Err(wrong("an object of unknown length"));
        }
        if at < self.end || held.len() > bytes {
            return Err(wrong("an object that overlaps with the one before, or holds too much"));
        }
        if block < first_block(block.region()) {
            return Err(wrong("an object where the heap keeps its own"));
        }
        let misplaced = wrong("an object that does not lie as objects of its size do");
        let header = match bytes {
            0..=LARGEST => {
                let class = Class::of(bytes).filter(|class| class.bytes() == bytes);
                let class = class.ok_or(misplaced)?;
                let in_block = at - block.start();
                let number = class.object_at(in_block);
                if number * class.bytes() != in_block || number >= class.objects() {
                    return Err(misplaced);
                }
                Header::Small(class)
            }
            _ => {
                let count = bytes / BLOCK_BYTES;
                if at != block.start() || !bytes.is_multiple_of(BLOCK_BYTES) {
                    return Err(misplaced);
                }
                core.check_large(block, count, core.bytes() / BLOCK_BYTES)?;
                Header::Large(u32::try_from(count).map_err(|_| misplaced)?)
            }
        };
        // Compares the region's sums before a header of it changes, and stamps it, so that a failure finds the sums void.
        core.scan_to(block.region())?;
        match core.header(block)? {
            Header::Free => {
                core.set_header(block, header);
                // The object's bytes lie where the regions that it goes on in would have metadata: a later scan must not read them as such.
                if let Header::Large(count) = header {
                    let last = block.plus(count as usize - 1).region();
                    (block.region() + 1..=last).for_each(|region| core.set_continues(region, true));
                }
            }
            found if found == header && bytes <= LARGEST => {}
            _ => return Err(wrong("an object in a block of objects of another size")),
        }
        // SAFETY: within the heap by the checks above, and behind the object before; no other thread has the heap.
        unsafe { core.medium.store(at, held) };
        core.write_back(at, held.len());
        self.end = end;
        self.objects += 1;
        Ok(())
    }

    /// Says that words of the objects look like pointers to the place at an offset, where no object is: it was freed. An object that recovery finds there is free again.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn stale(&mut self, at: usize) -> Result<(), Error> {
        let bits = match &mut self.stale {
            Some(bits) => bits,
            none => none.insert(Bits::new(self.heap.bytes())?),
        };
        bits.set(at);
        Ok(())
    }

    /// Sets a root to the object at an offset, or to nothing, and gives it its name and the layout of its type.
    ///
    /// # Errors
    /// [`Error::RootIndex`], [`Error::RootName`]; [`Error::Damaged`]: another root has that index or name.
    pub fn root(
        &mut self,
        index: usize,
        name: Option<(&str, u64)>,
        to: Option<usize>,
    ) -> Result<(), Error> {
        let wrong = |what| Error::Damaged { at: to.unwrap_or(0) as u64, what };
        if self.heap.root_word(index)? != 0 || self.heap.root_name(index).is_some() {
            return Err(wrong("two roots of one index"));
        }
        let core = self.heap.core();
        if let Some((name, _)) = name
            && core.find_root(name)?.is_some()
        {
            return Err(wrong("two roots of one name"));
        }
        core.set_root(index, to.map_or(0, |at| PPtr::<u8>::to(at).raw()))?;
        name.map_or(Ok(()), |(name, layout)| core.name_root(index, name, layout))
    }

    /// Opens the restored heap with recovery.
    ///
    /// # Errors
    /// As for [`Heap::checkpoint`] and [`Options::open`]; [`Error::Damaged`]: a root leads to no object, or, without a place (0), the objects are
    /// not just those that the roots lead to.
    pub fn finish(mut self) -> Result<(Heap<Media>, Opened), Error> {
        self.heap.core().fence();
        self.heap.checkpoint()?;
        let options = self.options;
        let path = Text::new(self.path.bytes()).ok_or(Error::NoMemory)?;
        let (objects, stale) = (self.objects, self.stale.take());
        drop(self);
        let (heap, opened) = options.open(path.bytes())?;
        for index in 0..ROOT_COUNT {
            let word = heap.root_word(index)?;
            let object = heap.get_root(index)?;
            if word != 0 && object.is_none_or(|object| heap.usable_bytes(object).is_err()) {
                let at = PPtr::<u8>::from_raw(word).offset().unwrap_or(0) as u64;
                return Err(Error::Damaged { at, what: "a root that leads to no object" });
            }
        }
        let freed = stale.map_or(Ok(0), |stale| free_stale(&heap, stale))?;
        let found = opened.collected.map_or(0, |collected| collected.live).saturating_sub(freed);
        if found != objects {
            let what = match found < objects {
                true => "objects that no root leads to",
                false => "pointers to objects that it does not have",
            };
            return Err(Error::Damaged { at: 0, what });
        }
        Ok((heap, opened))
    }
}

/// Frees the objects that recovery has found at these places; returns their number.
fn free_stale(heap: &Heap<Media>, mut stale: Bits) -> Result<u64, Error> {
    let mut places = Bits::new(heap.bytes())?;
    heap.each_object(&[], &mut |object| {
        if stale.take(object.at) {
            places.set(object.at);
        }
    })?;
    let mut freed = 0;
    let bytes = places.0.bytes();
    for (number, byte) in bytes.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
            let object = heap.core().at((number * 8 + bit) * SMALLEST);
            // SAFETY: an object of the heap, which no other thread has, and which the list says is free.
            unsafe { heap.free(object)? };
            freed += 1;
        }
    }
    Ok(freed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Choice;
    use crate::layout::REGION_BYTES;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn objects_and_roots_are_where_they_were() {
        for (choice, is_fixed) in
            [(Choice::Mapped, false), (Choice::Logged, false), (Choice::Mapped, true)]
        {
            let place = tempfile::tempdir().unwrap();
            let path = |name| place.path().join(name).to_str().unwrap().as_bytes().to_vec();
            let options = Options::new().size(3 << 20).medium(choice).layout(77);
            let made = if is_fixed { options.fixed() } else { options };
            let heap = made.create(path("a")).unwrap();
            // The last one goes on in the next region.
            let last = if choice == Choice::Logged { 65 << 20 } else { 300_000 };
            let sizes = [16, 100, 5000, 70_000, 2_000_000, last];
            for (root, bytes) in sizes.into_iter().enumerate() {
                let object = heap.alloc_zeroed(bytes).unwrap();
                // SAFETY: within the object.
                unsafe { object.as_ptr().write_bytes(root as u8 + 1, bytes.min(70_000)) };
                heap.set_root(root, Some(object)).unwrap();
            }
            let numbered = heap.named_root_of("numbers", 7).unwrap();
            let read = |heap: &Heap<Media>| {
                let mut all = Vec::new();
                let see = &mut |object: crate::Object| {
                    // SAFETY: within the heap.
                    let held = unsafe {
                        let at = heap.base().add(object.at);
                        core::slice::from_raw_parts(at.as_ptr(), object.bytes)
                    };
                    all.push((object, held.to_vec()));
                };
                heap.each_object(&[], see).unwrap();
                all
            };
            let objects = read(&heap);
            let (bytes, base) = (heap.bytes(), heap.fixed_base().unwrap_or(0));
            let words: Vec<_> = (0..512).map(|root| heap.root_word(root).unwrap()).collect();
            heap.close().unwrap();
            let options = options.size(bytes);
            let mut restoring = options.restore(path("b"), base).unwrap();
            for (object, held) in &objects {
                restoring.object(object.at, object.bytes, held).unwrap();
            }
            for (root, word) in words.iter().enumerate() {
                let name = (root == numbered).then_some(("numbers", 7));
                restoring.root(root, name, PPtr::<u8>::from_raw(*word).offset()).unwrap();
            }
            let (heap, opened) = restoring.finish().unwrap();
            assert_eq!(opened.collected.unwrap().live, sizes.len() as u64);
            assert!(read(&heap) == objects);
            assert_eq!(heap.fixed_base().unwrap_or(0), base);
            let again: Vec<_> = (0..512).map(|root| heap.root_word(root).unwrap()).collect();
            assert_eq!(again, words);
            assert_eq!(heap.named_root_of("numbers", 7), Ok(numbered));
            for bytes in sizes {
                heap.alloc(bytes).unwrap();
            }
            heap.close().unwrap();
            let medium = crate::copy(path("b")).unwrap();
            let survey = crate::check(&medium, &[], &mut |_| ()).unwrap();
            assert_eq!((survey.damaged, survey.live), (0, sizes.len() as u64));
        }
    }

    /// The long object's bytes lie where the second region that it covers would have its metadata.
    #[test]
    fn an_object_behind_one_that_is_longer_than_a_region_is_restored() {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = place.path().join("a").to_str().unwrap().as_bytes().to_vec();
        let [long, small] = [1, 3].map(|region| first_block(region).start());
        let options = Options::new().size(small + BLOCK_BYTES);
        let mut restoring = options.restore(&path, 0).unwrap();
        let held = vec![0xa5; 2 * REGION_BYTES + BLOCK_BYTES - long];
        restoring.object(long, 3 * REGION_BYTES - long, &held).unwrap();
        restoring.object(small, 64, &[7; 64]).unwrap();
        restoring.root(0, None, Some(long)).unwrap();
        restoring.root(1, None, Some(small)).unwrap();
        let (heap, opened) = restoring.finish().unwrap();
        assert_eq!(opened.collected.unwrap().live, 2);
        let object = heap.get_root(1).unwrap().unwrap();
        // SAFETY: the object has 64 bytes.
        assert_eq!(unsafe { object.cast::<[u8; 64]>().read() }, [7; 64]);
        heap.close().unwrap();
    }

    #[test]
    fn a_list_that_is_not_whole_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let first = crate::layout::LEAST_BYTES;
        let restored = |name: &str, objects: &[(usize, u64)], root: usize| {
            let path = place.path().join(name).to_str().unwrap().as_bytes().to_vec();
            let mut restoring = Options::new().size(4 << 20).restore(&path, 0).unwrap();
            for (at, word) in objects {
                restoring.object(*at, 16, &word.to_le_bytes()).unwrap();
            }
            restoring.root(0, None, Some(root)).unwrap();
            restoring.finish().map(|(heap, _)| heap.close().unwrap())
        };
        let second = PPtr::<u8>::to(first + 16).raw();
        assert_eq!(restored("whole", &[(first, second), (first + 16, 0)], first), Ok(()));
        for (name, objects, root) in [
            ("one is missing", &[(first, second)][..], first),
            ("one too many", &[(first, 0), (first + 16, 0)], first),
            ("a root to none", &[(first, 0)], first + BLOCK_BYTES),
        ] {
            let refused = restored(name, objects, root);
            assert!(matches!(refused, Err(Error::Damaged { .. })), "{name}: {refused:?}");
        }
    }

    /// A word of an untyped object may still lead to one that was freed.
    #[test]
    fn an_object_that_was_freed_is_free_again() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a").to_str().unwrap().as_bytes().to_vec();
        let first = crate::layout::LEAST_BYTES;
        let mut restoring = Options::new().size(4 << 20).restore(&path, 0).unwrap();
        let word = |at| PPtr::<u8>::to(at).raw().to_le_bytes();
        let held = [word(first + 16), word(first + 32), word(first + BLOCK_BYTES)].concat();
        restoring.object(first, 16, &held[..16]).unwrap();
        restoring.object(first + 16, 16, &held[16..]).unwrap();
        // The last one lies in a block without objects: recovery finds none.
        restoring.stale(first + 32).unwrap();
        restoring.stale(first + BLOCK_BYTES).unwrap();
        restoring.root(0, None, Some(first)).unwrap();
        let (heap, opened) = restoring.finish().unwrap();
        assert_eq!(opened.collected.unwrap().live, 3);
        let mut all = Vec::new();
        heap.close().unwrap();
        let (heap, _) = Options::new().open(&path).unwrap();
        heap.each_object(&[], &mut |object| all.push(object.at)).unwrap();
        assert_eq!(all, [first, first + 16]);
        let mut stale = Vec::new();
        heap.each_stale(crate::Object { at: first, bytes: 16 }, &mut |to| stale.push(to.at));
        assert_eq!(stale, [first + 32]);
        heap.close().unwrap();
    }

    #[test]
    fn what_cannot_be_an_object_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a").to_str().unwrap().as_bytes().to_vec();
        let mut restoring = Options::new().size(4 << 20).restore(&path, 0).unwrap();
        let first = crate::layout::LEAST_BYTES;
        for (at, bytes) in [
            (first, 17),
            (first + 8, 16),
            (first, 0),
            (first, 40_000),
            (first + 4096, BLOCK_BYTES),
            (first, 64 << 20),
            (BLOCK_BYTES, 16),
            (usize::MAX - 8, 16),
        ] {
            let refused = restoring.object(at, bytes, &[]);
            assert!(matches!(refused, Err(Error::Damaged { .. })), "{at:#x} {bytes}: {refused:?}");
        }
        restoring.object(first, 16, &[1; 16]).unwrap();
        assert!(restoring.object(first, 16, &[]).is_err(), "the same again");
        assert!(restoring.object(first + 48, 48, &[]).is_err(), "another size");
        assert!(restoring.object(first + 32, 16, &[1; 17]).is_err(), "more than fits");
        restoring.object(first + 16, 16, &[]).unwrap();
        restoring.object(first + BLOCK_BYTES, 2 * BLOCK_BYTES, &[]).unwrap();
        assert!(
            restoring.object(first + 2 * BLOCK_BYTES, 16, &[]).is_err(),
            "within the one before"
        );
        assert_eq!(restoring.root(512, None, None), Err(Error::RootIndex(512)));
        restoring.root(2, Some(("name", 0)), Some(first)).unwrap();
        for (index, name) in [(2, None), (3, Some(("name", 1)))] {
            let refused = restoring.root(index, name, Some(first));
            assert!(matches!(refused, Err(Error::Damaged { .. })), "{index}: {refused:?}");
        }
        assert_eq!(restoring.root(1, Some(("", 0)), None), Err(Error::RootName));
    }
}
