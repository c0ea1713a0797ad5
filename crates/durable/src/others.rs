//! What other threads store for the commands of a batch, where commands are translated: their code is native, and notes nothing.
//!
//! A command that begins, wakes or awaits another thread is known by its system calls. The end of its batch compares the pages that were written with the state's file, which is as the last
//! batch has left it. At the first such batch these are all pages; later ones the kernel names. A thread that is awake needs no system call to begin its work, so the batches that
//! follow are watched from their beginning.
//!
//! What is stored elsewhere without a system call before it is found later, by a comparison of the whole state that goes on all the time.

use spandrel_os::written::Written;

/// Batches that are watched from their beginning after one whose commands have met other threads.
const WATCHED: u32 = 64;

/// See the head of this file. The thread that runs a batch uses it.
#[derive(Default)]
pub struct Others {
    at: usize,
    open: usize,
    /// What names the pages: `None` before the first use, and where it does not go on. It names what was written since it was asked last, which may be long ago: a thread may have
    /// stored before the command met it, or go on after its command.
    written: Option<Written>,
    is_watching: bool,
    /// It was not known which pages were written when the batch's watch began: any may be.
    names_all: bool,
    /// Batches that are watched from their beginning.
    left: u32,
}

impl Others {
    /// The state lies there, and has that number of bytes.
    pub fn cover(&mut self, at: usize, bytes: usize) {
        (self.at, self.open) = (at, bytes);
    }

    /// The state has that number of bytes from now on, more than before.
    pub fn grow(&mut self, bytes: usize) {
        self.open = bytes;
        // SAFETY: as in `watch`; nothing was stored behind the end.
        let goes_on = self.written.as_ref().is_some_and(|w| unsafe { w.extend(bytes) }.is_ok());
        if !goes_on {
            self.written = None;
        }
    }

    /// The same, fewer than before.
    pub fn shrink(&mut self, bytes: usize) {
        self.open = self.open.min(bytes);
        self.written.iter().for_each(|written| written.shorten(bytes));
    }

    /// A batch begins, or begins again.
    pub fn begin(&mut self) {
        if self.left > 0 && !self.is_watching {
            self.left -= 1;
            self.watch();
        }
    }

    /// A command is about to begin, to wake or to await another thread.
    pub fn meet(&mut self) {
        self.left = WATCHED;
        self.watch();
    }

    fn watch(&mut self) {
        self.is_watching = true;
        if self.written.is_none() {
            // SAFETY: the state's memory is private, and stays mapped longer than this value lives. Of what was stored before all counts as written.
            self.written = Some(unsafe { Written::watch(self.at as *mut u8, self.open) });
            self.names_all = true;
        }
    }

    /// Whether other threads may have stored for the batch.
    pub fn is_watching(&self) -> bool {
        self.is_watching
    }

    /// Whether commands have met other threads at any time.
    pub fn is_used(&self) -> bool {
        self.written.is_some()
    }

    /// Calls `see` with the address and the number of bytes of pages that other threads may have stored to since the last call.
    pub fn each_written(&mut self, see: &mut dyn FnMut(usize, usize)) {
        if !self.is_watching {
            return;
        }
        let names_all = core::mem::take(&mut self.names_all);
        let mut name = |from: usize, len: usize| {
            if !names_all {
                see(self.at + from, len);
            }
        };
        let taken = self.written.as_ref().map(|written| written.take(&mut name));
        if names_all || taken.is_none_or(|taken| taken.is_err()) {
            see(self.at, self.open);
        }
    }

    /// The batch is durable, or is undone.
    pub fn end(&mut self) {
        self.is_watching = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_os::vm;
    use spandrel_pages::PAGE_BYTES;
    use std::prelude::v1::*;
    use std::vec;

    const PAGES: usize = 64;

    fn written(others: &mut Others, at: usize) -> Vec<usize> {
        let mut pages = vec![];
        others.each_written(&mut |from, len| {
            pages.extend(
                (from..from + len).step_by(PAGE_BYTES).map(|page| (page - at) / PAGE_BYTES),
            );
        });
        pages
    }

    #[test]
    fn pages_are_named_from_the_meeting_on() {
        let at = vm::reserve_small(PAGES * PAGE_BYTES).unwrap().as_ptr();
        // SAFETY: reserved by the call above; this thread alone uses it.
        unsafe {
            assert!(vm::open(at, PAGES * PAGE_BYTES));
            let store = |page: usize| at.add(page * PAGE_BYTES).write_volatile(1);
            let mut others = Others::default();
            others.cover(at as usize, 8 * PAGE_BYTES);
            others.begin();
            store(1);
            assert_eq!((others.is_watching(), written(&mut others, at as usize)), (false, vec![]));
            // Of what was stored before the first meeting nothing is known.
            others.meet();
            assert_eq!(written(&mut others, at as usize), (0..8).collect::<Vec<_>>());
            store(2);
            others.grow(16 * PAGE_BYTES);
            store(12);
            let named = written(&mut others, at as usize);
            assert!(named.contains(&2) && named.contains(&12), "{named:?}");
            others.end();
            // A batch that meets none, soon after, and a thread that has gone on.
            store(3);
            others.begin();
            store(4);
            let named = written(&mut others, at as usize);
            assert!(others.is_watching() && named.contains(&4) && named.contains(&3), "{named:?}");
            others.end();
            others.shrink(8 * PAGE_BYTES);
            (0..2 * WATCHED).for_each(|_| {
                others.begin();
                others.end();
            });
            others.begin();
            assert!(!others.is_watching() && others.is_used());
            // A thread that is awake stores before the command meets it.
            store(5);
            others.meet();
            let named = written(&mut others, at as usize);
            assert!(named.contains(&5) && named.iter().all(|page| *page < 8), "{named:?}");
            drop(others);
            vm::release(at, PAGES * PAGE_BYTES);
        }
    }
}
