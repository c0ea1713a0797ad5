//! Instructions that run natively and translated: registers, flags, vectors and memory are the same afterwards, and each byte of the window that has changed is noted.
//!
//! Any bytes are decoded to instructions. An instruction with an operand in memory is encoded again with one in the window, so that it can run. Those that fault natively,
//! by a signal that leads to the end of the program, are not run translated; those are left out that would change the trial itself, or whose result is not the
//! same each time.

use core::arch::{global_asm, x86_64::_xgetbv};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::cell::RefCell;
use std::prelude::v1::*;
use std::vec;

use iced_x86::{
    Decoder as Iced, DecoderOptions, Encoder, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};

use super::decode::{Decode, Decoder, Flow};
use super::{Sink, Translator};

/// Bytes of the window that programs write to, and of the ranges before and behind it that nothing may be in.
const WINDOW: usize = 4096;
const GUARD: usize = 1 << 20;
/// Where operands lie in the window.
const MIDDLE: usize = 1024;
/// How far the numbers of bits lead, in bits.
const BITS: u64 = 3333;
/// Bytes for programs.
const ROOM: usize = 1 << 20;
/// Bytes of what the processor saves of its vectors.
const VECTORS: usize = 4096;

/// What a program begins with, and what it ends with.
#[repr(C, align(64))]
#[derive(Clone)]
pub struct State {
    /// By the numbers of general registers.
    pub registers: [u64; 16],
    flags: u64,
    stack: u64,
    code: u64,
    _rest: [u64; 5],
    /// As `xsave` has them.
    pub vectors: [u8; VECTORS],
}

// The stack pointer and r15, which has the state's address, are the trial's own.
global_asm!(
    ".globl spandrel_trial_run",
    ".hidden spandrel_trial_run",
    ".globl spandrel_trial_back",
    ".hidden spandrel_trial_back",
    "spandrel_trial_run:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov r15, rdi",
    "mov [r15 + 136], rsp",
    "mov eax, 0xe7",
    "xor edx, edx",
    "xrstor [r15 + 192]",
    "push qword ptr [r15 + 128]",
    "popfq",
    "mov rax, [r15]",
    "mov rcx, [r15 + 8]",
    "mov rdx, [r15 + 16]",
    "mov rbx, [r15 + 24]",
    "mov rbp, [r15 + 40]",
    "mov rsi, [r15 + 48]",
    "mov rdi, [r15 + 56]",
    "mov r8, [r15 + 64]",
    "mov r9, [r15 + 72]",
    "mov r10, [r15 + 80]",
    "mov r11, [r15 + 88]",
    "mov r12, [r15 + 96]",
    "mov r13, [r15 + 104]",
    "mov r14, [r15 + 112]",
    "jmp [r15 + 144]",
    "spandrel_trial_back:",
    "mov rsp, [r15 + 136]",
    "pushfq",
    "pop qword ptr [r15 + 128]",
    "cld",
    "mov [r15], rax",
    "mov [r15 + 8], rcx",
    "mov [r15 + 16], rdx",
    "mov [r15 + 24], rbx",
    "mov [r15 + 40], rbp",
    "mov [r15 + 48], rsi",
    "mov [r15 + 56], rdi",
    "mov [r15 + 64], r8",
    "mov [r15 + 72], r9",
    "mov [r15 + 80], r10",
    "mov [r15 + 88], r11",
    "mov [r15 + 96], r12",
    "mov [r15 + 104], r13",
    "mov [r15 + 112], r14",
    "mov eax, 0xe7",
    "xor edx, edx",
    "xsave [r15 + 192]",
    "fninit",
    "vzeroupper",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
);

unsafe extern "C" {
    fn spandrel_trial_run(state: *mut State);
    fn spandrel_trial_back();
}

/// What follows a program.
fn end_of_program() -> [u8; 14] {
    super::rewrite::far_jump(spandrel_trial_back as *const () as u64)
}

/// Where the room lies whose programs run natively, and whether one of them has faulted.
static ROOM_AT: AtomicUsize = AtomicUsize::new(0);
static HAS_FAULTED: AtomicBool = AtomicBool::new(false);

const FAULTS: [i32; 5] = [libc::SIGILL, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGTRAP];

/// A fault of a program leads to its end; any other one ends the process.
unsafe extern "C" fn fault(signal: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel calls a handler with.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize] as usize;
    if at.wrapping_sub(ROOM_AT.load(Relaxed)) < ROOM {
        HAS_FAULTED.store(true, Relaxed);
        registers[libc::REG_RIP as usize] = spandrel_trial_back as *const () as i64;
        // A trap for each instruction.
        registers[libc::REG_EFL as usize] &= !0x100;
    } else {
        // SAFETY: the signal comes again.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Notes as they come.
#[derive(Default)]
struct Exact(RefCell<Vec<(usize, usize)>>);

impl Sink for Exact {
    fn note(&self, at: *const u8, bytes: usize) {
        self.0.borrow_mut().push((at as usize, bytes));
    }
}

fn map(bytes: usize, access: i32, flags: i32) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: at a place that the kernel chooses.
    let at = unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, flags, -1, 0) };
    assert!(at != libc::MAP_FAILED);
    at as usize
}

/// See the head of this file.
pub struct Machine {
    translator: Translator<Exact>,
    decoder: Decoder,
    info: InstructionInfoFactory,
    window: usize,
    room: usize,
    used: usize,
    /// What each program begins with.
    pub first: Box<State>,
    /// Instructions that ran; bytes of the window that they have changed.
    pub instructions: u64,
    pub changed: u64,
}

impl Default for Machine {
    /// Takes the signals of faults.
    ///
    /// # Panics
    /// There is no memory, or no translator.
    fn default() -> Self {
        let around = map(WINDOW + 2 * GUARD, libc::PROT_NONE, libc::MAP_32BIT);
        let window = around + GUARD;
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: pages of the mapping above.
        assert_eq!(unsafe { libc::mprotect(window as *mut c_void, WINDOW, writable) }, 0);
        let room = map(ROOM, writable | libc::PROT_EXEC, 0);
        ROOM_AT.store(room, Relaxed);
        for signal in FAULTS {
            // SAFETY: the handler changes where the program goes on, and nothing else.
            unsafe {
                let mut action: libc::sigaction = core::mem::zeroed();
                action.sa_sigaction = fault as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
                libc::sigaction(signal, &raw const action, core::ptr::null_mut());
            }
        }
        let mut translator = Translator::new((window, WINDOW), &[], Exact::default()).unwrap();
        translator.process.takes_all = true;
        let first = Box::new(State {
            registers: [0; 16],
            flags: 2,
            stack: 0,
            code: 0,
            _rest: [0; 5],
            vectors: [0; VECTORS],
        });
        let (decoder, info) = (Decoder::default(), InstructionInfoFactory::new());
        let mut machine = Self {
            translator,
            decoder,
            info,
            window,
            room,
            used: 0,
            first,
            instructions: 0,
            changed: 0,
        };
        machine.first = Box::new(machine.first_state());
        machine
    }
}

impl Machine {
    /// A state of numbers without a pattern, that the processor can load.
    fn first_state(&self) -> State {
        let mut number = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            number
        };
        let mut state = (*self.first).clone();
        state.vectors.fill_with(|| next() as u8);
        // Control and status: what a program begins with; four numbers of the x87 unit.
        state.vectors[..32].fill(0);
        state.vectors[..2].copy_from_slice(&0x37fu16.to_le_bytes());
        state.vectors[4] = 0xf;
        state.vectors[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
        // Which parts there are: no others than the system has switched on.
        // SAFETY: translated code needs `xsave`.
        let parts = unsafe { _xgetbv(0) } & 0xe7;
        state.vectors[512..576].fill(0);
        state.vectors[512..520].copy_from_slice(&parts.to_le_bytes());
        state.registers = core::array::from_fn(|_| next());
        let middle = (self.window + MIDDLE) as u64;
        // The base; pointers of string instructions and their count; an index.
        let fixed = [(3, middle), (6, middle + 512), (7, middle + 1024), (1, 37), (14, 8)];
        // Numbers of bits, on both sides of an operand.
        let bits = [(12, -(BITS as i64) as u64), (13, BITS)];
        let fixed = fixed.into_iter().chain(bits).collect::<Vec<_>>();
        // Indices that lead to the window: of four bytes, and of eight.
        let vectors = super::scatter::Layout::default().part(3).1;
        if parts >> 7 & 1 != 0 {
            let indices = &mut state.vectors[vectors..vectors + 1024];
            let (short, long) = indices.split_at_mut(512);
            for (number, index) in short.chunks_mut(4).enumerate() {
                index.copy_from_slice(&(number as i32 * 37 % 101 - 50).to_le_bytes());
            }
            for (number, index) in long.chunks_mut(8).enumerate() {
                index.copy_from_slice(&(number as i64 * 37 % 101 - 50).to_le_bytes());
            }
        }
        fixed.iter().for_each(|(register, value)| state.registers[*register] = *value);
        state
    }

    /// What the last program has noted.
    pub fn noted(&self) -> Vec<(usize, usize)> {
        self.translator.sink().0.borrow().clone()
    }

    /// Where operands lie in the window.
    pub fn middle(&self) -> usize {
        self.window + MIDDLE
    }

    fn memory(&mut self) -> &mut [u8] {
        // SAFETY: the window, which nothing else refers to.
        unsafe { core::slice::from_raw_parts_mut(self.window as *mut u8, WINDOW) }
    }

    /// Whether an instruction can run here, and its memory operand be another one.
    fn is_safe(&mut self, instruction: &Instruction) -> bool {
        use Mnemonic as M;
        let is_left_out = matches!(
            instruction.mnemonic(),
            // Not the same each time.
            M::Rdtsc | M::Rdtscp | M::Rdrand | M::Rdseed | M::Rdpid | M::Cpuid | M::Rdpmc | M::Rdpru
                | M::Lsl | M::Sgdt | M::Sidt | M::Sldt | M::Str | M::Smsw
                | M::Fnstenv | M::Fnsave | M::Fstenv | M::Fsave | M::Fxsave | M::Fxsave64
                | M::Xsave | M::Xsave64 | M::Xsavec | M::Xsavec64 | M::Xsaveopt | M::Xsaveopt64
                | M::Umwait | M::Tpause | M::Clui | M::Stui
                // Exceptions, and what the thread needs.
                | M::Ldmxcsr | M::Vldmxcsr | M::Fldcw | M::Fldenv | M::Frstor | M::Fxrstor
                | M::Fxrstor64 | M::Xrstor | M::Xrstor64 | M::Wrpkru | M::Rdfsbase | M::Wrfsbase
                | M::Rdgsbase | M::Wrgsbase | M::Lfs | M::Lgs | M::Lss
                | M::In | M::Out | M::Insb | M::Insw | M::Insd | M::Outsb | M::Outsw | M::Outsd
        );
        let has_segment = instruction.op_kinds().any(|kind| kind == OpKind::Register)
            && (0..instruction.op_count())
                .any(|n| instruction.op_register(n).is_segment_register());
        if is_left_out
            || has_segment
            || instruction.is_stack_instruction()
            || matches!(instruction.segment_prefix(), Register::FS | Register::GS)
        {
            return false;
        }
        let own = |register: Register| {
            matches!(register.full_register(), Register::RSP | Register::R15 | Register::RBX)
        };
        let used = self.info.info(instruction);
        !used.used_registers().iter().any(|used| {
            own(used.register())
                && (used.register().full_register() != Register::RBX
                    || !matches!(used.access(), OpAccess::Read | OpAccess::CondRead))
        })
    }

    /// The next instruction of the bytes as one that can run: its own length, and its code.
    fn next(&mut self, bytes: &[u8], at: u64) -> Option<(usize, Vec<u8>)> {
        let mut iced = Iced::with_ip(64, bytes, at, DecoderOptions::NONE);
        let mut instruction = iced.decode();
        let len = instruction.len();
        if instruction.is_invalid() {
            return Some((1, vec![]));
        }
        if instruction.op_kinds().any(|kind| kind == OpKind::Memory) {
            let is_vector = instruction.memory_index().is_vector_register();
            // The bytes choose among forms of an operand.
            let form = bytes[len - 1] ^ bytes[0];
            let base = if form & 3 == 0 && !is_vector { Register::EBX } else { Register::RBX };
            instruction.set_memory_base(base);
            // Where the vector is one of 32, it has indices of either size.
            if is_vector && instruction.op_mask() != Register::None {
                let index = instruction.memory_index();
                let first = if index.is_zmm() {
                    Register::ZMM16
                } else if index.is_ymm() {
                    Register::YMM16
                } else {
                    Register::XMM16
                };
                instruction.set_memory_index(first + u32::from(form & 15));
            }
            let has_bit = matches!(
                instruction.mnemonic(),
                Mnemonic::Bt | Mnemonic::Btc | Mnemonic::Btr | Mnemonic::Bts
            );
            if has_bit && instruction.op1_kind() == OpKind::Register {
                let register = [Register::R12W, Register::R13W][usize::from(form >> 2 & 1)];
                let number = match instruction.op1_register().size() {
                    8 => register.full_register(),
                    4 => register.full_register32(),
                    _ => register,
                };
                instruction.set_op1_register(number);
            }
            if !is_vector {
                let index = match (form & 12, base) {
                    (0, Register::RBX) => Register::R14,
                    (0, _) => Register::R14D,
                    _ => Register::None,
                };
                instruction.set_memory_index(index);
            }
            let displacement = u64::from(form >> 4) * 8 + u64::from(form & 1);
            instruction.set_memory_displacement64(displacement);
            instruction.set_memory_displ_size(1);
        }
        if !self.is_safe(&instruction) {
            return Some((len, vec![]));
        }
        let mut encoder = Encoder::new(64);
        let Ok(_) = encoder.encode(&instruction, at) else { return Some((len, vec![])) };
        let code = encoder.take_buffer();
        let decoded = self.decoder.decode(&code, at);
        let runs = decoded.is_ok_and(|decoded| decoded.flow == Flow::Next && !decoded.pivots);
        Some((len, if runs { code } else { vec![] }))
    }

    /// Runs the instructions that the bytes begin with, each by itself first.
    ///
    /// # Panics
    /// Translated they do something else, or a change is not noted.
    pub fn run(&mut self, bytes: &[u8], most: usize) {
        let (mut at, mut program, mut count) = (0, vec![], 0);
        while at < bytes.len() && count < most {
            let rest = &bytes[at..bytes.len().min(at + super::decode::LONGEST)];
            let Some((len, code)) = self.next(rest, self.room as u64) else { break };
            at += len;
            if code.is_empty() {
                continue;
            }
            program.extend_from_slice(&code);
            if self.compare(&program) {
                count += 1;
            } else {
                program.truncate(program.len() - code.len());
            }
        }
    }

    /// Puts a program into the room: its address.
    fn place(&mut self, program: &[u8]) -> u64 {
        let end = end_of_program();
        if self.used + program.len() + end.len() > ROOM {
            self.translator.flush();
            self.used = 0;
        }
        let at = self.room + self.used;
        // SAFETY: within the room, and nothing runs there now.
        unsafe {
            let to = at as *mut u8;
            to.copy_from_nonoverlapping(program.as_ptr(), program.len());
            to.add(program.len()).copy_from_nonoverlapping(end.as_ptr(), end.len());
        }
        self.used = (self.used + program.len() + end.len()).next_multiple_of(16);
        at as u64
    }

    /// Compares a program's runs. False: it faults.
    ///
    /// # Panics
    /// They differ, or a change is not noted.
    pub fn compare(&mut self, program: &[u8]) -> bool {
        let code = self.place(program);
        let before: Vec<u8> = (0..WINDOW).map(|at| (at * 167 + at / 256 * 13) as u8).collect();
        let mut first = self.first.clone();
        first.code = code;
        let (mut native, mut translated) = (first.clone(), first);
        self.memory().copy_from_slice(&before);
        HAS_FAULTED.store(false, Relaxed);
        // SAFETY: the program uses the window and its registers.
        unsafe { spandrel_trial_run(&raw mut *native) };
        if HAS_FAULTED.load(Relaxed) {
            return false;
        }
        let expected = self.memory().to_vec();
        self.memory().copy_from_slice(&before);
        self.translator.sink().0.borrow_mut().clear();
        let state = &raw mut *translated;
        // SAFETY: as above.
        self.translator.call(|| unsafe { spandrel_trial_run(state) });
        let window = self.window;
        let mut noted = vec![false; WINDOW];
        for (at, bytes) in self.translator.sink().0.borrow().iter() {
            let from = at.saturating_sub(window).min(WINDOW);
            noted[from..(at + bytes - window).min(WINDOW)].fill(true);
        }
        let now = self.memory();
        assert!(*now == expected[..], "{program:02x?}: memory");
        for (at, (now, before)) in now.iter().zip(&before).enumerate() {
            assert!(
                now == before || noted[at],
                "{program:02x?}: a change of byte {at} is not noted"
            );
        }
        self.changed +=
            expected.iter().zip(&before).filter(|(now, before)| now != before).count() as u64;
        assert!(native.registers[..15] == translated.registers[..15], "{program:02x?}: registers");
        assert_eq!(native.flags, translated.flags, "{program:02x?}: flags");
        // Where the last instruction of the x87 unit lay, and which parts are as they were at first, may differ.
        let differs = |range: core::ops::Range<usize>| {
            native.vectors[range.clone()] != translated.vectors[range]
        };
        assert!(
            !differs(0..6) && !differs(24..464) && !differs(576..VECTORS),
            "{program:02x?}: vectors"
        );
        self.instructions += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::corpus::{Random, code, millions};
    use super::*;
    use std::collections::HashSet;
    use std::println;

    /// Instructions of libraries, each of its codes some times, and any bytes.
    #[test]
    fn instructions_do_the_same_translated() {
        let mut machine = Machine::default();
        let mut random = Random(0x5_eed5);
        let count = (millions(0.004) * 1e6) as u64;
        while machine.instructions < count {
            machine.run(&random.instruction(), 1);
        }
        let drawn = machine.instructions;
        let mut known = HashSet::new();
        for (_, at, bytes) in code() {
            let mut iced = Iced::with_ip(64, &bytes, at, DecoderOptions::NONE);
            let mut instruction = Instruction::default();
            while iced.can_decode() {
                let from = iced.position();
                iced.decode_out(&mut instruction);
                if !instruction.is_invalid() && known.insert(instruction.code()) {
                    machine.run(&bytes[from..bytes.len().min(from + 60)], 2);
                }
            }
        }
        println!(
            "{drawn} instructions, {} of libraries, {} kinds; {} bytes changed",
            machine.instructions - drawn,
            known.len(),
            machine.changed
        );
        // Most instructions that are drawn store nothing.
        assert!(machine.changed > machine.instructions / 4);
        assert!(machine.instructions > drawn + known.len() as u64);
    }
}
