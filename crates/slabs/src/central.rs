//! Central free lists: the spans of each class, fullest first.

use core::sync::atomic::Ordering::Relaxed;

use spandrel_sync::Lock;

use crate::class::{CLASS, CLASSES};
use crate::heap;
use crate::map::{Page, page_of};
use crate::report;
use crate::span::{Span, Wrong};

/// Spans with free objects are kept apart by how full they are. Taking from the
/// fullest lets the others become empty and leave.
const LISTS: usize = 8;

/// The spans of one class that have free objects.
pub struct Central {
    /// First span of each list, as a page number; 0: none.
    heads: [u32; LISTS],
}

static CENTRAL: [Lock<Central>; CLASSES] =
    [const { Lock::new(Central { heads: [0; LISTS] }) }; CLASSES];

/// Takes up to `into.len()` objects of a class; how many. Fewer than asked for
/// means that a new span would have been needed for the rest; none, that there
/// is no memory.
pub fn fetch(class: usize, into: &mut [usize]) -> usize {
    let mut central = CENTRAL[class].lock();
    let taken = central.take(class, into);
    if taken > 0 {
        return taken;
    }
    drop(central);
    let Some(span) = heap::small_span(class) else { return 0 };
    central = CENTRAL[class].lock();
    span.prepare();
    let taken = span.take(into);
    central.file(class, span);
    taken
}

/// Gives objects of a class back.
pub fn give(class: usize, objects: &[usize]) {
    let mut objects = objects;
    while !objects.is_empty() {
        let mut empty = [Page(0); 16];
        let mut emptied = 0;
        let mut central = CENTRAL[class].lock();
        let mut done = 0;
        for object in objects {
            if emptied == empty.len() {
                break;
            }
            done += 1;
            let page = page_of(*object);
            let span = Span::covering(page, class);
            if page.class().load(Relaxed) as usize != class {
                report::wrong(*object, class, Wrong::Inside);
            }
            if let Err(wrong) = span.give(*object) {
                report::wrong(*object, class, wrong);
            }
            if span.used() == 0 {
                central.unfile(span);
                span.retire();
                empty[emptied] = span.first();
                emptied += 1;
            } else {
                central.file(class, span);
            }
        }
        drop(central);
        for first in &empty[..emptied] {
            heap::free_span(*first, CLASS[class].pages as usize);
        }
        objects = &objects[done..];
    }
}

impl Central {
    fn take(&mut self, class: usize, into: &mut [usize]) -> usize {
        let mut taken = 0;
        while taken < into.len() {
            let Some(first) = self.heads.iter().rev().find(|head| **head != 0) else { break };
            let span = Span::at(Page(*first as usize), class);
            taken += span.take(&mut into[taken..]);
            self.file(class, span);
        }
        taken
    }

    /// Puts a span where it belongs: a list by its fullness, or none if it is full.
    fn file(&mut self, class: usize, span: Span) {
        let record = span.record();
        let list = if span.free() == 0 {
            0
        } else {
            span.used() * LISTS / (CLASS[class].objects as usize + 1) + 1
        };
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
