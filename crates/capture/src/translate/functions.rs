//! Functions that are not translated, and functions that stand for others.

use crate::Refused;

/// Functions of each kind, at most: ten allocators with all functions and operators.
const MOST: usize = 320;

/// See the head of this file. Both lists are looked through once for each block that is translated.
pub struct Functions {
    native: [u64; MOST],
    native_count: usize,
    /// The program's function, and the one in its place.
    replaced: [(u64, u64); MOST],
    replaced_count: usize,
}

impl Functions {
    /// These are native, and none is replaced.
    ///
    /// # Errors
    /// [`Refused::Size`]: there are too many.
    pub fn new(native: &[usize]) -> Result<Self, Refused> {
        let mut functions = Self {
            native: [0; MOST],
            native_count: native.len(),
            replaced: [(0, 0); MOST],
            replaced_count: 0,
        };
        let places = functions.native.get_mut(..native.len()).ok_or(Refused::Size)?;
        places.iter_mut().zip(native).for_each(|(place, function)| *place = *function as u64);
        Ok(functions)
    }

    /// A native one more.
    ///
    /// # Errors
    /// [`Refused::Size`]: there are too many.
    pub fn add_native(&mut self, function: usize) -> Result<(), Refused> {
        *self.native.get_mut(self.native_count).ok_or(Refused::Size)? = function as u64;
        self.native_count += 1;
        Ok(())
    }

    /// Has the second function of each pair stand for the first one. Of several pairs with the same first one the earliest counts.
    ///
    /// # Errors
    /// [`Refused::Size`]: there are too many.
    pub fn replace(&mut self, pairs: &[(usize, usize)]) -> Result<(), Refused> {
        let end = self.replaced_count + pairs.len();
        let places = self.replaced.get_mut(self.replaced_count..end).ok_or(Refused::Size)?;
        for (place, (from, to)) in places.iter_mut().zip(pairs) {
            *place = (*from as u64, *to as u64);
        }
        self.replaced_count = end;
        Ok(())
    }

    /// Whether a function is native.
    pub fn is_native(&self, function: u64) -> bool {
        self.native.iter().take(self.native_count).any(|native| *native == function)
    }

    /// What runs where code gets to an address.
    pub fn instead_of(&self, at: u64) -> u64 {
        let known = self.replaced.iter().take(self.replaced_count);
        known.into_iter().find(|(from, _)| *from == at).map_or(at, |(_, to)| *to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_functions_are_refused_and_none_is_dropped() {
        let all: [usize; MOST + 1] = core::array::from_fn(|number| 1000 + number);
        assert_eq!(Functions::new(&all).err(), Some(Refused::Size));
        let mut functions = Functions::new(&all[..MOST]).unwrap();
        assert!(all[..MOST].iter().all(|function| functions.is_native(*function as u64)));
        assert!(!functions.is_native(0) && !functions.is_native(all[MOST] as u64));
        assert_eq!(functions.add_native(1), Err(Refused::Size));
        let pairs = all.map(|function| (function, function + 5000));
        assert_eq!(functions.replace(&pairs), Err(Refused::Size));
        assert_eq!(functions.instead_of(1000), 1000);
        functions.replace(&pairs[..MOST - 1]).unwrap();
        functions.replace(&[(7, 8)]).unwrap();
        assert_eq!([1000, 1001, 7, 0].map(|at| functions.instead_of(at)), [6000, 6001, 8, 0]);
        assert_eq!(functions.replace(&[(9, 10)]), Err(Refused::Size));
    }
}
