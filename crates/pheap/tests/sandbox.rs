//! A heap with a log where `userfaultfd` is forbidden, as in Docker's default seccomp profile: nothing that a program does with its memory,
//! signals and threads fails for it, and a checkpoint has all that was stored.

use std::path::Path;
use std::process::Command;

use spandrel_pheap::collections::{HashMap, MapHead};
use spandrel_pheap::{Choice, Options, RootType};

const TYPES: &[RootType<'_>] = &[RootType::of::<MapHead<u64, u64>>("map")];

/// Has the kernel refuse a system call with `EPERM` from now on, in this process.
fn forbid(call: i64) {
    let filter = |code: u32, jump_false: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump_false,
        k,
    };
    let program = [
        filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, call as u32),
        filter(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        filter(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: a filter that outlives the call, which the kernel copies.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program), 0);
        assert_eq!(libc::syscall(libc::SYS_userfaultfd, 0), -1);
    }
}

extern "C" fn crash_handler(_: i32) {
    // SAFETY: it ends the process.
    unsafe { libc::_exit(99) };
}

/// Stores to objects in every way that a handler of faults would notice, with checkpoints in between, and is left without an end.
#[test]
#[ignore = "is the process in the sandbox"]
fn worker() {
    forbid(libc::SYS_userfaultfd);
    let path = std::env::var("HEAP").unwrap();
    let heap = Options::new().medium(Choice::Logged).create(&path).unwrap();
    // The program's own handler stays its own.
    // SAFETY: a function that may be called at any time.
    unsafe { libc::signal(libc::SIGSEGV, crash_handler as *const () as usize) };
    let object = heap.alloc_zeroed(1 << 20).unwrap();
    heap.set_root(0, Some(object)).unwrap();
    heap.checkpoint().unwrap();
    // The kernel stores to an object.
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    // SAFETY: the object has 1 MiB.
    let bytes = unsafe { std::slice::from_raw_parts_mut(object.as_ptr(), 1 << 20) };
    std::io::Read::read_exact(&mut &file, bytes).unwrap();
    heap.checkpoint().unwrap();
    let mut map = HashMap::<u64, u64, _>::open(&heap, "map").unwrap();
    std::thread::scope(|scope| {
        // A thread that blocks all signals, while another makes checkpoints.
        let storing = scope.spawn(|| {
            // SAFETY: sets of the thread's own.
            unsafe {
                let mut all = std::mem::zeroed();
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
            }
            for number in 0..5000 {
                map.insert(number, number * 3).unwrap();
            }
        });
        while !storing.is_finished() {
            heap.checkpoint().unwrap();
        }
    });
    // More runs of pages than a process may have mappings.
    let runs = 66_000;
    let large = heap.alloc(runs * 8192).unwrap();
    heap.set_root(1, Some(large)).unwrap();
    heap.checkpoint().unwrap();
    for run in 0..runs {
        // SAFETY: within the object.
        unsafe { large.add(run * 8192).cast::<u64>().write(run as u64) };
    }
    heap.checkpoint().unwrap();
    println!("acknowledged");
    // SAFETY: it ends the process as a failure would.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

fn check(path: &Path) {
    let (heap, opened) = Options::new().roots(TYPES).open(path.to_str().unwrap()).unwrap();
    assert!(!opened.was_clean);
    let map = HashMap::<u64, u64, _>::open(&heap, "map").unwrap();
    assert!((0..5000).all(|number| map.get(&number) == Some(number * 3)) && map.len() == 5000);
    let object = heap.get_root(0).unwrap().unwrap();
    // SAFETY: the object has 1 MiB.
    let held = unsafe { std::slice::from_raw_parts(object.as_ptr(), 1 << 20) };
    let exe = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert!(held == &exe[..1 << 20], "what the kernel stored is there");
    let large = heap.get_root(1).unwrap().unwrap();
    // SAFETY: within the object.
    let word = |run: usize| unsafe { large.add(run * 8192).cast::<u64>().read() };
    assert!((0..66_000).all(|run| word(run) == run as u64));
}

#[test]
fn nothing_fails_where_the_kernel_does_not_tell_what_was_written() {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = place.path().join("a.heap");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "worker", "--nocapture", "--test-threads", "1"])
        .env("HEAP", &path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("acknowledged"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    check(&path);
}
