//! A call is carried out for the thread that waits for it, which may be another process's: with copies of its descriptors, paths and bytes.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{EINTR, c_int, c_long, iovec};

use crate::Fault;
use crate::calls::{Argument, Call};

/// What the call returns: the value and the error. `None`: it goes on.
pub fn outcome(fault: Fault, call: &Call) -> Option<(i64, c_int)> {
    let opens = [libc::SYS_open, libc::SYS_openat, libc::SYS_creat, libc::SYS_mmap];
    match fault {
        // No signal interrupts a mapping.
        Fault::Error(EINTR) if call.number() == libc::SYS_mmap => None,
        Fault::Error(error) => Some((0, error)),
        // An open file that nothing knows of would keep a lock.
        Fault::Late(error) if opens.contains(&call.number()) => Some((0, error)),
        Fault::Late(error) => {
            Copy::of(call, u64::MAX).carry_out(call.number());
            Some((0, error))
        }
        Fault::Short => {
            let len = call.arguments()[2];
            // A write past the page cache takes whole blocks.
            let half = if len >= 1024 { len / 2 / 512 * 512 } else { len / 2 };
            let is_write = call.kind().arguments.contains(&Argument::Bytes);
            if !is_write || half == 0 {
                return None;
            }
            let written = Copy::of(call, half).carry_out(call.number());
            (written > 0).then_some((written, 0))
        }
    }
}

/// The arguments of a call as this process has them.
struct Copy {
    arguments: [u64; 6],
    _files: Vec<OwnedFd>,
    _paths: Vec<CString>,
    _pages: Vec<Vec<Page>>,
}

/// A write past the page cache has its bytes on whole pages.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

impl Copy {
    /// Of a call that writes no more than `most` bytes.
    fn of(call: &Call, most: u64) -> Self {
        let mut arguments = call.arguments();
        let (mut files, mut paths, mut pages) = (Vec::new(), Vec::new(), Vec::new());
        for (at, argument) in call.kind().arguments.iter().enumerate() {
            let given = arguments[at];
            arguments[at] = match argument {
                Argument::Number => given,
                Argument::File | Argument::Directory => {
                    files.push(file_of(call, given as c_int));
                    files.last().map_or(0, |file| file.as_raw_fd() as u64)
                }
                Argument::Path => {
                    let path = path_of(call, given, at);
                    paths.push(path);
                    paths.last().map_or(0, |path| path.as_ptr() as u64)
                }
                Argument::Bytes => {
                    let len = arguments[at + 1].min(most);
                    arguments[at + 1] = len;
                    pages.push(bytes_of(call, given, len));
                    pages.last().map_or(0, |pages| pages.as_ptr() as u64)
                }
                Argument::Address => {
                    assert!(call.is_own(), "a call that only its own process can make");
                    given
                }
            };
        }
        Self { arguments, _files: files, _paths: paths, _pages: pages }
    }

    fn carry_out(&self, number: c_long) -> i64 {
        let [a, b, c, d, e, f] = self.arguments;
        // SAFETY: descriptors, paths and bytes are copies that live as long as this; addresses are those of a thread of this process that waits.
        unsafe { libc::syscall(number, a, b, c, d, e, f) }
    }
}

/// The open file of a descriptor, with its offset; for `AT_FDCWD` the directory of the thread.
fn file_of(call: &Call, descriptor: c_int) -> OwnedFd {
    let thread = call.thread();
    if descriptor == libc::AT_FDCWD {
        return File::open(format!("/proc/{thread}/cwd")).expect("the directory").into();
    }
    let status = fs::read_to_string(format!("/proc/{thread}/status")).expect("a process");
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let process: c_int = process.and_then(|text| text.trim().parse().ok()).expect("its number");
    // SAFETY: calls without memory; each descriptor is new.
    unsafe {
        let handle = libc::syscall(libc::SYS_pidfd_open, process, 0);
        assert!(handle >= 0, "no handle: {}", std::io::Error::last_os_error());
        let handle = OwnedFd::from_raw_fd(handle as c_int);
        let file = libc::syscall(libc::SYS_pidfd_getfd, handle.as_raw_fd(), descriptor, 0);
        assert!(file >= 0, "no copy of a descriptor: {}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(file as c_int)
    }
}

/// Memory of the thread's process. Returns how many bytes could be read.
fn read(call: &Call, from: u64, to: &mut [u8]) -> usize {
    let local = iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = iovec { iov_base: from as *mut _, iov_len: to.len() };
    let thread = call.thread() as c_int;
    // SAFETY: the bytes are as many as the first entry says; the kernel checks the other one.
    let read =
        unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).expect("memory of the program")
}

/// A path; one that begins nowhere is that of the thread's directory.
fn path_of(call: &Call, from: u64, at: usize) -> CString {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while read(call, from + bytes.len() as u64, &mut byte) == 1 && byte[0] != 0 {
        bytes.push(byte[0]);
    }
    let has_directory = at > 0 && call.kind().arguments[at - 1] == Argument::Directory;
    if !has_directory && !bytes.starts_with(b"/") {
        bytes.splice(0..0, format!("/proc/{}/cwd/", call.thread()).into_bytes());
    }
    CString::new(bytes).expect("a path")
}

fn bytes_of(call: &Call, from: u64, len: u64) -> Vec<Page> {
    let len = len as usize;
    let mut pages = vec![Page([0; 4096]); len.div_ceil(4096)];
    // SAFETY: pages are bytes without gaps, and there are enough of them.
    let bytes = unsafe { std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast::<u8>(), len) };
    let mut done = 0;
    while done < len {
        let read = read(call, from + done as u64, &mut bytes[done..]);
        assert!(read > 0, "memory of the program");
        done += read;
    }
    pages
}
