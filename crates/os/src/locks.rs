//! Locks that end with this process, though a child of a fork goes on.
//!
//! A lock of `flock` belongs to the open file, and a child shares that: a child that outlives its parent would keep the lock. So the child has the descriptor lead to the
//! same file, opened anew, as what is mapped was from the beginning. A child that was made without the C library's `fork` keeps the lock until it ends or executes a program.

use core::ffi::CStr;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering::*};

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::{DupFlags, dup3};

use crate::cpath::CPath;
use crate::descriptors::{Identity, Place, identity};

/// In [`HELD`]: a thread is about to write the descriptor there.
const TAKEN: i32 = -1;
/// Locks of a process that its children give up. They keep more than these.
const MOST: usize = 256;

/// Descriptors with a lock, plus one; 0: the place is free.
static HELD: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];
/// Their files: the program may have closed a descriptor since, and have another file there.
static FILES: [Place; MOST] = [const { Place::new() }; MOST];
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

/// The file behind a descriptor has a lock that children give up, or is about to have it. Costs a look at 256 words, as does [`forget`].
pub fn note(file: RawFd) {
    if !IS_REGISTERED.load(Acquire) {
        // Two threads may do it at a time: the second call of the function finds nothing.
        // SAFETY: the function may run in any child.
        unsafe { libc::pthread_atfork(None, None, Some(give_up)) };
        IS_REGISTERED.store(true, Release);
    }
    let held = file + 1;
    let known = |(place, _): &(&AtomicI32, &Place)| place.load(Relaxed) == held;
    if let Some((_, of)) = HELD.iter().zip(&FILES).find(known) {
        // The descriptor may have become another file's.
        of.set(identity_of(file).unwrap_or((0, 0)));
        return;
    }
    let free = |place: &&AtomicI32| place.compare_exchange(0, TAKEN, AcqRel, Relaxed).is_ok();
    if let Some((place, of)) = HELD.iter().zip(&FILES).find(|(place, _)| free(place)) {
        of.set(identity_of(file).unwrap_or((0, 0)));
        place.store(held, Release);
    }
}

/// The lock has ended, or the descriptor is about to be closed.
pub fn forget(file: RawFd) {
    let held = file + 1;
    for place in &HELD {
        let _ = place.compare_exchange(held, 0, AcqRel, Relaxed);
    }
}

/// The child of a fork gives the locks up. Allocates nothing.
extern "C" fn give_up() {
    for (place, of) in HELD.iter().zip(&FILES) {
        let held = place.swap(0, AcqRel);
        if held > 0 && identity_of(held - 1) == Some(of.get()) {
            have_open_anew(held - 1);
        }
    }
}

/// Of the file that a number leads to.
fn identity_of(number: RawFd) -> Option<Identity> {
    // SAFETY: the descriptor is only asked for.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    fstat(file).ok().map(|status| identity(&status))
}

fn have_open_anew(number: RawFd) {
    // SAFETY: the number is that of a descriptor, which its owner keeps.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    // Of a socket, without `/proc`, or without the right to read the file any more, what uses the number finds an empty file.
    let nothing = || open(c"/dev/null", OFlags::RDONLY);
    if let Some(opened) = open_anew(&*place, false).or_else(nothing) {
        let _ = dup3(&opened, &mut place, DupFlags::CLOEXEC);
        return;
    }
    // No number is free: the next one is this, or there is none.
    // SAFETY: the number is this function's from here on, in a child that has one thread.
    unsafe { libc::close(number) };
    let _ = nothing().map(ManuallyDrop::new);
}

fn open(path: &CStr, access: OFlags) -> Option<OwnedFd> {
    openat(CWD, path, access | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).ok()
}

/// The file behind a descriptor, opened once more: without its lock. `None`: there is no `/proc`, or the process may not open the file any more.
pub fn open_anew(file: &impl AsRawFd, writes: bool) -> Option<OwnedFd> {
    let access = if writes { OFlags::RDWR } else { OFlags::RDONLY };
    open(CPath::of_descriptor(file.as_raw_fd()).as_c(), access)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::{read, write};

    /// As the log of a heap does that gets a new one.
    #[test]
    fn a_descriptor_that_has_become_another_file_is_given_up_as_that() {
        let place =
            std::env::temp_dir().join(std::format!("spandrel-locks-two-{}", std::process::id()));
        let paths = ["a", "b"].map(|name| place.with_extension(name));
        let [mut file, other] = paths.each_ref().map(|path| {
            std::fs::write(path, "text").unwrap();
            open(&std::ffi::CString::new(path.to_str().unwrap()).unwrap(), OFlags::RDONLY).unwrap()
        });
        note(file.as_raw_fd());
        dup3(&other, &mut file, DupFlags::CLOEXEC).unwrap();
        note(file.as_raw_fd());
        let held = file.as_raw_fd() + 1;
        let known = HELD.iter().zip(&FILES).filter(|(place, _)| place.load(Relaxed) == held);
        let known: std::vec::Vec<_> = known.map(|(_, of)| Some(of.get())).collect();
        assert_eq!(known, [identity_of(other.as_raw_fd())]);
        forget(file.as_raw_fd());
        paths.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }

    #[test]
    fn a_child_gives_locks_up_and_has_the_file() {
        let place =
            std::env::temp_dir().join(std::format!("spandrel-locks-{}", std::process::id()));
        std::fs::write(&place, "text").unwrap();
        let path = std::ffi::CString::new(place.to_str().unwrap()).unwrap();
        let [file, other] = [(); 2].map(|()| open(&path, OFlags::RDONLY).unwrap());
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        note(file.as_raw_fd());
        note(file.as_raw_fd());
        let (ready, told) = rustix::pipe::pipe().unwrap();
        // SAFETY: the child makes system calls alone.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut text = [0; 4];
            let is_read = read(&file, &mut text[..]) == Ok(4) && text == *b"text";
            let _ = write(&told, &[u8::from(is_read)]);
            // SAFETY: as above.
            unsafe {
                libc::pause();
                libc::_exit(0)
            }
        }
        drop(told);
        let mut answer = [0];
        read(&ready, &mut answer[..]).unwrap();
        assert_eq!(answer, [1], "the child reads the file");
        let lock = || flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert!(lock().is_err(), "the parent has it");
        forget(file.as_raw_fd());
        drop(file);
        let locked = lock();
        // SAFETY: a child of this process.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, core::ptr::null_mut(), 0);
        }
        std::fs::remove_file(&place).unwrap();
        locked.expect("the child has given it up");
    }
}
