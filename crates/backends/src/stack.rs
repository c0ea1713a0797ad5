//! Where a thread is, as return addresses.

use core::ffi::{CStr, c_void};
use core::fmt::{self, Write};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use spandrel_os::message::{Line, say};
use spandrel_os::modules::Module;

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
    /// A stack without callers.
    pub(crate) const fn new() -> Self {
        Self { thread: 0, len: 0, addresses: [0; DEPTH] }
    }

    /// The callers of this function.
    #[inline(never)]
    pub fn here() -> Self {
        let mut found = [ptr::null_mut::<c_void>(); DEPTH + INNER];
        // SAFETY: there is room for as many addresses.
        let len = unsafe { libc::backtrace(found.as_mut_ptr(), found.len() as i32) };
        let len = (len.max(0) as usize).min(found.len());
        let mut stack = Self::new();
        stack.thread = spandrel_os::call::thread_id();
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

    /// The callers, innermost first.
    pub fn callers(&self) -> &[usize] {
        self.addresses.get(..self.len).unwrap_or_default()
    }

    /// Prints the callers, a line each.
    pub fn tell(&self, what: &str) {
        say(format_args!("  {what} by thread {}:", self.thread));
        for (number, address) in self.addresses.iter().take(self.len).enumerate() {
            say(format_args!("    #{number} {}", Place(*address)));
        }
    }
}

/// The library's own addresses; none where it is part of the program.
static OWN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

fn is_own(address: usize) -> bool {
    let [first, end] = &OWN;
    (first.load(Relaxed)..end.load(Relaxed)).contains(&address)
}

/// Has the C library load what it needs to follow stacks, which allocates.
pub fn prepare() {
    let addresses = |at| Module::around(at).map(|module| module.addresses());
    let own = addresses(prepare as *const () as usize);
    // SAFETY: a question about the process.
    let program = addresses(unsafe { libc::getauxval(libc::AT_ENTRY) } as usize);
    if let Some(own) = own.filter(|own| program.as_ref() != Some(own)) {
        let [first, end] = &OWN;
        first.store(own.start, Relaxed);
        end.store(own.end, Relaxed);
    }
    let _ = Stack::here();
}

/// Where an address of code is, as far as the loader knows.
pub struct Found {
    /// The file, and how far from its beginning.
    pub file: Option<(&'static [u8], usize)>,
    /// The exported function, and how far from its beginning.
    pub function: Option<(&'static [u8], usize)>,
}

/// Looks an address up: 25 us for one in a large library.
pub fn find(address: usize) -> Found {
    // SAFETY: all-zero is a valid value.
    let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: any address may be asked for; `found` is a valid place for the answer.
    let known = unsafe { libc::dladdr(address as *const c_void, &mut found) } != 0;
    let text = |name: *const core::ffi::c_char, base: *mut c_void| {
        // SAFETY: the loader's names are NUL-terminated and live as long as their files, and the
        // thread that looks up an address runs there.
        let name =
            (known && !name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes())?;
        Some((name, address.wrapping_sub(base as usize)))
    };
    Found {
        file: text(found.dli_fname, found.dli_fbase),
        function: text(found.dli_sname, found.dli_saddr),
    }
}

/// An address of code, with the function and the file if they are known.
pub struct Place(pub usize);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |bytes: &[u8]| {
            let mut line = Line::new();
            bytes.utf8_chunks().for_each(|chunk| {
                // A line never fails; it cuts.
                let _ = line.write_str(chunk.valid());
            });
            line
        };
        let found = find(self.0);
        write!(f, "{:#x}", self.0)?;
        if let Some((name, offset)) = found.function {
            let line = shown(name);
            write!(f, " {}+{offset:#x}", core::str::from_utf8(line.as_bytes()).unwrap_or("?"))?;
        }
        if let Some((file, offset)) = found.file {
            let line = shown(file);
            write!(f, " ({}+{offset:#x})", core::str::from_utf8(line.as_bytes()).unwrap_or("?"))?;
        }
        Ok(())
    }
}
