//! The library under test and the modes that it is run in.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::job::Job;

/// Every mode that a C program is run in.
pub const ALL_MODES: &[&str] =
    &["native", "sys", "jemalloc", "mimalloc", "mmap", "template=brug", "switch", "auto"];

/// Settings that move objects between allocators early.
pub const RESTLESS_MODES: &[&str] = &[
    "template=0-1KiB:mimalloc,1KiB-32KiB:jemalloc,32KiB-512KiB:sys,512KiB-:mmap",
    "template=0-4KiB:mmap,4KiB-64KiB:native,64KiB-:mimalloc",
    "switch=jemalloc,point=64KiB,threshold=2",
    "switch=mimalloc,point=4KiB,threshold=1",
    "switch=native,point=1KiB,threshold=2",
];
/// How many allocators there are, numbered from 0.
pub const ALLOCATORS: u8 = 6;

/// The modes that the real programs are run in.
pub const REAL_MODES: &[&str] = &["auto", "native", "template=brug", "switch"];

/// Those of them that programs which take long are run in.
pub const MAIN_MODES: &[&str] = &["auto", "native"];

/// What is preloaded.
pub struct Subject {
    library: Option<PathBuf>,
}

/// The subject of this test run; fails the test if it is not built.
pub fn subject() -> &'static Subject {
    static SUBJECT: OnceLock<Subject> = OnceLock::new();
    SUBJECT.get_or_init(|| match std::env::var_os("SPANDREL_TEST_LIB") {
        Some(name) if name == "none" => Subject { library: None },
        Some(name) => Subject { library: Some(must_exist(PathBuf::from(name))) },
        None => Subject { library: Some(must_exist(release_dir().join("libspandrel.so"))) },
    })
}

fn must_exist(path: PathBuf) -> PathBuf {
    assert!(
        path.is_file(),
        "{} is missing: run `make build` (cargo build --release) first, or set SPANDREL_TEST_LIB",
        path.display()
    );
    std::fs::canonicalize(path).expect("a path to the library")
}

/// `release` in the target folder that this test was built into.
pub fn release_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("path of this test");
    let built_into = exe.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file());
    match (built_into, std::env::var_os("CARGO_TARGET_DIR")) {
        (Some(dir), _) => dir.join("release"),
        (None, Some(dir)) => PathBuf::from(dir).join("release"),
        (None, None) => workspace().join("target/release"),
    }
}

/// The root of the checkout.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests has a parent").to_path_buf()
}

/// The command `spandrel`; fails the test if it is not built.
pub fn spandrel_command() -> PathBuf {
    match std::env::var_os("SPANDREL_TEST_BIN") {
        Some(path) => must_exist(PathBuf::from(path)),
        None => must_exist(release_dir().join("spandrel")),
    }
}

impl Subject {
    /// The shared library, unless nothing is preloaded.
    pub fn library(&self) -> Option<&Path> {
        self.library.as_deref()
    }

    /// The shared library, for tests that mean nothing without one.
    pub fn required_library(&self) -> &Path {
        self.library().expect("this test needs a library: unset SPANDREL_TEST_LIB=none")
    }

    /// True unless another allocator, or none, is under test to judge the tests themselves.
    pub fn is_spandrel(&self) -> bool {
        let name = self.library().and_then(|p| p.file_name()).and_then(|n| n.to_str());
        name.is_some_and(|n| n.starts_with("libspandrel"))
    }

    /// The modes to run, of those that a test asks for.
    pub fn modes<'a>(&self, asked: &[&'a str]) -> Vec<&'a str> {
        if !self.is_spandrel() {
            return asked[asked.len() - 1..].to_vec();
        }
        static LIST: OnceLock<Option<String>> = OnceLock::new();
        let list = LIST.get_or_init(|| std::env::var("SPANDREL_TEST_MODES").ok());
        let Some(list) = list else { return asked.to_vec() };
        let wanted = list.split(';').map(str::trim);
        match asked == ALL_MODES {
            // Of an allocator that is not always built in, for example.
            true => wanted.collect(),
            false => wanted.filter(|mode| asked.contains(mode)).collect(),
        }
    }

    /// The environment that puts a program on the library in `mode`.
    pub fn environment(&self, mode: &str) -> Vec<(OsString, OsString)> {
        let mut env: Vec<(OsString, OsString)> = Vec::new();
        if let Some(library) = self.library() {
            env.push(("LD_PRELOAD".into(), library.into()));
        }
        if self.is_spandrel() {
            env.push(("SPANDREL_MODE".into(), mode.into()));
        }
        env
    }

    /// A job on the library in `mode`.
    pub fn job(&self, program: impl AsRef<std::ffi::OsStr>, mode: &str) -> Job {
        Job::new(program).envs(self.environment(mode))
    }
}

/// A program that a test needs and the machine must have.
#[track_caller]
pub fn installed(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|p| p.is_file())
        .unwrap_or_else(|| panic!("install {program}: make setup"))
}
