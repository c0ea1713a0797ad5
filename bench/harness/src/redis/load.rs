//! The load: `redis-benchmark` with the commands and value sizes of interest.

use super::server::Server;
use serde::Serialize;
use serde_json::{Value, json};
use spandrel_console::shutdown::output;
use spandrel_measure::contender::Contender;
use spandrel_measure::reserve::Reserve;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// One command of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Op {
    Set,
    Get,
    Lpush,
    Lrange,
}

/// All of them, in the order in which each finds its data.
pub const OPS: [Op; 4] = [Op::Set, Op::Get, Op::Lpush, Op::Lrange];

impl Op {
    /// What tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Op::Set => "SET",
            Op::Get => "GET",
            Op::Lpush => "LPUSH",
            Op::Lrange => "LRANGE 100",
        }
    }

    /// Whether it takes memory: for what it stores, or for long answers.
    fn takes_memory(self) -> bool {
        self != Op::Get
    }
}

/// How much of each command.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Bytes per value.
    pub value: usize,
    /// Different keys for SET and GET.
    keys: usize,
    /// Requests: SET and GET, LPUSH, LRANGE.
    requests: [usize; 3],
}

/// More than any command makes the server grow by.
const OP_BYTES: u64 = 512 << 20;
/// Clients at a time.
const CLIENTS: &str = "16";
/// Requests that a client of the pipelined part sends at once.
const PIPELINE: usize = 8;
/// The commands of that part: eight answers of `LRANGE` at once to each client would be
/// a test of the server's output buffers.
pub const PIPELINED: [Op; 3] = [Op::Set, Op::Get, Op::Lpush];

impl Load {
    /// The two sizes of the comparison. The larger the values, the fewer requests:
    /// each command takes about a second, or a third of it.
    pub fn both(short: bool) -> [Self; 2] {
        let part = if short { 3 } else { 1 };
        let load = |value, keys, requests: [usize; 3]| Self {
            value,
            keys,
            requests: requests.map(|requests| requests / part),
        };
        [
            load(4 << 10, 20_000, [60_000, 45_000, 3_000]),
            load(40 << 10, 2_000, [18_000, 9_000, 300]),
        ]
    }

    /// What tables call it.
    pub fn name(&self) -> String {
        format!("{} KiB values", self.value >> 10)
    }

    /// Puts the load on a fresh server; per command the CPU time and the rate, and
    /// the peak memory; then, if `pipelined`, both of requests that are sent in
    /// batches. If its own allocator shall be `replaced`, that is checked.
    pub fn run(
        &self,
        contender: &Contender,
        replaced: bool,
        pipelined: bool,
    ) -> Result<Value, String> {
        // Memory that is free for two seconds the host takes back, a gigabyte in a
        // tenth of a second, in which all processes wait: none is left free that the
        // next command does not need.
        let _beyond = Reserve::hold();
        let mut next = Some(Reserve::of(OP_BYTES));
        let server = Server::start(contender)?;
        let mut measure = |op: Op, requests: usize, pipeline: usize| {
            if op.takes_memory() {
                next = None;
            }
            let (before, start) = (server.cpu_ns()?, Instant::now());
            let rate = self.benchmark(&server, op, requests, pipeline)?;
            let (cpu, wall) = (server.cpu_ns()?.saturating_sub(before), start.elapsed());
            next.get_or_insert_with(|| Reserve::of(OP_BYTES));
            Ok::<_, String>((cpu, wall, rate))
        };
        let mut result = json!({});
        let (mut cpu_all, mut wall_all) = (0, Duration::ZERO);
        for op in OPS {
            let requests = self.requests(op);
            let (cpu, wall, rate) = measure(op, requests, 1)?;
            cpu_all += cpu;
            wall_all += wall;
            result[key(op, "cpu_ns")] = (cpu as f64 / requests as f64).into();
            result[key(op, "rate")] = rate.into();
        }
        result["cpu_ns"] = cpu_all.into();
        result["wall_ns"] = (wall_all.as_nanos() as u64).into();
        result["peak_rss"] = server.peak_rss().into();
        if pipelined {
            // The list is built anew.
            server.ask("DEL mylist")?;
            for op in PIPELINED {
                // Quick: more of them, as far as memory was provided for.
                let most = match op {
                    Op::Lpush => OP_BYTES as usize * 3 / 4 / self.value,
                    _ => usize::MAX,
                };
                let requests = (3 * self.requests(op)).min(most);
                let (cpu, _, rate) = measure(op, requests, PIPELINE)?;
                result[key(op, "pipelined_cpu_ns")] = (cpu as f64 / requests as f64).into();
                result[key(op, "pipelined_rate")] = rate.into();
            }
        }
        if replaced && server.is_on_jemalloc()? {
            return Err("this redis-server cannot be put on another allocator".into());
        }
        server.stop()?;
        Ok(result)
    }

    fn requests(&self, op: Op) -> usize {
        match op {
            Op::Set | Op::Get => self.requests[0],
            Op::Lpush => self.requests[1],
            Op::Lrange => self.requests[2],
        }
    }

    /// Requests per second.
    fn benchmark(
        &self,
        server: &Server,
        op: Op,
        requests: usize,
        pipeline: usize,
    ) -> Result<f64, String> {
        let [requests, pipeline, value, keys] =
            [requests, pipeline, self.value, self.keys].map(|number| number.to_string());
        let options = ["-n", &requests, "-P", &pipeline, "-d", &value, "-r", &keys];
        let words: &[&str] = match op {
            Op::Set => &["-t", "set"],
            Op::Get => &["-t", "get"],
            Op::Lpush => &["-t", "lpush"],
            Op::Lrange => &["LRANGE", "mylist", "0", "99"],
        };
        let csv = benchmark_csv(server.socket(), &options, words)?;
        rate(&csv).ok_or_else(|| format!("redis-benchmark said: {}", csv.trim()))
    }
}

/// What `redis-benchmark` tells of a command, as CSV.
pub fn benchmark_csv(socket: &Path, options: &[&str], words: &[&str]) -> Result<String, String> {
    let mut command = Command::new("redis-benchmark");
    command.arg("-s").arg(socket).args(["--csv", "-c", CLIENTS]).args(options).args(words);
    // The client stays on the system's allocator.
    Contender::system().prepare(&mut command);
    let output =
        output(&mut command).map_err(|why| format!("redis-benchmark cannot be started: {why}"))?;
    if !output.status.success() {
        return Err(format!("redis-benchmark ended with {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The name of a figure of a command in a result.
pub fn key(op: Op, what: &str) -> String {
    format!("{op:?}_{what}").to_lowercase()
}

/// The second column of the last line: requests per second.
pub fn rate(csv: &str) -> Option<f64> {
    column(csv, 1)
}

/// The third: how long a client waited on average, given in milliseconds.
pub fn mean_latency_ns(csv: &str) -> Option<f64> {
    column(csv, 2).map(|ms| ms * 1e6)
}

/// A column of the last line, of eight. The first, the command, may contain anything.
pub fn column(csv: &str, number: usize) -> Option<f64> {
    csv.trim().lines().last()?.rsplit("\",\"").nth(7 - number)?.trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_found_whatever_the_commands_name() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
                   \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                   \"LRANGE mylist 0 99\",\"2500.50\",\"0.1\",\"0.1\",\"0.1\",\"0.1\",\"0.1\",\"0.4\"\n";
        assert_eq!(rate(csv), Some(2500.5));
        assert_eq!(mean_latency_ns(csv), Some(100_000.0));
        assert_eq!(rate(""), None);
        assert_eq!(key(Op::Set, "rate"), "set_rate");
    }
}
