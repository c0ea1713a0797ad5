//! The price of one small request: `malloc` followed by `free`, and a batch of
//! `malloc`s followed by their `free`s.
//!
//! The median over many short blocks is reported: an interrupt spoils one block,
//! not the result.

use super::Report;
use crate::args::Args;
use crate::meter::{self, Meter};
use std::arch::asm;
use std::ffi::c_void;

const BLOCKS: usize = 401;

pub fn run_pair(mut args: Args) -> Result<Report, String> {
    let size = args.size("size", "64B")?;
    let pairs = args.count("pairs", 20_000)?.max(1);
    let report = args.begin()?;
    Ok(measure(report, pairs, || {
        for _ in 0..pairs {
            // SAFETY: the object is freed once, at once.
            unsafe { libc::free(unseen(libc::malloc(size))) };
        }
    }))
}

pub fn run_batch(mut args: Args) -> Result<Report, String> {
    let size = args.size("size", "64B")?;
    let batch = args.count("batch", 1000)?.clamp(1, 1 << 20);
    let batches = args.count("batches", 20)?.max(1);
    let report = args.begin()?;
    let mut objects: Vec<*mut c_void> = vec![std::ptr::null_mut(); batch];
    Ok(measure(report, batch * batches, || {
        for _ in 0..batches {
            for object in &mut objects {
                // SAFETY: `malloc` takes any size.
                *object = unsafe { unseen(libc::malloc(size)) };
            }
            for object in &objects {
                // SAFETY: each object was allocated above and is freed once.
                unsafe { libc::free(*object) };
            }
        }
    }))
}

/// The same pointer, of which the compiler no longer knows where it is from; it
/// would otherwise drop the whole pair. `black_box` would do that too, but by way
/// of memory, and that costs as much as half a pair.
#[inline(always)]
fn unseen(mut object: *mut c_void) -> *mut c_void {
    // SAFETY: no instruction at all; the pointer stays what it is.
    unsafe { asm!("/* {0} */", inout(reg) object, options(nostack, preserves_flags)) };
    object
}

/// Times `block`, which performs `pairs` pairs, many times.
fn measure(mut report: Report, pairs: usize, mut block: impl FnMut()) -> Report {
    let mut ticks = [0u64; BLOCKS];
    let mut nanoseconds = [0u64; BLOCKS];
    block();
    let meter = Meter::start();
    for at in 0..BLOCKS {
        let (tick, nanosecond) = (meter::ticks(), meter::wall_ns());
        block();
        ticks[at] = meter::ticks() - tick;
        nanoseconds[at] = meter::wall_ns() - nanosecond;
    }
    let cost = meter.stop();
    cost.record(&mut report);
    let per_pair = |values: &mut [u64; BLOCKS], at: usize| {
        values.sort_unstable();
        values[at] as f64 / pairs as f64
    };
    report.insert("ns_per_pair".into(), per_pair(&mut nanoseconds, BLOCKS / 2).into());
    report.insert("ns_per_pair_best".into(), per_pair(&mut nanoseconds, 0).into());
    report.insert("tsc_per_pair".into(), per_pair(&mut ticks, BLOCKS / 2).into());
    report.insert("tsc_per_pair_best".into(), per_pair(&mut ticks, 0).into());
    report
}
