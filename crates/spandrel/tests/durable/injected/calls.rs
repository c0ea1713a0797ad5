//! System calls of one thread, and of those that it starts, that change files: counted, and failed on purpose.
//!
//! A filter of the kernel (seccomp) reports each of these calls to the thread that supervises, which has no filter. It answers for the kernel: the call goes on, or has an
//! error, or writes a part only. Filters are a thread's own. So all is one process, and other tests run beside it.

use std::mem::{size_of, zeroed};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_USER_NOTIF, c_int, c_long, sock_filter,
};

/// What happens to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing is done, and the error is reported.
    Error(c_int),
    /// All is done, and an error is reported: what a disk does whose answer is lost.
    Late(c_int),
    /// A write takes half of its bytes. Other calls go on.
    Short,
}

/// The calls from `first` on, up to `last`, have that fault. `then`: all later ones.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub first: u64,
    pub last: u64,
    pub fault: Fault,
    pub then: Option<Fault>,
}

impl Plan {
    /// One call fails.
    pub fn once(at: u64, fault: Fault) -> Self {
        Self { first: at, last: at, fault, then: None }
    }

    /// All calls fail from one on.
    pub fn from(at: u64, fault: Fault) -> Self {
        Self { last: u64::MAX, ..Self::once(at, fault) }
    }

    fn fault_of(&self, number: u64) -> Option<Fault> {
        match number {
            _ if number < self.first => None,
            _ if number <= self.last => Some(self.fault),
            _ => self.then,
        }
    }
}

/// What was seen of the calls.
#[derive(Clone, Default, Debug)]
pub struct Calls {
    /// All of them.
    pub count: u64,
    /// Those that had a fault, in words.
    pub faults: Vec<String>,
    /// The names of all, in order.
    pub names: Vec<&'static str>,
}

/// A scenario that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The calls that change files. Those that open files count if they make them or may write to them.
const CALLS: [(c_long, &str); 25] = [
    (libc::SYS_write, "write"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_pwritev, "pwritev"),
    (libc::SYS_pwritev2, "pwritev2"),
    (libc::SYS_copy_file_range, "copy_file_range"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_sync_file_range, "sync_file_range"),
    (libc::SYS_msync, "msync"),
    (libc::SYS_fallocate, "fallocate"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_truncate, "truncate"),
    (libc::SYS_rename, "rename"),
    (libc::SYS_renameat, "renameat"),
    (libc::SYS_renameat2, "renameat2"),
    (libc::SYS_link, "link"),
    (libc::SYS_linkat, "linkat"),
    (libc::SYS_unlink, "unlink"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_mkdir, "mkdir"),
    (libc::SYS_mkdirat, "mkdirat"),
    (libc::SYS_creat, "creat"),
    (libc::SYS_open, "open"),
    (libc::SYS_openat, "openat"),
];
/// Flags of an open that makes a file or may write to it.
const OPEN_FLAGS: u32 = (libc::O_CREAT | libc::O_WRONLY | libc::O_RDWR) as u32;

fn filter() -> Vec<sock_filter> {
    let statement =
        |code: u32, k: u32, jt: u8, jf: u8| sock_filter { code: code as u16, jt, jf, k };
    let load = |offset| statement(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0);
    let jump = |how: u32, k: u32, jt: u8, jf: u8| statement(BPF_JMP | how | BPF_K, k, jt, jf);
    let give = |what: u32| statement(BPF_RET | BPF_K, what, 0, 0);
    let mut program = vec![load(0)];
    for (call, name) in CALLS {
        // The arguments begin at byte 16, and the flags are the third of `openat`, the second of `open`.
        let flags = match name {
            "openat" => Some(16 + 16),
            "open" => Some(16 + 8),
            _ => None,
        };
        match flags {
            None => program.push(jump(BPF_JEQ, call as u32, 0, 1)),
            Some(at) => {
                program.push(jump(BPF_JEQ, call as u32, 0, 4));
                program.push(load(at));
                program.push(jump(BPF_JSET, OPEN_FLAGS, 1, 0));
                program.push(give(SECCOMP_RET_ALLOW));
            }
        }
        program.push(give(SECCOMP_RET_USER_NOTIF));
    }
    program.push(give(SECCOMP_RET_ALLOW));
    program
}

/// Has the calling thread's calls be reported. Returns where.
fn install() -> OwnedFd {
    let mut program = filter();
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program lives until the call returns; the descriptor is new.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let listener = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        );
        assert!(listener >= 0, "no filter: {}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(listener as RawFd)
    }
}

/// Runs `work` in a thread of its own whose calls are counted, and fail as planned. Ends when all threads have ended that it has started. `what` is said if it hangs.
pub fn supervise<T: Send>(
    plan: Option<Plan>,
    what: &str,
    work: impl FnOnce() -> T + Send,
) -> (T, Calls) {
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            sender.send(install()).unwrap();
            work()
        });
        let calls = answer(receiver.recv().unwrap(), plan, what);
        match worker.join() {
            Ok(done) => (done, calls),
            Err(_) => panic!("{what}: the program panics; {:?}", calls.faults),
        }
    })
}

fn answer(listener: OwnedFd, plan: Option<Plan>, what: &str) -> Calls {
    use std::os::fd::AsRawFd;
    let (mut calls, begun) = (Calls::default(), Instant::now());
    loop {
        let mut wait = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut wait, 1, 1000) };
        if wait.revents & libc::POLLIN != 0 {
            one(listener.as_raw_fd(), plan, &mut calls);
        } else if wait.revents & libc::POLLHUP != 0 {
            return calls;
        } else if begun.elapsed() > PATIENCE {
            // The threads that hang cannot be ended.
            eprintln!("{what}: hangs after {} calls; {:?}", calls.count, calls.faults);
            std::process::abort();
        }
    }
}

/// Answers one call.
fn one(listener: RawFd, plan: Option<Plan>, calls: &mut Calls) {
    // SAFETY: zeroes are values of the structures, whose length the kernel knows; the arguments are those of a thread of this process that waits.
    unsafe {
        let mut asked: libc::seccomp_notif = zeroed();
        if libc::ioctl(listener, RECEIVE, &raw mut asked) != 0 {
            return;
        }
        let mut reply: libc::seccomp_notif_resp = zeroed();
        reply.id = asked.id;
        reply.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let (number, arguments) = (c_long::from(asked.data.nr), asked.data.args);
        if let Some(name) = counted(number, &arguments) {
            calls.count += 1;
            calls.names.push(name);
            let fault = plan.and_then(|plan| plan.fault_of(calls.count));
            let answered = fault.and_then(|fault| outcome(fault, number, &arguments));
            if let Some((value, error)) = answered {
                (reply.flags, reply.val, reply.error) = (0, value, -error);
                calls.faults.push(format!("call {} ({name}): {fault:?}", calls.count));
            }
        }
        libc::ioctl(listener, SEND, &raw mut reply);
    }
}

/// `_IOWR('!', 0, struct seccomp_notif)` and `_IOWR('!', 1, struct seccomp_notif_resp)`.
const RECEIVE: libc::c_ulong = 0xc000_2100 | (size_of::<libc::seccomp_notif>() as u64) << 16;
const SEND: libc::c_ulong = 0xc000_2101 | (size_of::<libc::seccomp_notif_resp>() as u64) << 16;

/// The name of a call, if it counts: pipes, terminals and the like do not.
fn counted(number: c_long, arguments: &[u64; 6]) -> Option<&'static str> {
    let (_, name) = CALLS.into_iter().find(|(call, _)| *call == number)?;
    let by_path = name.contains("open")
        || ["rename", "link", "mkdir", "creat"].iter().any(|part| name.contains(part))
        || ["truncate", "msync"].contains(&name);
    if by_path {
        return Some(name);
    }
    // SAFETY: a structure of zeroes, which the call fills.
    let mode = unsafe {
        let mut status: libc::stat = zeroed();
        (libc::fstat(arguments[0] as c_int, &raw mut status) == 0).then_some(status.st_mode)
    };
    let kind = mode? & libc::S_IFMT;
    let is_output = arguments[0] <= 2;
    (!is_output && (kind == libc::S_IFREG || kind == libc::S_IFDIR)).then_some(name)
}

/// What the call returns: the value and the error. `None`: it goes on.
///
/// # Safety
/// The arguments are those of a thread of this process that waits.
unsafe fn outcome(fault: Fault, number: c_long, arguments: &[u64; 6]) -> Option<(i64, c_int)> {
    match fault {
        Fault::Error(error) => Some((0, error)),
        Fault::Late(error) => {
            // An open file that nothing knows of would keep a lock.
            if [libc::SYS_open, libc::SYS_openat, libc::SYS_creat].contains(&number) {
                return Some((0, error));
            }
            let [a, b, c, d, e, f] = *arguments;
            // SAFETY: promised by the caller; descriptors and memory are shared.
            unsafe { libc::syscall(number, a, b, c, d, e, f) };
            Some((0, error))
        }
        Fault::Short => {
            let [file, bytes, len, offset, ..] = *arguments;
            // A write past the page cache takes whole blocks.
            let half = if len >= 1024 { len / 2 / 512 * 512 } else { len / 2 };
            if half == 0 {
                return None;
            }
            // SAFETY: as above.
            let written = unsafe {
                match number {
                    libc::SYS_pwrite64 => libc::syscall(number, file, bytes, half, offset),
                    libc::SYS_write => libc::syscall(number, file, bytes, half),
                    _ => return None,
                }
            };
            (written > 0).then_some((written, 0))
        }
    }
}
