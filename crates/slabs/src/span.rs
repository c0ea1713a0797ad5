//! Spans of small objects: which of their objects are free.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering::Relaxed};

use spandrel_pages::HEAP_PAGE_BYTES;

use crate::class::{CLASS, Class};
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
    /// Free objects.
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

    fn words(self) -> usize {
        (self.of_class().objects as usize)
            .div_ceil(64)
            .min(self.of_class().pages as usize * WORDS_PER_PAGE)
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
        let base = self.first.address();
        let words = self.first.bits(self.words());
        let mut taken = 0;
        let mut at = record.first_word.load(Relaxed) as usize;
        while let Some(word) = words.get(at) {
            let mut bits = word.load(Relaxed);
            while bits != 0 && taken < into.len() {
                let index = at * 64 + bits.trailing_zeros() as usize;
                into[taken] = base + class.offset_of(index);
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
    pub fn give(self, objects: &[usize]) -> Result<usize, (usize, Wrong)> {
        let class = self.of_class();
        let record = self.record();
        let (start, len) = (self.first.address(), self.bytes());
        let words = self.first.bits(self.words());
        let mut given = 0;
        let mut wrong = None;
        // Neighbours share a word of bits, which is read and written once for them.
        let mut at = record.first_word.load(Relaxed) as usize;
        let mut lowest = at;
        let mut bits = words.get(at).map_or(0, |word| word.load(Relaxed));
        let set = |at: usize, bits| words.get(at).map_or((), |word| word.store(bits, Relaxed));
        for object in objects {
            let offset = object.wrapping_sub(start);
            if offset >= len {
                break;
            }
            let Some(index) = class.beginning_at(offset) else {
                wrong = Some((*object, Wrong::Inside));
                break;
            };
            if index / 64 != at {
                set(at, bits);
                at = index / 64;
                lowest = lowest.min(at);
                bits = words.get(at).map_or(0, |word| word.load(Relaxed));
            }
            let bit = 1 << (index % 64);
            if bits & bit != 0 {
                wrong = Some((*object, Wrong::FreeAlready));
                break;
            }
            bits |= bit;
            given += 1;
        }
        set(at, bits);
        record.first_word.store(lowest as u16, Relaxed);
        record.free.store((self.free() + given) as u16, Relaxed);
        wrong.map_or(Ok(given), Err)
    }
}
