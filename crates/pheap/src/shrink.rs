//! Room released to the disk: a file is cut behind the last block that is in use.
//!
//! The order makes any failure harmless. First the heap is closed with a record that says the shorter length: all behind it is free, by
//! headers that are durable. Then the file is cut. Between the two the file is longer than its record says, and the next
//! opening has free blocks at its end again.

use spandrel_os::image::{Access, Image};
use spandrel_pmem::one_file::OneFile;
use spandrel_pmem::tie::Ties;
use spandrel_pmem::{Failed, LINE_BYTES, Medium, peek};

use crate::error::Error;
use crate::header::Header;
use crate::identify::identity_of;
use crate::layout::{BLOCK_BYTES, LEAST_BYTES, REGION_BLOCKS, first_block};
use crate::limits::CPath;
use crate::open::{LOG, Options};
use crate::shared::Core;
use crate::sums::region_line;
use crate::superblock::{Record, State, TIE};

/// How long a file was, and is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shrunk {
    /// Bytes before.
    pub from: u64,
    /// Bytes now.
    pub to: u64,
}

impl<M: Medium> Core<M> {
    /// The blocks that a heap needs: up to the last one that is in use. Nothing was allocated since it was opened.
    fn needed_blocks(&self) -> Result<usize, Error> {
        let count = self.bytes() / BLOCK_BYTES;
        let mut end = 0;
        self.each_block(count, |block, header| {
            match header {
                Header::Free => {}
                Header::Small(_) | Header::Lost => end = block.0 as usize + 1,
                Header::Large(blocks) => end = block.0 as usize + blocks as usize,
            }
            Ok(())
        })?;
        // A region of which no block is needed is not there either; all of it that is has its metadata whole.
        let region = end / REGION_BLOCKS;
        if end % REGION_BLOCKS > 0 {
            end = end.max(first_block(region).0 as usize + 1);
        }
        Ok(end.max(LEAST_BYTES / BLOCK_BYTES).min(count))
    }

    /// The heap is as long as that when it is closed.
    fn set_blocks(&self, count: usize) {
        let mut blocks = self.blocks.lock();
        let was = core::mem::replace(&mut blocks.count, count);
        // Regions that are not there any more are as fresh ones if the file is not cut: the closing record's sum has not their lines.
        for region in count.div_ceil(REGION_BLOCKS)..was.div_ceil(REGION_BLOCKS) {
            let line = region_line(region);
            (line..line + LINE_BYTES).step_by(8).for_each(|at| self.store(at, 0));
            self.write_back(line, LINE_BYTES);
        }
        self.fence();
        self.record.lock().bytes = (count * BLOCK_BYTES) as u64;
        self.note_bytes(count * BLOCK_BYTES);
    }
}

impl Options<'_> {
    /// Cuts a heap's file behind its last object. The heap must not be open; one that was not closed is recovered.
    ///
    /// Objects stay where they are, so that one at the end keeps all before it. What cannot be reached stays as well: [`Heap::collect`](crate::Heap::collect) frees
    /// it.
    ///
    /// # Errors
    /// As for [`Options::open`] and [`Heap::close`](crate::Heap::close). The heap is whole in any case.
    pub fn shrink(&self, path: impl AsRef<[u8]>) -> Result<Shrunk, Error> {
        let path = path.as_ref();
        let (heap, _) = self.open(path)?;
        heap.core().look_at_all()?;
        let from = heap.bytes();
        heap.close()?;
        let (heap, _) = self.open(path)?;
        let blocks = heap.core().needed_blocks()?;
        let to = blocks * BLOCK_BYTES;
        if to < heap.bytes() {
            heap.core().set_blocks(blocks);
        }
        heap.close()?;
        let is_cut = to < from && cut(path, to as u64)?;
        Ok(Shrunk { from: from as u64, to: if is_cut { to } else { from } as u64 })
    }
}

/// Cuts the file of a replica that is between two batches, also of one that was not closed. Nothing is collected: what is allocated stays, whatever leads to it.
///
/// # Errors
/// As for [`Options::shrink`].
pub fn shrink_replica(path: impl AsRef<[u8]>) -> Result<Shrunk, Error> {
    Options::new().replica().shrink(path)
}

/// Cuts the file of a heap that was closed to `to` bytes. False: the heap was used since, or another file has its path, and nothing was cut.
///
/// One descriptor has the lock, the record and the cut. So what is cut is a file of which the record says that it has `to` bytes, whichever
/// file has the path now.
///
/// # Errors
/// The disk's.
fn cut(path: &[u8], to: u64) -> Result<bool, Error> {
    let system = |why| Error::from(Failed(why));
    let image = Image::open(CPath::new(path, b"").map_err(Error::System)?.as_c(), Access::Write)
        .map_err(system)?;
    match image.lock(Access::Write) {
        Err(libc::EWOULDBLOCK) => return Ok(false),
        locked => locked.map_err(system)?,
    }
    // A heap that was closed has no log, or an empty one. What a log has would come after the record.
    let log = peek(CPath::new(path, LOG).map_err(Error::System)?.as_c(), &mut []);
    let has_log = !matches!(log, Err(Failed(libc::ENOENT)) | Ok((_, 0)));
    let record = Record::of_file(|into, at| image.read_at(into, at)).map_err(system)?;
    let is_closed = record.is_some_and(|record| record.state == State::Clean && record.bytes == to);
    if is_closed && !has_log {
        let identity = identity_of(&image)?.0.uuid[0];
        Ties::shorten(&OneFile(&image), TIE as u64, identity, to)?;
        image.shorten(to).map_err(system)?;
        image.sync().map_err(system)?;
    }
    Ok(is_closed && !has_log)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Choice, Heap, Media, check};
    use proptest::prelude::*;
    use std::string::{String, ToString};
    use std::vec;
    use std::vec::Vec;

    fn options(choice: Choice) -> Options<'static> {
        Options::new().size(1 << 20).medium(choice)
    }

    struct Place(tempfile::TempDir);

    impl Place {
        fn path(&self) -> String {
            self.0.path().join("heap").to_str().unwrap().to_string()
        }

        fn bytes(&self) -> u64 {
            std::fs::metadata(self.path()).unwrap().len()
        }

        fn is_sound(&self) {
            let medium = crate::copy(self.path()).unwrap();
            let survey = check(&medium, &[], &mut |found| panic!("{found}")).unwrap();
            assert_eq!(survey.damaged, 0);
        }
    }

    /// The words of an object that are looked at: all, or one of each page.
    fn words(bytes: usize) -> impl Iterator<Item = usize> {
        (0..bytes / 8).step_by(if bytes > 16_384 { 512 } else { 1 })
    }

    /// Puts an object of that many bytes under a root, whose words say the root.
    fn put(heap: &Heap<Media>, root: usize, bytes: usize) {
        let object = heap.alloc(bytes).unwrap().cast::<u64>();
        for word in words(bytes) {
            // SAFETY: within the object, which is this function's.
            unsafe { object.add(word).write(root as u64) };
        }
        heap.set_root(root, Some(object.cast())).unwrap();
    }

    fn holds(heap: &Heap<Media>, root: usize, bytes: usize) {
        let object = heap.get_root(root).unwrap().unwrap().cast::<u64>();
        // SAFETY: what was put there.
        assert!(words(bytes).all(|word| unsafe { object.add(word).read() } == root as u64));
    }

    fn take(heap: &Heap<Media>, root: usize) {
        let object = heap.get_root(root).unwrap().unwrap();
        heap.set_root(root, None).unwrap();
        // SAFETY: no other code uses it.
        unsafe { heap.free(object).unwrap() };
    }

    #[test]
    fn free_blocks_at_the_end_are_given_back_and_can_be_had_again() {
        for choice in [Choice::Mapped, Choice::Logged] {
            let place = Place(tempfile::tempdir().unwrap());
            let heap = options(choice).create(place.path()).unwrap();
            put(&heap, 0, 100);
            put(&heap, 1, 300_000);
            // Of more than a region, and of many small ones.
            put(&heap, 2, 90 << 20);
            for root in 3..100 {
                put(&heap, root, 5000);
            }
            (2..100).for_each(|root| take(&heap, root));
            heap.close().unwrap();
            let before = place.bytes();
            assert!(before > 90 << 20);
            let shrunk = options(choice).shrink(place.path()).unwrap();
            assert_eq!(shrunk, Shrunk { from: before, to: place.bytes() });
            assert!(place.bytes() < 4 << 20, "{shrunk:?}");
            place.is_sound();
            let again = options(choice).shrink(place.path()).unwrap();
            assert_eq!(again.from, again.to);
            let (heap, opened) = options(choice).open(place.path()).unwrap();
            assert!(opened.was_clean && heap.bytes() as u64 == shrunk.to);
            put(&heap, 2, 90 << 20);
            for (root, bytes) in [(0, 100), (1, 300_000), (2, 90 << 20)] {
                holds(&heap, root, bytes);
            }
            heap.close().unwrap();
            place.is_sound();
        }
    }

    #[test]
    fn an_empty_heap_keeps_the_least_that_one_has() {
        let place = Place(tempfile::tempdir().unwrap());
        let heap = options(Choice::Auto).size(100 << 20).create(place.path()).unwrap();
        assert_eq!(options(Choice::Auto).shrink(place.path()), Err(Error::Locked));
        heap.close().unwrap();
        let shrunk = options(Choice::Auto).shrink(place.path()).unwrap();
        assert_eq!(shrunk, Shrunk { from: 100 << 20, to: LEAST_BYTES as u64 });
        place.is_sound();
        let (heap, _) = options(Choice::Auto).open(place.path()).unwrap();
        put(&heap, 0, 10_000_000);
        heap.close().unwrap();
        place.is_sound();
    }

    /// A failure between the record and the cut leaves a file that is longer than its record says.
    #[test]
    fn a_failure_before_the_file_is_cut_leaves_all_of_it() {
        let sizes = [9 << 20, 90 << 20, 150 << 20];
        for (choice, large) in
            sizes.into_iter().flat_map(|bytes| [(Choice::Mapped, bytes), (Choice::Logged, bytes)])
        {
            let place = Place(tempfile::tempdir().unwrap());
            let heap = options(choice).create(place.path()).unwrap();
            put(&heap, 0, 70_000);
            put(&heap, 1, large);
            put(&heap, 2, 5_000_000);
            take(&heap, 1);
            take(&heap, 2);
            heap.close().unwrap();
            let before = place.bytes();
            let (heap, _) = options(choice).open(place.path()).unwrap();
            let blocks = heap.core().needed_blocks().unwrap();
            heap.core().set_blocks(blocks);
            heap.close().unwrap();
            assert_eq!(place.bytes(), before);
            place.is_sound();
            let (heap, opened) = options(choice).open(place.path()).unwrap();
            assert!(opened.was_clean && heap.bytes() as u64 == before);
            put(&heap, 1, 8 << 20);
            holds(&heap, 0, 70_000);
            heap.abandon();
            let shrunk = options(choice).shrink(place.path()).unwrap();
            assert_eq!(shrunk.from, before);
            place.is_sound();
        }
    }

    /// An older copy of the heap, as a program puts a backup back: it has the same identity.
    #[test]
    fn another_file_that_has_got_the_path_is_not_cut() {
        for choice in [Choice::Mapped, Choice::Logged] {
            let place = Place(tempfile::tempdir().unwrap());
            let heap = options(choice).create(place.path()).unwrap();
            put(&heap, 0, 70_000);
            put(&heap, 1, 8 << 20);
            heap.close().unwrap();
            let backup = place.0.path().join("backup");
            std::fs::copy(place.path(), &backup).unwrap();
            let before = place.bytes();
            let (heap, _) = options(choice).open(place.path()).unwrap();
            take(&heap, 1);
            heap.close().unwrap();
            let (heap, _) = options(choice).open(place.path()).unwrap();
            let blocks = heap.core().needed_blocks().unwrap();
            heap.core().set_blocks(blocks);
            heap.close().unwrap();
            let to = (blocks * BLOCK_BYTES) as u64;
            assert!(to < before);
            std::fs::rename(&backup, place.path()).unwrap();
            assert_eq!(cut(place.path().as_bytes(), to), Ok(false));
            assert_eq!(place.bytes(), before);
            let (heap, _) = options(choice).open(place.path()).unwrap();
            // Nor is a heap that is open.
            assert_eq!(cut(place.path().as_bytes(), before), Ok(false));
            holds(&heap, 0, 70_000);
            holds(&heap, 1, 8 << 20);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

        /// Objects come and go between shrinking, and those that stay are as they were.
        #[test]
        fn what_is_in_use_stays_whatever_is_given_back(
            is_logged: bool,
            rounds in prop::collection::vec(
                prop::collection::vec((0usize..24, 0u32..22, any::<bool>()), 1..30), 1..5
            ),
        ) {
            let choice = if is_logged { Choice::Logged } else { Choice::Mapped };
            let place = Place(tempfile::tempdir_in("/dev/shm").unwrap());
            options(choice).create(place.path()).unwrap().close().unwrap();
            let mut model: Vec<usize> = vec![0; 24];
            for round in rounds {
                let (heap, _) = options(choice).open(place.path()).unwrap();
                let mut last = true;
                for (root, shift, closes) in round {
                    if model[root] > 0 {
                        take(&heap, root);
                        model[root] = 0;
                    } else {
                        model[root] = (8usize << shift) / 3 * 2 + 8;
                        put(&heap, root, model[root]);
                    }
                    last = closes;
                }
                match last {
                    true => heap.close().unwrap(),
                    false => {
                        heap.checkpoint().unwrap();
                        heap.abandon();
                    }
                }
                let shrunk = options(choice).shrink(place.path()).unwrap();
                prop_assert_eq!(shrunk.to, place.bytes());
                place.is_sound();
                let (heap, opened) = options(choice).open(place.path()).unwrap();
                prop_assert!(opened.was_clean);
                for (root, bytes) in model.iter().enumerate() {
                    match bytes {
                        0 => prop_assert!(heap.get_root(root).unwrap().is_none()),
                        bytes => holds(&heap, root, *bytes),
                    }
                }
                heap.close().unwrap();
            }
        }
    }
}
