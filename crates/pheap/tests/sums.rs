//! Sums of pages: what finds damage in what a program has stored, and what becomes of the file with the sums.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::PathBuf;

use spandrel_pheap::collections::HashMap;
use spandrel_pheap::{
    Choice, Error, Finding, Heap, Kind, Media, Options, Standing, Survey, Verified, check, repair,
};

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
        (0..500).for_each(|key| assert!(map.insert(key, key).unwrap().is_none()));
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

    fn names(&self) -> Vec<String> {
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Every page agrees with its sum.
    fn assert_sound(&self) {
        let (survey, found) = self.check();
        let state = (survey.sums, survey.pages, survey.damaged);
        assert_eq!(state, (Standing::Compared, 0, 0), "{:?}", found.first());
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

#[test]
fn a_bit_that_flips_anywhere_in_the_file_is_found() {
    let place = Place::new();
    place.filled();
    // The tie to the log, with sums of its own, and the line of a request for a copy, which means nothing in a closed heap.
    let except = [638_976, 643_072, 647_168].map(|at| at / PAGE);
    let bytes = fs::metadata(place.file("heap")).unwrap().len();
    for at in (0..bytes).step_by(2579).filter(|at| !except.contains(&(at / PAGE))) {
        place.flip("heap", at);
        let medium = Options::new().compare_sums().copy_medium(place.path()).ok();
        let mut found = Vec::new();
        let seen = medium.map(|medium| check(&medium, &[], &mut |finding| found.push(*finding)));
        found.retain(|finding| finding.kind == Kind::Page);
        // Both copies of nothing are hit here: the heap is always one that can be looked at.
        let survey = seen.unwrap().unwrap();
        assert_eq!((survey.pages, found.len()), (1, 1), "{at:#x}");
        assert_eq!(found[0].at, at / PAGE * PAGE);
        place.flip("heap", at);
    }
    place.assert_sound();
}

#[test]
fn damage_of_the_sums_accuses_no_page() {
    let place = Place::new();
    place.filled();
    let bytes = fs::metadata(place.file("heap.sum")).unwrap().len();
    assert_eq!(bytes, 4096 + fs::metadata(place.file("heap")).unwrap().len() / PAGE * 8);
    let lines = (0..72).chain(2048..2120);
    for at in lines.chain((4096..bytes).step_by(7)) {
        place.flip("heap.sum", at);
        let (survey, found) = place.check();
        assert_eq!(survey.damaged, 0);
        if at < 4096 {
            assert!(matches!(survey.sums, Standing::Compared | Standing::Stale), "{at}");
            assert_eq!(found, [], "{at}");
        } else {
            let of = (at - 4096) / 8 * PAGE;
            for finding in &found {
                assert_eq!(finding.at, of);
                assert!(finding.what.starts_with("a damaged sum"), "{finding}");
            }
        }
        place.flip("heap.sum", at);
    }
    // Both lines.
    place.flip("heap.sum", 9);
    place.flip("heap.sum", 2057);
    assert_eq!((place.check().0.sums, place.check().1), (Standing::Foreign, vec![]));
}

#[test]
fn of_a_heap_that_was_not_closed_the_log_tells_what_was_written_since() {
    let place = Place::new();
    let at = place.filled() as u64;
    let (heap, _) = place.options().open(place.path()).unwrap();
    let object = heap.get_root(3).unwrap().unwrap();
    // SAFETY: the second page of an object of four.
    unsafe { object.as_ptr().add(4096).write_bytes(9, 4096) };
    heap.checkpoint().unwrap();
    // SAFETY: the third page, of which no checkpoint has this.
    unsafe { object.as_ptr().add(8192).write_bytes(9, 4096) };
    // Another process has it.
    let (survey, found) = place.check();
    assert_eq!((survey.sums, survey.pages, found.len()), (Standing::Busy, 0, 0));
    heap.abandon();
    place.assert_sound();
    // Of the last page, and of one that the log has: recovery writes that one anew.
    place.flip("heap", at + 13_000);
    place.flip("heap", at + 5000);
    let (survey, found) = place.check();
    assert_eq!(
        (survey.sums, survey.pages, found[0].at),
        (Standing::Compared, 1, (at + 13_000) / PAGE * PAGE)
    );
    place.flip("heap", at + 13_000);
    let (heap, opened) = place.options().open(place.path()).unwrap();
    assert!(!opened.was_clean);
    let verified = heap.verify_sums(&mut |finding| panic!("{finding}")).unwrap();
    assert_eq!(verified, Verified { standing: Standing::Compared, pages: 0 });
    heap.close().unwrap();
    place.assert_sound();
}

#[test]
fn sums_are_kept_up_without_the_option_and_removed_by_it() {
    let place = Place::new();
    place.filled();
    let mode = fs::metadata(place.file("heap.sum")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for byte in 1..5 {
        let (heap, _) = place.options().open(place.path()).unwrap();
        place.store(&heap, byte);
        heap.checkpoint().unwrap();
        place.store(&heap, byte);
        if byte % 2 == 0 {
            heap.close().unwrap()
        } else {
            heap.abandon()
        }
        place.assert_sound();
    }
    let (heap, _) = place.options().sums(false).open(place.path()).unwrap();
    assert_eq!(place.names(), ["heap", "heap.wal"]);
    assert_eq!(heap.verify_sums(&mut |_| ()).unwrap().standing, Standing::Absent);
    heap.close().unwrap();
    assert_eq!(place.check().0.sums, Standing::Absent);
    // And again, of a heap that holds something.
    place.options().sums(true).open(place.path()).unwrap().0.close().unwrap();
    place.assert_sound();
}

#[test]
fn a_heap_with_sums_grows_and_shrinks() {
    let place = Place::new();
    place.filled();
    let (heap, _) = place.options().open(place.path()).unwrap();
    let object = heap.alloc(150 << 20).unwrap();
    // SAFETY: within the object: pages of several rows of sums.
    unsafe { (0..30).for_each(|part| object.as_ptr().add(part * 5_000_003).write(7)) };
    heap.set_root(4, Some(object)).unwrap();
    heap.checkpoint().unwrap();
    assert_eq!(heap.verify_sums(&mut |found| panic!("{found}")).unwrap().pages, 0);
    // SAFETY: the heap's own object.
    unsafe { heap.free(object).unwrap() };
    heap.set_root(4, None).unwrap();
    heap.close().unwrap();
    place.assert_sound();
    let shrunk = place.options().shrink(place.path()).unwrap();
    assert!(shrunk.to < shrunk.from);
    place.assert_sound();
    let (heap, _) = place.options().open(place.path()).unwrap();
    let sums = fs::metadata(place.file("heap.sum")).unwrap().len();
    assert_eq!(sums, 4096 + shrunk.to / PAGE * 8);
    heap.set_root(4, Some(heap.alloc(90 << 20).unwrap())).unwrap();
    heap.checkpoint().unwrap();
    heap.abandon();
    place.assert_sound();
    place.options().open(place.path()).unwrap().0.close().unwrap();
    place.assert_sound();
}

#[test]
fn the_sums_of_another_state_are_not_believed() {
    let place = Place::new();
    place.filled();
    let backup = fs::read(place.file("heap")).unwrap();
    let (heap, _) = place.options().open(place.path()).unwrap();
    place.store(&heap, 8);
    heap.close().unwrap();
    place.assert_sound();
    // A backup that is put back beside sums of later.
    fs::write(place.file("heap"), &backup).unwrap();
    let (survey, found) = place.check();
    assert_eq!((survey.sums, found), (Standing::Stale, vec![]));
    let stale = fs::read(place.file("heap.sum")).unwrap();
    let (heap, _) = place.options().open(place.path()).unwrap();
    place.store(&heap, 9);
    heap.close().unwrap();
    assert_eq!(place.check().0.sums, Standing::Stale);
    assert!(fs::read(place.file("heap.sum")).unwrap() == stale, "left as it is");
    place.options().sums(true).open(place.path()).unwrap().0.close().unwrap();
    place.assert_sound();
    // Mapped once, it changes without them.
    let options = place.options().medium(Choice::Mapped);
    let (heap, _) = options.open(place.path()).unwrap();
    place.store(&heap, 10);
    heap.close().unwrap();
    let (survey, found) = place.check();
    assert_eq!((survey.sums, found), (Standing::Stale, vec![]));
}

#[test]
fn a_file_that_is_not_the_heaps_sums_is_left_alone() {
    let (place, other) = (Place::new(), Place::new());
    place.filled();
    other.filled();
    let sums = place.file("heap.sum");
    let foreign = [b"a text".to_vec(), fs::read(other.file("heap.sum")).unwrap(), vec![0; 9000]];
    for bytes in foreign {
        fs::write(&sums, &bytes).unwrap();
        let refused = place.options().sums(true).open(place.path()).err();
        assert_eq!(refused, Some(Error::ForeignSums));
        for options in [place.options(), place.options().sums(false), place.options().accept_sums()]
        {
            let (heap, _) = options.open(place.path()).unwrap();
            place.store(&heap, 1);
            heap.close().unwrap();
            assert_eq!((place.check().0.sums, place.check().1), (Standing::Foreign, vec![]));
        }
        assert!(fs::read(&sums).unwrap() == bytes);
    }
    let why = spandrel_pheap::OpenError::new(place.path(), Error::ForeignSums).to_string();
    assert!(why.starts_with(sums.to_str().unwrap()), "{why}");
    fs::remove_file(&sums).unwrap();
    symlink(other.file("heap.sum"), &sums).unwrap();
    let before = fs::read(other.file("heap.sum")).unwrap();
    assert_eq!(place.options().sums(true).open(place.path()).err(), Some(Error::ForeignSums));
    place.options().open(place.path()).unwrap().0.close().unwrap();
    assert!(fs::read(other.file("heap.sum")).unwrap() == before);
    fs::remove_file(&sums).unwrap();
    fs::create_dir(&sums).unwrap();
    assert_eq!(place.options().sums(true).open(place.path()).err(), Some(Error::ForeignSums));
    // An empty file is in nothing's way; and a new heap takes no file that holds something.
    fs::remove_dir(&sums).unwrap();
    fs::write(&sums, b"").unwrap();
    place.options().sums(true).open(place.path()).unwrap().0.close().unwrap();
    place.assert_sound();
    fs::remove_file(place.file("heap")).unwrap();
    let refused = place.options().sums(true).create(place.path());
    assert_eq!(refused.err(), Some(Error::ForeignSums));
    assert_eq!(place.names(), ["heap.sum"]);
}

#[test]
fn a_mapped_heap_has_no_sums() {
    let place = Place::new();
    let options = place.options().medium(Choice::Mapped);
    assert_eq!(options.sums(true).create(place.path()).err(), Some(Error::MappedSums));
    assert_eq!(place.names(), Vec::<String>::new());
    options.create(place.path()).unwrap().close().unwrap();
    assert_eq!(options.sums(true).open(place.path()).err(), Some(Error::MappedSums));
    let memory = Place(tempfile::tempdir_in("/dev/shm").unwrap());
    let refused = Options::new().size(1 << 20).sums(true).create(memory.path());
    assert_eq!(refused.err(), Some(Error::MappedSums));
    assert_eq!(memory.names(), Vec::<String>::new());
    // With a log it has some, there as elsewhere.
    memory.filled();
    memory.assert_sound();
}

#[test]
fn no_repair_and_no_store_makes_a_page_that_was_found_damaged_a_sound_one() {
    let place = Place::new();
    let at = place.filled() as u64;
    place.flip("heap", at + 5000);
    // One of the names of roots, which a repair puts right.
    place.flip("heap", 589_824 + 8192 + 64 * 2);
    assert_eq!(place.check().0.pages, 2);
    let medium = place.options().open_medium(place.path()).unwrap();
    repair(&medium, &mut |_| ()).unwrap();
    drop(medium);
    let is_found = |offset: u64| {
        let (survey, found) = place.check();
        assert_eq!(survey.sums, Standing::Compared);
        found.iter().any(|finding| finding.at == (at + offset) / PAGE * PAGE)
    };
    assert!(is_found(5000));
    // The program finds it as well, and writes to the page.
    place.flip("heap", at + 9000);
    let (heap, _) = place.options().open(place.path()).unwrap();
    let mut seen = Vec::new();
    let verified = heap.verify_sums(&mut |finding| seen.push(finding.at)).unwrap();
    assert_eq!((verified.standing, verified.pages, seen.len()), (Standing::Compared, 2, 2));
    let object = heap.get_root(3).unwrap().unwrap();
    // SAFETY: an object of four pages.
    unsafe { object.as_ptr().write_bytes(1, 16384) };
    heap.checkpoint().unwrap();
    assert_eq!(heap.verify_sums(&mut |_| ()).unwrap().pages, 2);
    heap.close().unwrap();
    assert!(is_found(5000) && is_found(9000) && !is_found(13_000));
    // Until the user says that it is right.
    place.options().accept_sums().open(place.path()).unwrap().0.close().unwrap();
    place.assert_sound();
    // Of a heap without sums that makes none.
    place.options().sums(false).open(place.path()).unwrap().0.close().unwrap();
    place.options().accept_sums().open(place.path()).unwrap().0.close().unwrap();
    assert_eq!(place.names(), ["heap"]);
}

#[test]
fn a_page_that_was_found_damaged_and_is_whole_again_is_a_page_like_any_other() {
    let place = Place::new();
    let at = place.filled() as u64;
    let verify = || {
        let (heap, _) = place.options().open(place.path()).unwrap();
        let verified = heap.verify_sums(&mut |_| ()).unwrap();
        heap.close().unwrap();
        verified.pages
    };
    place.flip("heap", at + 5000);
    assert_eq!(verify(), 1);
    place.flip("heap", at + 5000);
    assert_eq!(verify(), 0);
    // What the program stores there from now on is no damage.
    let (heap, _) = place.options().open(place.path()).unwrap();
    let object = heap.get_root(3).unwrap().unwrap();
    // SAFETY: the object of four pages, which no other thread has.
    unsafe { object.as_ptr().add(5000).write(99) };
    heap.close().unwrap();
    assert_eq!(verify(), 0);
    place.assert_sound();
}

#[test]
fn a_copy_has_no_sums_unless_it_gets_some() {
    let place = Place::new();
    place.filled();
    let to = place.file("copy").to_str().unwrap().to_string();
    Options::new().copy_to(place.path(), &to).unwrap();
    assert_eq!(place.names(), ["copy", "heap", "heap.sum"]);
    // The sums of the heap are not those of its copy.
    fs::copy(place.file("heap.sum"), place.file("copy.sum")).unwrap();
    let medium = Options::new().compare_sums().copy_medium(&to).unwrap();
    assert_eq!(check(&medium, &[], &mut |_| ()).unwrap().sums, Standing::Stale);
    place.options().sums(true).open(&to).unwrap().0.close().unwrap();
    let medium = Options::new().compare_sums().copy_medium(&to).unwrap();
    let survey = check(&medium, &[], &mut |_| ()).unwrap();
    assert_eq!((survey.sums, survey.pages), (Standing::Compared, 0));
}

#[test]
fn a_log_that_is_given_up_gives_the_sums_up() {
    let place = Place::new();
    place.filled();
    let (heap, _) = place.options().open(place.path()).unwrap();
    place.store(&heap, 3);
    heap.checkpoint().unwrap();
    heap.abandon();
    fs::remove_file(place.file("heap.wal")).unwrap();
    assert!(place.options().open(place.path()).is_err());
    place.options().forget_log().open(place.path()).unwrap().0.close().unwrap();
    let (survey, found) = place.check();
    assert_eq!((survey.sums, found), (Standing::Stale, vec![]));
}
