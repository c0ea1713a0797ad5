//! Run a program with chosen system calls failing: `seccomp_exec mremap=ENOSYS madvise:23=EINVAL -- PROGRAM ARGS…`.
//!
//! A rule is `CALL=ERROR` or `CALL:VALUE=ERROR`; with a value, only calls whose telling argument has it fail
//! (`madvise`: the advice, `prctl`: the option). For `mmap` and `mprotect` the value is `huge`, 4 GiB or more, or
//! `huge-writable`, as strict overcommit would have it. `NAME=VALUE` with a name in capitals sets the
//! environment of the program, so that a preload applies to it and not to this helper.

use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_ERRNO, sock_filter,
};

/// Offsets in `struct seccomp_data`.
const OFFSET_NR: u32 = 0;
const OFFSET_ARGS: u32 = 16;

/// What must hold of a 32-bit word of `struct seccomp_data` at an offset.
#[derive(Clone, Copy)]
enum Check {
    Equal(u32, u32),
    NotEqual(u32, u32),
    AnyBitOf(u32, u32),
}

/// Calls for which every check holds fail with this error.
struct Rule {
    checks: Vec<Check>,
    errno: u32,
}

fn main() {
    let mut rules = Vec::new();
    let mut environment = Vec::new();
    let mut arguments = std::env::args().skip(1);
    for word in arguments.by_ref() {
        if word == "--" {
            break;
        }
        let (left, right) =
            word.split_once('=').unwrap_or_else(|| fail("a rule has no '='", &word));
        if left.starts_with(|c: char| c.is_ascii_uppercase()) {
            environment.push((left.to_owned(), right.to_owned()));
        } else {
            rules.push(rule(left, right));
        }
    }
    let program = arguments.next().unwrap_or_else(|| fail("no program", ""));
    install(&rules);
    let error = Command::new(&program).args(arguments).envs(environment).exec();
    fail(&error.to_string(), &program)
}

fn fail(what: &str, about: &str) -> ! {
    eprintln!("seccomp_exec: {about}: {what}");
    std::process::exit(125)
}

fn rule(left: &str, errno: &str) -> Rule {
    let (name, value) = match left.split_once(':') {
        Some((name, value)) => (name, Some(value)),
        None => (left, None),
    };
    let (call, telling) = match name {
        "madvise" => (libc::SYS_madvise, 2),
        "membarrier" => (libc::SYS_membarrier, 0),
        "mremap" => (libc::SYS_mremap, 3),
        "rseq" => (libc::SYS_rseq, 2),
        "clone" => (libc::SYS_clone, 0),
        "clone3" => (libc::SYS_clone3, 0),
        "getrandom" => (libc::SYS_getrandom, 2),
        "prctl" => (libc::SYS_prctl, 0),
        "mincore" => (libc::SYS_mincore, 0),
        "set_robust_list" => (libc::SYS_set_robust_list, 0),
        "getcpu" => (libc::SYS_getcpu, 0),
        "sched_getaffinity" => (libc::SYS_sched_getaffinity, 0),
        "mmap" => (libc::SYS_mmap, 2),
        "mprotect" => (libc::SYS_mprotect, 2),
        _ => fail("unknown system call", name),
    };
    // Arguments are 64 bits wide, low half first.
    let low_half = |argument: u32| OFFSET_ARGS + 8 * argument;
    let at_least_4_gib = Check::NotEqual(low_half(1) + 4, 0);
    let mut checks = vec![Check::Equal(OFFSET_NR, call as u32)];
    match value {
        None => {}
        Some("huge") => checks.push(at_least_4_gib),
        Some("huge-writable") => {
            checks.extend([at_least_4_gib, Check::AnyBitOf(low_half(2), libc::PROT_WRITE as u32)]);
        }
        Some(text) => {
            let digits = text.strip_prefix("0x").map(|hex| u32::from_str_radix(hex, 16));
            let number = digits.unwrap_or_else(|| text.parse());
            let number = number.unwrap_or_else(|_| fail("not a number", text));
            checks.push(Check::Equal(low_half(telling), number));
        }
    }
    let errno = match errno {
        "ENOSYS" => libc::ENOSYS,
        "EPERM" => libc::EPERM,
        "EINVAL" => libc::EINVAL,
        "ENOMEM" => libc::ENOMEM,
        "EAGAIN" => libc::EAGAIN,
        "EBUSY" => libc::EBUSY,
        _ => fail("unknown error", errno),
    };
    Rule { checks, errno: errno as u32 }
}

/// Loads the word of a check and skips `distance` instructions unless the check holds.
fn unless_skip(check: Check, distance: u8) -> [sock_filter; 2] {
    let (offset, how, value, if_true, if_false) = match check {
        Check::Equal(offset, value) => (offset, BPF_JEQ, value, 0, distance),
        Check::NotEqual(offset, value) => (offset, BPF_JEQ, value, distance, 0),
        Check::AnyBitOf(offset, mask) => (offset, BPF_JSET, mask, 0, distance),
    };
    let load = sock_filter { code: (BPF_LD | BPF_W | BPF_ABS) as u16, jt: 0, jf: 0, k: offset };
    let code = (BPF_JMP | how | BPF_K) as u16;
    [load, sock_filter { code, jt: if_true, jf: if_false, k: value }]
}

fn answer(value: u32) -> sock_filter {
    sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k: value }
}

/// The filter: a rule whose checks do not all hold is jumped over.
fn filter(rules: &[Rule]) -> Vec<sock_filter> {
    let mut program = Vec::new();
    for rule in rules {
        for (done, check) in rule.checks.iter().enumerate() {
            // The checks after this one, two instructions each, and the answer.
            let rest = 2 * (rule.checks.len() - done - 1) + 1;
            program.extend(unless_skip(*check, rest as u8));
        }
        program.push(answer(SECCOMP_RET_ERRNO | rule.errno));
    }
    program.push(answer(SECCOMP_RET_ALLOW));
    program
}

fn install(rules: &[Rule]) {
    let mut program = filter(rules);
    let description = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: `description` points to a filter that lives to the end of this function; the kernel copies it.
    let status = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const description)
    };
    if status != 0 {
        fail(&std::io::Error::last_os_error().to_string(), "prctl(PR_SET_SECCOMP)");
    }
}
