//! What a disk takes for one durable write: no store is faster.

use spandrel_console::shutdown::{Kind, Scratch};
use spandrel_report::numbers::{median, time};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

/// Bytes of a write: a page.
const BYTES: usize = 4096;
/// Writes of each kind, which take turns.
const TURNS: usize = 200;
/// Bytes of the file whose pages are written over.
const ROOM: usize = 64 * BYTES;

/// A page at an address that a write past the page cache needs.
#[repr(align(4096))]
struct Page([u8; BYTES]);

/// Medians, in nanoseconds.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Floor {
    /// A page that has its place is written past the page cache, as a durable state's log is.
    over_ns: f64,
    /// A page is written at the end of a file, which is synced, as a log of others is.
    append_ns: f64,
}

impl Floor {
    /// Of the disk of a directory; nothing where it has no writes past the page cache.
    pub fn of(place: &Path) -> Option<Self> {
        measure(place).ok()
    }

    /// A sentence.
    pub fn words(&self) -> String {
        format!(
            "the disk: {} for a write of 4 KiB over what is there (O_DIRECT, O_DSYNC), {} for one at the end of a file and fdatasync: {:.2}×, and no store's time is less",
            time(self.over_ns),
            time(self.append_ns),
            self.over_ns / self.append_ns
        )
    }
}

fn measure(place: &Path) -> io::Result<Floor> {
    let directory = Scratch::directory_in(Kind::Bench, place)?;
    let path = directory.path().join("over");
    let mut room = File::create(&path)?;
    room.write_all(&[0; ROOM])?;
    room.sync_all()?;
    let flags = libc::O_DIRECT | libc::O_DSYNC;
    let over = OpenOptions::new().write(true).custom_flags(flags).open(&path)?;
    let mut append = File::create(directory.path().join("append"))?;
    let page = Box::new(Page([1; BYTES]));
    let (mut overs, mut appends) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let begun = Instant::now();
        over.write_all_at(&page.0, (turn * BYTES % ROOM) as u64)?;
        overs.push(begun.elapsed().as_nanos() as f64);
        let begun = Instant::now();
        append.write_all(&page.0)?;
        append.sync_data()?;
        appends.push(begun.elapsed().as_nanos() as f64);
    }
    let middle = |all: &[f64]| median(all).ok_or(io::ErrorKind::InvalidData);
    Ok(Floor { over_ns: middle(&overs)?, append_ns: middle(&appends)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_takes_time() {
        // Where the directory of temporary files lies in memory there may be none.
        if let Some(floor) = Floor::of(&std::env::temp_dir()) {
            assert!(floor.over_ns > 0.0 && floor.append_ns > 0.0);
        }
        let words = Floor { over_ns: 5e4, append_ns: 1e5 }.words();
        assert!(words.contains("50.0 µs") && words.contains("0.50×"), "{words}");
        assert!(Floor::of(Path::new("/nonexistent")).is_none());
    }
}
