//! Machine code as bytes: what the translator adds to a program's own instructions.
//!
//! Nothing here changes flags, and nothing uses the stack: the program's red zone is below it.

/// A general register, by its number in machine code: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gpr(pub u8);

pub const RAX: Gpr = Gpr(0);
pub const RCX: Gpr = Gpr(1);
pub const RDX: Gpr = Gpr(2);
pub const RSP: Gpr = Gpr(4);
pub const RSI: Gpr = Gpr(6);
pub const RDI: Gpr = Gpr(7);
pub const R10: Gpr = Gpr(10);

/// Where an operand lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// At an address that is known: relative to the instruction pointer, or absolute.
    At(u64),
    /// Base, index, and the power of two that it is multiplied by, and displacement.
    Sum {
        base: Option<Gpr>,
        index: Option<(Gpr, u8)>,
        displacement: i32,
        /// The sum is taken modulo 2^32.
        is_32_bit: bool,
    },
}

/// Code that is written at one address to be run at another one.
pub struct Emitter<'a> {
    bytes: &'a mut [u8],
    at: usize,
    address: u64,
    is_full: bool,
}

impl<'a> Emitter<'a> {
    /// Writes to `bytes`, which are run at `address`.
    pub fn new(bytes: &'a mut [u8], address: u64) -> Self {
        Self { bytes, at: 0, address, is_full: false }
    }

    /// Where the next byte is run.
    pub fn here(&self) -> u64 {
        self.address + self.at as u64
    }

    /// The number of bytes; `None`: there was no room for all.
    pub fn len(&self) -> Option<usize> {
        (!self.is_full).then_some(self.at)
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        match self.bytes.get_mut(self.at..self.at + bytes.len()) {
            Some(into) => {
                into.copy_from_slice(bytes);
                self.at += bytes.len();
            }
            None => self.is_full = true,
        }
    }

    pub fn word(&mut self, word: u32) {
        self.raw(&word.to_le_bytes());
    }

    pub fn long(&mut self, long: u64) {
        self.raw(&long.to_le_bytes());
    }

    /// Writes the bytes again that lie at an address of this code.
    pub fn patch(&mut self, address: u64, bytes: &[u8]) {
        let from = (address - self.address) as usize;
        match self.bytes.get_mut(from..from + bytes.len()) {
            Some(into) => into.copy_from_slice(bytes),
            None => self.is_full = true,
        }
    }

    /// An instruction with a register and `gs:[slot]`.
    fn with_slot(&mut self, opcode: u8, reg: Gpr, slot: u32) {
        let rex = 0x48 | (reg.0 >> 3) << 2;
        self.raw(&[0x65, rex, opcode, 0x04 | (reg.0 & 7) << 3, 0x25]);
        self.word(slot);
    }

    /// `mov gs:[slot], reg`
    pub fn save(&mut self, slot: u32, reg: Gpr) {
        self.with_slot(0x89, reg, slot);
    }

    /// `mov reg, gs:[slot]`
    pub fn load(&mut self, reg: Gpr, slot: u32) {
        self.with_slot(0x8b, reg, slot);
    }

    /// `mov dword gs:[slot], value`
    pub fn set_slot(&mut self, slot: u32, value: u32) {
        self.raw(&[0x65, 0xc7, 0x04, 0x25]);
        self.word(slot);
        self.word(value);
    }

    /// The same for eight bytes.
    pub fn set_long_slot(&mut self, slot: u32, value: u64) {
        self.set_slot(slot, value as u32);
        self.set_slot(slot + 4, (value >> 32) as u32);
    }

    /// `jmp gs:[slot]`
    pub fn jump_to_slot(&mut self, slot: u32) {
        self.raw(&[0x65, 0xff, 0x24, 0x25]);
        self.word(slot);
    }

    /// `mov reg, value`
    pub fn set(&mut self, reg: Gpr, value: u64) {
        match u32::try_from(value) {
            Ok(word) => {
                if reg.0 > 7 {
                    self.raw(&[0x41]);
                }
                self.raw(&[0xb8 | reg.0 & 7]);
                self.word(word);
            }
            Err(_) => {
                self.raw(&[0x48 | reg.0 >> 3, 0xb8 | reg.0 & 7]);
                self.long(value);
            }
        }
    }

    /// An instruction of 64 bits with a register and a place in memory.
    fn with_place(&mut self, opcode: u8, reg: Gpr, place: Place) {
        let Place::Sum { base, index, displacement, is_32_bit } = place else { return };
        if is_32_bit {
            self.raw(&[0x67]);
        }
        let high = |reg: Option<Gpr>| reg.map_or(0, |reg| reg.0 >> 3);
        let low = |reg: Gpr| reg.0 & 7;
        let rex = 0x48 | (reg.0 >> 3) << 2 | high(index.map(|(reg, _)| reg)) << 1 | high(base);
        // With a base: 32 bits of displacement; without: the same, and no register.
        let mode = if base.is_some() { 0x80 } else { 0 };
        self.raw(&[rex, opcode, mode | low(reg) << 3 | 4]);
        let (index, scale) = index.map_or((4, 0), |(reg, scale)| (low(reg), scale));
        self.raw(&[scale << 6 | index << 3 | base.map_or(5, low)]);
        self.word(displacement as u32);
    }

    /// The address of a place.
    pub fn address_of(&mut self, reg: Gpr, place: Place) {
        match place {
            Place::At(address) => self.set(reg, address),
            sum => self.with_place(0x8d, reg, sum),
        }
    }

    /// `mov reg, [place]`
    pub fn load_from(&mut self, reg: Gpr, place: Place) {
        match place {
            Place::At(address) => {
                self.set(reg, address);
                self.load_from(reg, at(reg, 0));
            }
            sum => self.with_place(0x8b, reg, sum),
        }
    }

    /// `mov reg, [reg]` of 1, 2, 4 or 8 bytes, without their sign. False: there is none of that size. A register below r8.
    pub fn load_small(&mut self, reg: Gpr, bytes: u32) -> bool {
        let both = reg.0 << 3 | reg.0;
        match bytes {
            1 => self.raw(&[0x0f, 0xb6, both]),
            2 => self.raw(&[0x0f, 0xb7, both]),
            4 => self.raw(&[0x8b, both]),
            8 => self.raw(&[0x48, 0x8b, both]),
            _ => return false,
        }
        true
    }

    /// `mov [place], reg`; the place is a sum.
    pub fn store_to(&mut self, place: Place, reg: Gpr) {
        self.with_place(0x89, reg, place);
    }

    /// `mov qword [reg + displacement], value`
    pub fn store_value(&mut self, reg: Gpr, displacement: i8, value: u32) {
        self.raw(&[0x48 | reg.0 >> 3, 0xc7, 0x40 | reg.0 & 7, displacement as u8]);
        self.word(value);
    }

    /// `mov to, from`
    pub fn copy(&mut self, to: Gpr, from: Gpr) {
        self.raw(&[
            0x48 | (from.0 >> 3) << 2 | to.0 >> 3,
            0x89,
            0xc0 | (from.0 & 7) << 3 | to.0 & 7,
        ]);
    }

    /// `rorx to, from, bits`: a rotation that leaves flags alone (BMI2). Registers below r8.
    pub fn rotate(&mut self, to: Gpr, from: Gpr, bits: u8) {
        self.raw(&[0xc4, 0xe3, 0xfb, 0xf0, 0xc0 | to.0 << 3 | from.0, bits]);
    }

    /// `mov to, from`, of a number of 2, 4 or 8 bytes with its sign; `to` is below r8.
    pub fn copy_signed(&mut self, to: Gpr, from: Gpr, bytes: u32) {
        let (rex, both) = (0x48 | from.0 >> 3, 0xc0 | to.0 << 3 | from.0 & 7);
        match bytes {
            2 => self.raw(&[rex, 0x0f, 0xbf, both]),
            4 => self.raw(&[rex, 0x63, both]),
            _ => self.raw(&[rex, 0x8b, both]),
        }
    }

    /// `sarx to, from, count`: a shift with the sign that leaves flags alone (BMI2). Registers below r8.
    pub fn shift_signed(&mut self, to: Gpr, from: Gpr, count: Gpr) {
        self.raw(&[0xc4, 0xe2, 0x82 | (!count.0 & 15) << 3, 0xf7, 0xc0 | to.0 << 3 | from.0]);
    }

    /// `movzx to, word from`: the low 16 bits. Registers below r8.
    pub fn low_16(&mut self, to: Gpr, from: Gpr) {
        self.raw(&[0x0f, 0xb7, 0xc0 | to.0 << 3 | from.0]);
    }

    /// `jrcxz` to a place that [`Emitter::meet`] names.
    pub fn jump_if_rcx_is_zero(&mut self) -> u64 {
        self.raw(&[0xe3, 0]);
        self.here()
    }

    /// A short jump, as above.
    pub fn jump_short(&mut self) -> u64 {
        self.raw(&[0xeb, 0]);
        self.here()
    }

    /// A short jump that ends at `from` leads here.
    pub fn meet(&mut self, from: u64) {
        match i8::try_from(self.here() - from) {
            Ok(distance) => self.patch(from - 1, &[distance as u8]),
            Err(_) => self.is_full = true,
        }
    }

    /// `jmp`, 32 bits; where its last four bytes are run.
    pub fn jump(&mut self, to: u64) -> u64 {
        self.raw(&[0xe9]);
        self.distance(to)
    }

    /// The four bytes of a distance to `to`, as the last ones of an instruction.
    pub fn distance(&mut self, to: u64) -> u64 {
        let at = self.here();
        match i32::try_from(to.wrapping_sub(at + 4) as i64) {
            Ok(distance) => self.word(distance as u32),
            Err(_) => self.is_full = true,
        }
        at
    }

    /// Pushes a value of 64 bits, by one store: a return address is read soon, as a whole, and a load that needs two stores waits until both have left the processor's buffer, with all before them.
    pub fn push(&mut self, value: u64) {
        if value == value as u32 as i32 as u64 {
            // The upper half is extended by the sign.
            self.raw(&[0x68]);
            return self.word(value as u32);
        }
        // push [rip + 2]; jmp behind the value
        self.raw(&[0xff, 0x35, 2, 0, 0, 0, 0xeb, 8]);
        self.raw(&value.to_le_bytes());
    }
}

/// `[reg + displacement]`
pub const fn at(reg: Gpr, displacement: i32) -> Place {
    Place::Sum { base: Some(reg), index: None, displacement, is_32_bit: false }
}
