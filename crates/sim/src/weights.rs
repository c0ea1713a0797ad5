//! Choosing among classes whose weights change all the time: a Fenwick tree of sums.

/// Weights that can be changed, and chosen by, in a logarithm of their number.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    /// `sums[i]` is the sum of as many weights up to `i` as `i`'s lowest bit says; from 1.
    sums: Vec<f64>,
    total: f64,
}

impl Weights {
    /// `count` weights, all zero.
    pub(crate) fn new(count: usize) -> Self {
        Self { sums: vec![0.0; count.next_power_of_two() + 1], total: 0.0 }
    }

    /// Sets all of them. Sums of many small changes drift; this is how they are made exact again.
    pub(crate) fn set_all(&mut self, weights: impl Iterator<Item = f64>) {
        self.sums.fill(0.0);
        self.total = 0.0;
        for (sum, weight) in self.sums.iter_mut().skip(1).zip(weights) {
            *sum = weight;
            self.total += weight;
        }
        for at in 1..self.sums.len() {
            let parent = at + lowest_bit(at);
            if parent < self.sums.len() {
                self.sums[parent] += self.sums[at];
            }
        }
    }

    /// The sum of all.
    pub(crate) fn total(&self) -> f64 {
        self.total.max(0.0)
    }

    /// Adds to one.
    #[inline]
    pub(crate) fn add(&mut self, index: usize, change: f64) {
        self.total += change;
        let mut at = index + 1;
        while let Some(sum) = self.sums.get_mut(at) {
            *sum += change;
            at += lowest_bit(at);
        }
    }

    /// The one into whose part of the sum `point` falls; the last if it falls beyond all.
    #[inline]
    pub(crate) fn find(&self, mut point: f64) -> usize {
        let mut at = 0;
        let mut half = (self.sums.len() - 1) / 2;
        while half > 0 {
            // Either way is equally likely, so that a branch would be mispredicted half the time.
            let sum = self.sums[at + half];
            let beyond = sum <= point;
            point -= if beyond { sum } else { 0.0 };
            at += half * usize::from(beyond);
            half /= 2;
        }
        at
    }
}

fn lowest_bit(at: usize) -> usize {
    at & at.wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_fall_where_the_weights_are() {
        let mut weights = Weights::new(5);
        weights.set_all([1.0, 0.0, 2.0, 0.5, 3.0].into_iter());
        assert_eq!(weights.total(), 6.5);
        let found: Vec<usize> =
            [0.0, 0.99, 1.0, 2.99, 3.0, 3.49, 3.5, 6.49].map(|p| weights.find(p)).into();
        assert_eq!(found, [0, 0, 2, 2, 3, 3, 4, 4]);
        weights.add(1, 1.0);
        weights.add(2, -2.0);
        assert_eq!(weights.total(), 5.5);
        assert_eq!([1.5, 2.0, 2.5].map(|p| weights.find(p)), [1, 3, 4]);
        assert_eq!(weights.find(1e9), 7);
    }

    #[test]
    fn one_weight_is_enough() {
        let mut weights = Weights::new(1);
        weights.set_all([2.0].into_iter());
        assert_eq!([0.0, 1.9].map(|p| weights.find(p)), [0, 0]);
    }
}
