//! The check of a whole heap, which changes nothing of its file.
//!
//! The medium belongs to the check alone, as a copy does. A change or a transaction that was not ended is undone in a copy in memory, so that
//! what is counted is what an opening finds; on another medium it is counted as it stands. The check compares the identity, the records, the sums, the headers, the mark bits and
//! the roots, and then marks the reachable objects. Each finding has an offset. The check continues behind a damage as far as headers are
//! valid.

use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use spandrel_pmem::{LINE_BYTES, Medium, Standing};

use crate::blocks::USED_TWICE;
use crate::class::{CLASSES, Class, SIZES};
use crate::error::Error;
use crate::header::Header;
use crate::layout::{BITS_WORDS, BLOCK_BYTES, BlockId, HEADER_BYTES, REGION_BLOCKS, first_block};
use crate::mark::{Marks, Purpose};
use crate::objects::valid;
use crate::pages::PageObjects;
use crate::pointer::offset_of;
use crate::progress::Watcher;
use crate::roots::RootType;
use crate::second_names::SECOND_NAME;
use crate::shared::Core;
use crate::sums::{NAMES_SUM, REGIONS_SUM, ROOTS_SUM, region_line};
use crate::superblock::{
    Identity, NAMES, ROOT_COUNT, ROOTS, Record, State, UNDO_LOG, VERSION, flipped_records,
};
use crate::undo::{self, Format};

/// The kind of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Bytes differ from those that the heap wrote.
    Damage,
    /// A pointer leads to a free object, or to none.
    Dangling,
    /// A block has a header of its own and is part of a large object.
    UsedTwice,
    /// An allocated object that cannot be reached. This is no damage: a collection frees it.
    Lost,
    /// A damaged word, which has its old value again by a repair.
    Mended,
    /// A page whose bytes, objects among them, are not those of its sum ([`Options::sums`](crate::Options::sums)).
    Page,
}

/// A finding of a check or of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Offset in the file.
    pub at: u64,
    /// The kind of the finding.
    pub kind: Kind,
    /// The finding in words.
    pub what: &'static str,
    /// For [`Kind::Page`], what lies on the page, if the heap's structures say that.
    pub objects: Option<PageObjects>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}: {}", self.at, self.what)
    }
}

/// The use of the blocks of one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassUse {
    /// Bytes of an object.
    pub bytes: usize,
    /// Blocks of the class.
    pub blocks: u64,
    /// Objects that can be reached.
    pub live: u64,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug)]
pub struct Survey {
    /// The identity, which never changes.
    pub identity: Identity,
    /// The newer of the two records.
    pub record: Record,
    /// Blocks for objects, free ones included.
    pub blocks: u64,
    /// Blocks that hold no object.
    pub free_blocks: u64,
    /// Objects of whole blocks.
    pub large_objects: u64,
    /// Their blocks.
    pub large_blocks: u64,
    /// The use of the blocks of each class.
    pub classes: [ClassUse; CLASSES],
    /// Objects that can be reached. Without the types of roots this is an estimate.
    pub live: u64,
    /// Bytes of these.
    pub live_bytes: u64,
    /// Objects that are allocated and cannot be reached: of a heap that was closed.
    pub lost: u64,
    /// Bytes of these.
    pub lost_bytes: u64,
    /// Roots that are not null.
    pub roots: u64,
    /// Roots that have a name and are null: lost objects may have been theirs.
    pub null_named: u64,
    /// The version of the format.
    pub version: u64,
    /// The number of findings that are damage, used twice or dangling.
    pub damaged: u64,
    /// The number of pages that are not what their sums say, and of damaged sums. No repair brings what they held back.
    pub pages: u64,
    /// Whether all pages were compared with sums, and why not.
    pub sums: Standing,
}

/// The state of a check.
struct Look<'a, M: Medium> {
    core: &'a Core<&'a M>,
    survey: Survey,
    /// All headers are valid: pointers can be followed.
    is_safe: bool,
    report: &'a mut dyn FnMut(&Finding),
}

/// Checks a heap. `types` are the types of roots: only in typed objects it is certain which words are pointers. `report` is called with each
/// finding.
///
/// # Errors
/// The medium is no heap, or its damage leaves nothing to check; there is no memory.
pub fn check<M: Medium>(
    medium: &M,
    types: &[RootType<'_>],
    report: &mut dyn FnMut(&Finding),
) -> Result<Survey, Error> {
    check_watched(medium, types, false, report, None)
}

/// As [`check`], with a watcher that is called with the progress. `is_replica`: the medium has a durable state between two batches, whose mark bits are exact also if it was not closed.
///
/// # Errors
/// As for [`check`].
pub fn check_watched<M: Medium>(
    medium: &M,
    types: &[RootType<'_>],
    is_replica: bool,
    report: &mut dyn FnMut(&Finding),
    watcher: Option<Watcher<'_>>,
) -> Result<Survey, Error> {
    let ((identity, version), record) = (Identity::find(medium)?, Record::read(medium)?);
    let core = Core::new(medium, identity, record, 0)?;
    core.is_replica.store(is_replica, Relaxed);
    let mut classes = [ClassUse::default(); CLASSES];
    classes.iter_mut().zip(SIZES).for_each(|(class, bytes)| class.bytes = bytes.into());
    let survey = Survey {
        identity,
        record,
        blocks: 0,
        free_blocks: 0,
        large_objects: 0,
        large_blocks: 0,
        classes,
        live: 0,
        live_bytes: 0,
        lost: 0,
        lost_bytes: 0,
        roots: 0,
        null_named: 0,
        version,
        damaged: 0,
        pages: 0,
        sums: Standing::Absent,
    };
    let mut look = Look { core: &core, survey, is_safe: true, report };
    let steps = 3 * (core.bytes() / BLOCK_BYTES) as u64;
    core.progress.watch(watcher, steps, || {
        look.superblock();
        look.undo_log();
        look.undo();
        look.headers();
        look.roots();
        // To follow pointers relies on headers.
        if look.is_safe {
            look.reachable(types)?;
        }
        look.pages()?;
        Ok(look.survey)
    })
}

impl<M: Medium> Look<'_, M> {
    fn find(&mut self, at: usize, kind: Kind, what: &'static str) {
        self.survey.damaged += u64::from(kind != Kind::Lost);
        (self.report)(&Finding { at: at as u64, kind, what, objects: None });
    }

    /// Compares the pages with their sums, where there are some.
    fn pages(&mut self) -> Result<(), Error> {
        let Self { core, survey, is_safe, report } = self;
        survey.sums = core.compare_pages(*is_safe, &mut |finding| {
            survey.pages += 1;
            report(finding);
        })?;
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.survey.record.state == State::Clean
    }

    /// Whether mark bits say what is allocated.
    fn has_marks(&self) -> bool {
        self.is_closed() || self.core.is_exact()
    }

    /// Whether the sums of all metadata hold.
    fn has_sums(&self) -> bool {
        self.is_closed() && self.survey.version == VERSION
    }

    /// Looks at the copies of the identity and of the record, and at the sums of what has one for all of the heap.
    fn superblock(&mut self) {
        if self.survey.version != VERSION {
            return;
        }
        for at in self.survey.identity.damaged(&self.core.medium).into_iter().flatten() {
            self.find(at, Kind::Damage, "one of the two copies of the heap's identity");
        }
        if !self.is_closed() {
            // The failure may have torn one: that is no damage.
            for (at, _) in flipped_records(&self.core.medium) {
                self.find(at, Kind::Damage, "one of the heap's two records");
            }
            return;
        }
        if self.survey.record.is_alone(&self.core.medium) {
            let at = self.survey.record.other();
            self.find(at, Kind::Damage, "one of the heap's two records");
        }
        let (sums, said) = (self.core.sums(self.survey.record.bytes), self.survey.record.sums);
        if sums.roots != said.roots {
            self.find(ROOTS, Kind::Damage, ROOTS_SUM);
        }
        if sums.names != said.names {
            self.find(NAMES, Kind::Damage, NAMES_SUM);
        }
        if sums.regions != said.regions {
            self.find(region_line(0), Kind::Damage, REGIONS_SUM);
        }
    }

    /// Compares a region with its line.
    fn region(&mut self, region: usize) {
        if self.survey.version != VERSION {
            return;
        }
        let outcome = if self.is_closed() {
            self.core.verify_region(region).map(drop)
        } else {
            self.core.verify_headers_of(region)
        };
        if let Err(Error::Damaged { at, what }) = outcome {
            self.find(at as usize, Kind::Damage, what);
        }
    }

    fn undo_log(&mut self) {
        let format = if self.survey.version == VERSION { Format::Checked } else { Format::Old };
        if self.has_sums() && !undo::is_settled(&self.core.medium, self.survey.record.sums.undo) {
            let what = "the undo log of a heap that was closed: it is not what it was";
            self.find(UNDO_LOG, Kind::Damage, what);
            return;
        }
        let is_transaction = crate::transaction_log::is_open(&self.core.medium);
        let is_change = undo::is_open(&self.core.medium, format);
        match is_change.and_then(|is| Ok(is | is_transaction?)) {
            Ok(is_open) if is_open && self.is_closed() => {
                self.find(
                    UNDO_LOG,
                    Kind::Damage,
                    "a change that was not ended, in a heap that was closed",
                );
            }
            Err(Error::Damaged { at, what }) => self.find(at as usize, Kind::Damage, what),
            _ => {}
        }
    }

    /// Undoes what was begun and not ended, as an opening does. A damaged log was reported, and nothing is undone then.
    fn undo(&self) {
        let medium = &self.core.medium;
        if self.is_closed() || !medium.is_private() {
            return;
        }
        let format = if self.survey.version == VERSION { Format::Checked } else { Format::Old };
        if undo::replay(medium, format).is_ok() {
            let _ = crate::transaction_log::replay(medium);
        }
    }

    /// Looks at all headers, region by region.
    fn headers(&mut self) {
        let count = self.core.bytes() / BLOCK_BYTES;
        let mut region = 0;
        while region * REGION_BLOCKS < count {
            self.region(region);
            let end = ((region + 1) * REGION_BLOCKS).min(count);
            let mut block = first_block(region);
            while (block.0 as usize) < end {
                let blocks = self.header(block, count);
                self.survey.blocks += blocks as u64;
                block = block.plus(blocks);
            }
            // An object may have gone on in the next ones.
            self.core.progress.reach(u64::from(block.0));
            let next = (block.0 as usize).div_ceil(REGION_BLOCKS).max(region + 1);
            region = next;
        }
    }

    /// Looks at a header. How many blocks it is for.
    fn header(&mut self, block: BlockId, count: usize) -> usize {
        self.behind(block);
        match self.core.header(block) {
            Ok(Header::Free) => {
                self.survey.free_blocks += 1;
                self.marks(block, None);
                1
            }
            Ok(Header::Small(class)) => {
                self.survey.classes[class.index()].blocks += 1;
                self.marks(block, Some(class));
                1
            }
            Ok(Header::Large(blocks)) => {
                let blocks = blocks as usize;
                if self.core.check_large(block, blocks, count).is_err() {
                    self.is_safe = false;
                    self.find(block.header(), Kind::Damage, "the length of a large object");
                    return 1;
                }
                self.survey.large_objects += 1;
                self.survey.large_blocks += blocks as u64;
                self.marks(block, None);
                let end = block.plus(blocks).0.min(((block.region() + 1) * REGION_BLOCKS) as u32);
                for covered in (block.0 + 1..end).map(BlockId) {
                    self.behind(covered);
                    self.marks(covered, None);
                    if self.core.load(covered.header()) != 0 {
                        self.is_safe = false;
                        self.find(covered.header(), Kind::UsedTwice, USED_TWICE);
                    }
                }
                blocks
            }
            // What a repair has set aside is no damage any more.
            Ok(Header::Lost) => {
                self.marks(block, None);
                1
            }
            Err(_) => {
                self.is_safe = false;
                self.find(block.header(), Kind::Damage, "the header of a block");
                1
            }
        }
    }

    /// Looks at what stands behind a header: nothing does.
    fn behind(&mut self, block: BlockId) {
        let first = if self.survey.version == VERSION { 16 } else { 8 };
        for at in (first..HEADER_BYTES).step_by(8).map(|at| block.header() + at) {
            if self.core.load(at) != 0 {
                self.find(at, Kind::Damage, "something behind the header of a block");
            }
        }
    }

    /// Looks at mark bits: those of what is no object are not set. Of a heap that was not closed they say nothing, unless they are exact.
    fn marks(&mut self, block: BlockId, class: Option<Class>) {
        if !self.has_marks() {
            return;
        }
        for word in 0..BITS_WORDS {
            let at = block.bits() + word * 8;
            let may = class.map_or(0, |class| valid(class, word));
            if self.core.load(at) & !may != 0 {
                self.find(at, Kind::Damage, "a mark bit of what is no object");
                return;
            }
        }
        if self.survey.version == VERSION
            && let Ok(header) = self.core.header(block)
            && let Err(Error::Damaged { at, what }) = self.core.verify_marks(block, header)
        {
            self.find(at as usize, Kind::Damage, what);
        }
    }

    fn roots(&mut self) {
        for index in 0..ROOT_COUNT {
            let (at, line) = (ROOTS + index * 8, NAMES + index * LINE_BYTES);
            let word = self.core.load(at);
            if word != 0 {
                self.survey.roots += 1;
                let to = offset_of(word);
                match to.and_then(|to| self.core.object_of(to)) {
                    None => self.find(at, Kind::Dangling, "a root that leads to no object"),
                    Some(found) if to != Some(found.start) => {
                        self.find(
                            at,
                            Kind::Damage,
                            "a root that leads into the middle of an object",
                        );
                    }
                    Some(found) if self.has_marks() && !self.core.is_marked(&found) => {
                        self.find(at, Kind::Dangling, "a root that leads to a free object");
                    }
                    Some(_) => {}
                }
            } else if self.core.root_name(index).is_some() {
                self.survey.null_named += 1;
            }
            let has_seal = self.core.load(line + LINE_BYTES - 8) != 0;
            if has_seal && self.core.root_name(index).is_none() {
                self.find(line, Kind::Damage, "the name of a root");
            }
            if self.core.is_second_of_its_name(index) {
                self.find(line, Kind::Damage, SECOND_NAME);
            }
        }
    }

    /// Marks, and compares with what the heap says is allocated.
    fn reachable(&mut self, types: &[RootType<'_>]) -> Result<(), Error> {
        let purpose = if self.is_closed() { Purpose::LookAtAllocated } else { Purpose::Look };
        let (marks, collected) = self.core.mark(types, purpose)?;
        (self.survey.live, self.survey.live_bytes) = (collected.live, collected.live_bytes);
        let core = self.core;
        let before = 2 * (core.bytes() / BLOCK_BYTES) as u64;
        core.progress.reach(before);
        core.each_block(core.bytes() / BLOCK_BYTES, |block, header| {
            if block.0.is_multiple_of(REGION_BLOCKS as u32 / 4) {
                core.progress.reach(before + u64::from(block.0));
            }
            self.compare(block, header, &marks);
            Ok(())
        })
    }

    fn compare(&mut self, block: BlockId, header: Header, marks: &Marks) {
        match header {
            Header::Free | Header::Lost => {}
            Header::Small(class) => {
                for word in 0..class.objects().div_ceil(64) {
                    let reached = marks.word(block, word);
                    self.survey.classes[class.index()].live += u64::from(reached.count_ones());
                    if self.is_closed() {
                        let marked = self.core.load(block.bits() + word * 8);
                        self.differ(block, class, word, reached & !marked, Kind::Dangling);
                        self.differ(block, class, word, marked & !reached, Kind::Lost);
                    }
                }
            }
            Header::Large(blocks) => {
                if marks.word(block, 0) == 0 && self.is_closed() {
                    self.survey.lost += 1;
                    self.survey.lost_bytes += u64::from(blocks) * BLOCK_BYTES as u64;
                    self.find(block.start(), Kind::Lost, "an object that nothing leads to");
                }
            }
        }
    }

    fn differ(&mut self, block: BlockId, class: Class, word: usize, mut bits: u64, kind: Kind) {
        while bits != 0 {
            let number = word * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let what = if kind == Kind::Lost {
                self.survey.lost += 1;
                self.survey.lost_bytes += class.bytes() as u64;
                "an object that nothing leads to"
            } else {
                "an object that something leads to, and that is free"
            };
            self.find(block.start() + number * class.bytes(), kind, what);
        }
    }
}
