//! The library's own functions, if it is there: found by name, so that the program runs without it too.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::objects::wrong;

/// Modes to change between: plain ones, and settings that move objects early.
pub const MODES: &[&str] = &[
    "sys",
    "jemalloc",
    "mimalloc",
    "mmap",
    "auto",
    "template",
    "template=brug",
    "template=0-1KiB:mimalloc,1KiB-32KiB:jemalloc,32KiB-512KiB:sys,512KiB-:mmap",
    "switch",
    "switch=jemalloc,point=64KiB,threshold=2",
    "switch=mimalloc,point=16KiB,threshold=1",
];

/// Backends that may be asked for by number; those that are not built in refuse.
pub const BACKENDS: u64 = 5;

/// The functions of `spandrel.h` that the model uses.
pub struct Api {
    set_mode: unsafe extern "C" fn(*const c_char) -> c_int,
    scope_enter: unsafe extern "C" fn(*const c_char) -> c_int,
    scope_leave: unsafe extern "C" fn(),
    malloc_in: unsafe extern "C" fn(c_int, usize) -> *mut c_void,
    calloc_in: unsafe extern "C" fn(c_int, usize, usize) -> *mut c_void,
    owner: unsafe extern "C" fn(*const c_void) -> c_int,
}

fn lookup(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends in a zero byte; the handle asks for the usual order of search.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

impl Api {
    /// The functions, or nothing if another allocator is running this program.
    pub fn find() -> Option<Self> {
        lookup(c"spandrel_version")?;
        let must = |name: &CStr| {
            lookup(name).unwrap_or_else(|| wrong(&format!("the library has no {name:?}")))
        };
        // SAFETY: each name has this type in `include/spandrel.h`, which another test compiles.
        unsafe {
            Some(Self {
                set_mode: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const c_char) -> c_int,
                >(must(c"spandrel_set_mode")),
                scope_enter: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const c_char) -> c_int,
                >(must(c"spandrel_scope_enter")),
                scope_leave: std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(must(
                    c"spandrel_scope_leave",
                )),
                malloc_in: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(c_int, usize) -> *mut c_void,
                >(must(c"spandrel_malloc_in")),
                calloc_in: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(c_int, usize, usize) -> *mut c_void,
                >(must(c"spandrel_calloc_in")),
                owner: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const c_void) -> c_int,
                >(must(c"spandrel_owner")),
            })
        }
    }

    /// Changes the mode of the process; every mode of [`MODES`] must be accepted.
    pub fn set_mode(&self, mode: &str) {
        let text = CString::new(mode).expect("no zero byte");
        // SAFETY: a string that ends in a zero byte and outlives the call.
        let status = unsafe { (self.set_mode)(text.as_ptr()) };
        if status != 0 {
            wrong(&format!("spandrel_set_mode({mode}) = {status}"));
        }
    }

    /// Enters a scope; true if there is one to leave.
    pub fn scope_enter(&self, mode: &str) -> bool {
        let text = CString::new(mode).expect("no zero byte");
        // SAFETY: a string that ends in a zero byte and outlives the call.
        let status = unsafe { (self.scope_enter)(text.as_ptr()) };
        status == 0
    }

    /// Leaves the innermost scope of this thread.
    pub fn scope_leave(&self) {
        // SAFETY: no arguments.
        unsafe { (self.scope_leave)() }
    }

    /// Allocates in a backend and checks that it owns the object; another way where it is not built in.
    /// Gives pointer, size, alignment, and whether it must be zero.
    pub fn allocate_in(&self, backend: c_int, size: usize) -> (*mut c_void, usize, usize, bool) {
        let zeroed = size % 3 == 0;
        // SAFETY: any number and size may be asked for; the result is checked.
        unsafe {
            let pointer = if zeroed {
                (self.calloc_in)(backend, 1, size)
            } else {
                (self.malloc_in)(backend, size)
            };
            if pointer.is_null() {
                return (libc::malloc(size), size, 1, false);
            }
            let owner = (self.owner)(pointer);
            if owner != backend {
                wrong(&format!("an object of backend {backend}, {size} bytes, belongs to {owner}"));
            }
            (pointer, size, 1, zeroed)
        }
    }
}
