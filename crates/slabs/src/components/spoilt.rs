//! What is wrong with the records is found: each is spoilt in turn, looked at, and put right.

use core::sync::atomic::Ordering::Relaxed;

use super::{Caches, alone, begin, census};
use crate::check::check;
use crate::class::{CLASS, class_of};
use crate::map::{GONE, Page, page_of};
use crate::span::Span;
use crate::{kept, thread_cache, transfer};

/// Its spans have two pages.
const SIZE: usize = 3000;

/// What is found while something is done, of which nothing is left when it is undone.
fn found(spoil: impl FnOnce(), mend: impl FnOnce()) -> Option<&'static str> {
    spoil();
    let found = check().err().map(|fault| fault.what);
    mend();
    let _ = census();
    found
}

/// An object, its class and its span, which has free objects too.
fn object() -> (usize, usize, Span) {
    assert!(begin(Caches::OfThreads));
    let class = class_of(SIZE).expect("it is small");
    let object = crate::alloc(SIZE) as usize;
    (object, class, Span::covering(page_of(object), class))
}

fn free(object: usize) {
    // SAFETY: live until here.
    unsafe { crate::free(object as *mut u8) };
}

#[test]
fn a_record_of_a_span_that_is_wrong_is_found() {
    alone(|| {
        let (object, class, span) = object();
        let (first, record) = (span.first(), span.record());
        let by = |n: i16| _ = record.free.fetch_add(n as u16, Relaxed);
        assert_eq!(found(|| by(1), || by(-1)), Some("free objects of a span"));
        let pages = |n: u32| record.pages.store(n, Relaxed);
        let all = CLASS[class].pages.into();
        assert_eq!(found(|| pages(all + 1), || pages(all)), Some("pages of a span"));
        let (list, shard) = (record.list.load(Relaxed), span.shard() as u8);
        let put = |n| record.list.store(n, Relaxed);
        assert_eq!(found(|| put(0), || put(list)), Some("the list of a span"));
        let own = |n| record.shard.store(n, Relaxed);
        assert_eq!(found(|| own(shard ^ 1), || own(shard)), Some("a span of another list"));
        let last = Page(first.0 + CLASS[class].pages as usize - 1);
        let is = |n| last.class().store(n, Relaxed);
        let what = "the class of a span's page";
        assert_eq!(found(|| is(GONE), || is(class as u8)), Some(what));
        let word = record.first_word.load(Relaxed);
        let from = |n| record.first_word.store(n, Relaxed);
        let what = "free objects before the first word that may have any";
        assert_eq!(found(|| from(1000), || from(word)), Some(what));
        let keep = || kept::enter(8192);
        assert_eq!(found(keep, || kept::leave(8192)), Some("bytes of kept spans"));
        free(object);
    });
}

#[test]
fn a_span_that_the_page_heap_does_not_know_is_found() {
    alone(|| {
        let object = crate::alloc(1 << 20) as usize;
        let first = page_of(object);
        let pages = first.large_pages();
        let is = |n| first.set_large(n, 0);
        let what = "a span that the page heap does not know";
        assert_eq!(found(|| is(pages - 1), || is(pages)), Some(what));
        assert_eq!(found(|| is(0), || is(pages)), Some("a large span of no pages"));
        free(object);
    });
}

#[test]
fn what_is_cached_twice_or_free_as_well_is_found() {
    alone(|| {
        let (object, class, span) = object();
        let push = |object| assert!(thread_cache::push(class, object));
        let pop = || _ = thread_cache::pop(class);
        let twice = "a cached object that is free in its span or cached twice";
        // The cache itself would know the object: it is in a transfer cache too.
        let both = || {
            transfer::give(0, class, &[object]);
            push(object);
        };
        assert_eq!(found(both, pop), Some(twice));
        let mut back = [0];
        assert_eq!((transfer::fetch(0, class, &mut back), back), ((1, false), [object]));
        // Within the span, behind what was taken.
        let free_one = span.object(CLASS[class].objects as usize - 1);
        assert_eq!(found(|| push(free_one), pop), Some(twice));
        let inside = "a cached address at which no object begins";
        assert_eq!(found(|| push(object + 16), pop), Some(inside));
        let other = crate::alloc(2 * SIZE) as usize;
        assert_eq!(found(|| push(other), pop), Some("a cached object of another class"));
        free(other);
        free(object);
    });
}
