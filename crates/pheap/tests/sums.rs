//! Sums of pages: what finds damage in what a program has stored, and what becomes of the file with the sums.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use spandrel_pheap::collections::HashMap;
use spandrel_pheap::{Choice, Error, Finding, Heap, Kind, Media, Options, Standing, Survey, check};

const PAGE: u64 = 4096;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn path(&self) -> String {
        self.file("heap").to_str().unwrap().to_string()
    }

    fn options(&self) -> Options<'static> {
        Options::new().size(1 << 20).limit(1 << 30).medium(Choice::Logged)
    }

    /// A heap with sums, of which a root leads to an object of four pages; closed. The offset of the object.
    fn filled(&self) -> usize {
        let heap = self.options().sums(true).create(self.path()).unwrap();
        let mut map = HashMap::<u64, u64>::open(&heap, "map").unwrap();
        (0..500).for_each(|key| drop(map.insert(key, key).unwrap()));
        let at = self.store(&heap, 7);
        drop(map);
        heap.close().unwrap();
        at
    }

    fn store(&self, heap: &Heap<Media>, byte: u8) -> usize {
        let object = heap.alloc_zeroed(16384).unwrap();
        // SAFETY: an object of that size, which no other thread has.
        unsafe { object.as_ptr().write_bytes(byte, 16384) };
        heap.set_root(3, Some(object)).unwrap();
        heap.pointer::<u8>(object).offset().unwrap()
    }

    fn flip(&self, name: &str, at: u64) {
        let file = OpenOptions::new().read(true).write(true).open(self.file(name)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << (at % 8)], at).unwrap();
    }

    fn check(&self) -> (Survey, Vec<Finding>) {
        let medium = Options::new().compare_sums().copy_medium(self.path()).unwrap();
        let mut found = Vec::new();
        let survey = check(&medium, &[], &mut |finding| found.push(*finding)).unwrap();
        found.retain(|finding| finding.kind == Kind::Page);
        (survey, found)
    }
}

#[test]
fn a_bit_that_flips_in_an_object_is_found() {
    let place = Place::new();
    let at = place.filled() as u64;
    let (survey, found) = place.check();
    assert_eq!(
        (survey.sums, survey.pages, survey.damaged),
        (Standing::Compared, 0, 0),
        "{found:?}"
    );
    place.flip("heap", at + 5000);
    let (survey, found) = place.check();
    assert_eq!((survey.pages, survey.damaged, found.len()), (1, 0, 1));
    assert_eq!(found[0].at, (at + 5000) / PAGE * PAGE);
    let on = found[0].objects.unwrap();
    assert_eq!((on.at, on.bytes, on.root), (at, 16384, Some(3)));
}
