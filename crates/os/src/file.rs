//! Files that grow by blocks and are written through memory: what was written is in the file as
//! soon as it is in memory, also if the process is killed right after it.
//!
//! A file is opened anew for each block: a descriptor that a program closes, as daemons close all
//! that they find, may be another file's the next time.

use core::ffi::{CStr, c_void};
use core::ptr::{self, NonNull};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use spandrel_pages::PAGE_BYTES;

use crate::call::call;
use crate::descriptors::own;

/// A file that was made here: what it is, not what it is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    device: u64,
    inode: u64,
}

/// Makes a file that does not exist yet, for its owner alone, with `bytes` at its beginning.
///
/// # Errors
/// The error's number: `EEXIST` if there is one of that name.
pub fn create(path: &CStr, bytes: &[u8]) -> Result<Identity, i32> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = fs::open(path, flags, Mode::RUSR | Mode::WUSR).and_then(own);
    let file = file.map_err(Errno::raw_os_error)?;
    let identity = identify(&file)?;
    write_at(file.as_fd(), bytes, 0)?;
    Ok(identity)
}

/// Makes room for `len` bytes at `offset`, both whole pages, and maps them; they are zero. Room is
/// taken at once, so that a disk that is full later does no harm.
///
/// # Errors
/// The error's number: `ESTALE` if the path is another file's by now, `EFBIG` if a limit of the
/// process forbids a file so large.
pub fn append(path: &CStr, of: Identity, offset: u64, len: usize) -> Result<NonNull<u8>, i32> {
    let file = reopen(path, of)?;
    let end = offset.saturating_add(len as u64);
    // Beyond it the kernel would end the program by a signal.
    if getrlimit(Resource::Fsize).current.is_some_and(|most| most < end) {
        return Err(libc::EFBIG);
    }
    match fs::fallocate(&file, FallocateFlags::empty(), offset, len as u64) {
        Ok(()) => {}
        // File systems that know no such call.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => fill(file.as_fd(), offset, len)?,
        Err(why) => return Err(why.raw_os_error()),
    }
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { mm::mmap(ptr::null_mut(), len, access, MapFlags::SHARED, &file, offset) };
    NonNull::new(at.map_err(Errno::raw_os_error)?.cast()).ok_or(libc::ENOMEM)
}

/// Takes a mapping of [`append`] away.
///
/// # Safety
/// No thread uses it any more.
pub unsafe fn unmap(at: NonNull<u8>, len: usize) {
    // SAFETY: passed on from the caller. It cannot fail for a whole mapping.
    let _ = unsafe { mm::munmap(at.as_ptr().cast::<c_void>(), len) };
}

/// Writes `bytes` at `offset` of a file that was made here.
///
/// # Errors
/// The error's number, as for [`append`].
pub fn amend(path: &CStr, of: Identity, offset: u64, bytes: &[u8]) -> Result<(), i32> {
    write_at(reopen(path, of)?.as_fd(), bytes, offset)
}

/// The working directory, ended by a zero byte; its length.
pub fn working_directory(buffer: &mut [u8]) -> Option<usize> {
    // SAFETY: the pointer and length describe `buffer`.
    let called =
        unsafe { call(libc::SYS_getcwd, [buffer.as_mut_ptr().expose_provenance(), buffer.len()]) };
    let len = called.unwrap_or(0);
    // What is not reachable from the root begins differently.
    (len > 1 && buffer.first() == Some(&b'/')).then(|| len - 1)
}

fn reopen(path: &CStr, of: Identity) -> Result<OwnedFd, i32> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::open(path, flags, Mode::empty()).and_then(own).map_err(Errno::raw_os_error)?;
    if identify(&file)? == of { Ok(file) } else { Err(libc::ESTALE) }
}

fn identify(file: &OwnedFd) -> Result<Identity, i32> {
    let status = fs::fstat(file).map_err(Errno::raw_os_error)?;
    Ok(Identity { device: status.st_dev, inode: status.st_ino })
}

/// Writes `len` zeroes.
pub(crate) fn fill(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<(), i32> {
    static ZERO: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
    for at in (0..len).step_by(PAGE_BYTES) {
        let part = ZERO.get(..len - at).unwrap_or(&ZERO);
        write_at(file, part, offset.saturating_add(at as u64))?;
    }
    Ok(())
}

/// Writes all of `bytes`.
pub(crate) fn write_at(file: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> Result<(), i32> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(libc::EIO),
            Ok(written) => {
                bytes = bytes.get(written..).unwrap_or(&[]);
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(why) => return Err(why.raw_os_error()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::testing::Directory;
    use std::os::unix::ffi::OsStrExt;
    use std::vec;

    #[test]
    fn what_is_written_to_memory_is_in_the_file() {
        let directory = Directory::new();
        let path = directory.path("file");
        let file = create(&path, b"head").unwrap();
        assert_eq!(create(&path, b"head"), Err(libc::EEXIST));
        let block = append(&path, file, PAGE_BYTES as u64, PAGE_BYTES).unwrap();
        // SAFETY: the block was mapped above.
        unsafe { block.add(7).write(42) };
        let mut expected = vec![0; 2 * PAGE_BYTES];
        expected[..4].copy_from_slice(b"head");
        expected[PAGE_BYTES + 7] = 42;
        assert_eq!(std::fs::read(directory.at("file")).unwrap(), expected);
        amend(&path, file, 1, b"xy").unwrap();
        assert_eq!(&std::fs::read(directory.at("file")).unwrap()[..4], b"hxyd");
        // SAFETY: it is not used any more.
        unsafe { unmap(block, PAGE_BYTES) };
    }

    #[test]
    fn another_file_of_the_same_name_is_left_alone() {
        let directory = Directory::new();
        let path = directory.path("file");
        let file = create(&path, b"").unwrap();
        std::fs::rename(directory.at("file"), directory.at("kept")).unwrap();
        std::fs::write(directory.at("file"), b"another program's").unwrap();
        assert_eq!(append(&path, file, 0, PAGE_BYTES), Err(libc::ESTALE));
        assert_eq!(amend(&path, file, 0, b"x"), Err(libc::ESTALE));
        assert_eq!(std::fs::read(directory.at("file")).unwrap(), b"another program's");
    }

    #[test]
    fn file_systems_without_preallocation_are_filled() {
        let directory = Directory::new();
        let path = directory.path("file");
        create(&path, b"").unwrap();
        let file = fs::open(&*path, OFlags::RDWR, Mode::empty()).unwrap();
        for bytes in [2 * PAGE_BYTES, 2 * PAGE_BYTES + 5] {
            fill(file.as_fd(), 0, bytes).unwrap();
            assert_eq!(std::fs::read(directory.at("file")).unwrap(), vec![0; bytes]);
        }
    }

    #[test]
    fn the_working_directory_is_absolute() {
        let mut buffer = [0; 4096];
        let len = working_directory(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], std::env::current_dir().unwrap().as_os_str().as_bytes());
        assert_eq!(working_directory(&mut [0; 2]), None);
    }
}
