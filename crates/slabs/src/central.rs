//! Central free lists: the spans of each class, fullest first.

use core::mem;
use core::sync::atomic::Ordering::Relaxed;

use spandrel_sync::{Lock, background};

use crate::check::{self, Fault, ensure};
use crate::class::{CLASS, CLASSES, Class, FULLNESSES, SHARDS};
use crate::heap;
use crate::kept;
use crate::map::{Page, page_of};
use crate::refuse::clock;
use crate::report;
use crate::span::{Span, Wrong};

/// A list of empty spans, and one for each fullness.
const LISTS: usize = 1 + FULLNESSES;
const EMPTY: usize = 0;
/// An empty span that was not wanted for this long is given back when another becomes empty.
const TURN_MS: u64 = 16;

/// The spans of one class that have free objects, kept apart by how full they
/// are: taking from the fullest lets the others become empty and leave.
pub struct Central {
    shards: [Shard; SHARDS],
    /// Free objects in all of them.
    free: usize,
    /// When spans of the class became empty last, in units of [`TURN_MS`].
    turn: u32,
    /// Operations until all of its lists are checked.
    #[cfg(debug_assertions)]
    unchecked: u32,
}

/// The spans whose objects processors of one shard took last: what they free is theirs again, and
/// the lines of a span do not pass from processor to processor.
#[derive(Clone, Copy)]
struct Shard {
    /// First span of each list, as a page number; 0: none.
    heads: [u32; LISTS],
    /// Empty spans, which are kept for requests that will want them again at once.
    kept: u16,
    /// The fewest that there were since the last look: as many were of no use.
    least: u16,
}

static CENTRAL: [Lock<Central>; CLASSES] = [const {
    Lock::new(Central {
        shards: [Shard { heads: [0; LISTS], kept: 0, least: 0 }; SHARDS],
        free: 0,
        turn: 0,
        #[cfg(debug_assertions)]
        unchecked: 0,
    })
}; CLASSES];

/// Spans that are got or given back together.
const SPANS: usize = 16;

/// Takes up to `into.len()` objects of a class from the shard's spans, if these come first; how many.
pub fn fetch_own(shard: usize, class: usize, into: &mut [usize]) -> usize {
    if !kept::is_small_heap() {
        return 0;
    }
    let mut central = CENTRAL[class].lock();
    let taken = central.take(shard, class, into, |shards| shards[shard].fullest());
    central.stepped(class);
    taken
}

/// Takes up to `into.len()` objects of a class; how many. Fewer than asked for
/// means that a new span would have been needed for the rest; none, that there
/// is no memory. New spans are got when no other has a free object, as many as
/// what is asked for fills.
pub fn fetch(shard: usize, class: usize, into: &mut [usize]) -> usize {
    let mut central = CENTRAL[class].lock();
    let taken = central.take(shard, class, into, |shards| {
        shards.iter().filter_map(Shard::fullest).max_by_key(|(list, _)| *list)
    });
    central.stepped(class);
    if taken > 0 {
        return taken;
    }
    drop(central);
    let mut spans = [Page(0); SPANS];
    let wanted = (into.len() / CLASS[class].objects as usize).clamp(1, SPANS);
    let count = heap::small_spans(class, &mut spans[..wanted]);
    central = CENTRAL[class].lock();
    let taken = spans[..count].iter().fold(0, |taken, first| {
        let span = Span::at(*first, class);
        span.prepare();
        span.record().shard.store(shard as u8, Relaxed);
        let taken = taken + span.take(&mut into[taken..]);
        central.free += span.free();
        central.file(span);
        taken
    });
    central.stepped(class);
    taken
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
    let (mut keeps, mut is_due) = (false, false);
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
                    // The signal's handler may need the lock.
                    drop(central);
                    report::wrong(object, class, wrong);
                }
            };
            rest = rest.get(count..).unwrap_or_default();
            central.free += count;
            if span.used() > 0 {
                central.file(span);
            } else if central.may_keep(span) {
                central.file(span);
                keeps = true;
                is_due |= central.begins_turn();
            } else {
                central.retire(span);
                empty[emptied] = span.first();
                emptied += 1;
            }
        }
        central.stepped(class);
        drop(central);
        if emptied > 0 {
            heap::free_spans(&empty[..emptied], CLASS[class].pages as usize);
        }
    }
    if is_due {
        release(class, |shard| mem::take(&mut shard.least));
    }
    if keeps {
        // They may be forgotten here.
        background::wake();
    }
}

/// Gives empty spans back that were of no use since the last call. True if others are left.
pub fn tend() -> bool {
    kept::look();
    release_all(|shard| mem::take(&mut shard.least))
}

/// Gives all empty spans back.
pub fn flush() {
    release_all(|shard| shard.kept);
}

/// Gives as many empty spans of each class and shard back as `surplus` says. True if others are left.
fn release_all(surplus: impl Fn(&mut Shard) -> u16) -> bool {
    if kept::bytes() > 0 {
        (1..CLASSES).for_each(|class| release(class, &surplus));
    }
    kept::bytes() > 0
}

/// The same for one class.
fn release(class: usize, surplus: impl Fn(&mut Shard) -> u16) {
    let mut central = CENTRAL[class].lock();
    for shard in 0..SHARDS {
        let mut left = usize::from(surplus(&mut central.shards[shard]));
        while left > 0 {
            let mut empty = [Page(0); SPANS];
            let mut emptied = 0;
            while emptied < SPANS.min(left)
                && let first @ 1.. = central.shards[shard].heads[EMPTY]
            {
                empty[emptied] = Page(first as usize);
                central.retire(Span::at(empty[emptied], class));
                emptied += 1;
            }
            central.stepped(class);
            drop(central);
            heap::free_spans(&empty[..emptied], CLASS[class].pages as usize);
            // Others may have taken the rest.
            left = if emptied < SPANS { 0 } else { left - emptied };
            central = CENTRAL[class].lock();
        }
        let kept = central.shards[shard].kept;
        central.shards[shard].least = kept;
    }
}

/// The list that a span belongs to, counted from 1; 0: none, as it is full.
fn list_of(span: Span) -> usize {
    match (span.free(), span.used()) {
        (0, _) => 0,
        (_, 0) => EMPTY + 1,
        _ => EMPTY + 1 + span.fullness() + 1,
    }
}

/// Whether a span is on a list if it has free objects, and on which. To be called with the lock of its class
/// held.
///
/// # Errors
/// It is on another.
pub fn check_list(span: Span) -> Result<bool, Fault> {
    let list = span.record().list.load(Relaxed) as usize;
    ensure(span.first().address(), list == list_of(span), "the list of a span")?;
    Ok(list > 0)
}

/// Looks at all lists of a class; how many spans are on them, and how many bytes of them are kept though empty.
///
/// # Errors
/// What is not as it should be.
///
/// # Safety
/// The calling thread has called [`fork_prepare`].
pub unsafe fn check_lists(class: usize) -> Result<(usize, usize), Fault> {
    // SAFETY: promised by the caller.
    unsafe { CENTRAL[class].held() }.check(class)
}

/// The span that an object of a class lies in.
pub fn span_of(class: usize, object: usize) -> Option<Span> {
    let page = page_of(object);
    (page.class().load(Relaxed) as usize == class).then(|| Span::covering(page, class))
}

impl Central {
    /// Ends an operation. In debug builds all lists of the class are checked after as many operations as there
    /// are spans on them: about one for each.
    #[inline(always)]
    fn stepped(&mut self, class: usize) {
        #[cfg(debug_assertions)]
        {
            self.unchecked = self.unchecked.saturating_sub(1);
            if self.unchecked == 0 {
                let listed = check::hold(self.check(class)).0;
                self.unchecked = listed as u32 + 1;
            }
        }
        let _ = class;
    }

    /// See [`check_lists`].
    fn check(&self, class: usize) -> Result<(usize, usize), Fault> {
        let (mut listed, mut free, mut kept_bytes) = (0, 0, 0);
        for (number, shard) in self.shards.iter().enumerate() {
            let mut empty = 0;
            for (index, head) in shard.heads.iter().enumerate() {
                // No circle: in one, some span's predecessor would be another.
                let (mut at, mut before) = (*head, 0);
                while at != 0 {
                    let span = Span::at(Page(at as usize), class);
                    let (address, record) = (span.first().address(), span.record());
                    let back = record.prev.load(Relaxed) == before;
                    ensure(address, back, "neighbours on a list")?;
                    let own = record.list.load(Relaxed) as usize == index + 1;
                    ensure(address, own && span.shard() == number, "a span of another list")?;
                    span.check()?;
                    check_list(span)?;
                    free += span.free();
                    listed += 1;
                    empty += u16::from(index == EMPTY);
                    kept_bytes += if index == EMPTY { span.bytes() } else { 0 };
                    (before, at) = (at, record.next.load(Relaxed));
                }
            }
            ensure(class, shard.kept == empty, "kept spans of a class (by number)")?;
            ensure(class, shard.least <= empty, "the fewest kept spans of a class (by number)")?;
        }
        ensure(class, free == self.free, "free objects of a class (by number)")?;
        Ok((listed, kept_bytes))
    }

    /// Takes objects from the spans that `next` finds, which are the shard's from then on; how many.
    fn take(
        &mut self,
        shard: usize,
        class: usize,
        into: &mut [usize],
        next: impl Fn(&[Shard; SHARDS]) -> Option<(usize, u32)>,
    ) -> usize {
        let mut taken = 0;
        while taken < into.len() {
            let Some((_, first)) = next(&self.shards) else { break };
            let span = Span::at(Page(first as usize), class);
            if span.shard() != shard {
                self.unfile(span);
                span.record().shard.store(shard as u8, Relaxed);
            }
            taken += span.take(&mut into[taken..]);
            self.file(span);
        }
        self.free -= taken;
        taken
    }

    /// Whether it is the first call in a turn.
    fn begins_turn(&mut self) -> bool {
        let turn = (clock::coarse_ms() / TURN_MS) as u32;
        mem::replace(&mut self.turn, turn) != turn
    }

    /// Whether an empty span is kept.
    fn may_keep(&self, span: Span) -> bool {
        kept::has_room(span.bytes(), self.shards[span.shard()].kept as usize)
    }

    /// Takes an empty span out of the class.
    #[inline(never)]
    fn retire(&mut self, span: Span) {
        self.free -= span.free();
        self.unfile(span);
        span.retire();
    }

    /// Puts a span where it belongs: a list by its fullness, or none if it is full.
    #[inline(always)]
    fn file(&mut self, span: Span) {
        if cfg!(debug_assertions) {
            check::hold(span.check());
        }
        let record = span.record();
        let list = list_of(span);
        if record.list.load(Relaxed) as usize != list {
            self.move_to(span, list);
        }
    }

    /// Puts a span on a list.
    #[inline(never)]
    fn move_to(&mut self, span: Span, list: usize) {
        let record = span.record();
        self.unfile(span);
        if list == 0 {
            return;
        }
        let number = span.first().0 as u32;
        let shard = &mut self.shards[span.shard()];
        let head = shard.heads[list - 1];
        record.next.store(head, Relaxed);
        record.prev.store(0, Relaxed);
        if head != 0 {
            Page(head as usize).record().prev.store(number, Relaxed);
        }
        shard.heads[list - 1] = number;
        record.list.store(list as u8, Relaxed);
        if list == EMPTY + 1 {
            shard.kept += 1;
            kept::enter(span.bytes());
        }
    }

    /// Takes a span off its list, if it is on one.
    fn unfile(&mut self, span: Span) {
        let record = span.record();
        let list = record.list.load(Relaxed) as usize;
        if list == 0 {
            return;
        }
        let shard = &mut self.shards[span.shard()];
        let (next, prev) = (record.next.load(Relaxed), record.prev.load(Relaxed));
        if next != 0 {
            Page(next as usize).record().prev.store(prev, Relaxed);
        }
        if prev != 0 {
            Page(prev as usize).record().next.store(next, Relaxed);
        } else {
            shard.heads[list - 1] = next;
        }
        record.list.store(0, Relaxed);
        if list == EMPTY + 1 {
            shard.kept -= 1;
            shard.least = shard.least.min(shard.kept);
            kept::leave(span.bytes());
        }
    }
}

impl Shard {
    /// A span with free objects that is as full as any, and its list.
    fn fullest(&self) -> Option<(usize, u32)> {
        self.heads.iter().copied().enumerate().rev().find(|(_, head)| *head != 0)
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
