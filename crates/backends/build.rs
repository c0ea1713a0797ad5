//! Builds the hosted allocators.
//!
//! A hosted allocator comes from its own sys crate and is linked a second time, under names that
//! only this crate knows, with its memory coming from our slices: see `build/rewrite.rs`. No Rust
//! code refers to the sys crates, so the copies that they build for themselves are not linked, and
//! a program that uses one of them as its own allocator keeps that copy to itself.
//!
//! Without the features `jemalloc`, `mimalloc` and `tcmalloc` there is nothing to do and no C is
//! compiled.

#[cfg(feature = "jemalloc")]
#[path = "build/jemalloc.rs"]
mod jemalloc;
#[cfg(feature = "mimalloc")]
#[path = "build/mimalloc.rs"]
mod mimalloc;
#[cfg(feature = "tcmalloc")]
#[path = "build/prune.rs"]
mod prune;
#[cfg(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc"))]
#[path = "build/rewrite.rs"]
mod rewrite;
#[cfg(feature = "tcmalloc")]
#[path = "build/tcmalloc.rs"]
mod tcmalloc;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    if let Err(message) = run() {
        println!("cargo::error={message}");
        std::process::exit(1);
    }
}

#[cfg(not(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc")))]
fn run() -> Result<(), String> {
    Ok(())
}

#[cfg(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc"))]
fn run() -> Result<(), String> {
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let width = std::env::var("CARGO_CFG_TARGET_POINTER_WIDTH").unwrap_or_default();
    if os != "linux" || width != "64" {
        return Err(format!(
            "allocators can be hosted on 64-bit Linux only, not on {os} with {width}-bit pointers; \
             build without the features `jemalloc`, `mimalloc` and `tcmalloc`"
        ));
    }
    #[cfg(feature = "jemalloc")]
    pack("spandrel_je", &jemalloc::members()?)?;
    #[cfg(feature = "mimalloc")]
    pack("spandrel_mi", &mimalloc::members()?)?;
    #[cfg(feature = "tcmalloc")]
    pack("spandrel_tc", &tcmalloc::members()?)?;
    Ok(())
}

/// Calls that would take memory from elsewhere than the allocator's slice.
#[cfg(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc"))]
const FORBIDDEN: [(&str, &str); 11] = {
    const MAPS: &str = "it changes mappings and has no hook";
    const ALLOCATES: &str = "it would allocate from another allocator";
    [
        ("brk", MAPS),
        ("__mmap", MAPS),
        ("__munmap", MAPS),
        ("posix_madvise", MAPS),
        ("shmat", MAPS),
        ("malloc", ALLOCATES),
        ("calloc", ALLOCATES),
        ("realloc", ALLOCATES),
        ("memalign", ALLOCATES),
        ("posix_memalign", ALLOCATES),
        ("aligned_alloc", ALLOCATES),
    ]
};

/// Puts the objects into a static library that becomes part of this crate's rlib.
#[cfg(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc"))]
fn pack(library: &str, members: &[rewrite::Member]) -> Result<(), String> {
    let out = std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    let dir = std::path::PathBuf::from(out).join(library);
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut build = cc::Build::new();
    for (index, member) in members.iter().enumerate() {
        // Members of an archive may share a name; files of a directory may not.
        let path = dir.join(format!("{index:03}-{}", member.name));
        std::fs::write(&path, &member.data).map_err(|e| format!("{}: {e}", path.display()))?;
        build.object(path);
    }
    build.try_compile(library).map_err(|e| format!("cannot pack lib{library}.a: {e}"))
}
