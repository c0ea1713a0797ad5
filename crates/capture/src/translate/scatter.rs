//! What an instruction writes through a vector of addresses (AVX-512): each element whose bit of the mask is set goes to an address of its own.
//!
//! The registers are those that a callout has saved: the instruction follows it.

use core::arch::x86_64::__cpuid_count;

use iced_x86::{Instruction, Mnemonic, Register};

use super::context::STATE_BYTES;
use super::decode::gpr;
use super::emit::Gpr;

/// An instruction of that kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scatter {
    base: Option<Gpr>,
    /// The vector of indices, by its number, and the power of two that each is multiplied by.
    index: u8,
    scale: u8,
    displacement: i32,
    /// The register of the mask, by its number.
    mask: u8,
    /// Indices have eight bytes, not four; elements have.
    has_long_indices: bool,
    has_long_elements: bool,
    /// Elements of the vector.
    count: u8,
    /// Addresses are sums modulo 2^32.
    is_32_bit: bool,
}

impl Scatter {
    /// `None`: it is none, or one with addresses of the thread's own.
    pub fn of(instruction: &Instruction) -> Option<Self> {
        use Mnemonic as M;
        let (has_long_indices, has_long_elements) = match instruction.mnemonic() {
            M::Vpscatterdd | M::Vscatterdps => (false, false),
            M::Vpscatterdq | M::Vscatterdpd => (false, true),
            M::Vpscatterqd | M::Vscatterqps => (true, false),
            M::Vpscatterqq | M::Vscatterqpd => (true, true),
            _ => return None,
        };
        let (vector, data) = (instruction.memory_index(), instruction.op1_register());
        let base = instruction.memory_base();
        let is_own = matches!(instruction.memory_segment(), Register::FS | Register::GS);
        if !vector.is_vector_register() || !data.is_vector_register() || is_own || base.is_ip() {
            return None;
        }
        // The wider ones of indices and elements fill their vector.
        let widest = if has_long_indices || has_long_elements { 8 } else { 4 };
        let count = vector.size().max(data.size()) / widest;
        let mask = instruction.op_mask();
        Some(Self {
            base: gpr(base),
            index: u8::try_from(vector.number()).ok()?,
            scale: instruction.memory_index_scale().trailing_zeros() as u8,
            displacement: instruction.memory_displacement64() as i32,
            mask: if mask == Register::None { return None } else { mask.number() as u8 },
            has_long_indices,
            has_long_elements,
            count: u8::try_from(count).ok()?,
            // Without a base the size of the displacement has that of addresses.
            is_32_bit: match base {
                Register::None => instruction.memory_displ_size() == 4,
                base => base.is_gpr32(),
            },
        })
    }

    /// All of it, for a callout: the argument and the detail.
    pub fn words(self) -> (u32, u32) {
        let fields = [
            (u32::from(self.base.map_or(16, |base| base.0)), 5),
            (self.index.into(), 5),
            (self.scale.into(), 2),
            (self.mask.into(), 3),
            (self.has_long_indices.into(), 1),
            (self.has_long_elements.into(), 1),
            (self.is_32_bit.into(), 1),
            (self.count.into(), 5),
        ];
        let argument = fields.iter().rev().fold(0, |all, (field, bits)| all << bits | field);
        (argument, self.displacement as u32)
    }

    /// What [`Scatter::words`] has made words of.
    pub fn from_words(mut argument: u32, detail: u32) -> Self {
        let mut next = |bits: u32| {
            let field = argument & ((1 << bits) - 1);
            argument >>= bits;
            field as u8
        };
        let base = next(5);
        Self {
            base: (base < 16).then_some(Gpr(base)),
            index: next(5),
            scale: next(2),
            mask: next(3),
            has_long_indices: next(1) != 0,
            has_long_elements: next(1) != 0,
            is_32_bit: next(1) != 0,
            count: next(5),
            displacement: detail as i32,
        }
    }

    /// Calls `note` with the address and the number of bytes of each element that it writes.
    pub fn each(
        self,
        registers: &[u64; 16],
        state: &[u8; STATE_BYTES],
        layout: Layout,
        note: &mut dyn FnMut(u64, u64),
    ) {
        let base = self.base.and_then(|base| registers.get(usize::from(base.0)));
        let base = base.copied().unwrap_or(0).wrapping_add(self.displacement as u64);
        let mask = layout.mask(state, self.mask);
        for number in (0..self.count).filter(|number| mask >> number & 1 != 0) {
            let index = if self.has_long_indices {
                layout.long(state, self.index, number)
            } else {
                let both = layout.long(state, self.index, number / 2);
                (both >> (32 * (number % 2))) as i32 as u64
            };
            let at = base.wrapping_add(index << self.scale);
            let at = if self.is_32_bit { u64::from(at as u32) } else { at };
            note(at, if self.has_long_elements { 8 } else { 4 });
        }
    }
}

/// Where `xsave` stores the parts of vectors, and masks.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Of the upper halves of registers 0 to 15, 16 bytes each; of the masks; of the upper halves of registers 0 to 15, 32 bytes each; of registers 16 to 31.
    parts: [usize; 4],
}

/// Bits of the parts that are in use, and where that word lies.
const IN_USE: usize = 512;
const SSE: (u32, usize) = (1, 160);

impl Layout {
    const NUMBERS: [u32; 4] = [2, 5, 6, 7];

    /// The number of a part, and where it lies.
    pub fn part(self, which: usize) -> (u32, usize) {
        let number = Self::NUMBERS.get(which).copied().unwrap_or(0);
        (number, self.parts.get(which).copied().unwrap_or(STATE_BYTES))
    }

    /// Eight bytes of a part; a part that is as it is at first has zeroes.
    fn word(state: &[u8; STATE_BYTES], (part, from): (u32, usize), at: usize) -> u64 {
        let word = |at: usize| {
            let bytes = state.get(at..)?.first_chunk();
            bytes.map(|bytes| u64::from_le_bytes(*bytes))
        };
        let in_use = word(IN_USE).unwrap_or(0) >> part & 1 != 0;
        if in_use { word(from + at).unwrap_or(0) } else { 0 }
    }

    /// The register of a mask.
    pub fn mask(self, state: &[u8; STATE_BYTES], number: u8) -> u64 {
        Self::word(state, self.part(1), usize::from(number) * 8)
    }

    /// The eight bytes of that number of a vector.
    pub fn long(self, state: &[u8; STATE_BYTES], vector: u8, number: u8) -> u64 {
        let (vector, number) = (usize::from(vector), usize::from(number));
        let (part, at) = match (vector, number) {
            (16.., _) => (self.part(3), (vector - 16) * 64 + number * 8),
            (_, 0..2) => (SSE, vector * 16 + number * 8),
            (_, 2..4) => (self.part(0), vector * 16 + (number - 2) * 8),
            _ => (self.part(2), vector * 32 + (number - 4) * 8),
        };
        Self::word(state, part, at)
    }
}

impl Default for Layout {
    /// That of this processor.
    fn default() -> Self {
        let parts = Self::NUMBERS.map(|number| {
            #[allow(unused_unsafe, reason = "unsafe before Rust 1.94")]
            // SAFETY: each processor with `xsave` has it.
            let leaf = unsafe { __cpuid_count(0xd, number) };
            leaf.ebx as usize
        });
        Self { parts }
    }
}
