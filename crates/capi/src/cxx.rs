//! Every form of `operator new` and `operator delete` (Itanium C++ ABI names).
//!
//! Failure follows the C++ standard: the new-handler is called until it gives
//! up, then `std::bad_alloc` is thrown, both through the program's own C++
//! runtime. A program without one has no `operator new` to call.

use core::ffi::{CStr, c_void};

use spandrel_adaptive as adaptive;
use spandrel_os::message::say;
use spandrel_pages::MIN_ALIGN;

use crate::elsewhere;

const LARGEST: usize = isize::MAX as usize;

/// As `alloc_aligned` of the request handler, or of the allocator in front of ours. What the caches have is
/// none of its: see `adaptive::is_elsewhere`.
#[inline(never)]
fn try_new(size: usize, align: usize) -> *mut c_void {
    if size > LARGEST || align > LARGEST / 2 {
        return core::ptr::null_mut();
    }
    if elsewhere::is_elsewhere() {
        return elsewhere::alloc(size, align);
    }
    adaptive::alloc_aligned(align, size).cast()
}

fn runtime(name: &CStr) -> *mut c_void {
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Calls the new-handler and tries again, until there is memory (the result) or
/// no handler (null). A handler may throw.
#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn retry(size: usize, align: usize) -> *mut c_void {
    type Handler = unsafe extern "C-unwind" fn();
    let get_handler = runtime(c"_ZSt15get_new_handlerv");
    if get_handler.is_null() {
        return core::ptr::null_mut();
    }
    loop {
        // SAFETY: `std::get_new_handler()` takes nothing and returns a function
        // pointer or null.
        let handler = unsafe {
            let get: extern "C" fn() -> Option<Handler> = core::mem::transmute(get_handler);
            get()
        };
        let Some(handler) = handler else {
            return core::ptr::null_mut();
        };
        // SAFETY: the program installed it as a new-handler.
        unsafe { handler() };
        let object = try_new(size, align);
        if !object.is_null() {
            return object;
        }
    }
}

/// `operator new` after the first failure: retries, then throws.
#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn new_failed(size: usize, align: usize) -> *mut c_void {
    // SAFETY: passes on whatever the handler throws.
    let object = unsafe { retry(size, align) };
    if !object.is_null() {
        return object;
    }
    let throw = runtime(c"_ZSt17__throw_bad_allocv");
    if !throw.is_null() {
        // SAFETY: `std::__throw_bad_alloc()` of libstdc++ takes nothing and
        // unwinds; the frames between are ours and hold nothing to drop.
        unsafe {
            let throw: unsafe extern "C-unwind" fn() = core::mem::transmute(throw);
            throw();
        }
    }
    say(format_args!("operator new: out of memory ({size} bytes), and no C++ runtime to throw"));
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}

/// `operator new`, the long way.
#[inline(never)]
unsafe extern "C-unwind" fn new_uncached(size: usize, align: usize) -> *mut c_void {
    let object = try_new(size, align);
    if object.is_null() {
        // SAFETY: unwinds as `operator new` does.
        return unsafe { new_failed(size, align) };
    }
    object
}

macro_rules! new {
    ($($name:ident($($align:ident)?);)*) => {$(
        /// A throwing `operator new`.
        ///
        /// # Safety
        /// May unwind with `std::bad_alloc`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(size: usize $(, $align: usize)?) -> *mut c_void {
            let align = new!(@align $($align)?);
            if align <= MIN_ALIGN {
                let object = adaptive::alloc_cached(size);
                if !object.is_null() {
                    return object.cast();
                }
            }
            // SAFETY: unwinds as `operator new` does.
            unsafe { new_uncached(size, align) }
        }
    )*};
    (@align) => { 1 };
    (@align $align:ident) => { $align };
}

macro_rules! new_nothrow {
    ($($name:ident($($align:ident)?);)*) => {$(
        /// A nothrow `operator new`: null when there is no memory, and when the
        /// new-handler gives up or throws.
        ///
        /// # Safety
        /// None beyond those of the new-handler.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            size: usize $(, $align: usize)?, nothrow: *const c_void,
        ) -> *mut c_void {
            #[allow(unused_mut, unused_assignments)]
            let mut align = None;
            $(align = Some($align);)?
            if align.unwrap_or(1) <= MIN_ALIGN {
                let object = adaptive::alloc_cached(size);
                if !object.is_null() {
                    return object.cast();
                }
            }
            let object = try_new(size, align.unwrap_or(1));
            if object.is_null() {
                const NAME: &CStr = match CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
                // SAFETY: the next definition of this very name is the runtime's.
                return unsafe { nothrow_failed(next(NAME), size, align, nothrow) };
            }
            object
        }
    )*};
}

/// The next definition of a symbol after this library's.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// `operator new(nothrow)` after the first failure. A new-handler may throw, and
/// nothrow forms turn that into null: only C++ can catch it. The runtime's own
/// form does so around our throwing one, which it calls.
///
/// # Safety
/// `runtime_form` is the C++ runtime's function of the caller's name, of type
/// `(size, nothrow)` if `align` is `None` and `(size, align, nothrow)` otherwise,
/// or null.
#[cold]
#[inline(never)]
unsafe fn nothrow_failed(
    runtime_form: *mut c_void,
    size: usize,
    align: Option<usize>,
    nothrow: *const c_void,
) -> *mut c_void {
    type Plain = unsafe extern "C" fn(usize, *const c_void) -> *mut c_void;
    type Aligned = unsafe extern "C" fn(usize, usize, *const c_void) -> *mut c_void;
    if runtime_form.is_null() {
        // Without a C++ runtime there is no handler either.
        return core::ptr::null_mut();
    }
    // SAFETY: passed on from the caller.
    unsafe {
        match align {
            None => core::mem::transmute::<*mut c_void, Plain>(runtime_form)(size, nothrow),
            Some(align) => {
                core::mem::transmute::<*mut c_void, Aligned>(runtime_form)(size, align, nothrow)
            }
        }
    }
}

macro_rules! delete {
    ($($name:ident($($argument:ident: $type:ty),*) $(sized $size:ident $($align:ident)?)?;)*) => {$(
        /// An `operator delete`.
        ///
        /// # Safety
        /// `object` is null or came from the matching `operator new`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(object: *mut c_void $(, $argument: $type)*) {
            $(let _ = $argument;)*
            // SAFETY: passed on from the caller.
            unsafe { delete!(@free object $($size $($align)?)?) }
        }
    )*};
    (@free $object:ident) => { adaptive::free_or($object.cast(), elsewhere::free_other) };
    (@free $object:ident $size:ident) => {
        adaptive::free_sized_or($object.cast(), $size, 1, elsewhere::free_other)
    };
    (@free $object:ident $size:ident $align:ident) => {
        adaptive::free_sized_or($object.cast(), $size, $align, elsewhere::free_other)
    };
}

new! {
    _Znwm();
    _Znam();
    _ZnwmSt11align_val_t(align);
    _ZnamSt11align_val_t(align);
}

new_nothrow! {
    _ZnwmRKSt9nothrow_t();
    _ZnamRKSt9nothrow_t();
    _ZnwmSt11align_val_tRKSt9nothrow_t(align);
    _ZnamSt11align_val_tRKSt9nothrow_t(align);
}

delete! {
    _ZdlPv();
    _ZdaPv();
    _ZdlPvm(size: usize) sized size;
    _ZdaPvm(size: usize) sized size;
    _ZdlPvSt11align_val_t(align: usize);
    _ZdaPvSt11align_val_t(align: usize);
    _ZdlPvmSt11align_val_t(size: usize, align: usize) sized size align;
    _ZdaPvmSt11align_val_t(size: usize, align: usize) sized size align;
    _ZdlPvRKSt9nothrow_t(nothrow: *const c_void);
    _ZdaPvRKSt9nothrow_t(nothrow: *const c_void);
    _ZdlPvSt11align_val_tRKSt9nothrow_t(align: usize, nothrow: *const c_void);
    _ZdaPvSt11align_val_tRKSt9nothrow_t(align: usize, nothrow: *const c_void);
}
