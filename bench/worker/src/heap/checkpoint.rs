//! What a checkpoint on an ordinary file costs, beside the same bytes written to a plain file and waited for once.

use super::file;
use crate::args::Args;
use crate::meter::{self, Meter};
use crate::suites::Report;
use spandrel_pheap::{Choice, Options};
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;
/// The plain file begins anew where the heap's log does: room that was written before is faster.
const LOG_BYTES: usize = 64 << 20;

/// Pages here and there become durable, in turns with as many that lie together.
pub fn checkpoint(mut args: Args) -> Result<Report, String> {
    let directory = args.text("directory", ".").to_string();
    let (pages, rounds) = (args.count("pages", 1024)?.max(1), args.count("rounds", 40)?.max(1));
    let mut report = args.begin()?;
    let (path, plain) = (file(&directory, "heap"), file(&directory, "plain"));
    let named = |why: &dyn std::fmt::Display| format!("{path}: {why}");
    let size = 2 * pages * PAGE + (4 << 20);
    let heap = Options::new().size(size).medium(Choice::Logged).create(&path);
    let heap = heap.map_err(|why| named(&why))?;
    let meter = Meter::start();
    let measured = (|| {
        let file = std::fs::File::create(&plain).map_err(|why| why.to_string())?;
        let object = heap.alloc_zeroed(2 * pages * PAGE).map_err(|why| why.to_string())?;
        let bytes = vec![7u8; pages * PAGE];
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 1..=rounds {
            for page in 0..pages {
                // SAFETY: within the object.
                unsafe { object.as_ptr().add(page * 2 * PAGE).cast::<u64>().write(round as u64) };
            }
            let before = meter::wall_ns();
            heap.checkpoint().map_err(|why| why.to_string())?;
            let between = meter::wall_ns();
            let at = (round - 1) % (LOG_BYTES / bytes.len()).max(1) * bytes.len();
            file.write_all_at(&bytes, at as u64).map_err(|why| why.to_string())?;
            file.sync_data().map_err(|why| why.to_string())?;
            ours.push(between - before);
            theirs.push(meter::wall_ns() - between);
        }
        Ok::<_, String>((ours, theirs))
    })();
    let closed = heap.close().map_err(|why| named(&why));
    meter.stop().record(&mut report);
    for path in [&path, &plain, &format!("{path}.wal")] {
        let _ = std::fs::remove_file(path);
    }
    let (ours, theirs) = measured.map_err(|why| named(&why))?;
    closed?;
    let median = |mut times: Vec<u64>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    report.insert("checkpoint_ns".into(), median(ours).into());
    report.insert("plain_ns".into(), median(theirs).into());
    Ok(report)
}
