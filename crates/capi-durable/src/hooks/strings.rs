//! `strcpy` and its like: a note, and the C library's function behind it. A program that was compiled with fortified functions (`_FORTIFY_SOURCE`) calls those with a length of
//! the destination.

use std::ffi::c_char;

use super::copies::{Behind, check};
use super::filled;

type Copy = unsafe extern "C" fn(*mut c_char, *const c_char) -> *mut c_char;
type Copies = unsafe extern "C" fn(*mut c_char, *const c_char, usize) -> *mut c_char;

macro_rules! strings {
    ($($name:ident $behind:ident $real:literal: |$to:ident, $from:ident| $at:expr, $bytes:expr;)*) => {$(
        static $behind: Behind = Behind::new($real);

        /// See the C library.
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($to: *mut c_char, $from: *const c_char) -> *mut c_char {
            // SAFETY: passed on from the caller, to the C library's own function.
            unsafe {
                filled($at as usize, $bytes);
                core::mem::transmute::<*mut core::ffi::c_void, Copy>($behind.get())($to, $from)
            }
        }
    )*};
}

macro_rules! counted_strings {
    ($($name:ident $behind:ident $real:literal: |$to:ident, $from:ident, $most:ident| $at:expr, $bytes:expr;)*) => {$(
        static $behind: Behind = Behind::new($real);

        /// See the C library.
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $to: *mut c_char,
            $from: *const c_char,
            $most: usize,
        ) -> *mut c_char {
            // SAFETY: passed on from the caller, to the C library's own function.
            unsafe {
                filled($at as usize, $bytes);
                core::mem::transmute::<*mut core::ffi::c_void, Copies>($behind.get())($to, $from, $most)
            }
        }
    )*};
}

strings! {
    strcpy STRCPY c"strcpy": |to, from| to, libc::strlen(from) + 1;
    stpcpy STPCPY c"stpcpy": |to, from| to, libc::strlen(from) + 1;
    strcat STRCAT c"strcat": |to, from| to.add(libc::strlen(to)), libc::strlen(from) + 1;
}

counted_strings! {
    strncpy STRNCPY c"strncpy": |to, from, most| to, most;
    strncat STRNCAT c"strncat": |to, from, most| to.add(libc::strlen(to)), libc::strnlen(from, most) + 1;
}

macro_rules! checked_strings {
    ($($name:ident $by:ident ($($more:ident)?): |$to:ident, $from:ident| $bytes:expr;)*) => {$(
        /// See the C library: with the length of the destination.
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $to: *mut c_char,
            $from: *const c_char,
            $($more: usize,)?
            room: usize,
        ) -> *mut c_char {
            // SAFETY: passed on from the caller.
            unsafe {
                check($bytes, room);
                $by($to, $from $(, $more)?)
            }
        }
    )*};
}

checked_strings! {
    __strcpy_chk strcpy (): |to, from| libc::strlen(from) + 1;
    __stpcpy_chk stpcpy (): |to, from| libc::strlen(from) + 1;
    __strcat_chk strcat (): |to, from| libc::strlen(to) + libc::strlen(from) + 1;
    __strncpy_chk strncpy (most): |to, from| most;
    __strncat_chk strncat (most): |to, from| libc::strlen(to) + libc::strnlen(from, most) + 1;
}
