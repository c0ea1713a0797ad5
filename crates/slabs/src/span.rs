//! Spans of small objects: which of their objects are free.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use spandrel_pages::HEAP_PAGE_BYTES;

use crate::check::{Fault, ensure};
use crate::class::{CLASS, Class, SHARDS};
use crate::map::{GONE, Page, WORDS_PER_PAGE};

/// What is known of a span, at its first page; all else is guarded by the lock
/// of the span's class. Pages behind the first know only how far it is.
#[repr(C, align(32))]
pub struct SpanRecord {
    /// Heap pages of the span.
    pub pages: AtomicU32,
    /// Neighbours on the list of the class, as page numbers from the base; 0: none.
    pub next: AtomicU32,
    /// See `next`.
    pub prev: AtomicU32,
    /// Free objects; of the span of a large object: lines before it.
    pub free: AtomicU16,
    /// How many pages before this one the span begins.
    pub back: AtomicU16,
    /// First word of the bits that may have a free object.
    pub first_word: AtomicU16,
    /// The list of its shard that the span is on, counted from 1; 0: none.
    pub list: AtomicU8,
    /// The shard that the span belongs to.
    pub shard: AtomicU8,
}

const _: () = assert!(size_of::<SpanRecord>() == 32);

/// Why an address is no object that can be given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// It does not lie at the beginning of an object.
    Inside,
    /// The object is free already.
    FreeAlready,
}

/// A span of small objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    first: Page,
    class: usize,
}

impl Span {
    /// The span that begins at a page.
    pub fn at(first: Page, class: usize) -> Self {
        Span { first, class }
    }

    /// The span that covers a page of `class`.
    #[inline]
    pub fn covering(page: Page, class: usize) -> Self {
        let back = page.record().back.load(Relaxed) as usize;
        Span { first: Page(page.0 - back), class }
    }

    /// First page.
    pub fn first(self) -> Page {
        self.first
    }

    /// Its record.
    #[inline]
    pub fn record(self) -> &'static SpanRecord {
        self.first.record()
    }

    fn of_class(self) -> &'static Class {
        &CLASS[self.class]
    }

    /// Address of the first object.
    fn begin(self) -> usize {
        self.first.address() + self.of_class().begin(self.first.0)
    }

    /// The object of the span that begins at an address not behind the span.
    pub fn index_of(self, object: usize) -> Option<usize> {
        object.checked_sub(self.begin()).and_then(|offset| self.of_class().beginning_at(offset))
    }

    /// Where an object begins.
    #[cfg(test)]
    pub fn object(self, index: usize) -> usize {
        self.begin() + self.of_class().offset_of(index)
    }

    fn words(self) -> usize {
        (self.of_class().objects as usize)
            .div_ceil(64)
            .min(self.of_class().pages as usize * WORDS_PER_PAGE)
    }

    /// Counts again what the record says. To be called with the lock of the class held.
    ///
    /// # Errors
    /// What is not as it should be.
    pub fn check(self) -> Result<(), Fault> {
        let (at, class, record) = (self.first.address(), self.of_class(), self.record());
        ensure(at, record.pages.load(Relaxed) == class.pages.into(), "pages of a span")?;
        ensure(at, self.shard() < SHARDS, "shard of a span")?;
        for back in 0..class.pages {
            let page = Page(self.first.0 + usize::from(back));
            let same = page.class().load(Relaxed) as usize == self.class;
            ensure(page.address(), same, "the class of a span's page")?;
            let way = page.record().back.load(Relaxed) == back;
            ensure(page.address(), way, "the way back to the span's first page")?;
        }
        let (objects, first_word) = (class.objects as usize, record.first_word.load(Relaxed));
        let mut free = 0;
        for (at_word, word) in self.first.bits(self.words()).iter().enumerate() {
            let bits = word.load(Relaxed);
            let left = objects - at_word * 64;
            ensure(at, left >= 64 || bits >> left == 0, "free objects behind the last")?;
            let sooner = bits == 0 || at_word >= first_word.into();
            ensure(at, sooner, "free objects before the first word that may have any")?;
            free += bits.count_ones() as usize;
        }
        ensure(at, free == self.free(), "free objects of a span")
    }

    /// What is wrong with an address that shall be an object in use of this span. No lock is needed as long as
    /// no other thread has the object: the thread that takes or gives it changes its bit.
    pub fn wrong(self, object: usize) -> Option<Wrong> {
        let Some(index) = self.index_of(object) else { return Some(Wrong::Inside) };
        (self.word_of(index).load(Relaxed) & Self::bit(index) != 0).then_some(Wrong::FreeAlready)
    }

    /// Marks an object in use as if it were free, or takes the mark away, for [`crate::check`]: no other thread
    /// may look at the bits meanwhile.
    pub fn mark(self, object: usize, marked: bool) {
        if let Some(index) = self.index_of(object) {
            let (word, bit) = (self.word_of(index), Self::bit(index));
            let bits = word.load(Relaxed);
            word.store(if marked { bits | bit } else { bits & !bit }, Relaxed);
        }
    }

    fn word_of(self, index: usize) -> &'static AtomicU64 {
        self.first.word(index / 64)
    }

    fn bit(index: usize) -> u64 {
        1 << (index % 64)
    }

    /// Prepares fresh pages: every object is free.
    pub fn prepare(self) {
        let class = self.of_class();
        let record = self.record();
        let objects = class.objects as usize;
        for (word, bits) in self.first.bits(self.words()).iter().enumerate() {
            let left = objects - word * 64;
            bits.store(if left >= 64 { u64::MAX } else { (1 << left) - 1 }, Relaxed);
        }
        record.pages.store(u32::from(class.pages), Relaxed);
        record.free.store(class.objects, Relaxed);
        record.first_word.store(0, Relaxed);
        record.list.store(0, Relaxed);
        for page in 0..class.pages as usize {
            let page = Page(self.first.0 + page);
            page.record().back.store((page.0 - self.first.0) as u16, Relaxed);
            page.class().store(self.class as u8, Relaxed);
        }
    }

    /// The pages belong to no span any more.
    pub fn retire(self) {
        for page in 0..self.of_class().pages as usize {
            Page(self.first.0 + page).class().store(GONE + self.class as u8, Relaxed);
        }
    }

    /// Bytes of its pages.
    pub fn bytes(self) -> usize {
        self.of_class().pages as usize * HEAP_PAGE_BYTES
    }

    /// The shard that it belongs to.
    pub fn shard(self) -> usize {
        self.record().shard.load(Relaxed) as usize
    }

    /// Free objects.
    pub fn free(self) -> usize {
        self.record().free.load(Relaxed) as usize
    }

    /// Objects in use.
    pub fn used(self) -> usize {
        self.of_class().objects as usize - self.free()
    }

    /// Takes free objects, lowest addresses first, until `into` is full or the
    /// span is; how many.
    pub fn take(self, into: &mut [usize]) -> usize {
        let class = self.of_class();
        let record = self.record();
        let base = self.begin();
        let words = self.first.bits(self.words());
        let mut taken = 0;
        let mut at = record.first_word.load(Relaxed) as usize;
        while let Some(word) = words.get(at) {
            let mut bits = word.load(Relaxed);
            let first = base + class.offset_of(at * 64);
            if bits == u64::MAX
                && let Some(room) = into.get_mut(taken..taken + 64)
            {
                // Fresh spans, mostly: the bits need no search.
                let mut object = first;
                for place in room {
                    *place = object;
                    object += class.size as usize;
                }
                (bits, taken) = (0, taken + 64);
            }
            while bits != 0
                && let Some(place) = into.get_mut(taken)
            {
                *place = first + class.offset_of(bits.trailing_zeros() as usize);
                taken += 1;
                bits &= bits - 1;
            }
            word.store(bits, Relaxed);
            if taken == into.len() {
                break;
            }
            at += 1;
        }
        record.first_word.store(at as u16, Relaxed);
        record.free.store((self.free() - taken) as u16, Relaxed);
        taken
    }

    /// How full it is, below [`crate::class::FULLNESSES`].
    #[inline]
    pub fn fullness(self) -> usize {
        self.of_class().fullness_of(self.used())
    }

    /// Gives the first of these objects back, which lies in this span, and all
    /// that do behind it; how many.
    ///
    /// # Errors
    /// An address that is no object in use; those before it were given back.
    #[inline]
    pub fn give(self, objects: &[usize]) -> Result<usize, (usize, Wrong)> {
        let class = self.of_class();
        let record = self.record();
        let (start, begin, len) = (self.first.address(), self.begin(), self.bytes());
        let (size, count) = (class.size as usize, class.objects as usize);
        let mut lowest = record.first_word.load(Relaxed) as usize;
        let mut given = 0;
        // The next object's, if it lies in the span and begins where one does.
        let next = |given: usize| {
            let object = *objects.get(given)?;
            if object.wrapping_sub(start) >= len {
                return None;
            }
            let offset = object.checked_sub(begin);
            Some(offset.and_then(|offset| class.beginning_at(offset)).ok_or(Wrong::Inside))
        };
        let mut ahead = next(0);
        let mut wrong = None;
        // Neighbours share a word of bits, which is read and written once for them.
        while let Some(Ok(first)) = ahead
            && wrong.is_none()
        {
            let at = first / 64;
            let word = self.first.word(at);
            let mut bits = word.load(Relaxed);
            lowest = lowest.min(at);
            while let Some(Ok(index)) = ahead
                && index / 64 == at
            {
                let bit = Self::bit(index);
                if bits & bit != 0 {
                    wrong = Some(Wrong::FreeAlready);
                    break;
                }
                bits |= bit;
                given += 1;
                // What follows in memory often follows here too, and needs no division.
                let is_next = objects.get(given) == Some(&(objects[given - 1] + size));
                ahead =
                    if is_next && index + 1 < count { Some(Ok(index + 1)) } else { next(given) };
            }
            word.store(bits, Relaxed);
        }
        record.first_word.store(lowest as u16, Relaxed);
        record.free.store((self.free() + given) as u16, Relaxed);
        match (wrong, ahead) {
            (Some(wrong), _) | (None, Some(Err(wrong))) => Err((objects[given], wrong)),
            _ => Ok(given),
        }
    }
}
