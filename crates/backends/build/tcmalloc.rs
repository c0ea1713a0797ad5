//! google/tcmalloc: compiles the sources that its sys crate carries.
//!
//! The library that the sys crate builds is no use here: whether it checks itself depends on the
//! profile, it reaches its thread state through `__tls_get_addr`, it needs the C++ runtime, and its
//! per-CPU caches write to a field of the kernel's restartable-sequences area that newer kernels
//! forbid to write.

use std::path::{Path, PathBuf};

use crate::prune::prune;
use crate::rewrite::{self, Member, Plan};

/// Names a directory with tcmalloc's and Abseil's sources, instead of the sys crate's.
const SOURCES: &str = "SPANDREL_TCMALLOC_SOURCES";

/// What becomes of the functions that give tcmalloc memory, and of the choices that a program can
/// make by defining a function: the program's are for its own tcmalloc.
const HOOKS: [(&str, &str); 8] = [
    ("mmap", "spandrel_tc_hook_mmap"),
    ("mmap64", "spandrel_tc_hook_mmap"),
    ("munmap", "spandrel_tc_hook_munmap"),
    ("madvise", "spandrel_tc_hook_madvise"),
    ("mprotect", "spandrel_tc_hook_mprotect"),
    (
        "_ZN8tcmalloc17tcmalloc_internal18default_subreleaseEv",
        "spandrel_tc_choice_default_subrelease",
    ),
    (
        "_ZN8tcmalloc17tcmalloc_internal32default_want_legacy_size_classesEv",
        "spandrel_tc_choice_legacy_size_classes",
    ),
    (
        "default_want_disable_huge_region_more_often",
        "spandrel_tc_choice_disable_huge_region_more_often",
    ),
];

/// Other calls that change mappings or count on running at every fork.
const UNHOOKED: [(&str, &str); 5] = {
    const MAPS: &str = "it changes mappings and has no hook";
    const FORKS: &str = "its handlers would run in an order of their own";
    [
        ("sbrk", MAPS),
        ("mremap", MAPS),
        ("remap_file_pages", MAPS),
        ("pthread_atfork", FORKS),
        ("__register_atfork", FORKS),
    ]
};

/// What the Rust side calls; everything else is kept only if one of these needs it.
const ENTRIES: [&str; 11] = [
    "host_start",
    "host_fork_prepare",
    "host_fork_release",
    "host_malloc",
    "host_calloc",
    "host_memalign",
    "host_realloc",
    "host_free",
    "host_free_sized",
    "host_usable_size",
    "host_trim",
];

/// The one object of tcmalloc, ours alone.
pub fn members() -> Result<Vec<Member>, String> {
    println!("cargo::rerun-if-env-changed={SOURCES}");
    println!("cargo::rerun-if-changed=build/tcmalloc_host.cc");
    let root = sources()?;
    println!("cargo::rerun-if-changed={}", root.display());

    let objects = compile(&root)?;
    let mut members = Vec::new();
    for path in objects {
        let data =
            std::fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let whole = Member { name: "tcmalloc.o".into(), data };
        members.push(prune(&whole, &ENTRIES).map_err(|e| format!("tcmalloc: {e}"))?);
    }

    let required: Vec<String> = ENTRIES.iter().map(|name| new_name(name)).collect();
    let required: Vec<&str> = required.iter().map(String::as_str).collect();
    let forbidden: Vec<_> = crate::FORBIDDEN.into_iter().chain(UNHOOKED).collect();
    let plan =
        Plan { rename: &new_name, hooks: &HOOKS, forbidden: &forbidden, required: &required };
    let rewritten = rewrite::rewrite(members, &plan).map_err(|e| format!("tcmalloc: {e}"))?;

    // A mangled name, or the interface of the C++ ABI library.
    let is_cxx = |name: &&String| name.starts_with("_Z") || name.starts_with("__cxa");
    if let Some(name) = rewritten.undefined.iter().find(is_cxx) {
        return Err(format!(
            "tcmalloc: the objects need `{name}` of a C++ runtime, of which there is none here"
        ));
    }
    // The sys crate turns on libc's feature `std`, and then libc leaves these to the standard
    // library, which the shared library does without.
    for library in ["c", "m", "rt", "pthread"] {
        println!("cargo::rustc-link-lib={library}");
    }
    Ok(rewritten.members)
}

fn compile(root: &Path) -> Result<Vec<PathBuf>, String> {
    cc::Build::new()
        .cpp(true)
        // Only the objects are wanted, and they need no C++ runtime.
        .cpp_link_stdlib(None)
        .file("build/tcmalloc_host.cc")
        .include(root.join("abseil-cpp"))
        .include(root.join("tcmalloc"))
        .std("c++17")
        // As for mimalloc: the same object in every profile.
        .opt_level(3)
        .debug(false)
        .warnings(false)
        .cargo_warnings(false)
        .pic(true)
        .define("NDEBUG", None)
        .define("NOMINMAX", None)
        .define("TCMALLOC_INTERNAL_8K_PAGES", None)
        .define("TCMALLOC_INTERNAL_METHODS_ONLY", None)
        // Caches per thread: those per CPU need a restartable-sequences area of their own, which
        // glibc has already registered for each thread.
        .define("TCMALLOC_DEPRECATED_PERTHREAD", None)
        .define("TCMALLOC_INTERNAL_PERCPU_USE_RSEQ", "0")
        // Learning the frequency of the time-stamp counter takes 3 ms of sleep.
        .define("ABSL_USE_UNSCALED_CYCLECLOCK", "0")
        .flag("-w")
        .flag(format!("-ffile-prefix-map={}=tcmalloc", root.display()))
        .flag("-ftls-model=initial-exec")
        .flag("-fvisibility=hidden")
        .flag("-ffunction-sections")
        .flag("-fdata-sections")
        .flag("-fno-exceptions")
        .flag("-fno-rtti")
        .flag("-fno-threadsafe-statics")
        .flag("-fno-asynchronous-unwind-tables")
        .flag("-fno-unwind-tables")
        .flag("-fno-omit-frame-pointer")
        .flag("-fno-lto")
        // The locks that a fork takes are private members.
        .flag("-fno-access-control")
        .flag_if_supported("-fno-gnu-unique")
        .try_compile_intermediates()
        .map_err(|e| format!("cannot compile tcmalloc: {e}"))
}

/// `host_malloc` becomes `spandrel_tc_malloc`, all else keeps its full name after a prefix.
fn new_name(old: &str) -> String {
    match old.strip_prefix("host_") {
        Some(rest) => format!("spandrel_tc_{rest}"),
        None => format!("spandrel_tc__{old}"),
    }
}

/// The sys crate does not say where its sources are. It has unpacked them into its output
/// directory, beside ours, before this runs.
fn sources() -> Result<PathBuf, String> {
    let holds_them = |root: &Path| root.join("tcmalloc/tcmalloc/tcmalloc.cc").is_file();
    if let Some(root) = std::env::var_os(SOURCES).map(PathBuf::from) {
        return match holds_them(&root) {
            true => Ok(root),
            false => Err(format!("{SOURCES}: no tcmalloc in {}", root.display())),
        };
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    // OUT_DIR is `build/<package>-<hash>/out`, or `build/<package>/<hash>/out`.
    let newest = out
        .ancestors()
        .skip(2)
        .take(2)
        .flat_map(|build| sys_crates(build).unwrap_or_default())
        .map(|found| found.join("out/patched_deps/c_src"))
        .filter(|root| holds_them(root))
        .max_by_key(|root| root.metadata().and_then(|root| root.modified()).ok());
    newest.ok_or_else(|| {
        format!(
            "libtcmalloc-sys has left no sources beside {}; name a directory with them in {SOURCES}",
            out.display()
        )
    })
}

/// What may be a directory of the sys crate's build script.
fn sys_crates(build: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(build)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with("libtcmalloc-sys") {
            continue;
        }
        let below = std::fs::read_dir(entry.path()).into_iter().flatten().flatten();
        found.extend(below.map(|hash| hash.path()));
        found.push(entry.path());
    }
    Ok(found)
}
