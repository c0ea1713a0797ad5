//! What it costs a program to be loaded with an allocator: `true` from start to
//! end, hundreds of times, and the memory of a program that does nothing.

use super::Bench;
use super::contender::Contender;
use super::measure;
use super::numbers::{Summary, bytes, median, time};
use super::progress::Progress;
use super::report::Section;
use super::table;
use super::target::Verdict;
use crate::failure::Failure;
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

/// Starts per round; their median is the round's figure.
const STARTS: usize = 40;
/// What loading Spandrel may cost.
const LIMIT_MS: f64 = 1.0;
const LIMIT_MIB: f64 = 4.0;

pub fn run(bench: &Bench, progress: &Progress) -> Result<Section, Failure> {
    let mut section =
        Section::new("startup", "the program `true`, and a program that does nothing");
    let all = measure::in_turns(&bench.contenders, bench.runs, progress, "startup", |contender| {
        let mut wall = Vec::with_capacity(STARTS);
        let mut cpu = Vec::with_capacity(STARTS);
        for _ in 0..STARTS {
            let (elapsed, used) = start_true(contender)?;
            wall.push(elapsed);
            cpu.push(used);
        }
        let idle = measure::worker(&bench.worker, contender, &["true"])?;
        Ok(json!({
            "wall_ns": median(&wall),
            "cpu_ns": median(&cpu),
            "rss": idle.get("peak_rss"),
        }))
    });

    let header = ["allocator", "CPU time", "elapsed", "more than sys", "memory", "more than sys"];
    let mut table = table::new(&header.map(String::from));
    let system = |key: &str| {
        let series = all.iter().find(|series| series.contender.is_system())?;
        median(&series.values(key))
    };
    let (system_cpu, system_rss) =
        (system("cpu_ns").unwrap_or_default(), system("rss").unwrap_or_default());
    for series in &all {
        let cell = |key: &str, text: fn(f64) -> String| {
            median(&series.values(key)).map_or("?".to_string(), text)
        };
        let more = |key: &str, base: f64| median(&series.values(key)).map(|value| value - base);
        let cpu = more("cpu_ns", system_cpu);
        let rss = more("rss", system_rss);
        let name = &series.contender.name;
        table::add(
            &mut table,
            series.contender.ours,
            vec![
                name.clone(),
                cell("cpu_ns", time),
                cell("wall_ns", time),
                cpu.map_or("?".into(), |cpu| format!("{:+.2} ms", cpu / 1e6)),
                cell("rss", bytes),
                rss.map_or("?".into(), |rss| format!("{:+.2} MiB", rss / (1 << 20) as f64)),
            ],
        );
        if series.contender.ours {
            let mut judge = |what: &str, value: Option<f64>, most: f64, unit: &str| {
                if let Some(value) = value {
                    let what = format!("{name}: {what}");
                    section.verdicts.push(Verdict::new("", what, value, most, unit));
                }
            };
            judge("CPU time more than sys", cpu.map(|cpu| cpu / 1e6), LIMIT_MS, " ms");
            judge("memory more than sys", rss.map(|rss| rss / (1 << 20) as f64), LIMIT_MIB, " MiB");
        }
    }
    section.tables.push(table.to_string());
    section.data = all
        .iter()
        .map(|series| {
            json!({
                "allocator": series.contender.name,
                "cpu_ns": Summary::of(&series.values("cpu_ns")),
                "wall_ns": Summary::of(&series.values("wall_ns")),
                "rss": Summary::of(&series.values("rss")),
                "failed": series.failed,
            })
        })
        .collect::<Vec<_>>()
        .into();
    Ok(section)
}

/// Runs `true` once: elapsed time and CPU time in nanoseconds.
fn start_true(contender: &Contender) -> Result<(f64, f64), String> {
    let mut command = Command::new("true");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    contender.prepare(&mut command);
    let start = Instant::now();
    let child = command.spawn().map_err(|why| format!("true: {why}"))?;
    let (status, cpu_ns) = wait(child.id())?;
    let elapsed = start.elapsed().as_nanos() as f64;
    if status.success() { Ok((elapsed, cpu_ns)) } else { Err(status.to_string()) }
}

/// Waits for a child of which nobody else waits, and returns what it used.
fn wait(pid: u32) -> Result<(ExitStatus, f64), String> {
    let mut status = 0;
    // SAFETY: an all-zero `rusage` is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both places are valid for the results.
    let done = unsafe { libc::wait4(pid as libc::pid_t, &mut status, 0, &mut usage) };
    if done < 0 {
        return Err(std::io::Error::last_os_error().to_string());
    }
    let nanoseconds = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
    let cpu = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
    Ok((ExitStatus::from_raw(status), cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn true_takes_time() {
        let (wall, cpu) = start_true(&Contender::system()).unwrap();
        assert!(wall > 0.0 && cpu > 0.0);
    }
}
