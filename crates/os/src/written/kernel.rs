//! The kernel's record of writes: asynchronous write protection (`linux/userfaultfd.h`) and `PAGEMAP_SCAN` (`linux/fs.h`).

use core::ptr;

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

use super::{How, own};
use crate::descriptors::Kept;

const UFFD_API: u64 = 0xAA;
const USER_MODE_ONLY: i32 = 1;
const FEATURE_WP: u64 = 1;
const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const REGISTER_MODE_WP: u64 = 1 << 1;
const UFFDIO_API: u64 = request(UFFD_API, 0x3F, 24);
const UFFDIO_REGISTER: u64 = request(UFFD_API, 0x00, 32);
const PAGEMAP_SCAN: u64 = request(b'f' as u64, 16, size_of::<ScanArguments>() as u64);
const SCAN_PROTECTS: u64 = 1;
const SCAN_CHECKS: u64 = 1 << 1;
const IS_WRITTEN: u64 = 1 << 1;
const IS_OF_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;

/// `_IOWR(group, number, size)`.
const fn request(group: u64, number: u64, size: u64) -> u64 {
    3 << 30 | size << 16 | group << 8 | number
}

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

#[repr(C)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

fn ioctl<T>(file: &Kept, request: u64, argument: &mut T) -> Result<i64, i32> {
    let file = file.checked().map_err(Errno::raw_os_error)?;
    let errno = crate::env::errno();
    let argument = ptr::from_mut(argument);
    let outcome = loop {
        // SAFETY: the argument is the one of the request. The kernel writes to it, and to the `regions_len` regions that it points to.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument) };
        match crate::env::errno() {
            libc::EINTR if result < 0 => {}
            why if result < 0 => break Err(why),
            _ => break Ok(result.into()),
        }
    };
    crate::env::set_errno(errno);
    outcome
}

/// Watches a range of whole pages, of which none counts as written.
///
/// # Errors
/// The error's number: the kernel is older than 6.7, or forbids the call.
pub fn watch(at: usize, len: usize) -> Result<How, i32> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    let errno = crate::env::errno();
    // SAFETY: the call makes a descriptor, and accesses no memory of the process.
    let watch = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    let why = crate::env::errno();
    crate::env::set_errno(errno);
    let watch = i32::try_from(watch).ok().filter(|watch| *watch >= 0).ok_or(why)?;
    // SAFETY: the descriptor was made by the call above, and has no other owner.
    let watch = unsafe { OwnedFd::from_raw_fd(watch) };
    let watch = Kept::new(watch).map_err(Errno::raw_os_error)?;
    let features = FEATURE_WP | FEATURE_WP_UNPOPULATED | FEATURE_WP_ASYNC;
    ioctl(&watch, UFFDIO_API, &mut Api { api: UFFD_API, features, ioctls: 0 })?;
    let pagemap = own::open().ok_or(libc::ENOENT)?;
    add(&watch, &pagemap, at, len)?;
    Ok(How::Kernel { watch, pagemap })
}

/// Watches one more range of whole pages, of which none counts as written.
///
/// # Errors
/// The error's number.
pub fn add(watch: &Kept, pagemap: &Kept, at: usize, len: usize) -> Result<(), i32> {
    if len == 0 {
        return Ok(());
    }
    let (start, length) = (at as u64, len as u64);
    let mut range = Register { start, len: length, mode: REGISTER_MODE_WP, ioctls: 0 };
    ioctl(watch, UFFDIO_REGISTER, &mut range)?;
    // An error here means that the kernel cannot report writes to such pages.
    take(pagemap, at, len, |_, _| {})
}

/// What a scan looks for.
struct Wanted {
    flags: u64,
    /// Categories that a page must have. Those that are in `inverted` as well it must not have.
    all: u64,
    inverted: u64,
    /// Categories of which a page must have one at least; 0: no condition.
    any: u64,
}

/// Calls `run` with the address and length of each run of pages that were written. They do not count as written from then on.
pub fn take(
    pagemap: &Kept,
    at: usize,
    len: usize,
    run: impl FnMut(usize, usize),
) -> Result<(), i32> {
    let flags = SCAN_PROTECTS | SCAN_CHECKS;
    scan(pagemap, at, len, &Wanted { flags, all: IS_WRITTEN, inverted: 0, any: 0 }, run)
}

/// As [`take`], but the pages count as written as before.
pub fn list(
    pagemap: &Kept,
    at: usize,
    len: usize,
    run: impl FnMut(usize, usize),
) -> Result<(), i32> {
    scan(pagemap, at, len, &Wanted { flags: 0, all: IS_WRITTEN, inverted: 0, any: 0 }, run)
}

/// As [`list`], for pages that the process has a copy of and that were not written since the last [`take`].
pub fn clean(
    pagemap: &Kept,
    at: usize,
    len: usize,
    run: impl FnMut(usize, usize),
) -> Result<(), i32> {
    let not = IS_WRITTEN | IS_OF_FILE;
    // A page must be present: the kernel's mark of a page that never was looks like a page in swap.
    scan(pagemap, at, len, &Wanted { flags: 0, all: not, inverted: not, any: IS_PRESENT }, run)
}

fn scan(
    pagemap: &Kept,
    at: usize,
    len: usize,
    wanted: &Wanted,
    mut run: impl FnMut(usize, usize),
) -> Result<(), i32> {
    let (mut from, end) = (at as u64, (at + len) as u64);
    let mut regions = [Region::default(); 64];
    while from < end {
        let mut scan = ScanArguments {
            size: size_of::<ScanArguments>() as u64,
            flags: wanted.flags,
            start: from,
            end,
            walk_end: 0,
            regions: regions.as_mut_ptr() as u64,
            regions_len: regions.len() as u64,
            max_pages: 0,
            category_inverted: wanted.inverted,
            category_mask: wanted.all,
            category_anyof_mask: wanted.any,
            return_mask: wanted.all & !wanted.inverted | wanted.any,
        };
        let found = ioctl(pagemap, PAGEMAP_SCAN, &mut scan)?;
        let found = usize::try_from(found).unwrap_or(0);
        for region in regions.iter().take(found) {
            run(region.start as usize, (region.end - region.start) as usize);
        }
        if scan.walk_end <= from {
            return Err(libc::EIO);
        }
        from = scan.walk_end;
    }
    Ok(())
}
