//! Values that nothing else shares a cache line with.

use core::ops::Deref;

/// A value on cache lines of its own: what one thread stores to it takes nothing that another thread reads from that one's cache.
///
/// Two lines of 64 bytes, as processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    /// The value, on lines of its own.
    pub const fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_no_line() {
        let both = [CachePadded::new(1_u8), CachePadded::new(2)];
        let [one, two] = both.each_ref().map(|padded| &raw const **padded as usize);
        assert!(one % 128 == 0 && two - one == 128 && *both[0] + *both[1] == 3);
    }
}
