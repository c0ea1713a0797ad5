//! Pages of memory that other threads may store to meanwhile, copied once: what is summed, what the log gets and what the image gets is
//! this one copy.

use core::arch::asm;

use spandrel_os::image::Image;
use spandrel_pages::PAGE_BYTES;
use spandrel_redolog::Record;

use crate::disk::{Disk, LogOf};
use crate::medium::Failed;
use crate::room::Buffer;
use crate::runs::Runs;

/// Bytes that are compared in one go.
const PIECE: usize = 64 << 10;

/// Copies words: each is as some store has left it. Both lengths are multiples of 8.
///
/// # Safety
/// As many bytes as `into` has can be read from `from` on, which is aligned to 8. Other threads may store there.
pub unsafe fn copy_words(from: *const u8, into: &mut [u8]) {
    /// Bytes that one turn of the loop copies.
    const TURN: usize = 64;
    let turns = into.len() / TURN;
    let (wide, rest) = into.split_at_mut(turns * TURN);
    if turns > 0 {
        // SAFETY: reads `turns * TURN` bytes that can be read, and writes as many of `wide`. The loads are machine instructions: no reference to
        // the memory exists, and the compiler assumes nothing of it. The processor loads 16 bytes as a whole, or as two aligned words: no
        // word is torn.
        unsafe {
            asm!(
                "2:",
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                "movdqu [{to}], {a}",
                "movdqu [{to} + 16], {b}",
                "movdqu [{to} + 32], {c}",
                "movdqu [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "sub {turns}, 1",
                "jnz 2b",
                from = inout(reg) from => _,
                to = inout(reg) wide.as_mut_ptr() => _,
                turns = inout(reg) turns => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
    let from = from.wrapping_add(turns * TURN).cast::<u64>();
    for (number, place) in rest.chunks_exact_mut(8).enumerate() {
        // SAFETY: within what can be read. Volatile: the word is loaded once, as a whole.
        let word = unsafe { from.add(number).read_volatile() };
        place.copy_from_slice(&word.to_ne_bytes());
    }
}

/// Adds runs to a record as they are.
///
/// # Errors
/// The disk's.
///
/// # Safety
/// All runs are mapped from `base` on.
pub unsafe fn all<D: Disk>(
    record: &mut Record<'_, LogOf<'_, D>>,
    runs: &Runs,
    base: *const u8,
) -> Result<(), Failed> {
    for (at, len) in runs.iter() {
        let mut from = base.wrapping_add(at);
        record.run_of(at as u64, len, |part| {
            // SAFETY: mapped, as the caller promises. Runs are whole pages, and the parts of a record's buffer whole words.
            unsafe { copy_words(from, part) };
            from = from.wrapping_add(part.len());
        })?;
    }
    Ok(())
}

/// Two buffers, for pages and for what the file has of them.
pub struct Compared {
    pages: Buffer,
    file: Buffer,
}

impl Compared {
    /// Of a piece each.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Self, Failed> {
        Ok(Self { pages: Buffer::new(PIECE)?, file: Buffer::new(PIECE)? })
    }

    /// Adds those pages of runs to a record that differ from what the file has.
    ///
    /// # Errors
    /// The disk's.
    ///
    /// # Safety
    /// As for [`all`].
    pub unsafe fn add<D: Disk>(
        &mut self,
        record: &mut Record<'_, LogOf<'_, D>>,
        runs: &Runs,
        base: *const u8,
        image: &Image,
    ) -> Result<(), Failed> {
        for (start, len) in runs.iter() {
            for at in (start..start + len).step_by(PIECE) {
                let len = PIECE.min(start + len - at);
                // SAFETY: mapped, as the caller promises.
                unsafe { self.read(base, image, at, len)? };
                self.each_difference(len, |from, to, pages| {
                    record.run((at + from) as u64, pages)?;
                    debug_assert_eq!(pages.len(), to - from);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Whether a page is equal to what the file has. False also if that cannot be read.
    ///
    /// # Safety
    /// It is mapped.
    pub unsafe fn is_equal(&mut self, base: *const u8, image: &Image, at: usize) -> bool {
        // SAFETY: promised by the caller.
        unsafe { self.read(base, image, at, PAGE_BYTES) }.is_ok()
            && self.pages.bytes().get(..PAGE_BYTES) == self.file.bytes().get(..PAGE_BYTES)
    }

    unsafe fn read(
        &mut self,
        base: *const u8,
        image: &Image,
        at: usize,
        len: usize,
    ) -> Result<(), Failed> {
        let pages = self.pages.bytes().get_mut(..len).unwrap_or(&mut []);
        // SAFETY: promised by the caller.
        unsafe { copy_words(base.wrapping_add(at), pages) };
        let file = self.file.bytes().get_mut(..len).unwrap_or(&mut []);
        let read = image.read_at(file, at as u64).map_err(Failed)?;
        // Behind the end of a file that was cut off it is as if there were zeroes, which are written then.
        file.get_mut(read..).unwrap_or(&mut []).fill(0);
        Ok(())
    }

    fn each_difference(
        &mut self,
        len: usize,
        mut see: impl FnMut(usize, usize, &[u8]) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let pages = self.pages.bytes().get(..len).unwrap_or(&[]);
        let file = self.file.bytes().get(..len).unwrap_or(&[]);
        let mut begun = None;
        let both = pages.chunks(PAGE_BYTES).zip(file.chunks(PAGE_BYTES)).map(|(a, b)| a != b);
        for (number, differs) in both.chain([false]).enumerate() {
            let at = number * PAGE_BYTES;
            match (differs, begun) {
                (true, None) => begun = Some(at),
                (false, Some(from)) => {
                    see(from, at, pages.get(from..at).unwrap_or(&[]))?;
                    begun = None;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn words_are_copied_as_they_are() {
        let words: Vec<u64> =
            (0..512u64).map(|word| word.wrapping_mul(0x0101_0101_0101_0101)).collect();
        let mut bytes = vec![0; 4096];
        // SAFETY: `words` has 4096 bytes.
        unsafe { copy_words(words.as_ptr().cast(), &mut bytes) };
        let back = |bytes: &[u8]| -> Vec<u64> {
            bytes.chunks_exact(8).map(|b| u64::from_ne_bytes(b.try_into().unwrap())).collect()
        };
        assert_eq!(words, back(&bytes));
        for (from, len) in [(0, 8), (1, 7), (3, 21), (5, 0)] {
            let mut bytes = vec![0xee; len * 8 + 1];
            // SAFETY: `words` has those words.
            unsafe { copy_words(words[from..].as_ptr().cast(), &mut bytes[..len * 8]) };
            assert_eq!(back(&bytes), words[from..from + len]);
            assert_eq!(bytes.last(), Some(&0xee));
        }
    }

    #[test]
    fn pages_that_differ_are_found_in_runs() {
        let mut compared = Compared::new().unwrap();
        for page in [0, 1, 5, 15] {
            compared.pages.bytes()[page * PAGE_BYTES + 9] = 1;
        }
        let mut found = Vec::new();
        let see = |from, to, pages: &[u8]| {
            assert_eq!(pages.len(), to - from);
            found.push((from / PAGE_BYTES, to / PAGE_BYTES));
            Ok(())
        };
        compared.each_difference(PIECE, see).unwrap();
        assert_eq!(found, [(0, 2), (5, 6), (15, 16)]);
    }
}
