//! Decision tables: a mode compiled to one byte per operation and size class.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use spandrel_pages::{AllocatorId, CLASS_COUNT, KIB, MIB, SizeClass};

use crate::tuner::sizes_of;
use crate::{Available, Mode, Template};

/// What a table is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Operation {
    /// A new object of the size.
    Allocate = 0,
    /// An object grows to the size.
    Grow = 1,
}

const OPERATIONS: usize = 2;

/// One byte: an [`AllocatorId`] in the low bits and, for the slow way, flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision(pub u8);

impl Decision {
    const ID: u8 = 0x07;
    /// Page-mapped if a warm slot is at hand, else the named allocator; of new objects
    /// only where such have been seen to grow. With the page-mapped allocator as the named one, of new objects: the native
    /// allocator may pack them ([`PACKED_TO`]).
    pub const IF_WARM: u8 = 0x08;
    /// The object's allocation counter decides between the named allocator and
    /// pages.
    pub const BY_COUNTER: u8 = 0x10;
    /// A boundary of the template lies inside the class: look at the size.
    pub const EXACT: u8 = 0x20;
    /// This table does not decide: the library has not started, or the decision
    /// is another table's.
    pub const ELSEWHERE: u8 = 0x40;
    /// The request is to be counted.
    pub const COUNTED: u8 = 0x80;

    /// The allocator, flags aside.
    pub const fn allocator(self) -> AllocatorId {
        match AllocatorId::from_byte(self.0 & Self::ID) {
            Some(id) => id,
            None => AllocatorId::Sys,
        }
    }

    /// Whether [`Self::IF_WARM`] is the only flag.
    #[inline(always)]
    pub const fn is_plainly_if_warm(self) -> bool {
        self.0 & !Self::ID == Self::IF_WARM
    }

    /// Whether a flag is set.
    pub const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

/// Growing objects of at least this size take a warm slot when there is one:
/// below two pages a copy is cheaper than a slot.
const WARM_FROM: usize = 8 * KIB;
/// New objects of at least this size may be given a warm slot at once: one page.
const EARLY_FROM: usize = 4 * KIB;
/// From here on objects are page-mapped in `auto`, new ones below [`PACKED_TO`] unless they are better packed;
/// `docs/realloc.md` has the measurements.
pub const MAPPED_FROM: usize = 128 * KIB;
/// Below this the native allocator packs new objects on huge pages in `auto`, if objects of the size use their pages and no warm slot is
/// at hand: an object of 300 KiB on small pages of its own takes 75 page faults. Larger ones have huge pages of their own.
const PACKED_TO: usize = 11 * MIB / 8;
/// The decision for these.
const PACKED: u8 = AllocatorId::Mmap as u8 | Decision::IF_WARM;

/// Stands in [`Table::first`] while requests from [`EARLY_FROM`] on are looked at: no
/// class begins here, so that no mode's own table holds it.
const EARLY_MARK: usize = EARLY_FROM - 1;

/// Requests up to this size find their decision by one shift.
pub const SMALL_BYTES: usize = 1024;
/// Width of a class of small sizes; also the granule of every allocator.
const SMALL_STEP: usize = 16;
const SMALL_COUNT: usize = SMALL_BYTES / SMALL_STEP + 1;

/// A compiled mode.
///
/// Small sizes, which are most, have classes of 16 bytes; all sizes have the
/// logarithmic ones of [`SizeClass`]. Most modes have one allocator for all new
/// objects up to some size: that is one comparison.
#[repr(C, align(64))]
pub struct Table {
    /// By allocator: all new objects of fewer bytes are its own, without flags that matter.
    first: [AtomicUsize; AllocatorId::ALL.len()],
    /// All new objects of fewer bytes, at most [`SMALL_BYTES`], are the native allocator's, without flags that matter: one comparison tells both.
    small_native: AtomicUsize,
    /// All new objects of more bytes are page-mapped, without flags; `usize::MAX`: none needs be.
    below_mapped: AtomicUsize,
    small: [[AtomicU8; SMALL_COUNT]; OPERATIONS],
    bytes: [[AtomicU8; CLASS_COUNT]; OPERATIONS],
}

impl Table {
    /// A table that sends every request the slow way.
    pub const fn elsewhere() -> Self {
        Self::of::<{ Decision::ELSEWHERE }>(usize::MAX)
    }

    /// A table that decides nothing yet: to be compiled before it is asked. All bytes are zero.
    pub const fn blank() -> Self {
        Self::of::<0>(0)
    }

    const fn of<const DECISION: u8>(below_mapped: usize) -> Self {
        Table {
            first: [const { AtomicUsize::new(0) }; AllocatorId::ALL.len()],
            small_native: AtomicUsize::new(0),
            below_mapped: AtomicUsize::new(below_mapped),
            small: [const { [const { AtomicU8::new(DECISION) }; SMALL_COUNT] }; OPERATIONS],
            bytes: [const { [const { AtomicU8::new(DECISION) }; CLASS_COUNT] }; OPERATIONS],
        }
    }

    /// Whether a new object of `size` bytes is an allocator's because all up to
    /// there are; false says nothing.
    #[inline(always)]
    pub fn begins_with(&self, id: AllocatorId, size: usize) -> bool {
        size < self.first[id as usize].load(Relaxed)
    }

    /// Whether a new object of `size` bytes is the native allocator's because all up to there are, and no larger than [`SMALL_BYTES`];
    /// false says nothing.
    #[inline(always)]
    pub fn begins_small(&self, size: usize) -> bool {
        size < self.small_native.load(Relaxed)
    }

    /// Whether a new object of `size` bytes is page-mapped because all from there on are;
    /// false says nothing.
    #[inline(always)]
    pub fn ends_mapped(&self, size: usize) -> bool {
        size > self.below_mapped.load(Relaxed)
    }

    /// The decision for a request of `size` bytes.
    #[inline(always)]
    pub fn decide(&self, operation: Operation, size: usize) -> Decision {
        let byte = if size <= SMALL_BYTES {
            &self.small[operation as usize][size.div_ceil(SMALL_STEP)]
        } else {
            &self.bytes[operation as usize][SizeClass::of(size).index()]
        };
        Decision(byte.load(Relaxed))
    }

    /// Has new objects that a warm slot may be for decided one by one, or not: while
    /// no thread expects them to grow they are the named allocator's without a look. Does
    /// nothing to a table that knows of no such objects. To begin, the caller keeps others
    /// from changing the table.
    pub fn look_early(&self, look: bool) {
        let first = &self.first[AllocatorId::Native as usize];
        if !look {
            let _ = first.compare_exchange(EARLY_MARK, MAPPED_FROM, Relaxed, Relaxed);
        } else if self.decide(Operation::Allocate, EARLY_FROM).is_plainly_if_warm()
            && first.load(Relaxed) == MAPPED_FROM
        {
            first.store(EARLY_MARK, Relaxed);
        }
    }

    /// Whether new objects are looked at.
    #[inline(always)]
    pub fn is_looking_early(&self) -> bool {
        self.first[AllocatorId::Native as usize].load(Relaxed) == EARLY_MARK
    }

    /// Whether a new object of `size` bytes is looked at; the native allocator is the one
    /// named for it.
    #[inline(always)]
    pub fn looks_early(&self, size: usize) -> bool {
        self.is_looking_early() && (EARLY_FROM..MAPPED_FROM).contains(&size)
    }

    /// Whether a new object of `size` bytes is page-mapped unless the native allocator is to pack it.
    #[inline(always)]
    pub fn may_pack(&self, size: usize) -> bool {
        (MAPPED_FROM..PACKED_TO).contains(&size)
            && self.decide(Operation::Allocate, size).0 == PACKED
    }

    /// Decides as `other` does from now on. A request meanwhile may get the
    /// old or the new decision.
    pub fn copy_from(&self, other: &Table) {
        for (to, from) in self.every_byte().zip(other.every_byte()) {
            to.store(from.load(Relaxed), Relaxed);
        }
        for (to, from) in self.first.iter().zip(&other.first) {
            to.store(from.load(Relaxed), Relaxed);
        }
        self.small_native.store(other.small_native.load(Relaxed), Relaxed);
        self.below_mapped.store(other.below_mapped.load(Relaxed), Relaxed);
    }

    /// Sends every request the slow way from now on.
    pub fn send_elsewhere(&self) {
        self.first.iter().for_each(|below| below.store(0, Relaxed));
        self.small_native.store(0, Relaxed);
        self.below_mapped.store(usize::MAX, Relaxed);
        self.every_byte().for_each(|byte| byte.store(Decision::ELSEWHERE, Relaxed));
    }

    fn every_byte(&self) -> impl Iterator<Item = &AtomicU8> {
        self.small.iter().flatten().chain(self.bytes.iter().flatten())
    }

    /// Compiles `mode` into this table. A class that a boundary of the mode
    /// cuts gets [`Decision::EXACT`]; [`exact`] then decides for the size.
    pub fn compile(&self, mode: &Mode, available: Available, counted: bool) {
        let flags = if counted { Decision::COUNTED } else { 0 };
        for operation in [Operation::Allocate, Operation::Grow] {
            let decide = |first: usize, last: usize| {
                let decision = exact(mode, available, operation, first);
                let same = decision == exact(mode, available, operation, last);
                let whole = same && !cuts(mode, first, last);
                flags | if whole { decision.0 } else { Decision::EXACT }
            };
            for (index, byte) in self.small[operation as usize].iter().enumerate() {
                let last = index * SMALL_STEP;
                byte.store(decide((last + 1).saturating_sub(SMALL_STEP), last), Relaxed);
            }
            for (index, byte) in self.bytes[operation as usize].iter().enumerate() {
                let Some(class) = SizeClass::from_index(index) else { continue };
                byte.store(decide(class.first(), class.last()), Relaxed);
            }
        }
        self.note_ends();
    }

    /// Notes what all of the smallest objects share, and all of the largest.
    fn note_ends(&self) {
        let (id, below) = self.beginning();
        for (index, first) in self.first.iter().enumerate() {
            first.store(if index == usize::from(id) { below } else { 0 }, Relaxed);
        }
        let of_native = self.first[AllocatorId::Native as usize].load(Relaxed);
        self.small_native.store(of_native.min(SMALL_BYTES + 1), Relaxed);
        self.below_mapped.store(self.below_mapped(), Relaxed);
    }

    /// Decides so for a row of sizes ([`crate::tuner::row_of`]) from now on.
    pub fn set_row(&self, operation: Operation, row: usize, decision: Decision) {
        let (first, last) = sizes_of(row);
        let set = |byte: &AtomicU8| {
            byte.store(decision.0 | byte.load(Relaxed) & Decision::COUNTED, Relaxed);
        };
        let ends = |index: usize| (first..=last).contains(&(index * SMALL_STEP));
        let small = self.small[operation as usize].iter().enumerate();
        small.filter(|(index, _)| ends(*index)).for_each(|(_, byte)| set(byte));
        let begins = |index: usize| {
            SizeClass::from_index(index)
                .is_some_and(|class| (first..=last).contains(&class.first()))
        };
        let large = self.bytes[operation as usize].iter().enumerate();
        large.filter(|(index, _)| begins(*index)).for_each(|(_, byte)| set(byte));
        self.note_ends();
    }

    /// Whether the requests of a row are an allocator's without flags that matter.
    pub fn is_plain(&self, operation: Operation, row: usize) -> bool {
        let decision = self.decide(operation, sizes_of(row).0);
        decision.0 & !(Decision::ID | Decision::COUNTED) == 0
    }

    /// Sends every request the way on which requests are looked at, as if the table were compiled so.
    pub fn look_at_all(&self) {
        self.first.iter().for_each(|below| below.store(0, Relaxed));
        self.small_native.store(0, Relaxed);
        self.below_mapped.store(usize::MAX, Relaxed);
        self.every_byte().for_each(|byte| {
            byte.store(byte.load(Relaxed) | Decision::COUNTED, Relaxed);
        });
    }

    /// Beyond how many bytes, and beyond the small ones, all new objects are page-mapped without
    /// flags; `usize::MAX`: they are not.
    fn below_mapped(&self) -> usize {
        let from = SizeClass::of(SMALL_BYTES + 1).index();
        let classes = self.bytes[Operation::Allocate as usize].iter().enumerate().skip(from);
        let mapped = |byte: &AtomicU8| byte.load(Relaxed) == AllocatorId::Mmap as u8;
        let alike = classes.rev().take_while(|(_, byte)| mapped(byte));
        let first = alike.last().and_then(|(index, _)| SizeClass::from_index(index));
        first.map_or(usize::MAX, |class| class.first() - 1)
    }

    /// The decision for the smallest objects, and the bytes below which all new
    /// ones share it.
    fn beginning(&self) -> (u8, usize) {
        let allocate = Operation::Allocate as usize;
        let (small, large) = (&self.small[allocate], &self.bytes[allocate]);
        let first = small[0].load(Relaxed);
        let same = |byte: &&AtomicU8| byte.load(Relaxed) & !Decision::IF_WARM == first;
        let alike = small.iter().take_while(same).count();
        if alike < SMALL_COUNT {
            return (first, alike.saturating_sub(1) * SMALL_STEP + 1);
        }
        let from = SizeClass::of(SMALL_BYTES + 1).index();
        let alike = large.iter().skip(from).take_while(same).count();
        // The last class ends where sizes do.
        let end = SizeClass::from_index(from + alike).map_or(usize::MAX, SizeClass::first);
        (first, end.max(SMALL_BYTES + 1))
    }
}

/// Whether a template's boundary lies within the sizes from `first` to `last`.
fn cuts(mode: &Mode, first: usize, last: usize) -> bool {
    let Mode::Template(template) = mode else { return false };
    let inside = |to: usize| first < to && to <= last;
    template.ranges().iter().any(|range| range.to != usize::MAX && inside(range.to))
}

/// The decision for one size, from the mode itself. What is not available is
/// glibc's.
// A mode has no bytes where another kind of mode has some. In the loops of `compile` the compiler looks at these
// before it knows the kind, without effect; valgrind reports it.
#[inline(never)]
pub fn exact(mode: &Mode, available: Available, operation: Operation, size: usize) -> Decision {
    let usable = |id: AllocatorId| if available.has(id) { id } else { AllocatorId::Sys };
    let plain = |id: AllocatorId| Decision(usable(id) as u8);
    match mode {
        Mode::Only(id) => plain(*id),
        Mode::Template(template) => plain(template.decide(size)),
        Mode::Preset => plain(Template::PRESET.decide(size)),
        Mode::Switch(switch) if size >= switch.point => plain(AllocatorId::Mmap),
        Mode::Switch(switch) => match operation {
            Operation::Allocate => plain(switch.base),
            Operation::Grow => Decision(usable(switch.base) as u8 | Decision::BY_COUNTER),
        },
        Mode::Auto if size >= MAPPED_FROM => {
            let may_pack = operation == Operation::Allocate && size < PACKED_TO;
            if may_pack { Decision(PACKED) } else { plain(AllocatorId::Mmap) }
        }
        Mode::Auto => {
            let warm_from = match operation {
                Operation::Allocate => EARLY_FROM,
                Operation::Grow => WARM_FROM,
            };
            let flag = if size >= warm_from { Decision::IF_WARM } else { 0 };
            Decision(usable(AllocatorId::Native) as u8 | flag)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_mode;
    use proptest::prelude::*;

    fn table(mode: &str) -> Table {
        let table = Table::elsewhere();
        table.compile(&parse_mode(mode).unwrap(), all(), false);
        table
    }

    fn all() -> Available {
        AllocatorId::ALL.into_iter().fold(Available::BASE, Available::with)
    }

    #[test]
    fn a_row_that_is_set_is_decided_so_and_no_other() {
        use crate::tuner::row_of;
        for (operation, row) in
            [(Operation::Allocate, 6), (Operation::Allocate, 14), (Operation::Grow, 12)]
        {
            let (usual, set) = (table("auto"), table("auto"));
            set.set_row(operation, row, Decision(AllocatorId::Sys as u8));
            for size in (1..3000).chain((0..200).map(|n| 4096 + n * 331)) {
                for asked in [Operation::Allocate, Operation::Grow] {
                    let hit = asked == operation && row_of(size) == row;
                    let expected = if hit {
                        Decision(AllocatorId::Sys as u8)
                    } else {
                        usual.decide(asked, size)
                    };
                    assert_eq!(set.decide(asked, size), expected, "{asked:?} {size}");
                }
                let native = set.begins_with(AllocatorId::Native, size);
                let decided = set.decide(Operation::Allocate, size).allocator();
                assert!(!native || decided == AllocatorId::Native, "{size}");
            }
        }
    }

    #[test]
    fn while_all_are_looked_at_nobody_takes_the_short_way() {
        let table = table("auto");
        table.look_at_all();
        assert!(!table.begins_with(AllocatorId::Native, 1) && !table.ends_mapped(usize::MAX));
        let counted = Table::elsewhere();
        counted.compile(&Mode::Auto, all(), true);
        for size in (0..2000).chain([4096, 100_000, 1 << 20]) {
            for operation in [Operation::Allocate, Operation::Grow] {
                assert_eq!(
                    table.decide(operation, size),
                    counted.decide(operation, size),
                    "{size}"
                );
            }
        }
    }

    #[test]
    fn what_cannot_be_had_is_glibcs() {
        let table = Table::elsewhere();
        table.compile(&parse_mode("jemalloc").unwrap(), Available::BASE, false);
        assert_eq!(table.decide(Operation::Allocate, 100).0, AllocatorId::Sys as u8);
    }

    #[test]
    fn an_empty_table_decides_nothing() {
        assert!(Table::elsewhere().decide(Operation::Allocate, 5).has(Decision::ELSEWHERE));
    }

    #[test]
    fn a_boundary_inside_a_class_is_looked_at() {
        let table = table("template=0-1001:sys,1001-1003:mimalloc,1003-:mmap");
        assert!(table.decide(Operation::Allocate, 1000).has(Decision::EXACT));
        assert!(table.decide(Operation::Allocate, 993).has(Decision::EXACT));
        assert_eq!(table.decide(Operation::Allocate, 992).allocator(), AllocatorId::Sys);
        assert_eq!(table.decide(Operation::Allocate, 100).allocator(), AllocatorId::Sys);
        assert_eq!(table.decide(Operation::Allocate, 2000).allocator(), AllocatorId::Mmap);
    }

    #[test]
    fn switch_counts_below_its_point_only() {
        let table = table("switch=jemalloc,point=64K");
        let grow = table.decide(Operation::Grow, 1000);
        assert!(grow.has(Decision::BY_COUNTER));
        assert_eq!(grow.allocator(), AllocatorId::Jemalloc);
        assert_eq!(table.decide(Operation::Allocate, 1000).0, AllocatorId::Jemalloc as u8);
        assert_eq!(table.decide(Operation::Grow, 65536).0, AllocatorId::Mmap as u8);
    }

    #[test]
    fn where_the_mapped_objects_begin() {
        let from = |mode: &str| {
            let table = table(mode);
            let below = table.below_mapped.load(Relaxed);
            let sizes = (0..64).map(|bits| 1usize << bits);
            let sizes = sizes.chain([below, below.saturating_add(1), usize::MAX]);
            for size in sizes.filter(|size| table.ends_mapped(*size)) {
                let decision = table.decide(Operation::Allocate, size);
                assert_eq!(decision.0, AllocatorId::Mmap as u8, "{mode}: {size}");
            }
            assert!(!table.ends_mapped(below));
            below.saturating_add(1)
        };
        assert_eq!(from("auto"), PACKED_TO);
        assert_eq!(from("template"), MAPPED_FROM);
        assert_eq!(from("native"), usize::MAX);
        assert_eq!(from("template=0-64K:native,64K-:mmap"), 65536);
        assert_eq!(from("template=0-64K:mmap,64K-:sys"), usize::MAX);
        let counted = Table::elsewhere();
        counted.compile(&Mode::Auto, all(), true);
        assert!(!counted.ends_mapped(PACKED_TO) && !counted.may_pack(MAPPED_FROM));
        counted.copy_from(&table("auto"));
        assert!(counted.ends_mapped(PACKED_TO) && counted.may_pack(MAPPED_FROM));
        counted.send_elsewhere();
        assert!(!counted.ends_mapped(PACKED_TO) && !counted.may_pack(MAPPED_FROM));
    }

    #[test]
    fn new_objects_of_auto_may_be_packed_and_no_others() {
        let auto = table("auto");
        for (size, may) in [
            (MAPPED_FROM - 1, false),
            (MAPPED_FROM, true),
            (PACKED_TO - 1, true),
            (PACKED_TO, false),
        ] {
            assert_eq!(auto.may_pack(size), may, "{size}");
            assert!(!auto.begins_with(AllocatorId::Native, size) || size < MAPPED_FROM);
        }
        assert_eq!(auto.decide(Operation::Allocate, MAPPED_FROM).allocator(), AllocatorId::Mmap);
        assert_eq!(auto.decide(Operation::Grow, MAPPED_FROM).0, AllocatorId::Mmap as u8);
        for mode in ["template", "mmap", "native", "template=0-128K:native,128K-:mmap"] {
            assert!(!table(mode).may_pack(MAPPED_FROM), "{mode}");
        }
    }

    #[test]
    fn most_modes_begin_with_one_allocator() {
        let below = |mode, id| {
            let table = table(mode);
            let fits = |size: &usize| table.begins_with(id, *size);
            [0, 16, 1000, 1024, 1025, MAPPED_FROM - 1, MAPPED_FROM]
                .iter()
                .filter(|s| fits(s))
                .count()
        };
        assert_eq!(below("mimalloc", AllocatorId::Mimalloc), 7);
        assert_eq!(below("mimalloc", AllocatorId::Jemalloc), 0);
        assert_eq!(below("auto", AllocatorId::Native), 6);
        assert_eq!(below("template=0-1001:native,1001-:sys", AllocatorId::Native), 2);
        let table = table("auto");
        table.send_elsewhere();
        assert!(!table.begins_with(AllocatorId::Native, 0));
        table.compile(&Mode::Auto, all(), true);
        assert!(!table.begins_with(AllocatorId::Native, 0), "requests are counted");
    }

    #[test]
    fn small_requests_are_natives_where_all_up_to_there_are() {
        let below = |table: &Table| {
            (0..2 * SMALL_BYTES).take_while(|size| table.begins_small(*size)).count()
        };
        for (mode, first_other) in [
            ("auto", SMALL_BYTES + 1),
            ("native", SMALL_BYTES + 1),
            ("sys", 0),
            ("template=0-513:native,513-:sys", 513),
            ("template=0-513:sys,513-:native", 0),
        ] {
            let (table, copy) = (table(mode), Table::elsewhere());
            assert!(below(&table) <= first_other && below(&table) + 16 > first_other, "{mode}");
            copy.copy_from(&table);
            assert_eq!(below(&copy), below(&table), "{mode}");
            table.look_at_all();
            copy.send_elsewhere();
            assert_eq!((below(&table), below(&copy)), (0, 0), "{mode}");
        }
    }

    #[test]
    fn early_looks_change_the_table_of_auto_and_no_other() {
        let native = |table: &Table, size| table.begins_with(AllocatorId::Native, size);
        let auto = table("auto");
        assert!(native(&auto, EARLY_FROM) && native(&auto, MAPPED_FROM - 1));
        assert!(!auto.looks_early(EARLY_FROM));
        auto.look_early(true);
        assert!(!native(&auto, EARLY_FROM) && native(&auto, EARLY_FROM - 2));
        assert!(auto.looks_early(EARLY_FROM) && auto.looks_early(MAPPED_FROM - 1));
        assert!(!auto.looks_early(EARLY_FROM - 1) && !auto.looks_early(MAPPED_FROM));
        auto.look_early(true);
        auto.look_early(false);
        auto.look_early(false);
        assert!(native(&auto, MAPPED_FROM - 1) && !native(&auto, MAPPED_FROM));
        let flag = |size| auto.decide(Operation::Allocate, size).has(Decision::IF_WARM);
        assert!(flag(EARLY_FROM) && flag(MAPPED_FROM - 1) && !flag(PACKED_TO));
        assert_eq!(auto.decide(Operation::Allocate, EARLY_FROM - 1).0, AllocatorId::Native as u8);
        let others =
            ["0-4096:native,4096-:sys", "0-4095:native,4095-:sys", "0-128K:native,128K-:mmap"];
        for mode in others {
            let other = table(&std::format!("template={mode}"));
            let before =
                [EARLY_FROM - 1, EARLY_FROM, MAPPED_FROM - 1].map(|size| native(&other, size));
            for look in [false, true, false] {
                other.look_early(look);
                assert!(!other.is_looking_early());
                let now =
                    [EARLY_FROM - 1, EARLY_FROM, MAPPED_FROM - 1].map(|size| native(&other, size));
                assert_eq!(now, before, "{mode}");
            }
        }
        // A counted table, and one whose scopes decide, look at every request already.
        auto.send_elsewhere();
        auto.look_early(true);
        auto.look_early(false);
        assert!(!native(&auto, 0));
        assert_ne!(SizeClass::of(EARLY_MARK).first(), EARLY_MARK);
    }

    proptest! {
        #[test]
        fn a_table_agrees_with_its_template(
            a in 1usize..1 << 20, b in 1usize..1 << 20, sizes in prop::collection::vec(0usize..1 << 21, 50),
        ) {
            prop_assume!(a < b);
            let text = std::format!("template=0-{a}:jemalloc,{a}-{b}:sys,{b}-:mmap");
            let mode = parse_mode(&text).unwrap();
            let compiled = table(&text);
            for size in sizes.into_iter().chain([0, a - 1, a, b - 1, b, usize::MAX]) {
                let exact = exact(&mode, all(), Operation::Allocate, size);
                for id in AllocatorId::ALL {
                    prop_assert!(!compiled.begins_with(id, size) || exact.0 == id as u8);
                }
                let decided = compiled.decide(Operation::Allocate, size);
                prop_assert!(decided == exact || decided.0 == Decision::EXACT);
            }
        }
    }
    extern crate std;
}
