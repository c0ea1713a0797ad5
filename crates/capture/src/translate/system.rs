//! What system calls of a command write to its memory. The kernel's stores are no instructions: they are noted before the call.
//!
//! Fail closed: a call that is not known here is refused. So is one that would change the mappings of what is durable.

use super::peek;
use super::rewrite::Window;

/// What is to become of a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// It is made as it is.
    Made,
    /// It returns twice: the child goes on with the program's own code, and notes nothing.
    Forks,
    /// It may take the code away that lies in these bytes: addresses and lengths.
    Unmaps([(u64, u64); 2]),
    /// It would take the durable memory away.
    Takes,
    /// It is not known.
    Refused,
}

/// Bytes of what the kernel fills in.
const STAT: u64 = 144;
const STATX: u64 = 256;
const TIME: u64 = 16;
const ADDRESS: u64 = 128;
const USAGE: u64 = 144;
const INFO: u64 = 128;
const NAMES: u64 = 390;
const TIMER: u64 = 32;
const FILE_SYSTEM: u64 = 120;
const MESSAGE: u64 = 64;
const MOST_VECTORS: u64 = 1024;
const SHARES_MEMORY: u64 = libc::CLONE_VM as u64;
/// The kernel writes the child's number, or a descriptor of the child, for the parent.
const TELLS_NUMBER: u64 = libc::CLONE_PARENT_SETTID as u64;
const TELLS_DESCRIPTOR: u64 = libc::CLONE_PIDFD as u64;

/// Words of the process's own memory. `None`: they cannot be read, and the kernel cannot either.
fn words<const COUNT: usize>(at: u64) -> Option<[u64; COUNT]> {
    let mut bytes = [[0; 8]; COUNT];
    let len = size_of_val(&bytes);
    (peek(at, bytes.as_flattened_mut()) == len).then(|| bytes.map(u64::from_ne_bytes))
}

/// A vector of buffers, as the program has it in memory.
fn each_buffer(at: u64, count: u64, note: &mut dyn FnMut(u64, u64)) {
    let buffers = (0..count.min(MOST_VECTORS)).map_while(|number| words(at + number * 16));
    buffers.for_each(|[base, len]: [u64; 2]| note(base, len));
}

/// What has `fcntl` wait for a lock of another one.
const AWAITS_LOCK: [u64; 2] = [libc::F_SETLKW as u64, libc::F_OFD_SETLKW as u64];

/// What `fcntl` writes; `None`: it is not known.
fn file_control(what: u64) -> Option<u64> {
    const LOCK: u64 = 32;
    match i32::try_from(what).ok()? {
        libc::F_GETLK | libc::F_OFD_GETLK => Some(LOCK),
        libc::F_DUPFD
        | libc::F_DUPFD_CLOEXEC
        | libc::F_GETFD
        | libc::F_SETFD
        | libc::F_GETFL
        | libc::F_SETFL
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW
        | libc::F_GETOWN
        | libc::F_SETOWN
        | libc::F_GETPIPE_SZ
        | libc::F_SETPIPE_SZ
        | libc::F_ADD_SEALS
        | libc::F_GET_SEALS => Some(0),
        _ => None,
    }
}

/// What `ioctl` writes; `None`: it is not known. What its number says of that is not all for some.
fn device_control(what: u64) -> Option<u64> {
    const TIOCGPTN: u64 = 0x8004_5430;
    const TIOCSPTLCK: u64 = 0x4004_5431;
    match what {
        TIOCGPTN => return Some(4),
        TIOCSPTLCK => return Some(0),
        _ => {}
    }
    match what as libc::Ioctl {
        libc::TCGETS => Some(64),
        libc::TIOCGWINSZ | libc::FIONREAD => Some(8),
        libc::TCSETS
        | libc::TCSETSW
        | libc::TCSETSF
        | libc::TIOCSWINSZ
        | libc::FIONBIO
        | libc::FIOCLEX
        | libc::FIONCLEX => Some(0),
        _ => None,
    }
}

/// What `prctl` writes; `None`: it is not known.
fn process_control(what: u64) -> Option<u64> {
    const PR_SET_VMA: i32 = 0x5356_4d41;
    match i32::try_from(what).ok()? {
        libc::PR_GET_NAME => Some(16),
        libc::PR_GET_PDEATHSIG => Some(4),
        libc::PR_SET_NAME
        | libc::PR_SET_PDEATHSIG
        | libc::PR_GET_DUMPABLE
        | libc::PR_SET_DUMPABLE
        | libc::PR_SET_TIMERSLACK
        | libc::PR_GET_TIMERSLACK
        | libc::PR_SET_THP_DISABLE
        | libc::PR_GET_THP_DISABLE
        | libc::PR_SET_NO_NEW_PRIVS
        | libc::PR_GET_NO_NEW_PRIVS
        | libc::PR_CAPBSET_READ
        | PR_SET_VMA => Some(0),
        _ => None,
    }
}

/// Whether a file is one that threads tell each other something by: a pipe, a socket, an event. The three that a program begins with are not.
fn is_shared(file: u64) -> bool {
    let Some(file) = i32::try_from(file).ok().filter(|file| *file > 2) else { return false };
    // SAFETY: all zero is a record of nothing, which the call fills in.
    let kind = unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        if libc::fstat(file, &raw mut stat) != 0 {
            return false;
        }
        stat.st_mode & libc::S_IFMT
    };
    !matches!(kind, libc::S_IFREG | libc::S_IFDIR | libc::S_IFCHR | libc::S_IFBLK | libc::S_IFLNK)
}

/// Whether a system call begins, wakes or awaits another thread of the process.
pub fn meets(number: u64, [a, b, c, ..]: [u64; 6]) -> bool {
    let Ok(number) = i64::try_from(number) else { return false };
    match number {
        libc::SYS_futex
        | libc::SYS_sched_yield
        | libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_tkill
        | libc::SYS_tgkill
        | libc::SYS_kill
        | libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_flock
        // Its parent waits, and its stores are the parent's.
        | libc::SYS_vfork
        | libc::SYS_rt_sigtimedwait => true,
        libc::SYS_fcntl => AWAITS_LOCK.contains(&b),
        libc::SYS_splice | libc::SYS_sendfile => is_shared(a) || is_shared(if number == libc::SYS_splice { c } else { b }),
        // A record in memory has the flags.
        libc::SYS_clone3 => words(a).is_none_or(|[flags]: [u64; 1]| flags & SHARES_MEMORY != 0),
        libc::SYS_clone => a & SHARES_MEMORY != 0,
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_connect
        | libc::SYS_shutdown
        | libc::SYS_close => is_shared(a),
        _ => false,
    }
}

/// Tells of the system call of that number and those arguments. `note` is called with the address and the number of bytes of all that the kernel may write.
///
/// # Safety
/// The program makes the call next.
pub unsafe fn call(
    number: u64,
    [a, b, c, d, e, f]: [u64; 6],
    window: Window,
    note: &mut dyn FnMut(u64, u64),
) -> Call {
    let _ = f;
    let Ok(number) = i64::try_from(number) else { return Call::Refused };
    let changes = |at: u64, bytes: u64| match window.has(at, bytes.max(1)) {
        true => Call::Takes,
        false => Call::Unmaps([(at, bytes), (at, 0)]),
    };
    match number {
        // Buffers.
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_readlink | libc::SYS_getdents64 => {
            note(b, c)
        }
        libc::SYS_readlinkat => note(c, d),
        libc::SYS_getrandom | libc::SYS_getcwd => note(a, b),
        libc::SYS_recvfrom => {
            [(b, c), (e, ADDRESS), (f, 4)].iter().for_each(|(at, len)| note(*at, *len))
        }
        libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => each_buffer(b, c, note),
        libc::SYS_recvmsg => {
            // The address, its length, the vector, its length, other data, their length, flags.
            if let Some([name, _, vector, count, control, control_len, _]) = words(b) {
                let parts = [(b, 56), (name, ADDRESS), (control, control_len)];
                parts.iter().for_each(|(at, len)| note(*at, *len));
                each_buffer(vector, count, note);
            }
        }
        libc::SYS_sched_getaffinity => note(c, b),
        // Records.
        libc::SYS_fstat | libc::SYS_stat | libc::SYS_lstat => note(b, STAT),
        libc::SYS_newfstatat => note(c, STAT),
        libc::SYS_statx => note(e, STATX),
        libc::SYS_clock_gettime
        | libc::SYS_clock_getres
        | libc::SYS_nanosleep
        | libc::SYS_getrlimit => {
            note(b, TIME);
        }
        libc::SYS_clock_nanosleep | libc::SYS_prlimit64 => note(d, TIME),
        libc::SYS_gettimeofday => [(a, TIME), (b, 8)].iter().for_each(|(at, len)| note(*at, *len)),
        libc::SYS_time => note(a, 8),
        libc::SYS_getresuid | libc::SYS_getresgid => {
            [a, b, c].iter().for_each(|at| note(*at, 4));
        }
        // The version that the kernel prefers, and two parts of three words each.
        libc::SYS_capget => [(a, 8), (b, 24)].iter().for_each(|(at, len)| note(*at, *len)),
        libc::SYS_getcpu => [(a, 4), (b, 4)].iter().for_each(|(at, len)| note(*at, *len)),
        libc::SYS_uname => note(a, NAMES),
        libc::SYS_sysinfo | libc::SYS_times => note(a, INFO),
        libc::SYS_getrusage => note(b, USAGE),
        libc::SYS_wait4 => [(b, 4), (d, USAGE)].iter().for_each(|(at, len)| note(*at, *len)),
        libc::SYS_waitid => [(c, INFO), (e, USAGE)].iter().for_each(|(at, len)| note(*at, *len)),
        libc::SYS_mincore => note(c, b.div_ceil(4096)),
        libc::SYS_pipe | libc::SYS_pipe2 => note(a, 8),
        libc::SYS_socketpair => note(d, 8),
        libc::SYS_accept | libc::SYS_accept4 | libc::SYS_getsockname | libc::SYS_getpeername => {
            [(b, ADDRESS), (c, 4)].iter().for_each(|(at, len)| note(*at, *len));
        }
        libc::SYS_getsockopt => {
            let mut len = [0; 4];
            if peek(e, &mut len) == len.len() {
                note(d, u32::from_ne_bytes(len).into());
                note(e, 4);
            }
        }
        libc::SYS_poll => note(a, b.saturating_mul(8)),
        libc::SYS_ppoll => {
            [(a, b.saturating_mul(8)), (c, TIME)].iter().for_each(|(at, len)| note(*at, *len));
        }
        libc::SYS_select | libc::SYS_pselect6 => {
            let set = a.div_ceil(64) * 8;
            [(b, set), (c, set), (d, set), (e, TIME)].iter().for_each(|(at, len)| note(*at, *len));
        }
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
            note(b, c.saturating_mul(12));
        }
        libc::SYS_setitimer => note(c, TIMER),
        libc::SYS_getitimer | libc::SYS_timerfd_gettime => note(b, TIMER),
        libc::SYS_timerfd_settime => note(d, TIMER),
        libc::SYS_statfs | libc::SYS_fstatfs => note(b, FILE_SYSTEM),
        libc::SYS_getgroups => note(b, a.saturating_mul(4)),
        libc::SYS_copy_file_range | libc::SYS_splice => [b, d].iter().for_each(|at| note(*at, 8)),
        libc::SYS_sendmmsg => note(b, c.saturating_mul(MESSAGE)),
        libc::SYS_rt_sigtimedwait => note(b, INFO),
        libc::SYS_rt_sigaction => note(c, 32),
        libc::SYS_sigaltstack => note(b, 24),
        libc::SYS_sendfile => note(c, 8),
        libc::SYS_fcntl | libc::SYS_ioctl | libc::SYS_prctl => {
            let (known, to) = match number {
                libc::SYS_fcntl => (file_control(b), c),
                libc::SYS_ioctl => (device_control(b), c),
                _ => (process_control(a), b),
            };
            match known {
                Some(bytes) => note(to, bytes),
                None => return Call::Refused,
            }
        }
        libc::SYS_futex => [(a, 4), (e, 4)].iter().for_each(|(at, len)| note(*at, *len)),
        // Of `gs`, which is the translator's meanwhile, it is refused.
        libc::SYS_arch_prctl if a == 0x1003 => note(b, 8),
        // Mappings.
        libc::SYS_mmap | libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_madvise => {
            return changes(a, b);
        }
        libc::SYS_mremap => {
            // Without the flag the last argument means nothing.
            let to = if d & libc::MREMAP_FIXED as u64 != 0 { (e, c) } else { (a, 0) };
            return match (changes(a, b), changes(to.0, to.1)) {
                (Call::Takes, _) => Call::Takes,
                (_, Call::Takes) if to.1 != 0 => Call::Takes,
                _ => Call::Unmaps([(a, b), to]),
            };
        }
        libc::SYS_fork | libc::SYS_vfork => return Call::Forks,
        // The number of the child, or a descriptor of it.
        libc::SYS_clone => {
            if a & (TELLS_NUMBER | TELLS_DESCRIPTOR) != 0 {
                note(c, 4);
            }
            return Call::Forks;
        }
        libc::SYS_clone3 => {
            let Some([flags, descriptor, _, number]) = words(a) else { return Call::Refused };
            let told = [(TELLS_DESCRIPTOR, descriptor), (TELLS_NUMBER, number)];
            let told = told.iter().filter(|(flag, _)| flags & flag != 0);
            told.for_each(|(_, at)| note(*at, 4));
            return Call::Forks;
        }
        // What writes nothing.
        libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_writev
        | libc::SYS_pwritev
        | libc::SYS_pwritev2
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_open
        | libc::SYS_openat
        | libc::SYS_creat
        | libc::SYS_close
        | libc::SYS_lseek
        | libc::SYS_access
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_dup
        | libc::SYS_dup2
        | libc::SYS_dup3
        | libc::SYS_brk
        | libc::SYS_sched_yield
        | libc::SYS_getpid
        | libc::SYS_gettid
        | libc::SYS_getppid
        | libc::SYS_getuid
        | libc::SYS_geteuid
        | libc::SYS_getgid
        | libc::SYS_getegid
        | libc::SYS_kill
        | libc::SYS_tkill
        | libc::SYS_tgkill
        | libc::SYS_exit_group
        | libc::SYS_execve
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_ftruncate
        | libc::SYS_truncate
        | libc::SYS_fallocate
        | libc::SYS_flock
        | libc::SYS_rename
        | libc::SYS_renameat
        | libc::SYS_renameat2
        | libc::SYS_unlink
        | libc::SYS_unlinkat
        | libc::SYS_mkdir
        | libc::SYS_mkdirat
        | libc::SYS_rmdir
        | libc::SYS_chdir
        | libc::SYS_chmod
        | libc::SYS_fchmod
        | libc::SYS_umask
        | libc::SYS_chown
        | libc::SYS_fchown
        | libc::SYS_lchown
        | libc::SYS_fchownat
        | libc::SYS_fchmodat
        | libc::SYS_fchdir
        | libc::SYS_link
        | libc::SYS_linkat
        | libc::SYS_symlink
        | libc::SYS_symlinkat
        | libc::SYS_mknod
        | libc::SYS_mknodat
        | libc::SYS_utime
        | libc::SYS_utimes
        | libc::SYS_utimensat
        | libc::SYS_timerfd_create
        | libc::SYS_sched_setaffinity
        | libc::SYS_close_range
        | libc::SYS_getpgrp
        | libc::SYS_getpgid
        | libc::SYS_getsid
        | libc::SYS_setsid
        | libc::SYS_setpgid
        | libc::SYS_getpriority
        | libc::SYS_setpriority
        | libc::SYS_socket
        | libc::SYS_connect
        | libc::SYS_bind
        | libc::SYS_listen
        | libc::SYS_shutdown
        | libc::SYS_setsockopt
        | libc::SYS_epoll_create1
        | libc::SYS_epoll_ctl
        | libc::SYS_eventfd2
        | libc::SYS_memfd_create
        | libc::SYS_membarrier
        | libc::SYS_set_robust_list
        | libc::SYS_personality
        | libc::SYS_alarm
        | libc::SYS_msync
        | libc::SYS_mlock
        | libc::SYS_munlock
        | libc::SYS_fadvise64
        | libc::SYS_sync_file_range
        | libc::SYS_restart_syscall => {}
        _ => return Call::Refused,
    }
    Call::Made
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;
    use std::vec;

    const WINDOW: u64 = 1 << 40;

    fn told(number: i64, arguments: [u64; 6]) -> (Call, Vec<(u64, u64)>) {
        let mut noted = vec![];
        let window = Window::new(WINDOW, 1 << 20);
        // SAFETY: none of the arguments leads to memory that is read.
        let call =
            unsafe { call(number as u64, arguments, window, &mut |at, len| noted.push((at, len))) };
        (call, noted)
    }

    #[test]
    fn what_is_read_is_noted_and_what_is_not_known_is_refused() {
        assert_eq!(told(libc::SYS_read, [0, 5, 7, 0, 0, 0]), (Call::Made, vec![(5, 7)]));
        assert_eq!(told(libc::SYS_write, [0, 5, 7, 0, 0, 0]), (Call::Made, vec![]));
        for number in [libc::SYS_io_uring_enter, libc::SYS_rt_sigreturn, 9999, -1] {
            assert_eq!(told(number, [0; 6]).0, Call::Refused, "{number}");
        }
        let of = |call: i64, what: u64| told(call, [0, what, 7, 0, 0, 0]);
        assert_eq!(of(libc::SYS_ioctl, 0x8004_5430), (Call::Made, vec![(7, 4)]));
        assert_eq!(of(libc::SYS_ioctl, 0x4004_5431), (Call::Made, vec![(7, 0)]));
        // FS_IOC_FIEMAP writes more than its number says; F_GETOWN_EX; PR_GET_AUXV.
        assert_eq!(of(libc::SYS_ioctl, 0xc020_660b).0, Call::Refused);
        assert_eq!(of(libc::SYS_fcntl, 16).0, Call::Refused);
        assert_eq!(told(libc::SYS_prctl, [0x4155_5856, 7, 400, 0, 0, 0]).0, Call::Refused);
        assert_eq!(told(libc::SYS_select, [3000, 0, 8, 0, 0, 0]).1[1], (8, 376));
        assert_eq!(told(libc::SYS_sendfile, [1, 2, 64, 9, 0, 0]).1, [(64, 8)]);
        assert_eq!(told(libc::SYS_setitimer, [0, 1, 64, 0, 0, 0]), (Call::Made, vec![(64, 32)]));
        assert_eq!(told(libc::SYS_fchown, [3, 0, 0, 0, 0, 0]), (Call::Made, vec![]));
        assert_eq!(told(libc::SYS_fork, [0; 6]).0, Call::Forks);
        let clone = |flags: i32| told(libc::SYS_clone, [flags as u64, 0, 64, 0, 0, 0]);
        assert_eq!(clone(libc::CLONE_PIDFD | 17), (Call::Forks, vec![(64, 4)]));
        assert_eq!(clone(17), (Call::Forks, vec![]));
        let record = [TELLS_DESCRIPTOR | TELLS_NUMBER, 64, 72, 80];
        let told = told(libc::SYS_clone3, [&raw const record as u64, 88, 0, 0, 0, 0]);
        assert_eq!(told, (Call::Forks, vec![(64, 4), (80, 4)]));
    }

    #[test]
    fn calls_that_meet_other_threads_are_known() {
        let meets = |number: i64, a: u64| meets(number as u64, [a, 0, 0, 0, 0, 0]);
        assert!(meets(libc::SYS_futex, 0) && meets(libc::SYS_sched_yield, 0));
        let thread = libc::CLONE_VM | libc::CLONE_THREAD;
        assert!(meets(libc::SYS_clone, thread as u64) && !meets(libc::SYS_clone, 17));
        let (thread, process) = ([thread as u64; 11], [0u64; 11]);
        assert!(meets(libc::SYS_clone3, &raw const thread as u64));
        assert!(!meets(libc::SYS_clone3, &raw const process as u64));
        let mut pipe = [0; 2];
        // SAFETY: a local array.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        assert!(meets(libc::SYS_write, pipe[1] as u64) && meets(libc::SYS_read, pipe[0] as u64));
        // SAFETY: made above.
        pipe.iter().for_each(|file| assert_eq!(unsafe { libc::close(*file) }, 0));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let file = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert!(!meets(libc::SYS_read, file as u64) && !meets(libc::SYS_write, 1));
        assert!(meets(libc::SYS_vfork, 0) && meets(libc::SYS_flock, 3));
        assert!(!meets(libc::SYS_getpid, 0) && !meets(u64::MAX as i64, 0));
    }

    #[test]
    fn the_window_stays_mapped() {
        for number in [libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_madvise, libc::SYS_mmap] {
            let beside = told(number, [WINDOW - 4096, 4096, 0, 0, 0, 0]).0;
            assert_eq!(beside, Call::Unmaps([(WINDOW - 4096, 4096), (WINDOW - 4096, 0)]));
            assert_eq!(told(number, [WINDOW - 4096, 8192, 0, 0, 0, 0]).0, Call::Takes);
        }
        let moved = [1 << 30, 4096, 4096, 3, WINDOW, 0];
        assert_eq!(told(libc::SYS_mremap, moved).0, Call::Takes);
        // Without MREMAP_FIXED the fifth argument is whatever the register has.
        let moved = [1 << 30, 4096, 4096, 1, WINDOW, 0];
        let taken = Call::Unmaps([(1 << 30, 4096), (1 << 30, 0)]);
        assert_eq!(told(libc::SYS_mremap, moved).0, taken);
        let moved = [1 << 30, 4096, 8192, 3, 1 << 31, 0];
        assert_eq!(
            told(libc::SYS_mremap, moved).0,
            Call::Unmaps([(1 << 30, 4096), (1 << 31, 8192)])
        );
    }

    #[test]
    fn each_buffer_of_a_vector_is_noted() {
        let vector = [[10u64, 20], [30, 40]];
        let at = &raw const vector as u64;
        assert_eq!(told(libc::SYS_readv, [0, at, 2, 0, 0, 0]).1, [(10, 20), (30, 40)]);
    }
}
