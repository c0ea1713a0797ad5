//! What the file system of a directory allows of its files.

use core::ffi::CStr;

use rustix::fs;

/// The longest name, where the file system does not tell.
const NAME_BYTES: usize = 255;
/// `linux/magic.h`.
const HUGETLBFS: u64 = 0x9584_58f6;

/// What is known of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// Bytes of the longest name of a file.
    pub name_bytes: usize,
    /// It lies on huge pages (hugetlbfs), whose files can be mapped and not written.
    pub is_huge_pages: bool,
}

/// Asks the kernel; what is usual where it does not answer.
pub fn allowed(directory: &CStr) -> Allowed {
    fs::statfs(directory).map_or(
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
