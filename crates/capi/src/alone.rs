//! `unshare`, `setns`, `prctl`, `syscall`: what the kernel gives to a process of one thread only, and filters of system calls.
//!
//! A program of one thread has these, however many threads do work beside it: the thread that the C library does not know ends
//! before. It does not come again under a filter that the program has set, as such a filter may end the
//! process for what the thread or its making takes. It ends also before the calling thread restricts itself in another way: what it would not be restricted
//! by itself. The next one is. And it ends before a fork by number, of which the C library does not know: what the thread is in the middle of
//! would be so in the child for good.

use core::arch::naked_asm;
use core::ffi::{c_int, c_long, c_uint, c_ulong};

use spandrel_os::{clock, env};
use spandrel_sync::{background, linger};

use crate::rlimit;

/// Looks for the kernel to have taken a thread out of the process that has left its stack: a second in all.
const LOOKS: u32 = 10_000;
/// Calls after that: the kernel takes the last of the thread away a moment later.
const LAST_CALLS: u32 = 3;

/// Calls when there is no other thread. `EINVAL` is what the kernel says as long as there is one.
fn alone(call: impl Fn() -> c_long) -> c_long {
    let was_there = background::withdraw(false);
    let before = env::errno();
    let mut last_calls = LAST_CALLS;
    for look in 0.. {
        let result = call();
        let may_be_there = result == -1 && env::errno() == libc::EINVAL && was_there;
        if !may_be_there || last_calls == 0 || look == LOOKS {
            background::resume();
            return result;
        }
        last_calls -= u32::from(background::is_out());
        env::set_errno(before);
        linger(look);
    }
    -1
}

extern "C" fn unshare_alone(flags: c_int) -> c_long {
    // SAFETY: passed on from the caller.
    alone(|| unsafe { plain(libc::SYS_unshare, flags.into(), 0) })
}

extern "C" fn setns_alone(file: c_int, kind: c_int) -> c_long {
    // SAFETY: passed on from the caller.
    alone(|| unsafe { plain(libc::SYS_setns, file.into(), kind.into()) })
}

/// Linux's `unshare`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    unshare_alone(flags) as c_int
}

/// Linux's `setns`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(file: c_int, kind: c_int) -> c_int {
    setns_alone(file, kind) as c_int
}

/// Linux's `prctl`. Arguments that the caller has not given are passed on as they are: the kernel knows which count.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    before_prctl(option, second);
    // SAFETY: passed on from the caller.
    let result = unsafe { libc::syscall(libc::SYS_prctl, option, second, third, fourth, fifth) };
    background::resume();
    result as c_int
}

fn before_prctl(option: c_int, second: c_ulong) {
    match option {
        libc::PR_SET_SECCOMP => {
            // Strict mode forbids the processor's counter of ticks, too.
            if second == libc::SECCOMP_MODE_STRICT as c_ulong {
                clock::forbid_counter(true);
            }
            let _ = background::withdraw(true);
        }
        libc::PR_SET_TSC => clock::forbid_counter(second != libc::PR_TSC_ENABLE as c_ulong),
        libc::PR_SET_NO_NEW_PRIVS
        | libc::PR_CAPBSET_DROP
        | libc::PR_SET_SECUREBITS
        | libc::PR_CAP_AMBIENT => _ = background::withdraw(false),
        _ => {}
    }
}

/// What is to be done before a call by number, beside those that need no other thread at all.
extern "C" fn before(number: c_long, operation: c_uint, second: c_ulong) {
    /// Its other operations only ask.
    const FILTERS: [c_uint; 2] = [libc::SECCOMP_SET_MODE_STRICT, libc::SECCOMP_SET_MODE_FILTER];
    match number {
        libc::SYS_clone if operation & libc::CLONE_VM as c_uint != 0 => {}
        libc::SYS_fork
        | libc::SYS_clone
        | libc::SYS_clone3
        | libc::SYS_landlock_restrict_self
        | libc::SYS_capset
        | libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setreuid
        | libc::SYS_setregid
        | libc::SYS_setgroups
        | libc::SYS_setresuid
        | libc::SYS_setresgid => _ = background::withdraw(false),
        libc::SYS_mlockall => rlimit::before_locking(operation as c_int),
        libc::SYS_prctl => before_prctl(operation as c_int, second),
        libc::SYS_seccomp if FILTERS.contains(&operation) => {
            if operation == libc::SECCOMP_SET_MODE_STRICT {
                clock::forbid_counter(true);
            }
            let _ = background::withdraw(true);
        }
        _ => {}
    }
}

/// The C library's `syscall`. It must not have a frame: some calls return twice.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall(number: c_long) -> c_long {
    naked_asm!(
        "cmp rdi, {fork}",
        "je 3f",
        "cmp rdi, {clone}",
        "je 3f",
        "cmp rdi, {clone3}",
        "je 3f",
        "cmp rdi, {mlockall}",
        "je 3f",
        "cmp rdi, {seccomp}",
        "je 3f",
        "cmp rdi, {unshare}",
        "je 5f",
        "cmp rdi, {setns}",
        "je 6f",
        "cmp rdi, {landlock}",
        "je 3f",
        "cmp rdi, {prctl}",
        "je 3f",
        "cmp rdi, {capset}",
        "je 3f",
        // The calls for another identity lie close to each other.
        "lea rax, [rdi - {setuid}]",
        "cmp rax, {identities}",
        "ja {plain}",
        "3:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp {plain}",
        // These do not return twice.
        "5:",
        "mov edi, esi",
        "jmp {unshare_alone}",
        "6:",
        "mov edi, esi",
        "mov esi, edx",
        "jmp {setns_alone}",
        fork = const libc::SYS_fork,
        clone = const libc::SYS_clone,
        clone3 = const libc::SYS_clone3,
        mlockall = const libc::SYS_mlockall,
        seccomp = const libc::SYS_seccomp,
        unshare = const libc::SYS_unshare,
        setns = const libc::SYS_setns,
        landlock = const libc::SYS_landlock_restrict_self,
        prctl = const libc::SYS_prctl,
        capset = const libc::SYS_capset,
        setuid = const libc::SYS_setuid,
        identities = const libc::SYS_setresgid - libc::SYS_setuid,
        before = sym before,
        plain = sym plain,
        unshare_alone = sym unshare_alone,
        setns_alone = sym setns_alone,
    )
}

/// A system call with up to six arguments, and nothing else. This one also has no frame.
///
/// # Safety
/// As the call says.
#[unsafe(naked)]
unsafe extern "C" fn plain(number: c_long, first: c_long, second: c_long) -> c_long {
    naked_asm!(
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, qword ptr [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "neg eax",
        "push rax",
        "call qword ptr [rip + __errno_location@GOTPCREL]",
        "pop rcx",
        "mov dword ptr [rax], ecx",
        "mov rax, -1",
        "ret",
    )
}
