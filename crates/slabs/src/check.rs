//! Counts everything again, and compares: spans, lists, what lies in caches, and the page heap's accounts.
//!
//! In debug builds a span is checked whenever it has been touched, the lists of a class after as many operations
//! as there are spans on them, and the whole heap after some operations for each of its huge pages. In other
//! builds nothing of this is called.

use core::sync::atomic::Ordering::*;

use spandrel_pageheap::PageHeap;
use spandrel_pages::{HEAP_PAGE_BYTES, Length};

use crate::class::{CLASS, CLASSES};
use crate::kernel::id_of;
use crate::map::{GONE, LARGE, NO_CLASS, Page, first_data_page};
use crate::span::{Span, Wrong};
use crate::{cache, central, cpu_cache, heap, kept, thread_cache, transfer};

/// Something that is not as it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The address at which it was found, or the number of a class.
    pub at: usize,
    /// What it is about.
    pub what: &'static str,
}

/// What the spans add up to, in bytes but for their number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Census {
    /// Spans that the tables of pages know, of small objects and large ones.
    pub spans: u32,
    /// Their pages.
    pub span_bytes: usize,
    /// Objects of the program; those in other threads' own caches count as such.
    pub live: usize,
    /// Free objects in caches that could be looked into.
    pub cached: usize,
    /// Free objects in spans.
    pub free: usize,
    /// What the page heap has handed out. More than `span_bytes` while threads make spans or give them back.
    pub handed_out: usize,
}

/// `Ok` if it holds.
///
/// # Errors
/// A [`Fault`] with these values.
#[inline]
pub(crate) fn ensure(at: usize, holds: bool, what: &'static str) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault { at, what }) }
}

/// Ends the process if something is not as it should be. Tests go on, to say what they did.
pub(crate) fn hold<T>(checked: Result<T, Fault>) -> T {
    match checked {
        Ok(value) => value,
        #[cfg(any(test, fuzzing))]
        Err(fault) => panic!("{fault:x?}"),
        #[cfg(not(any(test, fuzzing)))]
        Err(Fault { at, what }) => crate::report::end(format_args!(
            "the native allocator's records are wrong at {at:#x}: {what}"
        )),
    }
}

/// Ends an operation, with no lock held.
#[inline(always)]
pub(crate) fn stepped() {
    #[cfg(debug_assertions)]
    often::stepped();
}

#[cfg(debug_assertions)]
mod often {
    use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::{check, hold};
    use crate::kernel;

    /// Operations for each huge page between two looks at the whole heap: a page of it is looked at in tens of
    /// nanoseconds.
    const STEPS_PER_HUGEPAGE: u32 = 64;

    static STEPS: AtomicU32 = AtomicU32::new(0);

    pub fn stepped() {
        let steps = STEPS.fetch_add(1, Relaxed);
        if steps >= kernel::reached().max(1) * STEPS_PER_HUGEPAGE {
            STEPS.store(0, Relaxed);
            hold(check());
        }
    }
}

/// What is wrong with an address that shall be an object in use of a class, which no other thread has.
pub(crate) fn wrong(class: usize, object: usize) -> Option<Wrong> {
    central::span_of(class, object).map_or(Some(Wrong::Inside), |span| span.wrong(object))
}

/// Whether all of these are objects in use, as far as their spans know.
///
/// # Errors
/// One is not.
pub(crate) fn all_in_use(class: usize, objects: &[usize]) -> Result<(), Fault> {
    objects.iter().try_for_each(|object| {
        ensure(
            *object,
            wrong(class, *object).is_none(),
            "a cached object that its span has not given out",
        )
    })
}

/// Looks at the whole heap, while no other thread can get at it.
///
/// # Errors
/// The first thing that is not as it should be.
pub fn check() -> Result<Census, Fault> {
    // In the order of a fork, for the same reason.
    cache::fork_prepare();
    transfer::fork_prepare();
    central::fork_prepare();
    // SAFETY: all locks but that of the page heap are held.
    let result = unsafe {
        cpu_cache::alone_with_all(|are_ours| heap::look(|heap| check_all(heap, are_ours)))
    };
    // SAFETY: taken above.
    unsafe {
        central::fork_done();
        transfer::fork_done();
        cache::fork_done();
    }
    result.unwrap_or(Ok(Census::default()))
}

/// # Safety
/// All locks are held, and if they `are_ours` no thread is at the blocks of processors.
unsafe fn check_all(heap: &PageHeap<'static>, are_ours: bool) -> Result<Census, Fault> {
    let mut listed = [0; CLASSES];
    let mut census = check_pages(heap, &mut listed)?;
    let mut kept_bytes = 0;
    for (class, expected) in listed.into_iter().enumerate().skip(1) {
        // SAFETY: promised by the caller.
        let (count, kept) = unsafe { central::check_lists(class)? };
        ensure(class, count == expected, "spans on lists of a class (by number)")?;
        kept_bytes += kept;
    }
    ensure(kept_bytes, kept_bytes == kept::bytes(), "bytes of kept spans")?;
    // SAFETY: promised by the caller.
    census.cached = unsafe { check_cached(are_ours)? };
    let all = census.live.checked_sub(census.cached);
    census.live =
        all.ok_or(Fault { at: census.cached, what: "more is cached than spans gave out" })?;
    census.handed_out = heap.live().0 as usize * HEAP_PAGE_BYTES;
    let known = census.span_bytes <= census.handed_out;
    ensure(census.span_bytes, known, "spans that the page heap has not handed out")?;
    Ok(census)
}

/// Walks the tables of pages as far as the heap reaches; counts the spans of each class that are on lists.
fn check_pages(heap: &PageHeap<'static>, listed: &mut [usize; CLASSES]) -> Result<Census, Fault> {
    let mut census = Census::default();
    let first = first_data_page();
    let end = first + heap.frontier().first_page().0 as usize;
    let mut at = first;
    while at < end {
        let page = Page(at);
        let number = page.class().load(Acquire);
        let pages = match number {
            NO_CLASS => 0,
            LARGE => check_large(page)?,
            GONE.. => 0,
            _ => {
                let class = CLASS.get(usize::from(number)).filter(|class| class.size > 0);
                let class = class.ok_or(Fault { at: page.address(), what: "no class" })?;
                let span = Span::at(page, number.into());
                span.check()?;
                listed[usize::from(number)] += usize::from(central::check_list(span)?);
                census.free += span.free() * class.size as usize;
                census.live += span.used() * class.size as usize;
                class.pages.into()
            }
        };
        if pages > 0 {
            let held = heap.holds(id_of(page), Length(pages as u32));
            ensure(page.address(), held, "a span that the page heap does not know")?;
            census.spans += 1;
            census.span_bytes += pages * HEAP_PAGE_BYTES;
            census.live += if number == LARGE { page.large_bytes() } else { 0 };
        }
        at += pages.max(1);
    }
    ensure(end, at == end, "the last span goes beyond the heap")?;
    Ok(census)
}

/// The pages of a large span.
fn check_large(first: Page) -> Result<usize, Fault> {
    let pages = first.large_pages();
    ensure(first.address(), pages > 0, "a large span of no pages")?;
    for page in (first.0 + 1..first.0 + pages).map(Page) {
        let class = page.class().load(Relaxed);
        let is_inside = class == NO_CLASS || (GONE..LARGE).contains(&class);
        ensure(page.address(), is_inside, "another span within a large one")?;
    }
    Ok(pages)
}

/// Looks at every cached object; how many bytes they are. Their bits are marked meanwhile as if they were free, so
/// that one that is cached twice is found.
///
/// # Safety
/// As for [`check_all`].
unsafe fn check_cached(are_ours: bool) -> Result<usize, Fault> {
    let (mut marked, mut bytes) = (0, 0);
    // SAFETY: promised by the caller.
    let checked = unsafe {
        visit(are_ours, &mut |class, object| {
            let span = central::span_of(class, object);
            let span =
                span.ok_or(Fault { at: object, what: "a cached object of another class" })?;
            let what = match span.wrong(object) {
                None => {
                    span.mark(object, true);
                    marked += 1;
                    bytes += CLASS[class].size as usize;
                    return Ok(());
                }
                Some(Wrong::Inside) => "a cached address at which no object begins",
                Some(Wrong::FreeAlready) => {
                    "a cached object that is free in its span or cached twice"
                }
            };
            Err(Fault { at: object, what })
        })
    };
    // SAFETY: as above; the same objects again, up to one that was wrong.
    let unmarked = unsafe {
        visit(are_ours, &mut |class, object| {
            if marked == 0 {
                return Err(Fault { at: object, what: "" });
            }
            marked -= 1;
            if let Some(span) = central::span_of(class, object) {
                span.mark(object, false);
            }
            Ok(())
        })
    };
    checked?;
    unmarked.map(|()| bytes)
}

/// Shows each cached object with its class.
///
/// # Safety
/// As for [`check_all`].
unsafe fn visit(
    are_ours: bool,
    object: &mut dyn FnMut(usize, usize) -> Result<(), Fault>,
) -> Result<(), Fault> {
    // SAFETY: promised by the caller.
    unsafe {
        transfer::visit(&mut *object)?;
        thread_cache::visit(&mut *object)?;
        if are_ours { cpu_cache::visit(object) } else { Ok(()) }
    }
}
