//! Where files of heaps lie: in memory, or on an ordinary file system.

use spandrel_console::shutdown::{Kind, Scratch};
use spandrel_measure::reserve;
use spandrel_report::numbers::bytes;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub use spandrel_console::shutdown::MEMORY;

/// Of `linux/magic.h`; `libc` does not have it.
const RAMFS_MAGIC: libc::c_long = 0x8584_58f6;

/// A directory on an ordinary file system, if there is one: what lies in memory is never written back.
pub fn find() -> Option<PathBuf> {
    let candidates = [std::env::temp_dir(), "/var/tmp".into(), ".".into()];
    candidates.into_iter().find(|directory| is_ordinary(directory))
}

/// A directory in another one, which goes with the value.
pub fn directory_in(place: &Path) -> Result<Scratch<TempDir>, String> {
    Scratch::directory_in(Kind::Bench, place).map_err(|why| format!("{}: {why}", place.display()))
}

/// Why something that takes this number of bytes in memory cannot be measured, if so.
pub fn lack(directory: &Path, needed: u64) -> Option<String> {
    let there = room(directory);
    (needed > there).then(|| {
        let [needed, there] = [needed, there].map(|number| bytes(number as f64));
        format!("left out: it takes {needed}, and {there} are available in {MEMORY}")
    })
}

fn is_ordinary(directory: &Path) -> bool {
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else { return false };
    // SAFETY: an all-zero `statfs` is a valid value.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a string with an end, and a place for the result.
    let done = unsafe { libc::statfs(path.as_ptr(), &mut stat) };
    done == 0 && ![libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&stat.f_type)
}

/// What a file in memory may still take.
fn room(directory: &Path) -> u64 {
    let memory = reserve::available_bytes().unwrap_or(u64::MAX);
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else { return memory };
    // SAFETY: an all-zero `statvfs` is a valid value.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a string with an end, and a place for the result.
    match unsafe { libc::statvfs(path.as_ptr(), &mut stat) } {
        0 => memory.min(stat.f_bavail.saturating_mul(stat.f_frsize)),
        _ => memory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_files_are_on_no_disk_to_be_full() {
        assert!(!is_ordinary(Path::new("/no/such/directory")));
        assert_eq!(room(Path::new("/proc")), 0);
        assert!(lack(Path::new("/proc"), 1 << 20).unwrap().contains("takes 1.00 MiB"));
        assert_eq!(lack(Path::new("/proc"), 0), None);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let why = directory_in(Path::new("/no/such/place")).unwrap_err();
        assert!(why.starts_with("/no/such/place: "), "{why}");
    }
}
