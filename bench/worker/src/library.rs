//! Shared libraries that are opened when they are asked for: this program is built without them.

use std::ffi::{CStr, c_void};

/// An open library. It stays open.
#[derive(Clone, Copy)]
pub struct Library(*mut c_void, &'static CStr);

impl Library {
    /// Opens a library by its file's name.
    ///
    /// # Errors
    /// The dynamic linker's words.
    pub fn open(name: &'static CStr) -> Result<Self, String> {
        // SAFETY: the libraries that this program names have constructors that touch nothing of its own.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() { Err(last_error()) } else { Ok(Self(library, name)) }
    }

    /// A function of the library.
    ///
    /// # Errors
    /// The library has none of that name.
    ///
    /// # Safety
    /// It is of that type.
    pub unsafe fn function<F: Copy>(self, name: &CStr) -> Result<F, String> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: an open library, and a name that ends with a zero.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if found.is_null() {
            return Err(format!("{:?} has no function {name:?}", self.1));
        }
        // SAFETY: promised by the caller.
        Ok(unsafe { std::mem::transmute_copy(&found) })
    }
}

fn last_error() -> String {
    // SAFETY: what it returns is null or a text.
    let text = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
    text.map_or_else(|| "it cannot be opened".into(), |text| text.to_string_lossy().into_owned())
}
