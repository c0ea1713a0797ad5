//! The translator's decoder beside one of other authors, the crate `yaxpeax-x86`: what both accept has the same length, goes on in the same way, and writes what the
//! second one says that it writes.
//!
//! What the translator refuses is not compared: it is never run. The second decoder says which operands there are and how long they are in memory; which of them are written
//! is told here, by the rule of the manuals that the first operand is the target, with those that are not by name.

use std::prelude::v1::*;
use std::{format, vec};

use yaxpeax_arch::LengthedInstruction;
use yaxpeax_x86::long_mode::{InstDecoder, Instruction, Opcode, Operand, RegSpec};

use super::decode::{Decode, Decoded, Decoder, Flow, LONGEST, Unknown, is_16_bit};
use super::emit::{Gpr, Place};

/// Where the bytes lie.
const AT: u64 = 0x5555_0000_0000;

/// Both decoders, and what they have agreed on.
#[derive(Default)]
pub struct Pair {
    ours: Decoder,
    second: InstDecoder,
    /// Instructions that both accept; those of them that write.
    pub agreed: u64,
    pub writes: u64,
    /// Instructions that only one accepts.
    pub only_ours: u64,
    pub only_second: u64,
    /// Instructions that the translator refuses for what they do.
    pub refused: u64,
}

/// How an instruction goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Next,
    Jump,
    Branch,
    Call,
    Return,
    SystemCall,
    Trap,
}

fn kind_of(flow: Flow) -> Kind {
    match flow {
        Flow::Next => Kind::Next,
        Flow::Jump(_) | Flow::JumpTo(_) => Kind::Jump,
        Flow::Branch { .. } => Kind::Branch,
        Flow::Call(_) | Flow::CallTo(_) => Kind::Call,
        Flow::Return(_) => Kind::Return,
        Flow::SystemCall => Kind::SystemCall,
        Flow::Trap => Kind::Trap,
    }
}

fn second_kind(instruction: &Instruction) -> Kind {
    use Opcode as O;
    match instruction.opcode() {
        O::JMP => Kind::Jump,
        O::CALL => Kind::Call,
        O::RETURN => Kind::Return,
        O::SYSCALL => Kind::SystemCall,
        O::LOOP | O::LOOPZ | O::LOOPNZ | O::JRCXZ | O::JECXZ => Kind::Branch,
        O::UD0 | O::UD1 | O::UD2 | O::INT => Kind::Trap,
        other if other.is_jcc() => Kind::Branch,
        _ => Kind::Next,
    }
}

/// Opcodes whose first operand is read when it lies in memory, or not touched.
fn only_reads(opcode: Opcode) -> bool {
    use Opcode as O;
    matches!(
        opcode,
        O::CMP | O::TEST | O::PUSH | O::CALL | O::CALLF | O::JMP | O::JMPF | O::NOP | O::BT
            | O::MUL | O::IMUL | O::DIV | O::IDIV | O::CMPS | O::SCAS | O::LODS | O::OUTS
            | O::PREFETCHNTA | O::PREFETCH0 | O::PREFETCH1 | O::PREFETCH2 | O::PREFETCHW
            | O::CLFLUSH | O::CLFLUSHOPT | O::CLWB | O::INVLPG | O::UD0 | O::UD1 | O::PTWRITE
            | O::LGDT | O::LIDT | O::LLDT | O::LTR | O::LMSW | O::VERR | O::VERW
            | O::FXRSTOR | O::XRSTOR | O::XRSTORS | O::XRSTORS64 | O::LDMXCSR | O::VLDMXCSR
            | O::FLD | O::FILD | O::FBLD | O::FLDCW | O::FLDENV | O::FRSTOR
            | O::VMPTRLD | O::VMCLEAR | O::VMXON
            // The operand is a key's handle.
            | O::AESENCWIDE128KL | O::AESENCWIDE256KL | O::AESDECWIDE128KL | O::AESDECWIDE256KL
            | O::VGATHERPF0DPD | O::VGATHERPF0DPS | O::VGATHERPF0QPD | O::VGATHERPF0QPS
            | O::VGATHERPF1DPD | O::VGATHERPF1DPS | O::VGATHERPF1QPD | O::VGATHERPF1QPS
            | O::VSCATTERPF0DPD | O::VSCATTERPF0DPS | O::VSCATTERPF0QPD | O::VSCATTERPF0QPS
            | O::VSCATTERPF1DPD | O::VSCATTERPF1DPS | O::VSCATTERPF1QPD | O::VSCATTERPF1QPS
            // Behind the bounds' tables of a processor that has them, which no address of the operand leads to.
            | O::BNDSTX | O::BNDMK | O::BNDCL | O::BNDCU | O::BNDCN
    )
}

/// Opcodes of which the second decoder says that they write an operand in memory, which they read by the manuals.
fn says_writes(opcode: Opcode) -> bool {
    use Opcode as O;
    matches!(
        opcode,
        O::CMPS | O::SCAS | O::FRSTOR | O::CLFLUSH | O::CLFLUSHOPT | O::CLWB | O::PSWAPD
    )
}

fn is_string(opcode: Opcode) -> bool {
    use Opcode as O;
    matches!(opcode, O::MOVS | O::STOS | O::INS | O::LODS | O::CMPS | O::SCAS | O::OUTS)
}

/// A place in memory by the second decoder; `None`: the operand is none, or has a vector of addresses.
fn place(operand: &Operand, end: u64, is_short: bool) -> Option<Place> {
    let general = |register: RegSpec| {
        let width = register.class().width();
        let is_general = register.class() == RegSpec::rax().class()
            || register.class() == RegSpec::eax().class();
        is_general.then(|| (Gpr(register.num()), width == 4))
    };
    let (base, index, scale, displacement) = match *operand {
        // The manual extends the 32 bits by their sign, but for an address of 32 bits.
        Operand::AbsoluteU32 { addr } if is_short => return Some(Place::At(addr.into())),
        Operand::AbsoluteU32 { addr } => return Some(Place::At(addr as i32 as u64)),
        Operand::AbsoluteU64 { addr } => return Some(Place::At(addr)),
        Operand::MemDeref { base } | Operand::MemDerefMasked { base, .. } => {
            (Some(base), None, 1, 0)
        }
        Operand::Disp { base, disp } | Operand::DispMasked { base, disp, .. } => {
            (Some(base), None, 1, disp)
        }
        Operand::MemIndexScale { index, scale }
        | Operand::MemIndexScaleMasked { index, scale, .. } => (None, Some(index), scale, 0),
        Operand::MemIndexScaleDisp { index, scale, disp }
        | Operand::MemIndexScaleDispMasked { index, scale, disp, .. } => {
            (None, Some(index), scale, disp)
        }
        Operand::MemBaseIndexScale { base, index, scale }
        | Operand::MemBaseIndexScaleMasked { base, index, scale, .. } => {
            (Some(base), Some(index), scale, 0)
        }
        Operand::MemBaseIndexScaleDisp { base, index, scale, disp }
        | Operand::MemBaseIndexScaleDispMasked { base, index, scale, disp, .. } => {
            (Some(base), Some(index), scale, disp)
        }
        _ => return None,
    };
    let near = end.wrapping_add(displacement as u64);
    if base == Some(RegSpec::rip()) {
        return Some(Place::At(near));
    } else if base == Some(RegSpec::eip()) {
        return Some(Place::At(near & u64::from(u32::MAX)));
    }
    let both = [base, index].map(|register| register.map(general));
    if both.contains(&Some(None)) {
        return None;
    }
    let [base, index] = both.map(Option::flatten);
    let is_32_bit = [base, index].iter().flatten().any(|(_, is_32_bit)| *is_32_bit);
    Some(Place::Sum {
        base: base.map(|(register, _)| register),
        index: index.map(|(register, _)| (register, scale.trailing_zeros() as u8)),
        displacement,
        is_32_bit,
    })
}

/// The address of an operand of `pop` is computed after the stack pointer was moved (Intel 2B, `POP`).
fn behind_pop(place: Place, second: &Instruction, bytes: &[u8]) -> Place {
    match place {
        Place::Sum { base: Some(Gpr(4)), index, displacement, is_32_bit }
            if second.opcode() == Opcode::POP =>
        {
            let bytes = if is_16_bit(bytes) { 2 } else { 8 };
            Place::Sum { base: Some(Gpr(4)), index, displacement: displacement + bytes, is_32_bit }
        }
        place => place,
    }
}

/// Places that do not count: the stack's, near its pointer, and the thread's own variables.
fn is_own(place: Place, has_fs: bool) -> bool {
    let Place::Sum { base, index: None, displacement, is_32_bit: false } = place else {
        return has_fs;
    };
    has_fs || base == Some(Gpr(4)) && displacement.unsigned_abs() <= 1 << 20
}

fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
}

fn has_prefix(bytes: &[u8], prefix: u8) -> bool {
    bytes.iter().take_while(|byte| is_prefix(**byte)).any(|byte| *byte == prefix)
}

/// What version 2.2 of the second decoder gets wrong, with what the manuals say.
fn known(instruction: &Instruction, bytes: &[u8]) -> Option<&'static str> {
    use Opcode as O;
    let prefixes = bytes.iter().take_while(|byte| is_prefix(**byte));
    let rexes = prefixes.filter(|byte| (0x40..=0x4f).contains(*byte)).count();
    match instruction.opcode() {
        _ if rexes > 1 => {
            Some("only a REX prefix right before the opcode counts (Intel 2A, 2.2.1)")
        }
        O::BTC | O::BTR | O::BTS if !has_prefix(bytes, 0x66) => Some(
            "with the number of a bit in the instruction, four bytes without REX.W (Intel 2A, `BTS`)",
        ),
        O::INS if has_prefix(bytes, 0x67) => Some("the address has 32 bits (Intel 2A, `INS`)"),
        O::INS if has_prefix(bytes, 0x66) => Some("REX.W outweighs the prefix (Intel 2A, 2.2.1.2)"),
        O::VCVTPS2PH | O::VMOVLPS => Some("the operand in memory has half a vector (Intel 2B)"),
        _ => None,
    }
}

impl Pair {
    /// Compares what both say of the first instruction: the bytes to go on behind.
    ///
    /// # Errors
    /// The difference, for a person.
    pub fn compare(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let bytes = &bytes[..bytes.len().min(LONGEST)];
        let ours = self.ours.decode(bytes, AT);
        let second = self.second.decode_slice(bytes);
        match (ours, second) {
            (Ok(ours), Ok(second)) => {
                let what = differences(&ours, &second, bytes);
                if let Some(what) = what.filter(|_| known(&second, bytes).is_none()) {
                    return Err(format!("{bytes:02x?}, {second}: {what}; {ours:x?}"));
                }
                self.agreed += 1;
                self.writes += u64::from(ours.writes[0].is_some());
                Ok(ours.len)
            }
            (Ok(ours), Err(_)) => {
                self.only_ours += 1;
                Ok(ours.len)
            }
            (Err(why), Ok(second)) => {
                let is_unknown = why == Unknown::Instruction;
                self.only_second += u64::from(is_unknown);
                self.refused += u64::from(!is_unknown);
                Ok(second.len().to_const() as usize)
            }
            (Err(_), Err(_)) => Ok(1),
        }
    }
}

/// What differs, if anything does.
fn differences(ours: &Decoded, second: &Instruction, bytes: &[u8]) -> Option<String> {
    let len = second.len().to_const() as usize;
    if ours.len != len {
        return Some(format!("{} bytes and {len}", ours.len));
    }
    let (kind, other) = (kind_of(ours.flow), second_kind(second));
    if kind != other {
        return Some(format!("{kind:?} and {other:?}"));
    }
    let end = AT + len as u64;
    if let Some(to) = near_target(second, end)
        && let Flow::Jump(own) | Flow::Call(own) | Flow::Branch { to: own, .. } = ours.flow
        && own != to
    {
        return Some(format!("to {own:#x} and {to:#x}"));
    }
    let operands: Vec<Operand> = (0..second.operand_count()).map(|n| second.operand(n)).collect();
    let relative = operands.iter().find_map(|operand| match operand {
        Operand::MemDeref { base }
        | Operand::Disp { base, .. }
        | Operand::MemDerefMasked { base, .. }
        | Operand::DispMasked { base, .. }
            if [RegSpec::rip(), RegSpec::eip()].contains(base) =>
        {
            place(operand, end, false)
        }
        _ => None,
    });
    if kind == Kind::Next && ours.relative.map(|(_, target)| Place::At(target)) != relative {
        return Some(format!("relative to {:x?} and {relative:x?}", ours.relative));
    }
    let is_repeated = is_string(second.opcode()) && second.prefixes.rep_any();
    if is_repeated != ours.repeated.is_some() {
        return Some("repeated, or not".to_string());
    }
    writes_differ(ours, second, &operands, end, bytes)
}

/// The target of a near branch.
fn near_target(second: &Instruction, end: u64) -> Option<u64> {
    match second.operand(0) {
        Operand::ImmediateI8 { imm } => Some(end.wrapping_add(imm as u64)),
        Operand::ImmediateI32 { imm } => Some(end.wrapping_add(imm as u64)),
        _ => None,
    }
}

fn writes_differ(
    ours: &Decoded,
    second: &Instruction,
    operands: &[Operand],
    end: u64,
    bytes: &[u8],
) -> Option<String> {
    use Opcode as O;
    if kind_of(ours.flow) != Kind::Next {
        return None;
    }
    let size = second.mem_size().and_then(|size| size.bytes_size()).map(u32::from);
    let written = operands.iter().enumerate().filter(|(number, operand)| {
        let is_target = *number == 0 || second.opcode() == O::XCHG;
        let access = second.behavior().operand_access(*number as u8);
        let is_written =
            access.is_some_and(|access| access.is_write()) && !says_writes(second.opcode());
        operand.is_memory() && (is_written || is_target && !only_reads(second.opcode()))
    });
    let named = written.map(|(_, operand)| (place(operand, end, has_prefix(bytes, 0x67)), size));
    // Addresses in registers.
    let register = |number: u8| {
        let place = Place::Sum {
            base: Some(Gpr(number)),
            index: None,
            displacement: 0,
            is_32_bit: has_prefix(bytes, 0x67),
        };
        Some(place)
    };
    let others: Vec<(Option<Place>, Option<u32>)> = match second.opcode() {
        O::MASKMOVQ => vec![(register(7), Some(8))],
        O::MASKMOVDQU | O::VMASKMOVDQU => vec![(register(7), Some(16))],
        O::MOVDIR64B => match operands.first() {
            Some(Operand::Register { reg }) => vec![(register(reg.num()), Some(64))],
            _ => vec![],
        },
        O::CLZERO => vec![(register(0), Some(64))],
        _ => vec![],
    };
    let own: Vec<_> = ours.writes.iter().flatten().collect();
    let scatters = |opcode: Opcode| {
        matches!(
            opcode,
            O::VPSCATTERDD | O::VPSCATTERDQ | O::VPSCATTERQD | O::VPSCATTERQQ
                // Those of numbers with a point, by the names of version 2.2.
                | O::VSCATTERDD | O::VSCATTERDQ | O::VSCATTERQD | O::VSCATTERQQ
        )
    };
    if scatters(second.opcode()) || ours.scatter.is_some() {
        let agree = scatters(second.opcode()) && ours.scatter.is_some();
        return if agree { None } else { Some("a vector of addresses, or not".to_string()) };
    }
    let has_fs = second.prefixes.fs();
    for (place, size) in named.chain(others) {
        let place = place.map(|place| behind_pop(place, second, bytes));
        let Some(place) = place else { return Some("a store that is accepted".to_string()) };
        if ours.repeated.is_some() {
            let element = ours.repeated.unwrap_or(0);
            if size.is_none_or(|size| size != element) {
                return Some(format!("elements of {element} bytes and {size:?}"));
            }
            continue;
        }
        if is_own(place, has_fs) {
            continue;
        }
        let Some(write) = own.iter().find(|write| write.place == place) else {
            return Some(format!("a store to {place:?}"));
        };
        if size.is_some_and(|size| size > write.bytes) {
            return Some(format!("stores of {} bytes and {size:?}", write.bytes));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::corpus::{Random, code, millions};
    use super::*;
    use std::collections::BTreeMap;
    use std::println;

    /// Differences by their opcode, each with an example.
    #[derive(Default)]
    struct Found(BTreeMap<String, (u64, String)>);

    impl Found {
        fn add(&mut self, what: String) {
            let name = what.split("], ").nth(1).unwrap_or("").split(' ').next().unwrap_or("");
            let entry = self.0.entry(name.to_string()).or_insert((0, what));
            entry.0 += 1;
        }

        fn none(&self) {
            for (number, example) in self.0.values() {
                println!("{number}: {example}");
            }
            assert!(self.0.is_empty(), "{} opcodes differ", self.0.len());
        }
    }

    #[test]
    fn decoders_agree_on_libraries() {
        let (mut pair, mut found) = (Pair::default(), Found::default());
        let count = (millions(0.2) * 1e6) as usize;
        for (name, _, bytes) in code() {
            // Parts that lie apart.
            let (mut at, mut tried) = (0, 0);
            let part = bytes.len() * 64 / count.max(1);
            while at < bytes.len() {
                match pair.compare(&bytes[at..]) {
                    Ok(len) => at += len,
                    Err(what) => {
                        found.add(format!("{what} ({name})"));
                        at += 1;
                    }
                }
                tried += 1;
                if tried % 64 == 0 {
                    at += part;
                }
            }
        }
        println!("libraries: {} agreed, {} of them write", pair.agreed, pair.writes);
        println!(
            "{} refused, {} only ours, {} only the second's",
            pair.refused, pair.only_ours, pair.only_second
        );
        found.none();
        assert!(pair.agreed > 100_000 && pair.writes > 5_000);
    }

    #[test]
    fn decoders_agree_on_any_bytes() {
        let (mut pair, mut found) = (Pair::default(), Found::default());
        let mut random = Random(0x5_eed5);
        for _ in 0..(millions(0.3) * 1e6) as u64 {
            if let Err(what) = pair.compare(&random.instruction()) {
                found.add(what);
            }
        }
        println!("any bytes: {} agreed, {} of them write", pair.agreed, pair.writes);
        println!(
            "{} refused, {} only ours, {} only the second's",
            pair.refused, pair.only_ours, pair.only_second
        );
        found.none();
        assert!(pair.agreed > 10_000 && pair.writes > 1_000);
    }
}
