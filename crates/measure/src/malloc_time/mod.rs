//! How much of its CPU time a process spends in its allocator's own code. Where it is is looked at
//! twice in each millisecond of a thread's time: the kernel's clock needs no hardware counters.

mod code;

use crate::contender::Contender;
use crate::counters::Target;
use code::Mapping;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Between two looks at a thread. It is a prime, so that no work keeps step with it.
const PERIOD_NS: u64 = 499_979;
/// What any user may have locked for each processor, less the page that the kernel adds: enough
/// for ten seconds.
const RING_BYTES: usize = 512 << 10;

/// A process that is looked at.
pub struct MallocTime {
    contender: Contender,
    /// One per processor.
    samplers: Vec<Sampler>,
    /// Code of the process when that began.
    mappings: Vec<Mapping>,
}

impl MallocTime {
    /// Begins to look; `None` where that is not permitted.
    pub fn of(target: Target, contender: &Contender) -> Option<Self> {
        // SAFETY: no pointers are passed.
        let processors = usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) });
        let mut samplers = Vec::new();
        for processor in 0..processors.ok()? {
            match sampler(target, processor) {
                Ok(sampler) => samplers.push(sampler),
                // Nothing runs on a processor that is switched off.
                Err(why) if why.raw_os_error() == Some(libc::ENODEV) => {}
                Err(_) => return None,
            }
        }
        // What is mapped from now on comes as records of the samplers.
        let mappings = match target {
            Target::Process(pid) => code::mappings(pid),
            Target::NextChild => Vec::new(),
        };
        Some(Self { contender: contender.clone(), samplers, mappings })
    }

    /// The part of the CPU time, the kernel's included, that went into the code of the process's
    /// allocator, into a result: if it is known.
    pub fn record(self, pid: u32, into: &mut Map<String, Value>) {
        let contender = self.contender.clone();
        let Some(seen) = self.read(pid) else { return };
        let Some(code) = code::of_allocator(&contender, &seen.mappings) else { return };
        let hits = seen.at.iter().filter(|at| code.iter().any(|range| range.contains(at))).count();
        if seen.cpu_ns > 0 {
            let share = hits as f64 * PERIOD_NS as f64 / seen.cpu_ns as f64;
            into.insert("malloc_share".into(), share.into());
        }
    }

    fn read(mut self, of: u32) -> Option<Seen> {
        let mut seen = Seen { cpu_ns: 0, at: Vec::new(), mappings: self.mappings };
        for sampler in &mut self.samplers {
            sampler.as_counter_mut().disable().ok()?;
            seen.cpu_ns += sampler.as_counter_mut().read().ok()?;
            while let Some(record) = sampler.next_record() {
                match record.parse_record().ok()? {
                    Record::Sample(sample) if sample.pid() == Some(of) => {
                        seen.at.push(sample.ip()?);
                    }
                    Record::Mmap(new) if new.pid == of => seen.mappings.push(Mapping {
                        addresses: new.addr..new.addr.checked_add(new.len)?,
                        offset: new.pgoff,
                        file: PathBuf::from(new.filename_os()),
                    }),
                    // What is missing would be missing from the end.
                    Record::Lost(_) | Record::LostSamples(_) => return None,
                    _ => {}
                }
            }
        }
        Some(seen)
    }
}

/// What was seen of a process.
struct Seen {
    /// CPU time of it, and of its children.
    cpu_ns: u64,
    /// Where it was.
    at: Vec<u64>,
    /// Its code.
    mappings: Vec<Mapping>,
}

/// Samples of what runs on one processor. The kernel is left out: which code
/// has called it cannot be seen.
fn sampler(target: Target, processor: usize) -> std::io::Result<Sampler> {
    let mut builder = Builder::new(Software::TASK_CLOCK);
    target.aim(&mut builder)?;
    builder
        .one_cpu(processor)
        .sample_period(PERIOD_NS)
        .sample(SampleFlag::IP | SampleFlag::TID)
        .mmap(true)
        .build()?
        .sampled(RING_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// The share in the calling thread while `work` is done for 200 ms of elapsed time.
    fn share(work: impl Fn()) -> Option<f64> {
        // SAFETY: no pointers are passed.
        let thread = unsafe { libc::gettid() };
        let target = Target::Process(thread as u32);
        let looked_at = MallocTime::of(target, &Contender::system())?;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(200) {
            work();
        }
        let mut result = Map::new();
        looked_at.record(std::process::id(), &mut result);
        result.get("malloc_share")?.as_f64()
    }

    #[test]
    fn who_allocates_is_told_from_who_does_not() {
        let allocating = share(|| {
            for _ in 0..1000 {
                // SAFETY: a null pointer is freed as nothing.
                unsafe { libc::free(std::hint::black_box(libc::malloc(1 << 14))) };
            }
        });
        let counting = share(|| {
            std::hint::black_box((0..100_000u64).map(std::hint::black_box).sum::<u64>());
        });
        match allocating.zip(counting) {
            Some((allocating, counting)) => {
                assert!((0.5..1.1).contains(&allocating), "{allocating}");
                assert!((0.0..0.05).contains(&counting), "{counting}");
            }
            // Where it is not permitted neither is known.
            None => assert_eq!((allocating, counting), (None, None)),
        }
    }
    #[test]
    fn a_child_is_seen_from_its_first_instruction_on_with_its_own_children() {
        let Some(looked_at) = MallocTime::of(Target::NextChild, &Contender::system()) else {
            return;
        };
        let script = "(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done) & wait";
        let ended = process::run(Command::new("sh").args(["-c", script]), None).unwrap();
        let seen = looked_at.read(ended.pid).unwrap();
        assert!(seen.cpu_ns as f64 > ended.cpu_ns * 0.8, "{} {}", seen.cpu_ns, ended.cpu_ns);
        assert!(code::of_allocator(&Contender::system(), &seen.mappings).is_some());
    }
}
