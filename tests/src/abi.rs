//! Compile the C and C++ programs of `tests/abi` and run them in every mode.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::job::{Finished, Job};
use crate::subject::{ALL_MODES, subject};

/// One source file of `tests/abi` with what its compilation needs.
pub struct Source<'a> {
    /// File name in `tests/abi`, or a path from there, ending in `.c` or `.cc`.
    pub file: &'a str,
    /// Further arguments of the compiler.
    pub flags: &'a [&'a str],
}

/// A program of `tests/abi`, compiled.
pub struct Program {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

/// The folder with the C and C++ programs.
pub fn abi_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("abi")
}

/// Compiles one file of `tests/abi` to `output`; fails the test with the compiler's words.
pub fn compile(source: &Source<'_>, output: &Path) {
    let is_cpp = source.file.ends_with(".cc");
    let (compiler, standard) = if is_cpp { ("g++", "-std=c++17") } else { ("cc", "-std=gnu11") };
    // Without -fno-builtin a compiler may delete a pair of malloc and free, or merge calls.
    let result = Command::new(compiler)
        .args([standard, "-O1", "-g", "-fno-builtin", "-fno-omit-frame-pointer"])
        .args(["-Wall", "-Wextra", "-Wno-unused-parameter", "-pthread", "-D_GNU_SOURCE"])
        .arg("-o")
        .arg(output)
        .arg(abi_dir().join(source.file))
        .args(source.flags)
        .arg("-ldl")
        .output()
        .unwrap_or_else(|e| panic!("install {compiler}: make setup ({e})"));
    assert!(
        result.status.success(),
        "{compiler} {}:\n{}",
        source.file,
        String::from_utf8_lossy(&result.stderr)
    );
}

/// A file's name without folder and ending: that of what is compiled from it.
fn stem<'a>(source: &Source<'a>) -> &'a OsStr {
    Path::new(source.file).file_stem().expect("a file name")
}

impl Program {
    /// Compiles a program that needs nothing special.
    pub fn new(file: &str) -> Self {
        Self::with(&Source { file, flags: &[] })
    }

    /// Compiles a program with further flags.
    pub fn with(source: &Source<'_>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(stem(source));
        compile(source, &path);
        Self { path, _folder: folder }
    }

    /// Compiles a program and, beside it, shared libraries that it opens or links, each named
    /// `lib<stem>.so` and built before the program. `-L` and an rpath to the folder are given to the program.
    pub fn with_libraries(source: &Source<'_>, libraries: &[Source<'_>]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for library in libraries {
            let name = format!("lib{}.so", stem(library).display());
            let mut flags = library.flags.to_vec();
            flags.extend(["-shared", "-fPIC"]);
            let file = library.file;
            compile(&Source { file, flags: &flags }, &folder.path().join(name));
        }
        let search = format!("-L{}", folder.path().display());
        let rpath = format!("-Wl,-rpath,{}", folder.path().display());
        let mut flags = vec![search.as_str(), rpath.as_str()];
        flags.extend(source.flags);
        let path = folder.path().join(stem(source));
        compile(&Source { file: source.file, flags: &flags }, &path);
        Self { path, _folder: folder }
    }

    /// Where the compiled program lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the compiled program and its libraries.
    pub fn folder(&self) -> &Path {
        self.path.parent().expect("a folder")
    }

    /// Runs the program in every mode; fails once, after all modes, with every failure.
    #[track_caller]
    pub fn run_in_all_modes(&self) -> Vec<Finished> {
        self.run_each(ALL_MODES, |job| job)
    }

    /// Runs the program in the given modes, each run prepared by `prepare`.
    #[track_caller]
    pub fn run_each(&self, modes: &[&str], prepare: impl Fn(Job) -> Job) -> Vec<Finished> {
        let mut failures = Vec::new();
        let mut good = Vec::new();
        for mode in subject().modes(modes) {
            let job = subject().job(&self.path, mode).env("SPANDREL_VERBOSE", "1");
            let done = prepare(job.dir(self.folder())).run();
            if !done.ok() {
                failures.push(format!("=== mode {mode}: {done}"));
            } else if subject().is_spandrel() && !says_loaded(&done.library_lines(), mode) {
                failures.push(format!("=== mode {mode}: the library does not say it: {done}"));
            } else {
                good.push(done);
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        good
    }
}

/// True if one of the library's lines says that it was loaded in `mode`.
pub fn says_loaded(lines: &[String], mode: &str) -> bool {
    // A mode may be shown with its settings spelled out, so its first word decides.
    let word = mode.split(['=', ',']).next().unwrap_or(mode);
    lines.iter().any(|l| l.contains(" loaded into ") && l.contains(&format!(": mode {word}")))
}
