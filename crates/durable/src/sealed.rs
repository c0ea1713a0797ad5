//! Small files of words that another process reads while they are written: the first word says what they are, and the last one is XXH64 of the others.

use spandrel_redolog::{checksum, word};

/// The bytes of a file that begins with `magic`, as the first of the words.
pub fn sealed<const BYTES: usize>(magic: u64, words: impl Iterator<Item = u64>) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    if let Some((words, sum)) = bytes.split_last_chunk_mut() {
        *sum = checksum(magic, words).to_le_bytes();
    }
    bytes
}

/// Whether these are the bytes of such a file, whole.
pub fn is_sealed<const BYTES: usize>(magic: u64, bytes: &[u8; BYTES]) -> bool {
    let parts = bytes.split_last_chunk();
    word(bytes) == magic
        && parts.is_some_and(|(words, sum)| u64::from_le_bytes(*sum) == checksum(magic, words))
}
