//! Bytes of zeroes, which need not be written: a new file has zeroes.

/// Bytes that are compared at a time, and written.
pub const LEN: usize = 64 << 10;
static ZEROES: [u8; LEN] = [0; LEN];

/// That number of zeroes, [`LEN`] at most.
pub fn of(len: usize) -> &'static [u8] {
    ZEROES.get(..len).unwrap_or(&ZEROES)
}

/// Whether all of these bytes are zero: by comparisons of memory, as a log has many.
pub fn are(bytes: &[u8]) -> bool {
    bytes.chunks(LEN).all(|part| part == of(part.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn one_byte_anywhere_is_seen() {
        let mut bytes = vec![0; 2 * LEN + 5];
        assert!(are(&bytes) && are(&[]));
        for at in [0, LEN - 1, LEN, 2 * LEN + 4] {
            bytes[at] = 1;
            assert!(!are(&bytes));
            bytes[at] = 0;
        }
        assert_eq!((of(7).len(), of(usize::MAX).len()), (7, LEN));
    }
}
