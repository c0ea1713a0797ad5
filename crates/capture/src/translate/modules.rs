//! Where the code lies that was translated: whether a mapping that goes has some of it. And whether a library has gone.

use core::ffi::{c_int, c_void};

/// Where the code of the program itself begins to run, which is not near the code of libraries. Where the loader was run as a command, that of the loader.
pub fn entry() -> u64 {
    // SAFETY: a look-up in what the kernel has given to the process.
    unsafe { libc::getauxval(libc::AT_ENTRY) }
}

/// Times that the program has unloaded a library.
pub fn unloaded() -> u64 {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        bytes: usize,
        into: *mut c_void,
    ) -> c_int {
        // SAFETY: called with a record that has that number of bytes, and with the pointer that is given below.
        unsafe {
            if bytes >= size_of::<libc::dl_phdr_info>() {
                *into.cast::<u64>() = (*info).dlpi_subs;
            }
        }
        1
    }
    let mut count = 0u64;
    // SAFETY: the callback is called with the count.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}

/// The executable part of a module that has an address; `None`: none has it, or it may be written to.
pub fn code_around(at: u64) -> Option<(u64, u64)> {
    struct Search {
        at: u64,
        found: Option<(u64, u64)>,
    }
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, into: *mut c_void) -> c_int {
        // SAFETY: called with a record, and with the pointer that is given below.
        let (info, search) = unsafe { (&*info, &mut *into.cast::<Search>()) };
        for number in 0..info.dlpi_phnum {
            // SAFETY: the record has that number of headers.
            let header = unsafe { &*info.dlpi_phdr.add(number.into()) };
            let is_code = header.p_type == libc::PT_LOAD
                && header.p_flags & (libc::PF_X | libc::PF_W) == libc::PF_X;
            let from = info.dlpi_addr.wrapping_add(header.p_vaddr);
            let end = from.wrapping_add(header.p_memsz);
            if is_code && (from..end).contains(&search.at) {
                search.found = Some((from, end));
            }
        }
        c_int::from(search.found.is_some())
    }
    let mut search = Search { at, found: None };
    // SAFETY: the callback is called with the search.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// Ranges that are told from each other: programs have as many libraries whose code is run by commands.
const RANGES: usize = 64;

/// Ranges of addresses.
#[derive(Clone, Copy, Debug)]
pub struct Ranges([(u64, u64); RANGES]);

impl Default for Ranges {
    fn default() -> Self {
        Self([(0, 0); RANGES])
    }
}

impl Ranges {
    /// There is code from an address on up to another one.
    pub fn add(&mut self, (from, end): (u64, u64)) {
        let has = |range: &(u64, u64)| range.1 == 0 || from >= range.0 && end <= range.1;
        // Of too many ranges the last one is that of all the rest.
        let place = self.0.iter().position(has).unwrap_or(RANGES - 1);
        if let Some(range) = self.0.get_mut(place) {
            *range = match range.1 {
                0 => (from, end),
                _ => (range.0.min(from), range.1.max(end)),
            };
        }
    }

    /// Whether some of these bytes lie in a range.
    pub fn touch(&self, at: u64, bytes: u64) -> bool {
        let end = at.saturating_add(bytes);
        self.0.iter().any(|(from, to)| at < *to && *from < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_in_its_range() {
        let mut ranges = Ranges::default();
        let from = |number: u64| number << 30;
        for number in 1..200 {
            ranges.add((from(number), from(number) + 8192));
            ranges.add((from(number), from(number) + 8192));
        }
        assert!((1..200).all(|number| ranges.touch(from(number) + 4096, 4096)));
        assert!((2..RANGES as u64).all(|number| !ranges.touch(from(number) - 4096, 4096)));
        assert!(!ranges.touch(from(1) + 8192, 1 << 20));
        assert!(!ranges.touch(4096, 4096) && !Ranges::default().touch(0, u64::MAX));
    }
}
