//! Repair of a damaged heap.
//!
//! The sums of a heap that was closed determine most words exactly ([`crate::exact`]). Any other damage is replaced so that the loss is least.
//!
//! A repair frees no block that it does not know. A block with a lost header is set aside ([`Header::Lost`]). Pointers to its objects stay
//! valid. A recovery frees the block when no pointer leads to it. Where headers or mark bits were lost, the heap stays one that was not closed,
//! and the program recovers it with its types. Where only roots or names were lost, all objects stay allocated.

use core::sync::atomic::Ordering::Relaxed;

use spandrel_pmem::{LINE_BYTES, Medium};

use crate::check::{Finding, Kind, check_watched};
use crate::error::Error;
use crate::exact::Left;
use crate::header::Header;
use crate::layout::{BITS_WORDS, BLOCK_BYTES, BlockId, REGION_BLOCKS, blocks_of, first_block};
use crate::pointer::{TAG, offset_of};
use crate::progress::Watcher;
use crate::second_names::RENAMED;
use crate::shared::Core;
use crate::sums::{NAMES_SUM, REGIONS_SUM, ROOTS_SUM, marks_sum_at, region_line};
use crate::superblock::{
    Identity, NAMES, ROOT_COUNT, ROOTS, Record, State, UNDO_LOG, VERSION, forget_asking,
    mend_records,
};

/// The outcome of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repaired {
    /// Words that have their old value again.
    pub exact: u64,
    /// Roots and names that were removed, and other words that were replaced.
    pub cleared: u64,
    /// Blocks with lost headers, which were set aside.
    pub aside: u64,
    /// Objects in these blocks by their mark bits, in a heap that was closed.
    pub objects: u64,
    /// The heap is closed as before. If not, the next opening recovers it.
    pub is_closed: bool,
}

impl Repaired {
    /// The number of damages that were mended.
    pub fn count(&self) -> u64 {
        self.exact + self.cleared + self.aside
    }
}

/// Mends a heap that no process has open. `report` is called with each damage: [`Kind::Mended`] if the word has its old value again, another
/// kind if something is lost.
///
/// # Errors
/// As for [`check`](crate::check): the heap cannot be mended, or there is no memory.
pub fn repair<M: Medium>(medium: &M, report: &mut dyn FnMut(&Finding)) -> Result<Repaired, Error> {
    repair_watched(medium, false, report, None)
}

/// As [`repair`], with a watcher that is called with the progress. `is_replica`: as for [`check_watched`].
///
/// # Errors
/// As for [`repair`].
pub fn repair_watched<M: Medium>(
    medium: &M,
    is_replica: bool,
    report: &mut dyn FnMut(&Finding),
    watcher: Option<Watcher<'_>>,
) -> Result<Repaired, Error> {
    let (identity, version) = Identity::find(medium)?;
    let mut exact = 0;
    // First of all: without one of the two nothing can be looked at.
    mend_records(medium, |at| {
        exact += 1;
        report(&Finding {
            at: at as u64,
            kind: Kind::Mended,
            what: "one of the heap's records",
            objects: None,
        });
    });
    let record = Record::read(medium)?;
    if check_watched(medium, &[], is_replica, &mut |_| (), watcher)?.damaged == 0 {
        let is_closed = record.state == State::Clean;
        if exact > 0 {
            // On a file nothing else makes it durable.
            medium.checkpoint()?;
            medium.settle()?;
        }
        return Ok(Repaired { exact, is_closed, ..Repaired::default() });
    }
    forget_asking(medium);
    let core = Core::new(medium, identity, record, 0)?;
    core.is_replica.store(is_replica, Relaxed);
    let steps = (core.bytes() / BLOCK_BYTES) as u64;
    let done = Repaired { exact, ..Repaired::default() };
    let mut work = Work { core: &core, version, record, done, report };
    let done = core.progress.watch(watcher, steps, || work.run());
    medium.checkpoint()?;
    medium.settle()?;
    Ok(done)
}

/// The state of a repair.
struct Work<'a, M: Medium> {
    core: &'a Core<&'a M>,
    version: u64,
    record: Record,
    done: Repaired,
    report: &'a mut dyn FnMut(&Finding),
}

impl<M: Medium> Work<'_, M> {
    fn run(&mut self) -> Repaired {
        let core = self.core;
        if self.version == VERSION {
            let damaged = core.identity.damaged(&core.medium);
            core.identity.mend(&core.medium);
            for at in damaged.into_iter().flatten() {
                self.mended(at, "the heap's identity");
            }
        }
        let was_closed = self.record.state == State::Clean;
        // A record without a version of the undo log was written by another program: none of its sums is believed.
        let has_sums =
            was_closed && self.version == VERSION && crate::undo::is_version(self.record.sums.undo);
        if was_closed && crate::transaction_log::forget_closed(&core.medium) {
            self.mended(UNDO_LOG, "the log of transactions, of which none was open");
        }
        let left = if has_sums { self.restore() } else { Left::default() };
        if has_sums && left.is_nothing() {
            if self.record.is_alone(&core.medium) {
                self.mended(self.record.other(), "one of the heap's records");
                self.record.put(&core.medium);
            }
            if self.second_names() {
                self.finish();
            }
            self.done.is_closed = true;
            return self.done;
        }
        if !has_sums && self.version == VERSION {
            self.untouched();
            self.exact_marks();
        }
        self.report_sums(left);
        // Sums tell that the metadata of regions is what it was: then all objects stay allocated, whatever roots were lost.
        self.done.is_closed = has_sums && !left.headers && !left.marks;
        if !self.done.is_closed {
            // Durable before anything else changes: the next opening recovers the heap, whatever cuts this off.
            self.record.state = State::Dirty;
            self.record.put(&core.medium);
            self.log();
            self.set_aside(left.headers);
        }
        self.roots();
        self.names();
        self.second_names();
        self.finish();
        self.done
    }

    fn mended(&mut self, at: usize, what: &'static str) {
        self.done.exact += 1;
        (self.report)(&Finding { at: at as u64, kind: Kind::Mended, what, objects: None });
    }

    fn cleared(&mut self, at: usize, kind: Kind, what: &'static str) {
        self.done.cleared += 1;
        (self.report)(&Finding { at: at as u64, kind, what, objects: None });
    }

    /// Corrects the words that the sums determine.
    fn restore(&mut self) -> Left {
        let core = self.core;
        let mut left = Left::default();
        // A header that is right again may say that other regions have none.
        for _ in 0..2 {
            let record = self.record;
            left = core.restore(&record, &mut |at, what| self.mended(at, what));
            if left.is_nothing() {
                core.own_regions().flat_map(blocks_of).for_each(|block| {
                    core.clear_stray(block, &mut |at, what| self.mended(at, what));
                });
                break;
            }
            core.note_continued(core.bytes() / BLOCK_BYTES);
        }
        left
    }

    /// Puts headers right in regions that the session which did not close the heap has not touched.
    fn untouched(&mut self) {
        let core = self.core;
        for region in core.own_regions() {
            if core.has_sums(region, self.record.closed) == Ok(true) {
                let sum = core.line(region)[0];
                core.restore_header(region, sum, &mut |at, what| self.mended(at, what));
            }
        }
        core.note_continued(core.bytes() / BLOCK_BYTES);
    }

    /// Puts mark bits right where they are exact though the heap was not closed.
    fn exact_marks(&mut self) {
        let core = self.core;
        if core.is_exact() {
            for region in core.own_regions() {
                core.restore_marks(region, &mut |at, what| self.mended(at, what));
            }
        }
    }

    /// Reports losses that only a sum shows.
    fn report_sums(&mut self, left: Left) {
        let core = self.core;
        if left.roots {
            self.cleared(ROOTS, Kind::Damage, ROOTS_SUM);
        }
        if left.names {
            self.cleared(NAMES, Kind::Damage, NAMES_SUM);
        }
        if left.headers && core.sum_lines(self.record.bytes) != self.record.sums.regions {
            self.cleared(region_line(0), Kind::Damage, REGIONS_SUM);
        }
        if left.marks {
            for block in core.own_regions().flat_map(blocks_of) {
                if let Ok(header) = core.header(block)
                    && let Err(Error::Damaged { at, what }) = core.verify_marks(block, header)
                {
                    self.cleared(at as usize, Kind::Damage, what);
                }
            }
        }
    }

    /// Undoes the change in the undo log, or empties the log if it is damaged.
    fn log(&mut self) {
        let format = if self.version == VERSION {
            crate::undo::Format::Checked
        } else {
            crate::undo::Format::Old
        };
        if self.version == VERSION && crate::undo::mend_version(&self.core.medium) {
            self.mended(UNDO_LOG, "the version of the undo log");
        }
        if let Err(Error::Damaged { at, what }) = crate::undo::replay(&self.core.medium, format) {
            self.cleared(at as usize, Kind::Damage, what);
        }
        crate::undo::wipe(&self.core.medium);
        if let Err(Error::Damaged { at, what }) = crate::transaction_log::replay(&self.core.medium)
        {
            self.cleared(at as usize, Kind::Damage, what);
            crate::transaction_log::wipe(&self.core.medium);
        }
    }

    /// Sets aside all blocks whose headers are none; where sums hold, in a region whose sum is another, all that are not certain.
    fn set_aside(&mut self, has_sums: bool) {
        let core = self.core;
        let count = core.bytes() / BLOCK_BYTES;
        let regions = count.div_ceil(REGION_BLOCKS);
        // Where it is not known which line is wrong none is believed.
        let is_unknown = has_sums && core.sum_lines(self.record.bytes) != self.record.sums.regions;
        for region in (0..regions).filter(|region| !core.is_continued(*region)) {
            let differs = core.sum_region(region)[0] != core.line(region)[0];
            let is_void = is_unknown || has_sums && differs;
            let end = ((region + 1) * REGION_BLOCKS).min(count);
            for block in blocks_of(region) {
                core.clear_behind(block, &mut |at, what| self.mended(at, what));
            }
            let mut block = first_block(region);
            while (block.0 as usize) < end {
                block = block.plus(self.look_at(block, count, is_void));
            }
        }
        core.fence();
        core.note_continued(count);
    }

    /// Sets a block aside if its header is lost. Returns the number of blocks that were examined.
    fn look_at(&mut self, block: BlockId, count: usize, is_void: bool) -> usize {
        let core = self.core;
        match core.header(block) {
            Ok(Header::Lost) => 1,
            Ok(Header::Free) if !is_void => 1,
            Ok(Header::Small(_)) if !is_void => 1,
            Ok(Header::Small(_)) => {
                let sum = core.load(marks_sum_at(block));
                if sum == 0 || sum != core.sum_marks_of(block) {
                    self.lose(block);
                }
                1
            }
            Ok(Header::Large(blocks)) => {
                let blocks = blocks as usize;
                if core.check_large(block, blocks, count).is_err() {
                    self.lose(block);
                    return 1;
                }
                let end = block.plus(blocks).0.min(((block.region() + 1) * REGION_BLOCKS) as u32);
                let mut covered = (block.0 + 1..end).map(BlockId);
                if covered.all(|block| core.load(block.header()) == 0) {
                    return blocks;
                }
                // Which of the two is right is not known.
                (block.0..end).for_each(|block| self.lose(BlockId(block)));
                (end - block.0) as usize
            }
            Ok(Header::Free) | Err(_) => {
                self.lose(block);
                1
            }
        }
    }

    /// Sets a block aside.
    fn lose(&mut self, block: BlockId) {
        let core = self.core;
        let bits = (0..BITS_WORDS).map(|word| core.load(block.bits() + word * 8).count_ones());
        let objects = u64::from(bits.sum::<u32>());
        let was_none = core.header(block).is_err();
        let at = block.header();
        core.store(at, Header::Lost.word(block));
        core.medium.write_back(at, 8);
        // Free blocks of a region of which nothing is certain are not worth a word.
        if was_none || objects > 0 {
            self.done.aside += 1;
            self.done.objects += objects;
            let what = "the header of a block, which is set aside";
            (self.report)(&Finding { at: at as u64, kind: Kind::Damage, what, objects: None });
        }
    }

    /// Takes roots away that lead to no object, or to a free one where mark bits hold; one that leads into the middle of an object leads to its beginning.
    fn roots(&mut self) {
        let core = self.core;
        for at in (0..ROOT_COUNT).map(|index| ROOTS + index * 8) {
            let word = core.load(at);
            let to = offset_of(word);
            let found = to.and_then(|to| core.object_of(to));
            let (new, what) = match found {
                None => (0, "a root that leads to no object"),
                Some(found) if self.done.is_closed && !core.is_marked(&found) => {
                    (0, "a root that leads to a free object")
                }
                Some(found) if to == Some(found.start) => continue,
                Some(found) => {
                    (TAG | found.start as u64, "a root that leads into the middle of an object")
                }
            };
            if word != new {
                core.store(at, new);
                core.medium.write_back(at, 8);
                self.cleared(at, Kind::Dangling, what);
            }
        }
    }

    /// Removes damaged names.
    fn names(&mut self) {
        let core = self.core;
        for (index, line) in (0..ROOT_COUNT).map(|index| (index, NAMES + index * LINE_BYTES)) {
            let seal = line + LINE_BYTES - 8;
            if core.load(seal) != 0 && core.root_name(index).is_none() {
                core.store(seal, 0);
                core.medium.write_back(seal, 8);
                self.cleared(line, Kind::Damage, "the name of a root");
            }
        }
    }

    /// Gives roots of one name a name each. False: there are none.
    fn second_names(&mut self) -> bool {
        let core = self.core;
        let mut are_any = false;
        for index in (0..ROOT_COUNT).filter(|index| core.is_second_of_its_name(*index)) {
            if core.rename_second(index).is_ok() {
                self.mended(NAMES + index * LINE_BYTES, RENAMED);
                are_any = true;
            }
        }
        are_any
    }

    /// Writes all sums anew.
    fn finish(&mut self) {
        let core = self.core;
        if self.version == VERSION {
            for region in core.own_regions() {
                if core.stamp(region).is_err() {
                    core.set_stamp(region, self.record.generation);
                }
            }
            core.sum_all();
        }
        core.fence();
        if self.version == VERSION {
            self.record.sums = core.sums(self.record.bytes);
            self.record.put(&core.medium);
        }
    }
}
