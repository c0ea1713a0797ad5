//! Limits that are checked before a file is made or opened: names that leave no room for the log's name, and file systems that cannot hold
//! a heap.
//!
//! Without these checks a heap could be made that cannot be opened the second time, when its log is needed.

pub use spandrel_os::cpath::{CPath, PATH_BYTES};
use spandrel_os::directory::{self, Allowed};

use crate::error::{Error, HUGE_PAGES};

/// The limits of the file system that a path's directory lies on.
fn allowed(path: &[u8]) -> Allowed {
    let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let directory = path.get(..end).filter(|part| !part.is_empty()).unwrap_or(b".");
    let directory = CPath::new(directory, b"");
    directory::allowed(directory.as_ref().map_or(c".", CPath::as_c))
}

/// Refuses a path that is too long for the path of its log, which has `log` bytes more.
///
/// # Errors
/// [`Error::PathTooLong`], [`Error::NameTooLong`].
pub fn check_path(path: &[u8], log: usize) -> Result<(), Error> {
    check(path, log).map(drop)
}

/// The same for a new heap: file systems that cannot hold one are refused as well.
///
/// # Errors
/// As for [`check_path`]; [`Error::FileSystem`].
pub fn check_new(path: &[u8], log: usize) -> Result<(), Error> {
    match check(path, log)? {
        Allowed { is_huge_pages: true, .. } => Err(Error::FileSystem(HUGE_PAGES)),
        _ => Ok(()),
    }
}

fn check(path: &[u8], log: usize) -> Result<Allowed, Error> {
    let most = PATH_BYTES - 1 - log;
    if path.len() > most {
        return Err(Error::PathTooLong { bytes: path.len(), most });
    }
    let allowed = allowed(path);
    let bytes = path.rsplit(|byte| *byte == b'/').next().map_or(0, <[u8]>::len);
    let most = allowed.name_bytes.saturating_sub(log);
    if bytes > most { Err(Error::NameTooLong { bytes, most }) } else { Ok(allowed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn a_path_is_whole_with_its_zero_byte_or_refused() {
        let text = |path: &[u8], suffix: &[u8]| {
            CPath::new(path, suffix).map(|path| path.as_c().to_bytes().to_vec())
        };
        assert_eq!(text(b"a.heap", b".wal"), Ok(b"a.heap.wal".to_vec()));
        assert_eq!(text(b"a\0b", b""), Err(libc::EINVAL));
        let long = vec![b'x'; PATH_BYTES - 5];
        assert_eq!(text(&long, b".wal").map(|path| path.len()), Ok(PATH_BYTES - 1));
        assert_eq!(text(&long, b".wall"), Err(libc::ENAMETOOLONG));
    }

    #[test]
    fn names_and_paths_leave_room_for_the_logs() {
        let name = [b'x'; 255];
        let most = allowed(b"/tmp/x").name_bytes;
        assert_eq!(check_path(&name[..251.min(most - 4)], 4), Ok(()));
        let refused = check_path(&[b"/tmp/", &name[..252]].concat(), 4);
        assert_eq!(refused, Err(Error::NameTooLong { bytes: 252, most: most - 4 }));
        let long = vec![b'/'; 4092];
        assert_eq!(check_path(&long, 4), Err(Error::PathTooLong { bytes: 4092, most: 4091 }));
        assert_eq!(check_path(&long[..4091], 4), Ok(()));
    }
}
