//! A block of a program's code becomes a block that does the same, and notes what it writes.
//!
//! Invariants:
//! - Before each instruction of the program all registers and flags are what they would be without the translator, but for the instruction pointer.
//! - Return addresses on the stack are those of the program's own code, but for those of native functions while these run: exceptions and traces of the stack find their way.
//! - The memory below the stack pointer is not written to.
//! - A write is in the log before it is done.

use core::mem::offset_of;

use super::calls::RememberedCall;
use super::context::{
    ARGUMENT, BRANCHES, CALLOUT, DETAIL, LOG, MASK, NATIVE_RETURN, NATIVE_STACK, NEXT_CALL, OTHERS,
    RAX_PLACE, RCX_PLACE, RDX_PLACE, REASON, Reason, STRING, TARGET,
};
use super::decode::{
    Decode, Decoded, Flow, LONGEST, MOST_WRITES, MOST_WRITTEN, Operand, Unknown, Write,
};
use super::emit::{self, Emitter, Gpr, Place, R10, RAX, RCX, RDI, RDX, RSI, RSP, at};
use super::tables::{Exit, Tables};

/// Bytes of an entry of the log: the address, the number of bytes, and for atomic writes what was there before.
pub const ENTRY_BYTES: i32 = 32;
/// Marks the number of bytes of an atomic write.
pub const ATOMIC: u32 = 1 << 30;

/// Instead of the number of bytes: the stack is there from now on.
pub const STACK: u32 = 1 << 29;

/// log2 of the bytes from which on a function that stores many is native: a call and one note take what some translated instructions take. From here on a write is a range as well
/// ([`crate::RANGE_BYTES`]).
const LONG_SHIFT: u64 = 8;
/// log2 of the bytes from which on it is translated again: an entry of the log has fewer.
const LONGEST_SHIFT: u64 = 28;
const _: () = assert!(1 << LONG_SHIFT == crate::RANGE_BYTES && 1 << LONGEST_SHIFT < STACK);

/// Instructions of a block, at most.
pub const MOST_INSTRUCTIONS: usize = 64;
/// Bytes of a program's block, at most.
pub const LONGEST_BLOCK: u64 = (MOST_INSTRUCTIONS * LONGEST) as u64;
/// Bytes that a block takes at most, with what follows its end.
pub const MOST_BYTES: usize = 64 << 10;
/// Exits of a block, at most.
const MOST_EXITS: usize = 2;

/// Which addresses are durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    pub from: u64,
    pub bytes: u64,
    /// The addresses of the window have the same bits from here on, and perhaps others have them too.
    shift: u8,
    /// A write is one to the window if its last byte has these bits; otherwise, if its first one has.
    by_last: bool,
}

impl Window {
    /// The bits that are compared are 16.
    const LEAST_SHIFT: u8 = 31;

    /// One that is not empty.
    ///
    /// A write may begin before the window or end behind it, so that one side of it has as many addresses with the same bits as a write has bytes.
    pub fn new(from: u64, bytes: u64) -> Self {
        let last = from + bytes.max(1) - 1;
        let (before, behind) = (from.checked_sub(MOST_WRITTEN), last.checked_add(MOST_WRITTEN));
        let by_first = |shift: u8| before.is_some_and(|before| before >> shift == last >> shift);
        let by_last = |shift: u8| behind.is_some_and(|behind| behind >> shift == from >> shift);
        let shift = (Self::LEAST_SHIFT..48).find(|shift| by_first(*shift) || by_last(*shift));
        let shift = shift.unwrap_or(48);
        Self { from, bytes, shift, by_last: !by_first(shift) }
    }

    /// Whether bytes lie in it, all or some.
    pub fn has(&self, at: u64, bytes: u64) -> bool {
        at < self.from + self.bytes && at.saturating_add(bytes) > self.from
    }

    /// Those of the bytes that lie in it.
    pub fn part(&self, at: u64, bytes: u64) -> Option<(u64, u64)> {
        let (from, end) = (at.max(self.from), at.saturating_add(bytes));
        let end = end.min(self.from + self.bytes);
        (from < end).then(|| (from, end - from))
    }
}

/// Why a block ends in a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The instruction is one that cannot be translated.
    Unknown(Unknown),
    /// An operand relative to the instruction pointer is too far from the cache.
    Far,
    /// There is no room for the block.
    Full,
    /// The code lies in no module of the program, and may change: it was made at run time.
    Changes,
    /// A signal handler has gone on elsewhere, and what ran then was not translated.
    Left,
    /// The stack lies in the durable memory.
    Stack,
    /// A restartable sequence is about to begin.
    Sequence,
}

/// The code of a program.
pub trait Source {
    /// Whether there is code that does not change.
    fn has_code(&mut self, at: u64) -> bool;

    /// Bytes from an address on, where there is code: those of its page, or also of the next one. Their number.
    fn bytes(&self, at: u64, into: &mut [u8; LONGEST], crosses: bool) -> usize;

    /// Whether the descriptor of a restartable sequence lies there.
    fn has_sequence(&self, at: u64) -> bool;
}

/// Makes one block.
pub struct Rewriter<'r, D, S> {
    pub decoder: &'r mut D,
    pub source: &'r mut S,
    pub tables: &'r mut Tables,
    pub window: Window,
    /// Where the code lies that looks a target up which rcx has.
    pub lookup: u64,
}

/// What follows the end of a block.
#[derive(Clone, Copy)]
struct Later {
    /// Where to call out from: the end of a jump of 32 bits.
    from: u64,
    /// Where to go on.
    back: u64,
}

/// The code that leads to the translation of the address in rcx, whose own value lies in its place.
pub fn lookup(code: &mut Emitter<'_>) {
    code.save(RDX_PLACE, RDX);
    code.save(RAX_PLACE, RAX);
    code.save(TARGET, RCX);
    code.low_16(RDX, RCX);
    // lea edx, [rdx + rdx]
    code.raw(&[0x8d, 0x14, 0x12]);
    let entry = |code: &mut Emitter<'_>, displacement: u32| {
        // mov rax, gs:[rdx * 8 + displacement]
        code.raw(&[0x65, 0x48, 0x8b, 0x04, 0xd5]);
        code.word(displacement);
    };
    // The sum of the target and an entry's first word is zero if the entry is the target's.
    let is_it = |code: &mut Emitter<'_>, displacement: u32| {
        entry(code, displacement);
        // lea rcx, [rcx + rax]
        code.raw(&[0x48, 0x8d, 0x0c, 0x01]);
        code.jump_if_rcx_is_zero()
    };
    let restore = |code: &mut Emitter<'_>| {
        code.load(RAX, RAX_PLACE);
        code.load(RDX, RDX_PLACE);
        code.load(RCX, RCX_PLACE);
    };
    let hit = is_it(code, BRANCHES);
    code.load(RCX, TARGET);
    let other_hit = is_it(code, OTHERS);
    restore(code);
    code.set_slot(REASON, Reason::Branch as u32);
    code.jump_to_slot(CALLOUT);
    for (hit, displacement) in [(hit, BRANCHES), (other_hit, OTHERS)] {
        code.meet(hit);
        entry(code, displacement + 8);
        code.save(TARGET, RAX);
        restore(code);
        code.jump_to_slot(TARGET);
    }
}

impl<D: Decode, S: Source> Rewriter<'_, D, S> {
    fn decode(&mut self, at: u64) -> Result<(Decoded, [u8; LONGEST]), Refusal> {
        if !self.source.has_code(at) {
            return Err(Refusal::Changes);
        }
        let mut bytes = [0; LONGEST];
        let len = self.source.bytes(at, &mut bytes, false);
        let part = bytes.get(..len).unwrap_or(&[]);
        let decoded = match self.decoder.decode(part, at) {
            Err(Unknown::Instruction) if len < LONGEST => {
                let len = self.source.bytes(at, &mut bytes, true);
                self.decoder.decode(bytes.get(..len).unwrap_or(&[]), at)
            }
            decoded => decoded,
        };
        let decoded = decoded.map_err(Refusal::Unknown)?;
        if decoded.relative.is_some_and(|(_, to)| self.source.has_sequence(to)) {
            return Err(Refusal::Sequence);
        }
        Ok((decoded, bytes))
    }

    /// Translates the block at `from`. A block whose first instruction is refused is no block; one whose later instruction is ends before it.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn block(&mut self, from: u64, code: &mut Emitter<'_>) -> Result<(), Refusal> {
        let mut at = from;
        let mut exits = [None; MOST_EXITS];
        let mut later = [None; MOST_INSTRUCTIONS * (MOST_WRITES + 1)];
        for number in 0..MOST_INSTRUCTIONS {
            let (decoded, bytes) = match self.decode(at) {
                Err(why) if number == 0 => return Err(why),
                Err(_) => break,
                Ok(decoded) => decoded,
            };
            for write in decoded.writes.into_iter().flatten() {
                let place = later.iter_mut().find(|later| later.is_none());
                if let Some(place) = place {
                    *place = self.note(code, write);
                }
            }
            let bytes = bytes.get(..decoded.len).unwrap_or(&[]);
            let next = at + decoded.len as u64;
            if let Some(bytes @ 1..) = decoded.repeated {
                call_out(code, Reason::String, bytes);
            }
            if let Some(scatter) = decoded.scatter {
                let (argument, detail) = scatter.words();
                code.set_slot(DETAIL, detail);
                call_out(code, Reason::Scatter, argument);
            }
            match decoded.flow {
                Flow::Next => {
                    relocate(code, bytes, decoded.relative)?;
                    if decoded.pivots {
                        // Where the next word is pushed.
                        let place = emit::at(RSP, -8);
                        let stack = Write { place, bytes: STACK, is_atomic: false, bit: None };
                        let noted = self.note(code, stack);
                        if let Some(place) = later.iter_mut().find(|later| later.is_none()) {
                            *place = noted;
                        }
                    }
                }
                Flow::SystemCall => {
                    code.set_long_slot(DETAIL, next);
                    call_out(code, Reason::SystemCall, 0);
                    system_call(code, next);
                }
                Flow::Trap => {
                    // A handler may go on behind it.
                    code.raw(bytes);
                    exits[0] = Some((next, 0));
                    return self.end(code, &exits, &later);
                }
                Flow::Jump(to) => {
                    exits[0] = Some((to, 0));
                    return self.end(code, &exits, &later);
                }
                Flow::Branch { to, is_short } => {
                    let site = branch(code, bytes, is_short);
                    exits = [Some((next, 0)), Some((to, site))];
                    return self.end(code, &exits, &later);
                }
                Flow::Call(to) => {
                    code.push(next);
                    exits[0] = Some((to, 0));
                    return self.end(code, &exits, &later);
                }
                Flow::JumpTo(to) => {
                    self.target(code, to);
                    code.jump(self.lookup);
                    return self.end(code, &exits, &later);
                }
                Flow::CallTo(to) => {
                    self.target(code, to);
                    code.push(next);
                    code.jump(self.lookup);
                    return self.end(code, &exits, &later);
                }
                Flow::Return(more) => {
                    code.save(RCX_PLACE, RCX);
                    // pop rcx
                    code.raw(&[0x59]);
                    if more > 0 {
                        code.address_of(RSP, at_of(RSP, more));
                    }
                    code.jump(self.lookup);
                    return self.end(code, &exits, &later);
                }
            }
            at = next;
        }
        exits[0] = Some((at, 0));
        self.end(code, &exits, &later)
    }

    /// Loads the target of an indirect branch into rcx, whose own value goes to its place.
    fn target(&self, code: &mut Emitter<'_>, operand: Operand) {
        code.save(RCX_PLACE, RCX);
        match operand {
            Operand::Register(register) => code.copy(RCX, register),
            Operand::Memory(place) => code.load_from(RCX, place),
        }
    }

    /// Notes a write that follows.
    fn note(&self, code: &mut Emitter<'_>, write: Write) -> Option<Later> {
        if let Place::At(address) = write.place
            && write.bit.is_none()
            && !self.window.has(address, write.bytes.into())
        {
            return None;
        }
        code.save(RCX_PLACE, RCX);
        code.save(RDX_PLACE, RDX);
        match write.bit {
            Some(number) => word_with_bit(code, write, number),
            None => code.address_of(RDX, write.place),
        }
        let mut skip = None;
        if self.window.shift < 48 {
            if self.window.by_last {
                // What takes the stack takes a word.
                let bytes = if write.bytes == STACK { 8 } else { write.bytes };
                code.address_of(RCX, at(RDX, bytes as i32 - 1));
                code.rotate(RCX, RCX, self.window.shift);
            } else {
                code.rotate(RCX, RDX, self.window.shift);
            }
            code.low_16(RCX, RCX);
            let bits = (self.window.from >> self.window.shift) as i32;
            code.address_of(RCX, at(RCX, -bits));
            let hit = code.jump_if_rcx_is_zero();
            skip = Some(code.jump_short());
            code.meet(hit);
        }
        code.load(RCX, LOG);
        code.store_to(at(RCX, 0), RDX);
        // What was there is of use as one word.
        let is_atomic = write.is_atomic && code.load_small(RDX, write.bytes);
        if is_atomic {
            code.store_to(at(RCX, 16), RDX);
        }
        code.store_value(RCX, 8, if is_atomic { write.bytes | ATOMIC } else { write.bytes });
        let go_on = end_entry(code);
        let from = code.jump(code.here()) + 4;
        code.meet(go_on);
        skip.into_iter().for_each(|skip| code.meet(skip));
        code.load(RDX, RDX_PLACE);
        code.load(RCX, RCX_PLACE);
        Some(Later { from, back: code.here() })
    }

    /// Ends a block: its exits, and what seldom happens.
    fn end(
        &mut self,
        code: &mut Emitter<'_>,
        exits: &[Option<(u64, u64)>],
        later: &[Option<Later>],
    ) -> Result<(), Refusal> {
        for (target, site) in exits.iter().flatten() {
            let stub = code.here();
            if *site != 0 {
                code.patch(*site, &((stub - site - 4) as u32).to_le_bytes());
            }
            let number = self.tables.next_exit().ok_or(Refusal::Full)?;
            self.tables.add_exit(Exit { target: *target, stub, site: *site });
            code.set_slot(ARGUMENT, number);
            code.set_slot(REASON, Reason::Exit as u32);
            code.jump_to_slot(CALLOUT);
        }
        for Later { from, back } in later.iter().flatten() {
            code.patch(from - 4, &((code.here() - from) as u32).to_le_bytes());
            code.load(RDX, RDX_PLACE);
            code.load(RCX, RCX_PLACE);
            code.set_long_slot(TARGET, *back);
            code.set_slot(REASON, Reason::Log as u32);
            code.jump_to_slot(CALLOUT);
        }
        code.len().map(drop).ok_or(Refusal::Full)
    }
}

/// Ends the entry of the log at rcx. What follows is run where the log is full; the jump that is returned leads past it.
fn end_entry(code: &mut Emitter<'_>) -> u64 {
    code.address_of(RCX, at(RCX, ENTRY_BYTES));
    code.save(LOG, RCX);
    // The log ends where the low bits are zero.
    code.low_16(RCX, RCX);
    let full = code.jump_if_rcx_is_zero();
    let go_on = code.jump_short();
    code.meet(full);
    go_on
}

/// Loads the address of the word into rdx that has the bit of a number; rcx and rdx lie in their places.
fn word_with_bit(code: &mut Emitter<'_>, write: Write, number: Gpr) {
    let scale = write.bytes.trailing_zeros() as u8;
    code.copy_signed(RCX, number, write.bytes);
    code.set(RDX, u64::from(scale) + 3);
    code.shift_signed(RCX, RCX, RDX);
    code.save(DETAIL, RCX);
    code.load(RCX, RCX_PLACE);
    code.load(RDX, RDX_PLACE);
    code.address_of(RDX, write.place);
    code.load(RCX, DETAIL);
    let (base, index) = (Some(RDX), Some((RCX, scale)));
    code.address_of(RDX, Place::Sum { base, index, displacement: 0, is_32_bit: false });
}

/// `[register + displacement]`
fn at_of(register: Gpr, displacement: u16) -> Place {
    at(register, displacement.into())
}

/// Calls out, and goes on behind it.
fn call_out(code: &mut Emitter<'_>, reason: Reason, argument: u32) {
    /// Bytes of the two instructions that set the target, and of those that follow them.
    const BYTES: u64 = 2 * 12 + 2 * 12 + 8;
    let back = code.here() + BYTES;
    code.set_long_slot(TARGET, back);
    code.set_slot(ARGUMENT, argument);
    code.set_slot(REASON, reason as u32);
    code.jump_to_slot(if reason == Reason::String { STRING } else { CALLOUT });
    debug_assert_eq!(code.here(), back);
}

/// Remembers the call of a function that begins; `end`: where the last call ends that there is room for.
pub fn remember(code: &mut Emitter<'_>, kind: u32, end: u64) {
    const SLOT: usize = offset_of!(RememberedCall, slot);
    const BACK: usize = offset_of!(RememberedCall, back);
    const KIND: usize = offset_of!(RememberedCall, kind);
    const FIRST: usize = offset_of!(RememberedCall, first);
    code.save(RCX_PLACE, RCX);
    code.save(RDX_PLACE, RDX);
    code.load(RCX, NEXT_CALL);
    code.store_to(at(RCX, SLOT as i32), RSP);
    code.load_from(RDX, at(RSP, 0));
    code.store_to(at(RCX, BACK as i32), RDX);
    code.store_value(RCX, KIND as i8, kind);
    code.store_to(at(RCX, FIRST as i32), RDI);
    code.address_of(RCX, at(RCX, size_of::<RememberedCall>() as i32));
    code.save(NEXT_CALL, RCX);
    code.set(RDX, end.wrapping_neg());
    let (base, index) = (Some(RCX), Some((RDX, 0)));
    code.address_of(RCX, Place::Sum { base, index, displacement: 0, is_32_bit: false });
    let full = code.jump_if_rcx_is_zero();
    let go_on = code.jump_short();
    code.meet(full);
    code.load(RDX, RDX_PLACE);
    code.load(RCX, RCX_PLACE);
    call_out(code, Reason::Calls, 0);
    code.meet(go_on);
    code.load(RDX, RDX_PLACE);
    code.load(RCX, RCX_PLACE);
}

/// Bytes behind a system call where the same begins for one that returns twice.
pub const FORKS_AFTER: u64 = 4;
/// Bytes behind it where code goes on as if the call was made.
pub const SKIPS_AFTER: u64 = 2;
/// Instructions of a child before it goes on with the program's own code.
#[cfg(any(test, fuzzing))]
pub const CHILD_INSTRUCTIONS: usize = 19;

/// A system call; and one whose child goes on with the program's own code.
fn system_call(code: &mut Emitter<'_>, next: u64) {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    code.raw(&SYSCALL);
    let made = code.jump_short();
    code.raw(&SYSCALL);
    // The kernel leaves no value in rcx.
    code.copy(RCX, RAX);
    let child = code.jump_if_rcx_is_zero();
    let parent = code.jump_short();
    code.meet(child);
    take_mask(code);
    code.raw(&far_jump(next));
    code.meet(made);
    code.meet(parent);
}

/// A child takes the program's mask of signals: the parent's has more. Its memory is its own or not; below the stack pointer of either no more than the red zone is in use.
fn take_mask(code: &mut Emitter<'_>) {
    const RED_ZONE: i32 = 128;
    code.address_of(RSP, at(RSP, -RED_ZONE));
    // push rdi; push rsi; push rdx; push r10
    code.raw(&[0x57, 0x56, 0x52, 0x41, 0x52]);
    // push gs:[MASK]
    code.raw(&[0x65, 0xff, 0x34, 0x25]);
    code.word(MASK);
    code.copy(RSI, RSP);
    code.set(RDI, libc::SIG_SETMASK as u64);
    code.set(RDX, 0);
    code.set(R10, size_of::<u64>() as u64);
    code.set(RAX, libc::SYS_rt_sigprocmask as u64);
    code.raw(&[0x0f, 0x05]);
    code.address_of(RSP, at(RSP, 8));
    // pop r10; pop rdx; pop rsi; pop rdi
    code.raw(&[0x41, 0x5a, 0x5a, 0x5e, 0x5f]);
    code.address_of(RSP, at(RSP, RED_ZONE));
    code.set(RAX, 0);
}

/// Copies an instruction. Its operand stays where it is.
fn relocate(
    code: &mut Emitter<'_>,
    bytes: &[u8],
    relative: Option<(usize, u64)>,
) -> Result<(), Refusal> {
    let start = code.here();
    code.raw(bytes);
    if let Some((offset, target)) = relative {
        let distance = target.wrapping_sub(start + bytes.len() as u64) as i64;
        let distance = i32::try_from(distance).map_err(|_| Refusal::Far)?;
        code.patch(start + offset as u64, &distance.to_le_bytes());
    }
    Ok(())
}

/// A conditional branch whose distance is patched: where that lies.
fn branch(code: &mut Emitter<'_>, bytes: &[u8], is_short: bool) -> u64 {
    let last = |from_end: usize| bytes.len().checked_sub(from_end).and_then(|at| bytes.get(at));
    if is_short {
        // The same, over a jump that leads past another one.
        code.raw(bytes.get(..bytes.len().saturating_sub(1)).unwrap_or(&[]));
        code.raw(&[2, 0xeb, 5, 0xe9]);
    } else {
        let is_near = bytes.len() >= 6 && last(6) == Some(&0x0f);
        let condition = if is_near { last(5) } else { last(2) };
        code.raw(&[0x0f, 0x80 | condition.copied().unwrap_or(0) & 0x0f]);
    }
    let site = code.here();
    code.word(0);
    site
}

/// A function that is not translated: it is called, and its return address is looked up.
pub fn native(code: &mut Emitter<'_>, function: u64, lookup: u64) {
    code.save(RCX_PLACE, RCX);
    // pop rcx
    code.raw(&[0x59]);
    code.save(NATIVE_RETURN, RCX);
    code.save(NATIVE_STACK, RSP);
    code.load(RCX, RCX_PLACE);
    // call [rip + 2]; jmp over the address
    code.raw(&[0xff, 0x15, 2, 0, 0, 0, 0xeb, 8]);
    code.long(function);
    code.save(RCX_PLACE, RCX);
    code.load(RCX, NATIVE_RETURN);
    code.jump(lookup);
}

/// The beginning of a function that stores rdx bytes at rdi: with many it is called as it is, and they are one note. With few, or with more than an entry of the log tells, it goes on behind this.
pub fn long(code: &mut Emitter<'_>, function: u64, lookup: u64) {
    code.save(RCX_PLACE, RCX);
    // Flags are as the caller has left them.
    code.set(RCX, LONG_SHIFT);
    code.shift_signed(RCX, RDX, RCX);
    let few = code.jump_if_rcx_is_zero();
    code.set(RCX, LONGEST_SHIFT);
    code.shift_signed(RCX, RDX, RCX);
    let many = code.jump_if_rcx_is_zero();
    code.meet(few);
    let few = code.jump(code.here()) + 4;
    code.meet(many);
    code.load(RCX, LOG);
    code.store_to(at(RCX, 0), RDI);
    code.store_to(at(RCX, 8), RDX);
    let go_on = end_entry(code);
    code.load(RCX, RCX_PLACE);
    call_out(code, Reason::Log, 0);
    code.save(RCX_PLACE, RCX);
    code.meet(go_on);
    code.load(RCX, RCX_PLACE);
    native(code, function, lookup);
    code.patch(few - 4, &((code.here() - few) as u32).to_le_bytes());
    code.load(RCX, RCX_PLACE);
}

/// A jump to any address.
pub fn far_jump(to: u64) -> [u8; 14] {
    let mut bytes = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    if let Some(place) = bytes.last_chunk_mut::<8>() {
        *place = to.to_le_bytes();
    }
    bytes
}
