//! All front ends beside each other: the same writes, each front end with memory of its own. The memory ends as the same image. Notes and hooks name the same blocks, the translator these and at
//! most what masked stores of libc's functions may reach, and dirty pages those of them that differ.

mod mapped;

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::*};

use mapped::PAGE;
use proptest::prelude::*;
use spandrel_capture::hooks::{atomics, copies, functions};
use spandrel_capture::translate::{Sink, Translator};
use spandrel_capture::{
    Capture, Captured, CompilerHooks, DirtyPages, Explicit, Extent, Regions, Sizes,
};
use spandrel_os::written::Written;

const PAGES: usize = 12;
const BYTES: usize = PAGES * PAGE;

unsafe extern "C" {
    fn memcpy(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
    fn memmove(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
    fn memset(to: *mut c_void, value: c_int, bytes: usize) -> *mut c_void;
}

/// A write, as code makes it.
#[derive(Clone, Debug)]
enum Op {
    /// Of 1, 2, 4, 8 or 16 bytes, at any address.
    Store(usize, u32, u128),
    Fill(usize, usize, u8),
    /// From one half of the memory to the other.
    Copy(usize, usize, usize),
    /// Over itself too.
    Move(usize, usize, usize),
    /// An atomic addition to a word.
    Add(usize, u32),
}

fn op() -> impl Strategy<Value = Op> {
    let at = || 0..BYTES - 16;
    let half = || 0..BYTES / 2 - 1;
    let len = || prop_oneof![4 => 0_usize..40, 3 => 0_usize..700, 1 => 0..BYTES / 3];
    // Few values: some writes change nothing.
    let value = || prop_oneof![Just(0), Just(u128::MAX), any::<u128>()];
    prop_oneof![
        6 => (at(), 0_u32..5, value()).prop_map(|(at, width, value)| Op::Store(at, width, value)),
        2 => (at(), len(), 0_u8..3).prop_map(|(at, len, value)| Op::Fill(at, len, value)),
        2 => (half(), half(), len()).prop_map(|(to, from, len)| Op::Copy(to, from, len)),
        2 => (at(), at(), len()).prop_map(|(to, from, len)| Op::Move(to, from, len)),
        1 => (at(), any::<u32>()).prop_map(|(at, value)| Op::Add(at & !3, value)),
    ]
}

/// How code names its writes.
enum By<'a> {
    /// Not at all: the kernel or the translator finds them.
    Nothing,
    Notes(&'a RefCell<Explicit>),
    Hooks,
}

impl By<'_> {
    fn note(&self, at: *mut u8, bytes: usize) {
        if let Self::Notes(explicit) = self {
            explicit.borrow_mut().note(at, bytes);
        }
    }
}

/// Makes a write.
///
/// # Safety
/// The memory at `base` has `BYTES` bytes, to which no reference exists, and no other thread has it.
unsafe fn write(op: &Op, base: *mut u8, by: &By<'_>) {
    let place = |at: usize| base.wrapping_add(at);
    let within = |at: usize, len: usize| len.min(BYTES - at);
    // SAFETY: all of it lies within the memory.
    unsafe {
        match *op {
            Op::Store(at, width, value) => {
                let to = place(at);
                by.note(to, 1 << width);
                if let By::Hooks = by {
                    let of_width = [
                        functions::write1,
                        functions::unaligned_write2,
                        functions::unaligned_write4,
                        functions::unaligned_write8,
                        functions::unaligned_write16,
                    ];
                    of_width[width as usize](to.cast());
                }
                match width {
                    0 => to.write_unaligned(value as u8),
                    1 => to.cast::<u16>().write_unaligned(value as u16),
                    2 => to.cast::<u32>().write_unaligned(value as u32),
                    3 => to.cast::<u64>().write_unaligned(value as u64),
                    _ => to.cast::<u128>().write_unaligned(value),
                }
            }
            Op::Fill(at, len, value) => {
                let (to, len) = (place(at), within(at, len));
                by.note(to, len);
                match by {
                    By::Hooks => copies::memset(memset, to.cast(), value.into(), len),
                    _ => memset(to.cast(), value.into(), len),
                };
            }
            Op::Copy(to, from, len) => {
                let len = len.min(BYTES / 2 - to.max(from));
                let (to, from) = (place(to), place(BYTES / 2 + from));
                by.note(to, len);
                match by {
                    By::Hooks => copies::memcpy(memcpy, to.cast(), from.cast(), len),
                    _ => memcpy(to.cast(), from.cast(), len),
                };
            }
            Op::Move(to, from, len) => {
                let len = within(to.max(from), len);
                let (to, from) = (place(to), place(from));
                by.note(to, len);
                match by {
                    By::Hooks => copies::memmove(memmove, to.cast(), from.cast(), len),
                    _ => memmove(to.cast(), from.cast(), len),
                };
            }
            Op::Add(at, value) => {
                let to = place(at).cast::<u32>();
                by.note(to.cast(), 4);
                match by {
                    By::Hooks => drop(atomics::of32::fetch_add(to, value, 0)),
                    _ => drop(AtomicU32::from_ptr(to).fetch_add(value, Relaxed)),
                }
            }
        }
    }
}

/// What translated code of a write may be noted as: the functions of libc store short ranges by vectors with a mask, which are noted as a whole.
fn may_reach(op: &Op) -> std::ops::Range<usize> {
    const VECTOR: usize = 64;
    let (at, len) = match *op {
        Op::Store(at, width, _) => (at, 1 << width),
        Op::Add(at, _) => (at, 4),
        Op::Fill(at, len, _) => (at, len.max(VECTOR)),
        Op::Copy(to, from, len) => (to, len.min(BYTES / 2 - to.max(from)).max(VECTOR)),
        Op::Move(to, from, len) => (to, len.min(BYTES - to.max(from)).max(VECTOR)),
    };
    at..at + len
}

/// The same for each front end.
type Mapped = mapped::Mapped<BYTES>;

fn run(memory: &Mapped, ops: &[Op], by: &By<'_>) {
    for op in ops {
        // SAFETY: the mapping is this test's, and has no references.
        unsafe { write(op, memory.0, by) };
    }
}

/// Blocks by their number, and what the memory has after the batch.
type Outcome = (Vec<usize>, Vec<u8>);

fn blocks(
    base: *mut u8,
    block_bytes: usize,
    end: impl FnOnce(&mut dyn FnMut(*const u8, usize)),
) -> Vec<usize> {
    let mut all = Vec::new();
    end(&mut |run, bytes| {
        let from = run as usize - base as usize;
        assert!(from.is_multiple_of(block_bytes) && bytes.is_multiple_of(block_bytes));
        all.extend(from / block_bytes..(from + bytes) / block_bytes);
    });
    assert!(all.is_sorted_by(|a, b| a < b), "disjoint and sorted");
    all
}

fn by_notes(sizes: Sizes, batches: &[Vec<Op>]) -> Vec<Outcome> {
    let mapped = Mapped::new();
    let regions = Regions::of(mapped.0, BYTES).unwrap();
    let explicit = RefCell::new(Explicit::new(sizes, regions).unwrap());
    let one = |ops: &Vec<Op>| {
        explicit.borrow_mut().begin();
        run(&mapped, ops, &By::Notes(&explicit));
        let named = blocks(mapped.0, sizes.block_bytes, |see| explicit.borrow_mut().end(see));
        (named, mapped.bytes())
    };
    batches.iter().map(one).collect()
}

fn by_hooks(sizes: Sizes, batches: &[Vec<Op>]) -> Vec<Outcome> {
    let mapped = Mapped::new();
    let regions = Regions::of(mapped.0, BYTES).unwrap();
    let mut hooks = CompilerHooks::new(sizes, &regions).unwrap();
    let one = |ops: &Vec<Op>| {
        hooks.begin();
        run(&mapped, ops, &By::Hooks);
        (blocks(mapped.0, sizes.block_bytes, |see| hooks.end(see)), mapped.bytes())
    };
    batches.iter().map(one).collect()
}

fn by_pages(sizes: Sizes, has_kernel: bool, batches: &[Vec<Op>]) -> Vec<Outcome> {
    let mapped = Mapped::new();
    let (older, fill) = mapped.older();
    // SAFETY: a private mapping that was read only so far; the capture is dropped before it.
    let mut dirty = unsafe {
        let watch = if has_kernel { Written::watch } else { Written::watch_own };
        DirtyPages::new(watch(mapped.0, BYTES), mapped.0, BYTES, sizes.block_bytes, fill).unwrap()
    };
    let one = |ops: &Vec<Op>| {
        dirty.begin();
        run(&mapped, ops, &By::Nothing);
        let named = blocks(mapped.0, sizes.block_bytes, |see| dirty.end(see));
        *older.borrow_mut() = mapped.bytes();
        (named, mapped.bytes())
    };
    batches.iter().map(one).collect()
}

struct Noted(RefCell<Captured>);

impl Sink for Noted {
    fn note(&self, at: *const u8, bytes: usize) {
        self.0.borrow_mut().note(at as usize, bytes);
    }
}

fn by_translation(sizes: Sizes, batches: &[Vec<Op>]) -> Vec<Outcome> {
    let mapped = Mapped::new();
    let noted = Noted(RefCell::new(Captured::new(sizes).unwrap()));
    let mut translator = Translator::new((mapped.0 as usize, BYTES), &[], noted).unwrap();
    let one = |ops: &Vec<Op>| {
        translator.call(|| run(&mapped, ops, &By::Nothing));
        let captured = &translator.sink().0;
        let named = blocks(mapped.0, sizes.block_bytes, |see| {
            assert_eq!(captured.borrow_mut().drain(see), Extent::Blocks);
        });
        (named, mapped.bytes())
    };
    batches.iter().map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 60 } else { 600 }))]

    #[test]
    fn the_same_writes_are_found_by_each(
        has_kernel in any::<bool>(),
        block_bytes in prop_oneof![Just(16), Just(32), Just(64), Just(128)],
        batches in prop::collection::vec(prop::collection::vec(op(), 0..40), 1..4),
    ) {
        // One batch of hooks is open in a process at a time.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let sizes = Sizes { block_bytes, ..Sizes::default() };
        let noted = by_notes(sizes, &batches);
        let pages = by_pages(sizes, has_kernel, &batches);
        let mut before = Mapped::new().bytes();
        for (number, (hooks, translated)) in
            by_hooks(sizes, &batches).iter().zip(&by_translation(sizes, &batches)).enumerate()
        {
            let (named, image) = &noted[number];
            prop_assert_eq!(&hooks.0, named, "hooks, batch {}", number);
            let is_named = |block: &usize| named.binary_search(block).is_ok();
            let is_translated = |block: &usize| translated.0.binary_search(block).is_ok();
            prop_assert!(named.iter().all(is_translated), "not translated, batch {}", number);
            let may_be = |block: &usize| {
                let reaches = |op: &Op| {
                    let reach = may_reach(op);
                    (reach.start / block_bytes..reach.end.div_ceil(block_bytes)).contains(block)
                };
                is_named(block) || batches[number].iter().any(reaches)
            };
            prop_assert!(translated.0.iter().all(may_be), "translated, batch {}", number);
            prop_assert!(hooks.1 == *image && translated.1 == *image && pages[number].1 == *image);
            // What pages find is what differs, of what was noted.
            let differs = |block: &usize| {
                let bytes = block * block_bytes..(block + 1) * block_bytes;
                before[bytes.clone()] != image[bytes]
            };
            let changed: Vec<usize> = named.iter().copied().filter(differs).collect();
            prop_assert_eq!(&pages[number].0, &changed, "pages, batch {}", number);
            let all: Vec<usize> = (0..BYTES / block_bytes).filter(differs).collect();
            prop_assert_eq!(&all, &changed, "what differs was noted, batch {}", number);
            before.clone_from(image);
        }
    }
}
