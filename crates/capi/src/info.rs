//! glibc's functions that inspect and tune an allocator.

use core::ffi::{c_char, c_int, c_void};
use core::fmt::{self, Write};

use spandrel_adaptive as adaptive;
use spandrel_os::env::{self, set_errno};
use spandrel_os::message::Fd;
use spandrel_pages::{Figure, PAGE_BYTES};

/// `malloc_trim`: gives unused memory of all allocators back; 1 if there was
/// any. The pad is kept by none of them and therefore ignored.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_pad: usize) -> c_int {
    // Hosted allocators do not tell what they gave back; the kernel does.
    let before = resident_anonymous();
    let told = adaptive::trim();
    c_int::from(told || resident_anonymous() < before)
}

/// glibc's `struct mallinfo2`.
#[repr(C)]
#[derive(Default)]
pub struct MallInfo<T> {
    arena: T,
    ordblks: T,
    smblks: T,
    hblks: T,
    hblkhd: T,
    usmblks: T,
    fsmblks: T,
    uordblks: T,
    fordblks: T,
    keepcost: T,
}

/// `mallinfo2`. The page-mapped backend's objects are `hblks` and `hblkhd`, its warm memory and
/// what is free in the native heap `fordblks`, the former `keepcost`. `uordblks` are the native heap's objects, glibc's, and what is resident of
/// hosted allocators' memory, of which these do not tell what objects use. Mappings of the program's own do not count.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> MallInfo<usize> {
    let mmap = adaptive::mapped();
    let (objects, backed) = adaptive::native_bytes();
    let used = objects + adaptive::glibc_bytes() + adaptive::hosted_bytes();
    // Free pages that were never written to are not resident.
    let others = resident_anonymous().saturating_sub(mmap.live_bytes + mmap.warm_bytes + used);
    let free = backed.saturating_sub(objects).min(others) + mmap.warm_bytes;
    MallInfo {
        arena: used + free,
        hblks: mmap.live_slots,
        hblkhd: mmap.live_bytes,
        uordblks: used,
        fordblks: free,
        keepcost: mmap.warm_bytes,
        ..MallInfo::default()
    }
}

/// Bytes of resident memory that no file backs; 0 without `/proc`.
fn resident_anonymous() -> usize {
    let mut buffer = [0u8; 256];
    let errno = env::errno();
    let statm = env::read_file(c"/proc/self/statm", &mut buffer).unwrap_or(&[]);
    set_errno(errno);
    let text = core::str::from_utf8(statm).unwrap_or("");
    let mut fields = text.split(' ').map(|field| field.parse().unwrap_or(0usize));
    let (resident, shared) = (fields.nth(1).unwrap_or(0), fields.next().unwrap_or(0));
    resident.saturating_sub(shared) * PAGE_BYTES
}

/// `mallinfo`: as `mallinfo2`, cut to `int` as in glibc.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> MallInfo<c_int> {
    let info = mallinfo2();
    let cut = |value: usize| c_int::try_from(value).unwrap_or(c_int::MAX);
    MallInfo {
        arena: cut(info.arena),
        hblks: cut(info.hblks),
        hblkhd: cut(info.hblkhd),
        uordblks: cut(info.uordblks),
        fordblks: cut(info.fordblks),
        keepcost: cut(info.keepcost),
        ..MallInfo::default()
    }
}

/// `malloc_stats`: the statistics on standard error.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    // What standard error refuses is lost, as in glibc.
    let _ = write!(Fd(2), "{}", adaptive::Text(&adaptive::measured_stats()));
}

/// `malloc_info`: a small XML document of our own on `stream`, with the figures of the
/// native allocator by name; EINVAL for options other than 0.
///
/// # Safety
/// `stream` is an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut c_void) -> c_int {
    if options != 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    let written = write!(Stream(stream), "{}", Xml(&adaptive::measured_stats()));
    if written.is_ok() { 0 } else { -1 }
}

/// A stream of the C library.
struct Stream(*mut c_void);

impl Write for Stream {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        unsafe extern "C" {
            fn fwrite(from: *const c_void, size: usize, count: usize, stream: *mut c_void)
            -> usize;
        }
        // SAFETY: the maker of the value keeps the stream open; the bytes are `text`'s.
        let written = unsafe { fwrite(text.as_ptr().cast(), 1, text.len(), self.0) };
        if written == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

struct Xml<'a>(&'a adaptive::Stats);

impl fmt::Display for Xml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, mmap) = (env!("CARGO_PKG_VERSION"), &self.0.mmap);
        writeln!(f, "<malloc version=\"spandrel-{version}\">")?;
        writeln!(f, "<mode>{}</mode>", adaptive::current_mode())?;
        let (objects, bytes, warm) = (mmap.live_slots, mmap.live_bytes, mmap.warm_bytes);
        writeln!(f, "<mmap objects=\"{objects}\" bytes=\"{bytes}\" warm=\"{warm}\"/>")?;
        for (figure, value) in Figure::ALL.iter().zip(self.0.native.iter().flatten()) {
            writeln!(f, "<native figure=\"{}\" value=\"{value}\"/>", figure.name())?;
        }
        writeln!(f, "</malloc>")
    }
}

/// `mallopt`: glibc's parameters do not apply to other allocators. Known ones
/// are accepted and ignored (1), so that programs that insist go on; unknown
/// ones are refused (0).
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(parameter: c_int, _value: c_int) -> c_int {
    // M_ARENA_MAX (-8) to M_TRIM_THRESHOLD (-1), and M_MXFAST (1).
    c_int::from(matches!(parameter, -8..=-1 | 1))
}

/// Static text for `spandrel_version`.
pub const VERSION: &[u8] = concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes();

/// The version as a C string.
pub fn version() -> *const c_char {
    VERSION.as_ptr().cast()
}
