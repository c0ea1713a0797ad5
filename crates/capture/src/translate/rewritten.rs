//! The rewriter on any bytes: it does not panic and keeps within its room, what it makes is code from the first byte to the last, and has a note before each store, of the
//! store's own address and size.
//!
//! The code is read again by the decoder's crate, not by what has made it.

use iced_x86::{Code, Decoder as Iced, DecoderOptions, Instruction, OpKind, Register};
use std::prelude::v1::*;
use std::vec;

use super::context::{DETAIL, LOG, RCX_PLACE, RDX_PLACE};
use super::decode::{Decode, Decoded, Decoder, Flow, LONGEST, Unknown, Write};
use super::emit::{self, Emitter, Gpr, Place, RSP};
use super::rewrite::{
    ATOMIC, CHILD_INSTRUCTIONS, MOST_BYTES, Refusal, Rewriter, STACK, Source, Window,
};
use super::tables::Tables;

/// Where the bytes lie, and where their translation does. Distances between them fit 32 bits.
const AT: u64 = 0x5555_0000_0ff0;
const RUN: u64 = 0x5555_2000_0000;
const LOOKUP: u64 = RUN - 256;
/// An address far from code.
const WINDOW: (u64, u64) = (1 << 44, 1 << 36);

/// Bytes as a program.
struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn from(&self, at: u64) -> &[u8] {
        at.checked_sub(AT).and_then(|from| self.0.get(from as usize..)).unwrap_or(&[])
    }
}

impl Source for Bytes<'_> {
    fn has_code(&mut self, at: u64) -> bool {
        !self.from(at).is_empty()
    }

    fn bytes(&self, at: u64, into: &mut [u8; LONGEST], crosses: bool) -> usize {
        let rest = self.from(at);
        let page = 4096 - at as usize % 4096;
        let len = rest.len().min(if crosses { LONGEST } else { LONGEST.min(page) });
        into[..len].copy_from_slice(&rest[..len]);
        len
    }

    fn has_sequence(&self, _: u64) -> bool {
        false
    }
}

/// Code that is read again.
struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self, skipped: usize) -> Instruction {
        let from = self.at + skipped;
        let mut iced =
            Iced::with_ip(64, &self.bytes[from..], RUN + from as u64, DecoderOptions::NONE);
        iced.decode()
    }

    fn next(&mut self) -> Instruction {
        let instruction = self.peek(0);
        assert!(!instruction.is_invalid(), "no code at {:#x} of {:02x?}", self.at, self.bytes);
        self.at += instruction.len();
        // A value is pushed that lies behind the jump which follows. The program's own such push has another address.
        let (jump, values) = (self.peek(0), RUN + self.at as u64 + 2);
        let is_value = instruction.code() == Code::Push_rm64
            && instruction.is_ip_rel_memory_operand()
            && instruction.memory_displacement64() == values;
        if is_value {
            assert_eq!((jump.code(), jump.near_branch64()), (Code::Jmp_rel8_64, values + 8));
            self.at += jump.len() + 8;
        }
        instruction
    }

    /// Whether an instruction stores or loads a register at `gs:[slot]`.
    fn is_slot(instruction: &Instruction, register: Register, slot: u32, is_store: bool) -> bool {
        let code = if is_store { Code::Mov_rm64_r64 } else { Code::Mov_r64_rm64 };
        let own = if is_store { instruction.op1_register() } else { instruction.op0_register() };
        instruction.code() == code
            && own == register
            && instruction.segment_prefix() == Register::GS
            && instruction.memory_base() == Register::None
            && instruction.memory_displacement64() == slot.into()
    }

    /// The note that begins here: the place, the number of bytes, with their marks, and the register with the number of a bit.
    fn note(&mut self) -> Option<(Place, u32, Option<Gpr>)> {
        let first = self.peek(0);
        if !Self::is_slot(&first, Register::RCX, RCX_PLACE, true)
            || !Self::is_slot(&self.peek(first.len()), Register::RDX, RDX_PLACE, true)
        {
            return None;
        }
        self.next();
        self.next();
        let bit = self.bit();
        let address = self.next();
        assert_eq!(address.op0_register().full_register(), Register::RDX);
        let place = match address.code() {
            Code::Lea_r64_m => place(&address),
            _ => Place::At(address.immediate(1)),
        };
        if let Some((_, scale)) = bit {
            assert!(Self::is_slot(&self.next(), Register::RCX, DETAIL, false));
            let sum = self.next();
            assert_eq!((sum.memory_base(), sum.op0_register()), (Register::RDX, Register::RDX));
            assert_eq!((sum.memory_index(), sum.memory_index_scale()), (Register::RCX, scale));
        }
        let (mut bytes, mut has_address, mut has_log) = (None, false, false);
        loop {
            let one = self.next();
            has_log |= Self::is_slot(&one, Register::RCX, LOG, true);
            let is_entry = one.memory_base() == Register::RCX && one.op0_kind() == OpKind::Memory;
            match one.code() {
                Code::Mov_rm64_imm32 if is_entry => bytes = Some(one.immediate32()),
                Code::Mov_rm64_r64 if is_entry && one.memory_displacement64() == 0 => {
                    has_address = one.op1_register() == Register::RDX;
                }
                _ if Self::is_slot(&one, Register::RCX, RCX_PLACE, false) => break,
                _ => {}
            }
        }
        assert!(has_address && has_log);
        Some((place, bytes.unwrap(), bit.map(|(number, _)| number)))
    }

    /// What moves a place by the number of a bit, before the place is computed: the register, and the bytes of a word.
    fn bit(&mut self) -> Option<(Gpr, u32)> {
        let signed = [Code::Movsx_r64_rm16, Code::Movsxd_r64_rm32, Code::Mov_r64_rm64];
        let first = self.peek(0);
        let which = signed.iter().position(|code| *code == first.code())?;
        let (width, number) = (16 << which, first.op1_register().number() as u8);
        assert_eq!(self.next().op0_register(), Register::RCX);
        let (shift, word) = (self.next(), self.next());
        assert_eq!(1 << shift.immediate32(), width);
        assert_eq!(word.code(), Code::VEX_Sarx_r64_rm64_r64);
        let operands = [word.op0_register(), word.op1_register(), word.op2_register()];
        assert_eq!(operands, [Register::RCX, Register::RCX, Register::RDX]);
        assert!(Self::is_slot(&self.next(), Register::RCX, DETAIL, true));
        assert!(Self::is_slot(&self.next(), Register::RCX, RCX_PLACE, false));
        assert!(Self::is_slot(&self.next(), Register::RDX, RDX_PLACE, false));
        Some((Gpr(number), width / 8))
    }
}

fn gpr(register: Register) -> Option<Gpr> {
    (register != Register::None).then(|| Gpr(register.number() as u8))
}

/// A memory operand, by the decoder's crate.
fn place(instruction: &Instruction) -> Place {
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    let scale = instruction.memory_index_scale().trailing_zeros() as u8;
    Place::Sum {
        base: gpr(base),
        index: gpr(index).map(|index| (index, scale)),
        displacement: instruction.memory_displacement64() as i32,
        is_32_bit: base.is_gpr32() || index.is_gpr32(),
    }
}

/// Tables for one block after another.
pub struct Trial {
    decoder: Decoder,
    tables: Tables,
    buffer: Vec<u8>,
    /// Blocks, and stores in them.
    pub blocks: u64,
    pub stores: u64,
}

impl Default for Trial {
    fn default() -> Self {
        let tables = Tables::new().unwrap();
        Self {
            decoder: Decoder::default(),
            tables,
            buffer: vec![0; MOST_BYTES],
            blocks: 0,
            stores: 0,
        }
    }
}

impl Trial {
    /// Translates the block that the bytes begin with, and reads it again.
    pub fn check(&mut self, program: &[u8]) {
        if self.tables.next_exit().is_none_or(|number| number > 1 << 17) {
            self.tables = Tables::new().unwrap();
        }
        let window = Window::new(WINDOW.0, WINDOW.1);
        let mut code = Emitter::new(&mut self.buffer, RUN);
        let mut source = Bytes(program);
        let (decoder, tables) = (&mut self.decoder, &mut self.tables);
        let mut rewriter =
            Rewriter { decoder, source: &mut source, tables, window, lookup: LOOKUP };
        let made = rewriter.block(AT, &mut code);
        let len = code.len();
        let first = self.decode(program, AT);
        match made {
            Ok(()) => {}
            Err(Refusal::Unknown(why)) => return assert_eq!(first.unwrap_err(), why),
            Err(Refusal::Far) => return,
            Err(Refusal::Changes) => return assert!(program.is_empty()),
            Err(why) => std::panic!("{why:?}: {program:02x?}"),
        }
        let buffer = core::mem::take(&mut self.buffer);
        let mut reader = Reader { bytes: &buffer[..len.unwrap()], at: 0 };
        self.read(program, &mut reader, window);
        self.buffer = buffer;
        self.blocks += 1;
    }

    fn decode(&mut self, program: &[u8], at: u64) -> Result<Decoded, Unknown> {
        let rest = Bytes(program).from(at).to_vec();
        self.decoder.decode(&rest[..rest.len().min(LONGEST)], at)
    }

    /// Reads a block: the notes of each instruction, and the instruction.
    fn read(&mut self, program: &[u8], code: &mut Reader<'_>, window: Window) {
        let mut at = AT;
        for _ in 0..super::rewrite::MOST_INSTRUCTIONS {
            let Ok(decoded) = self.decode(program, at) else { break };
            for write in decoded.writes.iter().flatten() {
                self.stores += 1;
                check_note(code, write, window);
            }
            let source = Bytes(program);
            let bytes = &source.from(at)[..decoded.len];
            if decoded.repeated.is_some_and(|bytes| bytes > 0) {
                let calls_out = (0..5).map(|_| code.next()).last().unwrap();
                assert_eq!(calls_out.code(), Code::Jmp_rm64);
            }
            if let Some(scatter) = decoded.scatter {
                let (argument, detail) = scatter.words();
                let set = code.next();
                assert_eq!(
                    (set.memory_displacement64(), set.immediate32()),
                    (DETAIL.into(), detail)
                );
                let calls_out: Vec<_> = (0..5).map(|_| code.next()).collect();
                assert_eq!(calls_out[2].immediate32(), argument);
                assert_eq!(calls_out[4].code(), Code::Jmp_rm64);
            }
            match decoded.flow {
                Flow::Next => {
                    let own = &code.bytes[code.at..code.at + decoded.len];
                    let copy = code.next();
                    assert_eq!(copy.len(), decoded.len, "{bytes:02x?} became {own:02x?}");
                    match decoded.relative {
                        Some((_, target)) => assert_eq!(copy.ip_rel_memory_address(), target),
                        None => assert_eq!(own, bytes),
                    }
                    if decoded.pivots {
                        let place = emit::at(RSP, -8);
                        let stack = Write { place, bytes: STACK, is_atomic: false, bit: None };
                        check_note(code, &stack, window);
                    }
                }
                Flow::SystemCall => {
                    // Where it returns to, the call out, a call and a jump; another call, a copy, two jumps; a far one.
                    let parts: Vec<_> = (0..2 + 5 + 6).map(|_| code.next().code()).collect();
                    assert_eq!(parts.iter().filter(|code| **code == Code::Syscall).count(), 2);
                    let child: Vec<_> = (0..CHILD_INSTRUCTIONS).map(|_| code.next()).collect();
                    assert_eq!(child.iter().filter(|one| one.code() == Code::Syscall).count(), 1);
                    assert_eq!(code.next().code(), Code::Jmp_rm64);
                    code.at += 8;
                }
                _ => break,
            }
            at += decoded.len as u64;
        }
        // Exits, and what calls out for a full log.
        while code.at < code.bytes.len() {
            assert!(code.note().is_none());
            code.next();
        }
        assert_eq!(code.at, code.bytes.len());
    }
}

/// The note of a write is next, where it is one to any address.
fn check_note(code: &mut Reader<'_>, write: &Write, window: Window) {
    if let Place::At(address) = write.place
        && write.bit.is_none()
        && !window.has(address, write.bytes.into())
    {
        return;
    }
    let (place, bytes, bit) = code.note().expect("a note");
    assert_eq!((place, bit), (write.place, write.bit));
    let is_word = [1, 2, 4, 8].contains(&write.bytes);
    let mark = if write.is_atomic && is_word { ATOMIC } else { 0 };
    assert_eq!(bytes, write.bytes | mark);
}

#[cfg(test)]
mod tests {
    use super::super::corpus::{Random, code, millions};
    use super::*;
    use std::println;

    #[test]
    fn blocks_have_a_note_for_each_store() {
        let (mut trial, mut random) = (Trial::default(), Random(0x5_eed5));
        let count = (millions(0.005) * 1e6) as u64;
        for (_, _, bytes) in code() {
            for _ in 0..count / 16 {
                let from = random.below(bytes.len());
                trial.check(&bytes[from..bytes.len().min(from + 1024)]);
            }
        }
        assert!(trial.blocks > count / 8 && trial.stores > trial.blocks / 4);
        for _ in 0..count {
            let program: Vec<u8> = (0..8).flat_map(|_| random.instruction()).collect();
            trial.check(&program);
        }
        println!("{} blocks, {} stores", trial.blocks, trial.stores);
    }
}
