//! Variables of the program that are durable: an object of the state has their values, and they are copied at the ends of commands.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Mutex;

use spandrel::durable::Arena;
use spandrel_pages::ADDRESS_SPACE_END;
use spandrel_pmem::{Medium as _, Notes as _};

use super::layout::Layout;
use super::{LAYOUTS, VARIABLES};
use crate::failure::{self, Failure};

/// Compared and copied at a time: the block of the capture, unless another one is chosen.
const BLOCK_BYTES: usize = 32;
/// Values in the state begin at multiples of this: an address in a variable is a word that a check, a dump or a collection sees.
const ALIGN: usize = 16;
/// In the first word of the object, beside the number of variables: values are aligned. A state of an earlier version has them one behind the other, and is refused where that is elsewhere.
const ALIGNED: u64 = 1 << 63;

/// A range of the program's memory.
#[derive(Clone, Copy, PartialEq)]
struct Range {
    at: usize,
    bytes: usize,
}

/// All of them, in the order in which they were named. None is added once `is_fixed`.
struct Known {
    ranges: Vec<Range>,
    is_fixed: bool,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { ranges: Vec::new(), is_fixed: false });

/// Names durable variables: 0, or -1.
///
/// # Safety
/// The bytes stay where they are as long as the process lives, and change only in commands that write, and before init.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_variable(at: *mut c_void, bytes: usize) -> c_int {
    let name = || {
        let mut known = KNOWN.lock().map_err(|_| Failure::Nested)?;
        if known.is_fixed {
            return Err(Failure::Wrong("durable variables are named before init; call it earlier"));
        }
        if at.is_null() && bytes > 0 {
            return Err(Failure::Null);
        }
        if (at as usize).checked_add(bytes).is_none_or(|end| end > ADDRESS_SPACE_END) {
            return Err(Failure::Wrong("a variable ends within the addresses of the process"));
        }
        let range = Range { at: at as usize, bytes };
        // Each file that includes `mangosteen.h` names the variables of all.
        if bytes > 0 && !known.ranges.contains(&range) {
            known.ranges.push(range);
        }
        Ok(())
    };
    failure::number(name())
}

/// Where the values of variables lie in the object.
fn places(ranges: &[Range], align: usize) -> impl Iterator<Item = usize> {
    let head = ((ranges.len() + 1) * 8).next_multiple_of(align);
    ranges.iter().scan(head, move |next, range| {
        let at = *next;
        *next = at + range.bytes.next_multiple_of(align);
        Some(at)
    })
}

/// Refuses a section whose variables lie in another order than in the program that made the state.
fn check_layouts(arena: &Arena, ranges: &[Range]) -> Result<(), spandrel_pheap::Error> {
    // A state of an earlier version says nothing of them: from now on it does.
    let Some(index) = arena.find_root(LAYOUTS)? else { return keep_layouts(arena, ranges) };
    let object = arena.get_root(index)?.ok_or(spandrel_pheap::Error::RootName)?;
    let has = arena.usable_bytes(object)? / size_of::<[u64; 2]>();
    for (number, range) in ranges.iter().enumerate().take(has) {
        // SAFETY: within the object, which is aligned to 16.
        let [symbols, build] = unsafe { object.cast::<[u64; 2]>().add(number).read() };
        let (own, state) = (Layout::of(range.at, range.bytes), Layout { symbols, build });
        if !own.allows(state) {
            let number = |layout: Layout| layout.symbols.max(layout.build);
            return Err(spandrel_pheap::Error::Layout { heap: number(state), given: number(own) });
        }
    }
    Ok(())
}

/// Has the state say in which order the variables of sections lie.
fn keep_layouts(arena: &Arena, ranges: &[Range]) -> Result<(), spandrel_pheap::Error> {
    if ranges.is_empty() {
        return Ok(());
    }
    let object = arena.alloc_zeroed(ranges.len() * size_of::<[u64; 2]>())?;
    let at = object.as_ptr() as usize - arena.base().as_ptr() as usize;
    for (number, range) in ranges.iter().enumerate() {
        let Layout { symbols, build } = Layout::of(range.at, range.bytes);
        let place = at + number * size_of::<[u64; 2]>();
        // SAFETY: within the object, which this thread has to itself.
        unsafe {
            arena.medium().store_word(place, symbols);
            arena.medium().store_word(place + 8, build);
        }
    }
    arena.set_root(arena.named_root_of(LAYOUTS, 0)?, Some(object))
}

/// The durable variables, and the object that has their values.
pub struct Variables {
    ranges: Vec<Range>,
    object: NonNull<u8>,
}

// SAFETY: addresses; what lies there is used by the thread that runs a batch.
unsafe impl Send for Variables {}
// SAFETY: as above.
unsafe impl Sync for Variables {}

impl Variables {
    /// Copies the variables into a new state, or out of a recovered one. No variable is added from now on.
    ///
    /// # Errors
    /// `EPROTOTYPE`: the state has variables of another number or other lengths, or a section with others, or in another order. Those of an allocation.
    pub fn open(arena: &Arena) -> Result<Self, spandrel_pheap::Error> {
        let ranges = KNOWN.lock().map_or(Vec::new(), |mut known| {
            known.is_fixed = true;
            known.ranges.clone()
        });
        let lengths: Vec<u64> = std::iter::once(ranges.len() as u64 | ALIGNED)
            .chain(ranges.iter().map(|range| range.bytes as u64))
            .collect();
        let head = (lengths.len() * 8).next_multiple_of(ALIGN);
        let mut lengths_of = ranges.iter().map(|range| range.bytes.next_multiple_of(ALIGN));
        let bytes = lengths_of.try_fold(0_usize, usize::checked_add);
        let bytes = bytes.ok_or(spandrel_pheap::Error::Size(usize::MAX))?;
        if let Some(index) = arena.find_root(VARIABLES)? {
            let object = arena.get_root(index)?.ok_or(spandrel_pheap::Error::RootName)?;
            let has = arena.usable_bytes(object)?;
            let is_at_place = |align| places(&ranges, align).eq(places(&ranges, ALIGN));
            let is_same = has >= head
                && lengths.iter().enumerate().all(|(number, length)| {
                    // SAFETY: the object has room for all of them, aligned to 16.
                    let found = unsafe { object.cast::<u64>().add(number).read() };
                    found == *length || number == 0 && found == length & !ALIGNED && is_at_place(1)
                });
            if !is_same {
                let bytes = bytes as u64;
                return Err(spandrel_pheap::Error::Layout { heap: has as u64, given: bytes });
            }
            check_layouts(arena, &ranges)?;
            // SAFETY: behind the lengths there are the values.
            let this = Self { ranges, object: unsafe { object.add(head) } };
            // SAFETY: the thread that opens the state is alone.
            unsafe { this.take_in() };
            return Ok(this);
        }
        let object = arena.alloc_zeroed(head.saturating_add(bytes))?;
        let at = object.as_ptr() as usize - arena.base().as_ptr() as usize;
        for (number, length) in lengths.iter().enumerate() {
            // SAFETY: within the object, which this thread has to itself.
            unsafe { arena.medium().store_word(at + number * 8, *length) };
        }
        arena.set_root(arena.named_root_of(VARIABLES, 0)?, Some(object))?;
        keep_layouts(arena, &ranges)?;
        // SAFETY: as above.
        let this = Self { ranges, object: unsafe { object.add(head) } };
        // SAFETY: the thread that opens the state is alone.
        unsafe { this.put_out(arena) };
        Ok(this)
    }

    /// The values of the state become those of the variables, where they differ: a command that was undone may have changed them.
    ///
    /// # Safety
    /// The thread runs a batch, or a section alone.
    pub unsafe fn take_in(&self) {
        // SAFETY: promised by the caller and by the program. A variable that is the same is not written: readers of constants go on.
        unsafe { self.each(&mut |variable, value, bytes| std::ptr::copy(value, variable, bytes)) };
    }

    /// The values of the variables become those of the state, where they differ.
    ///
    /// # Safety
    /// The thread runs a batch.
    pub unsafe fn put_out(&self, arena: &Arena) {
        let notes = arena.medium().notes();
        // SAFETY: promised by the caller; the values lie in the state.
        unsafe {
            self.each(&mut |variable, value, bytes| {
                notes.note(value, bytes);
                std::ptr::copy(variable, value, bytes);
            });
        }
    }

    /// Calls `copy` with parts of variables, their values in the state and their lengths, where the two differ.
    ///
    /// # Safety
    /// As for [`Variables::take_in`].
    unsafe fn each(&self, copy: &mut dyn FnMut(*mut u8, *mut u8, usize)) {
        let mut value = self.object.as_ptr();
        for range in &self.ranges {
            for from in (0..range.bytes).step_by(BLOCK_BYTES) {
                let bytes = BLOCK_BYTES.min(range.bytes - from);
                // SAFETY: within the variable, and within the object.
                unsafe {
                    let (variable, value) = ((range.at + from) as *mut u8, value.add(from));
                    let (a, b) = (variable.cast_const(), value.cast_const());
                    if std::slice::from_raw_parts(a, bytes) != std::slice::from_raw_parts(b, bytes)
                    {
                        copy(variable, value, bytes);
                    }
                }
            }
            // SAFETY: at most the end of the object.
            value = unsafe { value.add(range.bytes.next_multiple_of(ALIGN)) };
        }
    }
}
