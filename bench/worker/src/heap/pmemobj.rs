//! libpmemobj of PMDK, opened when it is asked for: this program is built without it.

use super::sections::Section;
use super::{Allocator, file};
use crate::library::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;

const LIBRARY: &CStr = c"libpmemobj.so.1";
/// Bytes of the pool: more than any of the programs takes.
const POOL_BYTES: usize = 3 << 30;

/// What it calls an object: the pool's number, and an offset.
#[repr(C)]
#[derive(Clone, Copy)]
struct Oid {
    pool: u64,
    offset: u64,
}

type Constructor = Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> c_int>;

/// The functions that are called.
struct Functions {
    close: unsafe extern "C" fn(*mut c_void),
    alloc:
        unsafe extern "C" fn(*mut c_void, *mut Oid, usize, u64, Constructor, *mut c_void) -> c_int,
    free: unsafe extern "C" fn(*mut Oid),
    tx_begin: unsafe extern "C" fn(*mut c_void, *mut c_void, ...) -> c_int,
    tx_add: unsafe extern "C" fn(*const c_void, usize) -> c_int,
    tx_alloc: unsafe extern "C" fn(usize, u64) -> Oid,
    tx_free: unsafe extern "C" fn(Oid) -> c_int,
    tx_commit: unsafe extern "C" fn(),
    tx_end: unsafe extern "C" fn() -> c_int,
}

/// A pool in a file that is gone when the process ends.
pub struct Pool {
    at: NonNull<c_void>,
    /// The number that its objects have in common.
    number: u64,
    functions: Functions,
}

// SAFETY: the library's functions may be called by all threads.
unsafe impl Sync for Pool {}

impl Pool {
    pub fn create(directory: &str) -> Result<Self, String> {
        let library = Library::open(LIBRARY)?;
        type Create = unsafe extern "C" fn(*const c_char, *const c_char, usize, u32) -> *mut c_void;
        // SAFETY: the types are those of its documentation.
        let (create, functions): (Create, _) = unsafe {
            let functions = Functions {
                close: library.function(c"pmemobj_close")?,
                alloc: library.function(c"pmemobj_alloc")?,
                free: library.function(c"pmemobj_free")?,
                tx_begin: library.function(c"pmemobj_tx_begin")?,
                tx_add: library.function(c"pmemobj_tx_add_range_direct")?,
                tx_alloc: library.function(c"pmemobj_tx_alloc")?,
                tx_free: library.function(c"pmemobj_tx_free")?,
                tx_commit: library.function(c"pmemobj_tx_commit")?,
                tx_end: library.function(c"pmemobj_tx_end")?,
            };
            (library.function(c"pmemobj_create")?, functions)
        };
        let path = file(directory, "pool");
        let text = CString::new(path.as_str()).map_err(|why| why.to_string())?;
        // SAFETY: both texts end with a zero.
        let at = unsafe { create(text.as_ptr(), c"bench".as_ptr(), POOL_BYTES, 0o600) };
        let failed = std::io::Error::last_os_error();
        let _ = std::fs::remove_file(&path);
        let at = NonNull::new(at).ok_or_else(|| format!("libpmemobj: {path}: {failed}"))?;
        let mut pool = Self { at, number: 0, functions };
        pool.number = pool.allocated(64).pool;
        Ok(pool)
    }

    #[inline]
    fn allocated(&self, bytes: usize) -> Oid {
        let mut oid = Oid { pool: 0, offset: 0 };
        // SAFETY: the pool is open; the place for the object's number may be anywhere.
        let refused = unsafe {
            (self.functions.alloc)(self.at.as_ptr(), &mut oid, bytes, 0, None, std::ptr::null_mut())
        };
        if refused != 0 {
            give_up("an allocation");
        }
        oid
    }

    /// An object's address: its offset is that from the pool's beginning, and so is spared the search for the pool.
    #[inline]
    fn address(&self, oid: Oid) -> NonNull<u8> {
        // SAFETY: within the pool.
        unsafe { self.at.cast::<u8>().add(oid.offset as usize) }
    }

    #[inline]
    fn oid(&self, object: NonNull<u8>) -> Oid {
        let offset = object.as_ptr() as u64 - self.at.as_ptr() as u64;
        Oid { pool: self.number, offset }
    }
}

#[cold]
fn give_up(what: &str) -> ! {
    eprintln!(
        "spandrel-bench-worker: libpmemobj: {what} failed: {}",
        std::io::Error::last_os_error()
    );
    std::process::exit(1);
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: it is open, and nobody uses it any more.
        unsafe { (self.functions.close)(self.at.as_ptr()) };
    }
}

impl Allocator for Pool {
    type Section<'a> = Transaction<'a>;

    #[inline]
    fn alloc(&self, bytes: usize) -> NonNull<u8> {
        self.address(self.allocated(bytes))
    }

    #[inline]
    unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: promised by the caller.
        unsafe { (self.functions.free)(&mut self.oid(object)) };
    }

    fn section(&self) -> Result<Transaction<'_>, String> {
        Ok(Transaction(self))
    }
}

/// The library's own transactions.
pub struct Transaction<'a>(&'a Pool);

impl Section for Transaction<'_> {
    fn begin(&mut self) {
        let none: c_int = 0;
        // SAFETY: the pool is open; no jump is asked for, and the list of parameters ends at once.
        let refused =
            unsafe { (self.0.functions.tx_begin)(self.0.at.as_ptr(), std::ptr::null_mut(), none) };
        if refused != 0 {
            give_up("a transaction");
        }
    }

    fn alloc(&mut self, bytes: usize) -> NonNull<u8> {
        // SAFETY: within a transaction.
        let oid = unsafe { (self.0.functions.tx_alloc)(bytes, 0) };
        if oid.offset == 0 {
            give_up("an allocation in a transaction");
        }
        self.0.address(oid)
    }

    unsafe fn free(&mut self, object: NonNull<u8>) {
        // SAFETY: within a transaction; promised by the caller.
        if unsafe { (self.0.functions.tx_free)(self.0.oid(object)) } != 0 {
            give_up("a free in a transaction");
        }
    }

    fn scratch(&mut self, bytes: usize) -> NonNull<u8> {
        self.0.alloc(bytes)
    }

    unsafe fn free_scratch(&mut self, object: NonNull<u8>) {
        // SAFETY: promised by the caller.
        unsafe { self.0.free(object) };
    }

    /// What was allocated in a transaction is written back with it.
    fn made(&mut self, _: NonNull<u8>, _: usize) {}

    unsafe fn store(&mut self, at: *mut u64, words: &[u64]) {
        // SAFETY: within a transaction; promised by the caller.
        unsafe {
            if (self.0.functions.tx_add)(at.cast(), size_of_val(words)) != 0 {
                give_up("to note what was there in a transaction");
            }
            at.copy_from_nonoverlapping(words.as_ptr(), words.len());
        }
    }

    fn end(&mut self) {
        // SAFETY: within a transaction.
        unsafe {
            (self.0.functions.tx_commit)();
            if (self.0.functions.tx_end)() != 0 {
                give_up("the end of a transaction");
            }
        }
    }
}
