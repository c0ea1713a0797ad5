//! A checksum of numbers in their order: FNV-1a over whole words.

/// The state so far.
pub struct Checksum(u64);

impl Checksum {
    /// Of nothing.
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Takes a number in.
    #[inline]
    pub fn add(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    /// Takes bytes in, eight at a time; what is left at the end counts with its length.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(last));
        self.add(bytes.len() as u64);
    }

    /// What it comes to.
    pub fn value(&self) -> u64 {
        self.0
    }
}
