//! Addresses that are no objects: said, with what is known of them, and the end.

use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use spandrel_os::message::say;

use crate::class::{CLASS, CLASSES, begin_of};
use crate::map::{GONE, LARGE, LARGE_GONE, NO_CLASS, Page, first_data_page, page_of};
use crate::span::{Span, Wrong};

/// Pages before an address that are searched for a large object around it: 32 GiB.
const SEARCHED: usize = 1 << 22;

/// An object of a class that cannot be given back.
#[cold]
pub fn wrong(object: usize, class: usize, wrong: Wrong) -> ! {
    let size = CLASS[class].size;
    match wrong {
        Wrong::FreeAlready => twice("free", object, size),
        Wrong::Inside => end(format_args!(
            "free({object:#x}): not the beginning of an object (among objects of {size} bytes)"
        )),
    }
}

/// An address of the slice where no live object begins, as far as its page tells.
#[cold]
pub fn not_live(call: &str, object: usize) -> ! {
    let page = page_of(object);
    if let Some(bytes) = large_around(page) {
        end(format_args!("{call}({object:#x}): not the beginning of an object (of {bytes} bytes)"))
    }
    let class = page.class().load(Relaxed);
    let small = (class & !GONE) as usize;
    match class {
        LARGE_GONE if page.large_object() == object => twice(call, object, page.large_bytes()),
        NO_CLASS | LARGE_GONE => {}
        // Its span may be on its way to another thread; what is said is what it was.
        GONE.. if small < CLASSES && begins(page, small, object) => {
            twice(call, object, CLASS[small].size)
        }
        _ if small < CLASSES => end(format_args!(
            "{call}({object:#x}): not the beginning of an object (among objects of {} bytes)",
            CLASS[small].size
        )),
        _ => {}
    }
    end(format_args!(
        "{call}({object:#x}): not a live object of the native allocator (freed twice, or never allocated)"
    ))
}

/// Whether an object of a class began at an address of its span, or at a line of its first page.
fn begins(page: Page, class: usize, object: usize) -> bool {
    Span::covering(page, class).index_of(begin_of(class, object)).is_some()
}

/// Bytes of the large object that a page is part of.
fn large_around(page: Page) -> Option<usize> {
    let from = first_data_page().max(page.0.saturating_sub(SEARCHED));
    let is_first = |at: &usize| Page(*at).class().load(Relaxed) == LARGE;
    let first = (from..=page.0).rev().find(is_first).map(Page)?;
    let bytes = first.large_bytes();
    (page.address() < first.large_object() + bytes).then_some(bytes)
}

fn twice(call: &str, object: usize, size: impl fmt::Display) -> ! {
    end(format_args!("{call}({object:#x}): freed twice (an object of {size} bytes)"))
}

/// Says what is wrong, and ends the process.
pub fn end(what: fmt::Arguments<'_>) -> ! {
    say(what);
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}
