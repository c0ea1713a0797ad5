//! What the layer adds to a pair of `malloc` and `free`: deciding who serves the
//! request, and finding out who owns the pointer.
//!
//! Both ways end in the same allocator, in the same process, in turns; each is an
//! out-of-line function, as `malloc` and `free` are.

use super::Report;
use crate::args::Args;
use crate::meter;
use spandrel_adaptive as adaptive;
use spandrel_backends::{Backend, Jemalloc, Mimalloc, Native, Sys};
use std::hint::black_box;

const BLOCKS: usize = 401;
/// Objects that are live at a time in a batch.
const BATCH: usize = 1000;

type Malloc = fn(usize) -> *mut u8;
type Free = unsafe fn(*mut u8);

#[inline(never)]
fn layer_malloc(size: usize) -> *mut u8 {
    adaptive::alloc(size)
}

/// # Safety
/// As for `free`.
#[inline(never)]
unsafe fn layer_free(object: *mut u8) {
    // SAFETY: passed on from the caller.
    unsafe { adaptive::free(object) }
}

#[inline(never)]
fn bare_malloc<B: Backend>(size: usize) -> *mut u8 {
    B::alloc(size)
}

/// # Safety
/// As for `free`.
#[inline(never)]
unsafe fn bare_free<B: Backend>(object: *mut u8) {
    // SAFETY: passed on from the caller.
    unsafe { B::free(object) }
}

pub fn run(mut args: Args) -> Result<Report, String> {
    let size = args.size("size", "64B")?;
    let pairs = args.count("pairs", 20_000)?.max(BATCH);
    let mut report = args.begin()?;
    let ways: [(&str, Malloc, Free); 4] = [
        ("native", bare_malloc::<Native>, bare_free::<Native>),
        ("mimalloc", bare_malloc::<Mimalloc>, bare_free::<Mimalloc>),
        ("jemalloc", bare_malloc::<Jemalloc>, bare_free::<Jemalloc>),
        ("sys", bare_malloc::<Sys>, bare_free::<Sys>),
    ];
    for (name, malloc, free) in ways {
        adaptive::set_mode(name).map_err(|error| error.to_string())?;
        for (form, block) in [("pair", pair as Block), ("batch", batch as Block)] {
            let (bare, layer) = in_turns(pairs, |layer| {
                let (malloc, free) = if layer {
                    (layer_malloc as Malloc, layer_free as Free)
                } else {
                    (malloc, free)
                };
                block(black_box(malloc), black_box(free), size, pairs);
            });
            report.insert(format!("{name}_{form}_bare_ns"), bare.into());
            report.insert(format!("{name}_{form}_layer_ns"), layer.into());
            // What the default mode has behind the layer.
            if (name, form) == ("native", "pair") {
                report.insert("dispatch_ns_per_pair".into(), (layer - bare).into());
            }
        }
    }
    Ok(report)
}

type Block = fn(Malloc, Free, usize, usize);

fn pair(malloc: Malloc, free: Free, size: usize, pairs: usize) {
    for _ in 0..pairs {
        // SAFETY: the object is freed once, at once.
        unsafe { free(malloc(size)) };
    }
}

fn batch(malloc: Malloc, free: Free, size: usize, pairs: usize) {
    let mut objects = [std::ptr::null_mut(); BATCH];
    for _ in 0..pairs / BATCH {
        for object in &mut objects {
            *object = malloc(size);
        }
        for object in &objects {
            // SAFETY: each object was allocated above and is freed once.
            unsafe { free(*object) };
        }
    }
}

/// Median nanoseconds per pair of the bare way and of the layer, block by block
/// in turns, so that a disturbance meets both.
fn in_turns(pairs: usize, block: impl Fn(bool)) -> (f64, f64) {
    let mut times = [[0u64; 2]; BLOCKS];
    block(false);
    block(true);
    for turn in &mut times {
        for (time, layer) in turn.iter_mut().zip([false, true]) {
            let start = meter::wall_ns();
            block(layer);
            *time = meter::wall_ns() - start;
        }
    }
    let median = |way: usize| {
        let mut times = times.map(|turn| turn[way]);
        times.sort_unstable();
        times[BLOCKS / 2] as f64 / pairs as f64
    };
    (median(0), median(1))
}
