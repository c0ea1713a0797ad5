//! Whether an image and its log still have the names that they were opened by: what is stored in a file without a name is lost with the
//! process.

use core::ffi::CStr;

use spandrel_os::image::{Access, Image};

use crate::files::Files;
use crate::media::Name;
use crate::medium::Failed;

/// How the files stand to their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// They have them, or others: a directory was moved, or both files were.
    Kept,
    /// The image has its name, and the log does not: it was removed, or moved alone.
    WithoutLog,
    /// Another file has the name of the image, the image has no name, or it was moved without its log.
    Replaced,
}

/// The names of an image and of its log.
pub struct FileNames {
    image: Name,
    log: Option<Name>,
    /// Of a file system whose numbers of files change, names say nothing.
    tells: bool,
}

impl FileNames {
    /// The names that files were opened by.
    ///
    /// # Errors
    /// As for [`Name::of`].
    pub fn of(
        (path, image): (&CStr, &Image),
        log: Option<(&CStr, &Image)>,
    ) -> Result<Self, Failed> {
        let is_named = |path: &CStr, file: &Image| file.is_named(path) == Ok(true);
        let tells = is_named(path, image) && log.is_none_or(|(path, log)| is_named(path, log));
        let log = log.map(|(path, _)| Name::of(path)).transpose()?;
        Ok(Self { image: Name::of(path)?, log, tells })
    }

    /// The name of the log; empty: there is none.
    pub fn log(&self) -> &CStr {
        self.log.as_ref().map_or(c"", Name::text)
    }

    /// Looks at the names of the files. A process that may not look at its directory any more (other rights, another root directory)
    /// goes on.
    pub fn standing(&self, image: &Image, log: Option<&Image>) -> Named {
        if !self.tells {
            return Named::Kept;
        }
        let is_log = log.is_none_or(|log| log.is_named(self.log()) != Ok(false));
        if image.is_named(self.image.text()) != Ok(false) {
            return if is_log { Named::Kept } else { Named::WithoutLog };
        }
        let is_free = Image::open(self.image.text(), Access::Read).err() == Some(libc::ENOENT);
        let is_moved = |file: &Image| file.has_names() != Ok(false);
        // Both were moved, so that the log lies beside the image as before, as far as can be seen.
        let is_together = log.is_none_or(|log| !is_log && is_moved(log));
        if is_free && is_moved(image) && is_together { Named::Kept } else { Named::Replaced }
    }

    /// The same of both files.
    pub fn standing_of(&self, files: &Files) -> Named {
        self.standing(&files.image, files.log.as_ref())
    }
}
