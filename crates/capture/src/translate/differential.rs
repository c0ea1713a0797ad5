//! Random programs run natively and translated: registers, flags, vectors and memory are the same afterwards, and each change of memory is noted.
//!
//! `SPANDREL_SOAK` says how many million instructions; `SPANDREL_TEST_SEED` which program.

use super::corpus::{Random, millions};
use super::tests::Oracle;
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Instruction, InstructionBlock, MemoryOperand, Register,
};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::prelude::v1::*;
use std::{env, println, vec};

use Register as R;

/// General registers that programs change; rbx has the address of their memory, and r15 that of their state.
const FULL: [R; 13] = [
    R::RAX,
    R::RCX,
    R::RDX,
    R::RSI,
    R::RDI,
    R::RBP,
    R::R8,
    R::R9,
    R::R10,
    R::R11,
    R::R12,
    R::R13,
    R::R14,
];
const VECTORS: usize = 8;
/// Bytes of memory that a program uses.
const MEMORY: usize = 4096;
/// What a program is called with: registers, flags, vectors.
const STATE: usize = 13 * 8 + 8 + VECTORS * 32;

fn sized(full: R, bytes: usize) -> R {
    match bytes {
        8 => full,
        4 => full.full_register32(),
        2 => R::AX + (full.number() as u32),
        // Without a prefix spl to dil would be ah to bh: registers that need one are others.
        _ => match full {
            R::RSI | R::RDI | R::RBP => R::AL,
            full if full.number() >= 8 => R::R8L + (full.number() as u32 - 8),
            full => R::AL + (full.number() as u32),
        },
    }
}

/// One of four codes, by the operand's bytes.
type Sized4 = [Code; 4];

const RM_R: [Sized4; 11] = [
    [Code::Add_rm8_r8, Code::Add_rm16_r16, Code::Add_rm32_r32, Code::Add_rm64_r64],
    [Code::Adc_rm8_r8, Code::Adc_rm16_r16, Code::Adc_rm32_r32, Code::Adc_rm64_r64],
    [Code::Sub_rm8_r8, Code::Sub_rm16_r16, Code::Sub_rm32_r32, Code::Sub_rm64_r64],
    [Code::Sbb_rm8_r8, Code::Sbb_rm16_r16, Code::Sbb_rm32_r32, Code::Sbb_rm64_r64],
    [Code::And_rm8_r8, Code::And_rm16_r16, Code::And_rm32_r32, Code::And_rm64_r64],
    [Code::Or_rm8_r8, Code::Or_rm16_r16, Code::Or_rm32_r32, Code::Or_rm64_r64],
    [Code::Xor_rm8_r8, Code::Xor_rm16_r16, Code::Xor_rm32_r32, Code::Xor_rm64_r64],
    [Code::Mov_rm8_r8, Code::Mov_rm16_r16, Code::Mov_rm32_r32, Code::Mov_rm64_r64],
    [Code::Cmp_rm8_r8, Code::Cmp_rm16_r16, Code::Cmp_rm32_r32, Code::Cmp_rm64_r64],
    [Code::Xchg_rm8_r8, Code::Xchg_rm16_r16, Code::Xchg_rm32_r32, Code::Xchg_rm64_r64],
    [Code::Xadd_rm8_r8, Code::Xadd_rm16_r16, Code::Xadd_rm32_r32, Code::Xadd_rm64_r64],
];
const CMPXCHG: Sized4 =
    [Code::Cmpxchg_rm8_r8, Code::Cmpxchg_rm16_r16, Code::Cmpxchg_rm32_r32, Code::Cmpxchg_rm64_r64];
const R_RM: [Sized4; 3] = [
    [Code::Add_r8_rm8, Code::Add_r16_rm16, Code::Add_r32_rm32, Code::Add_r64_rm64],
    [Code::Mov_r8_rm8, Code::Mov_r16_rm16, Code::Mov_r32_rm32, Code::Mov_r64_rm64],
    [Code::Sbb_r8_rm8, Code::Sbb_r16_rm16, Code::Sbb_r32_rm32, Code::Sbb_r64_rm64],
];
const ONE: [Sized4; 4] = [
    [Code::Inc_rm8, Code::Inc_rm16, Code::Inc_rm32, Code::Inc_rm64],
    [Code::Dec_rm8, Code::Dec_rm16, Code::Dec_rm32, Code::Dec_rm64],
    [Code::Neg_rm8, Code::Neg_rm16, Code::Neg_rm32, Code::Neg_rm64],
    [Code::Not_rm8, Code::Not_rm16, Code::Not_rm32, Code::Not_rm64],
];
const SET: [Code; 6] = [
    Code::Setb_rm8,
    Code::Sete_rm8,
    Code::Seto_rm8,
    Code::Sets_rm8,
    Code::Setp_rm8,
    Code::Setg_rm8,
];
const MOVE_IF: [Code; 4] =
    [Code::Cmovb_r64_rm64, Code::Cmove_r64_rm64, Code::Cmovo_r64_rm64, Code::Cmovg_r64_rm64];
const JUMP_IF: [Code; 6] = [
    Code::Jb_rel32_64,
    Code::Je_rel32_64,
    Code::Jo_rel32_64,
    Code::Js_rel32_64,
    Code::Jp_rel32_64,
    Code::Jg_rel32_64,
];
const BITS: [[Code; 3]; 4] = [
    [Code::Bt_rm16_r16, Code::Bt_rm32_r32, Code::Bt_rm64_r64],
    [Code::Bts_rm16_r16, Code::Bts_rm32_r32, Code::Bts_rm64_r64],
    [Code::Btr_rm16_r16, Code::Btr_rm32_r32, Code::Btr_rm64_r64],
    [Code::Btc_rm16_r16, Code::Btc_rm32_r32, Code::Btc_rm64_r64],
];
const STRINGS: [Code; 4] =
    [Code::Stosb_m8_AL, Code::Stosq_m64_RAX, Code::Movsb_m8_m8, Code::Movsq_m64_m64];

/// A program as it is drawn.
struct Drawn {
    random: Random,
    code: Vec<Instruction>,
    label: u64,
}

impl Drawn {
    fn push(&mut self, instruction: Instruction) {
        self.code.push(instruction);
    }

    fn memory(&mut self, bytes: usize) -> MemoryOperand {
        let displacement = self.random.below(MEMORY - 512 - bytes) as i64;
        if self.random.below(3) > 0 {
            return MemoryOperand::with_base_displ_size(R::RBX, displacement, 1);
        }
        // A register of one byte's value.
        let index = self.random.of(&FULL);
        self.push(Instruction::with2(Code::Movzx_r32_rm8, sized(index, 4), R::BL).unwrap());
        MemoryOperand::with_base_index_scale_displ_size(
            R::RBX,
            index,
            self.random.of(&[1, 2]),
            displacement,
            1,
        )
    }

    /// One instruction, or what leads to it.
    fn step(&mut self) {
        let (which, reg) = (self.random.below(4), self.random.of(&FULL));
        let bytes = 1 << which;
        let with_lock = self.random.below(4) == 0;
        let has_memory = self.random.below(3) > 0;
        match self.random.below(16) {
            0..=3 => {
                let code = self.random.of(&RM_R)[which];
                if !has_memory {
                    let other = self.random.of(&FULL);
                    return self.push(
                        Instruction::with2(code, sized(other, bytes), sized(reg, bytes)).unwrap(),
                    );
                }
                let memory = self.memory(bytes);
                let mut instruction = Instruction::with2(code, memory, sized(reg, bytes)).unwrap();
                let unlockable =
                    [Code::Mov_rm8_r8, Code::Mov_rm16_r16, Code::Mov_rm32_r32, Code::Mov_rm64_r64]
                        .contains(&code)
                        || code.mnemonic() == iced_x86::Mnemonic::Cmp;
                instruction.set_has_lock_prefix(with_lock && !unlockable);
                self.push(instruction);
            }
            4 => {
                let memory = self.memory(bytes);
                let mut instruction =
                    Instruction::with2(CMPXCHG[which], memory, sized(reg, bytes)).unwrap();
                instruction.set_has_lock_prefix(with_lock);
                self.push(instruction);
            }
            5 => {
                let (code, memory) = (self.random.of(&R_RM)[which], self.memory(bytes));
                self.push(Instruction::with2(code, sized(reg, bytes), memory).unwrap());
            }
            6 => {
                let (code, memory) = (self.random.of(&ONE)[which], self.memory(bytes));
                self.push(Instruction::with1(code, memory).unwrap());
            }
            7 => {
                let (code, memory) = (self.random.of(&SET), self.memory(1));
                self.push(Instruction::with1(code, memory).unwrap());
            }
            8 => {
                let (code, other) = (self.random.of(&MOVE_IF), self.random.of(&FULL));
                self.push(Instruction::with2(code, reg, other).unwrap());
            }
            9 => {
                let number = self.random.next() as i64;
                self.push(Instruction::with2(Code::Mov_r64_imm64, reg, number).unwrap());
            }
            10 => {
                let (memory, number) = (self.memory(8), self.random.next() as i32);
                self.push(Instruction::with2(Code::Mov_rm64_imm32, memory, number).unwrap());
                let memory = self.memory(4);
                self.push(Instruction::with2(Code::Rol_rm32_imm8, memory, number & 31).unwrap());
            }
            11 => {
                let vector = R::XMM0 + self.random.below(VECTORS) as u32;
                let wide = R::YMM0 + self.random.below(VECTORS) as u32;
                let (first, second) = (self.memory(16), self.memory(32));
                let code = match self.random.below(2) {
                    0 => Instruction::with2(Code::Movups_xmmm128_xmm, first, vector).unwrap(),
                    _ => Instruction::with2(Code::Movups_xmm_xmmm128, vector, first).unwrap(),
                };
                self.push(code);
                let code = match self.random.below(2) {
                    0 => Instruction::with2(Code::VEX_Vmovdqu_ymmm256_ymm, second, wide).unwrap(),
                    _ => Instruction::with2(Code::VEX_Vmovdqu_ymm_ymmm256, wide, second).unwrap(),
                };
                self.push(code);
            }
            12 => {
                self.push(Instruction::with1(Code::Push_r64, reg).unwrap());
                let other = self.random.of(&FULL);
                self.push(Instruction::with1(Code::Pop_r64, other).unwrap());
            }
            13 => self.string(),
            14 => self.bit(),
            _ => {
                // Over some of what follows.
                let (code, label) = (self.random.of(&JUMP_IF), self.label + 1);
                self.label = label;
                self.push(Instruction::with_branch(code, 1 << 40 | label).unwrap());
                let count = self.random.below(4);
                (0..count).for_each(|_| self.step());
                let mut end = Instruction::with(Code::Nopd);
                end.set_ip(1 << 40 | label);
                self.push(end);
            }
        }
    }

    /// The number of a bit that leads from an operand to anywhere in the memory, before it or behind it.
    fn bit(&mut self) {
        let which = 1 + self.random.below(3);
        let (bytes, number) = (1 << which, self.random.of(&FULL));
        let from = self.random.below(MEMORY - 8) as i64;
        let to = self.random.below((MEMORY - 16) * 8) as i64;
        // Words are counted from the operand on.
        let bits = to - from * 8;
        let bits = if from + bits.div_euclid(bytes * 8) * bytes < 0 { 0 } else { bits };
        // What the operand's size cuts off counts for nothing.
        let rest = if which == 3 { 0 } else { (self.random.next() as i64) << (bytes * 8) };
        let bits = if which == 3 { bits } else { bits & ((1 << (bytes * 8)) - 1) };
        self.push(Instruction::with2(Code::Mov_r64_imm64, number, rest | bits).unwrap());
        let code = self.random.of(&BITS)[which - 1];
        let memory = MemoryOperand::with_base_displ_size(R::RBX, from, 1);
        let mut instruction =
            Instruction::with2(code, memory, sized(number, bytes as usize)).unwrap();
        let is_read = code.mnemonic() == iced_x86::Mnemonic::Bt;
        instruction.set_has_lock_prefix(!is_read && self.random.below(2) == 0);
        self.push(instruction);
    }

    /// A string instruction, once or repeated.
    fn string(&mut self) {
        let (from, to) = (self.random.below(1024) as i64, 1024 + self.random.below(1024) as i64);
        for (register, displacement) in [(R::RSI, from), (R::RDI, to)] {
            let place = MemoryOperand::with_base_displ_size(R::RBX, displacement, 1);
            self.push(Instruction::with2(Code::Lea_r64_m, register, place).unwrap());
        }
        let count = self.random.below(64) as i32;
        self.push(Instruction::with2(Code::Mov_r32_imm32, R::ECX, count).unwrap());
        let mut instruction = match self.random.of(&STRINGS) {
            Code::Stosb_m8_AL => Instruction::with_stosb(64, iced_x86::RepPrefixKind::None),
            Code::Stosq_m64_RAX => Instruction::with_stosq(64, iced_x86::RepPrefixKind::None),
            Code::Movsb_m8_m8 => {
                Instruction::with_movsb(64, R::None, iced_x86::RepPrefixKind::None)
            }
            _ => Instruction::with_movsq(64, R::None, iced_x86::RepPrefixKind::None),
        }
        .unwrap();
        instruction.set_has_rep_prefix(self.random.below(2) == 0);
        self.push(instruction);
    }
}

/// A function of one argument, which is its state's address and is kept in r15: it loads all registers, runs `body`, and stores them.
fn function(body: Vec<Instruction>) -> Vec<Instruction> {
    let mut all = vec![];
    let kept = [R::RBX, R::RBP, R::R12, R::R13, R::R14, R::R15];
    kept.iter().for_each(|r| all.push(Instruction::with1(Code::Push_r64, *r).unwrap()));
    all.push(Instruction::with2(Code::Mov_r64_rm64, R::R15, R::RDI).unwrap());
    let at = |offset: usize| MemoryOperand::with_base_displ_size(R::R15, offset as i64, 1);
    let vectors = |load: bool| {
        (0..VECTORS).map(move |number| {
            let (register, place) = (R::YMM0 + number as u32, at(112 + number * 32));
            if load {
                Instruction::with2(Code::VEX_Vmovdqu_ymm_ymmm256, register, place).unwrap()
            } else {
                Instruction::with2(Code::VEX_Vmovdqu_ymmm256_ymm, place, register).unwrap()
            }
        })
    };
    all.extend(vectors(true));
    all.push(Instruction::with2(Code::Mov_r64_rm64, R::RBX, at(STATE)).unwrap());
    all.push(Instruction::with1(Code::Push_rm64, at(104)).unwrap());
    all.push(Instruction::with(Code::Popfq));
    for (number, register) in FULL.iter().enumerate() {
        all.push(Instruction::with2(Code::Mov_r64_rm64, *register, at(number * 8)).unwrap());
    }
    all.extend(body);
    for (number, register) in FULL.iter().enumerate() {
        all.push(Instruction::with2(Code::Mov_rm64_r64, at(number * 8), *register).unwrap());
    }
    all.push(Instruction::with(Code::Pushfq));
    all.push(Instruction::with1(Code::Pop_rm64, at(104)).unwrap());
    all.extend(vectors(false));
    all.push(Instruction::with(Code::Cld));
    kept.iter().rev().for_each(|r| all.push(Instruction::with1(Code::Pop_r64, *r).unwrap()));
    all.push(Instruction::with(Code::Retnq));
    all
}

/// Memory for one program.
const ROOM: usize = 1 << 16;

fn room() -> u64 {
    let access = ProtFlags::READ | ProtFlags::WRITE | ProtFlags::EXEC;
    // SAFETY: at a place that the kernel chooses.
    let at = unsafe { mmap_anonymous(core::ptr::null_mut(), ROOM, access, MapFlags::PRIVATE) };
    at.unwrap() as u64
}

/// What a program begins with: numbers that are drawn, flags without those that trap, and its memory's address.
fn state(random: &mut Random, memory: u64) -> Vec<u8> {
    let mut state: Vec<u8> = (0..STATE).map(|_| random.next() as u8).collect();
    let flags = random.next() & 0x8d5 | 2;
    state[104..112].copy_from_slice(&flags.to_le_bytes());
    state.extend(memory.to_le_bytes());
    state
}

/// One program: the number of its instructions.
fn compared(seed: u64, oracle: &mut Oracle, room: u64) -> u64 {
    let mut drawn = Drawn { random: Random(seed | 1), code: vec![], label: 0 };
    (0..20).for_each(|_| _ = drawn.random.next());
    let count = 1 + drawn.random.below(60);
    (0..count).for_each(|_| drawn.step());
    let body = drawn.code;
    let mut random = drawn.random;
    let code = function(body);
    let count = code.len() as u64;
    let block = InstructionBlock::new(&code, room);
    let bytes = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).unwrap().code_buffer;
    assert!(bytes.len() < ROOM);
    // SAFETY: the room is this test's, and nothing runs there now.
    let function: unsafe extern "C" fn(*mut u8) = unsafe {
        (room as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        core::mem::transmute::<u64, unsafe extern "C" fn(*mut u8)>(room)
    };
    oracle.translator.flush();
    let memory: Vec<u8> = (0..MEMORY).map(|_| random.next() as u8).collect();
    let before = state(&mut random, oracle.window.as_ptr() as u64);
    let (mut native, mut translated) = (before.clone(), before);
    oracle.window.copy_from_slice(&memory);
    // SAFETY: the program uses its state and its memory alone.
    unsafe { function(native.as_mut_ptr()) };
    let expected = oracle.window.to_vec();
    oracle.reset(&memory);
    oracle.run(|_| {
        // SAFETY: as above.
        unsafe { function(translated.as_mut_ptr()) }
    });
    assert!(native == translated, "seed {seed}: registers, flags or vectors");
    assert!(expected == *oracle.window, "seed {seed}: memory");
    count
}

#[test]
fn random_programs_do_the_same_translated() {
    if !std::is_x86_feature_detected!("avx2") {
        return;
    }
    let (mut oracle, room) = (Oracle::new(MEMORY), room());
    oracle.translator.process.takes_all = true;
    if let Ok(seed) = env::var("SPANDREL_TEST_SEED") {
        compared(seed.parse().unwrap(), &mut oracle, room);
        return;
    }
    let millions = millions(0.3);
    let (mut instructions, mut seed) = (0, 1);
    while (instructions as f64) < millions * 1e6 {
        instructions += compared(seed * 0x9e37_79b9, &mut oracle, room);
        seed += 1;
    }
    println!("{instructions} instructions of {seed} programs, {} blocks changed", oracle.changed);
}
