//! mimalloc: compiles version 3 from the sources that its sys crate carries.
//!
//! The library that the sys crate builds is no use here: another crate may have selected version 2,
//! debug checks or a replacement of `malloc` through the sys crate's features.

use std::path::PathBuf;

use crate::rewrite::{self, Member, Plan};

/// What becomes of the functions that give mimalloc memory.
const HOOKS: [(&str, &str); 10] = [
    ("clock_gettime", "spandrel_mi_hook_clock_gettime"),
    ("mmap", "spandrel_mi_hook_mmap"),
    ("mmap64", "spandrel_mi_hook_mmap"),
    ("munmap", "spandrel_mi_hook_munmap"),
    ("madvise", "spandrel_mi_hook_madvise"),
    ("mprotect", "spandrel_mi_hook_mprotect"),
    ("mremap", "spandrel_mi_hook_mremap"),
    ("sbrk", "spandrel_mi_hook_sbrk"),
    ("pthread_atfork", "spandrel_mi_hook_pthread_atfork"),
    ("__register_atfork", "spandrel_mi_hook_register_atfork"),
];

/// What the Rust side declares, so that a version without it fails here and not at the last link.
const REQUIRED: [&str; 20] = [
    "spandrel_mi_host_start",
    "spandrel_mi_host_fork_prepare",
    "spandrel_mi_host_fork_release",
    "spandrel_mi_malloc",
    "spandrel_mi_zalloc",
    "spandrel_mi_calloc",
    "spandrel_mi_realloc",
    "spandrel_mi_rezalloc",
    "spandrel_mi_free",
    "spandrel_mi_free_size",
    "spandrel_mi_free_size_aligned",
    "spandrel_mi_malloc_aligned",
    "spandrel_mi_zalloc_aligned",
    "spandrel_mi_realloc_aligned",
    "spandrel_mi_expand",
    "spandrel_mi_usable_size",
    "spandrel_mi_good_size",
    "spandrel_mi_collect",
    "spandrel_mi_thread_done",
    "spandrel_mi_option_set",
];

/// The one object of mimalloc, ours alone.
pub fn members() -> Result<Vec<Member>, String> {
    let root = sources()?;
    println!("cargo::rerun-if-changed=build/mimalloc_host.c");
    println!("cargo::rerun-if-changed={}", root.display());
    let prefix = root.display();
    // The same object in every profile and on every day: how fast the program under development
    // allocates should not depend on its own optimisation level.
    let objects = cc::Build::new()
        .file("build/mimalloc_host.c")
        .include(root.join("include"))
        .include(root.join("src"))
        .opt_level(3)
        .debug(false)
        .warnings(false)
        .cargo_warnings(false)
        .pic(true)
        .define("NDEBUG", None)
        .define("MI_DEBUG", "0")
        .define("MI_BUILD_RELEASE", None)
        .define("MI_PRIM_HAS_PROCESS_ATTACH", "1")
        .define("__DATE__", "\"\"")
        .define("__TIME__", "\"\"")
        .flag("-Wno-builtin-macro-redefined")
        .flag(format!("-ffile-prefix-map={prefix}=mimalloc"))
        .flag("-ftls-model=initial-exec")
        .flag("-fvisibility=hidden")
        .flag("-fno-builtin-malloc")
        .flag("-fno-lto")
        .try_compile_intermediates()
        .map_err(|e| format!("cannot compile mimalloc: {e}"))?;

    let mut members = Vec::new();
    for path in objects {
        let data =
            std::fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        members.push(Member { name: "mimalloc.o".into(), data });
    }
    let rewritten = rewrite::rewrite(
        members,
        &Plan {
            rename: &new_name,
            hooks: &HOOKS,
            forbidden: &crate::FORBIDDEN,
            required: &REQUIRED,
        },
    )
    .map_err(|e| format!("mimalloc: {e}"))?;
    Ok(rewritten.members)
}

/// Only `mi_` is taken off: `mi_free` and `_mi_free`, or `mi_x` and a plain `x`, stay apart.
fn new_name(old: &str) -> String {
    match old.strip_prefix("mi_") {
        Some(rest) => format!("spandrel_mi_{rest}"),
        None => format!("spandrel_mi__{old}"),
    }
}

/// The directory of version 3, whichever version the sys crate compiled for itself.
fn sources() -> Result<PathBuf, String> {
    let include = std::env::var_os("DEP_MIMALLOC_INCLUDE_DIR")
        .map(PathBuf::from)
        .ok_or("libmimalloc-sys has not said where its sources are")?;
    let root = include
        .parent()
        .and_then(|version| version.parent())
        .map(|all| all.join("v3"))
        .unwrap_or_default();
    if !root.join("src").join("static.c").is_file() {
        return Err(format!(
            "libmimalloc-sys has no sources of mimalloc 3 beside {}; version 0.1.49 has",
            include.display()
        ));
    }
    Ok(root)
}
