//! LevelDB and RocksDB by their interfaces in C, whose functions differ by a prefix. Writes are synchronous; values are not compressed.

use crate::library::Library;
use spandrel_stores::{Key, Session, Store};
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// One of the two.
pub struct Kind {
    library: &'static CStr,
    prefix: &'static str,
}

/// What both call no compression.
const NO_COMPRESSION: c_int = 0;

/// Google's LevelDB.
pub const LEVELDB: Kind = Kind { library: c"libleveldb.so.1d", prefix: "leveldb" };
/// Facebook's RocksDB.
pub const ROCKSDB: Kind = Kind { library: c"librocksdb.so.7.8", prefix: "rocksdb" };

type Any = *mut c_void;
type Free = unsafe extern "C" fn(Any);
type New = unsafe extern "C" fn() -> Any;
type Put = unsafe extern "C" fn(Any, Any, *const u8, usize, *const u8, usize, *mut *mut c_char);

/// The functions that are called.
struct Functions {
    put: Put,
    write: unsafe extern "C" fn(Any, Any, Any, *mut *mut c_char),
    get: unsafe extern "C" fn(Any, Any, *const u8, usize, *mut usize, *mut *mut c_char) -> *mut u8,
    free: unsafe extern "C" fn(*mut c_void),
    close: Free,
    new_batch: New,
    batch_put: unsafe extern "C" fn(Any, *const u8, usize, *const u8, usize),
    batch_delete: unsafe extern "C" fn(Any, *const u8, usize),
    destroy_batch: Free,
    new_iterator: unsafe extern "C" fn(Any, Any) -> Any,
    destroy_iterator: Free,
    to_first: Free,
    to_last: Free,
    to: unsafe extern "C" fn(Any, *const u8, usize),
    next: Free,
    previous: Free,
    is_valid: unsafe extern "C" fn(Any) -> c_uchar,
    key: unsafe extern "C" fn(Any, *mut usize) -> *const u8,
    value: unsafe extern "C" fn(Any, *mut usize) -> *const u8,
}

/// An open store.
pub struct Lsm {
    functions: Functions,
    db: Any,
    synchronous: Any,
    reading: Any,
}

// SAFETY: both libraries' stores may be used by all threads; options are only read once the store is open.
unsafe impl Sync for Lsm {}

impl Lsm {
    pub fn open(kind: &Kind, directory: &Path) -> Result<Self, String> {
        let library = Library::open(kind.library)?;
        let named = |name: &str| {
            CString::new(format!("{}_{name}", kind.prefix)).expect("names have no zero")
        };
        // SAFETY: the types are those of `leveldb/c.h` and `rocksdb/c.h`.
        unsafe {
            let functions = Functions {
                put: library.function(&named("put"))?,
                write: library.function(&named("write"))?,
                get: library.function(&named("get"))?,
                free: library.function(&named("free"))?,
                close: library.function(&named("close"))?,
                new_batch: library.function(&named("writebatch_create"))?,
                batch_put: library.function(&named("writebatch_put"))?,
                batch_delete: library.function(&named("writebatch_delete"))?,
                destroy_batch: library.function(&named("writebatch_destroy"))?,
                new_iterator: library.function(&named("create_iterator"))?,
                destroy_iterator: library.function(&named("iter_destroy"))?,
                to_first: library.function(&named("iter_seek_to_first"))?,
                to_last: library.function(&named("iter_seek_to_last"))?,
                to: library.function(&named("iter_seek"))?,
                next: library.function(&named("iter_next"))?,
                previous: library.function(&named("iter_prev"))?,
                is_valid: library.function(&named("iter_valid"))?,
                key: library.function(&named("iter_key"))?,
                value: library.function(&named("iter_value"))?,
            };
            let new = |name| library.function::<New>(&named(name));
            let set_flag = |name, on: Any| {
                let set: unsafe extern "C" fn(Any, c_uchar) = library.function(&named(name))?;
                set(on, 1);
                Ok::<_, String>(())
            };
            let options = new("options_create")?();
            set_flag("options_set_create_if_missing", options)?;
            let compression: unsafe extern "C" fn(Any, c_int) =
                library.function(&named("options_set_compression"))?;
            compression(options, NO_COMPRESSION);
            let synchronous = new("writeoptions_create")?();
            set_flag("writeoptions_set_sync", synchronous)?;
            let reading = new("readoptions_create")?();
            let open: unsafe extern "C" fn(Any, *const c_char, *mut *mut c_char) -> Any =
                library.function(&named("open"))?;
            let path = CString::new(directory.join("store").as_os_str().as_bytes())
                .map_err(|why| why.to_string())?;
            let mut error = ptr::null_mut();
            let db = open(options, path.as_ptr(), &mut error);
            let store = Self { functions, db, synchronous, reading };
            store.settled(error)?;
            Ok(store)
        }
    }

    fn settled(&self, error: *mut c_char) -> Result<(), String> {
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: a text of the library's, which it has given away.
        let text = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
        // SAFETY: as above; nothing uses it any more.
        unsafe { (self.functions.free)(error.cast()) };
        Err(text)
    }
}

impl Lsm {
    /// Shows pairs from the place on that `begin` puts an iterator at.
    fn walk(
        &self,
        begin: &dyn Fn(Any),
        next: Free,
        most: usize,
        see: &mut dyn FnMut(&[u8], &[u8]),
    ) {
        let of = &self.functions;
        // SAFETY: an iterator of an open store; what it shows holds until it moves.
        unsafe {
            let iterator = (of.new_iterator)(self.db, self.reading);
            begin(iterator);
            let mut seen = 0;
            while seen < most && (of.is_valid)(iterator) != 0 {
                let (mut key_len, mut value_len) = (0, 0);
                let key = (of.key)(iterator, &mut key_len);
                let value = (of.value)(iterator, &mut value_len);
                see(
                    std::slice::from_raw_parts(key, key_len),
                    std::slice::from_raw_parts(value, value_len),
                );
                seen += 1;
                next(iterator);
            }
            (of.destroy_iterator)(iterator);
        }
    }
}

impl Store for Lsm {
    fn session(&self) -> Result<Box<dyn Session + '_>, String> {
        Ok(Box::new(self))
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        // SAFETY: no session is left, and the store is used no more.
        unsafe { (self.functions.close)(self.db) };
        Ok(())
    }
}

impl Session for &Lsm {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), String> {
        let mut error = ptr::null_mut();
        let (of, key_len) = (&self.functions, key.len());
        // SAFETY: an open store, and bytes that are there.
        unsafe {
            (of.put)(
                self.db,
                self.synchronous,
                key.as_ptr(),
                key_len,
                value.as_ptr(),
                value.len(),
                &mut error,
            );
        }
        self.settled(error)
    }

    fn load(&mut self, records: &[(Key, Vec<u8>)]) -> Result<(), String> {
        let (of, mut error) = (&self.functions, ptr::null_mut());
        // SAFETY: as above.
        unsafe {
            let batch = (of.new_batch)();
            for (key, value) in records {
                (of.batch_put)(batch, key.as_ptr(), key.len(), value.as_ptr(), value.len());
            }
            (of.write)(self.db, self.synchronous, batch, &mut error);
            (of.destroy_batch)(batch);
        }
        self.settled(error)
    }

    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
        let (of, mut error, mut len) = (&self.functions, ptr::null_mut(), 0);
        // SAFETY: as above.
        let at = unsafe {
            (of.get)(self.db, self.reading, key.as_ptr(), key.len(), &mut len, &mut error)
        };
        self.settled(error)?;
        if at.is_null() {
            return Ok(false);
        }
        // SAFETY: bytes that the library has given away.
        see(unsafe { std::slice::from_raw_parts(at, len) });
        // SAFETY: as above; nothing uses them any more.
        unsafe { (of.free)(at.cast()) };
        Ok(true)
    }

    fn scan(&mut self, falling: bool, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), String> {
        let of = &self.functions;
        let (first, next) =
            if falling { (of.to_last, of.previous) } else { (of.to_first, of.next) };
        // SAFETY: a place of an open store's iterator.
        self.walk(&|iterator| unsafe { first(iterator) }, next, usize::MAX, see);
        Ok(())
    }

    fn range(
        &mut self,
        from: &Key,
        most: usize,
        see: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), String> {
        let (to, next) = (self.functions.to, self.functions.next);
        // SAFETY: as above.
        self.walk(&|iterator| unsafe { to(iterator, from.as_ptr(), from.len()) }, next, most, see);
        Ok(())
    }

    fn remove(&mut self, keys: &[Key]) -> Result<(), String> {
        let (of, mut error) = (&self.functions, ptr::null_mut());
        // SAFETY: an open store, and bytes that are there.
        unsafe {
            let batch = (of.new_batch)();
            keys.iter().for_each(|key| (of.batch_delete)(batch, key.as_ptr(), key.len()));
            (of.write)(self.db, self.synchronous, batch, &mut error);
            (of.destroy_batch)(batch);
        }
        self.settled(error)
    }
}
