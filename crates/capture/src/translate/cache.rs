//! Memory for translated code: executable at one address, writable at another one, never both at the same.

use core::ffi::c_void;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use spandrel_os::descriptors::Kept;

use crate::Refused;

/// Bytes of one arena.
const ARENA_BYTES: usize = 4 << 20;
/// Arenas: 16 MiB of code.
pub const ARENAS: usize = 4;
/// How far code may be from the code that it translates, so that operands relative to the instruction pointer reach theirs: 2 GiB, less what a module may be long.
const REACH: u64 = (1 << 31) - (256 << 20);
/// Steps by which a free place is looked for.
const STEP: u64 = ARENA_BYTES as u64;

/// Executable memory.
struct Arena {
    run: u64,
    write: *mut u8,
    used: usize,
}

impl Arena {
    /// Near an address: the part of that number of the file.
    fn near(address: u64, file: &Kept, number: usize) -> Result<Self, Refused> {
        // Another file there would be executed.
        let file = file.checked().map_err(refused)?;
        let offset = (number * ARENA_BYTES) as u64;
        let map = |at: u64, access, flags: MapFlags| {
            let flags = flags | MapFlags::SHARED;
            // SAFETY: at a place that is free, or that the kernel chooses.
            unsafe { mmap(at as *mut c_void, ARENA_BYTES, access, flags, file, offset) }
        };
        let middle = address & !(STEP - 1);
        let places = (1..REACH / STEP)
            .flat_map(|n| [middle.checked_sub(n * STEP), middle.checked_add(n * STEP)]);
        let executable = ProtFlags::READ | ProtFlags::EXEC;
        let mut places = places.flatten().filter(|at| (1 << 16..1 << 47).contains(at));
        // Where all places are taken, there is no memory.
        let mut why = Errno::NOMEM;
        let mut run = |at| match map(at, executable, MapFlags::FIXED_NOREPLACE) {
            Ok(run) => Some(run),
            Err(Errno::EXIST) => None,
            Err(other) => {
                why = other;
                None
            }
        };
        let run = places.find_map(&mut run).ok_or_else(|| refused(why))?;
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        let write = map(0, writable, MapFlags::empty()).map_err(|why| {
            // SAFETY: the mapping was made above.
            let _ = unsafe { munmap(run, ARENA_BYTES) };
            refused(why)
        })?;
        Ok(Self { run: run as u64, write: write.cast(), used: 0 })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: both mappings are the arena's, and nothing runs there.
        unsafe {
            let _ = munmap(self.run as *mut c_void, ARENA_BYTES);
            let _ = munmap(self.write.cast(), ARENA_BYTES);
        }
    }
}

/// What an error of the kernel says: it forbids memory with code, or has none.
fn refused(why: Errno) -> Refused {
    match why {
        Errno::ACCESS | Errno::PERM | Errno::NOSYS | Errno::INVAL => Refused::Code,
        _ => Refused::Memory,
    }
}

/// A file in memory with room for all arenas.
fn new_file() -> Result<Kept, Refused> {
    let file = memfd_create(c"spandrel-code", MemfdFlags::CLOEXEC | MemfdFlags::EXEC)
        .or_else(|_| memfd_create(c"spandrel-code", MemfdFlags::CLOEXEC))
        .and_then(Kept::new)
        .map_err(refused)?;
    retry_on_intr(|| ftruncate(&*file, (ARENAS * ARENA_BYTES) as u64)).map_err(refused)?;
    Ok(file)
}

/// See the head of this file.
#[derive(Default)]
pub struct Cache {
    arenas: [Option<Arena>; ARENAS],
    /// What all arenas are parts of. It stays open: a program that has used all its descriptors has code that is new.
    file: Option<Kept>,
    /// A thread may begin in the code.
    is_kept: bool,
}

/// Room in an arena.
pub struct Room<'a> {
    /// Where it is run.
    pub address: u64,
    pub bytes: &'a mut [u8],
    /// Where the arena begins.
    pub start: u64,
    /// The arena is new.
    pub is_fresh: bool,
}

impl Cache {
    /// Room for at least `least` bytes of code near an address.
    ///
    /// # Errors
    /// [`Refused::Size`]: the cache is full. [`Refused::Memory`] and [`Refused::Code`]: the kernel refuses.
    pub fn room(&mut self, near: u64, least: usize) -> Result<Room<'_>, Refused> {
        let serves =
            |arena: &Arena| arena.run.abs_diff(near) < REACH && ARENA_BYTES - arena.used >= least;
        let place = self.arenas.iter().position(|arena| arena.as_ref().is_some_and(serves));
        let place = match place {
            Some(place) => place,
            None => {
                let free = self.arenas.iter().position(Option::is_none).ok_or(Refused::Size)?;
                let file = match self.file.take() {
                    Some(file) => file,
                    None => new_file()?,
                };
                let arena = Arena::near(near, &file, free);
                self.file = Some(file);
                let slot = self.arenas.get_mut(free).ok_or(Refused::Size)?;
                *slot = Some(arena?);
                free
            }
        };
        let arena = self.arenas.get_mut(place).and_then(Option::as_mut).ok_or(Refused::Size)?;
        // SAFETY: the arena's own bytes, which nothing else refers to.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(arena.write.add(arena.used), ARENA_BYTES - arena.used)
        };
        let is_fresh = arena.used == 0;
        Ok(Room { address: arena.run + arena.used as u64, bytes, start: arena.run, is_fresh })
    }

    /// The first bytes of a room are code now: up to that address.
    pub fn take(&mut self, end: u64) {
        for arena in self.arenas.iter_mut().flatten() {
            if (arena.run..=arena.run + ARENA_BYTES as u64).contains(&end) {
                arena.used = (end - arena.run).next_multiple_of(16) as usize;
            }
        }
    }

    /// Writes over code.
    pub fn patch(&mut self, address: u64, bytes: &[u8]) {
        for arena in self.arenas.iter_mut().flatten() {
            let from = address.wrapping_sub(arena.run) as usize;
            if from < ARENA_BYTES && ARENA_BYTES - from >= bytes.len() {
                // SAFETY: within the arena.
                unsafe {
                    arena.write.add(from).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                }
            }
        }
    }

    /// Forgets all code, and where it lay: other modules may need the arenas.
    pub fn clear(&mut self) {
        let arenas = core::mem::take(&mut self.arenas);
        // Code that is made from now on is in other parts.
        if core::mem::take(&mut self.is_kept) {
            core::mem::forget(arenas);
            // Its parts stay as they are.
            self.file = None;
        }
    }

    /// Has the code that there is by now be there for ever.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Bytes of code.
    pub fn bytes(&self) -> usize {
        self.arenas.iter().flatten().map(|arena| arena.used).sum()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.clear();
    }
}
