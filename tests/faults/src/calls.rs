//! The calls that change files, the filter that reports them, and a call that was reported.

use std::fs;
use std::mem::{size_of, zeroed};
use std::os::fd::RawFd;
use std::path::PathBuf;

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_USER_NOTIF, c_int, c_long, sock_filter,
};

/// What a call has as an argument.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// A number, or nothing.
    Number,
    /// An open file.
    File,
    /// The directory that the path behind it begins at.
    Directory,
    /// A path.
    Path,
    /// Bytes to be written. The argument behind it is their number.
    Bytes,
    /// An address, which means something in the process alone.
    Address,
}
use Argument::{Address, Bytes, Directory, File, Number, Path};

/// A call that changes files.
pub struct Kind {
    number: c_long,
    name: &'static str,
    /// The arguments; those behind them are numbers.
    pub arguments: &'static [Argument],
    /// It counts if one of these bits is set in that argument.
    only: Option<(u32, u32)>,
}

const fn kind(number: c_long, name: &'static str, arguments: &'static [Argument]) -> Kind {
    Kind { number, name, arguments, only: None }
}

const fn only(kind: Kind, argument: u32, bits: c_int) -> Kind {
    Kind { only: Some((argument, bits as u32)), ..kind }
}

/// Flags of an open that makes a file or may write to it.
const OPEN_FLAGS: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_RDWR;

/// Opens count that make files or may write to them, and mappings of files that others share, with stores or code.
const CALLS: [Kind; 26] = [
    kind(libc::SYS_write, "write", &[File, Bytes]),
    kind(libc::SYS_writev, "writev", &[File, Address]),
    kind(libc::SYS_pwrite64, "pwrite64", &[File, Bytes]),
    kind(libc::SYS_pwritev, "pwritev", &[File, Address]),
    kind(libc::SYS_pwritev2, "pwritev2", &[File, Address]),
    kind(libc::SYS_copy_file_range, "copy_file_range", &[File, Address, File, Address]),
    kind(libc::SYS_fsync, "fsync", &[File]),
    kind(libc::SYS_fdatasync, "fdatasync", &[File]),
    kind(libc::SYS_sync_file_range, "sync_file_range", &[File]),
    kind(libc::SYS_msync, "msync", &[Address]),
    kind(libc::SYS_fallocate, "fallocate", &[File]),
    kind(libc::SYS_ftruncate, "ftruncate", &[File]),
    kind(libc::SYS_truncate, "truncate", &[Path]),
    kind(libc::SYS_rename, "rename", &[Path, Path]),
    kind(libc::SYS_renameat, "renameat", &[Directory, Path, Directory, Path]),
    kind(libc::SYS_renameat2, "renameat2", &[Directory, Path, Directory, Path]),
    kind(libc::SYS_link, "link", &[Path, Path]),
    kind(libc::SYS_linkat, "linkat", &[Directory, Path, Directory, Path]),
    kind(libc::SYS_unlink, "unlink", &[Path]),
    kind(libc::SYS_unlinkat, "unlinkat", &[Directory, Path]),
    kind(libc::SYS_mkdir, "mkdir", &[Path]),
    kind(libc::SYS_mkdirat, "mkdirat", &[Directory, Path]),
    kind(libc::SYS_creat, "creat", &[Path]),
    only(kind(libc::SYS_open, "open", &[Path]), 1, OPEN_FLAGS),
    only(kind(libc::SYS_openat, "openat", &[Directory, Path]), 2, OPEN_FLAGS),
    only(
        kind(libc::SYS_mmap, "mmap", &[Address, Number, Number, Number, File]),
        3,
        libc::MAP_SHARED,
    ),
];

/// What has the kernel report these calls.
pub fn filter() -> Vec<sock_filter> {
    let statement =
        |code: u32, k: u32, jt: u8, jf: u8| sock_filter { code: code as u16, jt, jf, k };
    let load = |offset| statement(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0);
    let jump = |how: u32, k: u32, jt: u8, jf: u8| statement(BPF_JMP | how | BPF_K, k, jt, jf);
    let give = |what: u32| statement(BPF_RET | BPF_K, what, 0, 0);
    let mut program = vec![load(0)];
    for Kind { number, only, .. } in &CALLS {
        match only {
            None => program.push(jump(BPF_JEQ, *number as u32, 0, 1)),
            Some((argument, bits)) => {
                program.push(jump(BPF_JEQ, *number as u32, 0, 4));
                // The arguments begin at byte 16.
                program.push(load(16 + 8 * argument));
                program.push(jump(BPF_JSET, *bits, 1, 0));
                program.push(give(SECCOMP_RET_ALLOW));
            }
        }
        program.push(give(SECCOMP_RET_USER_NOTIF));
    }
    program.push(give(SECCOMP_RET_ALLOW));
    program
}

/// A call that waits for its answer.
pub struct Call {
    asked: libc::seccomp_notif,
}

/// `_IOWR('!', 0, struct seccomp_notif)` and `_IOWR('!', 1, struct seccomp_notif_resp)`.
const RECEIVE: libc::c_ulong = 0xc000_2100 | (size_of::<libc::seccomp_notif>() as u64) << 16;
const SEND: libc::c_ulong = 0xc000_2101 | (size_of::<libc::seccomp_notif_resp>() as u64) << 16;

impl Call {
    /// The next one. `None`: its thread was interrupted.
    pub fn receive(listener: RawFd) -> Option<Self> {
        // SAFETY: zeroes are a value of the structure, whose length the kernel knows.
        unsafe {
            let mut asked: libc::seccomp_notif = zeroed();
            (libc::ioctl(listener, RECEIVE, &raw mut asked) == 0).then_some(Self { asked })
        }
    }

    /// The answer that the kernel does what the call says.
    pub fn goes_on(&self) -> libc::seccomp_notif_resp {
        // SAFETY: zeroes are a value of the structure.
        let mut reply: libc::seccomp_notif_resp = unsafe { zeroed() };
        reply.id = self.asked.id;
        reply.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        reply
    }

    /// Answers.
    pub fn reply(listener: RawFd, reply: &mut libc::seccomp_notif_resp) {
        // SAFETY: a structure whose length the kernel knows.
        unsafe { libc::ioctl(listener, SEND, &raw mut *reply) };
    }

    /// The thread that waits.
    pub fn thread(&self) -> u32 {
        self.asked.pid
    }

    /// Whether it is one of this process.
    pub fn is_own(&self) -> bool {
        fs::exists(format!("/proc/self/task/{}", self.thread())).unwrap_or(false)
    }

    /// The number of the call.
    pub fn number(&self) -> c_long {
        c_long::from(self.asked.data.nr)
    }

    /// Its arguments.
    pub fn arguments(&self) -> [u64; 6] {
        self.asked.data.args
    }

    /// What is known of the call.
    pub fn kind(&self) -> &'static Kind {
        CALLS.iter().find(|kind| kind.number == self.number()).expect("a call of the filter")
    }

    /// What the descriptors of the thread lead to.
    pub fn path_of(&self, descriptor: u64) -> PathBuf {
        format!("/proc/{}/fd/{}", self.thread(), descriptor as c_int).into()
    }

    /// The name of the call, if it counts: those of pipes, terminals and the like do not.
    pub fn counted(&self) -> Option<&'static str> {
        let kind = self.kind();
        let file = kind.arguments.iter().position(|argument| *argument == File);
        let Some(at) = file else { return Some(kind.name) };
        let descriptor = self.arguments()[at];
        let found = fs::metadata(self.path_of(descriptor)).ok()?.file_type();
        let is_output = descriptor <= 2;
        // A table that is only read, as of a locale, has nothing to lose.
        let access = (libc::PROT_WRITE | libc::PROT_EXEC) as u64;
        if kind.name == "mmap" && self.arguments()[2] & access == 0 {
            return None;
        }
        (!is_output && (found.is_file() || found.is_dir())).then_some(kind.name)
    }
}
