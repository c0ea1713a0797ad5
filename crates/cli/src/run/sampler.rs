//! Looks at the memory of a run's processes while they run, from outside.
//!
//! How often depends on what a look costs: a hundredth of a processor's time at most. When there
//! are many looks every other one is dropped, so that a short run is seen closely and a long one
//! takes no more room.

use crate::stat::Window;
use spandrel_pages::{Figure, PAGE_BYTES};
use spandrel_report::{Layer, Sample};
use std::collections::HashMap;
use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between looks, at first.
const INTERVAL: Duration = Duration::from_millis(4);
/// This many times what a look takes passes until the next …
const REST: u32 = 100;
/// … but for the first ones, which find the library in each process.
const FIRST: usize = 32;
/// Looks that are kept.
const MOST: usize = 1200;
/// A process that was not on the library is looked at again after this many looks, at first more often:
/// it may have become another program.
const AGAIN: u32 = 16;

/// A thread that looks.
pub struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    /// Begins with a process and those that it starts; time counts from `since`.
    pub fn start(pid: u32, since: Instant) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let mut family = Family { first: pid, known: HashMap::new() };
            let mut samples = Vec::new();
            let mut interval = INTERVAL;
            loop {
                let begun = Instant::now();
                let sample = family.look(since.elapsed().as_millis() as u64);
                if sample.processes > 0 {
                    samples.push(sample);
                }
                if samples.len() >= MOST {
                    let mut nth = 0;
                    samples.retain(|_| {
                        nth += 1;
                        nth % 2 == 1
                    });
                    interval *= 2;
                }
                let took = if samples.len() > FIRST { begun.elapsed() } else { Duration::ZERO };
                let rest = interval.max(took * REST);
                match stopped.recv_timeout(rest) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return samples,
                }
            }
        });
        Self { stop, thread }
    }

    /// Everything that was seen.
    pub fn finish(self) -> Vec<Sample> {
        let _ = self.stop.send(());
        // What a thread that has panicked saw is lost; the run is not.
        self.thread.join().unwrap_or_default()
    }
}

/// What is known of a process.
#[derive(Default)]
struct Known {
    window: Option<Window>,
    looks: u32,
}

struct Family {
    first: u32,
    known: HashMap<u32, Known>,
}

impl Family {
    /// The memory of all members now.
    fn look(&mut self, ms: u64) -> Sample {
        let mut sum = Sample { ms, ..Sample::default() };
        let members = members(self.first);
        self.known.retain(|pid, _| members.contains(pid));
        for pid in members {
            let known = self.known.entry(pid).or_default();
            if let Some(sample) = known.look(pid) {
                sum.add(&sample);
            }
        }
        sum
    }
}

impl Known {
    fn look(&mut self, pid: u32) -> Option<Sample> {
        let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        let pages = |at: usize| statm.split(' ').nth(at).and_then(|n| n.parse::<u64>().ok());
        let (resident, of_files) = (pages(1)?, pages(2)?);
        if resident == 0 {
            // It has ended, and its parent has not waited for it yet.
            return None;
        }
        let mut figures = self.window.as_ref().and_then(Window::figures);
        let again = self.looks.is_multiple_of(AGAIN) || self.looks.is_power_of_two();
        if figures.is_none() && again {
            self.window = Window::open(pid as i32).ok();
            figures = self.window.as_ref().and_then(Window::figures);
        }
        self.looks = if figures.is_some() { 0 } else { self.looks.wrapping_add(1) };
        let layers = figures.map_or([0; Layer::ALL.len()], |figures| {
            let bytes = |figure: Figure| figures[figure as usize];
            let free = bytes(Figure::InCaches) + bytes(Figure::InTransfer) + bytes(Figure::InSpans);
            Layer::ALL.map(|layer| match layer {
                Layer::Native => bytes(Figure::Live).saturating_sub(free),
                Layer::Mapped => bytes(Figure::MappedLive),
                Layer::Free => free + bytes(Figure::Cached),
                Layer::Warm => bytes(Figure::MappedWarm),
            })
        });
        let resident_bytes = resident.saturating_sub(of_files) * PAGE_BYTES as u64;
        Some(Sample { ms: 0, processes: 1, resident_bytes, layers })
    }
}

/// A process and all that it and its children have started and not left behind.
fn members(first: u32) -> Vec<u32> {
    let mut members = vec![first];
    let mut at = 0;
    while let Some(pid) = members.get(at).copied() {
        at += 1;
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            members.extend(children.split_ascii_whitespace().filter_map(|n| n.parse::<u32>().ok()));
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_family_is_seen_while_it_lives() {
        let script = "sleep 60 & echo; wait";
        let mut shell =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut line).unwrap();
        let family = members(shell.id());
        assert_eq!((family.len(), family[0]), (2, shell.id()));
        let sampler = Sampler::start(shell.id(), Instant::now());
        std::thread::sleep(Duration::from_millis(300));
        for pid in family {
            let pid = nix::unistd::Pid::from_raw(pid as i32);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        shell.wait().unwrap();
        let samples = sampler.finish();
        let both = samples.iter().filter(|sample| sample.processes == 2);
        assert!(both.clone().count() > 3, "{samples:?}");
        assert!(both.clone().all(|s| s.resident_bytes > 0 && s.layers == [0; 4]), "{samples:?}");
        assert!(samples.is_sorted_by_key(|sample| sample.ms));
    }
}
