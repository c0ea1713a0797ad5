//! The ways to find what a batch of Rust's code stores.

use super::told;
use serde_json::Value;
use spandrel_capture::translate::{Sink, Translator};
use spandrel_capture::{Capture, Captured, DirtyPages, Explicit, Older, Refused, Regions, Sizes};
use spandrel_commands::clock::{Limits, measure};
use spandrel_commands::{Command, Note, Unnoted, batch};
use spandrel_os::written::Written;
use spandrel_pages::PAGE_BYTES;
use std::cell::RefCell;
use std::ops::Range;
use std::ptr;
use std::time::Instant;

fn refused(why: Refused) -> String {
    format!("refused: {why:?}")
}

/// The regions of a window.
pub fn regions(window: &Range<usize>) -> Result<Regions, String> {
    let at = ptr::with_exposed_provenance(window.start);
    Regions::of(at, window.len()).map_err(refused)
}

struct ByHand(Explicit);

impl Note for ByHand {
    #[inline]
    fn note(&mut self, at: *const u8, bytes: usize) {
        self.0.note(at, bytes);
    }
}

/// The command names its stores.
pub fn explicit<C: Command>(
    command: &mut C,
    window: Range<usize>,
    limits: Limits,
    from: &[u8],
) -> Result<Value, String> {
    let mut notes = ByHand(Explicit::new(Sizes::default(), regions(&window)?).map_err(refused)?);
    let mut runs = 0u64;
    let times = measure(limits, |numbers| {
        notes.0.begin();
        batch(command, numbers, from, &mut notes);
        notes.0.end(&mut |_, _| runs += 1);
        Ok(())
    })?;
    let mut told = told(&times);
    told["runs"] = runs.into();
    Ok(told)
}

/// What translated code stores.
struct Noted(RefCell<Captured>);

impl Sink for Noted {
    fn note(&self, at: *const u8, bytes: usize) {
        self.0.borrow_mut().note(at as usize, bytes);
    }
}

/// The command's code is translated. Tells of its first execution too.
pub fn translated<C: Command>(
    command: &mut C,
    window: Range<usize>,
    limits: Limits,
    from: &[u8],
) -> Result<Value, String> {
    let captured = Captured::new(Sizes::default()).map_err(refused)?;
    let window = (window.start, window.len());
    let sink = Noted(RefCell::new(captured));
    let mut translator = Translator::new(window, &[], sink).map_err(refused)?;
    let begun = Instant::now();
    translator.call(|| batch(command, &[1], from, &mut Unnoted));
    let (first, figures) = (begun.elapsed(), translator.figures());
    let mut runs = 0u64;
    let times = measure(limits, |numbers| {
        translator.call(|| batch(command, numbers, from, &mut Unnoted));
        let _ = translator.sink().0.borrow_mut().drain(|_, _| runs += 1);
        Ok(())
    })?;
    let mut told = told(&times);
    told["runs"] = runs.into();
    told["first_ns"] = (first.as_nanos() as u64).into();
    told["first_blocks"] = figures.blocks.into();
    told["first_bytes"] = figures.bytes.into();
    told["code_bytes"] = translator.figures().bytes.into();
    Ok(told)
}

/// The window as the last batch has left it.
struct Copy {
    base: usize,
    bytes: Vec<u8>,
}

impl Copy {
    fn of(window: &Range<usize>) -> Self {
        let mut copy = Self { base: window.start, bytes: vec![0; window.len()] };
        // SAFETY: the window is mapped.
        unsafe { copy.keep(ptr::with_exposed_provenance(window.start), window.len()) };
        copy
    }

    /// Has the copy be as the window is at these bytes.
    ///
    /// # Safety
    /// The bytes lie in the window.
    unsafe fn keep(&mut self, at: *const u8, bytes: usize) {
        let place = &mut self.bytes[at as usize - self.base..][..bytes];
        // SAFETY: promised by the caller; the copy lies elsewhere.
        unsafe { place.as_mut_ptr().copy_from_nonoverlapping(at, bytes) };
    }
}

impl Older for Copy {
    fn page(&mut self, at: *const u8, into: &mut [u8; PAGE_BYTES]) {
        into.copy_from_slice(&self.bytes[at as usize - self.base..][..PAGE_BYTES]);
    }
}

/// The kernel names the written pages, which are compared with a copy.
pub fn pages<C: Command>(
    command: &mut C,
    window: Range<usize>,
    limits: Limits,
    from: &[u8],
) -> Result<Value, String> {
    let copy = Copy::of(&window);
    let at = ptr::with_exposed_provenance_mut(window.start);
    let block_bytes = Sizes::default().block_bytes;
    // SAFETY: the window is private memory of the allocator's, which stays mapped; this thread is the only one.
    let dirty = unsafe {
        let written = Written::watch(at, window.len());
        DirtyPages::new(written, at, window.len(), block_bytes, copy)
    };
    let mut dirty = dirty.map_err(refused)?;
    let (mut named, mut runs) = (Vec::with_capacity(1 << 16), 0);
    let times = measure(limits, |numbers| {
        dirty.begin();
        batch(command, numbers, from, &mut Unnoted);
        dirty.end(&mut |at, bytes| named.push((at, bytes)));
        runs += named.len();
        // SAFETY: runs of the window.
        named.drain(..).for_each(|(at, bytes)| unsafe { dirty.older_mut().keep(at, bytes) });
        Ok(())
    })?;
    let mut told = told(&times);
    told["runs"] = runs.into();
    told["names"] = format!("{:?}", dirty.names()).into();
    Ok(told)
}
