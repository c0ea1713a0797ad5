//! Which pages of a range were written since somebody looked.
//!
//! The kernel tells where it can (userfaultfd's asynchronous write protection and `PAGEMAP_SCAN`, Linux 6.7): a first
//! write to a page costs a fault that the kernel ends by itself. Elsewhere pages are protected, and a handler of `SIGSEGV`
//! notes the first write to each.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use spandrel_pages::PAGE_BYTES;

use crate::vm;

/// A range that is watched.
#[derive(Debug)]
pub struct Written {
    at: usize,
    len: AtomicUsize,
    how: How,
}

#[derive(Debug)]
enum How {
    Kernel { watch: OwnedFd, pagemap: OwnedFd },
    Faults(&'static Guarded),
}

impl Written {
    /// Watches a range of whole pages, of which none counts as written. It may become longer, to `limit` bytes.
    ///
    /// # Errors
    /// The error's number: it cannot be watched, in either way.
    ///
    /// # Safety
    /// The range is mapped for reading and writing, and the caller's; it is released after this.
    pub unsafe fn watch(at: *mut u8, len: usize, limit: usize) -> Result<Self, i32> {
        let at = at as usize;
        let how = match kernel::watch(at, len) {
            Ok(how) => how,
            Err(_) => How::Faults(faults::watch(at, len, limit)?),
        };
        Ok(Self { at, len: AtomicUsize::new(len), how })
    }

    /// The same by protection alone: for tests.
    ///
    /// # Errors
    /// As for [`Written::watch`].
    ///
    /// # Safety
    /// As for [`Written::watch`].
    pub unsafe fn watch_by_faults(at: *mut u8, len: usize, limit: usize) -> Result<Self, i32> {
        let at = at as usize;
        let how = How::Faults(faults::watch(at, len, limit)?);
        Ok(Self { at, len: AtomicUsize::new(len), how })
    }

    /// Watches what was mapped behind the range as well, up to `len` bytes of all; nobody has written there yet.
    ///
    /// # Errors
    /// The error's number. It is as it was then.
    ///
    /// # Safety
    /// As for [`Written::watch`]; `len` is at most the limit, and nobody else makes the range longer.
    pub unsafe fn extend(&self, len: usize) -> Result<(), i32> {
        let before = self.len.load(Relaxed);
        let (at, more) = (self.at + before, len.saturating_sub(before));
        match &self.how {
            How::Kernel { watch, pagemap } => kernel::add(watch, pagemap, at, more)?,
            How::Faults(guarded) => guarded.extend(at, more)?,
        }
        self.len.store(len, Release);
        Ok(())
    }

    /// Whether the kernel tells.
    pub fn is_by_kernel(&self) -> bool {
        matches!(self.how, How::Kernel { .. })
    }

    /// Names every run of pages that was written since the last call, by offset and length, in order; they do not count as
    /// written from then on. What is written meanwhile is named now or the next time.
    ///
    /// # Errors
    /// The error's number. Runs that were not named may be lost.
    pub fn take(&self, mut run: impl FnMut(usize, usize)) -> Result<(), i32> {
        match &self.how {
            How::Kernel { pagemap, .. } => {
                let len = self.len.load(Acquire);
                kernel::take(pagemap, self.at, len, |at, len| run(at - self.at, len))
            }
            How::Faults(guarded) => guarded.take(|at, len| run(at - self.at, len)),
        }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if let How::Faults(guarded) = self.how {
            guarded.forget();
        }
    }
}

/// `linux/userfaultfd.h` and `linux/fs.h`.
mod kernel {
    use super::*;

    const UFFD_API: u64 = 0xAA;
    const USER_MODE_ONLY: i32 = 1;
    const FEATURE_WP: u64 = 1;
    const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
    const FEATURE_WP_ASYNC: u64 = 1 << 15;
    const REGISTER_MODE_WP: u64 = 1 << 1;
    const UFFDIO_API: u64 = request(UFFD_API, 0x3F, 24);
    const UFFDIO_REGISTER: u64 = request(UFFD_API, 0x00, 32);
    const PAGEMAP_SCAN: u64 = request(b'f' as u64, 16, size_of::<ScanArguments>() as u64);
    const SCAN_PROTECTS: u64 = 1;
    const SCAN_CHECKS: u64 = 1 << 1;
    const IS_WRITTEN: u64 = 1 << 1;

    /// `_IOWR(group, number, size)`.
    const fn request(group: u64, number: u64, size: u64) -> u64 {
        3 << 30 | size << 16 | group << 8 | number
    }

    #[repr(C)]
    struct Api {
        api: u64,
        features: u64,
        ioctls: u64,
    }

    #[repr(C)]
    struct Register {
        start: u64,
        len: u64,
        mode: u64,
        ioctls: u64,
    }

    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Region {
        start: u64,
        end: u64,
        categories: u64,
    }

    #[repr(C)]
    struct ScanArguments {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walk_end: u64,
        regions: u64,
        regions_len: u64,
        max_pages: u64,
        category_inverted: u64,
        category_mask: u64,
        category_anyof_mask: u64,
        return_mask: u64,
    }

    fn ioctl<T>(file: &OwnedFd, request: u64, argument: &mut T) -> Result<i64, i32> {
        let errno = crate::env::errno();
        // SAFETY: the argument is the one of the request, and the kernel writes within it, and to regions that it names.
        let result =
            unsafe { libc::ioctl(file.as_raw_fd(), request as _, ptr::from_mut(argument)) };
        let why = crate::env::errno();
        crate::env::set_errno(errno);
        if result < 0 { Err(why) } else { Ok(result.into()) }
    }

    pub fn watch(at: usize, len: usize) -> Result<How, i32> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        let errno = crate::env::errno();
        // SAFETY: it makes a descriptor.
        let watch = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let why = crate::env::errno();
        crate::env::set_errno(errno);
        let watch = i32::try_from(watch).ok().filter(|watch| *watch >= 0).ok_or(why)?;
        // SAFETY: just made.
        let watch = unsafe { OwnedFd::from_raw_fd(watch) };
        let features = FEATURE_WP | FEATURE_WP_UNPOPULATED | FEATURE_WP_ASYNC;
        ioctl(&watch, UFFDIO_API, &mut Api { api: UFFD_API, features, ioctls: 0 })?;
        let pagemap =
            fs::open(c"/proc/self/pagemap", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(Errno::raw_os_error)?;
        add(&watch, &pagemap, at, len)?;
        Ok(How::Kernel { watch, pagemap })
    }

    pub fn add(watch: &OwnedFd, pagemap: &OwnedFd, at: usize, len: usize) -> Result<(), i32> {
        if len == 0 {
            return Ok(());
        }
        let (start, length) = (at as u64, len as u64);
        let mut range = Register { start, len: length, mode: REGISTER_MODE_WP, ioctls: 0 };
        ioctl(watch, UFFDIO_REGISTER, &mut range)?;
        // Whether it can, and nothing counts as written.
        take(pagemap, at, len, |_, _| {})
    }

    pub fn take(
        pagemap: &OwnedFd,
        at: usize,
        len: usize,
        mut run: impl FnMut(usize, usize),
    ) -> Result<(), i32> {
        let (mut from, end) = (at as u64, (at + len) as u64);
        let mut regions = [Region::default(); 64];
        while from < end {
            let mut scan = ScanArguments {
                size: size_of::<ScanArguments>() as u64,
                flags: SCAN_PROTECTS | SCAN_CHECKS,
                start: from,
                end,
                walk_end: 0,
                regions: regions.as_mut_ptr() as u64,
                regions_len: regions.len() as u64,
                max_pages: 0,
                category_inverted: 0,
                category_mask: IS_WRITTEN,
                category_anyof_mask: 0,
                return_mask: IS_WRITTEN,
            };
            let found = ioctl(pagemap, PAGEMAP_SCAN, &mut scan)?;
            let found = usize::try_from(found).unwrap_or(0);
            for region in regions.iter().take(found) {
                run(region.start as usize, (region.end - region.start) as usize);
            }
            if scan.walk_end <= from {
                return Err(libc::EIO);
            }
            from = scan.walk_end;
        }
        Ok(())
    }
}

/// A range whose pages are protected until they are written.
#[derive(Debug)]
struct Guarded {
    /// 0: nobody's.
    at: AtomicUsize,
    len: AtomicUsize,
    /// 0: nobody's.
    limit: AtomicUsize,
    /// A bit for each page that was written.
    bits: AtomicPtr<AtomicU64>,
}

const WORD_BITS: usize = 64;

impl Guarded {
    const fn none() -> Self {
        Self {
            at: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            bits: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn bits(&self) -> &[AtomicU64] {
        let (bits, pages) = (self.bits.load(Acquire), self.len.load(Acquire) / PAGE_BYTES);
        if bits.is_null() {
            return &[];
        }
        // SAFETY: so many were mapped for it, and stay.
        unsafe { core::slice::from_raw_parts(bits, pages.div_ceil(WORD_BITS)) }
    }

    /// Notes a write to an address, if it is here.
    fn note(&self, address: usize) -> bool {
        let (at, len) = (self.at.load(Acquire), self.len.load(Acquire));
        if at == 0 || !(at..at + len).contains(&address) {
            return false;
        }
        let page = (address - at) / PAGE_BYTES;
        if let Some(word) = self.bits().get(page / WORD_BITS) {
            word.fetch_or(1 << (page % WORD_BITS), AcqRel);
        }
        // SAFETY: a page of the range, which is mapped for reading and writing where it is not protected.
        unsafe { vm::open((at + page * PAGE_BYTES) as *mut u8, PAGE_BYTES) }
    }

    fn take(&self, mut run: impl FnMut(usize, usize)) -> Result<(), i32> {
        let at = self.at.load(Acquire);
        let mut open: Option<(usize, usize)> = None;
        let mut end = |open: &mut Option<(usize, usize)>| -> Result<(), i32> {
            let Some((from, len)) = open.take() else { return Ok(()) };
            // After their bits are cleared: what is written in between is read by who is told of the page now.
            // SAFETY: pages of the range.
            if !unsafe { vm::open_to_read(from as *mut u8, len) } {
                return Err(libc::ENOMEM);
            }
            run(from, len);
            Ok(())
        };
        for (number, word) in self.bits().iter().enumerate() {
            let mut bits = word.swap(0, AcqRel);
            while bits != 0 {
                let page = at + (number * WORD_BITS + bits.trailing_zeros() as usize) * PAGE_BYTES;
                bits &= bits - 1;
                match &mut open {
                    Some((from, len)) if *from + *len == page => *len += PAGE_BYTES,
                    _ => {
                        end(&mut open)?;
                        open = Some((page, PAGE_BYTES));
                    }
                }
            }
        }
        end(&mut open)
    }

    /// Protects more pages, those behind the last.
    fn extend(&self, at: usize, more: usize) -> Result<(), i32> {
        // SAFETY: promised by the caller of `Written::extend`.
        if !unsafe { vm::open_to_read(at as *mut u8, more) } {
            return Err(libc::ENOMEM);
        }
        self.len.fetch_add(more, AcqRel);
        Ok(())
    }

    /// It is nobody's any more.
    fn forget(&self) {
        let (at, len) = (self.at.swap(0, AcqRel), self.len.swap(0, AcqRel));
        // SAFETY: the range is mapped until this is gone.
        unsafe { vm::open(at as *mut u8, len) };
        let bits = self.bits.swap(ptr::null_mut(), AcqRel);
        // SAFETY: mapped for it. Who is in the handler just now has the range no more.
        unsafe { vm::release(bits.cast(), faults::bits_bytes(self.limit.load(Relaxed))) };
        self.limit.store(0, Release);
    }
}

mod faults {
    use super::*;
    use core::ffi::{c_int, c_void};
    use core::mem::{MaybeUninit, transmute};
    use core::sync::atomic::AtomicBool;

    /// Ranges that may be watched at once.
    const MOST: usize = 64;
    static GUARDED: [Guarded; MOST] = [const { Guarded::none() }; MOST];
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

    pub fn bits_bytes(len: usize) -> usize {
        (len / PAGE_BYTES).div_ceil(8).max(1).next_multiple_of(PAGE_BYTES)
    }

    pub fn watch(at: usize, len: usize, limit: usize) -> Result<&'static Guarded, i32> {
        install()?;
        let limit = limit.max(len).max(PAGE_BYTES);
        let is_free =
            |guarded: &&Guarded| guarded.limit.compare_exchange(0, limit, AcqRel, Relaxed).is_ok();
        let guarded = GUARDED.iter().find(is_free).ok_or(libc::ENOSPC)?;
        let bits = vm::reserve(bits_bytes(limit)).map(|bits| bits.as_ptr());
        // SAFETY: just reserved.
        let bits = bits.filter(|bits| unsafe { vm::open(*bits, bits_bytes(limit)) });
        // SAFETY: promised by the caller of `Written::watch`.
        match bits.filter(|_| unsafe { vm::open_to_read(at as *mut u8, len) }) {
            Some(bits) => {
                guarded.bits.store(bits.cast(), Release);
                guarded.len.store(len, Release);
                guarded.at.store(at, Release);
                Ok(guarded)
            }
            None => {
                guarded.limit.store(0, Release);
                Err(libc::ENOMEM)
            }
        }
    }

    /// Sets the handler, before whoever had set one.
    fn install() -> Result<(), i32> {
        static OLD: crate::written::OldAction = crate::written::OldAction::new();
        if INSTALLED.swap(true, AcqRel) {
            return Ok(());
        }
        // SAFETY: plain data.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        // SAFETY: the handler is one of three arguments; the old action is this function's alone.
        if unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, OLD.0.get()) } != 0 {
            INSTALLED.store(false, Release);
            return Err(libc::EINVAL);
        }
        BEFORE.store(OLD.0.get(), Release);
        Ok(())
    }

    extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel's.
        let address = unsafe { (*info).si_addr() } as usize;
        if GUARDED.iter().any(|guarded| guarded.note(address)) {
            return;
        }
        // SAFETY: written before the handler was set, or null.
        let before = unsafe { BEFORE.load(Acquire).as_ref() };
        match before {
            Some(before) if before.sa_sigaction > libc::SIG_IGN => {
                // SAFETY: whoever set it has said what it is.
                unsafe {
                    if before.sa_flags & libc::SA_SIGINFO != 0 {
                        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                            transmute(before.sa_sigaction);
                        handler(signal, info, context);
                    } else {
                        let handler: extern "C" fn(c_int) = transmute(before.sa_sigaction);
                        handler(signal);
                    }
                }
            }
            // The same instruction again, with nobody to handle it.
            // SAFETY: it names a signal.
            _ => unsafe {
                libc::signal(signal, libc::SIG_DFL);
            },
        }
    }
}

/// What was the handler of a signal; written to once.
struct OldAction(core::cell::UnsafeCell<libc::sigaction>);

impl OldAction {
    const fn new() -> Self {
        // SAFETY: plain data.
        Self(core::cell::UnsafeCell::new(unsafe { core::mem::MaybeUninit::zeroed().assume_init() }))
    }
}

// SAFETY: written before anybody reads it.
unsafe impl Sync for OldAction {}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn runs(written: &Written) -> Vec<(usize, usize)> {
        let mut runs = Vec::new();
        written.take(|at, len| runs.push((at / PAGE_BYTES, len / PAGE_BYTES))).unwrap();
        runs
    }

    type Watch = unsafe fn(*mut u8, usize, usize) -> Result<Written, i32>;

    fn writes_are_named_once(watch: Watch) -> bool {
        let pages = 1000;
        let at = vm::reserve(pages * PAGE_BYTES).unwrap().as_ptr();
        // SAFETY: the test's own memory.
        unsafe {
            assert!(vm::open(at, pages * PAGE_BYTES));
            at.write_volatile(1);
            let written = watch(at, (pages - 1) * PAGE_BYTES, pages * PAGE_BYTES).unwrap();
            written.extend(pages * PAGE_BYTES).unwrap();
            assert_eq!(runs(&written), []);
            for page in [3, 4, 5, 64, 999] {
                at.add(page * PAGE_BYTES + 17).write_volatile(1);
            }
            assert_eq!(at.add(4 * PAGE_BYTES + 17).read_volatile(), 1);
            assert_eq!(at.add(7 * PAGE_BYTES).read_volatile(), 0, "reading is no writing");
            assert_eq!(runs(&written), [(3, 3), (64, 1), (999, 1)]);
            assert_eq!(runs(&written), []);
            at.add(4 * PAGE_BYTES).write_volatile(2);
            at.write_volatile(2);
            assert_eq!(runs(&written), [(0, 1), (4, 1)]);
            (0..pages).for_each(|page| at.add(page * PAGE_BYTES).write_volatile(3));
            assert_eq!(runs(&written), [(0, pages)]);
            let is_by_kernel = written.is_by_kernel();
            drop(written);
            at.write_volatile(4);
            vm::release(at, pages * PAGE_BYTES);
            is_by_kernel
        }
    }

    #[test]
    fn the_kernel_tells_if_it_can() {
        writes_are_named_once(Written::watch);
    }

    #[test]
    fn protection_tells_where_the_kernel_does_not() {
        assert!(!writes_are_named_once(Written::watch_by_faults));
    }
}
