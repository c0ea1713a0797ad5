//! The identity of a heap's file, before the file is locked.

use core::ffi::CStr;

use spandrel_os::image::{Access, Image};
use spandrel_pmem::Failed;

use crate::error::Error;
use crate::layout::LEAST_BYTES;
use crate::superblock::{IDENTITY_COPY, Identity, line_words};

/// The identity and the format's version that a file has, and its length in bytes.
///
/// The owner of the file may write its first line meanwhile (it upgrades the format, or mends the line): damage is a verdict only of a
/// read under the lock.
pub fn identify(path: &CStr) -> Result<(Identity, u64, usize), Error> {
    let image = Image::open(path, Access::Read).map_err(Error::System)?;
    match identity_of(&image) {
        Err(Error::Damaged { .. }) => {
            image.lock(Access::Read).map_err(|why| Error::from(Failed(why)))?;
            identity_of(&image)
        }
        found => found,
    }
}

/// The same of an open file: both copies of the identity are of one file, whichever file has the path by now.
pub fn identity_of(image: &Image) -> Result<(Identity, u64, usize), Error> {
    let line = |at: usize| {
        let mut bytes = [0; 64];
        let read = image.read_at(&mut bytes, at as u64).map_err(Error::System)?;
        Ok::<_, Error>((line_words(&bytes), read))
    };
    let ((first, read), (copy, _)) = (line(0)?, line(IDENTITY_COPY)?);
    if read < 64 {
        return Err(Error::NotAHeap);
    }
    let (identity, version) = Identity::choose(first, copy)?;
    let has = image.bytes().map_err(Error::System)?;
    // The identity line is the last that creation writes: the file was longer.
    let needs = LEAST_BYTES as u64;
    if has < needs {
        return Err(Error::Truncated { has, needs });
    }
    Ok((identity, version, usize::try_from(has).map_err(|_| Error::FileSize)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use std::ffi::CString;

    /// The owner upgrades the format or mends the line, so that a read may find half of it.
    #[test]
    fn an_identity_that_its_owner_writes_just_now_is_not_damaged() {
        let place = tempfile::tempdir().unwrap();
        let path = CString::new(place.path().join("a.heap").to_str().unwrap()).unwrap();
        Options::new().create(path.to_bytes()).unwrap().close().unwrap();
        let owner = Image::open(&path, Access::Write).unwrap();
        owner.lock(Access::Write).unwrap();
        for at in [0, IDENTITY_COPY as u64] {
            owner.write_at(&[0xa5; 8], at + 24).unwrap();
        }
        assert_eq!(identify(&path).err(), Some(Error::Locked));
        drop(owner);
        assert!(matches!(identify(&path), Err(Error::Damaged { at: 0, .. })));
    }
}
