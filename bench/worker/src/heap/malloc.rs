//! The C library's names, whoever answers to them.

use super::Allocator;
use super::sections::Plain;
use std::ptr::NonNull;

pub struct Malloc;

impl Allocator for Malloc {
    type Section<'a> = Plain<'a, Self>;

    #[inline]
    fn alloc(&self, bytes: usize) -> NonNull<u8> {
        // SAFETY: `malloc` takes any size.
        let Some(object) = NonNull::new(unsafe { libc::malloc(bytes) }) else {
            eprintln!("spandrel-bench-worker: malloc: no memory");
            std::process::exit(1);
        };
        object.cast()
    }

    #[inline]
    unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: promised by the caller.
        unsafe { libc::free(object.as_ptr().cast()) };
    }

    fn section(&self) -> Result<Self::Section<'_>, String> {
        Err("--consistent: memory that is not kept cannot be consistent after a failure".into())
    }
}
