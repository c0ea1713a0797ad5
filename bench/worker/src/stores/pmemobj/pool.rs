//! A pool of libpmemobj and its transactions, by the library's interface in C.

use crate::library::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};

const LIBRARY: &CStr = c"libpmemobj.so.1";
/// What a pool says of its contents.
const LAYOUT: &CStr = c"spandrel-bench";
/// Bytes beyond what keys and values take: for the library's own areas, nodes, and what transactions note.
const ROOM: u64 = 128 << 20;
/// Has libpmem flush lines of the cache where it would call `msync`.
const IS_PERSISTENT: &str = "PMEM_IS_PMEM_FORCE";
/// Sizes of objects without a header differ by a line of the cache.
const STEP: usize = 64;
/// How many such sizes there are. A larger object has a header.
const STEPS: usize = 32;
/// Bytes that are divided into objects of one size.
const BLOCK_BYTES: usize = 256 << 10;
/// Room for the log of what a long transaction allocates and frees.
const LOG_BYTES: usize = 64 << 10;
/// Of `libpmemobj/tx_base.h`.
const PARAM_NONE: c_int = 0;
const STAGE_WORK: c_int = 1;
const LOG_INTENT: c_int = 1;
/// Of `libpmemobj/base.h`.
const NO_FLUSH: u64 = 1 << 1;
const CLASS_BIT: u32 = 48;
/// Of `libpmemobj/ctl.h`.
const HEADER_NONE: c_int = 2;

type Any = *mut c_void;
type Log = [u8; LOG_BYTES];

/// What the library calls an object: the pool's number, and an offset.
#[repr(C)]
#[derive(Clone, Copy)]
struct Oid {
    pool: u64,
    offset: u64,
}

/// The pool's root object.
#[repr(C)]
struct Root<T> {
    /// What the pool's user has there.
    asked: T,
    /// A log of the library's own grows by a kilobyte at a time, which takes an allocation.
    log: Log,
}

/// `pobj_alloc_class_desc`.
#[repr(C)]
struct Class {
    unit_bytes: usize,
    alignment: usize,
    units: c_uint,
    header: c_int,
    number: c_uint,
}

/// The functions that are called.
struct Functions {
    close: unsafe extern "C" fn(Any),
    root: unsafe extern "C" fn(Any, usize) -> Oid,
    begin: unsafe extern "C" fn(Any, Any, ...) -> c_int,
    stage: unsafe extern "C" fn() -> c_int,
    add: unsafe extern "C" fn(*const c_void, usize) -> c_int,
    alloc: unsafe extern "C" fn(usize, u64, u64) -> Oid,
    lend: unsafe extern "C" fn(c_int, Any, usize) -> c_int,
    persist: unsafe extern "C" fn(Any, *const c_void, usize),
    free: unsafe extern "C" fn(Oid) -> c_int,
    commit: unsafe extern "C" fn(),
    abort: unsafe extern "C" fn(c_int),
    end: unsafe extern "C" fn() -> c_int,
    error: unsafe extern "C" fn() -> *const c_char,
}

/// An open pool.
pub struct Pool {
    functions: Functions,
    at: NonNull<c_void>,
    /// The number that its objects have in common.
    number: u64,
    /// Flags of allocations of one step, of two, and so on.
    classes: Vec<u64>,
    /// Room within the root object.
    log: *mut Log,
}

// SAFETY: an open pool may be used by all threads; each transaction stays with the thread that began it.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// Tells libpmem how writes to a directory's files become durable. The library listens once, when it is loaded.
///
/// A file on tmpfs is memory. There flushed lines of the cache are all that persistence takes, as on persistent memory. The library does not know that: it
/// would call `msync`, which does nothing there and takes its time. On another file system the choice is the library's own, `msync` on a disk.
///
/// # Safety
/// No other thread reads the environment.
pub unsafe fn choose_medium(directory: &Path) -> Result<(), String> {
    let path = text(directory)?;
    // SAFETY: an all-zero `statfs` is a valid value.
    let mut status: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a text that ends with a zero, and a place for the result.
    if unsafe { libc::statfs(path.as_ptr(), &mut status) } != 0 {
        return Err(format!("{}: {}", directory.display(), std::io::Error::last_os_error()));
    }
    // SAFETY: promised by the caller.
    unsafe {
        if status.f_type == libc::TMPFS_MAGIC {
            std::env::set_var(IS_PERSISTENT, "1");
        } else {
            std::env::remove_var(IS_PERSISTENT);
        }
    }
    Ok(())
}

fn text(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_bytes()).map_err(|why| why.to_string())
}

impl Pool {
    /// Opens the pool of a directory, or makes one with room for this number of bytes.
    pub fn open(directory: &Path, bytes: u64) -> Result<Self, String> {
        let library = Library::open(LIBRARY)?;
        let path = directory.join("pool");
        let name = text(&path)?;
        // SAFETY: the types are those of `libpmemobj.h`.
        unsafe {
            let functions = Functions {
                close: library.function(c"pmemobj_close")?,
                root: library.function(c"pmemobj_root")?,
                begin: library.function(c"pmemobj_tx_begin")?,
                stage: library.function(c"pmemobj_tx_stage")?,
                add: library.function(c"pmemobj_tx_add_range_direct")?,
                alloc: library.function(c"pmemobj_tx_xalloc")?,
                lend: library.function(c"pmemobj_tx_log_append_buffer")?,
                persist: library.function(c"pmemobj_persist")?,
                free: library.function(c"pmemobj_tx_free")?,
                commit: library.function(c"pmemobj_tx_commit")?,
                abort: library.function(c"pmemobj_tx_abort")?,
                end: library.function(c"pmemobj_tx_end")?,
                error: library.function(c"pmemobj_errormsg")?,
            };
            let open: unsafe extern "C" fn(*const c_char, *const c_char) -> Any =
                library.function(c"pmemobj_open")?;
            let create: unsafe extern "C" fn(*const c_char, *const c_char, usize, u32) -> Any =
                library.function(c"pmemobj_create")?;
            let at = if path.exists() {
                open(name.as_ptr(), LAYOUT.as_ptr())
            } else {
                let size = usize::try_from(bytes * 3 + ROOM).map_err(|why| why.to_string())?;
                create(name.as_ptr(), LAYOUT.as_ptr(), size & !4095, 0o600)
            };
            let at = NonNull::new(at).ok_or_else(|| functions.why(&path.display().to_string()))?;
            let mut pool =
                Self { functions, at, number: 0, classes: Vec::new(), log: ptr::null_mut() };
            pool.make_classes(library)?;
            Ok(pool)
        }
    }

    /// Has small objects lie without headers. The library makes each header durable by itself. The pool does not keep these sizes, so that each opening names
    /// them again.
    fn make_classes(&mut self, library: Library) -> Result<(), String> {
        type Set = unsafe extern "C" fn(Any, *const c_char, *mut Class) -> c_int;
        // SAFETY: its argument is of a type that the name says.
        let set: Set = unsafe { library.function(c"pmemobj_ctl_set")? };
        for unit_bytes in (1..=STEPS).map(|steps| steps * STEP) {
            let units = (BLOCK_BYTES / unit_bytes) as c_uint;
            let mut class =
                Class { unit_bytes, alignment: 0, units, header: HEADER_NONE, number: 0 };
            // SAFETY: an open pool; the name is that of a class's description.
            let refused =
                unsafe { set(self.at.as_ptr(), c"heap.alloc_class.new.desc".as_ptr(), &mut class) };
            if refused != 0 {
                return Err(self.functions.why("a class of allocations"));
            }
            self.classes.push(u64::from(class.number) << CLASS_BIT);
        }
        Ok(())
    }

    /// The object that leads to all others. It is all zeroes at first.
    pub fn root<T>(&mut self) -> Result<*mut T, String> {
        // SAFETY: an open pool.
        let oid = unsafe { (self.functions.root)(self.at.as_ptr(), size_of::<Root<T>>()) };
        if oid.offset == 0 {
            return Err(self.functions.why("the root"));
        }
        self.number = oid.pool;
        let root: *mut Root<T> = self.at(oid.offset);
        // SAFETY: an object of that size.
        unsafe {
            self.log = &raw mut (*root).log;
            Ok(&raw mut (*root).asked)
        }
    }

    /// Where an object lies. Its offset is that from the pool's beginning, so that there is no search for the pool.
    pub fn at<T>(&self, offset: u64) -> *mut T {
        self.at.as_ptr().wrapping_byte_add(offset as usize).cast()
    }

    /// Does something in a transaction, which commits if that was done, and is durable then. A long one has room for its log.
    ///
    /// # Safety
    /// No other thread has a transaction of the pool: the room is for one.
    pub unsafe fn within<'p, T>(
        &'p self,
        is_long: bool,
        work: impl FnOnce(&mut Transaction<'p>) -> Result<T, String>,
    ) -> Result<T, String> {
        let of = &self.functions;
        // SAFETY: an open pool; no jump is asked for, and the list of parameters ends at once. The transaction ends here. The caller promises the log.
        unsafe {
            let refused = (of.begin)(self.at.as_ptr(), ptr::null_mut(), PARAM_NONE);
            if refused != 0 {
                let why = of.why("a transaction");
                (of.end)();
                return Err(why);
            }
            let mut transaction = Transaction { pool: self, made: Vec::new() };
            let lent = !is_long || (of.lend)(LOG_INTENT, self.log.cast(), LOG_BYTES) == 0;
            let done = if lent { work(&mut transaction) } else { Err(of.why("the log's room")) };
            if done.is_ok() {
                transaction.persist_made();
                (of.commit)();
            } else if (of.stage)() == STAGE_WORK {
                // What the library itself has refused is undone already.
                (of.abort)(libc::ECANCELED);
            }
            match (of.end)() {
                0 => done,
                _ => done.and_then(|_| Err(of.why("the end of a transaction"))),
            }
        }
    }

    /// Ends the pool in good order.
    pub fn close(self) {
        // SAFETY: an open pool, which is used no more.
        unsafe { (self.functions.close)(self.at.as_ptr()) };
    }
}

impl Functions {
    /// The library's words for what this thread could not do.
    fn why(&self, what: &str) -> String {
        // SAFETY: what it returns is null or a text that stays until the thread's next call.
        let text = unsafe { (self.error)().as_ref().map(|text| CStr::from_ptr(text)) };
        let text = text.map_or_else(Default::default, CStr::to_string_lossy);
        format!("libpmemobj: {what}: {text}")
    }
}

/// A transaction of the thread.
pub struct Transaction<'p> {
    pool: &'p Pool,
    /// Where new objects lie.
    made: Vec<Range<u64>>,
}

impl Transaction<'_> {
    /// Notes bytes that are about to change. What was noted already, or is new, costs nothing more.
    pub fn note<T>(&mut self, at: *const T, bytes: usize) -> Result<(), String> {
        let of = &self.pool.functions;
        // SAFETY: within a transaction; bytes outside of the pool are refused.
        let refused = unsafe { (of.add)(at.cast(), bytes) };
        if refused == 0 { Ok(()) } else { Err(of.why("what was there")) }
    }

    /// The offset of a new object, whose bytes are anything, and become durable with the transaction.
    pub fn alloc(&mut self, bytes: usize) -> Result<u64, String> {
        let of = &self.pool.functions;
        let class = self.pool.classes.get(bytes.div_ceil(STEP) - 1).copied().unwrap_or(0);
        // SAFETY: within a transaction.
        let Oid { offset, .. } = unsafe { (of.alloc)(bytes, 0, class | NO_FLUSH) };
        if offset == 0 {
            return Err(of.why("an allocation"));
        }
        self.made.push(offset..offset + bytes as u64);
        Ok(offset)
    }

    /// Frees an object once the transaction commits.
    ///
    /// # Safety
    /// It is one of the pool's, and nothing leads to it any more.
    pub unsafe fn free(&mut self, offset: u64) -> Result<(), String> {
        let of = &self.pool.functions;
        // SAFETY: within a transaction; promised by the caller.
        let refused = unsafe { (of.free)(Oid { pool: self.pool.number, offset }) };
        if refused == 0 { Ok(()) } else { Err(of.why("a free")) }
    }

    /// Makes new objects durable, and neighbours at once. The library would do it object by object, with an `msync` for each.
    fn persist_made(&mut self) {
        let (pool, of) = (self.pool, &self.pool.functions);
        self.made.sort_unstable_by_key(|object| object.start);
        for run in self.made.chunk_by(|one, next| next.start < one.end + STEP as u64) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let bytes = (last.end - first.start) as usize;
            // SAFETY: objects of an open pool.
            unsafe { (of.persist)(pool.at.as_ptr(), pool.at(first.start), bytes) };
        }
    }
}
