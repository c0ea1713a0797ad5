//! What the shared library exports, needs and is.

use std::collections::BTreeSet;
use std::process::Command;

use spandrel_tests::{installed, subject};

/// The C interface. Nothing else but the operators and `spandrel_*` may be exported.
const C_INTERFACE: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "free_sized",
    "free_aligned_sized",
    "cfree",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
    "malloc_trim",
    "mallinfo",
    "mallinfo2",
    "malloc_info",
    "malloc_stats",
    "mallopt",
    // Fork handlers of others must find the allocator unlocked: their order is the library's business.
    "__register_atfork",
    // What is opened or looked up later is to find the interface in the C library as well.
    "dlopen",
    "dlmopen",
    // A limit of the address space counts what is reserved, which is released then.
    "setrlimit",
    "setrlimit64",
    "prlimit",
    "prlimit64",
    // What is open and not used would be resident when all memory is locked: it is closed before.
    "mlockall",
    // What the kernel gives to a process of one thread only, and filters of system calls: the thread beside the program ends before.
    "unshare",
    "setns",
    "prctl",
    "syscall",
    // Another identity: the same.
    "setuid",
    "seteuid",
    "setreuid",
    "setresuid",
    "setgid",
    "setegid",
    "setregid",
    "setresgid",
    "setgroups",
    "initgroups",
    "capset",
    // The child of a vfork runs on the parent's thread slot.
    "vfork",
    "__vfork",
];

/// `operator new` and `delete`: plain and array, aligned, nothrow, sized.
const OPERATORS: &[&str] = &[
    "_Znwm",
    "_Znam",
    "_ZnwmRKSt9nothrow_t",
    "_ZnamRKSt9nothrow_t",
    "_ZnwmSt11align_val_t",
    "_ZnamSt11align_val_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "_ZnamSt11align_val_tRKSt9nothrow_t",
    "_ZdlPv",
    "_ZdaPv",
    "_ZdlPvm",
    "_ZdaPvm",
    "_ZdlPvRKSt9nothrow_t",
    "_ZdaPvRKSt9nothrow_t",
    "_ZdlPvSt11align_val_t",
    "_ZdaPvSt11align_val_t",
    "_ZdlPvmSt11align_val_t",
    "_ZdaPvmSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
];

const OF_SPANDREL: &[&str] = &[
    "spandrel_version",
    "spandrel_mode",
    "spandrel_set_mode",
    "spandrel_scope_enter",
    "spandrel_scope_leave",
    "spandrel_malloc_in",
    "spandrel_calloc_in",
    "spandrel_realloc_in",
    "spandrel_aligned_alloc_in",
    "spandrel_owner",
    "spandrel_figure",
    "spandrel_stats",
    "spandrel_stats_print",
    "spandrel_count_requests",
    "spandrel_monitor_start",
    "spandrel_monitor_stop",
    "spandrel_monitor_object",
    "spandrel_monitor_objects",
    // The figures that `spandrel stat` reads in a running process.
    "spandrel_live",
];

fn output_of(tool: &str, arguments: &[&str]) -> String {
    let library = subject().required_library();
    let output = Command::new(installed(tool)).args(arguments).arg(library).output();
    let output = output.unwrap_or_else(|e| panic!("{tool}: {e}"));
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn symbols(which: &str) -> BTreeSet<String> {
    output_of("nm", &["-D", which])
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(|name| name.split('@').next().expect("a name").to_owned())
        .collect()
}

#[test]
fn the_whole_interface_is_exported() {
    let exported = symbols("--defined-only");
    let missing: Vec<_> = C_INTERFACE
        .iter()
        .chain(OPERATORS)
        .chain(OF_SPANDREL)
        .filter(|name| !exported.contains(**name) && !name.starts_with("__"))
        .collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
}

#[test]
fn nothing_else_is_exported() {
    let known: BTreeSet<&str> = C_INTERFACE.iter().chain(OPERATORS).copied().collect();
    let foreign: Vec<String> = symbols("--defined-only")
        .into_iter()
        .filter(|name| !known.contains(name.as_str()) && !name.starts_with("spandrel_"))
        .collect();
    assert!(foreign.is_empty(), "exported beside the interface: {foreign:?}");
    // Hosted allocators are renamed with the project's prefix; their names must stay inside.
    let hosted: Vec<String> = symbols("--defined-only")
        .into_iter()
        .filter(|name| name.starts_with("spandrel_") && !OF_SPANDREL.contains(&name.as_str()))
        .collect();
    let leaked: Vec<_> =
        hosted.iter().filter(|n| ["_je_", "_mi_", "_tc_"].iter().any(|p| n.contains(p))).collect();
    assert!(leaked.is_empty(), "names of hosted allocators are exported: {leaked:?}");
}

/// `__tls_get_addr` may allocate; the C++ runtime must not be forced on C programs.
#[test]
fn what_it_needs() {
    let undefined = symbols("--undefined-only");
    assert!(!undefined.contains("__tls_get_addr"), "thread-local storage is not initial-exec");
    let dynamic = output_of("readelf", &["-dW"]);
    let needed: Vec<&str> = dynamic.lines().filter(|l| l.contains("(NEEDED)")).collect();
    for line in &needed {
        let fine =
            ["[libc.so.6]", "[ld-linux", "[libm.so.6]", "[libpthread.so.0]", "[libgcc_s.so.1]"];
        assert!(fine.iter().any(|name| line.contains(name)), "{line}");
    }
    assert!(!dynamic.contains("TEXTREL"), "text relocations");
    assert!(dynamic.contains("(SONAME)") && dynamic.contains("[libspandrel.so"), "{dynamic}");
    assert!(!dynamic.contains("RPATH") && !dynamic.contains("RUNPATH"), "{dynamic}");
    let headers = output_of("readelf", &["-lW"]);
    let stack = headers.lines().find(|l| l.contains("GNU_STACK")).expect("GNU_STACK");
    assert!(!stack.contains("RWE"), "{stack}");
}
