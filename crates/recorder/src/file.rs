//! The file of a process: when it is made, and how it grows.

use core::ffi::CStr;
use core::fmt::Write;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use core::{ptr, str};

use libc::{EDQUOT, EEXIST, EFBIG, EINVAL, ENAMETOOLONG, ENOSPC};
use spandrel_os::file::{self, Identity};
use spandrel_os::message::{Line, say};
use spandrel_os::{clock, env, vm};
use spandrel_pages::{ByteSize, GIB, PAGE_BYTES};
use spandrel_sync::linger;

use crate::ON;
use crate::flag::Flag;
use crate::lane;
use crate::layout::{self, BLOCK_BYTES, Block, END_AT, End, HEADER_BYTES, Kinds, MISSED_AT};

/// Longest path in bytes, its end included.
const PATH_BYTES: usize = 4096;
/// Names that are tried: a process that executes another program keeps its number.
const SAME_PID_MAX: u32 = 10_000;

/// What is to be recorded, and where.
#[derive(Clone, Copy, Debug)]
pub struct Recording<'a> {
    /// The file's name; `%p` stands for the process id, and is added if it is missing.
    pub pattern: &'a [u8],
    /// What is recorded.
    pub kinds: Kinds,
    /// Bytes that a file may have.
    pub limit: u64,
}

impl Recording<'_> {
    /// Bytes that a file may have by default: about 150 million events.
    pub const LIMIT_BYTES: u64 = GIB as u64;
}

struct File {
    /// Ends with a zero byte. Empty: there is no file yet.
    path: [u8; PATH_BYTES],
    identity: Option<Identity>,
    /// Where the next block begins.
    next: u64,
}

impl File {
    const fn new() -> Self {
        Self { path: [0; PATH_BYTES], identity: None, next: 0 }
    }

    fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.path).unwrap_or_default()
    }
}

/// What does not change after the start.
struct Plan {
    pattern: [u8; PATH_BYTES],
    len: usize,
    kinds: u32,
    limit: u64,
}

static FILE: Flag<File> = Flag::new(File::new());
static PLAN: Flag<Plan> = Flag::new(Plan { pattern: [0; PATH_BYTES], len: 0, kinds: 0, limit: 0 });
static BEGAN_NS: AtomicU64 = AtomicU64::new(0);
static MISSED: AtomicU64 = AtomicU64::new(0);

/// A page that the kernel clears in a child of a fork: [`OURS`], or what the child makes of it.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
const FORKED: u32 = 0;
const OURS: u32 = 1;
const BEGINNING: u32 = 2;

/// When the recording began, in nanoseconds of [`clock::nanos`].
pub fn began_ns() -> u64 {
    BEGAN_NS.load(Relaxed)
}

/// Begins to record, once in a process. Says why if it cannot.
pub fn start(recording: &Recording<'_>) -> bool {
    let errno = env::errno();
    let started = plan(recording)
        && mark()
        && matches!(FILE.try_with(lane::this_thread(), create), Some(true))
        && recording.kinds.bits() != 0;
    if started {
        ON.store(recording.kinds.bits(), Release);
    }
    env::set_errno(errno);
    started
}

fn plan(recording: &Recording<'_>) -> bool {
    let fits = PLAN.with(lane::this_thread(), |plan| {
        let mut len = 0;
        if recording.pattern.first() != Some(&b'/') {
            len = file::working_directory(&mut plan.pattern)?;
            *plan.pattern.get_mut(len)? = b'/';
            len += 1;
        }
        let end = len + recording.pattern.len();
        plan.pattern.get_mut(len..end)?.copy_from_slice(recording.pattern);
        let named = plan.pattern.get(len..end)?.windows(2).any(|pair| pair == b"%p");
        plan.len = end;
        if !named {
            plan.pattern.get_mut(end..end + 3)?.copy_from_slice(b".%p");
            plan.len += 3;
        }
        (plan.kinds, plan.limit) = (recording.kinds.bits(), recording.limit);
        Some(())
    });
    let fits = fits.flatten().is_some();
    if !fits {
        say(format_args!("SPANDREL_TRACE: the path is too long; nothing is recorded"));
    }
    fits
}

/// Makes the page by which a child of a fork knows itself.
fn mark() -> bool {
    let Some(page) = vm::map_wiped_on_fork(PAGE_BYTES) else {
        say(format_args!(
            "SPANDREL_TRACE: this kernel cannot tell a forked child (Linux 4.14 can); nothing is \
             recorded"
        ));
        return false;
    };
    let mark = page.as_ptr().cast::<AtomicU32>();
    // SAFETY: the page is zero, aligned, and stays for good.
    unsafe { &*mark }.store(OURS, Relaxed);
    MARK.store(mark, Release);
    true
}

/// In a child of a fork: begins a recording of its own, before its first event.
#[inline]
pub fn notice_fork() {
    let mark = MARK.load(Acquire);
    // SAFETY: null, or the page of `mark`.
    let Some(mark) = (unsafe { mark.as_ref() }) else { return };
    if mark.load(Acquire) != OURS {
        begin_in_child(mark);
    }
}

#[cold]
fn begin_in_child(mark: &AtomicU32) {
    if mark.compare_exchange(FORKED, BEGINNING, Acquire, Relaxed).is_err() {
        // Another thread is at it, or done.
        let mut looks = 0;
        while mark.load(Acquire) != OURS {
            linger(looks);
            looks = u32::saturating_add(looks, 1);
        }
        return;
    }
    // SAFETY: no thread of the parent is here, and the child's wait above.
    unsafe {
        lane::forget();
        FILE.reset(File::new());
        // Not changed after the start.
        PLAN.overrule();
    }
    MISSED.store(0, Relaxed);
    if FILE.with(lane::this_thread(), create) != Some(true) {
        ON.store(0, Relaxed);
    }
    mark.store(OURS, Release);
}

/// Makes the file; false, and said, if that cannot be.
fn create(file: &mut File) -> bool {
    BEGAN_NS.store(clock::nanos(), Relaxed);
    let made = PLAN.with(lane::this_thread(), |plan| {
        let kinds = Kinds::from_bits(plan.kinds).ok_or(EINVAL)?;
        let began_ns = clock::calendar_nanos();
        let header = layout::header(env::pid(), kinds, began_ns, env::program());
        let pattern = plan.pattern.get(..plan.len).unwrap_or(&[]);
        for attempt in 0..SAME_PID_MAX {
            write_name(pattern, attempt, &mut file.path).ok_or(ENAMETOOLONG)?;
            match file::create(file.path(), &header) {
                Err(EEXIST) => {}
                outcome => return outcome,
            }
        }
        Err(EEXIST)
    });
    match made {
        Some(Ok(identity)) => {
            (file.identity, file.next) = (Some(identity), HEADER_BYTES as u64);
            true
        }
        Some(Err(errno)) => {
            let path = str::from_utf8(file.path().to_bytes()).unwrap_or("?");
            say(format_args!(
                "SPANDREL_TRACE: {path}: cannot be made (errno {errno}); name a file in a \
                 directory that this program may write to; nothing is recorded"
            ));
            false
        }
        None => false,
    }
}

/// Writes the name of this process's file: `%p` is its number, and for all but the first attempt
/// that of the attempt.
fn write_name(pattern: &[u8], attempt: u32, path: &mut [u8; PATH_BYTES]) -> Option<()> {
    let mut number = Line::new();
    // A line never fails, and this one is short.
    let _ = write!(number, "{}", env::pid());
    if attempt > 0 {
        let _ = write!(number, "-{attempt}");
    }
    path.fill(0);
    let mut len = 0;
    let mut append = |bytes: &[u8]| {
        // Room for the end.
        let room = path.get_mut(len..len + bytes.len()).filter(|_| len + bytes.len() < PATH_BYTES);
        len += bytes.len();
        room.map(|room| room.copy_from_slice(bytes))
    };
    let mut rest = pattern;
    while let Some(at) = rest.windows(2).position(|pair| pair == b"%p") {
        append(rest.get(..at)?)?;
        append(number.as_bytes())?;
        rest = rest.get(at + 2..)?;
    }
    append(rest)
}

/// A fresh block for a lane; `None`: the recording is over, or a signal handler came while its thread
/// was here.
pub fn next_block(thread: u32) -> Option<NonNull<Block>> {
    let block = FILE.with(thread, |file| {
        let identity = file.identity?;
        let limit = PLAN.with(thread, |plan| plan.limit).unwrap_or(u64::MAX);
        if file.next + BLOCK_BYTES as u64 > limit {
            stop(file, identity, End::Limit, 0);
            return None;
        }
        match file::append(file.path(), identity, file.next, BLOCK_BYTES) {
            Ok(block) => {
                file.next += BLOCK_BYTES as u64;
                Some(block.cast())
            }
            Err(errno) => {
                let full = matches!(errno, ENOSPC | EDQUOT | EFBIG);
                stop(file, identity, if full { End::Full } else { End::Error }, errno);
                None
            }
        }
    });
    block.flatten()
}

/// Takes a block that is full out of memory; it is in the file.
pub fn give_back(block: NonNull<Block>) {
    // SAFETY: it was mapped by `try_next_block`, and its lane has let it go.
    unsafe { file::unmap(block.cast(), BLOCK_BYTES) };
}

/// Ends the recording before the program, and says why.
#[cold]
fn stop(file: &mut File, identity: Identity, end: End, errno: i32) {
    ON.store(0, Relaxed);
    file.identity = None;
    // What cannot be written does not say so either.
    let _ = file::amend(file.path(), identity, END_AT as u64, &end.to_bytes(file.next));
    let path = str::from_utf8(file.path().to_bytes()).unwrap_or("?");
    let size = ByteSize(file.next as usize);
    match end {
        End::Limit => say(format_args!(
            "SPANDREL_TRACE: {path}: the recording has reached its limit of {size} and ends here; \
             SPANDREL_TRACE_LIMIT sets another"
        )),
        _ => say(format_args!(
            "SPANDREL_TRACE: {path}: cannot grow beyond {size} (errno {errno}); the recording ends \
             here"
        )),
    }
}

/// An event could not be written: the recording is over, or a signal handler came while its thread
/// was at the file.
#[cold]
pub fn note_missed(thread: u32) {
    let missed = MISSED.fetch_add(1, Relaxed) + 1;
    FILE.with(thread, |file| {
        let identity = file.identity?;
        file::amend(file.path(), identity, MISSED_AT as u64, &missed.to_le_bytes()).ok()
    });
}

/// Says in the file that the program has come to its end.
pub fn finish() {
    if ON.load(Relaxed) == 0 {
        return;
    }
    notice_fork();
    FILE.with(lane::this_thread(), |file| {
        let identity = file.identity?;
        let end = End::Exit.to_bytes(file.next);
        file::amend(file.path(), identity, END_AT as u64, &end).ok()
    });
}
