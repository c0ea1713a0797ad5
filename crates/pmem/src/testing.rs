//! A directory with an image, for the tests of media.

use std::ffi::CString;
use std::path::PathBuf;
use std::prelude::v1::*;
use std::time::Duration;

use tempfile::TempDir;

use crate::draft::Draft;
use crate::media::{Choice, Place};
use crate::medium::Failed;
use crate::sums_file::Keep;

pub const IDENTITY: u64 = 7;
pub const LIMIT: usize = 1 << 30;
/// Where the pages lie that tie an image to its log, and the line in which a process asks for a copy.
pub const TIE: usize = 4096;
pub const ASKING: usize = TIE + crate::tie::BYTES;
/// What follows them is the tests' own.
pub const FIRST: usize = ASKING + 4096;

pub struct Directory {
    pub at: TempDir,
    names: [CString; 5],
    pub identity: u64,
    pub base: Option<usize>,
    pub limit: usize,
}

impl Directory {
    pub fn new() -> Self {
        Self::of(tempfile::tempdir().unwrap())
    }

    pub fn of(at: TempDir) -> Self {
        let names = ["image", "image.wal", "image.log", "image.wal.aside", "image.sum"]
            .map(|name| CString::new(at.path().join(name).to_str().unwrap()).unwrap());
        Self { at, names, identity: IDENTITY, base: None, limit: LIMIT }
    }

    pub fn place(&self) -> Place<'_> {
        let [path, log, old_log, aside, sums] = &self.names;
        Place {
            path,
            log,
            old_log,
            aside,
            sums,
            keep: Keep::IfThere,
            compares: false,
            identity: self.identity,
            identity_at: None,
            choice: Choice::Auto,
            insists: false,
            limit: self.limit,
            base: self.base,
            asking: ASKING,
            tie: TIE as u64,
            is_old: false,
            wait: Duration::ZERO,
            forgives: false,
        }
    }

    /// Makes the image, of zeroes.
    pub fn make(&self, bytes: usize) -> Result<(), Failed> {
        Draft::new(bytes).unwrap().publish(&self.place(), 0)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.at.path().join(name)
    }

    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.at.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// The files as they are now, as after a crash of the process.
    pub fn copy(&self) -> Self {
        let copy = Self::new();
        for name in self.names() {
            std::fs::copy(self.path(&name), copy.path(&name)).unwrap();
        }
        copy
    }
}
