//! The commands in C, as they are and with the compiler's hooks, whose names are here.
//!
//! The hooks are the functions that `libspandrel_durable` has behind them. Each build of the C code comes from `build.rs`.

use super::{told, ways, window};
use serde_json::Value;
use spandrel_capture::hooks::{copies, functions};
use spandrel_capture::{Capture, CompilerHooks, Sizes};
use spandrel_commands::clock::{Limits, measure, mixed};
use spandrel_commands::{Args, Command, Copies, Tree, source};
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

macro_rules! stores {
    ($($name:ident $of:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(at: *const c_void) {
            functions::$of(at);
        }
    )*};
}

stores! {
    __tsan_write1 write1 __tsan_write2 write2 __tsan_write4 write4 __tsan_write8 write8 __tsan_write16 write16
    __tsan_unaligned_write2 unaligned_write2 __tsan_unaligned_write4 unaligned_write4
    __tsan_unaligned_write8 unaligned_write8 __tsan_unaligned_write16 unaligned_write16
}

macro_rules! others {
    ($($name:ident($($argument:ty),*))*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($(_: $argument),*) {}
    )*};
}

others! {
    __tsan_init() __tsan_func_entry(*const c_void) __tsan_func_exit()
    __tsan_read1(*const c_void) __tsan_read2(*const c_void) __tsan_read4(*const c_void) __tsan_read8(*const c_void)
    __tsan_read16(*const c_void) __tsan_unaligned_read2(*const c_void) __tsan_unaligned_read4(*const c_void)
    __tsan_unaligned_read8(*const c_void) __tsan_unaligned_read16(*const c_void)
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_write_range(at: *const c_void, bytes: usize) {
    functions::write_range(at, bytes);
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_read_range(_: *const c_void, _: usize) {}

/// What the C code with hooks calls instead of `memcpy`, as a program's calls lead to the library.
#[unsafe(no_mangle)]
unsafe extern "C" fn spandrel_hooked_memcpy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> *mut c_void {
    // SAFETY: as for `memcpy`.
    unsafe { copies::memcpy(libc::memcpy, to, from, bytes) }
}

/// The same for `memmove`.
#[unsafe(no_mangle)]
unsafe extern "C" fn spandrel_hooked_memmove(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> *mut c_void {
    // SAFETY: as for `memmove`.
    unsafe { copies::memmove(libc::memmove, to, from, bytes) }
}

/// An entry of the table.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Entry {
    key: u64,
    value: [u64; 4],
}

type Update = unsafe extern "C" fn(*mut Entry, u64, u64, *const u64, usize);
type Insert = unsafe extern "C" fn(*mut *mut c_void, *const u64, usize);
type CopyTo = unsafe extern "C" fn(*mut u8, usize, usize, *const u8, *const u64, usize);

// Of `commands.c`.
unsafe extern "C" {
    fn spandrel_native_update(_: *mut Entry, _: u64, _: u64, _: *const u64, _: usize);
    fn spandrel_native_insert(_: *mut *mut c_void, _: *const u64, _: usize);
    fn spandrel_native_copy(_: *mut u8, _: usize, _: usize, _: *const u8, _: *const u64, _: usize);
    fn spandrel_hooked_update(_: *mut Entry, _: u64, _: u64, _: *const u64, _: usize);
    fn spandrel_hooked_insert(_: *mut *mut c_void, _: *const u64, _: usize);
    fn spandrel_hooked_copy(_: *mut u8, _: usize, _: usize, _: *const u8, _: *const u64, _: usize);
}

/// One of both builds.
struct Build {
    update: Update,
    insert: Insert,
    copy: CopyTo,
}

const NATIVE: Build = Build {
    update: spandrel_native_update,
    insert: spandrel_native_insert,
    copy: spandrel_native_copy,
};
const HOOKED: Build = Build {
    update: spandrel_hooked_update,
    insert: spandrel_hooked_insert,
    copy: spandrel_hooked_copy,
};

/// Measures commands in C.
///
/// # Errors
/// There is no such command, or no memory.
pub fn run(args: &Args) -> Result<Value, String> {
    let build = if args.way == "hooks" { HOOKED } else { NATIVE };
    let from = source();
    let usual = Limits::of(args.millis, args.keys, 0.0);
    match args.command.as_str() {
        "table" => {
            let places = (2 * args.keys as usize).next_power_of_two();
            let mut entries = vec![Entry::default(); places];
            let (at, mask) = (entries.as_mut_ptr(), places as u64 - 1);
            let numbers: Vec<u64> = (0..args.keys).collect();
            // SAFETY: the table has these places, and half of them stay free.
            let run = |update: Update, numbers: &[u64]| unsafe {
                update(at, mask, args.keys, numbers.as_ptr(), numbers.len());
            };
            run(NATIVE.update, &numbers);
            let span = at as usize..at as usize + places * size_of::<Entry>();
            timed(args, usual, Some(span), |numbers| run(build.update, numbers))
        }
        "tree" => {
            let mut root = ptr::null_mut();
            let numbers: Vec<u64> = (0..args.keys).map(mixed).collect();
            // SAFETY: the root leads to nothing, or to the tree.
            let mut run = |insert: Insert, numbers: &[u64]| unsafe {
                insert(&raw mut root, numbers.as_ptr(), numbers.len());
            };
            run(NATIVE.insert, &numbers);
            let limits = Limits::of(args.millis, args.keys, Tree::GROWTH);
            timed(args, limits, None, |numbers| run(build.insert, numbers))
        }
        "copy-4k" | "copy-100k" => {
            let (bytes, len) = match args.command.as_str() {
                "copy-4k" => (4096, Copies::<4096>::room(args.keys)),
                _ => (100_000, Copies::<100_000>::room(args.keys)),
            };
            let mut room = vec![1u8; len];
            let at = room.as_mut_ptr();
            // SAFETY: the array has these bytes, and the source more than a copy has.
            let run = |numbers: &[u64]| unsafe {
                (build.copy)(at, len, bytes, from.as_ptr(), numbers.as_ptr(), numbers.len());
            };
            timed(args, usual, Some(at as usize..at as usize + len), run)
        }
        "nothing" => timed(args, usual, None, |numbers| _ = std::hint::black_box(numbers)),
        _ => Err(args.unknown(&super::WAYS[..4])),
    }
}

/// Times batches that `run` runs on a state that lies there.
fn timed(
    args: &Args,
    limits: Limits,
    span: Option<Range<usize>>,
    mut run: impl FnMut(&[u64]),
) -> Result<Value, String> {
    let window = window(span, args.keys)?;
    let regions = ways::regions(&window)?;
    let hooks = CompilerHooks::new(Sizes::default(), &regions);
    let mut hooks = hooks.map_err(|why| format!("refused: {why:?}"))?;
    let (is_hooked, mut runs) = (args.way == "hooks", 0u64);
    let times = measure(limits, |numbers| {
        if is_hooked {
            hooks.begin();
            run(numbers);
            hooks.end(&mut |_, _| runs += 1);
        } else {
            run(numbers);
        }
        Ok(())
    })?;
    let mut told = told(&times);
    told["runs"] = runs.into();
    Ok(told)
}
