//! What the file system of a directory allows of its files.

use core::ffi::CStr;

use rustix::fs;

use crate::filesystem::HUGETLBFS;
use crate::image::retry;

/// The longest name of a file, where the file system does not report one (`NAME_MAX`).
const NAME_BYTES: usize = 255;

/// The limits of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// Bytes of the longest name of a file.
    pub name_bytes: usize,
    /// The directory lies on hugetlbfs, whose files can be mapped but not written.
    pub is_huge_pages: bool,
}

/// The limits of a directory, as the kernel reports them; the usual ones if it reports an error.
pub fn allowed(directory: &CStr) -> Allowed {
    retry(|| fs::statfs(directory)).map_or(
        Allowed { name_bytes: NAME_BYTES, is_huge_pages: false },
        |found| {
            let most = usize::try_from(found.f_namelen).ok().filter(|most| *most > 0);
            Allowed {
                name_bytes: most.unwrap_or(NAME_BYTES),
                is_huge_pages: found.f_type as u64 == HUGETLBFS,
            }
        },
    )
}

/// Writes the absolute path of the current directory, without a zero byte. Returns its length; `None`: it has none that fits.
pub fn current(into: &mut [u8]) -> Option<usize> {
    let errno = crate::env::errno();
    // SAFETY: the kernel writes no more bytes than there are.
    let len = unsafe { libc::syscall(libc::SYS_getcwd, into.as_mut_ptr(), into.len()) };
    crate::env::set_errno(errno);
    let len = usize::try_from(len).ok()?.checked_sub(1)?;
    // A directory outside of the process's root has no path.
    into.first().filter(|first| **first == b'/').map(|_| len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_and_one_that_is_not_there() {
        let here = allowed(c"/");
        assert!(here.name_bytes >= 143 && !here.is_huge_pages, "{here:?}");
        let nowhere = Allowed { name_bytes: 255, is_huge_pages: false };
        assert_eq!(allowed(c"/no such directory"), nowhere);
    }
}
