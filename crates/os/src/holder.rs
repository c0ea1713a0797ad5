//! Which process has locked a file, as the kernel lists its locks.

use core::ffi::CStr;

use rustix::fs;

use crate::lines;

/// Bytes of the name of a command at most, as the kernel keeps it (`TASK_COMM_LEN`).
pub const COMMAND_BYTES: usize = 16;

/// The process that has locked a file by `flock`. `None`: no process has, or the process is one of another container, or the file system
/// has other numbers for its files in `/proc/locks` (btrfs, overlayfs).
///
/// The process may have ended: a forked child keeps its lock.
pub fn of(path: &CStr) -> Option<u32> {
    let file = fs::lstat(path).ok()?;
    lines::find(c"/proc/locks", |line| pid(line, file.st_dev, file.st_ino))
}

/// The name of the command of a process, with zeroes behind it; empty: there is no such process.
pub fn command(process: u32) -> [u8; COMMAND_BYTES] {
    let mut path = *b"/proc/0000000000/comm\0";
    let mut rest = process;
    // `/proc` has names without leading zeroes.
    let digits = process.checked_ilog10().map_or(1, |log| log as usize + 1);
    for at in (6..6 + digits).rev() {
        path[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    path.copy_within(16..22, 6 + digits);
    let mut command = [0; COMMAND_BYTES];
    let path = CStr::from_bytes_until_nul(&path).unwrap_or(c"");
    let len = crate::env::read_beginning(path, &mut command).len();
    if let Some(end) = command.get_mut(len.saturating_sub(1)).filter(|end| **end == b'\n') {
        *end = 0;
    }
    command
}

/// The process of a line such as `4: FLOCK  ADVISORY  WRITE 31245 00:1a:5678 0 EOF`, if it is about that file.
fn pid(line: &[u8], device: u64, inode: u64) -> Option<u32> {
    let mut words = core::str::from_utf8(line).ok()?.split_ascii_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let process = words.nth(2)?.parse().ok().filter(|process| *process != 0)?;
    let mut file = words.next()?.split(':');
    let hex = |word: &str| u32::from_str_radix(word, 16).ok();
    let is_device =
        hex(file.next()?)? == libc::major(device) && hex(file.next()?)? == libc::minor(device);
    (is_device && file.next()?.parse() == Ok(inode)).then_some(process)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::image::{Access, Image};
    use crate::testing::Directory;

    #[test]
    fn lines_of_locks() {
        let device = libc::makedev(0, 0x1a);
        let line = b"4: FLOCK  ADVISORY  WRITE 31245 00:1a:5678 0 EOF";
        assert_eq!(pid(line, device, 5678), Some(31245));
        assert_eq!(pid(line, device, 567), None);
        assert_eq!(pid(b"4: POSIX  ADVISORY  WRITE 31245 00:1a:5678 0 EOF", device, 5678), None);
        let elsewhere = b"4: FLOCK  ADVISORY  WRITE 0 00:1a:5678 0 EOF";
        assert_eq!(pid(elsewhere, device, 5678), None, "a process of another container");
        assert_eq!(pid(b"4: -> FLOCK", device, 5678), None);
    }

    #[test]
    fn the_process_that_has_a_lock_and_its_command() {
        let directory = Directory::new();
        let path = directory.path("image");
        let image = Image::create(&path).unwrap();
        assert_eq!(of(&path), None);
        image.lock(Access::Write).unwrap();
        let found = of(&path);
        // Some file systems have other numbers for their files there.
        assert!(found.is_none_or(|process| process == std::process::id()), "{found:?}");
        let comm = std::fs::read("/proc/self/comm").unwrap();
        let command = command(std::process::id());
        assert!(command.starts_with(comm.trim_ascii_end()), "{command:?}");
        assert_eq!(super::command(u32::MAX), [0; COMMAND_BYTES]);
    }
}
