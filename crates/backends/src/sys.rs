//! glibc's allocator, as libc.so.6 itself defines it.
//!
//! By name alone it is not to be had: the program, or a library in front of ours, may define `malloc` and
//! `__libc_malloc` as well, and the loader takes theirs. So each function is looked up in glibc's own table
//! of symbols, when it is needed first. The lookup does not allocate: a request would reach the program's `malloc`.

use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use spandrel_os::modules::{LIBC, Module};
use spandrel_pages::{AllocatorId, MIN_ALIGN};
use spandrel_sync::Once;

use crate::Backend;
use crate::without_glibc::{self, glibc_is_there};

/// Declares a function of glibc's allocator, as a call through a pointer: at first to what looks it up.
/// `$linked` is the symbol that the loader has, for programs that libc is linked into; `$alone` is what stands for it where
/// the linker has left it out of such a program.
macro_rules! of_glibc {
    ($($name:ident = $cell:ident, $first:ident, $alone:ident, $linked:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        static $cell: AtomicPtr<c_void> = AtomicPtr::new($first as *const () as *mut c_void);

        unsafe extern "C" fn $first($($argument: $type),*) $(-> $result)? {
            unsafe extern "C" {
                fn $linked($($argument: $type),*) $(-> $result)?;
            }
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($linked), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            };
            let linked = match glibc_is_there() {
                true => $linked as *const () as *mut c_void,
                false => $alone as *const () as *mut c_void,
            };
            $cell.store(own(NAME).map_or(linked, NonNull::as_ptr), Relaxed);
            // SAFETY: passed on from the caller.
            unsafe { $name($($argument),*) }
        }

        #[inline(always)]
        unsafe fn $name($($argument: $type),*) $(-> $result)? {
            type Function = unsafe extern "C" fn($($type),*) $(-> $result)?;
            // SAFETY: the cell holds a function of this type from the beginning; the arguments are the
            // caller's.
            unsafe { transmute::<*mut c_void, Function>($cell.load(Relaxed))($($argument),*) }
        }
    )*};
}

of_glibc! {
    malloc = MALLOC, first_malloc, alone_malloc, __libc_malloc(size: usize) -> *mut c_void;
    calloc = CALLOC, first_calloc, alone_calloc, __libc_calloc(count: usize, size: usize) -> *mut c_void;
    realloc = REALLOC, first_realloc, alone_realloc, __libc_realloc(object: *mut c_void, size: usize) -> *mut c_void;
    free = FREE, first_free, alone_free, __libc_free(object: *mut c_void);
    memalign = MEMALIGN, first_memalign, alone_memalign, __libc_memalign(align: usize, size: usize) -> *mut c_void;
}

extern "C" fn alone_malloc(size: usize) -> *mut c_void {
    without_glibc::alloc(MIN_ALIGN, size).cast()
}

extern "C" fn alone_calloc(count: usize, size: usize) -> *mut c_void {
    // One object, always: see `Sys`.
    without_glibc::alloc(MIN_ALIGN, count.saturating_mul(size)).cast()
}

unsafe extern "C" fn alone_realloc(object: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: passed on from the caller; without glibc's allocator all of `Sys` comes from there.
    unsafe { without_glibc::realloc(object.cast(), size) }.cast()
}

unsafe extern "C" fn alone_free(object: *mut c_void) {
    // SAFETY: as above.
    unsafe { without_glibc::free(object.cast()) }
}

extern "C" fn alone_memalign(align: usize, size: usize) -> *mut c_void {
    without_glibc::alloc(align, size).cast()
}

/// A function as glibc itself defines it; `None`: glibc does not, or is linked into the program.
fn own(name: &CStr) -> Option<NonNull<c_void>> {
    Module::named(LIBC)?.function(name)
}

/// glibc's ptmalloc2.
pub enum Sys {}

impl Backend for Sys {
    const ID: AllocatorId = AllocatorId::Sys;

    /// Has glibc's allocator set itself up, which it does at the first request, and without a lock: it counts
    /// on a program that has allocated something before it has a second thread.
    fn start() -> bool {
        static ONCE: Once = Once::new();
        ONCE.run(|| {
            // SAFETY: an object that no other thread knows.
            unsafe { free(malloc(1)) }
        });
        true
    }

    #[inline(always)]
    fn alloc(size: usize) -> *mut u8 {
        // SAFETY: no preconditions.
        unsafe { malloc(size) }.cast()
    }

    #[inline]
    fn alloc_zeroed(size: usize) -> *mut u8 {
        // SAFETY: no preconditions.
        unsafe { calloc(1, size) }.cast()
    }

    #[inline]
    fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
        if align <= MIN_ALIGN {
            return Self::alloc(size);
        }
        // SAFETY: no preconditions; glibc checks for overflow.
        unsafe { memalign(align, size) }.cast()
    }

    fn alloc_zeroed_aligned(align: usize, size: usize) -> *mut u8 {
        if align <= MIN_ALIGN {
            return Self::alloc_zeroed(size);
        }
        let object = Self::alloc_aligned(align, size);
        if !object.is_null() {
            // SAFETY: the object has `size` bytes.
            unsafe { ptr::write_bytes(object, 0, size) };
        }
        object
    }

    #[inline]
    unsafe fn realloc(object: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: passed on from the caller.
        unsafe { realloc(object.cast(), size) }.cast()
    }

    #[inline(always)]
    unsafe fn free(object: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { free(object.cast()) }
    }

    #[inline(always)]
    unsafe fn free_sized(object: *mut u8, _size: usize, _align: usize) {
        // SAFETY: passed on from the caller.
        unsafe { Self::free(object) }
    }

    unsafe fn usable_size(object: *mut u8) -> usize {
        if !glibc_is_there() {
            // SAFETY: passed on from the caller.
            return unsafe { without_glibc::usable_size(object) };
        }
        match libc_function::<unsafe extern "C" fn(*mut c_void) -> usize>(
            &USABLE_SIZE,
            c"malloc_usable_size",
        ) {
            // SAFETY: the type is that of `malloc_usable_size`.
            Some(usable_size) => unsafe { usable_size(object.cast()) },
            None => 0,
        }
    }

    fn trim() -> bool {
        match libc_function::<unsafe extern "C" fn(usize) -> c_int>(&TRIM, c"malloc_trim") {
            // SAFETY: the type is that of `malloc_trim`.
            Some(trim) => unsafe { trim(0) != 0 },
            None => false,
        }
    }
}

impl Sys {
    /// Whether glibc's allocator is there at all: a program that libc is linked into is without it, and what it would serve
    /// gets pages of its own.
    pub fn is_there() -> bool {
        glibc_is_there()
    }

    /// Bytes of glibc's objects, mapped ones among them; 0 where glibc is older than 2.33 and cannot
    /// tell. Takes the locks of its arenas.
    pub fn bytes() -> usize {
        match libc_function::<unsafe extern "C" fn() -> libc::mallinfo2>(&INFO, c"mallinfo2") {
            Some(info) => {
                // SAFETY: the type is that of `mallinfo2`.
                let info = unsafe { info() };
                info.uordblks.saturating_add(info.hblkhd)
            }
            None => 0,
        }
    }
}

static INFO: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static USABLE_SIZE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static TRIM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// What registers fork handlers with libc.
pub type RegisterAtfork = unsafe extern "C" fn(
    Option<unsafe extern "C" fn()>,
    Option<unsafe extern "C" fn()>,
    Option<unsafe extern "C" fn()>,
    *mut c_void,
) -> c_int;

/// glibc's `__register_atfork`. In a program that libc is linked into it is what the linker has taken: glibc's if the program
/// forks, and else perhaps this library's own, which finds itself called from within itself and does nothing.
pub fn register_atfork() -> Option<RegisterAtfork> {
    static REGISTER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    if glibc_is_there() {
        return libc_function(&REGISTER, c"__register_atfork");
    }
    let linked: *mut c_void;
    // Not by name in Rust: the compiler would take it for the function of that name in the same object file.
    // SAFETY: reads an entry of the global offset table.
    unsafe {
        core::arch::asm!(
            "mov {linked}, qword ptr [rip + __register_atfork@GOTPCREL]",
            linked = out(reg) linked,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    // SAFETY: whichever it is, it has this type; a null pointer is `None`.
    unsafe { core::mem::transmute::<*mut c_void, Option<RegisterAtfork>>(linked) }
}

/// A function of glibc itself, although a preloaded library, or another one
/// that the program uses, may define one of that name. In a program that libc is
/// linked into, the program's own.
pub fn libc_function<F: Copy>(cell: &AtomicPtr<c_void>, name: &CStr) -> Option<F> {
    let mut function = cell.load(Relaxed);
    if function.is_null() {
        function = match Module::named(LIBC) {
            Some(libc) => libc.function(name)?.as_ptr(),
            // SAFETY: the name is NUL-terminated.
            None => unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) },
        };
        if function.is_null() {
            return None;
        }
        cell.store(function, Relaxed);
    }
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: F is a function pointer of pointer size; the callers name the
    // type that glibc documents for the symbol.
    Some(unsafe { core::mem::transmute_copy(&function) })
}

/// Looks up what could otherwise be looked up in the middle of a call.
pub fn resolve_early() {
    let _ = libc_function::<*mut c_void>(&USABLE_SIZE, c"malloc_usable_size");
    let _ = libc_function::<*mut c_void>(&TRIM, c"malloc_trim");
}
