//! Functions of the C library that send, wait, begin a process or a thread, or are about the thread's mask of signals: before they do, the batch of the thread is committed. While it is
//! open, signals are held.
//!
//! So what a program sends by one of these was durable before; and all commands that it runs between two of these functions are one batch.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use libc::{
    FILE, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pid_t, pollfd,
    posix_spawn_file_actions_t, posix_spawnattr_t, pthread_attr_t, pthread_t, rusage, sem_t,
    siginfo_t, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
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
    nanosleep(time: *const timespec, left: *mut timespec) -> c_int;
    clock_nanosleep(clock: c_int, flags: c_int, time: *const timespec, left: *mut timespec) -> c_int;
    sleep(seconds: c_uint) -> c_uint;
    usleep(time: c_uint) -> c_int;
    pause() -> c_int;
    sigsuspend(mask: *const sigset_t) -> c_int;
    fork() -> pid_t;
    pthread_create(thread: *mut pthread_t, attributes: *const pthread_attr_t, start: *mut c_void, argument: *mut c_void) -> c_int;
    posix_spawn(child: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, words: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    posix_spawnp(child: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, words: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    daemon(keeps_directory: c_int, keeps_descriptors: c_int) -> c_int;
    execv(path: *const c_char, words: *const *const c_char) -> c_int;
    execve(path: *const c_char, words: *const *const c_char, environment: *const *const c_char) -> c_int;
    execvp(file: *const c_char, words: *const *const c_char) -> c_int;
    execvpe(file: *const c_char, words: *const *const c_char, environment: *const *const c_char) -> c_int;
    fexecve(fd: c_int, words: *const *const c_char, environment: *const *const c_char) -> c_int;
    wait(status: *mut c_int) -> pid_t;
    wait3(status: *mut c_int, options: c_int, used: *mut rusage) -> pid_t;
    wait4(child: pid_t, status: *mut c_int, options: c_int, used: *mut rusage) -> pid_t;
    waitid(kind: c_int, child: c_uint, about: *mut siginfo_t, options: c_int) -> c_int;
    sem_timedwait(semaphore: *mut sem_t, time: *const timespec) -> c_int;
    msgrcv(queue: c_int, message: *mut c_void, len: size_t, kind: c_long, flags: c_int) -> ssize_t;
    mq_receive(queue: c_int, bytes: *mut c_char, len: size_t, priority: *mut c_uint) -> ssize_t;
    mq_timedsend(queue: c_int, bytes: *const c_char, len: size_t, priority: c_uint, time: *const timespec) -> c_int;
    pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t;
    pwritev2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    waitpid(child: pid_t, status: *mut c_int, options: c_int) -> pid_t;
    sem_wait(semaphore: *mut sem_t) -> c_int;
    pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int;
    sigwait(signals: *const sigset_t, signal: *mut c_int) -> c_int;
    sigwaitinfo(signals: *const sigset_t, about: *mut siginfo_t) -> c_int;
    sigtimedwait(signals: *const sigset_t, about: *mut siginfo_t, time: *const timespec) -> c_int;
    pwrite(fd: c_int, bytes: *const c_void, len: size_t, at: off_t) -> ssize_t;
    pwrite64(fd: c_int, bytes: *const c_void, len: size_t, at: off_t) -> ssize_t;
    pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t;
    splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    vmsplice(to: c_int, parts: *const iovec, count: size_t, flags: c_uint) -> ssize_t;
    mq_send(queue: c_int, bytes: *const c_char, len: size_t, priority: c_uint) -> c_int;
    msgsnd(queue: c_int, message: *const c_void, len: size_t, flags: c_int) -> c_int;
    fflush(stream: *mut FILE) -> c_int;
    fclose(stream: *mut FILE) -> c_int;
    system(command: *const c_char) -> c_int;
    popen(command: *const c_char, kind: *const c_char) -> *mut FILE;
    pthread_sigmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int;
    sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int;
}

/// Functions with a descriptor as the first argument, at which the thread may wait.
macro_rules! inputs {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(outputs! { batch::before_reading(fd); $name(fd: c_int $(, $argument: $type)*) -> $result; })*
    };
}

inputs! {
    read(bytes: *mut c_void, len: size_t) -> ssize_t;
    readv(parts: *const iovec, count: c_int) -> ssize_t;
    recv(bytes: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    recvfrom(bytes: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> ssize_t;
    recvmsg(message: *mut msghdr, flags: c_int) -> ssize_t;
    accept(address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    accept4(address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    connect(address: *const sockaddr, len: socklen_t) -> c_int;
    __read_chk(bytes: *mut c_void, len: size_t, room: size_t) -> ssize_t;
    __recv_chk(bytes: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t;
    __recvfrom_chk(bytes: *mut c_void, len: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> ssize_t;
    recvmmsg(messages: *mut mmsghdr, count: c_uint, flags: c_int, time: *mut timespec) -> c_int;
}

/// Functions that read from a stream, the last argument: the C library reads from its descriptor by a name of its own.
macro_rules! streams {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(outputs! {
            // SAFETY: the stream is open, as the function's caller promises.
            batch::before_reading(unsafe { libc::fileno(stream) });
            $name($($argument: $type,)* stream: *mut FILE) -> $result;
        })*
    };
}

streams! {
    fgets(line: *mut c_char, room: c_int) -> *mut c_char;
    __fgets_chk(line: *mut c_char, size: size_t, room: c_int) -> *mut c_char;
    fread(bytes: *mut c_void, size: size_t, count: size_t) -> size_t;
    __fread_chk(bytes: *mut c_void, room: size_t, size: size_t, count: size_t) -> size_t;
    fgetc() -> c_int;
    getc() -> c_int;
    _IO_getc() -> c_int;
    getline(line: *mut *mut c_char, room: *mut size_t) -> ssize_t;
    getdelim(line: *mut *mut c_char, room: *mut size_t, end: c_int) -> ssize_t;
    __getdelim(line: *mut *mut c_char, room: *mut size_t, end: c_int) -> ssize_t;
}

/// A child that shares its parent's memory would commit the parent's batch, and would have its mask: it is one of a fork.
///
/// # Safety
/// As for the C library's `fork`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> pid_t {
    // SAFETY: promised by the caller.
    unsafe { fork() }
}

outputs! {
    {
        batch::rest();
        point::await_requests();
    };
    epoll_wait(fd: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
    epoll_pwait(fd: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    epoll_pwait2(fd: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
}

outputs! {
    batch::rest();
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    select(count: c_int, reads: *mut fd_set, writes: *mut fd_set, errors: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect(count: c_int, reads: *mut fd_set, writes: *mut fd_set, errors: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, bytes: size_t) -> c_int;
    __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, bytes: size_t) -> c_int;
}
