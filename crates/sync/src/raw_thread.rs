//! A thread made by the kernel alone: the C library does not count it.
//!
//! To the C library the process keeps the number of threads that the program made: a program of one thread keeps
//! its short cuts (`__libc_single_threaded`), and ends when its last own thread ends. Making the thread takes no lock and
//! no memory of the C library, so that it may happen where memory is freed.
//!
//! Such a thread has thread-local variables that are all zero. It may use this code's own, `errno`, and functions that
//! are system calls; nothing that belongs to a thread of the C library (`pthread_self`, locales, `malloc`).

use core::arch::asm;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};

use spandrel_os::call::call;
use spandrel_os::{env, rseq, vm};
use spandrel_pages::{PAGE_BYTES, align_up};

use crate::ThreadSlot;
use crate::platform::linger;

/// What the thread runs; it ends when this returns.
pub type Body = extern "C" fn();

/// Address space below the thread pointer for thread-local variables, at least. Of these pages two or three are used.
const VARIABLES_BYTES: usize = 256 * 1024;
/// The same, at most.
const VARIABLES_MOST: usize = 256 << 20;
/// Address space from the thread pointer on: more than glibc's record of a thread takes (2.4 KiB), which holds the area for restartable sequences.
const RECORD_BYTES: usize = 16 * 1024;
/// Address space for the stack.
const STACK_BYTES: usize = 256 * 1024;

/// The room for one thread at a time.
pub struct RawThread {
    /// Stack, variables and record, in this order; null before the first thread.
    room: AtomicPtr<u8>,
    /// Bytes for variables in the room.
    variables: AtomicUsize,
    /// Not 0 as long as the thread is there. The kernel clears it when the thread has left its stack.
    is_there: AtomicU32,
    /// The number of the last thread in this process; 0: none.
    number: AtomicI32,
}

/// Why there is no thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotMade {
    /// The last one is just leaving: another time.
    StillThere,
    /// The error's number.
    Refused(i32),
}

impl Default for RawThread {
    fn default() -> Self {
        Self::new()
    }
}

impl RawThread {
    /// No thread yet.
    pub const fn new() -> Self {
        Self {
            room: AtomicPtr::new(ptr::null_mut()),
            variables: AtomicUsize::new(0),
            is_there: AtomicU32::new(0),
            number: AtomicI32::new(0),
        }
    }

    /// Makes the thread. One caller at a time.
    ///
    /// # Errors
    /// [`NotMade::StillThere`]; [`NotMade::Refused`] with `ENOMEM` for want of address space, `ENOTSUP` where variables lie too far from the thread
    /// pointer, and what `clone` says.
    pub fn start(&'static self, body: Body) -> Result<(), NotMade> {
        if self.is_there.load(Acquire) != 0 {
            return Err(NotMade::StillThere);
        }
        let pointer = thread_pointer();
        let errno = env::errno_address().addr();
        let slot = ptr::from_ref(crate::thread_slot()).addr();
        // How far below the thread pointer.
        let below = |variable: usize| {
            pointer.checked_sub(variable).filter(|below| *below <= VARIABLES_MOST)
        };
        let (Some(errno), Some(slot)) = (below(errno), below(slot)) else {
            return Err(NotMade::Refused(libc::ENOTSUP));
        };
        let room = self.room(errno.max(slot)).ok_or(NotMade::Refused(libc::ENOMEM))?;
        let stack = room.wrapping_add(STACK_BYTES);
        let record = stack.wrapping_add(self.variables.load(Relaxed));
        self.is_there.store(1, Relaxed);
        // SAFETY: the room is this object's, which lives as long as the process, and no thread is on it. The body needs nothing
        // that a thread of the C library has. Signals are blocked only while the thread inherits that.
        let made = unsafe {
            // Its own address is the record's first and third word (`tcbhead_t`: `tcb`, `self`).
            record.cast::<usize>().write(record.addr());
            record.cast::<usize>().add(2).write(record.addr());
            rseq::mark_unregistered(record);
            // What the thread before has left.
            record.sub(errno).cast::<i32>().write(0);
            record.sub(slot).cast::<ThreadSlot>().write_bytes(0, 1);
            let (all, mut before) = (u64::MAX, 0_u64);
            sigmask(&raw const all, &raw mut before);
            let made = clone(stack, &self.is_there, record, body);
            sigmask(&raw const before, ptr::null_mut());
            made
        };
        if made < 0 {
            self.is_there.store(0, Relaxed);
            return Err(NotMade::Refused(-made as i32));
        }
        self.number.store(made as i32, Relaxed);
        Ok(())
    }

    /// Waits until the thread has left its stack, if there is one; a second at most.
    pub fn wait(&self) {
        const MOST_LOOKS: u32 = 10_000;
        for look in 0..MOST_LOOKS {
            if self.is_there.load(Acquire) == 0 {
                return;
            }
            linger(look);
        }
    }

    /// Whether there has been a thread.
    pub fn has_been(&self) -> bool {
        !self.room.load(Relaxed).is_null()
    }

    /// Whether the kernel knows no thread of this process with the last one's number. That is so a moment after the thread has left its stack.
    pub fn is_out(&self) -> bool {
        let number = self.number.load(Relaxed);
        let arguments = [env::pid() as usize, number as usize, 0];
        // SAFETY: no signal is sent.
        number == 0 || unsafe { call(libc::SYS_tgkill, arguments) } == Err(libc::ESRCH)
    }

    /// In the child of a fork: the thread is not here.
    pub fn forget(&self) {
        self.number.store(0, Relaxed);
        self.is_there.store(0, Relaxed);
    }

    /// The room, with this number of bytes for variables or more. Threads of one program have their variables in the same places.
    fn room(&self, below: usize) -> Option<*mut u8> {
        let room = self.room.load(Relaxed);
        if !room.is_null() {
            return Some(room);
        }
        let variables = align_up(below.max(VARIABLES_BYTES), PAGE_BYTES)?;
        let all = STACK_BYTES + variables + RECORD_BYTES;
        let new = vm::reserve_small(all)?.as_ptr();
        // SAFETY: reserved just now.
        if !unsafe { vm::open(new, all) } {
            // SAFETY: as above.
            unsafe { vm::release(new, all) };
            return None;
        }
        self.variables.store(variables, Relaxed);
        self.room.store(new, Relaxed);
        Some(new)
    }
}

fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the first word of a thread's record is its own address.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(pure, readonly, nostack, preserves_flags));
    }
    pointer
}

/// Changes the mask of the kernel's 64 signals, two of which the C library keeps for itself and would leave out.
///
/// # Safety
/// `before` is null or may be written to.
unsafe fn sigmask(mask: *const u64, before: *mut u64) {
    let (how, bytes) = (libc::SIG_SETMASK as usize, size_of::<u64>());
    // SAFETY: passed on from the caller; it fails for no mask.
    let _ = unsafe {
        call(
            libc::SYS_rt_sigprocmask,
            [how, mask.expose_provenance(), before.expose_provenance(), bytes],
        )
    };
}

/// A new thread on the stack that ends at `stack`, or minus the error's number. The flags are those of every thread, as some that
/// read system calls (valgrind, qemu) accept no others.
///
/// # Safety
/// Stack and record are writable and of no use to other threads, and `body` can run on them.
unsafe fn clone(
    stack: *mut u8,
    is_there: &'static AtomicU32,
    record: *mut u8,
    body: Body,
) -> isize {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    let made;
    // SAFETY: the new thread begins behind the first `syscall`, with 0, on a stack of its own: it touches nothing of the caller's frame, and never
    // leaves this block.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "call r12",
            // Where a filter refuses that, the thread sleeps from now on.
            "3:",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "mov eax, {pause}",
            "syscall",
            "jmp 3b",
            "2:",
            exit = const libc::SYS_exit,
            pause = const libc::SYS_pause,
            inlateout("rax") libc::SYS_clone as isize => made,
            in("rdi") flags,
            in("rsi") stack.cast::<c_void>(),
            in("rdx") is_there.as_ptr(),
            in("r10") is_there.as_ptr(),
            in("r8") record,
            in("r12") body,
            out("rcx") _,
            out("r11") _,
        );
    }
    made
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::time::{Duration, Instant};

    use super::*;

    static THREAD: RawThread = RawThread::new();
    static RAN: AtomicU32 = AtomicU32::new(0);
    static GO: AtomicU32 = AtomicU32::new(0);

    extern "C" fn body() {
        // Its own variables, and `errno`.
        assert!(env::errno() == 0 && crate::thread_slot().cache.get().is_null());
        env::set_errno(libc::EPERM);
        crate::thread_slot().is_stepped.set(true);
        RAN.fetch_add(1, Relaxed);
        while GO.load(Acquire) < RAN.load(Relaxed) {
            crate::platform::wait_for(&GO, 0, 1);
        }
    }

    fn until(done: impl Fn() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
    }

    #[test]
    fn it_runs_beside_the_program_with_variables_of_its_own_and_can_be_made_again() {
        for turn in 1..=200 {
            env::set_errno(libc::ENOENT);
            THREAD.start(body).expect("a thread");
            until(|| RAN.load(Relaxed) == turn);
            assert_eq!(THREAD.start(body), Err(NotMade::StillThere));
            assert!(!THREAD.is_out());
            assert!(env::errno() == libc::ENOENT && !crate::thread_slot().is_stepped.get());
            GO.store(turn, Release);
            until(|| THREAD.is_there.load(Acquire) == 0);
            until(|| THREAD.is_out());
        }
    }
}
