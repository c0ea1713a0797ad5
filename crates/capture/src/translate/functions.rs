//! Functions that are not translated, functions that stand for others, functions that are native where they store much, and functions whose calls are remembered.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;

use spandrel_os::modules::{LIBC, Module};

use crate::Refused;

/// Functions of each kind, at most: ten allocators with all functions and operators.
const MOST: usize = 320;
/// Functions that store much, at most: each in some versions.
const MOST_LONG: usize = 32;

/// Functions of the C library that store at their first argument as many bytes as their third one says. Many bytes are one note then, and not one for each instruction that stores.
const LONG: [&CStr; 8] = [
    c"memcpy",
    c"memmove",
    c"mempcpy",
    c"memset",
    c"__memcpy_chk",
    c"__memmove_chk",
    c"__mempcpy_chk",
    c"__memset_chk",
];

/// See the head of this file. The lists are looked through once for each block that is translated.
pub struct Functions {
    native: [u64; MOST],
    native_count: usize,
    long: [u64; MOST_LONG],
    long_count: usize,
    /// The program's function, and the one in its place.
    replaced: [(u64, u64); MOST],
    replaced_count: usize,
    /// The function, and its kind.
    remembered: [(u64, u32); MOST],
    remembered_count: usize,
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
            long: [0; MOST_LONG],
            long_count: 0,
            replaced: [(0, 0); MOST],
            replaced_count: 0,
            remembered: [(0, 0); MOST],
            remembered_count: 0,
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

    /// Finds the functions of the C library that are native where they store much ([`LONG`]): they call nothing. Of too many versions the last ones are translated.
    pub fn find_long(&mut self) {
        let Some(libc) = Module::named(LIBC) else { return };
        let mut add = |function: NonNull<c_void>| {
            if let Some(place) = self.long.get_mut(self.long_count) {
                *place = function.as_ptr() as u64;
                self.long_count += 1;
            }
        };
        LONG.iter().for_each(|name| libc.each_function(name, &mut add));
    }

    /// No function is native where it stores much.
    #[cfg(test)]
    pub fn forget_long(&mut self) {
        self.long_count = 0;
    }

    /// Whether a function is native where it stores much.
    pub fn is_long(&self, function: u64) -> bool {
        self.long.iter().take(self.long_count).any(|long| *long == function)
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

    /// Has the calls of each function be remembered, with a number for its kind.
    ///
    /// # Errors
    /// [`Refused::Size`]: there are too many.
    pub fn remember(&mut self, functions: &[(usize, u32)]) -> Result<(), Refused> {
        let end = self.remembered_count + functions.len();
        let places = self.remembered.get_mut(self.remembered_count..end).ok_or(Refused::Size)?;
        for (place, (function, kind)) in places.iter_mut().zip(functions) {
            *place = (*function as u64, *kind);
        }
        self.remembered_count = end;
        Ok(())
    }

    /// The kind of a function whose calls are remembered.
    pub fn kind_of(&self, function: u64) -> Option<u32> {
        let known = self.remembered.iter().take(self.remembered_count);
        known.into_iter().find(|(at, _)| *at == function).map(|(_, kind)| *kind)
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
        let kinds = all.map(|function| (function, 3));
        assert_eq!(functions.remember(&kinds), Err(Refused::Size));
        assert_eq!(functions.kind_of(1000), None);
        functions.remember(&kinds[..MOST]).unwrap();
        assert_eq!([1000, 1001, 0].map(|at| functions.kind_of(at)), [Some(3), Some(3), None]);
    }
}
