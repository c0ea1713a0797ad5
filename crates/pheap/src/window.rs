//! The window of the address space in which fixed heaps lie, which the allocators leave free, and the bases in it that are tried for a new
//! heap.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;

use crate::error::Error;

/// Fixed heaps lie from 88 to 103 TiB.
pub const WINDOW: Range<u64> = 88 << 40..103 << 40;
/// Bases are multiples of this from the beginning of the window on.
pub const STEP: u64 = 1 << 30;
/// Bases that are drawn before the window is searched from one end to the other. In a window that is half full all 64 are taken once in
/// 2^64 times. Drawn bases differ between processes, so that a later process can open the heaps of several side by side.
const DRAWN: u64 = 64;

/// Pages at which fixed heaps began that this process has had open, the latest ones; 0: none. Not addresses: a look at the program's variables for
/// such into heaps would find them here.
static KNOWN: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
/// How many were noted.
static NOTED: AtomicUsize = AtomicUsize::new(0);

/// Notes the base of a heap. A new one leaves it free, also when the heap is closed: the process may open it again beside the new one. Costs a look
/// at 256 words.
pub fn note(base: u64) {
    let page = base / PAGE_BYTES as u64;
    if KNOWN.iter().all(|known| known.load(Relaxed) != page)
        && let Some(place) = KNOWN.get(NOTED.fetch_add(1, Relaxed) % KNOWN.len())
    {
        place.store(page, Relaxed);
    }
}

/// Whether the bytes from one base to another belong to no noted heap's beginning.
fn is_free_of_noted(range: &Range<u64>) -> bool {
    let begins = KNOWN.iter().map(|known| known.load(Relaxed) * PAGE_BYTES as u64);
    begins.filter(|begin| *begin != 0).all(|begin| !range.contains(&begin))
}

/// The bases that are tried for a heap of that many bytes, in this order: drawn ones that leave noted heaps, of as many bytes each, all their
/// room; drawn ones that leave the places where they begin; drawn ones; all.
fn bases(random: u64, bytes: usize) -> impl Iterator<Item = u64> {
    let room = (WINDOW.end - WINDOW.start).checked_sub(bytes as u64);
    let places = room.map_or(0, |room| room / STEP + 1);
    // Weyl's sequence: the golden ratio of 2^64 spreads what follows the first over the whole window.
    let drawn =
        (0..DRAWN).map(move |turn| random.wrapping_add(turn.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let drawn = drawn.filter(move |_| places > 0).map(move |number| number % places.max(1));
    let place = |number| WINDOW.start + number * STEP;
    let drawn = drawn.map(place);
    let bytes = bytes as u64;
    let far = move |base: &u64| is_free_of_noted(&(base.saturating_sub(bytes) + 1..base + bytes));
    let beside = move |base: &u64| is_free_of_noted(&(*base..base + bytes));
    let best = drawn.clone().filter(far).chain(drawn.clone().filter(beside));
    best.chain(drawn).chain((0..places).map(place))
}

/// Calls `make` with the first base at which `bytes` bytes are free. Costs two system calls for each base that is tried, 15,552 bases at
/// most.
///
/// # Errors
/// Those of `make`, except [`Error::BaseTaken`]: another thread was faster, and the next base is tried. [`Error::WindowFull`]: no part
/// of the window is long enough; [`Error::NoMemory`]: a limit of the address space forbids it.
pub fn place<T>(
    random: u64,
    bytes: usize,
    make: impl Fn(u64) -> Result<T, Error>,
) -> Result<T, Error> {
    for base in bases(random, bytes) {
        match is_free(base, bytes)? {
            false => {}
            true => match make(base) {
                Err(Error::BaseTaken(_)) => {}
                made => return made,
            },
        }
    }
    Err(Error::WindowFull(bytes))
}

/// Whether nothing is mapped in `bytes` bytes from a base on.
///
/// # Errors
/// [`Error::NoMemory`]: the kernel would map nothing of that length anywhere.
fn is_free(base: u64, bytes: usize) -> Result<bool, Error> {
    let base = usize::try_from(base).map_err(|_| Error::NoMemory)?;
    let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
    match vm::reserve_at(base, bytes) {
        Ok(at) => {
            // SAFETY: reserved above, and used by no other code.
            unsafe { vm::release(at.as_ptr(), bytes) };
            Ok(true)
        }
        Err(libc::EEXIST) => Ok(false),
        Err(libc::ENOMEM) => Err(Error::NoMemory),
        Err(why) => Err(Error::System(why)),
    }
}

/// Whether the first page of a heap at that base is taken. Then a smaller limit does not help.
pub fn begins_in_use(base: u64) -> bool {
    matches!(is_free(base, PAGE_BYTES), Ok(false))
}

/// Whether the address space has room for `bytes` bytes more.
pub fn has_room(bytes: usize) -> bool {
    let Some(at) = vm::reserve(bytes) else { return false };
    // SAFETY: reserved above, and used by no other code.
    unsafe { vm::release(at.as_ptr(), bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::LIMIT;
    use std::vec::Vec;

    #[test]
    fn bases_lie_in_the_window_and_the_search_ends() {
        for bytes in [1 << 20, 256 << 30, 14 << 40, 15 << 40] {
            let all: Vec<_> = bases(u64::MAX - 1, bytes).collect();
            for base in &all {
                assert!(WINDOW.contains(base) && base + bytes as u64 <= WINDOW.end, "{base:#x}");
                assert_eq!((base - WINDOW.start) % STEP, 0);
            }
            assert!(all.contains(&WINDOW.start) && all.len() > DRAWN as usize);
        }
        assert_eq!(bases(7, (15 << 40) + 1).count(), 0);
        // First those that are far from the heaps of other tests.
        let mut drawn: Vec<_> = bases(7, 256 << 30).take(3 * DRAWN as usize).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert!(drawn.len() >= DRAWN as usize, "drawn bases differ");
    }

    /// Each pair of new heaps would exclude each other once in thirty times otherwise.
    #[test]
    fn new_heaps_leave_the_places_of_noted_ones() {
        let far = |one: u64, other: u64| one.abs_diff(other) >= LIMIT as u64;
        let base = bases(11, LIMIT).next().unwrap();
        note(base);
        note(base);
        assert_eq!(
            KNOWN.iter().filter(|known| known.load(Relaxed) == base / PAGE_BYTES as u64).count(),
            1
        );
        // The same number draws another one, and no number leads near it.
        for random in (11..4000).step_by(7) {
            assert!(bases(random, LIMIT).next().is_some_and(|next| far(next, base)), "{random}");
        }
    }

    #[test]
    fn a_base_that_is_taken_is_passed_over() {
        let mut tried = Vec::new();
        let tried = std::sync::Mutex::new(&mut tried);
        let made = place(3, 1 << 30, |base| {
            let mut tried = tried.lock().unwrap();
            tried.push(base);
            if tried.len() < 5 { Err(Error::BaseTaken(base)) } else { Ok(base) }
        });
        let base = made.unwrap();
        assert_eq!(tried.lock().unwrap().last(), Some(&base));
        let taken = vm::reserve_at(base as usize, 4096).unwrap();
        assert!(begins_in_use(base) && is_free(base, 1 << 30) == Ok(false));
        // SAFETY: reserved above.
        unsafe { vm::release(taken.as_ptr(), 4096) };
        assert!(!begins_in_use(base));
        assert_eq!(place(3, 1 << 30, |_| Err::<(), _>(Error::Locked)), Err(Error::Locked));
        assert_eq!(place(3, 16 << 40, |_| Ok(())), Err(Error::WindowFull(16 << 40)));
    }
}
