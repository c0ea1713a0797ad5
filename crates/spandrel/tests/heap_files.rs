//! Heaps in files as a new user meets them: any kind of path, opened or made in one call, errors that say it all.
#![cfg(all(feature = "heap", feature = "std"))]

use spandrel::heap::collections::HashMap;
use spandrel::heap::{self, Error, Heap, OpenError, Options};
use std::borrow::Cow;
use std::ffi::{CString, OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const OPTIONS: Options = Options::new().size(1 << 20);

#[test]
fn any_kind_of_path_is_one() {
    let place = tempfile::tempdir().unwrap();
    let path: PathBuf = place.path().join("a.heap");
    let text = path.to_str().unwrap();
    OPTIONS.create(&path).unwrap().close().unwrap();
    let open = |opened: Result<(Heap, heap::Opened), OpenError>| {
        let (heap, opened) = opened.unwrap();
        assert!(opened.was_clean && !opened.created);
        heap.close().unwrap();
    };
    open(OPTIONS.open(text));
    let owned = text.to_string();
    open(OPTIONS.open(&owned));
    open(OPTIONS.open(owned));
    open(OPTIONS.open(text.as_bytes()));
    open(OPTIONS.open(text.as_bytes().to_vec()));
    open(OPTIONS.open(CString::new(text).unwrap()));
    open(OPTIONS.open(CString::new(text).unwrap().as_c_str()));
    open(OPTIONS.open(path.as_path()));
    open(OPTIONS.open(path.clone()));
    open(OPTIONS.open(OsStr::new(text)));
    open(OPTIONS.open(OsString::from(text)));
    open(OPTIONS.open(Cow::Borrowed(path.as_path())));
    open(OPTIONS.open(Arc::<Path>::from(path.as_path())));
    open(OPTIONS.open(path.clone().into_boxed_path()));
    heap::copy(&path).unwrap();
}

#[test]
fn a_heap_is_opened_or_made_in_one_call() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a.heap");
    for visit in 1..4 {
        let heap = heap::open(&path).unwrap();
        let mut visits = HashMap::<u64, u64>::open(&heap, "visits").unwrap();
        visits.insert(7, visits.get(&7).unwrap_or(0) + 1).unwrap();
        assert_eq!(visits.get(&7), Some(visit));
        heap.checkpoint().unwrap();
        match visit {
            2 => heap.abandon(),
            _ => heap.close().unwrap(),
        }
    }
    let (heap, opened) = OPTIONS.open_or_create(place.path().join("b.heap")).unwrap();
    assert!(opened.created && opened.was_clean && opened.collected.is_none());
    let again = OPTIONS.open_or_create(place.path().join("b.heap")).err().unwrap();
    assert!(again == Error::Locked, "{again}");
    heap.close().unwrap();
}

/// Of several threads that begin at once one makes the heap, and the others open it, or find it open.
#[test]
fn one_of_many_makes_it() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    for round in 0..20 {
        let path = place.path().join(round.to_string());
        let open = || loop {
            match OPTIONS.open_or_create(&path) {
                Ok((heap, opened)) => break (heap.close().unwrap(), opened.created).1,
                // While another one makes it there is less of it than any heap has.
                Err(why) if why == Error::Locked || why == Error::NotAHeap => {}
                Err(why) if why == Error::Unfinished => {}
                Err(why) if matches!(why.error(), Error::Truncated { .. }) => {}
                Err(why) => panic!("{why}"),
            }
        };
        let made: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
        });
        assert_eq!(made, 1);
    }
}

#[test]
fn errors_say_the_path_the_reason_and_the_way_out() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("visits.heap");
    let shown = path.display();
    let missing = OPTIONS.open(&path).err().unwrap();
    let text = format!("{shown}: No such file or directory (os error 2)");
    assert_eq!(missing.to_string(), text);
    // As `main` shows it.
    assert_eq!(format!("{missing:?}"), format!("{text} (System(2))"));
    let nowhere = OPTIONS.create(path.join("no/such")).err().unwrap();
    assert_eq!(
        nowhere.to_string(),
        format!("{shown}/no/such: No such file or directory (os error 2)")
    );
    OPTIONS.create(&path).unwrap().close().unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(812).unwrap();
    let cut = OPTIONS.open(&path).err().unwrap().to_string();
    let begins = format!("{shown}: it is cut off: 812 bytes, of 720896 that any heap has; ");
    assert!(cut.starts_with(&begins), "{cut}");
    // In functions that use the heap as well, either error goes into the other.
    let both = || -> Result<(), Error> {
        OPTIONS.open(&path)?.0.checkpoint()?;
        Ok(())
    };
    assert_eq!(both(), Err(Error::Truncated { has: 812, needs: 720_896 }));
    let boxed: Box<dyn std::error::Error + Send + Sync> = OPTIONS.open(&path).err().unwrap().into();
    assert_eq!(boxed.to_string(), cut);
}
