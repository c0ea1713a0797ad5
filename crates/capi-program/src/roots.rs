//! Variables of the program that lead into the state: the state remembers where they lead, and the next process has them lead there again.
//!
//! The memory of a root in the state: the number of words, the words, one after the other.

use std::ptr::NonNull;

use capi_durable::failure::Failure;
use spandrel::durable::Arena;
use spandrel_adapter::Root;
use spandrel_pheap::ROOT_COUNT;
use spandrel_pmem::Notes as _;

use crate::load::Array;

/// In front of a root's name.
const PREFIX: &str = "program.";

/// Words of the program, and where the state remembers them.
struct Words {
    /// Where they lie in the program.
    at: Vec<usize>,
    /// Where they lie in the state.
    kept: NonNull<usize>,
}

/// What is looked at at the end of each batch.
#[derive(Default)]
pub struct Roots {
    words: Vec<Words>,
}

/// Where the words of a root lie in the program.
fn places(array: &Array) -> Result<Vec<usize>, String> {
    let Root { name, stride, words, count, .. } = &array.rule;
    let none = [0; spandrel_adapter::ARGUMENTS];
    // SAFETY: the adapter is right about the program.
    let (from, count) = unsafe {
        let count = match (&array.count, count) {
            (Some(count), _) => count.read(&none),
            (None, spandrel_adapter::Count::Number(count)) => *count,
            (None, spandrel_adapter::Count::Value(_)) => 0,
        };
        (array.array.read(&none), count)
    };
    if from == 0 || !(1..=1 << 24).contains(&count) {
        return Err(format!(
            "root {name}: the program has {count} elements at {from:#x}; the adapter is not for this version"
        ));
    }
    let each = |number: usize| words.iter().map(move |word| from + number * stride + word);
    Ok((0..count).flat_map(each).collect())
}

/// Makes an object in the state, and notes it.
fn make(arena: &Arena, bytes: usize) -> Result<NonNull<u8>, Failure> {
    let object = arena.alloc_zeroed(bytes)?;
    arena.medium().notes().note(object.as_ptr(), bytes);
    Ok(object)
}

/// The object that a root of the arena leads to, if there is one.
fn find(arena: &Arena, name: &str) -> Result<Option<NonNull<usize>>, Failure> {
    let Some(index) = arena.find_root(name)? else { return Ok(None) };
    Ok(arena.get_root(index)?.map(NonNull::cast))
}

fn set(arena: &Arena, name: &str, object: NonNull<u8>) -> Result<(), Failure> {
    let index = arena.named_root_of(name, 0)?;
    Ok(arena.set_root(index, Some(object))?)
}

impl Roots {
    /// Whether the state has a root of the adapter.
    ///
    /// # Errors
    /// Those of the heap.
    pub fn are_there(arena: &Arena, arrays: &[Array]) -> Result<bool, Failure> {
        for array in arrays {
            if find(arena, &format!("{PREFIX}{}", array.rule.name))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a state has no root at all: no program has used it.
    ///
    /// # Errors
    /// Those of the heap.
    pub fn is_empty(arena: &Arena) -> Result<bool, Failure> {
        for index in 0..ROOT_COUNT {
            if arena.get_root(index)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Of the words that `kept` finds or makes for each array, and for where its variables lie.
    fn of(
        arrays: &[Array],
        kept: impl Fn(&Root, &[usize]) -> Result<Result<NonNull<usize>, String>, Failure>,
    ) -> Result<Result<Self, String>, Failure> {
        let mut roots = Self::default();
        for array in arrays {
            let at = match places(array) {
                Ok(at) => at,
                Err(why) => return Ok(Err(why)),
            };
            match kept(&array.rule, &at)? {
                Ok(_) if array.rule.constant => {}
                Ok(kept) => roots.words.push(Words { at, kept }),
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(roots))
    }

    /// Moves what the variables lead to into a new state.
    ///
    /// # Errors
    /// In words, or those of the heap.
    ///
    /// # Safety
    /// The calling thread runs the first batch of the state, and the program has reached the point. The adapter is right about it.
    pub unsafe fn move_in(
        arena: &Arena,
        arrays: &[Array],
    ) -> Result<Result<Self, String>, Failure> {
        Self::of(arrays, |rule, at| {
            let kept = make(arena, (at.len() + 1) * size_of::<usize>())?;
            let words = kept.cast::<usize>();
            for (number, place) in at.iter().enumerate() {
                let place = *place as *mut usize;
                // SAFETY: a variable of the program.
                let old = unsafe { place.read() } as *const u8;
                // One that leads nowhere yet: a list without elements.
                if old.is_null() {
                    continue;
                }
                let object = make(arena, rule.object_bytes)?;
                // SAFETY: the adapter says that the variable leads to an object of as many bytes; the other one was made for them.
                unsafe {
                    object.as_ptr().copy_from_nonoverlapping(old, rule.object_bytes);
                    place.write(object.as_ptr() as usize);
                    words.add(number + 1).write(object.as_ptr() as usize);
                }
            }
            // SAFETY: as above.
            unsafe { words.write(at.len()) };
            set(arena, &format!("{PREFIX}{}", rule.name), kept)?;
            Ok(Ok(words))
        })
    }

    /// Has the variables lead to where they did.
    ///
    /// # Errors
    /// In words: the program has another number of variables. Those of the heap.
    ///
    /// # Safety
    /// As for [`Roots::move_in`], of a state that has the roots.
    pub unsafe fn lead_back(
        arena: &Arena,
        arrays: &[Array],
    ) -> Result<Result<Self, String>, Failure> {
        Self::of(arrays, |rule, at| {
            let name = &rule.name;
            let Some(words) = find(arena, &format!("{PREFIX}{name}"))? else {
                return Ok(Err(format!(
                    "root {name}: the state has none of that name; it was made with another adapter"
                )));
            };
            // SAFETY: made by `move_in`, of a number and as many words.
            let count = unsafe { words.read() };
            if count != at.len() {
                return Ok(Err(format!(
                    "root {name}: the state has {count} words, and the program has {} as it was started; start it with the configuration that the state was made with",
                    at.len()
                )));
            }
            for (number, place) in at.iter().enumerate() {
                // SAFETY: as above; a variable of the program.
                unsafe { (*place as *mut usize).write(words.add(number + 1).read()) };
            }
            Ok(Ok(words))
        })
    }

    /// Remembers what has changed.
    ///
    /// # Safety
    /// The calling thread runs a batch of the state.
    pub unsafe fn keep(&self, arena: &Arena) {
        let notes = arena.medium().notes();
        let store = |place: *mut usize, value: usize| {
            notes.note(place.cast(), size_of::<usize>());
            // SAFETY: a word of an object of the state.
            unsafe { place.write(value) };
        };
        for Words { at, kept } in &self.words {
            for (number, place) in at.iter().enumerate() {
                // SAFETY: a variable of the program, and a word of the state's.
                let (now, known) =
                    unsafe { (*(*place as *const usize), kept.as_ptr().add(number + 1)) };
                // SAFETY: as above.
                if unsafe { known.read() } != now {
                    store(known, now);
                }
            }
        }
    }
}
