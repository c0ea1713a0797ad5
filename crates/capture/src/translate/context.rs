//! What translated code finds at `gs:`: places for registers, the log of writes, the way to the translator, the table of indirect branches.
//!
//! Invariants:
//! - A thread that runs translated code has `gs` at a [`Context`], and no other thread has the same one then.
//! - At a callout all registers of the program are its own: what the translator has borrowed lies in its place again.

use core::arch::{asm, global_asm};

use super::calls::{RememberedCall, RememberedCalls};

/// Offsets that code is made with.
pub const RCX_PLACE: u32 = 0;
pub const RDX_PLACE: u32 = 8;
pub const RAX_PLACE: u32 = 16;
pub const TARGET: u32 = 24;
pub const LOG: u32 = 32;
pub const REASON: u32 = 40;
pub const ARGUMENT: u32 = 44;
pub const CALLOUT: u32 = 48;
pub const NATIVE_RETURN: u32 = 64;
pub const STRING: u32 = 112;
/// What else a callout is told; and a place for what the translator computes.
pub const DETAIL: u32 = 120;
/// The mask of signals that the program sees.
pub const MASK: u32 = 256;
/// The stack pointer when a native function is called: its return address lies below.
pub const NATIVE_STACK: u32 = 264;
/// The address of the place of the next call that is remembered.
pub const NEXT_CALL: u32 = 1024 + STATE_BYTES as u32;
/// Where the table of indirect branches begins.
pub const BRANCHES: u32 = 8192;
/// Entries of that table, by the low bits of an address.
pub const BRANCH_COUNT: usize = 1 << 16;
/// Where the second places of indirect branches begin.
pub const OTHERS: u32 = BRANCHES + (BRANCH_COUNT * size_of::<Branch>()) as u32;

/// Bytes of the state that the processor saves, at most.
pub const STATE_BYTES: usize = 4096;

/// Why the program has left translated code.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// By an exit whose number is the argument.
    Exit = 0,
    /// By a branch to the target, which the table does not have.
    Branch = 1,
    /// The log has no room for another write.
    Log = 2,
    /// A system call follows.
    SystemCall = 3,
    /// A repeated string instruction follows; the argument is the bytes of an element.
    String = 4,
    /// An instruction follows that writes through a vector of addresses, which the argument and the detail tell of.
    Scatter = 5,
    /// There is no room for another call that is remembered.
    Calls = 6,
}

/// An entry of the table of indirect branches.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Branch {
    /// Minus the address of the program's code: a sum with the target is zero if it is that.
    pub minus: u64,
    /// Where it is translated.
    pub to: u64,
}

impl Branch {
    /// Of no address: a program has no code at the last one.
    const NONE: Self = Self { minus: 1, to: 0 };
}

/// See the head of this file.
#[repr(C, align(4096))]
pub struct Context {
    rcx: u64,
    rdx: u64,
    rax: u64,
    /// Where to go on.
    pub target: u64,
    /// The end of the log.
    pub log: u64,
    pub reason: u32,
    pub argument: u32,
    callout: u64,
    this: u64,
    native_return: u64,
    handler: u64,
    stack: u64,
    flags: u64,
    /// What the handler is called with.
    pub owner: u64,
    /// Translated code has come to its end.
    done: u64,
    /// What notes a repeated string instruction.
    string: u64,
    /// What else the program has called out for.
    pub detail: u64,
    /// General registers by their numbers.
    pub registers: [u64; 16],
    /// The mask of signals that the program sees: the kernel's has more while translated code runs.
    pub mask: u64,
    native_stack: u64,
    _gap: [u8; 752],
    /// The rest of the processor's state.
    pub state: [u8; STATE_BYTES],
    /// Calls of functions that are remembered.
    pub calls: RememberedCalls,
    _end: [u8; 3072 - size_of::<RememberedCalls>()],
    pub branches: [Branch; BRANCH_COUNT],
    /// Those that others with the same low bits have taken the place of.
    others: [Branch; BRANCH_COUNT],
    has_others: bool,
}

const _: () = {
    assert!(core::mem::offset_of!(Context, target) == TARGET as usize);
    assert!(core::mem::offset_of!(Context, log) == LOG as usize);
    assert!(core::mem::offset_of!(Context, reason) == REASON as usize);
    assert!(core::mem::offset_of!(Context, argument) == ARGUMENT as usize);
    assert!(core::mem::offset_of!(Context, callout) == CALLOUT as usize);
    assert!(core::mem::offset_of!(Context, native_return) == NATIVE_RETURN as usize);
    assert!(core::mem::offset_of!(Context, done) == 104);
    assert!(core::mem::offset_of!(Context, string) == STRING as usize);
    assert!(core::mem::offset_of!(Context, detail) == DETAIL as usize);
    assert!(core::mem::offset_of!(Context, registers) == 128);
    assert!(core::mem::offset_of!(Context, mask) == MASK as usize);
    assert!(core::mem::offset_of!(Context, native_stack) == NATIVE_STACK as usize);
    assert!(core::mem::offset_of!(Context, state) == 1024);
    assert!(core::mem::offset_of!(Context, calls) == NEXT_CALL as usize);
    assert!(core::mem::offset_of!(Context, branches) == BRANCHES as usize);
    assert!(core::mem::offset_of!(Context, others) == OTHERS as usize);
};

// The state that the handler may change: x87, SSE, AVX and AVX-512. Nothing of it is used here.
global_asm!(
    ".hidden spandrel_translate_callout",
    ".globl spandrel_translate_callout",
    ".type spandrel_translate_callout, @function",
    "spandrel_translate_callout:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "mov gs:[128], rax",
    "mov gs:[136], rcx",
    "mov gs:[144], rdx",
    "mov gs:[152], rbx",
    "mov gs:[160], rsp",
    "mov gs:[168], rbp",
    "mov gs:[176], rsi",
    "mov gs:[184], rdi",
    "mov gs:[192], r8",
    "mov gs:[200], r9",
    "mov gs:[208], r10",
    "mov gs:[216], r11",
    "mov gs:[224], r12",
    "mov gs:[232], r13",
    "mov gs:[240], r14",
    "mov gs:[248], r15",
    "mov rsp, gs:[80]",
    "pushfq",
    "pop qword ptr gs:[88]",
    "cld",
    "mov rbx, gs:[56]",
    "mov eax, 0xe7",
    "xor edx, edx",
    "xsave [rbx + 1024]",
    "mov rdi, rbx",
    "call qword ptr [rbx + 72]",
    "mov eax, 0xe7",
    "xor edx, edx",
    "xrstor [rbx + 1024]",
    // Code may have been written by the handler, at another address than it is run at: a return from an interrupt serializes.
    "mov eax, ss",
    "push rax",
    "push qword ptr gs:[160]",
    "push qword ptr gs:[88]",
    "mov eax, cs",
    "push rax",
    "push qword ptr gs:[24]",
    "mov rax, gs:[128]",
    "mov rcx, gs:[136]",
    "mov rdx, gs:[144]",
    "mov rbx, gs:[152]",
    "mov rbp, gs:[168]",
    "mov rsi, gs:[176]",
    "mov rdi, gs:[184]",
    "mov r8, gs:[192]",
    "mov r9, gs:[200]",
    "mov r10, gs:[208]",
    "mov r11, gs:[216]",
    "mov r12, gs:[224]",
    "mov r13, gs:[232]",
    "mov r14, gs:[240]",
    "mov r15, gs:[248]",
    "iretq",
    ".cfi_endproc",
    ".size spandrel_translate_callout, . - spandrel_translate_callout",
    // A repeated string instruction follows, as `Reason::String` has it: its bytes become an entry of the log, without the handler, which needs
    // all registers saved. Downwards, and where a length has as many bits as the marks of an entry, it is a callout.
    ".hidden spandrel_translate_string",
    ".globl spandrel_translate_string",
    ".type spandrel_translate_string, @function",
    "spandrel_translate_string:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "mov gs:[16], rax",
    "mov gs:[0], rcx",
    "mov gs:[8], rdx",
    "mov gs:[160], rsp",
    "mov rsp, gs:[80]",
    "pushfq",
    "mov rax, rcx",
    "shr rax, 24",
    "jnz 3f",
    "test dword ptr [rsp], 0x400",
    "jnz 3f",
    "mov edx, gs:[44]",
    "imul rdx, rcx",
    "test rdx, rdx",
    "jz 2f",
    "mov rax, gs:[32]",
    "mov [rax], rdi",
    "mov [rax + 8], rdx",
    "add rax, 32",
    "mov gs:[32], rax",
    // The log ends where the low bits are zero.
    "test ax, ax",
    "jnz 2f",
    "mov dword ptr gs:[40], 2",
    "3:",
    "popfq",
    "mov rsp, gs:[160]",
    "mov rax, gs:[16]",
    "mov rcx, gs:[0]",
    "mov rdx, gs:[8]",
    "jmp spandrel_translate_callout",
    "2:",
    "popfq",
    "mov rsp, gs:[160]",
    "mov rax, gs:[16]",
    "mov rcx, gs:[0]",
    "mov rdx, gs:[8]",
    "jmp qword ptr gs:[24]",
    ".cfi_endproc",
    ".size spandrel_translate_string, . - spandrel_translate_string",
    // Calls translated code as a function with one argument: its return address is that of the program's own code.
    ".hidden spandrel_translate_enter",
    ".globl spandrel_translate_enter",
    ".type spandrel_translate_enter, @function",
    "spandrel_translate_enter:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    ".cfi_offset rbx, -24",
    ".cfi_offset r12, -32",
    ".cfi_offset r13, -40",
    ".cfi_offset r14, -48",
    ".cfi_offset r15, -56",
    "lea rax, [rip + spandrel_translate_after]",
    "push rax",
    "jmp rsi",
    ".hidden spandrel_translate_end",
    ".globl spandrel_translate_end",
    "spandrel_translate_end:",
    "mov qword ptr gs:[104], 1",
    ".hidden spandrel_translate_after",
    ".globl spandrel_translate_after",
    "spandrel_translate_after:",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size spandrel_translate_enter, . - spandrel_translate_enter",
);

unsafe extern "C" {
    fn spandrel_translate_callout();
    fn spandrel_translate_string();
    fn spandrel_translate_enter(argument: *mut (), code: u64);
    fn spandrel_translate_after();
    fn spandrel_translate_end();
}

/// Where a translated function returns to that [`enter`] has called.
pub fn after() -> u64 {
    spandrel_translate_after as *const () as u64
}

/// What takes the place of [`after`] in translated code: it notes that the code has come there.
pub fn end() -> u64 {
    spandrel_translate_end as *const () as u64
}

/// What translated code calls out to; the answer is in [`Context::target`].
pub type Handler = unsafe extern "C" fn(*mut Context);

impl Context {
    /// Makes a context of zeroes ready. `stack`: the end of the handler's stack.
    ///
    /// # Safety
    /// The context lies at `at`.
    pub unsafe fn begin(at: *mut Self, handler: Handler, stack: u64) {
        // SAFETY: promised by the caller.
        let this = unsafe { &mut *at };
        this.this = at as u64;
        this.callout = spandrel_translate_callout as *const () as u64;
        this.string = spandrel_translate_string as *const () as u64;
        this.handler = handler as *const () as u64;
        this.stack = stack;
    }

    /// Forgets all translations for indirect branches, but for the end of what [`enter`] has called.
    pub fn clear_branches(&mut self) {
        self.branches.fill(Branch::NONE);
        if core::mem::take(&mut self.has_others) {
            self.others.fill(Branch::NONE);
        }
        self.set_branch(after(), end());
    }

    /// Whether translated code has come to its end since the last call.
    pub fn is_done(&mut self) -> bool {
        core::mem::take(&mut self.done) != 0
    }

    /// Whether repeated string instructions go downwards: the direction flag, at the last callout.
    pub fn goes_down(&self) -> bool {
        self.flags & (1 << 10) != 0
    }

    /// Names the translation of an address for indirect branches.
    pub fn set_branch(&mut self, from: u64, to: u64) {
        let (index, branch) =
            (from as usize % BRANCH_COUNT, Branch { minus: from.wrapping_neg(), to });
        let places = (self.branches.get_mut(index), self.others.get_mut(index));
        if let (Some(place), Some(other)) = places {
            let before = core::mem::replace(place, branch);
            if before.minus != branch.minus && before.minus != Branch::NONE.minus {
                *other = before;
                self.has_others = true;
            }
        }
    }
}

/// The thread's `gs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment(u64);

/// Whether a program may set the segment by an instruction (`HWCAP2_FSGSBASE`).
fn has_instructions() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & 2 != 0 }
}

impl Segment {
    const ARCH_SET_GS: i32 = 0x1001;
    const ARCH_GET_GS: i32 = 0x1004;

    /// What it is now.
    pub fn now() -> Self {
        let mut at = 0u64;
        if has_instructions() {
            // SAFETY: the kernel allows the instruction.
            unsafe { asm!("rdgsbase {}", out(reg) at, options(nostack, preserves_flags)) };
        } else {
            // SAFETY: the address of a variable.
            unsafe { libc::syscall(libc::SYS_arch_prctl, Self::ARCH_GET_GS, &raw mut at) };
        }
        Self(at)
    }

    /// That of a context.
    pub fn of(context: *const Context) -> Self {
        Self(context as u64)
    }

    /// # Safety
    /// The thread uses what lies there, or nothing.
    pub unsafe fn set(self) {
        if has_instructions() {
            // SAFETY: the kernel allows the instruction; the caller promises the rest.
            unsafe { asm!("wrgsbase {}", in(reg) self.0, options(nostack, preserves_flags)) };
        } else {
            // SAFETY: promised by the caller.
            unsafe { libc::syscall(libc::SYS_arch_prctl, Self::ARCH_SET_GS, self.0) };
        }
    }
}

/// Where the native function returns to that translated code has called.
///
/// # Safety
/// The thread runs a native function that translated code has called, or one that this function calls.
pub unsafe fn caller() -> usize {
    let at: usize;
    // SAFETY: the segment is a context, as the caller promises.
    unsafe {
        asm!(
            "mov {at}, qword ptr gs:[{place}]",
            at = out(reg) at,
            place = const NATIVE_RETURN,
            options(readonly, nostack, preserves_flags),
        );
    }
    at
}

/// The context of the calling thread.
///
/// # Safety
/// As for [`caller`].
unsafe fn this<'a>() -> &'a mut Context {
    let at: *mut Context;
    // SAFETY: the segment is a context, as the caller promises; the word has its own address.
    unsafe {
        asm!("mov {at}, qword ptr gs:[56]", at = out(reg) at, options(readonly, nostack, preserves_flags));
        &mut *at
    }
}

/// Where the return address lies of the native function that translated code has called. It is the translator's own; that of the program is [`caller`].
///
/// # Safety
/// As for [`caller`].
pub unsafe fn native_slot() -> usize {
    // SAFETY: promised by the caller.
    unsafe { this() }.native_stack as usize - size_of::<usize>()
}

/// The calls of remembered functions that may not have returned, from the outermost to the innermost one. One that has returned is among them as long as nothing has taken the
/// place of its return address: a trace of the stack tells.
///
/// # Safety
/// As for [`caller`], and the native function does not return meanwhile.
pub unsafe fn remembered<'a>() -> &'a [RememberedCall] {
    // SAFETY: promised by the caller.
    unsafe { this() }.calls.settled()
}

/// Runs translated code as a function.
///
/// # Safety
/// The thread's segment is the context that the code was made for.
pub unsafe fn enter(code: u64, argument: *mut ()) {
    // SAFETY: promised by the caller.
    unsafe { spandrel_translate_enter(argument, code) };
}
