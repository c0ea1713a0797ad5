//! The allocator in front of ours, where the program has one: what is called like ours and is its.
//!
//! glibc's and the C++ runtime's functions around `malloc` call it by name, and so reach whatever the
//! program defines. Ours do the same while [`is_elsewhere`].

use core::ffi::c_void;
use core::ptr;

use spandrel_adaptive as adaptive;
use spandrel_pages::{MIN_ALIGN, align_up};

pub use spandrel_adaptive::is_elsewhere;

/// Declares a function that has the address of what the loader has under a name. The compiler would take ours
/// for it.
macro_rules! in_front {
    ($($function:ident = $name:literal: $type:ty;)*) => {$(
        fn $function() -> $type {
            // SAFETY: loads an address that the loader has written, of a function of this type.
            unsafe {
                let front: *const ();
                core::arch::asm!(
                    concat!("mov {front}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                    front = out(reg) front,
                    options(pure, nomem, nostack, preserves_flags),
                );
                core::mem::transmute::<*const (), $type>(front)
            }
        }
    )*};
}

in_front! {
    front_malloc = "malloc": unsafe extern "C" fn(usize) -> *mut c_void;
    front_aligned_alloc = "aligned_alloc": unsafe extern "C" fn(usize, usize) -> *mut c_void;
    front_realloc = "realloc": unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
    front_free = "free": unsafe extern "C" fn(*mut c_void);
}

/// `size` bytes aligned to `align` from the allocator in front; as in libstdc++, `aligned_alloc` serves
/// alignments beyond malloc's.
pub fn alloc(size: usize, align: usize) -> *mut c_void {
    if align <= MIN_ALIGN {
        // SAFETY: `malloc` has no preconditions.
        return unsafe { front_malloc()(size) };
    }
    let Some(size) = align_up(size, align) else { return ptr::null_mut() };
    // SAFETY: the size is a multiple of the alignment.
    unsafe { front_aligned_alloc()(align, size) }
}

/// `realloc` of the allocator in front.
///
/// # Safety
/// As for `realloc`.
pub unsafe fn realloc(object: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: passed on from the caller.
    unsafe { front_realloc()(object, size) }
}

/// For [`adaptive::free_or`]: gives an object back to the allocator in front if there is one.
///
/// # Safety
/// As for [`adaptive::free_other`].
#[inline(never)]
pub unsafe fn free_other(object: *mut u8, owner: u8) {
    // SAFETY: passed on from the caller.
    unsafe {
        if is_elsewhere() {
            front_free()(object.cast());
        } else {
            adaptive::free_other(object, owner);
        }
    }
}
