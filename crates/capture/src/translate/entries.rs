//! Entries of functions that lead elsewhere: a program's own calls of a function get to another one first.
//!
//! The first instructions of the function are moved near the program, and a jump lies in their place. What is moved does what it did, so the function still is there, at another address
//! ([`Entries::redirect`] returns it).
//!
//! Invariants:
//! - An instruction is moved as a whole, and only if it does the same elsewhere; else the function stays as it is.
//! - No page is writable and executable at once.
//! - No other code jumps into the moved instructions. That is not checked: compilers begin no loop within the first five bytes of a function, which save registers.

use core::ops::Range;

use rustix::mm::{MprotectFlags, mprotect};
use spandrel_pages::PAGE_BYTES;

use super::cache::Cache;
use super::decode::{Decode, Decoder, Flow, LONGEST};
use crate::Refused;

/// `jmp`, and the distance.
const JUMP_BYTES: usize = 5;
/// The moved instructions, the jump behind them, and the way to the other function: each fewer than 32 bytes.
const STUB_BYTES: usize = 64;

/// Why the entry of a function cannot lead elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fixed {
    /// The kernel refuses memory for code, or has none.
    Refused(Refused),
    /// One of the first instructions does something else at another address: how far it is from the entry, in bytes.
    Instruction(usize),
}

impl From<Refused> for Fixed {
    fn from(why: Refused) -> Self {
        Self::Refused(why)
    }
}

/// See the head of this file. Entries stay as they are when the value is dropped.
#[derive(Default)]
pub struct Entries {
    cache: Cache,
    decoder: Decoder,
    /// The code that was made.
    made: (u64, u64),
}

/// Code that is put together.
struct Stub {
    bytes: [u8; STUB_BYTES],
    len: usize,
    at: u64,
}

impl Stub {
    fn put(&mut self, bytes: &[u8]) {
        let room = self.bytes.get_mut(self.len..self.len + bytes.len());
        room.into_iter().for_each(|room| room.copy_from_slice(bytes));
        self.len += bytes.len();
    }

    fn here(&self) -> u64 {
        self.at + self.len as u64
    }

    /// The distance from behind `len` more bytes to an address.
    fn distance(&self, len: usize, to: u64) -> Option<[u8; 4]> {
        let from = self.here() + len as u64;
        i32::try_from(to.wrapping_sub(from) as i64).ok().map(i32::to_le_bytes)
    }

    fn jump(&mut self, to: u64) -> Option<()> {
        let [a, b, c, d] = self.distance(JUMP_BYTES, to)?;
        self.put(&[0xe9, a, b, c, d]);
        Some(())
    }
}

impl Entries {
    /// Has the entry of a function lead to `to`, with `number` in `r11` and all other registers as the caller has left them. The address at which the function can be called as it was.
    ///
    /// # Errors
    /// [`Fixed`]; the function is as it was.
    ///
    /// # Safety
    /// A function of a loaded file begins there, whose entry does not lead elsewhere yet. No thread is about to run its first instructions. `to` may be jumped to wherever the function is called.
    pub unsafe fn redirect(
        &mut self,
        function: usize,
        number: u32,
        to: usize,
    ) -> Result<usize, Fixed> {
        let room = self.cache.room(function as u64, STUB_BYTES)?;
        let mut stub = Stub { bytes: [0xcc; STUB_BYTES], len: 0, at: room.address };
        let (mut moved, mut goes_on) = (0, true);
        while moved < JUMP_BYTES {
            let at = function + moved;
            let mut bytes = [0; LONGEST];
            let len = LONGEST.min(PAGE_BYTES - at % PAGE_BYTES);
            // SAFETY: code of a loaded file. An instruction that crosses the page's end is refused.
            unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(at as *const u8, len) };
            let known = bytes.get(..len).ok_or(Fixed::Instruction(moved))?;
            let mut move_one = |stub: &mut Stub, decoder: &mut Decoder| {
                let decoded = decoder.decode(known, at as u64).ok()?;
                let mut copy = bytes;
                let copy = copy.get_mut(..decoded.len).filter(|copy| copy.len() <= len)?;
                match decoded.flow {
                    Flow::Next => {}
                    // The function goes on in another one.
                    Flow::Jump(target) if moved + decoded.len >= JUMP_BYTES => {
                        goes_on = false;
                        stub.jump(target)?;
                        return Some(decoded.len);
                    }
                    // The return address lies here then, which unwinds nowhere: what is called must not.
                    Flow::Call(target) => {
                        let [a, b, c, d] = stub.distance(JUMP_BYTES, target)?;
                        stub.put(&[0xe8, a, b, c, d]);
                        return Some(decoded.len);
                    }
                    Flow::Branch { to, is_short: false } => {
                        let condition = match known {
                            [short @ 0x70..=0x7f, ..] => short & 0xf,
                            [0x0f, long @ 0x80..=0x8f, ..] => long & 0xf,
                            _ => return None,
                        };
                        // Not to what is moved itself.
                        let is_out = to.wrapping_sub(function as u64) >= LONGEST as u64;
                        let [a, b, c, d] = stub.distance(JUMP_BYTES + 1, to).filter(|_| is_out)?;
                        stub.put(&[0x0f, 0x80 | condition, a, b, c, d]);
                        return Some(decoded.len);
                    }
                    _ => return None,
                }
                if let Some((offset, target)) = decoded.relative {
                    let distance = stub.distance(decoded.len, target)?;
                    copy.get_mut(offset..offset + 4)?.copy_from_slice(&distance);
                }
                stub.put(copy);
                Some(decoded.len)
            };
            moved += move_one(&mut stub, &mut self.decoder).ok_or(Fixed::Instruction(moved))?;
        }
        if goes_on {
            stub.jump((function + moved) as u64).ok_or(Fixed::Instruction(0))?;
        }
        let (original, entry) = (stub.at as usize, stub.here());
        let [a, b, c, d] = number.to_le_bytes();
        // mov r11d, number; jmp [rip]
        stub.put(&[0x41, 0xbb, a, b, c, d, 0xff, 0x25, 0, 0, 0, 0]);
        stub.put(&(to as u64).to_le_bytes());
        let end = stub.here();
        let made = room.bytes.get_mut(..stub.len).ok_or(Refused::Size)?;
        made.copy_from_slice(stub.bytes.get(..stub.len).ok_or(Refused::Size)?);
        let start = room.start;
        self.cache.take(end);
        self.cache.keep();
        let mut jump = Stub { bytes: [0; STUB_BYTES], len: 0, at: function as u64 };
        jump.jump(entry).ok_or(Fixed::Instruction(0))?;
        // SAFETY: promised by the caller.
        unsafe { write_code(function, jump.bytes.get(..JUMP_BYTES).unwrap_or(&[]))? };
        let known = if self.made.1 == 0 { (start, end) } else { self.made };
        self.made = (known.0.min(start), known.1.max(end));
        Ok(original)
    }

    /// Where the code lies that was made. Empty: none was.
    pub fn addresses(&self) -> Range<usize> {
        self.made.0 as usize..self.made.1 as usize
    }
}

/// Writes over code of a loaded file.
///
/// # Errors
/// [`Refused`]: the code is as it was.
///
/// # Safety
/// The bytes are code of the file, which no thread runs meanwhile.
unsafe fn write_code(at: usize, bytes: &[u8]) -> Result<(), Refused> {
    let from = at & !(PAGE_BYTES - 1);
    let len = (at + bytes.len()).next_multiple_of(PAGE_BYTES) - from;
    // SAFETY: pages of the file, whose code is run by no thread while it is not executable: this code is another file's, or not on these pages.
    unsafe {
        let protect = |access| mprotect(from as *mut _, len, access).map_err(|_| Refused::Code);
        protect(MprotectFlags::READ | MprotectFlags::WRITE)?;
        (at as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        protect(MprotectFlags::READ | MprotectFlags::EXEC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::arch::global_asm;

    global_asm!(
        ".pushsection .text.spandrel_entries_test, \"ax\", @progbits",
        ".balign 4096",
        // A page of their own: the code that writes is not on it.
        "spandrel_test_sum:",
        "mov rax, rdi",
        "add rax, qword ptr [rip + spandrel_test_number]",
        "add rax, rsi",
        "ret",
        "spandrel_test_short:",
        "xor eax, eax",
        "ret",
        ".balign 16",
        "spandrel_test_branch:",
        "test edi, edi",
        "jz 1f",
        "inc edi",
        "lea edi, [edi + edi + 0]",
        "lea edi, [edi + edi + 0]",
        "lea edi, [edi + edi + 0]",
        "1: mov eax, edi",
        "ret",
        ".balign 16",
        "spandrel_test_loop:",
        "test edi, edi",
        "jz spandrel_test_loop",
        "mov eax, edi",
        "ret",
        ".balign 16",
        "spandrel_test_caller:",
        "push rdi",
        ".byte 0xe8",
        ".long spandrel_test_sum - . - 4",
        "pop rdi",
        "add rax, rdi",
        "ret",
        "spandrel_test_tail:",
        "xor esi, esi",
        ".byte 0xe9",
        ".long spandrel_test_sum - . - 4",
        "spandrel_test_other:",
        "lea rax, [rdi + 2*rsi]",
        "add rax, r11",
        "ret",
        ".balign 8",
        "spandrel_test_number: .quad 1000",
        ".balign 4096",
        ".popsection",
    );

    unsafe extern "C" {
        fn spandrel_test_sum(a: usize, b: usize) -> usize;
        fn spandrel_test_short() -> usize;
        fn spandrel_test_branch(a: u32) -> u32;
        fn spandrel_test_loop(a: u32) -> u32;
        fn spandrel_test_caller(a: usize, b: usize) -> usize;
        fn spandrel_test_tail(a: usize, b: usize) -> usize;
        fn spandrel_test_other();
    }

    #[test]
    fn a_function_leads_elsewhere_and_is_still_there() {
        let mut entries = Entries::default();
        let at = |function: *const ()| function as usize;
        let other = at(spandrel_test_other as *const ());
        // SAFETY: functions of this file that no other test runs.
        unsafe {
            assert_eq!((spandrel_test_sum(3, 4), spandrel_test_tail(3, 4)), (1007, 1003));
            let caller = at(spandrel_test_caller as *const ());
            let original = entries.redirect(caller, 0, other).unwrap();
            let original: extern "C" fn(usize, usize) -> usize = core::mem::transmute(original);
            assert_eq!((spandrel_test_caller(3, 4), original(3, 4)), (11, 1010));
            let tail = at(spandrel_test_tail as *const ());
            let original = entries.redirect(tail, 7, other).unwrap();
            assert_eq!(spandrel_test_tail(3, 4), 18);
            let original: extern "C" fn(usize, usize) -> usize = core::mem::transmute(original);
            assert_eq!(original(3, 4), 1003);
            let sum = at(spandrel_test_sum as *const ());
            let original = entries.redirect(sum, 100, other).unwrap();
            assert_eq!(spandrel_test_sum(3, 4), 111);
            let original: extern "C" fn(usize, usize) -> usize = core::mem::transmute(original);
            assert_eq!(original(3, 4), 1007);
            assert!(entries.addresses().contains(&(original as usize)));
            let refused = entries.redirect(at(spandrel_test_short as *const ()), 1, other);
            assert_eq!((refused, spandrel_test_short()), (Err(Fixed::Instruction(2)), 0));
            let branch = at(spandrel_test_branch as *const ());
            let original = entries.redirect(branch, 0, other).unwrap();
            let original: extern "C" fn(u32) -> u32 = core::mem::transmute(original);
            assert_eq!((original(0), original(7)), (0, 64));
            let refused = entries.redirect(at(spandrel_test_loop as *const ()), 1, other);
            assert_eq!((refused, spandrel_test_loop(7)), (Err(Fixed::Instruction(2)), 7));
        }
    }
}
