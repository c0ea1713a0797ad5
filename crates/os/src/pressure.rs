//! Whether others need the memory: limits of control groups, and what the kernel tells of stalls.
//!
//! A process that comes near the limit of its control group makes the kernel reclaim, swap, or end
//! it; memory that it keeps for later had better go back before. Versions 1 and 2 of control
//! groups are read where distributions mount them. Pages of files that nobody uses do not count:
//! the kernel takes them first.

use crate::env::read_file;
use core::ffi::CStr;

/// A group is crowded from this part of its limit on, in sixteenths, ...
const CROWDED: usize = 15;
/// ... until its use is down to this.
const EASED: usize = 14;
const PARTS: usize = 16;
/// Hundredths of the last ten seconds in which somebody waited for memory: from here on all that
/// can go goes.
const STALLED_PERCENT: usize = 5;
/// Limits from here on are none, as version 1 writes them.
const NO_LIMIT: usize = 1 << 60;
/// Groups are looked at upwards from the process's own, so many at most.
const LEVELS: usize = 16;

/// Bytes that had better go back: 0 for none, `usize::MAX` for all that can. Reads some files of
/// the kernel's: not to be asked more often than once in a second.
pub fn beyond() -> usize {
    beyond_under(b"")
}

/// The same with the kernel's files in another place.
fn beyond_under(root: &[u8]) -> usize {
    // A line for each controller, with the group's path: a dozen of them, of some hundred bytes.
    let mut buffer = [0; 8192];
    let group = read(&[root, b"/proc/self/cgroup"], &mut buffer).and_then(group_of);
    let mut stalls = [0; 256];
    // The group's own where there is one: others' stalls are not for this process to end.
    let own = group.and_then(|(version, path)| {
        read(&[root, version.mount, path, version.stalls?], &mut stalls).map(is_stalled)
    });
    let is_stalled =
        own.or_else(|| read(&[root, b"/proc/pressure/memory"], &mut stalls).map(is_stalled));
    if is_stalled == Some(true) {
        return usize::MAX;
    }
    let Some((version, mut path)) = group else { return 0 };
    let mut most = 0;
    for _ in 0..LEVELS {
        most = most.max(beyond_of(root, version, path).unwrap_or(0));
        // In a container the path may be the host's, and what is mounted the group itself.
        let Some(cut) = path.iter().rposition(|byte| *byte == b'/') else { break };
        path = path.get(..cut).unwrap_or(b"");
    }
    most
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

/// The group that limits the process's memory, without a slash at its end: of version 1 if memory
/// is in its hands.
fn group_of(text: &[u8]) -> Option<(&'static Version, &[u8])> {
    let mut found = None;
    for line in text.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let path = path.strip_suffix(b"/").unwrap_or(path);
        if controllers.split(|byte| *byte == b',').any(|name| name == b"memory") {
            return Some((&V1, path));
        }
        if controllers.is_empty() {
            found = Some((&V2, path));
        }
    }
    found
}

/// What one group is beyond its ease; `None`: it has no limit.
fn beyond_of(root: &[u8], version: &Version, path: &[u8]) -> Option<usize> {
    let number = |name: &[u8]| {
        let mut buffer = [0; 64];
        parse(read(&[root, version.mount, path, name], &mut buffer)?)
    };
    let limits = version.limits.iter().filter_map(|name| number(name));
    let limit = limits.filter(|limit| *limit < NO_LIMIT).min()?;
    let used = number(version.usage)?;
    let part = limit / PARTS;
    if used <= part * CROWDED {
        return Some(0);
    }
    let mut buffer = [0; 4096];
    let unused = read(&[root, version.mount, path, b"/memory.stat"], &mut buffer)
        .and_then(|text| value_of(text, version.unused))
        .unwrap_or(0);
    let used = used.saturating_sub(unused);
    Some(if used > part * CROWDED { used - part * EASED } else { 0 })
}

/// The number behind a name that begins a line.
fn value_of(text: &[u8], name: &[u8]) -> Option<usize> {
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.find_map(|line| parse(line.strip_prefix(name)?.strip_prefix(b" ")?))
}

/// Whether the line `some avg10=N.NN …` says that too much time was lost.
fn is_stalled(text: &[u8]) -> bool {
    let average = text.strip_prefix(b"some avg10=").and_then(|rest| {
        let end = rest.iter().position(|byte| *byte == b'.')?;
        parse(rest.get(..end)?)
    });
    average.is_some_and(|percent| percent >= STALLED_PERCENT)
}

/// A number and white space.
fn parse(text: &[u8]) -> Option<usize> {
    core::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// The contents of the file whose path these parts make; `None` if there is no such file, or if
/// it or its name is too long.
fn read<'a>(parts: &[&[u8]], buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0_u8; 512];
    let mut len = 0;
    for part in parts {
        path.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    let path = CStr::from_bytes_until_nul(path.get(..=len)?).ok()?;
    read_file(path, buffer).ok()
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
            beyond_under(self.0.as_os_str().as_bytes())
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
