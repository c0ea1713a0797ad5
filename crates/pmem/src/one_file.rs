//! A file by itself.

use spandrel_os::image::Image;

use crate::disk::{Disk, Which};
use crate::medium::Failed;

/// One file as a disk that has an image only.
pub struct OneFile<'a>(pub &'a Image);

impl Disk for OneFile<'_> {
    fn read(&self, which: Which, at: u64, into: &mut [u8]) -> Result<usize, Failed> {
        match which {
            Which::Image => self.0.read_at(into, at).map_err(Failed),
            _ => Ok(0),
        }
    }

    fn write(&self, which: Which, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        match which {
            Which::Image => {
                self.0.check_limit(at.saturating_add(bytes.len() as u64)).map_err(Failed)?;
                self.0.write_at(bytes, at).map_err(Failed)
            }
            _ => Err(Failed(libc::EROFS)),
        }
    }

    fn allow(&self, _: Which, end: u64) -> Result<(), Failed> {
        self.0.check_limit(end).map_err(Failed)
    }

    fn sync(&self, _: Which) -> Result<(), Failed> {
        self.0.sync().map_err(Failed)
    }

    fn bytes(&self, _: Which) -> Result<u64, Failed> {
        self.0.bytes().map_err(Failed)
    }
}
