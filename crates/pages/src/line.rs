//! Cache lines, and how objects are spread over them.

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// The golden ratio as a fraction of 2^32: of all its multiples the fractions are spread most evenly (Knuth, volume 3, 6.4).
pub const GOLDEN: u32 = 0x9E37_79B9;

/// A number below `count`, which is at most 65,536, such that those of neighbours lie far apart; 0 where there are no others.
#[inline]
pub const fn spread(number: usize, count: usize) -> usize {
    let fraction = (number as u32).wrapping_mul(GOLDEN) >> 16;
    (fraction as usize * count) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_far_apart_and_all_numbers_are_met() {
        for count in [1, 2, 7, 64, 127] {
            let (mut met, mut before) = ([0_u16; 127], usize::MAX);
            for number in 0..1000 {
                let place = spread(number, count);
                assert!(place < count && (count < 7 || place.abs_diff(before) > count / 4));
                met[place] += 1;
                before = place;
            }
            let most = met.iter().copied().max().unwrap_or(0);
            assert!(met[..count].iter().all(|times| 0 < *times && *times * 2 > most), "{met:?}");
        }
    }
}
