//! A directory of a newer version of this library is refused: the error names the version and the way out, and no file is changed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use spandrel::durable::Error;
use spandrel_pheap::replicated::TIE_AT;

use super::{open, places};

/// The version of a state: the second word of its identity, which has a copy behind the tie.
fn make_state_newer(path: &Path) {
    let file = File::options().write(true).open(path.join("state")).unwrap();
    for at in [8, TIE_AT + 8192 + 8] {
        file.write_all_at(&3u64.to_le_bytes(), at).unwrap();
    }
}

/// The version of a log: the last byte of its magic. The rest of the head is as another version may write it.
fn make_log_newer(path: &Path) {
    let file = File::options().write(true).open(path.join("log")).unwrap();
    file.write_all_at(b"SPNDRNG2", 0).unwrap();
    file.write_all_at(&[0xab; 24], 16).unwrap();
}

/// A version may have logs that are not as long as a page is.
fn make_log_newer_and_short(path: &Path) {
    make_log_newer(path);
    File::options().write(true).open(path.join("log")).unwrap().set_len(5000).unwrap();
}

/// What makes a file newer, the error, and words of its text.
type Newer = (fn(&Path), Error, &'static str);

#[test]
fn a_state_or_a_log_of_a_newer_version_is_refused_and_stays_as_it_is() {
    let state = Error::Heap(spandrel::heap::Error::Version(3));
    let log = Error::LogVersion(b'2');
    let newer: [Newer; 3] = [
        (make_state_newer, state, "it has version 3 of the format; this program knows 2"),
        (make_log_newer, log, "the log has version 2 of the format, and this program knows 1"),
        (make_log_newer_and_short, log, "the log has version 2 of the format"),
    ];
    for (_place, path) in places() {
        for is_closed in [true, false] {
            let db = open(&path).unwrap();
            db.write(|s| s.of.insert(1, 2)).unwrap().unwrap();
            let names = ["state", "log"].map(|file| path.join(file));
            let read = || names.each_ref().map(|name| fs::read(name).unwrap());
            // As a kill leaves it, or closed.
            let killed = read();
            db.close().unwrap();
            let good = if is_closed { read() } else { killed };
            let put =
                || names.iter().zip(&good).for_each(|(at, file)| fs::write(at, file).unwrap());
            for (make, why, words) in newer {
                put();
                make(&path);
                let before = read();
                let refused = open(&path).unwrap_err();
                assert_eq!(refused.why, why);
                assert_eq!(refused.why.errno(), libc::ENOTSUP);
                let text = refused.to_string();
                assert!(text.contains(words), "{text}");
                assert!(text.ends_with("; use the version of Spandrel that made it"), "{text}");
                assert!(before == read(), "a refused file was changed");
            }
            put();
            assert_eq!(open(&path).unwrap().read(|s| s.of.get(&1)), Some(2));
        }
    }
}

#[test]
fn bytes_behind_the_log_are_no_damage() {
    for (_place, path) in places() {
        for bytes in [1, 511, 4096, 5000] {
            let db = open(&path).unwrap();
            db.write(|s| s.of.insert(bytes, 2)).unwrap().unwrap();
            let log = fs::read(path.join("log")).unwrap();
            let state = fs::read(path.join("state")).unwrap();
            db.close().unwrap();
            fs::write(path.join("state"), state).unwrap();
            fs::write(path.join("log"), [&log[..], &vec![0; bytes as usize]].concat()).unwrap();
            let db = open(&path).unwrap();
            assert_eq!(db.read(|s| s.of.get(&bytes)), Some(2));
            db.close().unwrap();
        }
    }
}
