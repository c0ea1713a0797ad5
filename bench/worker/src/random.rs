//! A small deterministic generator: the same requests in the same order for
//! every allocator, and no library code in the timed loop.

/// xorshift64* (Vigna).
pub struct Random(u64);

impl Random {
    /// A generator; equal seeds give equal sequences.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// A size in `[low, high]`, every power of two equally likely: programs ask
    /// for many small objects and few large ones.
    pub fn size(&mut self, low: usize, high: usize) -> usize {
        let first = low.ilog2();
        let last = high.ilog2();
        let exponent = first + self.below((last - first + 1) as usize) as u32;
        let base = 1usize << exponent;
        (base + self.below(base)).clamp(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn repeats_and_stays_in_bounds() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        for _ in 0..10_000 {
            assert_eq!(a.next(), b.next());
            assert!(a.below(10) < 10);
            b.below(10);
            let size = a.size(16, 1 << 20);
            assert_eq!(size, b.size(16, 1 << 20));
            assert!((16..=1 << 20).contains(&size));
        }
    }
}
