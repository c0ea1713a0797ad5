//! `setuid` and the others that give a process another identity.
//!
//! The C library gives it to the threads that it knows. The thread beside the program ends before, and none is made meanwhile, so that
//! no thread is left with rights that the program has given up.
//!
//! These stand in the shared library only: in a program that is linked statically there is no next function to call, and a program with the
//! identity of root has a thread of the C library there. The archive's names are made local when it is built.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::NonNull;

use libc::{gid_t, size_t, uid_t};
use spandrel_os::env;
use spandrel_os::modules::{LIBC, Module};
use spandrel_sync::background;

/// Whether a program that is started calls the functions below, and not those of the C library.
pub fn is_watched() -> bool {
    // Asked for one name: all of them are in one file.
    let (first, own) =
        (Module::defining(c"setresuid"), Module::around(setresuid as *const () as usize));
    let has = |module: &Module, name| module.function(name).is_some();
    matches!((first, own), (Some(first), Some(own)) if first.addresses() == own.addresses())
        && Module::named(LIBC).is_some_and(|libc| has(&libc, c"setresuid"))
}

/// The C library's function.
fn next(name: &CStr) -> Option<NonNull<c_void>> {
    Module::named(LIBC)?.function(name)
}

macro_rules! change {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        /// The C library's function of this name.
        ///
        /// # Errors
        /// Those of the C library; -1 with `ENOSYS` where there is no such function.
        ///
        /// # Safety
        /// As for the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            let name = const {
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            };
            let Some(next) = next(name) else {
                env::set_errno(libc::ENOSYS);
                return -1;
            };
            // SAFETY: the C library's function of that name has this type.
            let next: unsafe extern "C" fn($($kind),*) -> c_int = unsafe { transmute(next) };
            // SAFETY: passed on from the caller.
            background::without(|| unsafe { next($($argument),*) })
        }
    )*};
}

change! {
    setuid(id: uid_t);
    seteuid(effective: uid_t);
    setreuid(real: uid_t, effective: uid_t);
    setresuid(real: uid_t, effective: uid_t, saved: uid_t);
    setgid(id: gid_t);
    setegid(effective: gid_t);
    setregid(real: gid_t, effective: gid_t);
    setresgid(real: gid_t, effective: gid_t, saved: gid_t);
    setgroups(count: size_t, groups: *const gid_t);
    initgroups(user: *const c_char, group: gid_t);
    capset(header: *mut c_void, sets: *const c_void);
}
