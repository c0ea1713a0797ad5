//! Which file an address lies in, and which symbol of it.

use std::ffi::{CStr, c_char};
use std::fmt;

/// An address within a loaded file. The loader is asked for it: no memory is allocated.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    file: &'static CStr,
    offset: usize,
    /// The exported symbol that the address lies in, and how far behind its beginning.
    symbol: Option<(&'static CStr, usize)>,
}

/// # Safety
/// Null, or a string of a loaded file.
unsafe fn text(at: *const c_char) -> Option<&'static CStr> {
    // SAFETY: promised by the caller.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) })
}

impl Place {
    /// `None`: no file that the loader knows has the address. The file stays loaded as long as the value is used.
    pub fn of(address: usize) -> Option<Self> {
        // SAFETY: all zeroes are a record of nothing, which the call fills in.
        let (known, info) = unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            let at = std::ptr::with_exposed_provenance(address);
            (libc::dladdr(at, &raw mut info) != 0, info)
        };
        if !known {
            return None;
        }
        // SAFETY: strings of the loader.
        let (file, symbol) = unsafe { (text(info.dli_fname), text(info.dli_sname)) };
        let behind = address.wrapping_sub(info.dli_saddr as usize);
        Some(Self {
            file: file.unwrap_or(c"a file"),
            offset: address.wrapping_sub(info.dli_fbase as usize),
            symbol: symbol.map(|name| (name, behind)),
        })
    }

    /// The file's name, as the loader has it.
    pub fn file(&self) -> impl fmt::Display {
        Shown(self.file)
    }
}

/// A name's bytes, as far as they are UTF-8.
struct Shown(&'static CStr);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.to_bytes().utf8_chunks().try_for_each(|part| f.write_str(part.valid()))
    }
}

/// `file+0x1234, symbol+0x10`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", Shown(self.file), self.offset)?;
        match self.symbol {
            None => Ok(()),
            Some((name, 0)) => write!(f, ", {}", Shown(name)),
            Some((name, behind)) => write!(f, ", {}+{behind:#x}", Shown(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn a_function_of_a_library_is_named_and_the_heap_is_no_file() {
        let at = libc::qsort as *const () as usize;
        let shown = Place::of(at).unwrap().to_string();
        assert!(shown.contains("libc.so.6+0x") && shown.ends_with(", qsort"), "{shown}");
        let shown = Place::of(at + 3).unwrap().to_string();
        assert!(shown.ends_with(", qsort+0x3"), "{shown}");
        let heap = Box::new(1u64);
        assert!(Place::of(&raw const *heap as usize).is_none());
        assert!(Place::of(0).is_none());
    }
}
