//! Functions of the C library that send, wait, or begin a process: before they do, the batch of the thread is committed.
//!
//! So what a program sends was durable before, by whatever way its replies go; and all commands that it runs between two of these functions are one batch.

use std::ffi::{c_int, c_uint, c_void};

use libc::{
    epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pid_t, pollfd, sigset_t, size_t,
    sockaddr, socklen_t, ssize_t, timespec, timeval,
};

use crate::memory::Next;
use crate::{batch, point};

/// Functions with the C library's names and arguments.
macro_rules! outputs {
    ($first:expr; $($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = "Commits the batch of the thread first."]
            ///
            /// # Safety
            /// As for the C library's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                static NEXT: Next = Next::new(match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                });
                $first;
                // SAFETY: the next function of that name; promised by the caller.
                unsafe { std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> $result>(NEXT.get())($($argument),*) }
            }
        )*
    };
}

outputs! {
    batch::commit();
    write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t;
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    send(fd: c_int, bytes: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    sendto(fd: c_int, bytes: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t) -> ssize_t;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int) -> c_int;
    sendfile(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t;
    sendfile64(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t;
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    select(count: c_int, reads: *mut fd_set, writes: *mut fd_set, errors: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect(count: c_int, reads: *mut fd_set, writes: *mut fd_set, errors: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, bytes: size_t) -> c_int;
    __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, bytes: size_t) -> c_int;
    nanosleep(time: *const timespec, left: *mut timespec) -> c_int;
    usleep(time: c_uint) -> c_int;
    pause() -> c_int;
    sigsuspend(mask: *const sigset_t) -> c_int;
    fork() -> pid_t;
}

outputs! {
    {
        batch::commit();
        point::await_requests();
    };
    epoll_wait(fd: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
    epoll_pwait(fd: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
}
