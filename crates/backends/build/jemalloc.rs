//! jemalloc: takes the static library that its sys crate has built.

use std::path::PathBuf;

use crate::rewrite::{self, Member, Plan};

/// What becomes of the functions that give jemalloc memory or tell it of a fork.
const HOOKS: [(&str, &str); 10] = [
    ("clock_gettime", "spandrel_je_hook_clock_gettime"),
    ("mmap", "spandrel_je_hook_mmap"),
    ("mmap64", "spandrel_je_hook_mmap"),
    ("munmap", "spandrel_je_hook_munmap"),
    ("madvise", "spandrel_je_hook_madvise"),
    ("mprotect", "spandrel_je_hook_mprotect"),
    ("mremap", "spandrel_je_hook_mremap"),
    ("sbrk", "spandrel_je_hook_sbrk"),
    ("pthread_atfork", "spandrel_je_hook_pthread_atfork"),
    ("__register_atfork", "spandrel_je_hook_register_atfork"),
];

/// What the Rust side declares, so that a version without it fails here and not at the last link.
const REQUIRED: [&str; 14] = [
    "spandrel_je_malloc",
    "spandrel_je_calloc",
    "spandrel_je_realloc",
    "spandrel_je_free",
    "spandrel_je_memalign",
    "spandrel_je_posix_memalign",
    "spandrel_je_aligned_alloc",
    "spandrel_je_malloc_usable_size",
    "spandrel_je_mallocx",
    "spandrel_je_rallocx",
    "spandrel_je_xallocx",
    "spandrel_je_sdallocx",
    "spandrel_je_mallctl",
    "spandrel_je_malloc_conf",
];

/// The objects of jemalloc, ours alone.
pub fn members() -> Result<Vec<Member>, String> {
    let path = library()?;
    println!("cargo::rerun-if-changed={}", path.display());
    let archive =
        std::fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let members =
        rewrite::archive_members(&archive).map_err(|e| format!("{}: {e}", path.display()))?;
    let rewritten = rewrite::rewrite(
        members,
        &Plan {
            rename: &new_name,
            hooks: &HOOKS,
            forbidden: &crate::FORBIDDEN,
            required: &REQUIRED,
        },
    )
    .map_err(|e| format!("{}: {e}", path.display()))?;
    if rewritten.undefined.contains("__tls_get_addr") {
        println!(
            "cargo::warning=some crate enables tikv-jemalloc-sys/disable_initial_exec_tls: the \
             hosted jemalloc then reaches its thread state through __tls_get_addr, which is \
             slower and may allocate"
        );
    }
    Ok(rewritten.members)
}

/// `_rjem_malloc`, or `malloc` where another crate asked the sys crate for unprefixed names.
fn new_name(old: &str) -> String {
    format!("spandrel_je_{}", old.strip_prefix("_rjem_").unwrap_or(old))
}

fn library() -> Result<PathBuf, String> {
    let root = std::env::var_os("DEP_JEMALLOC_ROOT").ok_or(
        "tikv-jemalloc-sys has not said where its library is (it does not when JEMALLOC_OVERRIDE \
         is set); unset JEMALLOC_OVERRIDE or build without the feature `jemalloc`",
    )?;
    Ok(PathBuf::from(root).join("lib").join("libjemalloc_pic.a"))
}
