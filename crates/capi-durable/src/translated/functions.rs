//! Functions that translated code does not run itself: this library's, those of the C library that make what belongs to the whole program, and allocators.

use std::ffi::CStr;

use spandrel_os::modules::{LIBC, Module};

use super::{allocator as ours, owner};
#[cfg(feature = "programs")]
use crate::transparent::{allocations as wrapped, clients, early, server, variables};
use crate::{commands, copy, failure, figures, handle, objects, roots, stores};

/// Addresses of functions.
macro_rules! addresses {
    ($($function:path),* $(,)?) => { [$($function as *const () as usize),*] };
}

unsafe extern "C" {
    fn tzset();
}

/// Functions of the C library whose effects are the whole program's: what they allocate is the process's. None of them stores to memory of its caller, but for
/// `getaddrinfo` to a variable, or needs to know it (`dlopen` does).
const OF_THE_PROGRAM: [&CStr; 33] = [
    c"__cxa_at_quick_exit",
    c"__cxa_atexit",
    c"__cxa_thread_atexit_impl",
    c"on_exit",
    c"__register_atfork",
    c"pthread_atfork",
    c"pthread_setspecific",
    c"setlocale",
    c"setenv",
    c"putenv",
    c"unsetenv",
    c"clearenv",
    c"tzset",
    // The buffers of files.
    c"_IO_file_doallocate",
    c"fopen",
    c"fopen64",
    c"fdopen",
    c"opendir",
    c"fdopendir",
    c"fmemopen",
    c"ungetc",
    c"ungetwc",
    // Tables and records that the C library keeps.
    c"newlocale",
    c"duplocale",
    c"strerror",
    c"strsignal",
    c"localtime",
    c"getpwuid",
    c"getpwnam",
    c"getgrgid",
    c"getgrnam",
    c"getaddrinfo",
    c"freeaddrinfo",
];

/// This library's functions, by the names of the C library's for which they stand.
fn allocators() -> [(&'static CStr, usize); 17] {
    let [malloc, calloc, realloc, reallocarray, free] =
        addresses![ours::malloc, ours::calloc, ours::realloc, ours::reallocarray, ours::free];
    let [aligned_alloc, memalign, posix_memalign, valloc, pvalloc] = addresses![
        ours::aligned_alloc,
        ours::memalign,
        ours::posix_memalign,
        ours::valloc,
        ours::pvalloc
    ];
    let [usable, strdup, strndup, wcsdup] =
        addresses![ours::malloc_usable_size, ours::strdup, ours::strndup, ours::wcsdup];
    [
        (c"malloc", malloc),
        (c"calloc", calloc),
        (c"realloc", realloc),
        (c"reallocarray", reallocarray),
        (c"free", free),
        (c"cfree", free),
        (c"aligned_alloc", aligned_alloc),
        (c"memalign", memalign),
        (c"posix_memalign", posix_memalign),
        (c"valloc", valloc),
        (c"pvalloc", pvalloc),
        (c"malloc_usable_size", usable),
        (c"strdup", strdup),
        (c"__strdup", strdup),
        (c"strndup", strndup),
        (c"__strndup", strndup),
        (c"wcsdup", wcsdup),
    ]
}

/// `operator new` and `operator delete`.
const OPERATORS: [&CStr; 20] = [
    c"_Znwm",
    c"_Znam",
    c"_ZnwmRKSt9nothrow_t",
    c"_ZnamRKSt9nothrow_t",
    c"_ZnwmSt11align_val_t",
    c"_ZnamSt11align_val_t",
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
    c"_ZdlPv",
    c"_ZdaPv",
    c"_ZdlPvm",
    c"_ZdaPvm",
    c"_ZdlPvRKSt9nothrow_t",
    c"_ZdaPvRKSt9nothrow_t",
    c"_ZdlPvSt11align_val_t",
    c"_ZdaPvSt11align_val_t",
    c"_ZdlPvmSt11align_val_t",
    c"_ZdaPvmSt11align_val_t",
    c"_ZdlPvSt11align_val_tRKSt9nothrow_t",
    c"_ZdaPvSt11align_val_tRKSt9nothrow_t",
];

/// Calls `see` with each file that defines functions of that name, and the address of each: a program may be bound to any version of it.
fn each_definition(name: &CStr, see: &mut dyn FnMut(&Module, usize)) {
    Module::each(&mut |module| {
        module.each_function(name, &mut |function| see(module, function.as_ptr() as usize));
    });
}

/// What the loader finds under a name: where a program at fixed addresses has taken a function's address, that is in the program.
fn found(name: &CStr) -> Option<usize> {
    // SAFETY: the name is a string.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!function.is_null()).then_some(function as usize)
}

/// What the translator is told of functions.
pub struct Functions {
    pub native: Vec<usize>,
    /// Pairs of which the second one stands for the first.
    pub replaced: Vec<(usize, usize)>,
    /// Those whose calls are remembered.
    pub remembered: Vec<(usize, u32)>,
}

pub fn all() -> Functions {
    // What a later call would make for the whole program.
    // SAFETY: no preconditions.
    unsafe { tzset() };
    let mut native = library();
    let libc = Module::named(LIBC);
    let of_the_program = OF_THE_PROGRAM.iter().filter_map(|name| libc.as_ref()?.function(name));
    native.extend(of_the_program.map(|function| function.as_ptr() as usize));
    let mut replaced = Vec::new();
    for (name, our) in allocators() {
        native.push(our);
        each_definition(name, &mut |_, function| replaced.push((function, our)));
        replaced.extend(found(name).map(|function| (function, our)));
    }
    // An allocator has operators of its own, which do not call its malloc: those of the C++ library do.
    let library = Module::named(c"libstdc++.so.6").or_else(|| Module::named(c"libc++.so.1"));
    for name in OPERATORS {
        let Some(its) = library.as_ref().and_then(|library| library.function(name)) else {
            continue;
        };
        let its = its.as_ptr() as usize;
        each_definition(name, &mut |module, function| {
            let mut has_malloc = false;
            module.each_function(c"malloc", &mut |_| has_malloc = true);
            if function != its && has_malloc {
                replaced.push((function, its));
            }
        });
    }
    replaced.sort_unstable();
    replaced.dedup();
    Functions { native, replaced, remembered: owner::prepare() }
}

/// This library's functions, but for the compiler's hooks and what calls the program.
fn library() -> Vec<usize> {
    let commands = addresses![
        handle::spandrel_durable_open,
        handle::spandrel_durable_close,
        commands::spandrel_durable_read,
        commands::spandrel_durable_write,
        copy::spandrel_durable_copy,
    ];
    let objects = addresses![
        objects::spandrel_durable_malloc,
        objects::spandrel_durable_calloc,
        objects::spandrel_durable_aligned_alloc,
        objects::spandrel_durable_realloc,
        objects::spandrel_durable_free,
        objects::spandrel_durable_usable_size,
        roots::spandrel_durable_root,
        roots::spandrel_durable_set_root,
        roots::spandrel_durable_remove_root,
        stores::spandrel_durable_wrote,
        stores::spandrel_durable_store,
        stores::spandrel_durable_memset,
    ];
    let told = addresses![
        figures::spandrel_durable_get_report,
        figures::spandrel_durable_get_figures,
        figures::spandrel_durable_medium,
        figures::spandrel_durable_base,
        figures::spandrel_durable_bytes,
        figures::spandrel_durable_version,
        failure::spandrel_durable_error_text,
        super::program::spandrel_durable_fix_addresses,
    ];
    #[cfg(not(feature = "programs"))]
    let transparent = [];
    #[cfg(feature = "programs")]
    let transparent = addresses![
        early::spandrel_durable_load,
        variables::spandrel_durable_variable,
        clients::spandrel_durable_start,
        clients::spandrel_durable_command_of,
        clients::spandrel_durable_default,
        server::spandrel_durable_serve,
        wrapped::__wrap_malloc,
        wrapped::__wrap_calloc,
        wrapped::__wrap_realloc,
        wrapped::__wrap_free,
        wrapped::__wrap_aligned_alloc,
        wrapped::__wrap_posix_memalign,
        wrapped::__wrap_strdup,
        wrapped::__wrap_strndup,
    ];
    [&commands[..], &objects, &told, &transparent].concat()
}
