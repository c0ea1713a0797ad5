//! What a command does that ends its process, each by a process of its own.

use super::tests::Oracle;
use super::*;
use decode::Unknown;
use rewrite::Refusal;
use std::prelude::v1::*;

/// What a process does that [`refusal`] starts.
const CASE: &str = "SPANDREL_TEST_CASE";

/// What a command says that ends its process by a refusal.
fn refusal(case: &str) -> Option<String> {
    use std::os::unix::process::ExitStatusExt;
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    program.args(["translate::refused::refused_command", "--exact", "--ignored", "--nocapture"]);
    let output = program.env(CASE, case).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.contains("a command of a durable state"));
    line.map(str::to_string).filter(|_| output.status.signal() == Some(libc::SIGABRT))
}

/// Each refusal names the place, the reason and the way out.
#[test]
fn what_cannot_be_captured_is_refused() {
    assert_eq!(refusal("nothing"), None);
    let own = std::env::current_exe().unwrap();
    let own = own.file_name().unwrap().to_str().unwrap();
    let cases = [
        ("code", "made at run time", "", "a JIT compiler"),
        ("stack", "memory of the state", "", "allocate stacks"),
        (
            "call",
            "the system call 9999, of which it is not known",
            "libc.so.6+",
            "Stores::Pages in Rust, SPANDREL_DURABLE_STORES_PAGES in C",
        ),
        ("unmap", "the state's own memory", "libc.so.6+", "leave the state's memory"),
        ("handler", "a handler of a signal that goes on elsewhere", own, "have the command return"),
        ("wait", "waits for a signal", "libc.so.6+", "by sigwait"),
        ("exit", "by pthread_exit", own, "have the command return"),
        ("jump", "by longjmp", own, "have the command return"),
        ("gate", "otherwise than by the instruction syscall", own, "run that outside of commands"),
        ("unknown", "an instruction that is not known", own, "fewer extensions"),
        ("sequence", "a restartable sequence", own, "glibc.pthread.rseq=0"),
        ("gs", "uses the segment gs", own, "the code there: 65 48 8b 04 25"),
    ];
    for (case, reason, place, way) in cases {
        let said = refusal(case).unwrap_or_else(|| std::panic!("{case} is not refused"));
        assert!(said.contains(reason) && said.contains(way), "{case}: {said}");
        assert!(said.contains(place) && said.contains("the process ends here"), "{case}: {said}");
    }
}

/// The words of refusals fit a line with a long path.
#[test]
fn refusals_have_a_reason_and_a_way_out() {
    let unknown = [
        Unknown::Instruction,
        Unknown::Scatter,
        Unknown::Segment,
        Unknown::Size,
        Unknown::Gate,
        Unknown::Transaction,
        Unknown::Truncation,
    ];
    let others = [
        Refusal::Far,
        Refusal::Full,
        Refusal::Changes,
        Refusal::Left,
        Refusal::Stack,
        Refusal::Sequence,
    ];
    for why in unknown.map(Refusal::Unknown).into_iter().chain(others) {
        let (reason, way) = refusals::reason_of(why);
        assert!(reason.len() > 20 && way.len() > 20 && reason.len() + way.len() < 400, "{why:?}");
    }
}

unsafe extern "C" fn skip(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: what the kernel calls a handler with.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        registers[libc::REG_RIP as usize] = registers[libc::REG_RDX as usize];
    }
}

/// A handler that goes on elsewhere leaves what is translated.
fn fault_and_go_on() {
    // SAFETY: the handler goes on behind the instruction that faults.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = skip as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &raw const action, core::ptr::null_mut());
        core::arch::asm!(
            "lea rdx, [rip + 2f]", "mov byte ptr [rax], 1", "2:",
            in("rax") 8usize, out("rdx") _,
        );
    }
}

/// Where a frame lies from which the translator is called.
static STACK_OF_CALLER: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

extern "C" fn jumped_to() -> ! {
    std::process::exit(0);
}

#[test]
#[ignore = "is the process that ends"]
fn refused_command() {
    let Ok(case) = std::env::var(CASE) else { return };
    // SAFETY: a limit, so that no file is left.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
    let here = 0u128;
    STACK_OF_CALLER.store(&raw const here as u64, core::sync::atomic::Ordering::Relaxed);
    Oracle::new(4096).run(|window| match case.as_str() {
        // Code that was made at run time: `ret`.
        // SAFETY: a page of this test.
        "code" => unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = libc::mmap(core::ptr::null_mut(), 4096, access, flags, -1, 0);
            page.cast::<u8>().write(0xc3);
            core::mem::transmute::<*mut libc::c_void, extern "C" fn()>(page)();
        },
        // A stack in the window.
        // SAFETY: the stack is put back, and one word is pushed.
        "stack" => unsafe {
            let top = window.as_mut_ptr_range().end;
            core::arch::asm!(
                "mov {old}, rsp", "mov rsp, {top}", "push 7", "mov rsp, {old}",
                old = out(reg) _, top = in(reg) top,
            );
        },
        // A system call that is not known.
        // SAFETY: there is no such call.
        "call" => _ = unsafe { libc::syscall(9999) },
        // SAFETY: the process ends.
        "unmap" => _ = unsafe { libc::munmap(window.as_mut_ptr().cast(), 4096) },
        // SAFETY: as above.
        "exit" => unsafe { libc::pthread_exit(core::ptr::null_mut()) },
        // A return to where the test has called the translator from.
        // SAFETY: as above.
        "jump" => unsafe {
            core::arch::asm!(
                "mov rsp, {stack}", "jmp {to}",
                stack = in(reg) STACK_OF_CALLER.load(core::sync::atomic::Ordering::Relaxed),
                to = in(reg) jumped_to as *const () as usize, options(noreturn),
            )
        },
        // SAFETY: as above.
        "gate" => unsafe { core::arch::asm!("int 0x80", in("eax") 20, lateout("eax") _) },
        // SAFETY: as above.
        "unknown" => unsafe { core::arch::asm!(".byte 0x06") },
        // SAFETY: as above.
        "gs" => unsafe { core::arch::asm!("mov {0}, gs:[0]", out(reg) _) },
        // The beginning of a sequence of `librseq`.
        // SAFETY: as above.
        "sequence" => unsafe {
            core::arch::asm!(
                ".pushsection .data.rel.ro.sequence, \"aw\"", ".balign 32", "771:", ".long 0, 0",
                ".quad 772f, 773f - 772f, 774f", ".popsection",
                ".pushsection .text.sequence, \"ax\"", ".long 0x53053053", "774: ud2", ".popsection",
                "lea {descriptor}, [rip + 771b]", "772: nop", "773: nop",
                descriptor = out(reg) _,
            )
        },
        // SAFETY: as above.
        "wait" => _ = unsafe { libc::pause() },
        "handler" => fault_and_go_on(),
        _ => window[7] = 1,
    });
}
