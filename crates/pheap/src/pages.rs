//! Sums of all pages: the options of heaps that have them, the comparison of pages with their sums, and what lies on a page that differs.

use spandrel_pages::PAGE_BYTES;
use spandrel_pmem::{Keep, Medium, Mismatch, Standing};

use crate::check::{Finding, Kind};
use crate::error::Error;
use crate::heap::Heap;
use crate::open::Options;
use crate::pointer::offset_of;
use crate::roots::RootName;
use crate::shared::Core;
use crate::superblock::{ROOT_COUNT, ROOTS};

/// The objects that lie on a page, as a whole or in part. All have one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageObjects {
    /// The offset of the first one.
    pub at: u64,
    /// Bytes of each.
    pub bytes: u64,
    /// The number of objects, free ones included.
    pub count: u64,
    /// The root that leads to one of them, if there is one.
    pub root: Option<usize>,
    /// The name of that root.
    pub name: Option<RootName>,
}

/// The outcome of [`Heap::verify_sums`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verified {
    /// Whether the pages were compared, and why not.
    pub standing: Standing,
    /// The number of pages that are not what their sums say, and of damaged sums.
    pub pages: u64,
}

impl<M: Medium> Core<M> {
    /// Compares all pages with their sums. What lies on a page is said if `is_safe` is set: the headers of blocks are sound.
    ///
    /// # Errors
    /// The file system's.
    pub fn compare_pages(
        &self,
        is_safe: bool,
        report: &mut dyn FnMut(&Finding),
    ) -> Result<Standing, Error> {
        let standing = self.medium.compare_sums(&mut |at, mismatch| {
            let what = match mismatch {
                Mismatch::Page => "a page that is not what its sum says",
                Mismatch::Known => "a page that was found damaged before",
                Mismatch::Sum => "a damaged sum, so that nothing is known of its page",
            };
            let place = usize::try_from(at).ok().filter(|_| is_safe);
            let objects = place.and_then(|at| self.objects_on(at));
            report(&Finding { at, kind: Kind::Page, what, objects });
        })?;
        Ok(standing)
    }

    /// The objects on a page; `None`: the heap's own structures, or a free block.
    fn objects_on(&self, page: usize) -> Option<PageObjects> {
        let end = page + PAGE_BYTES;
        // The end of a block has no object.
        let first = self.object_of(page)?;
        let last = (page..end).rev().step_by(16).find_map(|at| self.object_of(at));
        let last = last.map_or(first.start, |last| last.start);
        let count = (last - first.start) / first.bytes.max(1) + 1;
        let is_here = |index: &usize| {
            let to = offset_of(self.load(ROOTS + index * 8));
            to.is_some_and(|to| (first.start..=last).contains(&to))
        };
        let root = (0..ROOT_COUNT).find(is_here);
        Some(PageObjects {
            at: first.start as u64,
            bytes: first.bytes as u64,
            count: count as u64,
            root,
            name: root.and_then(|root| self.root_name(root)),
        })
    }
}

impl Options<'_> {
    /// A logged heap has a sum of each of its pages of 4 KiB, in a file beside it (`FILE.sum`), so that `spandrel heap check` and
    /// [`Heap::verify_sums`] find bits that have flipped in what the program has stored. A heap that has none gets them
    /// when it is opened, for which all of it is read. Later openings keep them up without this option. With `false` the file is removed.
    ///
    /// Opening compares nothing. A page that the program writes to before it was compared gets the sum of what it then holds.
    ///
    /// A mapped heap is refused ([`Error::MappedSums`]), and so is a file of that name that is none of this heap ([`Error::ForeignSums`]).
    pub const fn sums(mut self, keeps: bool) -> Self {
        self.keep = if keeps { Keep::Always } else { Keep::Never };
        self
    }

    /// Computes the sums of a heap that has some once more, of what the file holds now: damage that they have shown is not reported again.
    pub const fn accept_sums(mut self) -> Self {
        self.keep = Keep::Anew;
        self
    }

    /// [`Options::copy_medium`] compares the pages with their sums, if no process has the heap open: [`check`](crate::check) of that copy has
    /// the findings.
    pub const fn compare_sums(mut self) -> Self {
        self.compares = true;
        self
    }
}

impl<M: Medium> Heap<M> {
    /// Compares all pages of the file, as of the last checkpoint, with their sums ([`Options::sums`]). `report` is called
    /// with each page that is not what its sum says, and must not call the heap. Such a page is reported by later calls and by
    /// `spandrel heap check` as well, also when the program writes to it, until [`Options::accept_sums`].
    ///
    /// All of the file is read, and checkpoints of other threads wait meanwhile. Of a copy in memory the pages were compared when it was made,
    /// with [`Options::compare_sums`].
    ///
    /// # Errors
    /// As for [`Heap::checkpoint`].
    pub fn verify_sums(&self, report: &mut dyn FnMut(&Finding)) -> Result<Verified, Error> {
        let core = self.core();
        if !core.gate.origin().is_read_only() {
            core.gate.check_outside()?;
        }
        let mut pages = 0;
        let standing = core.compare_pages(true, &mut |finding| {
            pages += 1;
            report(finding);
        })?;
        Ok(Verified { standing, pages })
    }
}
