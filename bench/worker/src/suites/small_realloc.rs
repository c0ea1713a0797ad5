//! Many small objects that grow from 16 B to 4 KiB, a little at a time and in
//! turns: below the switch point nothing may be lost.

use super::Report;
use crate::args::Args;
use crate::buffer::{Buffer, Object as _};
use crate::meter::{self, Meter};

pub fn run(mut args: Args) -> Result<Report, String> {
    let objects = args.count("objects", 2000)?.max(1);
    let from = args.size("from", "16B")?.max(8);
    let to = args.size("to", "4KiB")?;
    let cycles = args.count("cycles", 20)?.max(1);
    let mut report = args.begin()?;

    let mut buffers: Vec<Buffer> = Vec::with_capacity(objects);
    let mut reallocs = 0u64;
    let meter = Meter::start();
    for _ in 0..cycles {
        for number in 0..objects {
            let mut buffer = Buffer::new(from);
            buffer.fill(0, number as u8);
            buffers.push(buffer);
        }
        let mut len = from;
        while len < to {
            // Half as much again, as many containers grow.
            let next = (len + len / 2).min(to);
            for (number, buffer) in buffers.iter_mut().enumerate() {
                buffer.resize(next);
                buffer.check(len, number as u8);
                buffer.fill(len, number as u8);
                reallocs += 1;
            }
            len = next;
        }
        buffers.clear();
    }
    let cost = meter.stop();

    cost.record(&mut report);
    report.insert("rss".into(), meter::rss().into());
    report.insert("reallocs".into(), reallocs.into());
    report.insert("ns_per_realloc".into(), (cost.cpu_ns as f64 / reallocs.max(1) as f64).into());
    Ok(report)
}
