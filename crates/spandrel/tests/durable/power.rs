//! The file system below a state loses its power: ext4 in a file is shut down at random moments without writing its journal, so that all is lost that lay in memory only. After
//! it is mounted again the history of the program's threads is linearizable.
//!
//! What a disk loses of its own cache is the simulator's (`crates/durable/src/crash`).

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use super::histories::{LONGEST, judged_after, kills};

/// `EXT4_IOC_SHUTDOWN`, and its argument for a journal that is not written.
const SHUTDOWN: libc::c_ulong = 0x8004_587d;
static WITHOUT_JOURNAL: u32 = 2;
/// Bytes of the file system.
const BYTES: u64 = 64 << 20;

/// A file system in a file. It is unmounted when this is dropped.
struct Mounted {
    image: PathBuf,
    at: PathBuf,
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|done| done.status.success())
}

impl Mounted {
    /// `None`: this machine, or this user, has no such thing.
    fn new(place: &Path) -> Option<Self> {
        let mounted = Self { image: place.join("image"), at: place.join("mounted") };
        std::fs::create_dir(&mounted.at).unwrap();
        File::create(&mounted.image).unwrap().set_len(BYTES).unwrap();
        let is_made = succeeds(Command::new("mkfs.ext4").arg("-q").arg(&mounted.image));
        (is_made && mounted.mount()).then_some(mounted)
    }

    fn mount(&self) -> bool {
        succeeds(Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.at))
    }

    fn unmount(&self) -> bool {
        succeeds(Command::new("umount").arg(&self.at))
    }

    fn cut(&self, program: &mut Child) -> u64 {
        let since = spandrel_histories::now();
        let root = File::open(&self.at).unwrap();
        // SAFETY: the argument is a number that lives until the call returns.
        let cut = unsafe { libc::ioctl(root.as_raw_fd(), SHUTDOWN, &raw const WITHOUT_JOURNAL) };
        assert_eq!(cut, 0, "{}", std::io::Error::last_os_error());
        drop(root);
        program.kill().unwrap();
        program.wait().unwrap();
        assert!(self.unmount() && self.mount(), "the file system is not mounted again");
        since
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.unmount();
    }
}

#[test]
fn nothing_that_was_acknowledged_is_lost_by_power_cuts() {
    let place = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::new(place.path()) else {
        println!("power cuts: skipped, as this user cannot mount a file as ext4");
        return;
    };
    let state = mounted.at.join("state");
    judged_after(place.path(), &state, kills() / 5, LONGEST, |program| mounted.cut(program));
}
