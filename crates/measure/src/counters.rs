//! Hardware counters of a process, where the machine has them: virtual ones often do not.

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Event, Hardware};
use perf_event::{Builder, Counter};
use serde_json::{Map, Value};

/// What is observed, with the threads and children that it makes from then on.
#[derive(Clone, Copy)]
pub enum Target {
    /// A process that has begun: of its threads the first, and those that this makes.
    Process(u32),
    /// The next process that the calling thread starts, from the first instruction on.
    NextChild,
}

impl Target {
    /// Lets a counter observe it.
    pub fn aim(self, builder: &mut Builder) -> std::io::Result<()> {
        match self {
            Target::Process(pid) => {
                let pid = i32::try_from(pid).map_err(std::io::Error::other)?;
                builder.observe_pid(pid).enabled(true);
            }
            // The child inherits a counter that waits; that of this thread, which executes nothing
            // else, goes on to wait.
            Target::NextChild => {
                builder.observe_self().enabled(false).enable_on_exec(true);
            }
        }
        builder.inherit(true);
        Ok(())
    }
}

/// Counters of a process.
pub struct Counters {
    cycles: Option<Counter>,
    instructions: Option<Counter>,
    misses: Option<Counter>,
}

impl Counters {
    /// Begins to count; what cannot be counted is not.
    pub fn of(target: Target) -> Self {
        let misses =
            Cache { which: CacheId::DTLB, operation: CacheOp::READ, result: CacheResult::MISS };
        Self {
            cycles: counter(target, Hardware::CPU_CYCLES),
            instructions: counter(target, Hardware::INSTRUCTIONS),
            misses: counter(target, misses),
        }
    }

    /// Instructions per cycle, and misses of the TLB for data per thousand instructions, into a
    /// result: as far as they are known.
    pub fn record(self, into: &mut Map<String, Value>) {
        let read = |counter: Option<Counter>| counter?.read().ok().filter(|count| *count > 0);
        let (cycles, instructions) = (read(self.cycles), read(self.instructions));
        let Some(instructions) = instructions else { return };
        if let Some(cycles) = cycles {
            into.insert("ipc".into(), (instructions as f64 / cycles as f64).into());
        }
        if let Some(misses) = read(self.misses) {
            into.insert("dtlb_mpki".into(), (misses as f64 * 1000.0 / instructions as f64).into());
        }
    }
}

fn counter(target: Target, event: impl Event) -> Option<Counter> {
    let mut builder = Builder::new(event);
    target.aim(&mut builder).ok()?;
    builder.build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_counted_is_left_out() {
        let counters = Counters::of(Target::Process(std::process::id()));
        let sum: u64 = (0..1_000_000u64).map(std::hint::black_box).sum();
        std::hint::black_box(sum);
        let mut result = Map::new();
        counters.record(&mut result);
        for (name, value) in result {
            let value = value.as_f64().expect("a number");
            assert!((0.0..1000.0).contains(&value), "{name}: {value}");
        }
        let mut nothing = Map::new();
        Counters { cycles: None, instructions: None, misses: None }.record(&mut nothing);
        assert!(nothing.is_empty());
    }
}
