//! Signals wait while translated code runs: a handler is native code that notes nothing, and would see half of what a batch changes.
//!
//! The kernel holds them, in the thread's mask. The program sees a mask of its own: what its code asks of the mask is answered here.
//!
//! Invariants:
//! - While signals are held, the kernel's mask of the thread is the program's and [`HELD`].
//! - The mask that the thread has afterwards, and that of a child from its first instruction on, is the program's.

use super::peek;

/// The bit of a signal in a mask.
const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Signals that an instruction raises by itself, which the kernel ends a process for if they are held; what `abort` raises; and two that the C library keeps for itself,
/// which its own functions never hold either: another thread may wait for their handlers, which store nothing.
const AT_ONCE: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGFPE)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS)
    | bit(libc::SIGABRT)
    | bit(32)
    | bit(33);

/// Those that wait.
const HELD: u64 = !AT_ONCE;

/// Signals that the kernel never holds.
const NEVER: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);

/// Bytes of the kernel's mask.
const MASK_BYTES: usize = size_of::<u64>();

/// Sets the thread's mask: the one before.
fn set(how: i32, mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: two local variables. The C library's own function would leave its signals out of what was set before.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const mask, &raw mut before, MASK_BYTES);
    }
    before
}

/// Signals of the calling thread that wait until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Held {
    mask: u64,
}

impl Held {
    /// From now on.
    pub fn begin() -> Self {
        Self { mask: set(libc::SIG_BLOCK, HELD) }
    }

    /// The program's mask.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// The program has another mask from now on.
    pub fn set_mask(&mut self, mask: u64) {
        self.mask = mask;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        set(libc::SIG_SETMASK, self.mask);
    }
}

/// Answers what the program asks of its mask by `rt_sigprocmask`, with these arguments: what the call returns. `mask` is the program's. `note` is called with what is stored.
pub fn change(
    [how, new, old, bytes, ..]: [u64; 6],
    mask: &mut u64,
    note: &mut dyn FnMut(u64, u64),
) -> i64 {
    if bytes != MASK_BYTES as u64 {
        return -i64::from(libc::EINVAL);
    }
    let before = *mask;
    if new != 0 {
        let mut given = [0; MASK_BYTES];
        if peek(new, &mut given) != MASK_BYTES {
            return -i64::from(libc::EFAULT);
        }
        let given = u64::from_ne_bytes(given);
        *mask = match how as i32 {
            libc::SIG_BLOCK => before | given,
            libc::SIG_UNBLOCK => before & !given,
            libc::SIG_SETMASK => given,
            _ => return -i64::from(libc::EINVAL),
        } & !NEVER;
        set(libc::SIG_SETMASK, *mask | HELD);
    }
    if old != 0 {
        note(old, bytes);
        if !poke(old, &before.to_ne_bytes()) {
            return -i64::from(libc::EFAULT);
        }
    }
    0
}

/// Writes a mask to the process's own memory, which may not be there.
fn poke(at: u64, bytes: &[u8; MASK_BYTES]) -> bool {
    let from = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let to = libc::iovec { iov_base: at as *mut _, iov_len: bytes.len() };
    // SAFETY: one local buffer that is read, and one that the kernel looks at before it writes; the number of the last error is the program's own.
    unsafe {
        let error = libc::__errno_location();
        let before = *error;
        let written = libc::process_vm_writev(libc::getpid(), &from, 1, &to, 1, 0);
        let why = core::mem::replace(&mut *error, before);
        if written != -1 || why == libc::EFAULT {
            return usize::try_from(written) == Ok(bytes.len());
        }
    }
    poke_by_mask(at, bytes)
}

/// The same where a sandbox forbids that call: the kernel writes its own mask there, if it can.
fn poke_by_mask(at: u64, bytes: &[u8; MASK_BYTES]) -> bool {
    let none = core::ptr::null::<u8>();
    // SAFETY: the kernel looks at the address before it writes as many bytes there, and changes no mask.
    unsafe {
        let error = libc::__errno_location();
        let before = *error;
        let asked = libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, none, at, MASK_BYTES);
        *error = before;
        if asked == 0 {
            (at as *mut [u8; MASK_BYTES]).write(*bytes);
        }
        asked == 0
    }
}

/// Whether a system call waits for a signal, or lets one come that is held.
pub fn waits(number: u64, [_, _, _, d, e, f]: [u64; 6]) -> bool {
    match i64::try_from(number) {
        Ok(libc::SYS_pause | libc::SYS_rt_sigsuspend) => true,
        Ok(libc::SYS_ppoll) => d != 0,
        Ok(libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2) => e != 0,
        // The argument leads to the mask's address.
        Ok(libc::SYS_pselect6) => {
            let mut mask = [0; 8];
            f != 0 && (peek(f, &mut mask) != mask.len() || u64::from_ne_bytes(mask) != 0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;
    use std::vec;

    /// The kernel's mask of the thread.
    fn now() -> u64 {
        set(libc::SIG_BLOCK, 0)
    }

    #[test]
    fn a_mask_is_stored_where_a_sandbox_forbids_the_call() {
        let mut place = [0xffu8; MASK_BYTES + 1];
        let at = &raw mut place as u64 + 1;
        assert!(poke_by_mask(at, b"abcdefgh") && &place[1..] == b"abcdefgh");
        assert!(poke(at, b"ABCDEFGH") && &place[1..] == b"ABCDEFGH");
        assert!(!poke_by_mask(1, b"abcdefgh") && !poke(1, b"abcdefgh"));
    }

    #[test]
    fn a_program_sees_its_own_mask() {
        let before = now();
        let mut held = Held::begin();
        assert_eq!((held.mask(), now() & HELD), (before, HELD & !NEVER));
        let (mut old, mut noted) = (7u64, vec![]);
        let mut ask = |how: i32, new: Option<u64>, mask: &mut u64| {
            let new = new.as_ref().map_or(0, |new| &raw const *new as u64);
            let arguments = [how as u64, new, &raw mut old as u64, 8, 0, 0];
            let answer = change(arguments, mask, &mut |at, bytes| noted.push((at, bytes)));
            // SAFETY: the variable that was stored to.
            (answer, unsafe { (&raw const old).read_volatile() })
        };
        let (usr1, usr2) = (bit(libc::SIGUSR1), bit(libc::SIGUSR2));
        let mut mask = held.mask();
        assert_eq!(ask(libc::SIG_SETMASK, Some(usr1 | NEVER), &mut mask), (0, before));
        assert_eq!(ask(libc::SIG_BLOCK, Some(usr2), &mut mask), (0, usr1));
        assert_eq!(ask(libc::SIG_UNBLOCK, Some(usr1), &mut mask), (0, usr1 | usr2));
        assert_eq!(ask(99, None, &mut mask), (0, usr2));
        assert_eq!(ask(99, Some(0), &mut mask).0, -i64::from(libc::EINVAL));
        let fault = change([0, 8, 0, 8, 0, 0], &mut mask, &mut |_, _| {});
        assert_eq!(fault, -i64::from(libc::EFAULT));
        let fault = change([0, 0, 8, 8, 0, 0], &mut mask, &mut |_, _| {});
        assert_eq!(fault, -i64::from(libc::EFAULT));
        assert_eq!(change([0, 0, 0, 4, 0, 0], &mut mask, &mut |_, _| {}), -i64::from(libc::EINVAL));
        // What an instruction raises is held if the program says so.
        assert_eq!(ask(libc::SIG_SETMASK, Some(bit(libc::SIGSEGV)), &mut mask).0, 0);
        assert_eq!(now() & (AT_ONCE | HELD), bit(libc::SIGSEGV) | HELD & !NEVER);
        assert_eq!(noted, [(&raw const old as u64, 8); 5]);
        held.set_mask(usr2);
        drop(held);
        assert_eq!(now(), usr2);
        set(libc::SIG_SETMASK, before);
    }

    #[test]
    fn calls_that_let_signals_come_are_known() {
        let waits = |number: i64, arguments| waits(number as u64, arguments);
        assert!(waits(libc::SYS_pause, [0; 6]) && waits(libc::SYS_rt_sigsuspend, [0; 6]));
        for (number, with_mask) in [
            (libc::SYS_ppoll, [0, 0, 0, 64, 8, 0]),
            (libc::SYS_epoll_pwait, [0, 0, 0, 0, 64, 8]),
            (libc::SYS_epoll_pwait2, [0, 0, 0, 0, 64, 8]),
        ] {
            assert!(waits(number, with_mask) && !waits(number, [0; 6]));
        }
        let (some, none) = ([64u64, 8], [0u64, 8]);
        let of = |mask: &[u64; 2]| [0, 0, 0, 0, 0, mask.as_ptr() as u64];
        assert!(waits(libc::SYS_pselect6, of(&some)) && !waits(libc::SYS_pselect6, of(&none)));
        assert!(!waits(libc::SYS_pselect6, [0; 6]) && !waits(libc::SYS_poll, [0; 6]));
    }
}
