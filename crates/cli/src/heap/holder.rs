//! Who has a heap's file open: what the kernel tells of its lock.

use std::fs::{read_to_string, symlink_metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The process that has locked a file, in words; `somebody` where that cannot be told.
pub fn of(path: &Path) -> String {
    let holder = symlink_metadata(path).ok().and_then(|file| {
        let locks = read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| pid(line, file.dev(), file.ino()))
    });
    let Some(pid) = holder else { return "somebody".into() };
    match read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim_end()),
        Err(_) => format!("process {pid}"),
    }
}

/// The process of a line such as `4: FLOCK  ADVISORY  WRITE 31245 00:1a:5678 0 EOF`, if it is about that file.
fn pid(line: &str, device: u64, inode: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let mut words = words.skip(2);
    let pid = words.next()?.parse().ok().filter(|pid| *pid != 0)?;
    let file = format!("{:02x}:{:02x}:{inode}", libc::major(device), libc::minor(device));
    (words.next()? == file).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn lines_of_locks() {
        let device = libc::makedev(0, 0x1a);
        let line = "4: FLOCK  ADVISORY  WRITE 31245 00:1a:5678 0 EOF";
        assert_eq!(pid(line, device, 5678), Some(31245));
        assert_eq!(pid(line, device, 567), None);
        assert_eq!(pid(&line.replace("FLOCK", "POSIX"), device, 5678), None);
        assert_eq!(pid(&line.replace("31245", "0"), device, 5678), None, "of another container");
        assert_eq!(pid("4: -> FLOCK", device, 5678), None);
    }

    #[test]
    fn who_has_a_lock_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(of(file.path()), "somebody");
        // SAFETY: a file that is open.
        assert_eq!(unsafe { libc::flock(file.as_file().as_raw_fd(), libc::LOCK_EX) }, 0);
        let named = of(file.path());
        // Some file systems have other numbers for their files there.
        let this = format!("process {} (", std::process::id());
        assert!(named == "somebody" || named.starts_with(&this), "{named}");
    }
}
