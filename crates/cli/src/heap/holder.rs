//! Which process has a heap's file open: what the kernel tells of its lock.

use spandrel_os::holder;
use std::ffi::CString;
use std::fs::{Metadata, read_dir, read_to_string};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The process that has locked a file, in words; `another process` where the kernel does not say which.
pub fn of(path: &Path) -> String {
    let process = by_descriptors(path).or_else(|| by_list(path));
    let Some(process) = process else { return "another process".into() };
    match read_to_string(format!("/proc/{process}/comm")) {
        Ok(name) => format!("process {process} ({})", name.trim_end()),
        Err(_) => format!("process {process}"),
    }
}

/// As the kernel lists locks: those of any user, but not those that a child has inherited from a process that has ended.
fn by_list(path: &Path) -> Option<u32> {
    holder::of(&CString::new(path.as_os_str().as_bytes()).ok()?)
}

/// As the descriptors of all processes say that may be looked at, also of those that have inherited one.
fn by_descriptors(path: &Path) -> Option<u32> {
    let file = path.symlink_metadata().ok()?;
    let processes = read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.find(|process| has_locked(*process, &file))
}

fn has_locked(process: u32, file: &Metadata) -> bool {
    let Ok(descriptors) = read_dir(format!("/proc/{process}/fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let is_file = descriptor
            .path()
            .metadata()
            .is_ok_and(|open| (open.dev(), open.ino()) == (file.dev(), file.ino()));
        let number = descriptor.file_name();
        let about = || read_to_string(format!("/proc/{process}/fdinfo/{}", number.display()));
        is_file && about().is_ok_and(|about| about.lines().any(is_lock))
    })
}

/// Whether a line such as `lock: 1: FLOCK  ADVISORY  WRITE 31245 00:1a:5678 0 EOF` is about a lock of the whole file.
fn is_lock(line: &str) -> bool {
    line.starts_with("lock:") && line.split_whitespace().any(|word| word == "FLOCK")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn lines_of_locks() {
        assert!(is_lock("lock:\t1: FLOCK  ADVISORY  WRITE 31245 00:1a:5678 0 EOF"));
        assert!(is_lock("lock:\t1: FLOCK  ADVISORY  WRITE 0 00:1a:5678 0 EOF"));
        assert!(!is_lock("lock:\t1: OFDLCK ADVISORY  WRITE -1 00:1a:5678 4 5"));
        assert!(!is_lock("flags:\t0100002"));
    }

    #[test]
    fn the_process_that_has_a_lock_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(of(file.path()), "another process");
        // SAFETY: a file that is open.
        assert_eq!(unsafe { libc::flock(file.as_file().as_raw_fd(), libc::LOCK_EX) }, 0);
        let this = format!("process {} (", std::process::id());
        assert!(of(file.path()).starts_with(&this), "{}", of(file.path()));
    }
}
