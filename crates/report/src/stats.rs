//! The statistics that the library writes when a process ends: read, added up
//! over processes, shown.

use serde::{Deserialize, Serialize};
use spandrel_pages::Figure;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The format that is understood.
const FORMAT: u32 = 1;

/// One process's statistics, or the sum of several.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Stats {
    /// Version of the format.
    pub format: u32,
    /// The process; 0 for several.
    #[serde(default)]
    pub pid: u32,
    /// The mode in force at the end.
    #[serde(default)]
    pub mode: String,
    /// The program.
    #[serde(default)]
    pub program: String,
    /// The experiment that the process takes part in; empty: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub experiment: String,
    /// Its group there: `control` or `variant`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// What the process has used.
    #[serde(default)]
    pub usage: Usage,
    /// Requests by allocator and size.
    #[serde(default)]
    pub requests: Vec<Requests>,
    /// What became of reallocations.
    #[serde(default)]
    pub realloc: Realloc,
    /// The page-mapped allocator.
    #[serde(default)]
    pub mmap: Mmap,
    /// The native allocator, by the names of its figures; empty: it did not start.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub native: BTreeMap<String, u64>,
    /// What the process has learnt, if it learns; of several, which learn each for itself, the one that looked most often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuner: Option<Tuner>,
    /// System calls that failed and were done without.
    #[serde(default)]
    pub degraded: Vec<Degraded>,
    /// Places of the program that resize objects, if they were followed: a sample, made up to all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<Site>,
}

/// What a process has learnt of the allocators that serve it best.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Tuner {
    /// Looks of a millisecond, in which each request was timed.
    pub windows: u64,
    /// The part of the processor's time that they took.
    pub spent: f64,
    /// What is known, by operation and size.
    pub rows: Vec<LearntRow>,
    /// When another allocator got a row, oldest first.
    #[serde(default)]
    pub changes: Vec<LearntChange>,
}

/// What is known of one operation in one range of sizes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct LearntRow {
    /// `allocate` or `grow`.
    pub operation: String,
    /// Smallest size of the range.
    pub from: u64,
    /// Largest size of the range.
    pub to: u64,
    /// The allocator that serves it where nothing was learnt.
    pub usual: String,
    /// The allocator that serves it.
    pub chosen: String,
    /// Whether the choice is on trial.
    pub on_trial: bool,
    /// How often it has changed.
    pub changes: u32,
    /// The part of the processor's time that it took lately.
    pub share: f64,
    /// Nanoseconds of an object, by allocator.
    pub nanos: BTreeMap<String, f64>,
}

/// A row got another allocator.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct LearntChange {
    /// Milliseconds of the processor's time since learning began.
    pub after_ms: u64,
    /// `allocate` or `grow`.
    pub operation: String,
    /// Smallest size of the range.
    pub from: u64,
    /// Largest size of the range.
    pub to: u64,
    /// The allocator that serves it from then on.
    pub allocator: String,
    /// On trial; else it came back, as the trial was not passed.
    pub on_trial: bool,
}

/// A place of a program that resizes objects.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Site {
    /// Reallocations.
    pub reallocs: u64,
    /// Bytes requested by them.
    pub bytes: u64,
    /// Bytes copied for them.
    pub copied_bytes: u64,
    /// The caller, its caller, …
    pub callers: Vec<Caller>,
}

/// A place in code.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Caller {
    /// The file that it was loaded from.
    pub file: String,
    /// Bytes from where the file begins in memory.
    pub offset: u64,
    /// The function; empty: not known.
    pub function: String,
}

/// What a process has used, as the kernel has counted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Usage {
    /// Microseconds of processor time.
    pub cpu_us: u64,
    /// The most that was resident at once. Of several processes the largest one's.
    pub peak_bytes: u64,
    /// Page faults.
    pub faults: u64,
}

/// Requests of one allocator in one range of sizes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Requests {
    /// The allocator.
    pub backend: String,
    /// Smallest size of the range.
    pub from: u64,
    /// Largest size of the range.
    pub to: u64,
    /// Allocations.
    #[serde(default)]
    pub allocs: u64,
    /// Bytes requested by them.
    #[serde(default)]
    pub alloc_bytes: u64,
    /// Reallocations to that size.
    #[serde(default)]
    pub reallocs: u64,
    /// Bytes requested by them.
    #[serde(default)]
    pub realloc_bytes: u64,
    /// Objects freed; counted per allocator, in a row of size zero.
    #[serde(default)]
    pub frees: u64,
}

/// What became of reallocations.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Realloc {
    /// The object stayed where it was.
    pub in_place: u64,
    /// Its pages were mapped elsewhere.
    pub moved_pages: u64,
    /// Its bytes were copied.
    pub copied: u64,
    /// How many bytes that were.
    pub copied_bytes: u64,
    /// It changed the allocator.
    pub migrated: u64,
}

/// The page-mapped allocator at the end of the process.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Mmap {
    /// Slots in use.
    pub live_slots: u64,
    /// Bytes in them.
    pub live_bytes: u64,
    /// Bytes kept for the next object.
    pub warm_bytes: u64,
    /// Bytes that came from there, without a page fault.
    pub faults_avoided_bytes: u64,
}

/// A system call that failed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Degraded {
    /// Which.
    pub what: String,
    /// The error.
    pub errno: i32,
    /// How often.
    pub count: u64,
}

impl Requests {
    /// Requests for memory of either kind.
    pub fn count(&self) -> u64 {
        self.allocs + self.reallocs
    }

    /// Bytes requested by either kind.
    pub fn bytes(&self) -> u64 {
        self.alloc_bytes + self.realloc_bytes
    }

    fn add(&mut self, other: &Requests) {
        self.allocs += other.allocs;
        self.alloc_bytes += other.alloc_bytes;
        self.reallocs += other.reallocs;
        self.realloc_bytes += other.realloc_bytes;
        self.frees += other.frees;
    }
}

impl Stats {
    /// Reads what a library wrote.
    pub fn parse(text: &str) -> Result<Self, String> {
        let stats: Self = serde_json::from_str(text).map_err(|why| why.to_string())?;
        if stats.format != FORMAT {
            return Err(format!("format {}, and this command reads {FORMAT}", stats.format));
        }
        Ok(stats)
    }

    /// Adds up several processes. Names are kept where all agree.
    pub fn sum(all: &[Stats]) -> Self {
        let agreed = |name: fn(&Stats) -> &String| {
            let mut names: Vec<&str> = all.iter().map(|stats| name(stats).as_str()).collect();
            names.sort_unstable();
            names.dedup();
            names.join(", ")
        };
        let mut sum = Self {
            format: FORMAT,
            mode: agreed(|stats| &stats.mode),
            program: agreed(|stats| &stats.program),
            experiment: agreed(|stats| &stats.experiment),
            group: agreed(|stats| &stats.group),
            ..Self::default()
        };
        let mut requests: BTreeMap<(String, u64, u64), Requests> = BTreeMap::new();
        let mut degraded: BTreeMap<(String, i32), u64> = BTreeMap::new();
        for stats in all {
            for row in &stats.requests {
                let key = (row.backend.clone(), row.from, row.to);
                let into = requests.entry(key).or_insert_with(|| Requests {
                    backend: row.backend.clone(),
                    from: row.from,
                    to: row.to,
                    ..Requests::default()
                });
                into.add(row);
            }
            for row in &stats.degraded {
                *degraded.entry((row.what.clone(), row.errno)).or_default() += row.count;
            }
            sum.usage.cpu_us += stats.usage.cpu_us;
            sum.usage.peak_bytes = sum.usage.peak_bytes.max(stats.usage.peak_bytes);
            sum.usage.faults += stats.usage.faults;
            sum.realloc.in_place += stats.realloc.in_place;
            sum.realloc.moved_pages += stats.realloc.moved_pages;
            sum.realloc.copied += stats.realloc.copied;
            sum.realloc.copied_bytes += stats.realloc.copied_bytes;
            sum.realloc.migrated += stats.realloc.migrated;
            sum.mmap.live_slots += stats.mmap.live_slots;
            sum.mmap.live_bytes += stats.mmap.live_bytes;
            sum.mmap.warm_bytes += stats.mmap.warm_bytes;
            sum.mmap.faults_avoided_bytes += stats.mmap.faults_avoided_bytes;
            for (name, value) in &stats.native {
                let known = Figure::ALL.iter().find(|figure| figure.name() == name);
                let into = sum.native.entry(name.clone()).or_default();
                *into = match known {
                    Some(figure) if !figure.adds_up() => *value.max(into),
                    _ => *into + value,
                };
            }
        }
        // Both are of the same moment: that of the process with the higher peak.
        let peak = |stats: &Stats, figure: Figure| stats.native.get(figure.name()).copied();
        if let Some(highest) = all.iter().max_by_key(|stats| peak(stats, Figure::PeakLive))
            && let Some(resident) = peak(highest, Figure::PeakResident)
        {
            sum.native.insert(Figure::PeakResident.name().into(), resident);
        }
        let learners = all.iter().filter_map(|stats| stats.tuner.as_ref());
        sum.tuner = learners.max_by_key(|tuner| tuner.windows).cloned();
        sum.sites = sum_of_sites(all.iter().flat_map(|stats| &stats.sites));
        sum.requests = requests.into_values().collect();
        let degraded = degraded.into_iter();
        sum.degraded =
            degraded.map(|((what, errno), count)| Degraded { what, errno, count }).collect();
        sum
    }

    /// The allocators that served anything.
    pub fn backends(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.requests.iter().map(|row| row.backend.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Everything that one allocator served.
    pub fn total(&self, backend: &str) -> Requests {
        let mut total = Requests { backend: backend.into(), ..Requests::default() };
        for row in self.requests.iter().filter(|row| row.backend == backend) {
            total.add(row);
        }
        total
    }
}

/// The same places of all processes together, those that copied most first.
fn sum_of_sites<'a>(all: impl Iterator<Item = &'a Site>) -> Vec<Site> {
    let mut sums: BTreeMap<&[Caller], Site> = BTreeMap::new();
    for site in all {
        let into = sums.entry(&site.callers).or_default();
        into.reallocs += site.reallocs;
        into.bytes += site.bytes;
        into.copied_bytes += site.copied_bytes;
    }
    let sums = sums.into_iter().map(|(callers, sum)| Site { callers: callers.to_vec(), ..sum });
    let mut sums: Vec<Site> = sums.collect();
    sums.sort_by_key(|site| Reverse((site.copied_bytes, site.reallocs)));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"{"format":1,"version":"0.1.0","pid":1,"program":"a","mode":"auto",
        "usage":{"cpu_us":5,"peak_bytes":7,"faults":9},
        "requests":[{"backend":"mimalloc","from":32,"to":63,"allocs":10,"alloc_bytes":400,"reallocs":0,"frees":0},
                    {"backend":"mimalloc","from":0,"to":0,"allocs":0,"alloc_bytes":0,"reallocs":0,"frees":9}],
        "realloc":{"in_place":1,"moved_pages":2,"copied":3,"copied_bytes":4,"migrated":5},
        "mmap":{"live_slots":0,"live_bytes":0,"warm_bytes":7,"faults_avoided_bytes":0},
        "native":{"live_bytes":100,"patience_s":5,"peak_resident_bytes":50,"peak_live_bytes":40},
        "tuner":{"windows":2,"spent":0.001,"rows":[{"operation":"grow","from":32,"to":63,"usual":"native",
                 "chosen":"mmap","on_trial":true,"changes":1,"share":0.25,"nanos":{"native":41.5}}]},
        "degraded":[{"what":"mremap","errno":38,"count":3}],
        "sites":[{"reallocs":16,"bytes":5,"copied_bytes":0,"callers":[]},
                 {"reallocs":1,"bytes":9,"copied_bytes":7,"callers":[{"file":"/x","offset":3,"function":"f"}]}]}"#;

    #[test]
    fn processes_add_up() {
        let one = Stats::parse(ONE).unwrap();
        assert_eq!(one.tuner.as_ref().unwrap().rows[0].nanos["native"], 41.5);
        let mut other = one.clone();
        other.program = "b".into();
        // A lower peak, with more resident.
        other.native.insert("peak_resident_bytes".into(), 60);
        other.native.insert("peak_live_bytes".into(), 39);
        other.requests.push(Requests {
            backend: "mmap".into(),
            from: 4096,
            allocs: 1,
            ..Requests::default()
        });
        let sum = Stats::sum(&[one, other]);
        assert_eq!(sum.tuner.as_ref().map(|tuner| tuner.windows), Some(2));
        assert_eq!((sum.mode.as_str(), sum.program.as_str()), ("auto", "a, b"));
        assert_eq!(sum.backends(), ["mimalloc", "mmap"]);
        let total = sum.total("mimalloc");
        assert_eq!((total.allocs, total.alloc_bytes, total.frees), (20, 800, 18));
        assert_eq!(sum.realloc.copied_bytes, 8);
        assert_eq!(sum.mmap.warm_bytes, 14);
        assert_eq!((sum.native["live_bytes"], sum.native["patience_s"]), (200, 5));
        assert_eq!((sum.native["peak_resident_bytes"], sum.native["peak_live_bytes"]), (50, 40));
        assert_eq!(sum.usage, Usage { cpu_us: 10, peak_bytes: 7, faults: 18 });
        let sites: Vec<_> = sum.sites.iter().map(|s| (s.reallocs, s.copied_bytes)).collect();
        assert_eq!(
            (sites.as_slice(), sum.sites[0].callers[0].offset),
            (&[(2, 14), (32, 0)][..], 3)
        );
        assert_eq!(sum.degraded, [Degraded { what: "mremap".into(), errno: 38, count: 6 }]);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert!(Stats::parse("").is_err());
        assert!(Stats::parse("{}").is_err());
        assert!(Stats::parse(r#"{"format":2}"#).unwrap_err().contains("format 2"));
        assert!(Stats::parse(r#"{"format":1}"#).is_ok());
    }
}
