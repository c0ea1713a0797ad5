//! `spandrel durable info`: what the files of a state say, and the figures of the process that has it open, or had it.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{InfoArgs, paths_of, prometheus, refused};
use serde_json::{Value, json};
use spandrel_console::{Failure, say};
use spandrel_durable::Error;
use spandrel_durable::directory::Directory;
use spandrel_durable::inspect::{Inspection, identify, inspect};
use spandrel_durable::live::{BUCKETS, Figures, bound_nanos};
use spandrel_report::numbers::{bytes, count, counted, digits, time};

/// What is known of a state.
pub struct Known {
    pub identity: u64,
    pub base: u64,
    /// Bytes of the state's file.
    pub bytes: u64,
    /// What the files say; `None`: a process has the state open, and changes them.
    pub found: Option<Inspection>,
    /// Of the process that has it open, or of the last one that had it.
    pub figures: Option<Figures>,
}

/// Shows a state.
pub fn run(args: &InfoArgs) -> Result<u8, Failure> {
    let known = known(&args.directory)?;
    match (args.json, args.prometheus) {
        (true, _) => say::out(format_args!("{:#}", as_json(&args.directory, &known)))?,
        (_, true) => say::file(prometheus::text(&args.directory, &known))?,
        _ => say::out(text(&args.directory, &known))?,
    }
    Ok(0)
}

fn known(directory: &Path) -> Result<Known, Failure> {
    let paths = paths_of(directory)?;
    let know = || {
        let lock = Directory::read(paths.directory.as_c());
        let found = match &lock {
            Ok(_) => Some(inspect(&paths)?),
            Err(Error::Locked) => None,
            Err(why) => return Err(*why),
        };
        let of = identify(&paths)?;
        // A directory may have been copied with the file.
        let figures = Figures::read(paths.figures.as_c()).filter(|it| it.identity == of.identity);
        if found.is_none() && figures.as_ref().is_none_or(|it| it.is_closed) {
            // It is being opened, recovered or compacted, or has no room for the file.
            return Err(Error::Locked);
        }
        Ok(Known {
            identity: of.identity,
            base: of.base as u64,
            bytes: of.bytes as u64,
            found,
            figures,
        })
    };
    know().map_err(|why| refused(directory, why))
}

fn text(directory: &Path, known: &Known) -> String {
    let mut text = format!("{}: a state of {}", directory.display(), bytes(known.bytes as f64));
    let mut line = |words: String| {
        let _ = write!(text, "\n{words}");
    };
    line(format!("identity {:016x}; address {:#x}", known.identity, known.base));
    if let Some(found) = &known.found {
        of_files(found, &mut line);
    }
    if let Some(figures) = &known.figures {
        match known.found {
            None => line(format!(
                "open in process {} for {}; figures of {} ago",
                figures.process,
                age(figures.opened),
                age(figures.written)
            )),
            Some(_) => line(format!(
                "the last process, {}, had it open for {}, until {} ago",
                figures.process,
                words(figures.written.saturating_sub(figures.opened)),
                age(figures.written)
            )),
        }
        line(format!(
            "opened in {}, with {} that only the log had",
            time(figures.opening.nanos as f64),
            counted(figures.opening.replayed, "batch", "batches")
        ));
        if let Some(why) = failure(figures).filter(|_| known.found.is_none()) {
            line(format!("the log is not brought into the state any more: {why}"));
        }
        of_process(figures, known.found.is_none(), &mut line);
    }
    text
}

fn of_files(found: &Inspection, line: &mut dyn FnMut(String)) {
    match found.log {
        None => line("log: none, and the state needs none".into()),
        Some(shape) => line(format!(
            "log: {} of {} used",
            bytes(found.pending_bytes as f64),
            bytes(shape.capacity as f64)
        )),
    }
    match found.pending {
        0 => line("the state has all batches".into()),
        pending => {
            line(format!(
                "{} that only the log has: {} in {}",
                counted(pending, "batch", "batches"),
                bytes(found.run_bytes as f64),
                counted(found.runs, "run", "runs")
            ));
            line(format!("last durable batch: {} ago", age(found.time)));
        }
    }
    if !found.is_complete {
        line("it was not closed: the next opening recovers it".into());
    }
}

/// Why the log is not brought into the state's file any more.
fn failure(figures: &Figures) -> Option<Error> {
    let why = i32::try_from(figures.failure).ok().filter(|why| *why != 0);
    why.map(Error::of_follower)
}

fn of_process(figures: &Figures, is_open: bool, line: &mut dyn FnMut(String)) {
    let counts = &figures.counts;
    if is_open {
        line(format!(
            "log: {} of {} used; the state's file is {} behind",
            bytes(figures.log_used as f64),
            bytes(figures.log_bytes as f64),
            counted(figures.lag, "batch", "batches")
        ));
    }
    let each = |number: u64, of: u64| digits(number as f64 / of.max(1) as f64);
    line(format!(
        "{}, {}, for {}; the state's file was synced {}",
        counted(counts.batches, "batch", "batches"),
        counted(counts.durable_waits, "durable wait", "durable waits"),
        counted(counts.commands, "command", "commands"),
        counted(figures.syncs, "time", "times")
    ));
    if counts.batches == 0 {
        return;
    }
    line(format!(
        "a batch: {} commands, {} runs, {}; a command: {} blocks, {}",
        each(counts.commands, counts.batches),
        each(counts.runs, counts.batches),
        bytes(counts.bytes as f64 / counts.batches as f64),
        each(counts.blocks, counts.commands),
        bytes(counts.bytes as f64 / counts.commands.max(1) as f64)
    ));
    line(format!(
        "capture: {} blocks, {} noted again, {} beyond the table; {} in whole pages, {} of the whole state",
        count(counts.blocks),
        count(counts.duplicates),
        count(counts.overflowed),
        counted(counts.coarse, "batch", "batches"),
        count(counts.whole)
    ));
    if let (Some(half), Some(most)) = (part(&figures.waits, 0.5), part(&figures.waits, 0.99)) {
        let all = all(&figures.waits);
        line(format!(
            "a batch waits for the log: {} on average; half of them {half}, 99 % {most}",
            time(counts.waited_nanos as f64 / all.max(1) as f64)
        ));
    }
    line(format!(
        "last durable batch: sequence {} of epoch {:016x}, {} ago",
        count(counts.sequence),
        counts.epoch,
        age(counts.time)
    ));
}

/// All waits. A file may say any number.
fn all(waits: &[u64; BUCKETS]) -> u64 {
    waits.iter().fold(0, |sum: u64, number| sum.saturating_add(*number))
}

/// The bound that this part of all waits is below, in words.
fn part(waits: &[u64; BUCKETS], part: f64) -> Option<String> {
    let (all, mut sum) = (all(waits), 0u64);
    let bucket = waits.iter().position(|number| {
        sum = sum.saturating_add(*number);
        *number > 0 && sum as f64 >= all as f64 * part
    })?;
    Some(match bound_nanos(bucket) {
        Some(bound) => format!("less than {}", time(bound as f64)),
        None => "half a minute and more".into(),
    })
}

/// The time since a moment, in words.
fn age(nanos: u64) -> String {
    let at = UNIX_EPOCH + Duration::from_nanos(nanos);
    let since = SystemTime::now().duration_since(at).unwrap_or_default();
    words(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn words(nanos: u64) -> String {
    match nanos / 1_000_000_000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

fn as_json(directory: &Path, known: &Known) -> Value {
    let point = |epoch: u64, sequence: u64| json!({ "epoch": epoch, "sequence": sequence });
    let mut value = json!({
        "directory": directory.to_string_lossy(),
        "identity": format!("{:016x}", known.identity),
        "address": known.base,
        "state_bytes": known.bytes,
        "is_open": known.found.is_none(),
    });
    if let Some(found) = &known.found {
        value["is_complete"] = found.is_complete.into();
        value["settled"] = point(found.settled.epoch, found.settled.sequence);
        value["durable"] = point(found.last.epoch, found.last.sequence);
        value["log"] = found.log.map_or(Value::Null, |shape| {
            json!({
                "capacity_bytes": shape.capacity,
                "align_bytes": shape.align,
                "used_bytes": found.pending_bytes,
            })
        });
        value["pending"] = json!({
            "batches": found.pending,
            "runs": found.runs,
            "bytes": found.run_bytes,
            "time_ns": (found.time > 0).then_some(found.time),
        });
    }
    if let Some(figures) = &known.figures {
        let counts = &figures.counts;
        let waits = figures.waits.iter().enumerate().filter(|(_, number)| **number > 0);
        let waits =
            waits.map(|(at, number)| json!({ "below_ns": bound_nanos(at), "batches": number }));
        value["process"] = json!({
            "process": figures.process,
            "opened_ns": figures.opened,
            "written_ns": figures.written,
            "is_closed": figures.is_closed,
            "log": { "capacity_bytes": figures.log_bytes, "used_bytes": figures.log_used },
            "lag_batches": figures.lag,
            "syncs": figures.syncs,
            "opening": { "batches": figures.opening.replayed, "ns": figures.opening.nanos },
            "failure": failure(figures).map(|why| why.to_string()),
            "durable": point(counts.epoch, counts.sequence),
            "time_ns": (counts.time > 0).then_some(counts.time),
            "batches": counts.batches,
            "durable_waits": counts.durable_waits,
            "commands": counts.commands,
            "runs": counts.runs,
            "bytes": counts.bytes,
            "capture": {
                "blocks": counts.blocks,
                "duplicates": counts.duplicates,
                "overflowed": counts.overflowed,
                "coarse_batches": counts.coarse,
                "whole_batches": counts.whole,
            },
            "waits": waits.collect::<Vec<_>>(),
            "waited_ns": counts.waited_nanos,
        });
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_durable::live::{BYTES, seal};

    /// The file may be of a program that counts in another way, or made by hand.
    #[test]
    fn any_figures_are_shown() {
        let mut seed = 7u64;
        for round in 0..3000 {
            let mut bytes = [0; BYTES];
            for place in bytes.chunks_exact_mut(8) {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let word = if seed >> 62 == 0 { u64::MAX } else { seed >> (seed >> 58) };
                place.copy_from_slice(&word.to_le_bytes());
            }
            seal(&mut bytes);
            let found = (round % 2 == 0).then_some(Inspection {
                identity: seed,
                base: seed,
                bytes: seed,
                most_bytes: seed,
                log: None,
                is_complete: false,
                settled: Default::default(),
                last: Default::default(),
                pending: seed,
                pending_bytes: seed,
                runs: seed,
                run_bytes: seed,
                time: seed,
            });
            let figures = Figures::parse(&bytes);
            let known = Known { identity: seed, base: seed, bytes: seed, found, figures };
            let directory = Path::new("state");
            assert!(text(directory, &known).contains("batch"));
            assert!(as_json(directory, &known)["process"].is_object());
            assert!(prometheus::text(directory, &known).ends_with('\n'));
        }
    }
}
