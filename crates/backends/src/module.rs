//! The files that a process has loaded, by their addresses.

use core::ffi::{c_int, c_void};
use core::ops::Range;

/// The addresses of the file that an address of code or data lies in; empty: it is no file's that
/// the loader knows. Some hundred nanoseconds; `dladdr` looks at every symbol of the file.
pub(crate) fn holding(address: usize) -> Range<usize> {
    let mut search = Search { address, found: 0..0 };
    // SAFETY: `look` takes what it is called with here, and the loader's list lasts as long as the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

struct Search {
    address: usize,
    found: Range<usize>,
}

/// Ends the walk over the files, with 1, at the one that is searched for.
///
/// # Safety
/// `info` describes a file and `search` is a [`Search`].
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: what the caller promises; a file has as many headers as it says.
    let (base, headers, search) = unsafe {
        let info = &*info;
        let headers = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (info.dlpi_addr as usize, headers, &mut *search.cast::<Search>())
    };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(|header| {
        let first = base.wrapping_add(header.p_vaddr as usize);
        first..first.wrapping_add(header.p_memsz as usize)
    });
    if !loaded.clone().any(|part| part.contains(&search.address)) {
        return 0;
    }
    // Segments lie in order of address.
    search.found = loaded.reduce(|all, part| all.start..part.end).unwrap_or(0..0);
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_data_are_of_the_program_and_the_heap_is_nobodys() {
        extern crate std;
        static DATA: [u8; 8] = [1; 8];
        let program = holding(holding as *const () as usize);
        assert!(
            program.contains(&(look as *const () as usize))
                && program.contains(&DATA.as_ptr().addr())
        );
        let libc = holding(libc::malloc as *const () as usize);
        assert!(!libc.is_empty() && libc != program);
        let heap = std::boxed::Box::new(1);
        assert!(holding((&raw const *heap).addr()).is_empty() && holding(0).is_empty());
    }
}
