//! Limits of the system, each met when a heap is made, with an error of its own: addresses, address space, file sizes, open files, names,
//! file systems; and a heap that is refused is left as it was.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use spandrel_pheap::{Choice, Error, Heap, OpenError, Options};
use tempfile::TempDir;

const MIB: usize = 1 << 20;

fn memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn disk() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn path(place: &TempDir, name: impl std::fmt::Display) -> String {
    place.path().join(name.to_string()).to_str().unwrap().to_string()
}

/// A test of this file that is to run in a process of its own, with a directory to work in.
fn alone(test: &str, place: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", test, "--test-threads", "1"]).env("PLACE", place);
    command
}

fn run(mut command: Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

/// Runs such a test under a limit of the process.
fn under(resource: libc::__rlimit_resource_t, limit: u64, test: &str, place: &Path) {
    let mut command = alone(test, place);
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: a system call, which allocates nothing.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(resource, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    run(command);
}

fn given(name: &str) -> String {
    format!("{}/{name}", std::env::var("PLACE").unwrap())
}

#[test]
fn forty_fixed_heaps_are_made_in_one_process_and_opened_in_another_order() {
    let place = memory();
    let options = Options::new().size(MIB);
    let mut open = Vec::new();
    for number in 0..40u64 {
        let heap = options.fixed().create(path(&place, number)).unwrap();
        let object = heap.alloc_zeroed(64).unwrap();
        // SAFETY: an object of its own.
        unsafe { object.cast::<u64>().write(number) };
        heap.set_root(0, Some(object)).unwrap();
        open.push((heap.fixed_base().unwrap(), heap));
    }
    let mut bases: Vec<_> = open.iter().map(|(base, _)| *base).collect();
    open.into_iter().for_each(|(_, heap)| heap.close().unwrap());
    let mut open = Vec::new();
    for number in (0..40).rev() {
        let (heap, _) = options.open(path(&place, number)).unwrap();
        assert_eq!(heap.fixed_base(), Some(bases[number]));
        let object = heap.get_root(0).unwrap().unwrap();
        // SAFETY: what was stored above.
        assert_eq!(unsafe { object.cast::<u64>().read() }, number as u64);
        open.push(heap);
    }
    bases.sort_unstable();
    bases.dedup();
    assert_eq!(bases.len(), 40);
    drop(open);
    // Also where threads look for places at the same time.
    std::thread::scope(|scope| {
        let make = |number| options.fixed().create(path(&place, format!("of a thread {number}")));
        let threads: Vec<_> = (0..32).map(|number| scope.spawn(move || make(number))).collect();
        let made: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        made.into_iter().for_each(|heap| heap.unwrap().close().unwrap());
    });
}

/// Makes the calling thread one that permissions bind: they do not bind root.
fn be_refused() {
    // SAFETY: system calls; the second changes this thread alone.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::syscall(libc::SYS_setresuid, -1, 65534, -1), 0);
        }
    }
}

/// The file can be written, and the directory not: the log cannot be made.
#[test]
fn a_log_that_cannot_be_made_is_named() {
    // Where another user comes to.
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = path(&place, "a.heap");
    Options::new().size(MIB).medium(Choice::Logged).create(&path).unwrap().close().unwrap();
    let log = format!("{path}.wal");
    let _ = std::fs::remove_file(&log);
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(path.as_ref(), 0o666);
    mode(place.path(), 0o555);
    let refused = std::thread::scope(|scope| {
        let as_other = || {
            be_refused();
            let why = Options::new().open(&path).err().unwrap();
            OpenError::new(&path, why).to_string()
        };
        scope.spawn(as_other).join().unwrap()
    });
    mode(place.path(), 0o755);
    assert!(refused.starts_with(&format!("{log}: Permission denied (os error 13); ")), "{refused}");
}

/// The heap is mapped, and the name of its log stays: the heap is opened ever after, with what the log had.
#[test]
fn a_log_that_cannot_be_removed_is_emptied() {
    let (made, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let heap = Options::new().size(MIB).medium(Choice::Logged).create(path(&made, "heap")).unwrap();
    heap.set_root(0, Some(heap.alloc(64).unwrap())).unwrap();
    heap.checkpoint().unwrap();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in ["heap", "heap.wal"] {
        std::fs::copy(path(&made, name), path(&place, name)).unwrap();
        mode(path(&place, name).as_ref(), 0o666);
    }
    heap.close().unwrap();
    mode(place.path(), 0o555);
    let turns = std::thread::scope(|scope| {
        let as_other = || {
            be_refused();
            [Choice::Mapped, Choice::Auto, Choice::Mapped].map(|medium| {
                let (heap, _) = Options::new().medium(medium).open(path(&place, "heap"))?;
                let has_root = heap.get_root(0)?.is_some();
                heap.checkpoint()?;
                heap.abandon();
                Ok::<_, Error>(has_root)
            })
        };
        scope.spawn(as_other).join().unwrap()
    });
    mode(place.path(), 0o755);
    assert_eq!(turns, [Ok(true); 3]);
    assert!(place.path().join("heap.wal").exists(), "another user could remove it");
}

#[test]
fn a_fixed_heap_finds_the_last_free_place_of_the_window() {
    let place = memory();
    // 13 of 15 TiB: of two such heaps one has no place, and with less address space it has.
    let options = Options::new().size(MIB);
    let first = options.limit(13 << 40).fixed().create(path(&place, 1)).unwrap();
    let refused = options.limit(13 << 40).fixed().create(path(&place, 2)).err();
    assert_eq!(refused, Some(Error::WindowFull(13 << 40)));
    assert!(!place.path().join("2").exists());
    let second = options.fixed().create(path(&place, 2)).unwrap();
    assert_ne!(first.fixed_base(), second.fixed_base());
}

#[test]
fn fixed_heaps_are_made_and_opened_where_address_space_is_limited() {
    for place in [memory(), disk()] {
        // As `ulimit -v 4000000`, and a tenth of it.
        under(libc::RLIMIT_AS, 4_000_000 << 10, "within_address_space", place.path());
        under(libc::RLIMIT_AS, 400_000 << 10, "within_address_space", place.path());
    }
}

#[test]
#[ignore = "run by another test, under a limit"]
fn within_address_space() {
    for turn in 0..3 {
        for (name, options) in [
            ("any", Options::new().size(MIB)),
            ("fixed", Options::new().size(MIB).fixed()),
            ("logged", Options::new().size(MIB).fixed().medium(Choice::Logged)),
        ] {
            let path = given(&format!("{name}{turn}"));
            let heap: Heap = options.create(&path).unwrap_or_else(|why| panic!("{name}: {why}"));
            heap.close().unwrap();
            let (heap, opened) = Options::new().open(&path).unwrap();
            assert!(opened.was_clean);
            // The program has room as well.
            drop(vec![1u8; 32 * MIB]);
            heap.set_root(0, Some(heap.alloc(8 * MIB).unwrap())).unwrap();
            heap.close().unwrap();
            std::fs::remove_file(&path).unwrap();
            let _ = std::fs::remove_file(format!("{path}.wal"));
        }
    }
    // A heap that there is room for is recovered, on any number of processors.
    let (path, options) = (given("recovered"), Options::new().limit(128 * MIB));
    let heap = options.size(96 * MIB).create(&path).unwrap();
    heap.set_root(0, Some(heap.alloc(40 * MIB).unwrap())).unwrap();
    heap.checkpoint().unwrap();
    heap.abandon();
    let (heap, opened) = options.open(&path).unwrap();
    assert!(!opened.was_clean && heap.get_root(0).unwrap().is_some());
    heap.close().unwrap();
    std::fs::remove_file(&path).unwrap();
    // A limit that the program sets itself is refused with the reason.
    let path = given("large");
    for options in [Options::new(), Options::new().fixed()] {
        assert_eq!(options.limit(16 << 30).create(&path).err(), Some(Error::NoMemory));
        assert!(!Path::new(&path).exists());
    }
}

#[test]
fn a_limit_of_file_sizes_is_met_when_a_heap_is_made() {
    for place in [memory(), disk()] {
        under(libc::RLIMIT_FSIZE, 2 << 20, "within_file_size", place.path());
    }
}

#[test]
#[ignore = "run by another test, under a limit"]
fn within_file_size() {
    let path = given("heap");
    assert_eq!(Options::new().create(&path).err(), Some(Error::FileSize));
    assert!(!Path::new(&path).exists());
    let heap = Options::new().size(MIB).create(&path).unwrap();
    assert_eq!(heap.alloc(4 * MIB), Err(Error::FileSize));
    heap.close().unwrap();
    Options::new().open(&path).unwrap();
    let _ = std::fs::remove_file(&path);
}

#[test]
fn a_limit_of_open_files_is_met_when_a_heap_is_made() {
    let place = disk();
    under(libc::RLIMIT_NOFILE, 24, "within_open_files", place.path());
}

#[test]
#[ignore = "run by another test, under a limit"]
fn within_open_files() {
    let mut files = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        files.push(file);
    }
    // With any number of descriptors that are left a heap is made and can be opened, or neither.
    loop {
        let path = given(&format!("heap{}", files.len()));
        match Options::new().size(MIB).create(&path) {
            Ok(heap) => {
                heap.close().unwrap();
                Options::new().open(&path).unwrap();
                break;
            }
            Err(why) => assert_eq!(why, Error::System(libc::EMFILE)),
        }
        assert!(!Path::new(&path).exists() && files.pop().is_some());
    }
}

#[test]
fn names_that_leave_no_room_for_the_log_are_refused_when_a_heap_is_made() {
    for place in [memory(), disk()] {
        for choice in [Choice::Auto, Choice::Mapped, Choice::Logged] {
            let options = Options::new().size(MIB).medium(choice);
            let make = |bytes: usize| options.create(path(&place, "x".repeat(bytes)));
            for bytes in [252, 255, 300] {
                let refused = Some(Error::NameTooLong { bytes, most: 251 });
                assert_eq!(make(bytes).err(), refused);
                assert_eq!(options.open(path(&place, "x".repeat(bytes))).err(), refused);
            }
            let name = "x".repeat(251);
            make(251).unwrap().close().unwrap();
            options.open(path(&place, &name)).unwrap().0.close().unwrap();
            Options::new().copy(path(&place, &name)).unwrap();
            std::fs::remove_file(path(&place, &name)).unwrap();
            let _ = std::fs::remove_file(path(&place, format!("{name}.wal")));
        }
        let long = path(&place, "y/".repeat(2100));
        assert!(matches!(Options::new().create(long).err(), Some(Error::PathTooLong { .. })));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_file_system_of_huge_pages_is_refused_by_its_name() {
    let place = disk();
    let target = CString::new(place.path().as_os_str().as_bytes()).unwrap();
    let kind = c"hugetlbfs";
    // SAFETY: strings that end with a zero byte.
    let mounted = unsafe {
        libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) == 0
    };
    if !mounted {
        eprintln!("not tried: this process cannot mount hugetlbfs");
        return;
    }
    let refused = Options::new().size(MIB).create(path(&place, "a.heap")).err();
    // SAFETY: as above.
    unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    assert!(matches!(refused, Some(Error::FileSystem(_))), "{refused:?}");
    assert!(refused.is_some_and(|why| why.to_string().contains("hugetlbfs")));
}

#[test]
fn the_65th_heap_is_refused_and_left_as_it_was() {
    for place in [memory(), disk()] {
        run(alone("with_65_heaps", place.path()));
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn with_65_heaps() {
    let path = |number: usize| given(&number.to_string());
    let files = || std::fs::read_dir(given("")).unwrap().count();
    for number in 0..65 {
        Options::new().size(MIB).create(path(number)).unwrap().close().unwrap();
    }
    let before = std::fs::read(path(64)).unwrap();
    let mut open: Vec<Heap> =
        (0..64).map(|number| Options::new().open(path(number)).unwrap().0).collect();
    let count = files();
    for why in [Options::new().open(path(64)).err(), Options::new().create(path(65)).err()] {
        assert_eq!(why, Some(Error::TooManyHeaps(64)));
        let text = why.unwrap().to_string();
        assert!(text.contains("64 heaps are open") && text.contains("close one"), "{text}");
    }
    assert!(std::fs::read(path(64)).unwrap() == before, "nothing was written");
    assert_eq!(files(), count, "no file was made");
    // The number of a heap that is closed is free again.
    open.pop().unwrap().close().unwrap();
    let (heap, opened) = Options::new().open(path(64)).unwrap();
    assert!(opened.was_clean);
    heap.close().unwrap();
}
