//! A run: what it was, what its processes said, what was seen of it from outside.

use crate::numbers::Summary;
use crate::stats::Stats;
use serde::Serialize;

/// Version of the form of a run as JSON.
pub const FORMAT: u32 = 1;

/// A program that ran, and what is known of it.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Version of the form.
    pub format: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The mode that it was to run in.
    pub mode: String,
    /// Its exit code, or 128 and the signal that ended it.
    pub exit_code: u8,
    /// From its start to its end.
    pub elapsed_ms: f64,
    /// The machine's kind.
    pub machine: String,
    /// Of all processes together.
    pub sum: Stats,
    /// Each process that said something, by its number.
    pub processes: Vec<Stats>,
    /// Processes whose words could not be read.
    pub unreadable: usize,
    /// Memory as it was seen, in order of time.
    pub samples: Vec<Sample>,
    /// The same job in other ways, and once more in this one. Empty: not requested.
    pub compared: Vec<Way>,
}

impl Run {
    /// The program without its folder, and its arguments, in one line of no more than `most` letters.
    pub fn title(&self, most: usize) -> String {
        let (program, words) =
            self.command.split_first().map_or(("", &[][..]), |(p, w)| (p.as_str(), w));
        let program = program.rsplit('/').next().unwrap_or(program);
        let words = words.iter().flat_map(|word| word.split_whitespace());
        let line = [program].into_iter().chain(words).collect::<Vec<_>>().join(" ");
        if line.chars().count() <= most {
            return line;
        }
        line.chars().take(most.saturating_sub(1)).chain(['…']).collect()
    }

    /// A run of which nothing is known but its end.
    pub fn new(command: Vec<String>, mode: String, exit_code: u8, elapsed_ms: f64) -> Self {
        Self {
            format: FORMAT,
            command,
            mode,
            exit_code,
            elapsed_ms,
            machine: String::new(),
            sum: Stats::default(),
            processes: Vec::new(),
            unreadable: 0,
            samples: Vec::new(),
            compared: Vec::new(),
        }
    }

    /// The most that was resident at once.
    pub fn peak_bytes(&self) -> Option<u64> {
        self.samples.iter().map(|sample| sample.resident_bytes).max()
    }
}

/// What is told apart of a process's memory, from the bottom of the picture to its top.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// Objects of the native heap.
    Native,
    /// Objects with pages of their own.
    Mapped,
    /// Free objects in caches and spans, and empty huge pages that are kept.
    Free,
    /// Pages kept for the next object with pages of its own.
    Warm,
}

impl Layer {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Native, Self::Mapped, Self::Free, Self::Warm];

    /// What a legend calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "objects of the native heap",
            Self::Mapped => "page-mapped objects",
            Self::Free => "free in the native heap's caches and spans",
            Self::Warm => "page-mapped, kept for the next",
        }
    }
}

/// Memory of all processes of a run at one moment.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct Sample {
    /// Since the start.
    pub ms: u64,
    /// How many processes there were.
    pub processes: u32,
    /// Resident memory that no file backs.
    pub resident_bytes: u64,
    /// By layer, in their order: what the library has written down.
    pub layers: [u64; Layer::ALL.len()],
}

impl Sample {
    /// Resident memory that is in no layer: the program's own mappings, stacks, what glibc and hosted
    /// allocators hold.
    pub fn others_bytes(&self) -> u64 {
        self.resident_bytes.saturating_sub(self.layers.iter().sum())
    }

    /// Adds another process's memory at the same moment.
    pub fn add(&mut self, other: &Self) {
        self.processes += other.processes;
        self.resident_bytes += other.resident_bytes;
        for (into, bytes) in self.layers.iter_mut().zip(other.layers) {
            *into += bytes;
        }
    }
}

/// What a job took in one way of allocating: uncounted, unwatched, in turns with the others.
#[derive(Clone, Debug, Serialize)]
pub struct Way {
    /// The way's name.
    pub name: String,
    /// Whether it is the one that the run itself used.
    pub is_the_run: bool,
    /// Processor time, in nanoseconds.
    pub cpu_ns: Option<Summary>,
    /// Elapsed time, in nanoseconds.
    pub wall_ns: Option<Summary>,
    /// The largest process's peak, in bytes.
    pub peak_bytes: Option<Summary>,
    /// Page faults.
    pub faults: Option<Summary>,
    /// Why there is nothing.
    pub failed: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_one_short_line() {
        let run = |words: &[&str]| {
            let words = words.iter().map(|word| word.to_string()).collect();
            Run::new(words, String::new(), 0, 0.0)
        };
        assert_eq!(run(&["/usr/bin/x", "-c", "a\n  b"]).title(80), "x -c a b");
        assert_eq!(run(&["x", "äöü", "4567"]).title(6), "x äöü…");
        assert_eq!(run(&[]).title(6), "");
    }

    #[test]
    fn samples_add_up() {
        let mut sum = Sample { ms: 5, processes: 1, resident_bytes: 100, layers: [10, 20, 0, 0] };
        sum.add(&Sample { ms: 0, processes: 1, resident_bytes: 50, layers: [1, 2, 3, 4] });
        assert_eq!(
            sum,
            Sample { ms: 5, processes: 2, resident_bytes: 150, layers: [11, 22, 3, 4] }
        );
        assert_eq!(sum.others_bytes(), 110);
    }
}
