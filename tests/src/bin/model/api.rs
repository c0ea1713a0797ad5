//! The library's own functions, if it is there: found by name, so that the program runs without it too.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;

use crate::objects::wrong;

/// The one that need not be built in.
const TCMALLOC: c_int = 3;

type SetMode = unsafe extern "C" fn(*const c_char) -> c_int;
type Leave = unsafe extern "C" fn();
type MallocIn = unsafe extern "C" fn(c_int, usize) -> *mut c_void;
type CallocIn = unsafe extern "C" fn(c_int, usize, usize) -> *mut c_void;
type ReallocIn = unsafe extern "C" fn(c_int, *mut c_void, usize) -> *mut c_void;
type AlignedAllocIn = unsafe extern "C" fn(c_int, usize, usize) -> *mut c_void;
type Owner = unsafe extern "C" fn(*const c_void) -> c_int;

/// The functions of `spandrel.h` that the model uses.
pub struct Api {
    set_mode: SetMode,
    scope_enter: SetMode,
    scope_leave: Leave,
    malloc_in: MallocIn,
    calloc_in: CallocIn,
    realloc_in: ReallocIn,
    aligned_alloc_in: AlignedAllocIn,
    owner: Owner,
}

fn lookup(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends in a zero byte; the handle asks for the usual order of search.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

fn must(name: &CStr) -> *mut c_void {
    lookup(name).unwrap_or_else(|| wrong(&format!("the library has no {name:?}")))
}

impl Api {
    /// The functions, or nothing if another allocator is running this program.
    pub fn find() -> Option<Self> {
        lookup(c"spandrel_version")?;
        // SAFETY: each name has this type in `include/spandrel.h`, which another test compiles.
        unsafe {
            Some(Self {
                set_mode: transmute::<*mut c_void, SetMode>(must(c"spandrel_set_mode")),
                scope_enter: transmute::<*mut c_void, SetMode>(must(c"spandrel_scope_enter")),
                scope_leave: transmute::<*mut c_void, Leave>(must(c"spandrel_scope_leave")),
                malloc_in: transmute::<*mut c_void, MallocIn>(must(c"spandrel_malloc_in")),
                calloc_in: transmute::<*mut c_void, CallocIn>(must(c"spandrel_calloc_in")),
                realloc_in: transmute::<*mut c_void, ReallocIn>(must(c"spandrel_realloc_in")),
                aligned_alloc_in: transmute::<*mut c_void, AlignedAllocIn>(must(
                    c"spandrel_aligned_alloc_in",
                )),
                owner: transmute::<*mut c_void, Owner>(must(c"spandrel_owner")),
            })
        }
    }

    /// Changes the mode of the process; every mode of the tests must be accepted.
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
        match unsafe { (self.scope_enter)(text.as_ptr()) } {
            0 => true,
            libc::EAGAIN => false,
            status => wrong(&format!("spandrel_scope_enter({mode}) = {status}")),
        }
    }

    /// Leaves the innermost scope of this thread.
    pub fn scope_leave(&self) {
        // SAFETY: no arguments.
        unsafe { (self.scope_leave)() }
    }

    /// Allocates in a backend. Gives nothing for one that need not be built in, else the object, its
    /// alignment, and whether it must be zero; the form follows from the size.
    pub fn allocate_in(&self, backend: c_int, size: usize) -> Option<(*mut c_void, usize, bool)> {
        // SAFETY: any number and size may be asked for; the result is checked.
        let (pointer, alignment, zeroed) = unsafe {
            match size % 4 {
                0 => ((self.calloc_in)(backend, 1, size), 1, true),
                1 => ((self.aligned_alloc_in)(backend, 256, size), 256, false),
                2 => ((self.realloc_in)(backend, std::ptr::null_mut(), size), 1, false),
                _ => ((self.malloc_in)(backend, size), 1, false),
            }
        };
        self.placed(backend, pointer, size).then_some((pointer, alignment, zeroed))
    }

    /// Moves an object into a backend. The caller keeps it if the answer is nothing.
    pub fn resize_in(
        &self,
        backend: c_int,
        object: *mut c_void,
        size: usize,
    ) -> Option<*mut c_void> {
        // SAFETY: the caller has checked that the object lives and is its own.
        let pointer = unsafe { (self.realloc_in)(backend, object, size) };
        self.placed(backend, pointer, size).then_some(pointer)
    }

    /// True for an object of this backend, false for a refusal that is allowed.
    fn placed(&self, backend: c_int, pointer: *mut c_void, size: usize) -> bool {
        if pointer.is_null() {
            if backend != TCMALLOC {
                wrong(&format!("backend {backend} gave no object of {size} bytes"));
            }
            return false;
        }
        // SAFETY: any address may be asked about.
        let owner = unsafe { (self.owner)(pointer) };
        if owner != backend {
            wrong(&format!("an object of backend {backend}, {size} bytes, belongs to {owner}"));
        }
        true
    }
}
