//! Keys, values, and which key a request is for.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// Bytes of a key, as `db_bench` has them.
pub const KEY_BYTES: usize = 16;
/// A key: 16 digits.
pub type Key = [u8; KEY_BYTES];

/// The key of a number.
pub fn key(number: u64) -> Key {
    let mut key = [b'0'; KEY_BYTES];
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// The number of a key; `None`: it is none of ours.
pub fn number(key: &[u8]) -> Option<u64> {
    std::str::from_utf8(key).ok()?.parse().ok()
}

/// Values of one length: bytes that do not compress, behind the number of the key.
pub struct Values {
    bytes: Vec<u8>,
}

impl Values {
    /// Values of `len` bytes, 8 at least.
    pub fn new(len: usize) -> Self {
        let mut bytes = vec![0; len.max(8)];
        SmallRng::seed_from_u64(1).fill(&mut bytes[..]);
        Self { bytes }
    }

    /// The value of a key.
    pub fn of(&mut self, number: u64) -> &[u8] {
        self.bytes[..8].copy_from_slice(&number.to_le_bytes());
        &self.bytes
    }

    /// Whether this is the value of a key.
    pub fn is_of(&self, number: u64, value: &[u8]) -> bool {
        value.len() == self.bytes.len() && value[..8] == number.to_le_bytes()
    }
}

/// How requests are spread over keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// One after the other.
    Rising,
    /// Each key is as likely as any other.
    Uniform,
    /// Zipf's law with exponent .99, as YCSB has it; the likely keys lie anywhere.
    Zipf,
}

/// A request: of which key, and whether it changes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request(u32);

const UPDATES: u32 = 1 << 31;

impl Request {
    /// The key's number.
    pub fn key(self) -> u64 {
        u64::from(self.0 & !UPDATES)
    }

    /// Whether it is a put.
    pub fn is_update(self) -> bool {
        self.0 & UPDATES != 0
    }
}

/// `count` requests of one of `threads` threads for `keys` keys, of which `updates` in a hundred are puts.
pub fn requests(
    spread: Spread,
    (thread, threads): (usize, usize),
    keys: u32,
    count: usize,
    updates: u32,
) -> Vec<Request> {
    let mut random = SmallRng::seed_from_u64(7 + thread as u64);
    let zipf = Zipf::new(keys.max(1) as f64, 0.99).ok();
    let mut at = |turn: usize| match (spread, &zipf) {
        // Each thread has a part of its own.
        (Spread::Rising, _) | (_, None) => (turn * threads + thread) as u32 % keys.max(1),
        (Spread::Uniform, _) => random.random_range(0..keys),
        (Spread::Zipf, Some(zipf)) => {
            let rank = zipf.sample(&mut random) as u64;
            // Scrambled by Fibonacci hashing.
            (rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 % keys
        }
    };
    let keys_of: Vec<u32> = (0..count).map(&mut at).collect();
    let mut random = SmallRng::seed_from_u64(1000 + thread as u64);
    let update = |key: u32| {
        let is_update = random.random_range(0..100) < updates;
        Request(key | if is_update { UPDATES } else { 0 })
    };
    keys_of.into_iter().map(update).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_as_their_numbers() {
        assert_eq!(&key(1234), b"0000000000001234");
        assert!(key(9) < key(10) && number(&key(77)) == Some(77) && number(b"x").is_none());
    }

    #[test]
    fn values_know_their_key() {
        let mut values = Values::new(100);
        let value = values.of(5).to_vec();
        assert!(values.is_of(5, &value) && !values.is_of(6, &value) && !values.is_of(5, b"short"));
        assert_eq!(Values::new(1).of(3).len(), 8);
    }

    #[test]
    fn requests_are_as_they_were_ordered() {
        let of = |spread, updates| requests(spread, (0, 1), 1000, 100_000, updates);
        let part = |all: &[Request]| {
            all.iter().filter(|one| one.is_update()).count() as f64 / all.len() as f64
        };
        assert!((part(&of(Spread::Uniform, 10)) - 0.1).abs() < 0.01);
        assert!(of(Spread::Zipf, 100).iter().all(|one| one.is_update() && one.key() < 1000));
        let most = |all: &[Request]| {
            let mut counts = vec![0; 1000];
            all.iter().for_each(|one| counts[one.key() as usize] += 1);
            counts.into_iter().max().unwrap_or(0)
        };
        // The first rank of 1000 keys has about an eighth.
        assert!(most(&of(Spread::Zipf, 0)) > 10_000);
        assert!(most(&of(Spread::Uniform, 0)) < 200);
        let two = requests(Spread::Rising, (1, 2), 10, 5, 100);
        assert_eq!(two.iter().map(|one| one.key()).collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
    }
}
