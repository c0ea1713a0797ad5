//! Target A2: an object grows by small equal steps, and only the new part is
//! touched. Doubling forgives an allocator that copies; appending does not.

use super::Report;
use crate::args::Args;
use crate::buffer::{Buffer, Object as _};
use crate::meter::{self, Meter};

pub fn run(mut args: Args) -> Result<Report, String> {
    let step = args.size("step", "4KiB")?.max(1);
    let to = args.size("to", "256MiB")?;
    let mut report = args.begin()?;

    let (mut reallocs, mut moves) = (0u64, 0u64);
    let meter = Meter::start();
    let mut buffer = Buffer::new(step);
    buffer.fill(0, 0xA5);
    while buffer.len() < to {
        let old = buffer.len();
        moves += u64::from(buffer.resize((old + step).min(to)));
        buffer.fill(old, 0xA5);
        reallocs += 1;
    }
    let rss = meter::rss();
    buffer.check(to, 0xA5);
    drop(buffer);
    let cost = meter.stop();

    cost.record(&mut report);
    report.insert("reallocs".into(), reallocs.into());
    report.insert("moves".into(), moves.into());
    report.insert("rss".into(), rss.into());
    Ok(report)
}
