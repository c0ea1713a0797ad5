//! Keys of hash tables.

use crate::trace::{Trace, mix};

/// A key of a hash table. `#[derive(Key)]` implements it for a structure of keys.
///
/// The table stores the code of a key, so that the next program must compute the same one: `core::hash::Hash` does not promise that.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key of a hash table in a heap",
    note = "keys are integers, arrays, tuples, `Str<N>` for text of up to N bytes, and structures with `#[derive(Clone, Copy, PartialEq, Eq, Trace, Key)]`"
)]
pub trait Key: Trace + Copy + Eq {
    /// The hash code: equal for equal keys, and rarely equal for others.
    fn code(&self) -> u64;

    /// The hash code of a sequence of keys.
    fn code_of(all: &[Self]) -> u64 {
        all.iter().fold(mix(all.len() as u64, 2), |code, key| mix(code, key.code()))
    }
}

macro_rules! integers {
    ($($number:ty),*) => { $(
        impl Key for $number {
            fn code(&self) -> u64 {
                mix(*self as u64, 1)
            }
        }
    )* };
}

integers!(u16, u32, u64, usize, i8, i16, i32, i64, isize);

impl Key for u8 {
    fn code(&self) -> u64 {
        mix(u64::from(*self), 1)
    }

    fn code_of(all: &[u8]) -> u64 {
        // FNV-1a, mixed: the low bits choose the slot, and those of FNV-1a alone are weak.
        let fnv = |code: u64, byte: &u8| (code ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        mix(all.iter().fold(0xcbf2_9ce4_8422_2325, fnv), all.len() as u64)
    }
}

impl Key for u128 {
    fn code(&self) -> u64 {
        mix(mix(*self as u64, 1), (*self >> 64) as u64)
    }
}

impl Key for i128 {
    fn code(&self) -> u64 {
        (*self as u128).code()
    }
}

impl<K: Key, const N: usize> Key for [K; N] {
    fn code(&self) -> u64 {
        K::code_of(self)
    }
}

macro_rules! tuples {
    ($($name:ident $at:tt),*) => {
        impl<$($name: Key),*> Key for ($($name,)*) {
            fn code(&self) -> u64 {
                let code = 3;
                $( let code = mix(code, self.$at.code()); )*
                code
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
