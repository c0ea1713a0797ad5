//! The processes of a program: all that descend from this one.

use crate::meter;
use std::collections::HashMap;
use std::fs;

/// Between two samples of memory at least, and as a multiple of what a sample takes: reading must not be what is measured.
const SAMPLE_NS: u64 = 100_000_000;
const SAMPLE_SHARE: u64 = 50;

/// How all processes that live stand.
#[derive(Clone, Copy, Default)]
pub struct Standing {
    /// CPU time of them and of all that have ended.
    pub cpu_ns: u64,
    /// The sum of their proportional shares of resident memory.
    pub bytes: u64,
    /// Their number.
    pub processes: usize,
}

/// The processes, and the most that they held.
pub struct Family {
    peak: u64,
    next_sample: u64,
}

impl Family {
    pub fn new() -> Self {
        Self { peak: 0, next_sample: 0 }
    }

    /// Measures memory, if it is time.
    pub fn sample(&mut self) {
        let begun = meter::wall_ns();
        if begun < self.next_sample {
            return;
        }
        let bytes = descendants().iter().map(|one| share(one.pid)).sum();
        self.peak = self.peak.max(bytes);
        let took = meter::wall_ns() - begun;
        self.next_sample = meter::wall_ns() + SAMPLE_NS.max(took * SAMPLE_SHARE);
    }

    /// The most memory so far in bytes: the largest sum of shares that was sampled, or the largest single process that has
    /// ended, whose peak the kernel knows exactly.
    pub fn peak(&self) -> u64 {
        self.peak.max(usage().ru_maxrss as u64 * 1024)
    }

    /// How they stand now.
    pub fn standing(&mut self) -> Standing {
        let all = descendants();
        // SAFETY: asks for a constant.
        let tick_ns = 1_000_000_000 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
        let alive: u64 = all.iter().map(|one| one.ticks * tick_ns).sum();
        let usage = usage();
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        let bytes = all.iter().map(|one| share(one.pid)).sum();
        self.peak = self.peak.max(bytes);
        let cpu_ns = alive + ns(usage.ru_utime) + ns(usage.ru_stime);
        Standing { cpu_ns, bytes, processes: all.len() }
    }

    /// Kills all of them; whether there were any.
    pub fn kill_all(&self) -> bool {
        let all = descendants();
        for one in &all {
            // SAFETY: a process that descends from this one; a zombie keeps its number.
            unsafe { libc::kill(one.pid, libc::SIGKILL) };
        }
        !all.is_empty()
    }
}

/// A process that has not ended.
struct Process {
    pid: libc::pid_t,
    /// CPU time of it and of the children that it has waited for.
    ticks: u64,
}

/// All that descend from this process and have not ended.
fn descendants() -> Vec<Process> {
    let mut children: HashMap<libc::pid_t, Vec<Process>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let stat = pid.and_then(|_| fs::read_to_string(entry.path().join("stat")).ok());
        if let (Some(pid), Some((parent, ticks))) = (pid, stat.and_then(|stat| fields(&stat))) {
            children.entry(parent).or_default().push(Process { pid, ticks });
        }
    }
    let mut all = children.remove(&(std::process::id() as libc::pid_t)).unwrap_or_default();
    let mut at = 0;
    while let Some(pid) = all.get(at).map(|one| one.pid) {
        all.extend(children.remove(&pid).unwrap_or_default());
        at += 1;
    }
    all
}

/// The parent and the ticks in a line of `/proc/PID/stat`; none where the process has ended. The name may contain anything.
fn fields(stat: &str) -> Option<(libc::pid_t, u64)> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    let ticks: Option<u64> =
        fields.get(11..15)?.iter().map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some((fields.get(1)?.parse().ok()?, ticks?))
}

/// A process's proportional share of resident memory in bytes; 0 where it has ended or belongs to another user.
fn share(pid: libc::pid_t) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// What all that were waited for used.
fn usage() -> libc::rusage {
    // SAFETY: an all-zero `rusage` is a valid value, and a valid place for the answer.
    let mut usage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat() {
        let line = "7 (a) b) S 3 7 7 0 -1 4 9 9 9 9 10 20 30 40 20 0 1 0";
        assert_eq!(fields(line), Some((3, 100)));
        for none in ["7 (a) Z 3 7 7 0 -1 4 9 9 9 9 10 20 30 40", "7 (a) S 3", "", "7 (a"] {
            assert_eq!(fields(none), None, "{none}");
        }
    }

    #[test]
    fn a_child_is_found_with_its_share() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as libc::pid_t;
        assert!(descendants().iter().any(|one| one.pid == pid));
        assert!(share(pid) > 0);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(descendants().iter().all(|one| one.pid != pid));
    }
}
