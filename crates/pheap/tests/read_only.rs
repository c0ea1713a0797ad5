//! Heaps that are opened to be read only: without the right to write, beside the process that has them open, and unchanged.

use std::os::unix::fs::PermissionsExt;

use spandrel_pheap::collections::HashMap;
use spandrel_pheap::{Choice, Error, Options};

const BYTES: usize = 2 << 20;

/// Makes the calling thread one that permissions bind: they do not bind root.
fn be_refused() {
    // SAFETY: system calls; the second changes this thread alone.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::syscall(libc::SYS_setresuid, -1, 65534, -1), 0);
        }
    }
}

#[test]
fn a_heap_is_read_where_nothing_may_be_written() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a.heap").to_str().unwrap().to_string();
    let heap = Options::new().size(BYTES).medium(Choice::Logged).create(&path).unwrap();
    HashMap::<u64, u64>::open(&heap, "map").unwrap().insert(1, 2).unwrap();
    heap.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let files = || std::fs::read_dir(place.path()).unwrap().map(|file| file.unwrap().path());
    files().for_each(|file| mode(&file, 0o444));
    mode(place.path(), 0o555);
    let read = || {
        let (heap, opened) = Options::new().read_only().open(&path)?;
        assert!(opened.was_clean && !opened.created);
        assert_eq!(HashMap::<u64, u64>::open(&heap, "map")?.get(&1), Some(2));
        heap.checkpoint()?;
        heap.close()
    };
    // As a user that may not write: another one than the owner of the machine.
    let outcome = std::thread::scope(|scope| {
        let as_other = || {
            be_refused();
            read()
        };
        scope.spawn(as_other).join().unwrap()
    });
    mode(place.path(), 0o755);
    outcome.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn all_that_would_change_it_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a.heap").to_str().unwrap().to_string();
    let owner = Options::new().size(BYTES).medium(Choice::Logged).create(&path).unwrap();
    let objects = [64, 20_000, 200_000].map(|bytes| owner.alloc_zeroed(bytes).unwrap());
    for (root, object) in objects.into_iter().enumerate() {
        owner.set_root(root, Some(object)).unwrap();
    }
    owner.named_root_of("name", 7).unwrap();
    HashMap::<u64, u64>::open(&owner, "map").unwrap().insert(1, 2).unwrap();
    owner.checkpoint().unwrap();
    // Beside the process that has it open, and not recovered: as of the last checkpoint.
    let options = Options::new().read_only();
    let (mut heap, opened) = options.open(&path).unwrap();
    assert!(!opened.was_clean && opened.collected.is_some());
    let refused = Err(Error::ReadOnly);
    for bytes in [64, 20_000, 200_000] {
        assert_eq!(heap.alloc(bytes).map(drop), refused);
        assert_eq!(heap.alloc_zeroed(bytes).map(drop), refused);
    }
    for root in 0..3 {
        let object = heap.get_root(root).unwrap().unwrap();
        // SAFETY: refused.
        unsafe {
            assert_eq!(heap.free(object), refused);
            assert_eq!(heap.realloc(object, 300_000).map(drop), refused);
        }
        assert_eq!(heap.set_root(root, None), refused);
    }
    assert_eq!(heap.set_roots(&[]), refused);
    assert!(heap.named_root_of("name", 7).is_ok());
    assert_eq!(heap.named_root_of("other", 7), refused.map(|()| 0));
    assert_eq!(heap.remove_root("name"), refused);
    assert_eq!(heap.collect(&[]).map(drop), refused);
    // A key that is there is replaced where it lies, without an allocation.
    let mut map = HashMap::<u64, u64>::open(&heap, "map").unwrap();
    assert_eq!(map.insert(1, 3).map(drop), refused);
    assert_eq!(map.insert(2, 3).map(drop), refused);
    assert_eq!(map.remove(&1).map(drop), refused);
    assert_eq!((map.get(&1), map.len()), (Some(2), 1));
    drop(map);
    assert_eq!(HashMap::<u64, u64>::open(&heap, "none").err(), refused.err());
    heap.checkpoint().unwrap();
    heap.close().unwrap();
    assert_eq!(
        options.create(place.path().join("b").to_str().unwrap()).err(),
        Some(Error::ReadOnly)
    );
    let none = place.path().join("none");
    let none = options.open_or_create(none.to_str().unwrap()).err();
    assert_eq!(none, Some(Error::System(libc::ENOENT)));
    assert!(!place.path().join("none").exists());
    // The owner notices nothing.
    assert!(owner.alloc(64).is_ok());
    owner.close().unwrap();
}
