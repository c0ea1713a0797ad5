//! `dlopen` and `dlmopen`: what is loaded or looked up later finds our functions in glibc as well.
//!
//! The loader binds most of a program to the first `malloc` in its list of files, which is ours. It finds glibc's
//! instead for a file opened with `RTLD_DEEPBIND`, which searches its own dependencies first (modules of PHP and
//! Apache), and for `dlsym` on the handle of a file (`ctypes` in Python). glibc's `free` then gets objects
//! of ours, and ends the process. So glibc's table of symbols is made to name our functions, before
//! the program opens a file for the first time; programs that open none pay nothing. Where that table cannot be written to,
//! files are opened without `RTLD_DEEPBIND`.
//!
//! The loader looks at the address that it is called from, so that these functions jump to it.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use spandrel_adaptive as adaptive;
use spandrel_os::modules::{LIBC, Module};
use spandrel_sync::Once;

use crate::{alone, fork, identity, info, malloc, rlimit, vfork};

/// Where `dlopen` was before glibc 2.34.
const LIBDL: &CStr = c"libdl.so.2";

/// Where to go on, and with which flags.
#[repr(C)]
struct Next {
    function: *mut c_void,
    flags: c_int,
}

/// POSIX `dlopen`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "mov esi, edx",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "ret",
        before = sym before_dlopen,
    )
}

/// glibc's `dlmopen`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlmopen(
    namespace: libc::Lmid_t,
    file: *const c_char,
    flags: c_int,
) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {before}",
        "pop rcx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "ret",
        before = sym before_dlmopen,
    )
}

extern "C" fn before_dlopen(file: *const c_char, flags: c_int) -> Next {
    static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    Next { function: loaders(&DLOPEN, c"dlopen"), flags: prepare(file, flags) }
}

extern "C" fn before_dlmopen(namespace: libc::Lmid_t, file: *const c_char, flags: c_int) -> Next {
    static DLMOPEN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    // Another namespace has a C library of its own, for itself.
    let flags = if namespace == libc::LM_ID_BASE { prepare(file, flags) } else { flags };
    Next { function: loaders(&DLMOPEN, c"dlmopen"), flags }
}

/// The loader's function; null: libc is linked into the program, which has none.
fn loaders(cell: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut function = cell.load(Relaxed);
    if function.is_null() {
        let found = [LIBC, LIBDL].iter().find_map(|file| Module::named(file)?.function(name));
        function = found.map_or(core::ptr::null_mut(), NonNull::as_ptr);
        cell.store(function, Relaxed);
    }
    function
}

/// Sees to it that a file to be opened gives our objects back to us; with which flags to open it.
fn prepare(file: *const c_char, flags: c_int) -> c_int {
    // The program itself is there already, and is bound to ours.
    if file.is_null() || !adaptive::is_in_front() || redirect() {
        flags
    } else {
        flags & !libc::RTLD_DEEPBIND
    }
}

/// Makes glibc's table of symbols name our functions, once; false: it cannot be written to.
fn redirect() -> bool {
    static ONCE: Once = Once::new();
    static DONE: AtomicBool = AtomicBool::new(false);
    ONCE.run(|| {
        let functions: [(&CStr, *const ()); _] = [
            (c"malloc", malloc::malloc as *const ()),
            (c"free", malloc::free as *const ()),
            (c"calloc", malloc::calloc as *const ()),
            (c"realloc", malloc::realloc as *const ()),
            (c"reallocarray", malloc::reallocarray as *const ()),
            (c"free_sized", malloc::free_sized as *const ()),
            (c"free_aligned_sized", malloc::free_aligned_sized as *const ()),
            (c"memalign", malloc::memalign as *const ()),
            (c"aligned_alloc", malloc::aligned_alloc as *const ()),
            (c"posix_memalign", malloc::posix_memalign as *const ()),
            (c"valloc", malloc::valloc as *const ()),
            (c"pvalloc", malloc::pvalloc as *const ()),
            (c"malloc_usable_size", malloc::malloc_usable_size as *const ()),
            (c"malloc_trim", info::malloc_trim as *const ()),
            (c"mallinfo", info::mallinfo as *const ()),
            (c"mallinfo2", info::mallinfo2 as *const ()),
            (c"malloc_stats", info::malloc_stats as *const ()),
            (c"malloc_info", info::malloc_info as *const ()),
            (c"mallopt", info::mallopt as *const ()),
            (c"setrlimit", rlimit::setrlimit as *const ()),
            (c"setrlimit64", rlimit::setrlimit64 as *const ()),
            (c"prlimit", rlimit::prlimit as *const ()),
            (c"prlimit64", rlimit::prlimit64 as *const ()),
            (c"mlockall", rlimit::mlockall as *const ()),
            (c"vfork", vfork::vfork as *const ()),
            (c"__vfork", vfork::__vfork as *const ()),
            (c"__register_atfork", fork::__register_atfork as *const ()),
            (c"unshare", alone::unshare as *const ()),
            (c"setns", alone::setns as *const ()),
            (c"prctl", alone::prctl as *const ()),
            (c"syscall", alone::syscall as *const ()),
            (c"setuid", identity::setuid as *const ()),
            (c"seteuid", identity::seteuid as *const ()),
            (c"setreuid", identity::setreuid as *const ()),
            (c"setresuid", identity::setresuid as *const ()),
            (c"setgid", identity::setgid as *const ()),
            (c"setegid", identity::setegid as *const ()),
            (c"setregid", identity::setregid as *const ()),
            (c"setresgid", identity::setresgid as *const ()),
            (c"setgroups", identity::setgroups as *const ()),
            (c"initgroups", identity::initgroups as *const ()),
            (c"capset", identity::capset as *const ()),
        ];
        // SAFETY: each does what glibc's does, and gives glibc's objects back to it.
        let done = Module::named(LIBC).is_some_and(|libc| unsafe { libc.redirect(&functions) });
        DONE.store(done, Relaxed);
    });
    DONE.load(Relaxed)
}
