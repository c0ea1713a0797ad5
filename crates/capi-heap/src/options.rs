//! `struct spandrel_heap_options`.

use core::ffi::c_int;

use spandrel_pheap::{Choice, Error, Options};

use crate::trace::SpandrelHeapRootType;

/// As in the header. 0 selects the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpandrelHeapOptions {
    struct_size: usize,
    size: usize,
    limit: usize,
    layout: u64,
    fixed: c_int,
    medium: c_int,
    pub types: *const SpandrelHeapRootType,
    pub type_count: usize,
    read_only: c_int,
    sums: c_int,
}

/// The defaults.
const NOTHING: SpandrelHeapOptions = SpandrelHeapOptions {
    struct_size: 0,
    size: 0,
    limit: 0,
    layout: 0,
    fixed: 0,
    medium: 0,
    types: core::ptr::null(),
    type_count: 0,
    read_only: 0,
    sums: 0,
};

/// The options of a caller, which may have been compiled with an older header or a newer one: fields that this library does not know must
/// be zero.
///
/// # Safety
/// Null, or a structure of as many bytes as its first word says.
pub unsafe fn read(given: *const SpandrelHeapOptions) -> Result<SpandrelHeapOptions, Error> {
    let wrong = Error::System(libc::EINVAL);
    let mut known = NOTHING;
    if !given.is_null() {
        // SAFETY: promised by the caller.
        let bytes = unsafe { (*given).struct_size };
        if bytes < size_of::<usize>() {
            return Err(wrong);
        }
        // SAFETY: promised by the caller.
        let given = unsafe { core::slice::from_raw_parts(given.cast::<u8>(), bytes) };
        let both = bytes.min(size_of::<SpandrelHeapOptions>());
        if given.iter().skip(both).any(|byte| *byte != 0) {
            return Err(wrong);
        }
        // SAFETY: numbers and a pointer, and `both` bytes of each.
        unsafe {
            let to = (&raw mut known).cast::<u8>();
            core::ptr::copy_nonoverlapping(given.as_ptr(), to, both);
        }
    }
    Ok(known)
}

impl SpandrelHeapOptions {
    /// The options as the heap's crate takes them, without the types.
    pub fn options<'a>(&self) -> Result<Options<'a>, Error> {
        let choice = match self.medium {
            0 => Choice::Auto,
            1 => Choice::Mapped,
            2 => Choice::Logged,
            _ => return Err(Error::System(libc::EINVAL)),
        };
        let mut options = Options::new().medium(choice).layout(self.layout);
        if self.size != 0 {
            options = options.size(self.size);
        }
        if self.limit != 0 {
            options = options.limit(self.limit);
        }
        if self.fixed != 0 {
            options = options.fixed();
        }
        if self.sums != 0 {
            options = options.sums(self.sums > 0);
        }
        Ok(if self.read_only != 0 { options.read_only() } else { options })
    }
}
