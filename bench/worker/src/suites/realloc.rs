//! The paper's Fig. 2 and target A1: an object of 4 KiB doubles by `realloc`
//! until it has the final size; after each step the whole object is filled.
//!
//! Filling takes most of the time below some MiB, and no allocator can save it.
//! With `--floor` the object has all its memory beforehand and only the filling
//! is left: what remains to an allocator is the distance from there.

use super::Report;
use crate::args::Args;
use crate::buffer::{Buffer, Object, Still};
use crate::meter::{self, Meter};
use serde_json::json;

/// More doublings than an address space has.
const STEPS_MAX: usize = 64;
/// Parts of a run that are timed on their own; their median is not spoilt by a
/// disturbance of the machine.
const BLOCKS_MAX: usize = 64;

pub fn run(mut args: Args) -> Result<Report, String> {
    let from = args.size("from", "4KiB")?.max(1);
    let to = args.size("to", "1MiB")?;
    let cycles = args.count("cycles", 1)?.max(1);
    let timed_steps = args.flag("steps");
    let count_huge = args.flag("huge");
    let floor = args.flag("floor");
    let mut report = args.begin()?;

    let mut steps = [Step::default(); STEPS_MAX];
    let (mut rss, mut huge) = (0, None);
    let rss_before = meter::rss();

    let still = floor.then(|| Still::reserve(to));
    let blocks = cycles.min(BLOCKS_MAX);
    let mut block_cpu_ns = [0; BLOCKS_MAX];

    let meter = Meter::start();
    let mut done = 0;
    for (block, block_cpu_ns) in block_cpu_ns[..blocks].iter_mut().enumerate() {
        let start = meter::cpu_ns();
        let end = cycles * (block + 1) / blocks;
        let in_block = end - done;
        while done < end {
            done += 1;
            let at_end = || {
                if done == cycles {
                    rss = meter::rss();
                    // Not for free: the kernel walks the page tables of the object.
                    huge = count_huge.then(meter::huge);
                }
            };
            let steps = timed_steps.then_some(&mut steps);
            match &still {
                None => grow(Buffer::new(from), to, steps, at_end),
                Some(still) => grow(still.object(from), to, steps, at_end),
            }
        }
        *block_cpu_ns = (meter::cpu_ns() - start) / in_block as u64;
    }
    let cost = meter.stop();

    cost.record(&mut report);
    let block_cpu_ns = &mut block_cpu_ns[..blocks];
    block_cpu_ns.sort_unstable();
    report.insert("cycle_cpu_ns".into(), block_cpu_ns[blocks / 2].into());
    report.insert("cycle_cpu_ns_best".into(), block_cpu_ns[0].into());
    report.insert("cycles".into(), cycles.into());
    report.insert("rss".into(), rss.into());
    report
        .insert("rss_per_byte".into(), (rss.saturating_sub(rss_before) as f64 / to as f64).into());
    if let Some(huge) = huge {
        report.insert("huge".into(), huge.into());
    }
    if timed_steps {
        let rows: Vec<_> = steps
            .iter()
            .filter(|step| step.size != 0)
            .map(|step| json!({"size": step.size, "wall_ns": step.wall_ns / cycles as u64, "moved": step.moved}))
            .collect();
        report.insert("steps".into(), rows.into());
    }
    Ok(report)
}

/// One reallocation and the filling that follows, summed over the cycles.
#[derive(Clone, Copy, Default)]
struct Step {
    size: usize,
    wall_ns: u64,
    moved: u64,
}

/// One cycle. `at_end` runs when the object is full and still alive.
#[inline]
fn grow(
    mut buffer: impl Object,
    to: usize,
    steps: Option<&mut [Step; STEPS_MAX]>,
    at_end: impl FnOnce(),
) {
    let mut clock = steps.map(|steps| (steps, meter::wall_ns()));
    let mut byte = 1;
    buffer.fill(0, byte);
    let mut step = 0;
    loop {
        let mut moved = false;
        if step > 0 {
            let old = buffer.len();
            moved = buffer.resize((old * 2).min(to));
            buffer.check(old, byte);
            byte = byte.wrapping_add(1);
            buffer.fill(0, byte);
        }
        if let Some((steps, before)) = &mut clock {
            let now = meter::wall_ns();
            steps[step].size = buffer.len();
            steps[step].wall_ns += now - *before;
            steps[step].moved += u64::from(moved);
            *before = now;
        }
        if buffer.len() >= to {
            break;
        }
        step += 1;
    }
    at_end();
}
