//! LMDB by its interface in C: a put is a transaction, which is synchronous when it commits.

use crate::library::Library;
use spandrel_stores::{Key, Session, Store};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

const LIBRARY: &CStr = c"liblmdb.so.0";
/// Of `lmdb.h`.
const RDONLY: c_uint = 0x20000;
const NOTFOUND: c_int = -30798;
const FIRST: c_int = 0;
const LAST: c_int = 6;
const NEXT: c_int = 8;
const SET_RANGE: c_int = 17;
const PREVIOUS: c_int = 12;
/// Threads that may read at a time.
const READERS: c_uint = 1024;

type Any = *mut c_void;

/// `MDB_val`.
#[repr(C)]
struct Bytes {
    len: usize,
    at: *const u8,
}

impl Bytes {
    fn of(bytes: &[u8]) -> Self {
        Self { len: bytes.len(), at: bytes.as_ptr() }
    }

    /// # Safety
    /// What a transaction that has not ended has shown.
    unsafe fn get<'a>(&self) -> &'a [u8] {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

/// The functions that are called.
struct Functions {
    begin: unsafe extern "C" fn(Any, Any, c_uint, *mut Any) -> c_int,
    commit: unsafe extern "C" fn(Any) -> c_int,
    abort: unsafe extern "C" fn(Any),
    open: unsafe extern "C" fn(Any, *const c_char, c_uint, *mut c_uint) -> c_int,
    put: unsafe extern "C" fn(Any, c_uint, *mut Bytes, *mut Bytes, c_uint) -> c_int,
    get: unsafe extern "C" fn(Any, c_uint, *mut Bytes, *mut Bytes) -> c_int,
    delete: unsafe extern "C" fn(Any, c_uint, *mut Bytes, *mut Bytes) -> c_int,
    open_cursor: unsafe extern "C" fn(Any, c_uint, *mut Any) -> c_int,
    close_cursor: unsafe extern "C" fn(Any),
    move_cursor: unsafe extern "C" fn(Any, *mut Bytes, *mut Bytes, c_int) -> c_int,
    close: unsafe extern "C" fn(Any),
}

/// An open store.
pub struct Lmdb {
    functions: Functions,
    env: Any,
    db: c_uint,
}

// SAFETY: an environment may be used by all threads; each transaction stays with the thread that began it.
unsafe impl Sync for Lmdb {}

fn settled(code: c_int) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("LMDB's error {code}")) }
}

impl Lmdb {
    pub fn open(directory: &Path, bytes: u64) -> Result<Self, String> {
        let library = Library::open(LIBRARY)?;
        let path = CString::new(directory.as_os_str().as_bytes()).map_err(|why| why.to_string())?;
        // SAFETY: the types are those of `lmdb.h`.
        unsafe {
            let functions = Functions {
                begin: library.function(c"mdb_txn_begin")?,
                commit: library.function(c"mdb_txn_commit")?,
                abort: library.function(c"mdb_txn_abort")?,
                open: library.function(c"mdb_dbi_open")?,
                put: library.function(c"mdb_put")?,
                get: library.function(c"mdb_get")?,
                delete: library.function(c"mdb_del")?,
                open_cursor: library.function(c"mdb_cursor_open")?,
                close_cursor: library.function(c"mdb_cursor_close")?,
                move_cursor: library.function(c"mdb_cursor_get")?,
                close: library.function(c"mdb_env_close")?,
            };
            let create: unsafe extern "C" fn(*mut Any) -> c_int =
                library.function(c"mdb_env_create")?;
            let set_size: unsafe extern "C" fn(Any, usize) -> c_int =
                library.function(c"mdb_env_set_mapsize")?;
            let set_readers: unsafe extern "C" fn(Any, c_uint) -> c_int =
                library.function(c"mdb_env_set_maxreaders")?;
            let open: unsafe extern "C" fn(Any, *const c_char, c_uint, c_uint) -> c_int =
                library.function(c"mdb_env_open")?;
            let mut env = ptr::null_mut();
            settled(create(&mut env))?;
            settled(set_size(env, (bytes * 4 + (1 << 30)) as usize & !4095))?;
            settled(set_readers(env, READERS))?;
            settled(open(env, path.as_ptr(), 0, 0o600))?;
            let mut store = Self { functions, env, db: 0 };
            let mut db = 0;
            store.within(0, |of, transaction| {
                settled((of.open)(transaction, ptr::null(), 0, &mut db))
            })?;
            store.db = db;
            Ok(store)
        }
    }

    /// Does something in a transaction, which commits if that was done.
    ///
    /// # Safety
    /// What is done is what the transaction may be used for.
    unsafe fn within<T>(
        &self,
        flags: c_uint,
        work: impl FnOnce(&Functions, Any) -> Result<T, String>,
    ) -> Result<T, String> {
        let (of, mut transaction) = (&self.functions, ptr::null_mut());
        // SAFETY: an open environment; the transaction ends here.
        unsafe {
            settled((of.begin)(self.env, ptr::null_mut(), flags, &mut transaction))?;
            match work(of, transaction) {
                Ok(done) => settled((of.commit)(transaction)).map(|()| done),
                Err(why) => {
                    (of.abort)(transaction);
                    Err(why)
                }
            }
        }
    }
}

impl Store for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>, String> {
        Ok(Box::new(self))
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        // SAFETY: no session is left.
        unsafe { (self.functions.close)(self.env) };
        Ok(())
    }
}

impl Lmdb {
    fn put_all<'r>(
        &self,
        records: impl Iterator<Item = (&'r Key, &'r [u8])>,
    ) -> Result<(), String> {
        // SAFETY: a transaction that writes, and bytes that are there.
        unsafe {
            self.within(0, |of, transaction| {
                for (key, value) in records {
                    let (mut key, mut value) = (Bytes::of(key), Bytes::of(value));
                    settled((of.put)(transaction, self.db, &mut key, &mut value, 0))?;
                }
                Ok(())
            })
        }
    }
}

impl Lmdb {
    /// Shows pairs from a place on.
    fn walk(
        &self,
        from: &[u8],
        (first, next): (c_int, c_int),
        most: usize,
        see: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), String> {
        // SAFETY: a transaction that reads; the cursor ends before it.
        unsafe {
            self.within(RDONLY, |of, transaction| {
                let mut cursor = ptr::null_mut();
                settled((of.open_cursor)(transaction, self.db, &mut cursor))?;
                let (mut step, mut seen) = (first, 0);
                let outcome = loop {
                    if seen == most {
                        break Ok(());
                    }
                    let (mut key, mut value) = (Bytes::of(from), Bytes::of(&[]));
                    match (of.move_cursor)(cursor, &mut key, &mut value, step) {
                        0 => see(key.get(), value.get()),
                        NOTFOUND => break Ok(()),
                        code => break settled(code),
                    }
                    (step, seen) = (next, seen + 1);
                };
                (of.close_cursor)(cursor);
                outcome
            })
        }
    }
}

impl Session for &Lmdb {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), String> {
        self.put_all(std::iter::once((key, value)))
    }

    fn load(&mut self, records: &[(Key, Vec<u8>)]) -> Result<(), String> {
        self.put_all(records.iter().map(|(key, value)| (key, value.as_slice())))
    }

    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
        // SAFETY: a transaction that reads; what it shows is looked at before it ends.
        unsafe {
            self.within(RDONLY, |of, transaction| {
                let (mut key, mut value) = (Bytes::of(key), Bytes::of(&[]));
                match (of.get)(transaction, self.db, &mut key, &mut value) {
                    0 => {
                        see(value.get());
                        Ok(true)
                    }
                    NOTFOUND => Ok(false),
                    code => settled(code).map(|()| false),
                }
            })
        }
    }

    fn scan(&mut self, falling: bool, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), String> {
        let (first, next) = if falling { (LAST, PREVIOUS) } else { (FIRST, NEXT) };
        self.walk(&[], (first, next), usize::MAX, see)
    }

    fn range(
        &mut self,
        from: &Key,
        most: usize,
        see: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), String> {
        self.walk(from, (SET_RANGE, NEXT), most, see)
    }

    fn remove(&mut self, keys: &[Key]) -> Result<(), String> {
        // SAFETY: a transaction that writes, and bytes that are there.
        unsafe {
            self.within(0, |of, transaction| {
                keys.iter().try_for_each(|key| {
                    let mut key = Bytes::of(key);
                    settled((of.delete)(transaction, self.db, &mut key, ptr::null_mut()))
                })
            })
        }
    }
}
