//! Central free lists: the spans of each class, fullest first.

use core::sync::atomic::Ordering::Relaxed;

use spandrel_sync::Lock;

use crate::class::{CLASS, CLASSES, Class, FULLNESSES};
use crate::heap;
use crate::map::{Page, page_of};
use crate::report;
use crate::span::{Span, Wrong};

/// The spans of one class that have free objects, kept apart by how full they
/// are: taking from the fullest lets the others become empty and leave.
pub struct Central {
    /// First span of each list, as a page number; 0: none.
    heads: [u32; FULLNESSES],
    /// Free objects in all of them.
    free: usize,
}

static CENTRAL: [Lock<Central>; CLASSES] =
    [const { Lock::new(Central { heads: [0; FULLNESSES], free: 0 }) }; CLASSES];

/// Spans that are got or given back together.
const SPANS: usize = 16;

/// Takes up to `into.len()` objects of a class; how many. Fewer than asked for
/// means that a new span would have been needed for the rest; none, that there
/// is no memory. New spans are got when no other has a free object, as many as
/// what is asked for fills.
pub fn fetch(class: usize, into: &mut [usize]) -> usize {
    let mut central = CENTRAL[class].lock();
    let taken = central.take(class, into);
    if taken > 0 {
        return taken;
    }
    drop(central);
    let mut spans = [Page(0); SPANS];
    let wanted = (into.len() / CLASS[class].objects as usize).clamp(1, SPANS);
    let count = heap::small_spans(class, &mut spans[..wanted]);
    central = CENTRAL[class].lock();
    spans[..count].iter().fold(0, |taken, first| {
        let span = Span::at(*first, class);
        span.prepare();
        let taken = taken + span.take(&mut into[taken..]);
        central.free += span.free();
        central.file(span);
        taken
    })
}

/// Bytes of free objects in spans.
pub fn free_bytes() -> u64 {
    let bytes = |(central, class): (&Lock<Central>, &Class)| {
        central.lock().free as u64 * u64::from(class.size)
    };
    CENTRAL.iter().zip(&CLASS).map(bytes).sum()
}

/// Gives objects of a class back.
pub fn give(class: usize, objects: &[usize]) {
    let mut rest = objects;
    while !rest.is_empty() {
        let mut empty = [Page(0); SPANS];
        let mut emptied = 0;
        let mut central = CENTRAL[class].lock();
        while let Some(object) = rest.first()
            && emptied < empty.len()
        {
            // Objects that are freed one after another often lie side by side.
            let given = match span_of(class, *object) {
                Some(span) => span.give(rest).map(|count| (span, count)),
                None => Err((*object, Wrong::Inside)),
            };
            let (span, count) = match given {
                Ok(given) => given,
                Err((object, wrong)) => {
                    // Whoever handles the signal may need the lock.
                    drop(central);
                    report::wrong(object, class, wrong);
                }
            };
            rest = &rest[count..];
            central.free += count;
            if span.used() == 0 {
                central.free -= span.free();
                central.unfile(span);
                span.retire();
                empty[emptied] = span.first();
                emptied += 1;
            } else {
                central.file(span);
            }
        }
        drop(central);
        if emptied > 0 {
            heap::free_spans(&empty[..emptied], CLASS[class].pages as usize);
        }
    }
}

/// The span that an object of a class lies in.
fn span_of(class: usize, object: usize) -> Option<Span> {
    let page = page_of(object);
    (page.class().load(Relaxed) as usize == class).then(|| Span::covering(page, class))
}

impl Central {
    fn take(&mut self, class: usize, into: &mut [usize]) -> usize {
        let mut taken = 0;
        while taken < into.len() {
            let Some(first) = self.heads.iter().rev().find(|head| **head != 0) else { break };
            let span = Span::at(Page(*first as usize), class);
            taken += span.take(&mut into[taken..]);
            self.file(span);
        }
        self.free -= taken;
        taken
    }

    /// Puts a span where it belongs: a list by its fullness, or none if it is full.
    fn file(&mut self, span: Span) {
        let record = span.record();
        let list = if span.free() == 0 { 0 } else { span.fullness() + 1 };
        if record.list.load(Relaxed) as usize == list {
            return;
        }
        self.unfile(span);
        if list == 0 {
            return;
        }
        let number = span.first().0 as u32;
        let head = self.heads[list - 1];
        record.next.store(head, Relaxed);
        record.prev.store(0, Relaxed);
        if head != 0 {
            Page(head as usize).record().prev.store(number, Relaxed);
        }
        self.heads[list - 1] = number;
        record.list.store(list as u8, Relaxed);
    }

    /// Takes a span off its list, if it is on one.
    fn unfile(&mut self, span: Span) {
        let record = span.record();
        let list = record.list.load(Relaxed) as usize;
        if list == 0 {
            return;
        }
        let (next, prev) = (record.next.load(Relaxed), record.prev.load(Relaxed));
        if next != 0 {
            Page(next as usize).record().prev.store(prev, Relaxed);
        }
        if prev != 0 {
            Page(prev as usize).record().next.store(next, Relaxed);
        } else {
            self.heads[list - 1] = next;
        }
        record.list.store(0, Relaxed);
    }
}

/// Takes every lock before a `fork`.
pub fn fork_prepare() {
    CENTRAL.iter().for_each(Lock::acquire);
}

/// Gives the locks back after a `fork`.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub unsafe fn fork_done() {
    for central in &CENTRAL {
        // SAFETY: passed on from the caller.
        unsafe { central.release() };
    }
}
