//! Pages are protected until they are written: a handler of `SIGSEGV` notes the first write to each.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering::*};

use spandrel_pages::PAGE_BYTES;

use crate::vm;

/// A range whose pages are protected until they are written.
#[derive(Debug)]
pub struct Guarded {
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

    pub fn take(&self, mut run: impl FnMut(usize, usize)) -> Result<(), i32> {
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
    pub fn extend(&self, at: usize, more: usize) -> Result<(), i32> {
        // SAFETY: promised by the caller of `Written::extend`.
        if !unsafe { vm::open_to_read(at as *mut u8, more) } {
            return Err(libc::ENOMEM);
        }
        self.len.fetch_add(more, AcqRel);
        Ok(())
    }

    /// It is nobody's any more.
    pub fn forget(&self) {
        let (at, len) = (self.at.swap(0, AcqRel), self.len.swap(0, AcqRel));
        // SAFETY: the range is mapped until this is gone.
        unsafe { vm::open(at as *mut u8, len) };
        let bits = self.bits.swap(ptr::null_mut(), AcqRel);
        // SAFETY: mapped for it. Who is in the handler just now has the range no more.
        unsafe { vm::release(bits.cast(), bits_bytes(self.limit.load(Relaxed))) };
        self.limit.store(0, Release);
    }
}

/// Ranges that may be watched at once.
const MOST: usize = 64;
static GUARDED: [Guarded; MOST] = [const { Guarded::none() }; MOST];
static STATE: AtomicU8 = AtomicU8::new(NONE);
const NONE: u8 = 0;
const BEING_SET: u8 = 1;
const SET: u8 = 2;
static BEFORE: OldAction = OldAction::new();

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

/// Sets the handler, before whoever had set one. Who comes meanwhile waits: a fault before that would end the program.
fn install() -> Result<(), i32> {
    loop {
        match STATE.compare_exchange(NONE, BEING_SET, Acquire, Acquire) {
            Err(SET) => return Ok(()),
            Err(_) => {
                // SAFETY: no preconditions.
                unsafe { libc::sched_yield() };
            }
            Ok(_) => {
                let is_set = set();
                STATE.store(if is_set { SET } else { NONE }, Release);
                return if is_set { Ok(()) } else { Err(libc::EINVAL) };
            }
        }
    }
}

/// One thread at a time.
fn set() -> bool {
    // SAFETY: plain data.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // Whom to call for other faults is known before the first one can come here.
    // SAFETY: the handler is one of three arguments; nobody else writes to the old action.
    unsafe {
        libc::sigaction(libc::SIGSEGV, ptr::null(), BEFORE.0.get()) == 0
            && libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()) == 0
    }
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's.
    let address = unsafe { (*info).si_addr() } as usize;
    let errno = crate::env::errno();
    if GUARDED.iter().any(|guarded| guarded.note(address)) {
        crate::env::set_errno(errno);
        return;
    }
    // SAFETY: written before the handler was set.
    let before = unsafe { &*BEFORE.0.get() };
    match before.sa_sigaction > libc::SIG_IGN {
        true => {
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
        false => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}

/// What was the handler of a signal; written to once.
struct OldAction(UnsafeCell<libc::sigaction>);

impl OldAction {
    const fn new() -> Self {
        // SAFETY: plain data.
        Self(UnsafeCell::new(unsafe { MaybeUninit::zeroed().assume_init() }))
    }
}

// SAFETY: written before anybody reads it.
unsafe impl Sync for OldAction {}
