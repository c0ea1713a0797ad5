//! An image that is being made: memory that becomes a file when it is complete. A failure leaves no file, or the whole file.

use core::ptr::NonNull;

use spandrel_os::draft;
use spandrel_os::image::{Access, Image};
use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;

use crate::files::{drawn, refuse_log};
use crate::media::{Choice, Place};
use crate::medium::{Failed, Medium};
use crate::room;
use crate::tie::Ties;

/// See the head of this file. Its bytes begin as zeroes.
pub struct Draft {
    base: NonNull<u8>,
    bytes: usize,
    reserved: usize,
}

// SAFETY: the memory belongs to the value, and has no link to the thread that made it.
unsafe impl Send for Draft {}
// SAFETY: as above.
unsafe impl Sync for Draft {}

impl Draft {
    /// A draft of `bytes` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(bytes: usize) -> Result<Self, Failed> {
        let bytes =
            bytes.max(1).checked_next_multiple_of(PAGE_BYTES).ok_or(Failed(libc::ENOMEM))?;
        let (base, reserved) = room::reserve(bytes, None)?;
        let draft = Self { base, bytes, reserved };
        // SAFETY: just reserved.
        if unsafe { vm::open(base.as_ptr(), reserved) } {
            Ok(draft)
        } else {
            Err(Failed(libc::ENOMEM))
        }
    }

    /// Makes the file: the first `used` bytes of the draft and zeroes behind them, with room on the medium for all. The file is complete
    /// and durable, and has no log.
    ///
    /// # Errors
    /// The error's number: `EEXIST` if there is a file of that name; [`Failed::NOT_A_LOG`] and [`Failed::FOREIGN_LOG`] if a file that is
    /// not empty has the log's name; [`Failed::COPY_ON_WRITE`]. No file is left then.
    pub fn publish(self, place: &Place<'_>, used: usize) -> Result<(), Failed> {
        let file = draft::Draft::new(place.path).map_err(Failed)?;
        let image = file.image().map_err(Failed)?;
        if place.choice == Choice::Mapped && image.is_copied_on_write() {
            return Err(Failed::COPY_ON_WRITE);
        }
        // Before the log is looked at: of a file that is there already, the file is the reason and not its log.
        match Image::open(place.path, Access::Read) {
            Err(libc::ENOENT) => {}
            Err(why @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => return Err(Failed(why)),
            _ => return Err(Failed(libc::EEXIST)),
        }
        refuse_log(place.log, place.identity)?;
        image.grow(0, self.bytes as u64).map_err(Failed)?;
        self.write(image, used.min(self.bytes), place)?;
        image.sync().map_err(Failed)?;
        file.publish(place.path).map(drop).map_err(Failed)
    }

    fn write(&self, image: &Image, used: usize, place: &Place<'_>) -> Result<(), Failed> {
        // SAFETY: the first `bytes` bytes of the reservation are open, `used` is not more, and no thread stores to a draft that is
        // published.
        let all = unsafe { core::slice::from_raw_parts(self.base.as_ptr(), used) };
        for (number, page) in all.chunks(PAGE_BYTES).enumerate() {
            if page.iter().any(|byte| *byte != 0) {
                image.write_at(page, (number * PAGE_BYTES) as u64).map_err(Failed)?;
            }
        }
        image.write_at(&Ties::fresh(place.identity, drawn(), 0), place.tie).map_err(Failed)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // SAFETY: `drop` has the draft exclusively, and the reservation belongs to it.
        unsafe { vm::release(self.base.as_ptr(), self.reserved) };
    }
}

// SAFETY: the memory is mapped as long as this lives.
unsafe impl Medium for Draft {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn write_back(&self, _: usize, _: usize) {}

    fn fence(&self) {}

    fn checkpoint_still(&self, _: &dyn Fn(&mut dyn FnMut())) -> Result<(), Failed> {
        Ok(())
    }
}
