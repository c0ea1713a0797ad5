//! Cache lines: what the processor writes back as a whole.

use core::ops::Range;

/// Bytes of a cache line on every x86-64 processor. Stores to one line become durable in the order in which they
/// were made; stores to two lines in any order.
pub const LINE_BYTES: usize = 64;

/// Bytes of a word: an aligned one is never torn.
pub const WORD_BYTES: usize = 8;

/// The numbers of the lines that `len` bytes from `at` on touch.
pub fn lines(at: usize, len: usize) -> Range<usize> {
    match len.checked_sub(1) {
        Some(last) => at / LINE_BYTES..(at + last) / LINE_BYTES + 1,
        None => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_lie_in_lines() {
        assert_eq!(lines(0, 1), 0..1);
        assert_eq!(lines(63, 2), 0..2);
        assert_eq!(lines(64, 64), 1..2);
        assert_eq!(lines(70, 0).count(), 0);
        assert_eq!(lines(1, 128), 0..3);
    }
}
