//! Whether others need the memory: limits of control groups, and what the kernel tells of stalls.
//!
//! A process that comes near the limit of its control group makes the kernel reclaim, swap, or end
//! it; memory that it keeps for later had better go back before. Versions 1 and 2 of control
//! groups are read where distributions mount them. Pages of files that are not in use do not count:
//! the kernel takes them first.

use core::ffi::CStr;

use crate::lines;

/// A group is crowded from this part of its limit on, in sixteenths, ...
const CROWDED: usize = 15;
/// ... and tight from this part on.
const TIGHT: usize = 14;
/// A crowded group is one until its use is down to this.
const EASED: usize = 14;
const PARTS: usize = 16;
/// Hundredths of the last ten seconds in which a task waited for memory: from here on all that
/// can go goes.
const STALLED_PERCENT: usize = 5;
/// Limits from here on are none, as version 1 writes them.
const NO_LIMIT: usize = 1 << 60;
/// Groups are looked at upwards from the process's own, this many at most.
const LEVELS: usize = 16;

/// Longest path of a file, its ending zero byte included.
const PATH_BYTES: usize = 512;

/// Bytes that had better go back: 0 for none, `usize::MAX` for all that can. Reads some files of
/// the kernel's: not to be asked more often than once in a second. It takes less than 4 KiB of stack,
/// and a descriptor for a moment; without one nothing has to go back.
pub fn beyond() -> usize {
    beyond_under(b"", CROWDED)
}

/// Whether a process that has a use for more memory, and can do without, had better do without: its group uses more than seven eighths of its limit, or
/// others wait for memory. It takes what [`beyond`] takes.
pub fn is_tight() -> bool {
    beyond_under(b"", TIGHT) > 0
}

/// The same with the kernel's files in another place.
fn beyond_under(root: &[u8], from: usize) -> usize {
    let mut place = Path::new();
    let version = group_of(root, &mut place);
    let mut path = place.as_bytes();
    // The group's own where there is one: others' stalls are not for this process to end.
    let own =
        version.and_then(|version| find(&[root, version.mount, path, version.stalls?], is_stalled));
    let stalled = own.or_else(|| find(&[root, b"/proc/pressure/memory"], is_stalled));
    if stalled == Some(true) {
        return usize::MAX;
    }
    let Some(version) = version else { return 0 };
    let mut most = 0;
    for _ in 0..LEVELS {
        most = most.max(beyond_of(root, version, path, from).unwrap_or(0));
        // In a container the path may be the host's, and what is mounted the group itself.
        let Some(cut) = path.iter().rposition(|byte| *byte == b'/') else { break };
        path = path.get(..cut).unwrap_or(b"");
    }
    most
}

/// A path under construction on the stack.
struct Path {
    bytes: [u8; PATH_BYTES],
    len: usize,
}

impl Path {
    const fn new() -> Self {
        Self { bytes: [0; PATH_BYTES], len: 0 }
    }

    /// Adds a part; false: it does not fit.
    fn push(&mut self, part: &[u8]) -> bool {
        let end = self.len + part.len();
        // The byte behind the last stays zero.
        let room = if end < PATH_BYTES { self.bytes.get_mut(self.len..end) } else { None };
        let fits = room.is_some();
        if let Some(room) = room {
            room.copy_from_slice(part);
            self.len = end;
        }
        fits
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(b"")
    }
}

/// What a version calls its files.
struct Version {
    mount: &'static [u8],
    limits: [&'static [u8]; 2],
    usage: &'static [u8],
    stalls: Option<&'static [u8]>,
    unused: &'static [u8],
}

const V1: Version = Version {
    mount: b"/sys/fs/cgroup/memory",
    limits: [b"/memory.limit_in_bytes", b"/memory.soft_limit_in_bytes"],
    usage: b"/memory.usage_in_bytes",
    stalls: None,
    unused: b"total_inactive_file",
};
const V2: Version = Version {
    mount: b"/sys/fs/cgroup",
    limits: [b"/memory.max", b"/memory.high"],
    usage: b"/memory.current",
    stalls: Some(b"/memory.pressure"),
    unused: b"inactive_file",
};

/// The group that limits the process's memory: its version, and into `path` its path, without a slash
/// at its end. Of version 1 if memory is in its hands.
fn group_of(root: &[u8], path: &mut Path) -> Option<&'static Version> {
    let mut found = None;
    let first = find(&[root, b"/proc/self/cgroup"], |line| {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let (_, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
        let is_first = controllers.split(|byte| *byte == b',').any(|name| name == b"memory");
        if is_first || controllers.is_empty() {
            *path = Path::new();
            let fits = path.push(group.strip_suffix(b"/").unwrap_or(group));
            found = fits.then_some(&V2);
        }
        is_first.then_some(found.is_some())
    });
    if first == Some(true) { Some(&V1) } else { found }
}

/// What one group is beyond its ease; `None`: it has no limit.
fn beyond_of(root: &[u8], version: &Version, path: &[u8], from: usize) -> Option<usize> {
    let number = |name: &[u8]| find(&[root, version.mount, path, name], parse);
    let limits = version.limits.iter().filter_map(|name| number(name));
    let limit = limits.filter(|limit| *limit < NO_LIMIT).min()?;
    let used = number(version.usage)?;
    let part = limit / PARTS;
    if used <= part * from {
        return Some(0);
    }
    let unused = find(&[root, version.mount, path, b"/memory.stat"], |line| {
        parse(line.strip_prefix(version.unused)?.strip_prefix(b" ")?)
    });
    let used = used.saturating_sub(unused.unwrap_or(0));
    Some(if used > part * from { used - part * EASED } else { 0 })
}

/// Whether a line `some avg10=N.NN …` says that too much time was lost; `None`: it is another line.
fn is_stalled(line: &[u8]) -> Option<bool> {
    let rest = line.strip_prefix(b"some avg10=")?;
    let end = rest.iter().position(|byte| *byte == b'.')?;
    Some(parse(rest.get(..end)?)? >= STALLED_PERCENT)
}

/// A number and white space.
fn parse(text: &[u8]) -> Option<usize> {
    core::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// What `look` finds in the lines of the file whose path these parts make; `None` also if there is no
/// such file, or its name is too long.
#[inline(never)]
fn find<T>(parts: &[&[u8]], look: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let mut path = Path::new();
    if !parts.iter().all(|part| path.push(part)) {
        return None;
    }
    lines::find(CStr::from_bytes_until_nul(&path.bytes).ok()?, look)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::format;
    use std::path::{Path, PathBuf};

    /// A tree of files as the kernel has them.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            let tree = Self(root);
            files.iter().for_each(|(path, text)| tree.write(path, text));
            tree
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }

        fn beyond(&self) -> usize {
            use std::os::unix::ffi::OsStrExt;
            beyond_under(self.0.as_os_str().as_bytes(), CROWDED)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_second_version() {
        let tree = Tree::new("second", &[("proc/self/cgroup", "0::/a.slice/b.scope\n")]);
        assert_eq!(tree.beyond(), 0);
        tree.write("sys/fs/cgroup/a.slice/b.scope/memory.max", "max\n");
        tree.write("sys/fs/cgroup/a.slice/b.scope/memory.high", "1600\n");
        tree.write("sys/fs/cgroup/a.slice/b.scope/memory.current", "1500\n");
        assert_eq!(tree.beyond(), 0);
        tree.write("sys/fs/cgroup/a.slice/b.scope/memory.current", "1550\n");
        assert_eq!(tree.beyond(), 150);
        // Of the group above, if its own has none.
        tree.write("sys/fs/cgroup/a.slice/b.scope/memory.high", "max\n");
        tree.write("sys/fs/cgroup/a.slice/memory.max", "16000\n");
        tree.write("sys/fs/cgroup/a.slice/memory.current", "15999\n");
        assert_eq!(tree.beyond(), 1999);
        tree.write(
            "sys/fs/cgroup/a.slice/memory.stat",
            "anon 1\nactive_file 9\ninactive_file 500\n",
        );
        assert_eq!(tree.beyond(), 1499);
        tree.write("sys/fs/cgroup/a.slice/memory.stat", "inactive_file 1000\n");
        assert_eq!(tree.beyond(), 0);
    }

    #[test]
    fn the_tightest_limit_above_counts() {
        let tree = Tree::new("tightest", &[("proc/self/cgroup", "0::/a.slice/b.scope\n")]);
        tree.write("sys/fs/cgroup/a.slice/b.scope/memory.max", "1600000\n");
        tree.write("sys/fs/cgroup/a.slice/b.scope/memory.current", "1600\n");
        tree.write("sys/fs/cgroup/a.slice/memory.max", "1600\n");
        tree.write("sys/fs/cgroup/a.slice/memory.current", "1600\n");
        assert_eq!(tree.beyond(), 200);
    }

    #[test]
    fn many_controllers_with_long_paths() {
        let path = format!("/kubepods.slice/{}", "0123456789abcdef".repeat(12));
        let mut text = std::string::String::new();
        for n in 0..13 {
            text += &format!("{n}:controller{n}:{path}\n");
        }
        text += &format!("13:memory:{path}\n");
        assert!(text.len() > 2800);
        let tree = Tree::new("many", &[("proc/self/cgroup", &text)]);
        tree.write(&format!("sys/fs/cgroup/memory{path}/memory.limit_in_bytes"), "1600\n");
        tree.write(&format!("sys/fs/cgroup/memory{path}/memory.usage_in_bytes"), "1600\n");
        assert_eq!(tree.beyond(), 200);
    }

    #[test]
    fn a_groups_own_stalls_before_the_machines() {
        let tree = Tree::new("own-stalls", &[("proc/self/cgroup", "0::/a\n")]);
        let (some, none) = ("some avg10=9.00 avg60=0\n", "some avg10=0.00 avg60=0\n");
        tree.write("proc/pressure/memory", some);
        assert_eq!(tree.beyond(), usize::MAX);
        tree.write("sys/fs/cgroup/a/memory.pressure", none);
        assert_eq!(tree.beyond(), 0);
        tree.write("sys/fs/cgroup/a/memory.pressure", some);
        tree.write("proc/pressure/memory", none);
        assert_eq!(tree.beyond(), usize::MAX);
    }

    #[test]
    fn the_first_version_and_a_path_that_is_the_hosts() {
        let text = "9:name=systemd:/\n4:cpu,memory:/docker/0123\n0::/\n";
        let tree = Tree::new("first", &[("proc/self/cgroup", text)]);
        tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        tree.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1600\n");
        assert_eq!(tree.beyond(), 0);
        tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1600\n");
        assert_eq!(tree.beyond(), 200);
    }

    #[test]
    fn stalls_of_the_machine() {
        let tree = Tree::new("stalls", &[("proc/self/cgroup", "0::/\n")]);
        for (text, beyond) in [
            ("some avg10=4.99 avg60=90.00 avg300=0 total=1\nfull avg10=0.00\n", 0),
            ("some avg10=12.50 avg60=0.00 avg300=0.00 total=0\n", usize::MAX),
            ("some avg10=100.00 avg60=0.00 avg300=0.00 total=0\n", usize::MAX),
            ("nothing of the kind", 0),
        ] {
            tree.write("proc/pressure/memory", text);
            assert_eq!(tree.beyond(), beyond, "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_no_limit() {
        let tree = Tree::new("damage", &[("proc/self/cgroup", "x\n0:\n::\n0::/a\n")]);
        for text in ["", "-1", "99999999999999999999999", "a", "\u{0}"] {
            tree.write("sys/fs/cgroup/a/memory.max", text);
            tree.write("sys/fs/cgroup/a/memory.current", text);
            assert_eq!(tree.beyond(), 0, "{text}");
        }
        let long = format!("0::/{}\n", "a".repeat(700));
        tree.write("proc/self/cgroup", &long);
        assert_eq!(tree.beyond(), 0);
    }
}
