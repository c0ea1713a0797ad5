//! What the translator needs to know of an instruction. The decoder behind the trait can be another one.

use core::arch::x86_64::{__cpuid, __cpuid_count};

use iced_x86::{
    Code, Decoder as Iced, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

use super::emit::{Gpr, Place};
use super::scatter::Scatter;

/// Bytes of the longest instruction.
pub const LONGEST: usize = 15;
/// Writes to memory of one instruction, beside those to the stack.
pub const MOST_WRITES: usize = 2;
/// Bytes of one write, at most; a repeated instruction is no single one.
pub const MOST_WRITTEN: u64 = 64 << 10;

/// Why an instruction cannot be translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unknown {
    /// No instruction that the decoder knows.
    Instruction,
    /// It writes through a vector of addresses, in a form that is not known.
    Scatter,
    /// It uses the segment that the translator has for itself.
    Segment,
    /// It writes a number of bytes that is not known.
    Size,
    /// It enters the kernel otherwise than by `syscall`, or leaves the code segment.
    Gate,
    /// It begins or ends a transaction of the processor.
    Transaction,
    /// A branch with the prefix of 16-bit operands: processors of AMD cut its target down to 16 bits, those of Intel do not (AMD's manual, volume 3, 1.2.2; Intel's, volume 2, `JMP`).
    Truncation,
}

/// What an instruction does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// The next instruction.
    Next,
    Jump(u64),
    /// To one of two places. `is_short`: there is no form of it with 32 bits of distance.
    Branch {
        to: u64,
        is_short: bool,
    },
    Call(u64),
    JumpTo(Operand),
    CallTo(Operand),
    /// And takes that number of bytes more off the stack.
    Return(u16),
    SystemCall,
    /// It raises an exception of the processor.
    Trap,
}

/// What leads to a place that is not known before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    Register(Gpr),
    Memory(Place),
}

/// A write to memory that is not the stack's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    pub place: Place,
    /// At least as many as are written.
    pub bytes: u32,
    /// Other processors see it as one with what the instruction has read there.
    pub is_atomic: bool,
    /// The register with the number of a bit, counted from the place on and signed: the word that has it is written, of as many bytes.
    pub bit: Option<Gpr>,
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug)]
pub struct Decoded {
    pub len: usize,
    pub flow: Flow,
    pub writes: [Option<Write>; MOST_WRITES],
    /// A string instruction that is repeated: bytes of each element that it writes at rdi; 0: it writes none.
    pub repeated: Option<u32>,
    /// It writes through a vector of addresses.
    pub scatter: Option<Scatter>,
    /// The stack may be another one after it.
    pub pivots: bool,
    /// Where in the instruction the distance of an operand relative to the instruction pointer lies, and the operand's address.
    pub relative: Option<(usize, u64)>,
}

/// Tells of instructions.
pub trait Decode {
    /// The first instruction of these bytes, which lie at `at`.
    ///
    /// # Errors
    /// [`Unknown`].
    fn decode(&mut self, bytes: &[u8], at: u64) -> Result<Decoded, Unknown>;
}

/// Whether the processor has what translated code uses, BMI2 and `xsave`, keeps no stack of return addresses of its own (CET), which translated code would leave, and takes all bits of an
/// address for what they are (no LAM): an address with others lies in no state, and what is stored there does. A process of several threads cannot switch LAM on.
pub fn has_instructions() -> bool {
    const SHADOW_STACK_STATUS: i32 = 0x5005;
    const UNTAG_MASK: i32 = 0x4001;
    let mut shadow = 0u64;
    // SAFETY: the kernel stores to the variable, if it knows the call.
    let known =
        unsafe { libc::syscall(libc::SYS_arch_prctl, SHADOW_STACK_STATUS, &raw mut shadow) };
    if known == 0 && shadow & 1 != 0 {
        return false;
    }
    let mut mask = u64::MAX;
    // SAFETY: as above.
    let known = unsafe { libc::syscall(libc::SYS_arch_prctl, UNTAG_MASK, &raw mut mask) };
    if known == 0 && mask != u64::MAX {
        return false;
    }
    #[allow(unused_unsafe, reason = "unsafe before Rust 1.94")]
    // SAFETY: each processor of 64 bits has it.
    let (features, more) = unsafe { (__cpuid(1), __cpuid_count(7, 0)) };
    features.ecx & (1 << 27) != 0 && more.ebx & (1 << 8) != 0
}

/// The decoder of the crate `iced-x86`.
pub struct Decoder {
    info: InstructionInfoFactory,
    /// Bytes that `xsave` writes at most.
    state_bytes: u32,
}

impl Default for Decoder {
    /// Allocates all that it will ever need.
    fn default() -> Self {
        #[allow(unused_unsafe, reason = "unsafe before Rust 1.94")]
        // SAFETY: each processor of 64 bits has it.
        let leaf = unsafe { __cpuid_count(0xd, 0) };
        let mut decoder = Self {
            info: InstructionInfoFactory::new(),
            state_bytes: leaf.ecx.max(leaf.ebx).max(576),
        };
        // The longest list of registers (`vzeroall`), and one of memory: the lists keep their room.
        for bytes in [&[0xc5, 0xfc, 0x77][..], &[0xc8, 0xff, 0xff, 31], &[0xf3, 0xa4]] {
            let _ = decoder.decode(bytes, 0);
        }
        decoder
    }
}

pub fn gpr(register: Register) -> Option<Gpr> {
    let full = register.full_register();
    (Register::RAX..=Register::R15)
        .contains(&full)
        .then(|| Gpr((full as u32 - Register::RAX as u32) as u8))
}

/// The place of a memory operand of the instruction itself.
fn place(base: Register, index: Register, scale: u32, displacement: u64) -> Result<Place, Unknown> {
    if base.is_ip() {
        return Ok(Place::At(displacement));
    }
    if base == Register::None && index == Register::None {
        return Ok(Place::At(displacement));
    }
    if index.is_vector_register() {
        return Err(Unknown::Scatter);
    }
    let is_32_bit = base.is_gpr32() || index.is_gpr32();
    let scale = scale.trailing_zeros() as u8;
    let index = gpr(index).map(|index| (index, scale));
    Ok(Place::Sum { base: gpr(base), index, displacement: displacement as i32, is_32_bit })
}

fn operand(instruction: &Instruction) -> Result<Operand, Unknown> {
    match instruction.op0_kind() {
        OpKind::Register => {
            gpr(instruction.op0_register()).map(Operand::Register).ok_or(Unknown::Gate)
        }
        OpKind::Memory if matches!(instruction.memory_segment(), Register::FS | Register::GS) => {
            Err(Unknown::Segment)
        }
        OpKind::Memory => place(
            instruction.memory_base(),
            instruction.memory_index(),
            instruction.memory_index_scale(),
            instruction.memory_displacement64(),
        )
        .map(Operand::Memory),
        _ => Err(Unknown::Gate),
    }
}

fn flow(instruction: &Instruction) -> Result<Flow, Unknown> {
    Ok(match (instruction.code(), instruction.flow_control()) {
        (Code::Syscall, _) => Flow::SystemCall,
        (_, FlowControl::Next) => Flow::Next,
        (_, FlowControl::UnconditionalBranch) if instruction.is_jmp_short_or_near() => {
            Flow::Jump(instruction.near_branch_target())
        }
        (_, FlowControl::ConditionalBranch) => {
            let is_short = !instruction.is_jcc_short_or_near();
            Flow::Branch { to: instruction.near_branch_target(), is_short }
        }
        (_, FlowControl::Call) if instruction.is_call_near() => {
            Flow::Call(instruction.near_branch_target())
        }
        (_, FlowControl::IndirectBranch) if instruction.is_jmp_near_indirect() => {
            Flow::JumpTo(operand(instruction)?)
        }
        (_, FlowControl::IndirectCall) if instruction.is_call_near_indirect() => {
            Flow::CallTo(operand(instruction)?)
        }
        (Code::Retnq, _) => Flow::Return(0),
        (Code::Retnq_imm16, _) => Flow::Return(instruction.immediate16()),
        (Code::Int3, _) | (_, FlowControl::Exception) => Flow::Trap,
        (_, FlowControl::XbeginXabortXend) => return Err(Unknown::Transaction),
        _ => return Err(Unknown::Gate),
    })
}

/// Refuses instructions that the list of their operands does not tell enough of.
fn check(instruction: &Instruction) -> Result<(), Unknown> {
    use Mnemonic::{Clzero, Enclu, Rdgsbase, Vmfunc, Wrgsbase};
    if instruction.segment_prefix() == Register::GS {
        return Err(Unknown::Segment);
    }
    match instruction.mnemonic() {
        // A line of the cache, of which the list of operands says nothing.
        Clzero => Err(Unknown::Size),
        // Into an enclave, which goes on with other code; to other tables of a virtual machine's pages.
        Enclu | Vmfunc => Err(Unknown::Gate),
        Rdgsbase | Wrgsbase => Err(Unknown::Segment),
        _ if instruction.op_count() > 0
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register() == Register::GS =>
        {
            Err(Unknown::Segment)
        }
        Mnemonic::Lgs => Err(Unknown::Segment),
        _ => Ok(()),
    }
}

/// Bytes that an instruction may be from the stack pointer, or move it by, and still mean the stack: the kernel keeps as many free below one.
const NEAR: u64 = 1 << 20;

/// Whether an instruction has the stack pointer be what something else was, or cuts it down to fewer bits. `access`: what it does to an operand.
fn pivots(instruction: &Instruction, access: impl Fn(u32) -> OpAccess) -> bool {
    use Mnemonic::{Add, And, Enter, Lea, Leave, Sub};
    let is_target = |operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).full_register() == Register::RSP
            && !matches!(access(operand), OpAccess::None | OpAccess::Read | OpAccess::CondRead)
    };
    let is_written = (0..instruction.op_count()).any(is_target)
        || matches!(instruction.mnemonic(), Leave | Enter);
    let distance = match instruction.mnemonic() {
        Add | Sub => instruction.try_immediate(1).ok(),
        // A mask of ones, but for the lowest bits, moves it by those.
        And => instruction.try_immediate(1).ok().map(|mask| !mask).filter(|low| *low < 1 << 63),
        Lea if instruction.memory_base() == Register::RSP
            && instruction.memory_index() == Register::None =>
        {
            Some(instruction.memory_displacement64())
        }
        _ => None,
    };
    let is_whole = instruction.op0_register() == Register::RSP;
    let is_near = is_whole && distance.is_some_and(|bytes| is_near(bytes as i64));
    is_written && !is_near
}

fn is_near(distance: i64) -> bool {
    distance.unsigned_abs() <= NEAR
}

/// Whether an instruction has the prefix of 16-bit operands, and no prefix of 64-bit ones, which outweighs it.
pub fn is_16_bit(bytes: &[u8]) -> bool {
    let prefixes = || {
        bytes.iter().take_while(|byte| {
            matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67)
                || matches!(byte, 0xf0 | 0xf2 | 0xf3)
        })
    };
    prefixes().any(|byte| *byte == 0x66) && prefixes().last().is_none_or(|last| last & 0xf8 != 0x48)
}

/// The register whose number of a bit leads from the operand in memory to the word that is written.
///
/// # Errors
/// [`Unknown::Size`]: the manuals do not say where that word lies.
fn bit(instruction: &Instruction) -> Result<Option<Gpr>, Unknown> {
    use Mnemonic::{Btc, Btr, Bts};
    let has_number = matches!(instruction.mnemonic(), Btc | Btr | Bts)
        && instruction.op0_kind() == OpKind::Memory
        && instruction.op1_kind() == OpKind::Register;
    if !has_number {
        return Ok(None);
    }
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    let is_short = [base, index].iter().any(|register| register.is_gpr32())
        || base == Register::EIP
        || instruction.memory_displ_size() == 4
            && base == Register::None
            && index == Register::None;
    if is_short || instruction.memory_segment() == Register::FS {
        return Err(Unknown::Size);
    }
    gpr(instruction.op1_register()).map(Some).ok_or(Unknown::Size)
}

/// The write of a memory access, if it is one that counts. `state_bytes`: what `xsave` writes at most.
fn write_of(
    instruction: &Instruction,
    used: &UsedMemory,
    state_bytes: u32,
) -> Result<Option<Write>, Unknown> {
    use Mnemonic::{Xsave, Xsave64, Xsavec, Xsavec64, Xsaveopt, Xsaveopt64};
    let writes = matches!(
        used.access(),
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    );
    // The thread's own variables, and the stack. An index may lead anywhere, and so may 32 bits of an address.
    let is_tile = matches!(instruction.mnemonic(), Mnemonic::Tilestored);
    let is_stack = used.base() == Register::RSP
        && used.index() == Register::None
        && is_near(used.displacement() as i64)
        && !is_tile;
    if !writes {
        return Ok(None);
    }
    let bit = bit(instruction)?;
    let is_own = used.segment() == Register::FS || is_stack && bit.is_none();
    // With the thread's segment as well: its addresses lead anywhere.
    if used.index().is_vector_register() {
        return Err(Unknown::Scatter);
    }
    if is_own {
        return Ok(None);
    }
    if used.segment() == Register::GS {
        return Err(Unknown::Segment);
    }
    let is_state = matches!(
        instruction.mnemonic(),
        Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64
    );
    // Of a repeated instruction the size of an element.
    let is_string = instruction.is_string_instruction();
    let size = if is_string { instruction.memory_size() } else { used.memory_size() };
    let bytes = match size.size() {
        _ if is_state => state_bytes,
        bytes => u32::try_from(bytes).map_err(|_| Unknown::Size)?,
    };
    if bytes == 0 || u64::from(bytes) > MOST_WRITTEN {
        return Err(Unknown::Size);
    }
    let place = place(used.base(), used.index(), used.scale(), used.displacement())?;
    let is_atomic = instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg;
    Ok(Some(Write { place, bytes, is_atomic, bit }))
}

impl Decode for Decoder {
    fn decode(&mut self, bytes: &[u8], at: u64) -> Result<Decoded, Unknown> {
        let mut iced = Iced::with_ip(64, bytes, at, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        iced.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return Err(Unknown::Instruction);
        }
        let flow = flow(&instruction)?;
        let len = instruction.len();
        let goes_on = matches!(flow, Flow::Next | Flow::SystemCall | Flow::Trap);
        if !goes_on && is_16_bit(bytes) {
            return Err(Unknown::Truncation);
        }
        let relative = instruction.is_ip_rel_memory_operand().then(|| {
            let offset = iced.get_constant_offsets(&instruction).displacement_offset();
            (offset, instruction.ip_rel_memory_address())
        });
        let is_repeated = instruction.is_string_instruction()
            && (instruction.has_rep_prefix() || instruction.has_repne_prefix());
        check(&instruction)?;
        let mut writes = [None; MOST_WRITES];
        let mut count = 0;
        let options = InstructionInfoOptions::NO_REGISTER_USAGE;
        let info = self.info.info_options(&instruction, options);
        let scatter = Scatter::of(&instruction);
        for memory in info.used_memory() {
            if scatter.is_some() {
                break;
            }
            if let Some(write) = write_of(&instruction, memory, self.state_bytes)? {
                *writes.get_mut(count).ok_or(Unknown::Size)? = Some(write);
                count += 1;
            }
        }
        let first: Option<Write> = writes[0];
        // Of 32-bit addresses the registers' upper halves count for nothing.
        let is_short = |place| matches!(place, Place::Sum { is_32_bit: true, .. });
        if is_repeated && first.is_some_and(|write| is_short(write.place)) {
            return Err(Unknown::Size);
        }
        let repeated = is_repeated.then(|| first.map_or(0, |write| write.bytes));
        if is_repeated {
            writes = [None; MOST_WRITES];
        }
        let pivots = pivots(&instruction, |operand| info.op_access(operand));
        Ok(Decoded { len, flow, writes, repeated, scatter, pivots, relative })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Result<Decoded, Unknown> {
        Decoder::default().decode(bytes, 0x1000)
    }

    fn written(bytes: &[u8]) -> u32 {
        decoded(bytes).unwrap().writes.iter().flatten().map(|write| write.bytes).sum()
    }

    #[test]
    fn writes_are_told_but_for_those_to_the_stack() {
        // mov [rax], rcx; mov [rsp + 8], rcx; mov fs:[0], rcx; mov rcx, [rax]; push rax
        assert_eq!(written(&[0x48, 0x89, 0x08]), 8);
        assert_eq!(written(&[0x48, 0x89, 0x4c, 0x24, 0x08]), 0);
        assert_eq!(written(&[0x64, 0x48, 0x89, 0x0c, 0x25, 0, 0, 0, 0]), 0);
        assert_eq!(written(&[0x48, 0x8b, 0x08]), 0);
        assert_eq!(written(&[0x50]), 0);
        // vmovdqu64 [rdi], zmm0; stosb; lock xadd [rdi], eax; cmpxchg16b [rdi]; pop [rax]; bts dword [rax], 3
        assert_eq!(written(&[0x62, 0xf1, 0xfe, 0x48, 0x7f, 0x07]), 64);
        assert_eq!(written(&[0xaa]), 1);
        assert_eq!(written(&[0xf0, 0x0f, 0xc1, 0x07]), 4);
        assert_eq!(written(&[0xf0, 0x48, 0x0f, 0xc7, 0x0f]), 16);
        assert_eq!(written(&[0x8f, 0x00]), 8);
        assert_eq!(written(&[0x0f, 0xba, 0x28, 3]), 4);
        // fxsave [rax]
        assert_eq!(written(&[0x0f, 0xae, 0x00]), 512);
        // xchg [rdi], eax is atomic without a prefix, and mov is not.
        let is_atomic = |bytes: &[u8]| decoded(bytes).unwrap().writes[0].unwrap().is_atomic;
        assert!(is_atomic(&[0x87, 0x07]) && !is_atomic(&[0x89, 0x07]));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let refused = |bytes: &[u8]| decoded(bytes).unwrap_err();
        // A byte that is no instruction in 64 bits.
        assert_eq!(refused(&[0x06]), Unknown::Instruction);
        // vpscatterdd fs:[rax + zmm1 * 4]{k1}, zmm0
        assert_eq!(refused(&[0x64, 0x62, 0xf2, 0x7d, 0x49, 0xa0, 0x04, 0x88]), Unknown::Scatter);
        // mov gs:[rax], ecx; wrgsbase rax; mov gs, eax
        assert_eq!(refused(&[0x65, 0x89, 0x08]), Unknown::Segment);
        assert_eq!(refused(&[0xf3, 0x48, 0x0f, 0xae, 0xd8]), Unknown::Segment);
        assert_eq!(refused(&[0x8e, 0xe8]), Unknown::Segment);
        // clzero; mov rax, gs:[0]
        assert_eq!(refused(&[0x0f, 0x01, 0xfc]), Unknown::Size);
        assert_eq!(refused(&[0x65, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0]), Unknown::Segment);
        // bts fs:[rax], rcx; bts [eax], rcx
        assert_eq!(refused(&[0x64, 0x48, 0x0f, 0xab, 0x08]), Unknown::Size);
        assert_eq!(refused(&[0x67, 0x48, 0x0f, 0xab, 0x08]), Unknown::Size);
        // int 0x80; sysenter; retf; xbegin; rep stosb with edi
        assert_eq!(refused(&[0xcd, 0x80]), Unknown::Gate);
        assert_eq!(refused(&[0x0f, 0x34]), Unknown::Gate);
        assert_eq!(refused(&[0xcb]), Unknown::Gate);
        assert_eq!(refused(&[0xc7, 0xf8, 0, 0, 0, 0]), Unknown::Transaction);
        assert_eq!(refused(&[0x67, 0xf3, 0xaa]), Unknown::Size);
        // enclu; vmfunc
        assert_eq!(refused(&[0x0f, 0x01, 0xd7]), Unknown::Gate);
        assert_eq!(refused(&[0x0f, 0x01, 0xd4]), Unknown::Gate);
    }

    #[test]
    fn the_number_of_a_bit_leads_to_the_word_that_is_written() {
        let write = |bytes: &[u8]| decoded(bytes).unwrap().writes[0].unwrap();
        // bts [rax], rcx; lock btr [rax], r9d; lock btc [rsp + 8], cx; lock bts dword [rax], 3
        let bits: [(&[u8], u32, Option<Gpr>, bool); 4] = [
            (&[0x48, 0x0f, 0xab, 0x08], 8, Some(Gpr(1)), false),
            (&[0xf0, 0x44, 0x0f, 0xb3, 0x08], 4, Some(Gpr(9)), true),
            (&[0xf0, 0x66, 0x0f, 0xbb, 0x4c, 0x24, 8], 2, Some(Gpr(1)), true),
            (&[0xf0, 0x0f, 0xba, 0x28, 3], 4, None, true),
        ];
        for (code, bytes, bit, is_atomic) in bits {
            let write = write(code);
            assert_eq!((write.bytes, write.bit, write.is_atomic), (bytes, bit, is_atomic));
        }
        // bt [rax], rcx writes nothing.
        assert_eq!(written(&[0x48, 0x0f, 0xa3, 0x08]), 0);
    }

    #[test]
    fn branches_that_processors_disagree_on_are_refused() {
        let all: [&[u8]; 9] = [
            &[0x66, 0xe9, 0, 0, 0, 0],
            &[0x66, 0xeb, 0],
            &[0x66, 0xe8, 0, 0, 0, 0],
            &[0x66, 0x74, 0],
            &[0x66, 0x0f, 0x84, 0, 0, 0, 0],
            &[0x66, 0xe3, 0],
            &[0x66, 0xc3],
            &[0x66, 0xff, 0xe0],
            &[0x66, 0xff, 0x10],
        ];
        for bytes in all {
            // The same behind other prefixes: one of 64 bits that is not the last counts for nothing.
            for prefix in [&[][..], &[0x2e], &[0xf2], &[0x48]] {
                let all = [prefix, bytes, &[0; 4]].concat();
                assert_eq!(decoded(&all).unwrap_err(), Unknown::Truncation, "{all:02x?}");
            }
            // Without it, and with the prefix of 64 bits as linkers pad calls of `__tls_get_addr`.
            let plain = [&bytes[1..], &[0; 4]].concat();
            let padded = [&[0x66, 0x66, 0x48], &bytes[1..], &[0; 4]].concat();
            assert!(decoded(&plain).is_ok() && decoded(&padded).is_ok(), "{padded:02x?}");
        }
    }

    #[test]
    fn another_stack_is_told() {
        let pivots = |bytes: &[u8]| decoded(bytes).unwrap().pivots;
        // mov rsp, rdi; xchg rax, rsp; leave; lea rsp, [rbp - 8]; pop rsp; add rsp, rax
        assert!(pivots(&[0x48, 0x89, 0xfc]) && pivots(&[0x48, 0x94]) && pivots(&[0xc9]));
        assert!(pivots(&[0x48, 0x8d, 0x65, 0xf8]) && pivots(&[0x5c]));
        assert!(pivots(&[0x48, 0x01, 0xc4]));
        // add rsp, [rax]; add esp, 8; and sp, -16; lea esp, [rsp + 8]; xadd rax, rsp; sub rsp, 16 MiB; and rsp, 7
        assert!(pivots(&[0x48, 0x03, 0x20]) && pivots(&[0x83, 0xc4, 8]));
        assert!(pivots(&[0x66, 0x83, 0xe4, 0xf0]) && pivots(&[0x8d, 0x64, 0x24, 8]));
        assert!(pivots(&[0x48, 0x0f, 0xc1, 0xe0]) && pivots(&[0x48, 0x81, 0xec, 0, 0, 0, 1]));
        assert!(pivots(&[0x48, 0x83, 0xe4, 7]) && !pivots(&[0x48, 0x83, 0xe4, 0xf0]));
        // sub rsp, 8; lea rsp, [rsp + 8]; push rsp; mov rax, rsp; pop rax
        assert!(!pivots(&[0x48, 0x83, 0xec, 8]) && !pivots(&[0x48, 0x8d, 0x64, 0x24, 8]));
        assert!(!pivots(&[0x54]) && !pivots(&[0x48, 0x89, 0xe0]) && !pivots(&[0x58]));
        // mov byte [rsp + rcx], 7; mov [esp + 8], ecx; mov [rsp + 16 MiB], rcx
        assert_eq!(written(&[0xc6, 0x04, 0x0c, 7]), 1);
        assert_eq!(written(&[0x67, 0x89, 0x4c, 0x24, 8]), 4);
        assert_eq!(written(&[0x48, 0x89, 0x8c, 0x24, 0, 0, 0, 1]), 8);
    }

    #[test]
    fn branches_lead_on() {
        let flow = |bytes: &[u8]| decoded(bytes).unwrap().flow;
        assert_eq!(flow(&[0xeb, 0x10]), Flow::Jump(0x1012));
        assert_eq!(flow(&[0x74, 0x10]), Flow::Branch { to: 0x1012, is_short: false });
        assert_eq!(flow(&[0xe3, 0x10]), Flow::Branch { to: 0x1012, is_short: true });
        assert_eq!(flow(&[0xe8, 0, 1, 0, 0]), Flow::Call(0x1105));
        assert_eq!(flow(&[0xc3]), Flow::Return(0));
        assert_eq!(flow(&[0xc2, 8, 0]), Flow::Return(8));
        assert_eq!(flow(&[0x0f, 0x05]), Flow::SystemCall);
        assert_eq!(flow(&[0x0f, 0x0b]), Flow::Trap);
        assert_eq!(flow(&[0xff, 0xe0]), Flow::JumpTo(Operand::Register(Gpr(0))));
        // call [rip + 16]
        let global = Flow::CallTo(Operand::Memory(Place::At(0x1016)));
        assert_eq!(flow(&[0xff, 0x15, 0x10, 0, 0, 0]), global);
    }
}
