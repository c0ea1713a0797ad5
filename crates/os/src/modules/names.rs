//! The symbols of a loaded file by their names: its tables of hashes.

use core::ffi::{CStr, c_char};

use super::{DT_STRTAB, DT_SYMTAB, Module, Symbol};

const DT_HASH: u64 = 4;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

impl Module {
    /// Calls `see` with the number of each symbol of a name until it returns true.
    pub(super) fn each_named(&self, name: &CStr, see: &mut dyn FnMut(usize) -> bool) {
        let (Some(names), Some(symbols)) =
            (self.table::<c_char>(DT_STRTAB), self.table::<Symbol>(DT_SYMTAB))
        else {
            return;
        };
        let mut check = |index: usize| {
            // SAFETY: the tables are those of a loaded file, which the loader itself has read: the hash table names entries of the other tables only.
            let is_named =
                unsafe { CStr::from_ptr(names.add((*symbols.add(index)).name as usize)) == name };
            is_named && see(index)
        };
        // A file has either table, or both.
        match self.with_hash(gnu_hash(name)) {
            Some(mut all) => _ = all.any(&mut check),
            None => _ = self.with_old_hash(old_hash(name)).is_some_and(|mut all| all.any(check)),
        }
    }

    /// Numbers of the symbols whose names may have this hash (the layout of `DT_GNU_HASH`).
    fn with_hash(&self, hash: u32) -> Option<impl Iterator<Item = usize>> {
        let table = self.table::<u32>(DT_GNU_HASH)?;
        // SAFETY: four words of head, a filter of 64-bit words, the buckets, and a word for each
        // symbol from the first that is hashed on; the lowest bit of such a word ends a chain.
        unsafe {
            let (buckets, first, filter) = (*table, *table.add(1), *table.add(2) as usize);
            let bucket = table.add(4 + 2 * filter);
            let chain = bucket.add(buckets as usize);
            let begin = *bucket.add(hash.checked_rem(buckets)? as usize);
            let mut next = (begin >= first).then_some(begin);
            Some(core::iter::from_fn(move || {
                loop {
                    let index = next?;
                    let word = *chain.add((index - first) as usize);
                    next = (word & 1 == 0).then_some(index + 1);
                    if (word ^ hash) >> 1 == 0 {
                        return Some(index as usize);
                    }
                }
            }))
        }
    }

    /// The same of the older table (`DT_HASH`), for files that have no other one (`-Wl,--hash-style=sysv`).
    fn with_old_hash(&self, hash: u32) -> Option<impl Iterator<Item = usize>> {
        let table = self.table::<u32>(DT_HASH)?;
        // SAFETY: the number of buckets and that of symbols, the buckets, and for each symbol the next one of its chain; 0 ends a chain.
        unsafe {
            let (buckets, count) = (*table, *table.add(1));
            let bucket = table.add(2);
            let chain = bucket.add(buckets as usize);
            let mut next = *bucket.add(hash.checked_rem(buckets)? as usize);
            Some(core::iter::from_fn(move || {
                let index = (next != 0 && next < count).then_some(next)?;
                next = *chain.add(index as usize);
                Some(index as usize)
            }))
        }
    }
}

/// The hash of a name that `DT_GNU_HASH` is ordered by.
fn gnu_hash(name: &CStr) -> u32 {
    let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add(u32::from(*byte));
    name.to_bytes().iter().fold(5381, step)
}

/// The hash of a name that `DT_HASH` is ordered by (the System V ABI, "Hash Table").
fn old_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(0, |hash: u32, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(*byte));
        let high = hash & 0xf000_0000;
        (hash ^ high >> 24) & !high
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_specifications() {
        // Examples of "System V ABI" implementations and of the GNU table.
        assert_eq!([c"", c"printf", c"exit"].map(old_hash), [0, 0x0779_05a6, 0x0006_cf04]);
        assert_eq!([c"", c"printf", c"exit"].map(gnu_hash), [0x1505, 0x156b_2bb8, 0x7c96_7e3f]);
    }
}
