//! Where a thread is, as return addresses.

use core::ffi::c_void;
use core::fmt::{self, Write};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use spandrel_os::message::Line;
use spandrel_os::message::say;

/// Callers that are kept.
const DEPTH: usize = 16;
/// More of them are asked for, as the innermost may be this library's own, which say nothing.
const INNER: usize = 8;
/// The callers of a function, innermost first.
#[derive(Clone, Copy)]
pub struct Stack {
    thread: u32,
    len: usize,
    addresses: [usize; DEPTH],
}

impl Stack {
    /// Nobody.
    pub const fn new() -> Self {
        Self { thread: 0, len: 0, addresses: [0; DEPTH] }
    }

    /// The callers of this function.
    #[inline(never)]
    pub fn here() -> Self {
        let mut found = [ptr::null_mut::<c_void>(); DEPTH + INNER];
        // SAFETY: there is room for so many addresses.
        let len = unsafe { libc::backtrace(found.as_mut_ptr(), found.len() as i32) };
        let len = (len.max(0) as usize).min(found.len());
        let mut stack = Self::new();
        // SAFETY: no preconditions.
        stack.thread = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
        let outer = found.iter().take(len).map(|address| *address as usize).skip(1);
        for (to, from) in stack.addresses.iter_mut().zip(outer.skip_while(|at| is_own(*at))) {
            *to = from;
            stack.len += 1;
        }
        stack
    }

    /// The callers of the function in which this address is, if it is one of them.
    pub fn beyond(mut self, address: usize) -> Self {
        let known = self.addresses.iter().take(self.len);
        if let Some(at) = known.clone().position(|caller| *caller == address) {
            self.addresses.copy_within(at + 1..self.len, 0);
            self.len -= at + 1;
        }
        self
    }

    /// Says who they are, a line each.
    pub fn tell(&self, what: &str) {
        say(format_args!("  {what} by thread {}:", self.thread));
        for (number, address) in self.addresses.iter().take(self.len).enumerate() {
            say(format_args!("    #{number} {}", Place(*address)));
        }
    }
}

/// The file in which an address of code lies, by where it begins in memory; 0: none.
fn file_of(address: usize) -> usize {
    // SAFETY: all-zero is a valid value.
    let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: any address may be asked for; `found` is a valid place for the answer.
    let known = unsafe { libc::dladdr(address as *const c_void, &mut found) } != 0;
    if known { found.dli_fbase as usize } else { 0 }
}

/// The library's own file; 0 where it is part of the program.
static OWN_FILE: AtomicUsize = AtomicUsize::new(0);

fn is_own(address: usize) -> bool {
    let own = OWN_FILE.load(Relaxed);
    own != 0 && file_of(address) == own
}

/// Has the C library load what it needs to follow stacks, which allocates.
pub fn prepare() {
    let own = file_of(prepare as *const () as usize);
    // SAFETY: a question about the process.
    let program = file_of(unsafe { libc::getauxval(libc::AT_ENTRY) } as usize);
    OWN_FILE.store(if own == program { 0 } else { own }, Relaxed);
    let _ = Stack::here();
}

/// An address of code, with the function and the file if they are known.
pub struct Place(pub usize);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: all-zero is a valid value.
        let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
        // SAFETY: any address may be asked for; `found` is a valid place for the answer.
        let known = unsafe { libc::dladdr(self.0 as *const c_void, &mut found) } != 0;
        write!(f, "{:#x}", self.0)?;
        if !known {
            return Ok(());
        }
        let text = |name: *const core::ffi::c_char| {
            // SAFETY: the loader's names are NUL-terminated and live as long as their files.
            (!name.is_null()).then(|| unsafe { core::ffi::CStr::from_ptr(name) }.to_bytes())
        };
        let shown = |bytes: &[u8]| {
            let mut line = Line::new();
            bytes.utf8_chunks().for_each(|chunk| {
                // A line never fails; it cuts.
                let _ = line.write_str(chunk.valid());
            });
            line
        };
        if let Some(name) = text(found.dli_sname) {
            let offset = self.0.wrapping_sub(found.dli_saddr as usize);
            let line = shown(name);
            write!(f, " {}+{offset:#x}", core::str::from_utf8(line.as_bytes()).unwrap_or("?"))?;
        }
        if let Some(file) = text(found.dli_fname) {
            let offset = self.0.wrapping_sub(found.dli_fbase as usize);
            let line = shown(file);
            write!(f, " ({}+{offset:#x})", core::str::from_utf8(line.as_bytes()).unwrap_or("?"))?;
        }
        Ok(())
    }
}
