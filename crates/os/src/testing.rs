//! A directory of a test's own.

extern crate std;

use std::ffi::CString;
use std::format;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::string::String;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::vec::Vec;

/// An empty directory, which is removed with its files when this is dropped.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("spandrel-os-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// The path of a file in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The same as a C string.
    pub fn path(&self, name: &str) -> CString {
        CString::new(self.at(name).as_os_str().as_bytes()).unwrap()
    }

    /// The names of its files.
    pub fn names(&self) -> Vec<String> {
        std::fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
