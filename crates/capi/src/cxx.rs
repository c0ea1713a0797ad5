//! Every form of `operator new` and `operator delete` (Itanium C++ ABI names).
//!
//! Failure follows the C++ standard: the new-handler is called until it gives
//! up, then `std::bad_alloc` is thrown, both through the program's own C++
//! runtime. A program without one has no `operator new` to call.

use core::ffi::{CStr, c_void};

use spandrel_adaptive as adaptive;
use spandrel_os::message::say;

const LARGEST: usize = isize::MAX as usize;

#[inline(always)]
fn try_new(size: usize, align: usize) -> *mut c_void {
    if size > LARGEST || align > LARGEST / 2 {
        return core::ptr::null_mut();
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

macro_rules! new {
    ($($name:ident($($align:ident)?);)*) => {$(
        /// A throwing `operator new`.
        ///
        /// # Safety
        /// May unwind with `std::bad_alloc`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(size: usize $(, $align: usize)?) -> *mut c_void {
            let align = new!(@align $($align)?);
            let object = try_new(size, align);
            if object.is_null() {
                // SAFETY: unwinds as `operator new` does.
                return unsafe { new_failed(size, align) };
            }
            object
        }
    )*};
    (@align) => { 1 };
    (@align $align:ident) => { $align };
}

macro_rules! new_nothrow {
    ($($name:ident($($align:ident)?);)*) => {$(
        /// A nothrow `operator new`: null when there is no memory, and when the
        /// new-handler gives up.
        ///
        /// # Safety
        /// A new-handler that throws ends the program, as `noexcept` demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(size: usize $(, $align: usize)?, _nothrow: *const c_void) -> *mut c_void {
            let align = new!(@align $($align)?);
            let object = try_new(size, align);
            if object.is_null() {
                // SAFETY: as above.
                return unsafe { nothrow_failed(size, align) };
            }
            object
        }
    )*};
}

/// A throwing handler below a nothrow `new` must come out as null; without C++
/// here to catch it, the throwing form is asked through the runtime's own
/// nothrow form only where a handler is installed.
#[cold]
#[inline(never)]
unsafe extern "C" fn nothrow_failed(size: usize, align: usize) -> *mut c_void {
    // SAFETY: an exception that leaves the handler meets an `extern "C"` frame
    // and ends the program with a message.
    unsafe { retry(size, align) }
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
    (@free $object:ident) => { adaptive::free($object.cast()) };
    (@free $object:ident $size:ident) => { adaptive::free_sized($object.cast(), $size, 1) };
    (@free $object:ident $size:ident $align:ident) => {
        adaptive::free_sized($object.cast(), $size, $align)
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
