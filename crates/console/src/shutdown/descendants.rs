//! The processes that the command has started, and those that they have started.
//!
//! A process is found by its parent. From the beginning of the end on, the command adopts orphans
//! (`PR_SET_CHILD_SUBREAPER`), so that a process whose parent ends first is still found.
//!
//! A zombie counts as ended. Zombies are collected as the last step of the command: the main thread may wait for
//! one of them, and a process id is free for another process once it was waited for.

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time for descendants to end in good order.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time after SIGKILL. A process in an uninterruptible call of the kernel takes longer.
const PATIENCE_AFTER_KILL: Duration = Duration::from_secs(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Ends all descendants: by SIGTERM, and by SIGKILL after some seconds or when `hurried` says so.
pub fn end(mut hurried: impl FnMut() -> bool) {
    let _ = prctl::set_child_subreaper(true);
    let (mut reached, mut beyond) = (HashSet::new(), HashSet::new());
    let mut last = Instant::now() + PATIENCE;
    let mut by = Signal::SIGTERM;
    loop {
        let alive: Vec<Pid> =
            of(Pid::this()).into_iter().filter(|pid| !beyond.contains(pid)).collect();
        if alive.is_empty() {
            return;
        }
        for pid in alive {
            if !reached.insert(pid) {
                continue;
            }
            if kill(pid, by) == Err(Errno::EPERM) {
                beyond.insert(pid);
            }
            // A stopped process ends when it continues.
            let _ = kill(pid, Signal::SIGCONT);
        }
        if Instant::now() >= last || hurried() {
            if by == Signal::SIGKILL {
                return;
            }
            (by, last) = (Signal::SIGKILL, Instant::now() + PATIENCE_AFTER_KILL);
            reached.clear();
        }
        sleep(LOOK_INTERVAL);
    }
}

/// Waits for the children that have ended.
pub fn collect() {
    while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|of| of.pid().is_some()) {}
}

/// The descendants of a process that have not ended.
fn of(first: Pid) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let parent = fs::read_to_string(entry.path().join("stat")).ok().and_then(|s| parent(&s));
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(Pid::from_raw(pid));
        }
    }
    let mut all = children.remove(&first).unwrap_or_default();
    let mut at = 0;
    while let Some(pid) = all.get(at) {
        all.extend(children.remove(pid).unwrap_or_default());
        at += 1;
    }
    all
}

/// The parent of a process in its line of `/proc/PID/stat`; none where the process has ended. Its name may
/// contain anything.
fn parent(stat: &str) -> Option<Pid> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let has_ended = matches!(fields.next()?, "Z" | "X");
    fields.next()?.parse().ok().map(Pid::from_raw).filter(|_| !has_ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_line_of_stat_has_a_parent() {
        assert_eq!(parent("7 (a) b) S 3 7 7 0"), Some(Pid::from_raw(3)));
        for none in ["7 (a) Z 3 7", "7 (a) X 3 7", "7 (a)", "", "7 (a) S"] {
            assert_eq!(parent(none), None, "{none}");
        }
    }

    #[test]
    fn children_of_children_are_descendants_and_ended_ones_are_not() {
        let script = "sleep 60 & exec 1>&-; wait";
        let mut shell =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = shell.stdout.take().unwrap();
        // The background job has the pipe too: only its own start is awaited.
        let first = Pid::from_raw(shell.id() as i32);
        while of(first).is_empty() {
            sleep(LOOK_INTERVAL);
        }
        let family = of(first);
        assert!(of(Pid::this()).contains(&first) && of(Pid::this()).contains(&family[0]));
        for pid in family.into_iter().chain([first]) {
            kill(pid, Signal::SIGKILL).unwrap();
        }
        std::io::Read::read_to_end(&mut out, &mut Vec::new()).unwrap();
        while of(Pid::this()).contains(&first) {
            sleep(LOOK_INTERVAL);
        }
        shell.wait().unwrap();
    }
}
