//! The process environment, files and identity, read without allocating.

use core::ffi::{CStr, c_char};

use crate::call::call;

/// Whether libc knows the environment yet: it runs relocations and other
/// libraries' earliest functions before, and malloc may be called that early.
pub fn is_there() -> bool {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: reads a pointer that libc defines.
    !unsafe { environ }.is_null()
}

/// The value of an environment variable. The bytes belong to the environment
/// and stay valid until the program changes it; use them at once.
///
/// Programs that run with more rights than their caller have none: our
/// variables name files to read and to write.
pub fn get(name: &CStr) -> Option<&'static [u8]> {
    unsafe extern "C" {
        fn secure_getenv(name: *const c_char) -> *mut c_char;
    }
    // SAFETY: `name` is NUL-terminated; secure_getenv neither allocates nor locks.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: getenv returns a NUL-terminated string.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// Calls a function with the name of each variable. Programs with more rights than their caller have none, as in [`get`].
pub fn each_name(mut function: impl FnMut(&[u8])) {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: no preconditions.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return;
    }
    // SAFETY: reads a pointer that libc defines.
    let mut entry = unsafe { environ };
    while !entry.is_null() {
        // SAFETY: the array ends in a null pointer, which was not reached.
        let text = unsafe { *entry };
        if text.is_null() {
            return;
        }
        // SAFETY: an entry is a NUL-terminated string.
        let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
        function(bytes.split(|byte| *byte == b'=').next().unwrap_or_default());
        // SAFETY: the array goes on up to its null pointer.
        entry = unsafe { entry.add(1) };
    }
}

/// Removes a variable, so that children do not inherit it.
pub fn remove(name: &CStr) {
    // SAFETY: `name` is NUL-terminated. Called while the process has one thread.
    unsafe { libc::unsetenv(name.as_ptr()) };
}

/// The name that the program was called by, without directories.
pub fn program() -> &'static [u8] {
    unsafe extern "C" {
        static program_invocation_short_name: *const c_char;
    }
    // SAFETY: glibc sets it before any constructor runs; it may be null there.
    let name = unsafe { program_invocation_short_name };
    if name.is_null() {
        return b"?";
    }
    // SAFETY: a non-null value is a NUL-terminated string that lives forever.
    unsafe { CStr::from_ptr(name) }.to_bytes()
}

/// The process id.
pub fn pid() -> i32 {
    // SAFETY: no preconditions.
    unsafe { call(libc::SYS_getpid, []) }.unwrap_or(0) as i32
}

/// Reads a whole file into `buffer`; the bytes read, or what `errno` would be,
/// which itself is left as it was found. A file larger than the buffer is `EFBIG`.
///
/// By system calls, because libc's functions are points where a thread may be
/// cancelled, and this happens within malloc.
pub fn read_file<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<&'a [u8], i32> {
    read_by_calls(path, buffer).map(|len| buffer.get(..len).unwrap_or(&[]))
}

/// As [`read_file`], as much of the file as fits; nothing where it cannot be read.
pub fn read_beginning<'a>(path: &CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    let len = Reading::open(path).and_then(|file| file.read(buffer)).unwrap_or(0);
    buffer.get(..len).unwrap_or(&[])
}

fn read_by_calls(path: &CStr, buffer: &mut [u8]) -> Result<usize, i32> {
    let file = Reading::open(path)?;
    let mut filled = 0;
    loop {
        let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) else {
            return Err(libc::EFBIG);
        };
        match file.read(rest)? {
            0 => return Ok(filled),
            count => filled += count,
        }
    }
}

/// A file that is being read by system calls.
pub(crate) struct Reading(usize);

impl Reading {
    /// Opens a file; else what `errno` is.
    pub(crate) fn open(path: &CStr) -> Result<Self, i32> {
        let (here, flags) = (libc::AT_FDCWD as usize, (libc::O_RDONLY | libc::O_CLOEXEC) as usize);
        // SAFETY: `path` is NUL-terminated.
        unsafe { call(libc::SYS_openat, [here, path.as_ptr().expose_provenance(), flags]) }
            .map(Self)
    }

    /// The next bytes, as many as there are and fit; 0: none, or there is no room.
    pub(crate) fn read(&self, into: &mut [u8]) -> Result<usize, i32> {
        loop {
            let to = into.as_mut_ptr().expose_provenance();
            // SAFETY: the pointer and length describe `into`.
            match unsafe { call(libc::SYS_read, [self.0, to, into.len()]) } {
                Err(libc::EINTR) => {}
                outcome => return outcome,
            }
        }
    }
}

impl Reading {
    /// The words at an offset, in bytes. Returns how many were read; 0 also if that fails.
    pub(crate) fn read_at(&self, into: &mut [u64], offset: usize) -> usize {
        loop {
            let bytes = size_of_val(into);
            let to = into.as_mut_ptr().expose_provenance();
            // SAFETY: the pointer and length describe `into`, of which any bytes are words.
            match unsafe { call(libc::SYS_pread64, [self.0, to, bytes, offset]) } {
                Ok(read) => return read / 8,
                Err(libc::EINTR) => {}
                Err(_) => return 0,
            }
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // SAFETY: the descriptor was opened by `open` and is closed once.
        let _ = unsafe { call(libc::SYS_close, [self.0]) };
    }
}

/// The calling thread's `errno`.
pub fn errno() -> i32 {
    // SAFETY: the location is valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Whether the calling thread may take another identity: it has capabilities, or more than one user or group. Three system calls.
pub fn may_change_identity() -> bool {
    let (mut users, mut groups) = ([0; 3], [0; 3]);
    let places = |three: &mut [u32; 3]| {
        three.each_mut().map(|one| core::ptr::from_mut(one).expose_provenance())
    };
    // SAFETY: each place is that of one of three numbers.
    let failed = unsafe {
        call(libc::SYS_getresuid, places(&mut users)).is_err()
            || call(libc::SYS_getresgid, places(&mut groups)).is_err()
    };
    let is_one = |[first, others @ ..]: [u32; 3]| others == [first; 2];
    failed || !is_one(users) || !is_one(groups) || has_capabilities()
}

/// Whether the calling thread has capabilities that it may give up, or the kernel does not tell.
fn has_capabilities() -> bool {
    /// `_LINUX_CAPABILITY_VERSION_3`: two words of each kind.
    const VERSION: u32 = 0x2008_0522;
    let mut header = [VERSION, 0];
    // Effective, permitted, inheritable; the same of the higher ones.
    let mut words = [0_u32; 6];
    let places = [header.as_mut_ptr().expose_provenance(), words.as_mut_ptr().expose_provenance()];
    // SAFETY: both are as long as the version says.
    let told = unsafe { call(libc::SYS_capget, places) };
    told.is_err() || words.iter().any(|word| *word != 0)
}

/// Where the calling thread's `errno` is.
pub fn errno_address() -> *const i32 {
    // SAFETY: no preconditions.
    unsafe { libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub fn set_errno(value: i32) {
    // SAFETY: the location is valid for the calling thread.
    unsafe { *libc::__errno_location() = value };
}
