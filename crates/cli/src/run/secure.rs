//! Secure execution: the kernel tells the dynamic linker of a privileged program
//! to ignore `LD_PRELOAD`. The conditions are those of `execve(2)` and
//! `capabilities(7)`.

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{getgid, getuid};
use std::ffi::CString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o0010;

/// The user and the group that run the program.
#[derive(Clone, Copy)]
struct Caller {
    user: u32,
    group: u32,
    /// `no_new_privs` is set or the file system is mounted `nosuid`: the bits of
    /// the file count for nothing.
    no_privileges: bool,
}

/// Why the file would run in secure mode, if it would.
pub fn reason(path: &Path, metadata: &Metadata) -> Option<String> {
    let nosuid = statvfs(path).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_NOSUID));
    let caller = Caller {
        user: getuid().as_raw(),
        group: getgid().as_raw(),
        no_privileges: nosuid || no_new_privs(),
    };
    judge(caller, metadata.mode(), metadata.uid(), metadata.gid(), || has_capabilities(path))
}

fn judge(
    caller: Caller,
    mode: u32,
    user: u32,
    group: u32,
    capabilities: impl FnOnce() -> bool,
) -> Option<String> {
    if caller.no_privileges {
        return None;
    }
    if mode & SETUID != 0 && user != caller.user {
        let name = nix::unistd::User::from_uid(user.into()).ok().flatten();
        let name = name.map_or_else(|| user.to_string(), |user| user.name);
        return Some(format!("it is setuid {name}"));
    }
    if mode & SETGID != 0 && mode & GROUP_EXECUTE != 0 && group != caller.group {
        let name = nix::unistd::Group::from_gid(group.into()).ok().flatten();
        let name = name.map_or_else(|| group.to_string(), |group| group.name);
        return Some(format!("it is setgid {name}"));
    }
    // Root gains nothing from a file's capabilities.
    if caller.user != 0 && capabilities() {
        return Some("it has file capabilities".into());
    }
    None
}

fn no_new_privs() -> bool {
    nix::sys::prctl::get_no_new_privs().unwrap_or(false)
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: both strings end in NUL; a size of zero asks only for the length.
    let length = unsafe {
        libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0)
    };
    length > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Caller = Caller { user: 1000, group: 1000, no_privileges: false };
    const ROOT: Caller = Caller { user: 0, group: 0, no_privileges: false };

    #[test]
    fn the_kernels_conditions() {
        let no = || false;
        assert_eq!(judge(USER, 0o755, 0, 0, no), None);
        assert_eq!(judge(USER, 0o4755, 0, 0, no).unwrap(), "it is setuid root");
        assert_eq!(judge(ROOT, 0o4755, 0, 0, no), None);
        assert_eq!(judge(USER, 0o4755, 1000, 0, no), None);
        assert!(judge(USER, 0o2755, 0, 0, no).unwrap().contains("setgid"));
        // Without the execute bit for the group it means mandatory locking.
        assert_eq!(judge(USER, 0o2745, 0, 0, no), None);
        assert!(judge(USER, 0o755, 0, 0, || true).unwrap().contains("capabilities"));
        assert_eq!(judge(ROOT, 0o755, 0, 0, || true), None);
        let powerless = Caller { no_privileges: true, ..USER };
        assert_eq!(judge(powerless, 0o6755, 0, 0, || true), None);
    }
}
