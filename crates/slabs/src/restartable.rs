//! Operations on the stacks of the processor that the thread runs on.
//!
//! Each is a restartable sequence: it reads, writes above the top of a stack
//! where no thread looks, and ends with one store, of the new top. When the thread
//! is interrupted before that store, the kernel sends it back to the beginning
//! (`spandrel_os::rseq`), perhaps on another processor. So no two threads are
//! ever in the middle of an operation on the same processor, without a lock.
//!
//! Classes that have homes (see `class`) are where the processor's home has them, which the block knows. Only `pop`, which is for requests, is at the processor's own home whatever that is.
//!
//! The kernel is told of a sequence by its descriptor's address in the thread's
//! area. It is left there afterwards: the kernel ignores it when the thread is
//! found elsewhere, and the next sequence replaces it.
//!
//! Under a debugger that executes one instruction at a time (`stepi`, software watchpoints, `record`) a thread is interrupted
//! after each, and gets through no sequence. So a sequence that was interrupted tries an empty one first, a few
//! times. If none gets through the operation does nothing, as if the stack were empty or full, and the thread
//! goes on with a cache of its own ([`is_stepped`](spandrel_sync::ThreadSlot::is_stepped)).

use core::arch::{asm, naked_asm};
use core::mem::offset_of;

pub use spandrel_os::barrier::restart;
use spandrel_os::rseq::{Area, CPU_ID, RSEQ_CS, SIGNATURE};
use spandrel_sync::ThreadSlot;

use crate::class::{HOMED, HOMES};
use crate::cpu_cache::{BLOCKS, RECENT_AT, STACK_OF_AT};
use crate::recent::{MULTIPLIER, SHIFT};
use crate::stack::Stack;

/// The processor that the calling thread ran on just now.
///
/// # Safety
/// `area` is the calling thread's.
#[inline]
pub unsafe fn processor(area: *mut Area) -> usize {
    // SAFETY: the area is there as long as its thread.
    unsafe { (*area).cpu() }
}

/// Where a block has the stack at some place.
#[inline(always)]
pub const fn offset(place: usize) -> usize {
    place * size_of::<Stack>()
}

/// Interruptions of empty sequences in a row after which the thread is taken for one that is stepped. One is
/// interrupted by chance less than once in a million times.
const TRIES: u32 = 16;

/// Where an interrupted sequence comes first: tries whether sequences get through at all. Changes no register
/// but the flags; zero: none does, which is noted in the thread's slot.
///
/// # Safety
/// Called from the restart of a sequence, on a stack without a red zone.
#[unsafe(naked)]
unsafe extern "C" fn interrupted() {
    naked_asm!(
        ".pushsection __rseq_cs, \"aw\", @progbits",
        ".balign 32",
        "22:",
        ".long 0, 0",
        ".quad 33f, 44f - 33f, 55f",
        ".popsection",
        ".cfi_startproc",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        concat!("mov rdx, qword ptr [rip + ", spandrel_sync::slot_name!(), "@GOTTPOFF]"),
        "mov rax, qword ptr fs:[rdx + {cpu}]",
        // It was found out within this call of the allocator already.
        "test rax, rax",
        "jz 77f",
        "mov ecx, {tries}",
        "66:",
        "lea rsi, [rip + 22b]",
        "mov qword ptr [rax + {rseq_cs}], rsi",
        "33:",
        "nop",
        "nop",
        "44:",
        "test rax, rax",
        "jmp 77f",
        // As in `sequence`.
        ".byte 0x0f, 0xb9, 0x3d",
        ".long {signature}",
        "55:",
        "dec ecx",
        "jnz 66b",
        "mov qword ptr fs:[rdx + {cpu}], 0",
        "mov byte ptr fs:[rdx + {is_stepped}], 1",
        "cmp eax, eax",
        "77:",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rax",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
        cpu = const offset_of!(ThreadSlot, cpu),
        is_stepped = const offset_of!(ThreadSlot, is_stepped),
        rseq_cs = const RSEQ_CS,
        signature = const SIGNATURE,
        tries = const TRIES,
    )
}

/// The assembly of one sequence. `22` is the descriptor, `66` the beginning, `33`
/// to `44` the sequence, whose last instruction is the store that counts, `55`
/// where the kernel sends the thread. It begins by finding the block, `{at}`, by way
/// of a register that is free still. `$nothing` leaves the sequence as one that does nothing.
macro_rules! sequence {
    ($free:literal, [$($line:expr),* $(,)?], [$($nothing:literal),*], $($operands:tt)*) => {
        asm!(
            ".pushsection __rseq_cs, \"aw\", @progbits",
            ".balign 32",
            "22:",
            ".long 0, 0",
            ".quad 33f, 44f - 33f, 55f",
            ".popsection",
            "66:",
            "lea {at}, [rip + 22b]",
            "mov qword ptr [{area} + {rseq_cs}], {at}",
            "33:",
            "mov {at:e}, dword ptr [{area} + {cpu_id}]",
            concat!("lea ", $free, ", [rip + {blocks}]"),
            concat!("mov {at}, qword ptr [", $free, " + {at}*8]"),
            $($line,)*
            "44:",
            ".pushsection .text.spandrel_restart, \"ax\", @progbits",
            // An unwinder finds the sequence as the caller, with the same registers: a debugger
            // asks after each step which functions are active. The distance to it lies at a multiple of
            // 64, and CFI computes the address from it: deref(rip & -64) + (rip & -64).
            ".balign 64",
            "77:",
            ".quad 33b - 77b",
            // An undefined instruction that holds the signature.
            ".byte 0x0f, 0xb9, 0x3d",
            ".long {signature}",
            ".cfi_startproc",
            ".cfi_def_cfa rsp, 0",
            ".cfi_escape 0x16, 0x10, 0x0c, 0x80, 0x00, 0x09, 0xc0, 0x1a, 0x06, 0x80, 0x00, 0x09, 0xc0, 0x1a, 0x22",
            "55:",
            // Functions that call none may keep data below their stack.
            "lea rsp, [rsp - 128]",
            ".cfi_def_cfa_offset 128",
            "call {interrupted}",
            "lea rsp, [rsp + 128]",
            ".cfi_def_cfa_offset 0",
            "jnz 66b",
            $($nothing,)*
            ".cfi_endproc",
            ".popsection",
            interrupted = sym interrupted,
            blocks = sym BLOCKS,
            cpu_id = const CPU_ID,
            rseq_cs = const RSEQ_CS,
            signature = const SIGNATURE,
            $($operands)*
            options(nostack),
        )
    };
}

/// As `sequence`, which finds first where in a block the processor's home has the class: in one more
/// register, named for its lower half and whole.
macro_rules! homed_sequence {
    ($free:literal, ($low:literal, $whole:literal), [$($line:expr),* $(,)?], [$($nothing:literal),*], $($operands:tt)*) => {
        sequence!(
            $free,
            [
                concat!("mov ", $low, ", dword ptr [{area} + {cpu_id}]"),
                concat!("and ", $whole, ", {mask}"),
                concat!("shl ", $low, ", {shift}"),
                concat!("xor ", $whole, ", {offset}"),
                $($line,)*
            ],
            [$($nothing),*],
            shift = const size_of::<Stack>().trailing_zeros(),
            $($operands)*
        )
    };
}

const _: () = assert!(size_of::<Stack>().is_power_of_two() && HOMES.is_power_of_two());

/// What of a processor's number tells where it has a class.
#[inline]
fn home_mask(class: usize) -> usize {
    if class < HOMED { 0 } else { HOMES - 1 }
}

/// Takes the topmost object of the class that requests of a size are served from, which a block has at `stack`; 0: there is none.
///
/// # Safety
/// `area` is the calling thread's, `stack` is the [`offset`] of a class, and the blocks are there.
#[inline(always)]
pub unsafe fn pop(area: *mut Area, stack: usize) -> usize {
    let object: usize;
    // SAFETY: see the head of this file; what lies below the top of a stack are
    // addresses of objects.
    unsafe {
        sequence!(
            "{top}",
            [
                "mov {top}, qword ptr [{at} + {stack} + {stack_top}]",
                "xor {object:e}, {object:e}",
                "cmp {top}, qword ptr [{at} + {stack} + {stack_bottom}]",
                "je 44f",
                "mov {object}, qword ptr [{top} - 8]",
                "sub {top}, 8",
                "mov qword ptr [{at} + {stack} + {stack_top}], {top}",
            ],
            ["xor {object:e}, {object:e}", "jmp 44b"],
            stack_top = const offset_of!(Stack, top),
            stack_bottom = const offset_of!(Stack, bottom),
            area = in(reg) area,
            stack = in(reg) stack,
            object = out(reg) object,
            at = out(reg) _,
            top = out(reg) _,
        );
    }
    object
}

/// Puts an object on the stack of its class; false: it is full, or the object seems to be there already (see `recent`).
///
/// # Safety
/// `area` is the calling thread's, `class` is one, and the blocks are there; the object is of that class, and has no other owner.
#[inline(always)]
pub unsafe fn push(area: *mut Area, class: usize, object: usize) -> bool {
    // SAFETY: as in `pop`; below its limit a stack has room. Where there are no stacks the table of them is
    // zero, and the first is full.
    unsafe {
        sequence!(
            "{top}",
            [
                "movzx {place:e}, word ptr [{at} + {class}*2 + {stack_of}]",
                "mov {top}, qword ptr [{at} + {place} + {stack_top}]",
                "cmp {top}, qword ptr [{at} + {place} + {stack_limit}]",
                "je {refused}",
                "imul {entry:e}, {object:e}, {multiplier}",
                "shr {entry:e}, {shift_entry}",
                "mov {slot}, qword ptr [{at} + {entry}*8 + {recent}]",
                // No branch: what is freed soon was last at the top, or is not.
                "cmp {slot}, {top}",
                "cmovae {slot}, {at}",
                "cmp qword ptr [{slot}], {object}",
                "je {refused}",
                "mov qword ptr [{at} + {entry}*8 + {recent}], {top}",
                "mov qword ptr [{top}], {object}",
                "add {top}, 8",
                "mov qword ptr [{at} + {place} + {stack_top}], {top}",
            ],
            ["jmp {refused}"],
            stack_of = const STACK_OF_AT,
            stack_top = const offset_of!(Stack, top),
            stack_limit = const offset_of!(Stack, limit),
            recent = const RECENT_AT,
            multiplier = const MULTIPLIER,
            shift_entry = const SHIFT,
            refused = label { return false },
            area = in(reg) area,
            class = in(reg) class,
            object = in(reg) object,
            at = out(reg) _,
            place = out(reg) _,
            top = out(reg) _,
            entry = out(reg) _,
            slot = out(reg) _,
        );
    }
    true
}

/// Puts objects on the stack of their class, as many as there is room for; how
/// many of them, from the first on.
///
/// # Safety
/// As for [`push`], for each of them.
pub unsafe fn push_many(area: *mut Area, class: usize, objects: &[usize]) -> usize {
    let done: usize;
    // SAFETY: as in `push`.
    unsafe {
        homed_sequence!(
            "rdi",
            ("ecx", "rcx"),
            [
                "add {at}, rcx",
                "mov rdi, qword ptr [{at} + {stack_top}]",
                "mov rcx, qword ptr [{at} + {stack_limit}]",
                "sub rcx, rdi",
                "shr rcx, 3",
                "cmp rcx, {count}",
                "cmova rcx, {count}",
                "mov {done}, rcx",
                "test rcx, rcx",
                "jz 44f",
                "mov rsi, {from}",
                "rep movsq",
                "mov qword ptr [{at} + {stack_top}], rdi",
            ],
            ["xor {done:e}, {done:e}", "jmp 44b"],
            mask = in(reg) home_mask(class),
            stack_top = const offset_of!(Stack, top),
            stack_limit = const offset_of!(Stack, limit),
            area = in(reg) area,
            offset = in(reg) offset(class),
            from = in(reg) objects.as_ptr(),
            count = in(reg) objects.len(),
            done = out(reg) done,
            at = out(reg) _,
            out("rcx") _,
            out("rsi") _,
            out("rdi") _,
        );
    }
    done
}

/// Takes the topmost objects of a class, as many as there are and fit; how many.
///
/// # Safety
/// `area` is the calling thread's, `class` is one, and the blocks are there.
pub unsafe fn pop_many(area: *mut Area, class: usize, into: &mut [usize]) -> usize {
    let done: usize;
    // SAFETY: as in `pop`.
    unsafe {
        homed_sequence!(
            "rdi",
            ("ecx", "rcx"),
            [
                "add {at}, rcx",
                "mov rsi, qword ptr [{at} + {stack_top}]",
                "mov rcx, rsi",
                "sub rcx, qword ptr [{at} + {stack_bottom}]",
                "shr rcx, 3",
                "cmp rcx, {count}",
                "cmova rcx, {count}",
                "mov {done}, rcx",
                "test rcx, rcx",
                "jz 44f",
                "lea {top}, [rcx*8]",
                "sub rsi, {top}",
                "mov {top}, rsi",
                "mov rdi, {into}",
                "rep movsq",
                "mov qword ptr [{at} + {stack_top}], {top}",
            ],
            ["xor {done:e}, {done:e}", "jmp 44b"],
            mask = in(reg) home_mask(class),
            stack_top = const offset_of!(Stack, top),
            stack_bottom = const offset_of!(Stack, bottom),
            area = in(reg) area,
            offset = in(reg) offset(class),
            into = in(reg) into.as_mut_ptr(),
            count = in(reg) into.len(),
            done = out(reg) done,
            at = out(reg) _,
            top = out(reg) _,
            out("rcx") _,
            out("rsi") _,
            out("rdi") _,
        );
    }
    done
}
