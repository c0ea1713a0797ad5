//! Whether a new large object is expected to use most of its pages, and so is worth huge pages.
//!
//! A huge page takes 2 MiB for the first byte that is used of it. So the first objects begin with small pages. If an object of
//! its kind is found to have used most of them, the next ones begin with huge pages. A kind is the power of two of the size, and
//! whether the contents are zeros (`calloc`): a table of zeros is often sparse.
//!
//! A program that fills one large object and ends would never have huge pages so. So objects of any contents begin with huge pages as long as
//! these are [`UNPROVEN_PAGES`] in all and nothing is known of their kind. Where the kernel has huge pages wherever one fits, the administrator
//! wants speed for such a program, and other allocators' objects have them: there these are [`UNPROVEN_OBJECTS`] of any size.
//!
//! Both of our allocators use this, each with a [`Densities`] of its own. Objects have numbers there.
//!
//! Only objects on small pages show what a program uses, so that one in [`TRIAL_EVERY`] of those that could have huge pages begins
//! with small ones.

use core::sync::atomic::{AtomicBool, AtomicI8, AtomicU8, AtomicU64, AtomicUsize, Ordering::*};

use spandrel_os::pagemap::Pagemap;
use spandrel_os::{clock, vm};
use spandrel_pages::{HUGEPAGE_BYTES, KIB, MIB, PAGE_BYTES};

const PAGES_PER_HUGE: usize = HUGEPAGE_BYTES / PAGE_BYTES;

/// Powers of two of pages, from a huge page on.
const OCTAVES: usize = 18;
/// Powers of two of pages below that, from 128 KiB on: see [`Densities::is_packed`].
const SMALL_OCTAVES: usize = PAGES_PER_HUGE.ilog2() as usize - SMALL_FROM.ilog2() as usize;
/// The first of them.
const SMALL_FROM: usize = 128 * KIB / PAGE_BYTES;
/// Objects of fewer pages may be packed: 1.375 MiB.
const PACKED_TO_PAGES: usize = 11 * MIB / 8 / PAGE_BYTES;
/// What an object is asked at: pages that lie evenly between its first and its last one.
const SPOTS: usize = 16;
/// The least number of resident spots of a dense object, ...
const DENSE_SPOTS: usize = 12;
/// ... and the largest number of a sparse one.
const SPARSE_SPOTS: usize = 4;
/// A live object is not sparse before it has had this time to be filled. (1 GiB of small pages takes half a second.)
const FILL_MS: u64 = 1000;
/// Pages of all objects of unknown kinds that begin with huge pages, in the life of a process: 32 MiB, which may be resident and not used.
const UNPROVEN_PAGES: usize = 32 * MIB / PAGE_BYTES;
/// Objects of unknown kinds that begin with huge pages in the life of a process where the kernel has huge pages unasked.
const UNPROVEN_OBJECTS: usize = 16;
/// Trust in a kind, at most.
const MOST_TRUST: i8 = 3;
/// One in this number of objects of a dense kind begins with small pages.
const TRIAL_EVERY: u8 = 16;
/// One object in this time is on small pages that could be packed.
const TRIAL_MS: u64 = 100;
/// As [`TRIAL_EVERY`], of a kind that has the most trust.
const TRUSTED_TRIAL_EVERY: u8 = 64;
/// New objects whose density is not known yet.
const RECENT: usize = 4;
/// Looks at them, in the life of a process, that objects of unknown kinds cause: a program may fill its memory within one tick of the
/// coarse clock.
const QUICK_LOOKS: usize = 64;

/// The contents that the program requires of a new object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Any.
    Any,
    /// Zeros.
    Zeros,
}

/// What is known of each kind, and the objects that will tell more.
pub struct Densities {
    /// Positive: objects of this kind are dense. By [`Contents`] and power of two.
    trust: [[AtomicI8; OCTAVES]; 2],
    /// As `trust`, of objects smaller than a huge page, of any contents.
    small_trust: [AtomicI8; SMALL_OCTAVES],
    /// Whether there are huge pages to pack objects on.
    may_pack: AtomicBool,
    trials: AtomicU8,
    /// See [`UNPROVEN_PAGES`].
    unproven: AtomicUsize,
    /// The most that an object counts there.
    most_unproven: AtomicUsize,
    /// When the recent objects were looked at last.
    asked_ms: AtomicU64,
    /// When an object may be on small pages next that could be packed.
    next_trial_ms: AtomicU64,
    /// See [`QUICK_LOOKS`].
    quick_looks: AtomicUsize,
    /// See [`Young`].
    recent: [AtomicU64; RECENT],
}

/// An object that began with small pages a short while ago, as one word; 0 is none.
#[derive(Clone, Copy)]
struct Young {
    id: u32,
    contents: Contents,
    /// Coarse milliseconds, modulo 2^30.
    born_ms: u64,
}

const BORN_MASK: u64 = (1 << 30) - 1;

impl Young {
    fn word(self) -> u64 {
        let zeros = u64::from(self.contents == Contents::Zeros);
        1 << 63 | self.born_ms << 33 | zeros << 32 | u64::from(self.id)
    }

    fn of(word: u64) -> Option<Self> {
        (word != 0).then_some(Self {
            id: word as u32,
            contents: if word >> 32 & 1 == 1 { Contents::Zeros } else { Contents::Any },
            born_ms: word >> 33 & BORN_MASK,
        })
    }

    fn age_ms(self) -> u64 {
        (clock::coarse_ms() & BORN_MASK).wrapping_sub(self.born_ms) & BORN_MASK
    }
}

fn octave(pages: usize) -> usize {
    let doublings = (pages / PAGES_PER_HUGE).max(1).ilog2() as usize;
    doublings.min(OCTAVES - 1)
}

/// The kind of an object that has no huge page of its own; `None`: it may have one.
fn small_octave(pages: usize) -> Option<usize> {
    let at = (pages / SMALL_FROM).max(1).ilog2() as usize;
    (pages < PACKED_TO_PAGES).then_some(at)
}

impl Default for Densities {
    fn default() -> Self {
        Self::new()
    }
}

impl Densities {
    /// Nothing is known.
    pub const fn new() -> Self {
        Self {
            trust: [const { [const { AtomicI8::new(0) }; OCTAVES] }; 2],
            small_trust: [const { AtomicI8::new(0) }; SMALL_OCTAVES],
            may_pack: AtomicBool::new(true),
            trials: AtomicU8::new(0),
            unproven: AtomicUsize::new(0),
            most_unproven: AtomicUsize::new(usize::MAX),
            asked_ms: AtomicU64::new(0),
            next_trial_ms: AtomicU64::new(0),
            quick_looks: AtomicUsize::new(0),
            recent: [const { AtomicU64::new(0) }; RECENT],
        }
    }

    /// Told at the start: the kernel has huge pages wherever one fits.
    pub fn are_unasked(&self) {
        self.most_unproven.store(UNPROVEN_PAGES / UNPROVEN_OBJECTS, Relaxed);
    }

    /// Told at the start: the kernel has no huge pages.
    pub fn are_not_packed(&self) {
        self.may_pack.store(false, Relaxed);
    }

    /// Whether the kernel has huge pages wherever one fits.
    pub fn is_unasked(&self) -> bool {
        self.most_unproven.load(Relaxed) != usize::MAX
    }

    /// Whether a new object of `pages` pages begins with huge pages. If not, [`Self::note`] is to tell of it. `find`: where an object lies that was noted, and
    /// its pages; `None`: it is gone.
    pub fn begins_huge(
        &self,
        contents: Contents,
        pages: usize,
        find: impl Fn(u32) -> Option<(*mut u8, usize)>,
    ) -> bool {
        if self.is_time_to_ask(self.trust_in(contents, pages).is_some()) {
            self.ask_recent(find);
        }
        self.is_expected_dense(contents, pages)
    }

    /// Whether a new object of `pages` pages, smaller than a huge page, is better packed with others on huge pages than on small pages of its own: objects of
    /// its power of two are dense, and it is not one of those that tell whether they still are. `find` as in [`Self::begins_huge`].
    pub fn is_packed(&self, pages: usize, find: impl Fn(u32) -> Option<(*mut u8, usize)>) -> bool {
        let is_known =
            small_octave(pages).is_some_and(|at| self.small_trust[at].load(Relaxed) != 0);
        if self.is_time_to_ask(is_known) {
            self.ask_recent(find);
        }
        self.is_expected_packed(pages)
    }

    /// An object is gone whose pages are still there: what was found of them. `None`: an object of less than a huge page that tells nothing.
    pub fn note_freed(&self, id: u32, at: *mut u8, pages: usize) -> Option<Found> {
        if pages < SMALL_FROM {
            return None;
        }
        let young = self.take(id);
        if young.is_none() && pages < PAGES_PER_HUGE {
            return None;
        }
        let found = look(at, 0, pages);
        if let Some(young) = young
            && found != Found::Between
        {
            self.learn(young.contents, pages, found == Found::Dense);
        }
        Some(found)
    }

    /// Looks at the objects that have begun with small pages lately.
    fn ask_recent(&self, find: impl Fn(u32) -> Option<(*mut u8, usize)>) {
        for place in &self.recent {
            let word = place.load(Relaxed);
            let Some(young) = Young::of(word) else { continue };
            // A program frees objects meanwhile. Then what is read here is of no object or of another: one wrong verdict.
            let Some((at, pages)) = find(young.id).filter(|(_, pages)| *pages >= SMALL_FROM) else {
                continue;
            };
            let found = look(at, 0, pages);
            let tells = match found {
                Found::Dense => true,
                Found::Sparse => young.age_ms() >= FILL_MS,
                Found::Between => false,
            };
            if tells && place.compare_exchange(word, 0, Relaxed, Relaxed).is_ok() {
                self.learn(young.contents, pages, found == Found::Dense);
            }
        }
    }

    /// Whether a new object of an expected kind has huge pages from the beginning. Sizes of which nothing is known follow the next smaller one, as a
    /// table that grows by copies is of another size each time. Lost counts do not matter.
    fn is_expected_dense(&self, contents: Contents, pages: usize) -> bool {
        let Some(trust) = self.trust_in(contents, pages) else {
            return contents == Contents::Any && self.may_try(pages);
        };
        if trust <= 0 {
            return false;
        }
        let turn = self.trials.load(Relaxed).wrapping_add(1);
        self.trials.store(turn, Relaxed);
        let every = if trust < MOST_TRUST { TRIAL_EVERY } else { TRUSTED_TRIAL_EVERY };
        !turn.is_multiple_of(every)
    }

    /// See [`Self::is_packed`].
    fn is_expected_packed(&self, pages: usize) -> bool {
        let trust = small_octave(pages).map_or(0, |at| self.small_trust[at].load(Relaxed));
        if trust <= 0 || !self.may_pack.load(Relaxed) {
            return false;
        }
        let turn = self.trials.load(Relaxed).wrapping_add(1);
        self.trials.store(turn, Relaxed);
        !(turn.is_multiple_of(TRIAL_EVERY) && self.is_time_to_try())
    }

    /// Whether the last object that could have been packed and was not is long ago. Lost counts do not matter.
    fn is_time_to_try(&self) -> bool {
        let now = clock::coarse_ms();
        let is_time = now >= self.next_trial_ms.load(Relaxed);
        if is_time {
            self.next_trial_ms.store(now + TRIAL_MS, Relaxed);
        }
        is_time
    }

    /// What is known of a kind; `None`: nothing.
    fn trust_in(&self, contents: Contents, pages: usize) -> Option<i8> {
        let known = self.trust[contents as usize].iter().take(octave(pages) + 1).rev();
        known.map(|trust| trust.load(Relaxed)).find(|trust| *trust != 0)
    }

    /// Whether the recent objects are to be looked at: once in a tick of the coarse clock, and a few times more while nothing is
    /// known of a kind. Lost counts do not matter.
    fn is_time_to_ask(&self, is_known: bool) -> bool {
        let now = clock::coarse_ms();
        if self.asked_ms.load(Relaxed) != now {
            self.asked_ms.store(now, Relaxed);
            return true;
        }
        let looks = self.quick_looks.load(Relaxed);
        let is_quick = looks < QUICK_LOOKS && !is_known;
        if is_quick {
            self.quick_looks.store(looks + 1, Relaxed);
        }
        is_quick
    }

    /// Whether an object of an unknown kind, of `pages` pages, begins with huge pages.
    fn may_try(&self, pages: usize) -> bool {
        let counted = pages.min(self.most_unproven.load(Relaxed));
        let more = |before: usize| Some(before + counted).filter(|sum| *sum <= UNPROVEN_PAGES);
        self.unproven.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// An object was found dense or sparse. One sparse object outweighs all trust: it may cost 512 times its memory, and a dense one on small
    /// pages three times its page faults' time.
    fn learn(&self, contents: Contents, pages: usize, dense: bool) {
        let trust = match small_octave(pages) {
            Some(at) => &self.small_trust[at],
            None => &self.trust[contents as usize][octave(pages)],
        };
        let before = trust.load(Relaxed);
        let after = if dense { (before + 1).min(MOST_TRUST) } else { (before.min(0) - 1).max(-1) };
        trust.store(after, Relaxed);
    }

    /// Remembers a new object on small pages, in place of the oldest.
    pub fn note(&self, id: u32, contents: Contents) {
        let young = Young { id, contents, born_ms: clock::coarse_ms() & BORN_MASK };
        let mut word = young.word();
        for place in &self.recent {
            word = place.swap(word, Relaxed);
        }
    }

    /// Takes an object out of those whose density is not known.
    fn take(&self, id: u32) -> Option<Young> {
        self.recent.iter().find_map(|place| {
            let word = place.load(Relaxed);
            let young = Young::of(word).filter(|young| young.id == id)?;
            place.compare_exchange(word, 0, Relaxed, Relaxed).is_ok().then_some(young)
        })
    }
}

/// What was found at the spots of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Most of them are resident.
    Dense,
    /// Few are.
    Sparse,
    /// Neither is certain.
    Between,
}

/// The spots between page `from` and page `to` of those at `at`.
fn spots(at: *mut u8, from: usize, to: usize) -> impl Iterator<Item = *mut u8> {
    let last = to.saturating_sub(from + 1);
    (0..SPOTS).map(move |spot| at.wrapping_add((from + last * spot / (SPOTS - 1)) * PAGE_BYTES))
}

/// Whether most of the spots are pages that this process has written: a read of fresh memory takes none, and one that a child of a fork shares is
/// copied when it is made part of a huge page.
pub(crate) fn is_own(map: &Pagemap, at: *mut u8, from: usize, to: usize) -> bool {
    spots(at, from, to).filter(|spot| map.own(*spot, 1) > 0).count() >= DENSE_SPOTS
}

/// Looks at the spots between page `from` and page `to` of those at `at`, until the answer is certain.
fn look(at: *mut u8, from: usize, to: usize) -> Found {
    let (mut resident, mut missing) = (0, 0);
    for spot in spots(at, from, to) {
        if vm::is_resident(spot) {
            resident += 1;
        } else {
            missing += 1;
        }
        if resident > SPARSE_SPOTS && missing > SPOTS - DENSE_SPOTS {
            return Found::Between;
        }
    }
    if resident >= DENSE_SPOTS {
        Found::Dense
    } else if resident <= SPARSE_SPOTS {
        Found::Sparse
    } else {
        Found::Between
    }
}

/// Whether most of the pages from `from` up to `to` of those at `at` are resident.
pub fn is_filled(at: *mut u8, from: usize, to: usize) -> bool {
    look(at, from, to) == Found::Dense
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: usize = PAGES_PER_HUGE;

    /// Of which no object begins with huge pages unproven.
    fn cautious() -> Densities {
        let densities = Densities::new();
        densities.unproven.store(UNPROVEN_PAGES, Relaxed);
        densities
    }

    #[test]
    fn some_of_unknown_kinds_begin_huge() {
        let densities = Densities::new();
        assert!(!densities.is_expected_dense(Contents::Zeros, PAGES));
        assert!(!densities.is_expected_dense(Contents::Any, UNPROVEN_PAGES + 1));
        let huge = (0..100).filter(|_| densities.is_expected_dense(Contents::Any, PAGES)).count();
        assert_eq!(huge, 16);
        assert!(!densities.is_expected_dense(Contents::Any, 8 * PAGES));
    }

    #[test]
    fn some_of_any_size_begin_huge_where_huge_pages_come_unasked() {
        let densities = Densities::new();
        densities.are_unasked();
        assert!(!densities.is_expected_dense(Contents::Zeros, PAGES));
        let sizes = [512 * PAGES, PAGES, 2 * UNPROVEN_PAGES, 3 * PAGES];
        let huge = sizes.iter().cycle().take(100);
        assert_eq!(
            huge.filter(|size| densities.is_expected_dense(Contents::Any, **size)).count(),
            16
        );
    }

    #[test]
    fn objects_begin_small_until_one_was_dense() {
        let densities = cautious();
        assert!(!densities.is_expected_dense(Contents::Any, 4 * PAGES));
        densities.learn(Contents::Any, 4 * PAGES, true);
        assert!(densities.is_expected_dense(Contents::Any, 4 * PAGES));
        assert!(densities.is_expected_dense(Contents::Any, 100 * PAGES), "the next larger known");
        assert!(!densities.is_expected_dense(Contents::Any, 2 * PAGES), "nothing is known");
        assert!(!densities.is_expected_dense(Contents::Zeros, 4 * PAGES), "another kind");
    }

    #[test]
    fn one_sparse_object_outweighs_all_dense_ones() {
        let densities = cautious();
        (0..9).for_each(|_| densities.learn(Contents::Zeros, PAGES, true));
        densities.learn(Contents::Zeros, PAGES, false);
        assert!(!densities.is_expected_dense(Contents::Zeros, PAGES));
        (0..9).for_each(|_| densities.learn(Contents::Zeros, PAGES, false));
        (0..2).for_each(|_| densities.learn(Contents::Zeros, PAGES, true));
        assert!(
            densities.is_expected_dense(Contents::Zeros, PAGES),
            "two dense ones are enough again"
        );
    }

    #[test]
    fn some_of_a_dense_kind_begin_small_to_tell() {
        let densities = Densities::new();
        densities.learn(Contents::Any, PAGES, true);
        let small = (0..160).filter(|_| !densities.is_expected_dense(Contents::Any, PAGES)).count();
        assert_eq!(small, 10);
    }

    #[test]
    fn small_objects_are_packed_where_theirs_are_dense() {
        let densities = Densities::new();
        let packed =
            |pages: usize| (0..100).filter(|_| densities.is_expected_packed(pages)).count();
        assert_eq!(packed(SMALL_FROM), 0, "nothing is known");
        densities.learn(Contents::Any, SMALL_FROM, true);
        assert_eq!(packed(2 * SMALL_FROM - 1), 99, "one tells of others");
        assert_eq!(packed(2 * SMALL_FROM), 0, "another kind");
        densities.learn(Contents::Any, PACKED_TO_PAGES - 1, true);
        assert_eq!(packed(PACKED_TO_PAGES - 1), 100, "it is not long ago");
        assert_eq!(packed(PACKED_TO_PAGES), 0, "it may have a huge page");
        densities.learn(Contents::Any, SMALL_FROM, false);
        assert_eq!(packed(SMALL_FROM), 0);
        densities.are_not_packed();
        assert_eq!(packed(PACKED_TO_PAGES - 1), 0);
    }

    #[test]
    fn the_last_objects_are_remembered_and_taken_once() {
        let densities = Densities::new();
        let id = |index: u32| 2 << 28 | index;
        (0..6).for_each(|index| densities.note(id(index), Contents::Zeros));
        assert!(densities.take(id(1)).is_none(), "too long ago");
        let young = densities.take(id(2)).expect("one of the last four");
        assert!(young.contents == Contents::Zeros && young.age_ms() < FILL_MS);
        assert!(densities.take(id(2)).is_none());
        assert!(densities.take(id(5)).is_some());
    }
}
