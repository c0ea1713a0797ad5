//! glibc's allocator, by the names that a preloaded `malloc` does not replace.

use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use spandrel_os::env;
use spandrel_pages::{AllocatorId, MIN_ALIGN};
use spandrel_sync::Once;

use crate::without_glibc::{self, glibc_is_there};
use crate::{Backend, module};

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(object: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_free(object: *mut c_void);
    #[cfg(not(tsan))]
    fn __libc_memalign(align: usize, size: usize) -> *mut c_void;
}

/// The thread sanitizer has a function of this name, alone of those above, and what it gives glibc cannot
/// free; `make tsan` says that it is there.
#[cfg(tsan)]
unsafe fn __libc_memalign(align: usize, size: usize) -> *mut c_void {
    static MEMALIGN: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    type Memalign = unsafe extern "C" fn(usize, usize) -> *mut c_void;
    match libc_function::<Memalign>(&MEMALIGN, c"memalign") {
        // SAFETY: the type is that of `memalign`.
        Some(memalign) => unsafe { memalign(align, size) },
        None => ptr::null_mut(),
    }
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
            // SAFETY: an object that is used nowhere else.
            unsafe { Self::free(Self::alloc(1)) }
        });
        true
    }

    #[inline(always)]
    fn alloc(size: usize) -> *mut u8 {
        if !glibc_is_there() {
            return without_glibc::alloc(MIN_ALIGN, size);
        }
        // SAFETY: no preconditions.
        unsafe { __libc_malloc(size) }.cast()
    }

    #[inline]
    fn alloc_zeroed(size: usize) -> *mut u8 {
        if !glibc_is_there() {
            return without_glibc::alloc(MIN_ALIGN, size);
        }
        // SAFETY: no preconditions.
        unsafe { __libc_calloc(1, size) }.cast()
    }

    #[inline]
    fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
        if align <= MIN_ALIGN {
            return Self::alloc(size);
        }
        if !glibc_is_there() {
            return without_glibc::alloc(align, size);
        }
        // SAFETY: no preconditions; glibc checks for overflow.
        unsafe { __libc_memalign(align, size) }.cast()
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
        if !glibc_is_there() {
            // SAFETY: passed on from the caller.
            return unsafe { without_glibc::realloc(object, size) };
        }
        // SAFETY: passed on from the caller.
        unsafe { __libc_realloc(object.cast(), size) }.cast()
    }

    #[inline(always)]
    unsafe fn free(object: *mut u8) {
        if !glibc_is_there() {
            // SAFETY: passed on from the caller.
            return unsafe { without_glibc::free(object) };
        }
        // SAFETY: passed on from the caller.
        unsafe { __libc_free(object.cast()) }
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
/// that the program uses, may define one of that name.
///
/// Looking up may allocate, through the front door; that is harmless because no
/// lock is held here.
pub fn libc_function<F: Copy>(cell: &AtomicPtr<c_void>, name: &CStr) -> Option<F> {
    let mut function = cell.load(Relaxed);
    if function.is_null() {
        // SAFETY: the name is NUL-terminated.
        function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if !libc_itself().contains(&function.addr()) {
            function = by_handle(name);
        }
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

/// The function as libc.so.6 defines it, or the program where libc is linked in.
fn by_handle(name: &CStr) -> *mut c_void {
    if !env::is_there() {
        // `dlopen` would run libc's own initialisers first, without arguments
        // and environment. No caller needs a function that early.
        return ptr::null_mut();
    }
    // SAFETY: the names are NUL-terminated; NOLOAD only finds what is there.
    unsafe {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), flags);
        let handle = if libc.is_null() { libc::RTLD_DEFAULT } else { libc };
        libc::dlsym(handle, name.as_ptr())
    }
}

/// The addresses of the file that glibc's allocator lies in: libc.so.6, or the program where libc
/// is linked in. Empty if there is none, which cannot be.
fn libc_itself() -> Range<usize> {
    static FIRST: AtomicUsize = AtomicUsize::new(0);
    static END: AtomicUsize = AtomicUsize::new(0);
    if END.load(Relaxed) == 0 {
        let found = match glibc_is_there() {
            true => module::holding(__libc_malloc as *const () as usize),
            false => 0..0,
        };
        // Another thread that is here stores the same.
        FIRST.store(found.start, Relaxed);
        END.store(found.end, Relaxed);
        return found;
    }
    FIRST.load(Relaxed)..END.load(Relaxed)
}

/// Looks up what could otherwise be looked up in the middle of a call.
pub fn resolve_early() {
    let _ = libc_function::<*mut c_void>(&USABLE_SIZE, c"malloc_usable_size");
    let _ = libc_function::<*mut c_void>(&TRIM, c"malloc_trim");
}
