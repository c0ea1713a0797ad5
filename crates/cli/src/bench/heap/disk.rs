//! Where files of heaps lie: in memory, or on an ordinary file system.

use crate::bench::reserve;
use spandrel_report::numbers::bytes;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The directory for files in memory.
pub const MEMORY: &str = "/dev/shm";
/// What the name of a directory begins with; the number of the process follows.
const PREFIX: &str = "spandrel-bench-";

/// Of `linux/magic.h`; `libc` does not have it.
const RAMFS_MAGIC: libc::c_long = 0x8584_58f6;

/// A directory on an ordinary file system, if there is one: what lies in memory is never written back.
pub fn find() -> Option<PathBuf> {
    let candidates = [std::env::temp_dir(), "/var/tmp".into(), ".".into()];
    candidates.into_iter().find(|directory| is_ordinary(directory))
}

/// A directory of this process that is removed with the value, in another one. What processes that were killed have left there is removed as
/// well: it may be gigabytes of memory.
pub fn directory_in(place: &Path) -> Result<TempDir, String> {
    let why = |why: std::io::Error| format!("{}: {why}", place.display());
    for entry in std::fs::read_dir(place).map_err(why)?.flatten() {
        let owner = entry.file_name().to_str().and_then(owner);
        if owner.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let prefix = format!("{PREFIX}{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir_in(place).map_err(why)
}

/// Whose directory has such a name.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

/// Why something that takes so many bytes in memory cannot be measured, if so.
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
    fn what_the_dead_have_left_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let of = |process: &str| place.path().join(format!("{PREFIX}{process}-x"));
        // No process has a number as large as that (PID_MAX_LIMIT is 2^22).
        let (dead, alive, other) = (of("99999999"), of("1"), of("x"));
        for path in [&dead, &alive, &other] {
            std::fs::create_dir(path).unwrap();
        }
        std::fs::write(dead.join("heap"), "").unwrap();
        let own = directory_in(place.path()).unwrap();
        assert!(own.path().exists() && alive.exists() && other.exists() && !dead.exists());
        assert!(
            directory_in(Path::new("/no/such/place")).unwrap_err().starts_with("/no/such/place: ")
        );
    }
}
