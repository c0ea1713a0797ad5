//! `setuid` and the others that give a process another identity.
//!
//! The C library gives it to the threads that it knows. The thread beside the program ends before, and none is made meanwhile, so that
//! no thread is left with rights that the program has given up.
//!
//! These stand in the shared library only: in a program that is linked statically there is no next function to call, and a program with the
//! identity of root has a thread of the C library there. The archive's names are made local when it is built.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{gid_t, size_t, uid_t};
use spandrel_os::env;
use spandrel_os::modules::{LIBC, Module};
use spandrel_sync::background;

/// A function of this name behind this library's, which is called in its place.
struct Next {
    name: &'static CStr,
    function: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, function: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Looks the function up; for that the loader's lock is taken. A library between this one and the C library may have one of its own.
    fn find(&self) -> *mut c_void {
        let behind = Module::defining_after(own_address(), self.name);
        let first = behind.or_else(|| Module::named(LIBC));
        let function = first.and_then(|module| module.function(self.name));
        let function = function.map_or(ptr::null_mut(), NonNull::as_ptr);
        self.function.store(function, Relaxed);
        function
    }

    fn get(&self) -> *mut c_void {
        let known = self.function.load(Relaxed);
        if known.is_null() { self.find() } else { known }
    }
}

/// An address in this library. (That of an exported function may be another file's.)
fn own_address() -> usize {
    is_watched as *const () as usize
}

/// Whether a program that is started calls the functions below, and not others of these names. All of them are looked up: the child of a fork must
/// not wait for the loader's lock, which a thread of its parent's may have held.
pub fn is_watched() -> bool {
    let Some(own) = Module::around(own_address()) else { return false };
    let is_first = |next: &Next| {
        let first = Module::defining(next.name);
        !next.find().is_null() && first.is_some_and(|first| first.addresses() == own.addresses())
    };
    ALL.iter().filter(|next| is_first(next)).count() == ALL.len()
}

macro_rules! change {
    ($($index:literal $name:ident($($argument:ident: $kind:ty),*);)*) => {
        static ALL: [Next; [$($index),*].len()] = [$(Next::new(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }
        )),*];
        $(
        /// The C library's function of this name.
        ///
        /// # Errors
        /// Those of the C library; -1 with `ENOSYS` where there is no such function.
        ///
        /// # Safety
        /// As for the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            let next = ALL[$index].get();
            if next.is_null() {
                env::set_errno(libc::ENOSYS);
                return -1;
            }
            // SAFETY: the C library's function of that name has this type.
            let next: unsafe extern "C" fn($($kind),*) -> c_int = unsafe { transmute(next) };
            // SAFETY: passed on from the caller.
            background::without(|| unsafe { next($($argument),*) })
        }
    )*};
}

change! {
    0 setuid(id: uid_t);
    1 seteuid(effective: uid_t);
    2 setreuid(real: uid_t, effective: uid_t);
    3 setresuid(real: uid_t, effective: uid_t, saved: uid_t);
    4 setgid(id: gid_t);
    5 setegid(effective: gid_t);
    6 setregid(real: gid_t, effective: gid_t);
    7 setresgid(real: gid_t, effective: gid_t, saved: gid_t);
    8 setgroups(count: size_t, groups: *const gid_t);
    9 initgroups(user: *const c_char, group: gid_t);
    10 capset(header: *mut c_void, sets: *const c_void);
}
