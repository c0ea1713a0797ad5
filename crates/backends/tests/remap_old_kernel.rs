//! Kernels before 6.17 move one mapping at a time, and a kernel may refuse to
//! move at any moment. A seccomp filter sends `mremap` to a handler here, which
//! answers as such a kernel would. The filter is the process's: these tests are
//! alone in their file, and take turns.

use std::arch::asm;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use spandrel_backends::remap;

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;
/// Sixth argument of calls that the filter lets pass; `mremap` has five.
const PASS: i64 = 0x5350_414e;
const MAYMOVE: i64 = 1;

static TURN: Mutex<()> = Mutex::new(());
/// Moves that the kernel will still do.
static MOVES_LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);
static SEVERAL: AtomicUsize = AtomicUsize::new(0);

fn mremap(arguments: [i64; 5]) -> i64 {
    let [a, b, c, d, e] = arguments;
    let result;
    // SAFETY: the call that the filter stopped, as it was.
    unsafe {
        asm!("syscall", inlateout("rax") libc::SYS_mremap => result, in("rdi") a, in("rsi") b,
            in("rdx") c, in("r10") d, in("r8") e, in("r9") PASS, out("rcx") _, out("r11") _);
    }
    result
}

fn mappings(from: usize, len: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let parse = |text: &str| usize::from_str_radix(text, 16).unwrap();
    maps.lines()
        .filter_map(|line| line.split(' ').next()?.split_once('-'))
        .filter(|(start, end)| parse(start) < from + len && parse(end) > from)
        .count()
}

/// What a kernel before 6.17 would say. The handler interrupts nothing but the
/// system call, so that it may allocate.
fn answer(arguments: [i64; 5]) -> i64 {
    if mappings(arguments[0] as usize, arguments[1] as usize) > 1 {
        SEVERAL.fetch_add(1, Relaxed);
        return -i64::from(libc::EFAULT);
    }
    let moves = arguments[3] & MAYMOVE != 0;
    if moves && MOVES_LEFT.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
        return -i64::from(libc::ENOMEM);
    }
    mremap(arguments)
}

extern "C" fn on_sigsys(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the interrupted thread's registers.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let names = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8];
    registers[libc::REG_RAX as usize] = answer(names.map(|name| registers[name as usize]));
}

/// Puts the filter before this thread. False: there are no filters here.
fn be_an_old_kernel() -> bool {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let (load, equal, answer) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let mut filter = [
        statement(load, 0, 0, 0),
        statement(equal, 0, 3, libc::SYS_mremap as u32),
        statement(load, 0, 0, 16 + 5 * 8),
        statement(equal, 1, 0, PASS as u32),
        statement(answer, 0, 0, libc::SECCOMP_RET_TRAP),
        statement(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: an all-zero action with a handler is valid; the filter outlives
    // the call that copies it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigsys as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()) == 0
            && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    }
}

fn mark(at: *mut u8, size: usize) {
    // SAFETY: the tests' own objects of at least this size.
    (0..size).step_by(PAGE).for_each(|i| unsafe { at.add(i).write((i / PAGE) as u8) });
}

fn is_marked(at: *mut u8, size: usize) -> bool {
    // SAFETY: as above.
    (0..size).step_by(PAGE).all(|i| unsafe { at.add(i).read() } == (i / PAGE) as u8)
}

#[test]
fn an_object_that_is_moved_again_and_again_is_not_copied() {
    let _turn = TURN.lock().unwrap();
    if !be_an_old_kernel() {
        return;
    }
    // A warm slot of a larger class would spare the object a move.
    remap::trim();
    let before = remap::stats();
    let mut size = 400 << 10;
    let mut at = remap::alloc(size, 1);
    mark(at, size);
    while size < 600 * MIB {
        let next = size * 2 + 2 * PAGE;
        // SAFETY: the address is the object's.
        at = unsafe { remap::realloc(at, next) };
        assert!(is_marked(at, size), "{size}");
        mark(at, next);
        size = next;
    }
    let after = remap::stats();
    assert_eq!(after.moved - before.moved, 3);
    assert_eq!(after.copied_bytes, before.copied_bytes);
    assert!(SEVERAL.load(Relaxed) > 0, "the object consisted of several mappings");
    // SAFETY: the object is not used any more.
    unsafe { remap::free(at) };
}

#[test]
fn a_move_that_ends_halfway_leaves_nothing_behind() {
    let _turn = TURN.lock().unwrap();
    if !be_an_old_kernel() {
        return;
    }
    for moves in [0, 1, 2, 3] {
        // A warm slot of a larger class would spare the object the move.
        remap::trim();
        // SAFETY: each address is the object's when it is used.
        unsafe {
            let mut at = remap::alloc(400 << 10, 1);
            for size in [3 * MIB, 20 * MIB] {
                at = remap::realloc(at, size);
                mark(at, size);
            }
            let first = at;
            MOVES_LEFT.store(moves, Relaxed);
            let at = remap::realloc(first, 40 * MIB);
            let left = MOVES_LEFT.swap(usize::MAX, Relaxed);
            assert!(left < moves.max(1), "it was asked to move");
            assert!(is_marked(at, 20 * MIB), "{moves} moves");
            mark(at, 40 * MIB);
            // Whichever slots these get, they are empty.
            let clean =
                [6 * MIB, 7 * MIB, 40 * MIB].map(|size| (remap::alloc_zeroed(size, 1), size));
            for (zero, size) in clean {
                assert!((0..size).all(|i| zero.add(i).read() == 0), "{moves} moves");
            }
            assert!(is_marked(at, 40 * MIB));
            clean.into_iter().for_each(|(zero, _)| remap::free(zero));
            remap::free(at);
        }
    }
}
