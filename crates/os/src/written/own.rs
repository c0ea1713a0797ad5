//! Pages that a process has a copy of in a private mapping of a file, which are those that were ever written. The page table shows them
//! (`Documentation/admin-guide/mm/pagemap.rst`).

use rustix::fs::{self, Mode, OFlags};
use spandrel_pages::PAGE_BYTES;

use crate::descriptors::Kept;
use crate::image::retry;

/// Bits of an entry: the page is in memory, is in swap, belongs to the file.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
/// Entries of one read: 4 KiB.
const ENTRIES: usize = 512;

/// The page table of the process; `None`: there is no `/proc`.
pub fn open() -> Option<Kept> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    retry(|| fs::open(c"/proc/self/pagemap", flags, Mode::empty())).and_then(Kept::new).ok()
}

/// Calls `run` with the address and length of each run of such pages in a range, in order. Without a page table it is the whole range.
///
/// # Errors
/// The error's number.
pub fn pages(
    pagemap: Option<&Kept>,
    at: usize,
    len: usize,
    mut run: impl FnMut(usize, usize),
) -> Result<(), i32> {
    let Some(pagemap) = pagemap else {
        if len > 0 {
            run(at, len);
        }
        return Ok(());
    };
    let pagemap = pagemap.checked().map_err(|why| why.raw_os_error())?;
    let (first, end) = (at / PAGE_BYTES, (at + len) / PAGE_BYTES);
    let (mut page, mut begun) = (first, None);
    while page < end {
        let mut entries = [0u8; ENTRIES * 8];
        let wanted = ENTRIES.min(end - page) * 8;
        let part = entries.get_mut(..wanted).unwrap_or(&mut []);
        let read = retry(|| rustix::io::pread(pagemap, &mut *part, page as u64 * 8));
        let read = read.map_err(|why| why.raw_os_error())?;
        if read < 8 {
            return Err(libc::EIO);
        }
        for entry in part.get(..read).unwrap_or(&[]).chunks_exact(8) {
            let entry = entry.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            let is_own = entry & SWAPPED != 0 || entry & (PRESENT | OF_FILE) == PRESENT;
            match (is_own, begun) {
                (true, None) => begun = Some(page),
                (false, Some(from)) => {
                    run(from * PAGE_BYTES, (page - from) * PAGE_BYTES);
                    begun = None;
                }
                _ => {}
            }
            page += 1;
        }
    }
    if let Some(from) = begun {
        run(from * PAGE_BYTES, (end - from) * PAGE_BYTES);
    }
    Ok(())
}
