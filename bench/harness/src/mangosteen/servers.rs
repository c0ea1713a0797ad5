//! Servers that speak Redis' protocol: `kvserver` on a durable state, Redis under `spandrel durable run`, and Redis with and without its log, under `redis-benchmark` and YCSB.

use super::draw::{DISK, judge_times, middle, per_second};
use super::list::Sizes;
use crate::brug::redis as ycsb;
use crate::redis::load::rate;
use crate::redis::server::{SOCKET, Server, durable, redis};
use crate::report::target::Verdict;
use serde_json::{Value, json};
use spandrel_console::plain::Plain;
use spandrel_console::shutdown::{Kind, Scratch, output};
use spandrel_console::terminal::table;
use spandrel_measure::contender::{Contender, Role};
use spandrel_measure::places;
use spandrel_measure::rounds::Series;
use spandrel_report::numbers::{Summary, digits, time};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

/// What `--only` calls it.
pub const NAME: &str = "servers";
/// What tables call the server on a durable state.
pub const STATE: &str = "kvserver";
/// Redis under `spandrel durable run`.
const UNMODIFIED: &str = "redis,\ndurable run";
const VOLATILE: &str = "redis";
const ALWAYS: &str = "redis,\nalways";
/// Redis, and how often its log is synced.
const REDIS: [(&str, &[&str]); 3] = [
    (VOLATILE, &["--appendonly", "no"]),
    ("redis,\neverysec", &["--appendonly", "yes", "--appendfsync", "everysec"]),
    (ALWAYS, &["--appendonly", "yes", "--appendfsync", "always"]),
];
/// Bytes of a value of `redis-benchmark`: the Mangosteen paper's record.
const VALUE: &str = "1000";
/// Requests by which the number of a run's is found.
const FIRST: u64 = 2000;
/// A run lasts that many times as long as one of a store, and one by which its number of requests is found a tenth of that: the rate of half a second differs by half from one run
/// to the next.
const LENGTH: f64 = 4.0;

/// How long a server has to end what it does beside requests.
const QUIET: Duration = Duration::from_secs(3);

/// What clients ask for.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// `redis-benchmark`: a command, clients, and requests that each sends at once.
    Plain { command: &'static str, clients: u32, pipeline: u32 },
    /// YCSB's core: reads among ten requests by Zipf's law, of ten fields of 100 bytes.
    Ycsb { reads: u32 },
}

const LOADS: [Load; 8] = [
    Load::Plain { command: "set", clients: 1, pipeline: 1 },
    Load::Plain { command: "set", clients: 8, pipeline: 1 },
    Load::Plain { command: "set", clients: 8, pipeline: 16 },
    Load::Plain { command: "set", clients: 32, pipeline: 16 },
    Load::Plain { command: "get", clients: 8, pipeline: 1 },
    Load::Plain { command: "get", clients: 32, pipeline: 16 },
    Load::Ycsb { reads: 1 },
    Load::Ycsb { reads: 9 },
];

impl Load {
    fn name(self) -> String {
        match self {
            Self::Plain { command, clients, pipeline: 1 } => {
                format!("{}, {clients}", command.to_uppercase())
            }
            Self::Plain { command, clients, pipeline } => {
                format!("{}, {clients} × {pipeline}", command.to_uppercase())
            }
            Self::Ycsb { reads } => format!("YCSB, {} % updates", 100 - 10 * reads),
        }
    }
}

/// One run on a server.
pub type One<'o> = &'o mut dyn FnMut(&Contender) -> Result<Value, String>;
/// Has servers take turns, under a label.
pub type Rounds<'r> = &'r dyn Fn(&[Contender], &str, One<'_>) -> Vec<Series>;

/// The programs.
pub struct Programs {
    kvserver: PathBuf,
    ycsb: Option<PathBuf>,
}

impl Programs {
    /// Finds them, and says which are missing.
    pub fn find() -> (Option<Self>, Vec<String>) {
        let mut missing = Vec::new();
        let Some(kvserver) = places::beside("kvserver") else {
            missing.push("not built: kvserver (cargo build --release -p spandrel-kvserver)".into());
            return (None, missing);
        };
        if output(Command::new("redis-benchmark").arg("--version")).is_err() {
            missing.push(
                "not installed: redis-server, redis-benchmark (packages redis-server, redis-tools)"
                    .into(),
            );
            return (None, missing);
        }
        let built = places::source_tree().map(|tree| tree.join("bench/peers/lib/paper"));
        let workers = std::env::var_os("SPANDREL_PAPER").map(PathBuf::from).or(built);
        let ycsb = workers.ok_or_else(String::new).and_then(|workers| ycsb::find(&workers));
        let ycsb = ycsb.map_err(|why| missing.push(why)).ok();
        (Some(Self { kvserver, ycsb }), missing)
    }

    /// The servers.
    pub fn servers() -> Vec<Contender> {
        let of = |name: &str| Contender { name: name.into(), ..Contender::system() };
        let ours = [STATE, UNMODIFIED]
            .into_iter()
            .filter(|name| *name == STATE || places::beside("libspandrel_program.so").is_some());
        let mut all: Vec<_> = ours.map(|name| Contender { role: Role::Ours, ..of(name) }).collect();
        all.extend(REDIS.map(|(name, _)| of(name)));
        all
    }

    fn start(&self, server: &Contender, place: &Path) -> Result<Server, String> {
        let directory = Scratch::directory_in(Kind::Redis, place)
            .map_err(|why| format!("{}: {why}", place.display()))?;
        let (name, mut command) = match REDIS.iter().find(|(name, _)| *name == server.name) {
            Some((_, words)) => ("redis-server", redis(directory.path(), words)),
            None if server.name == UNMODIFIED => ("redis-server", durable(directory.path())?),
            None => {
                let mut command = Command::new(&self.kvserver);
                command.arg(directory.path().join("state"));
                command.arg("--socket").arg(directory.path().join(SOCKET));
                ("kvserver", command)
            }
        };
        server.prepare(&mut command);
        Server::launch(name, command, Rc::new(directory))
    }

    /// One run of a load on a fresh server.
    fn run(
        &self,
        load: Load,
        server: &Contender,
        place: &Path,
        sizes: &Sizes,
    ) -> Result<Value, String> {
        let running = self.start(server, place)?;
        let (requests, rate, cpu) = match load {
            Load::Plain { command, clients, pipeline } => {
                let some = |requests: u64| {
                    let before = running.cpu_ns()?;
                    let rate = benchmark(
                        running.socket(),
                        command,
                        [clients, pipeline],
                        requests,
                        sizes.keys,
                    )?;
                    Ok::<_, String>((rate, running.cpu_ns()?.saturating_sub(before)))
                };
                // All keys are there, so that each read finds a value and each write replaces one; and the server's log is as long as it becomes.
                benchmark(running.socket(), "set", [32, 16], 4 * sizes.keys, sizes.keys)?;
                // What that has begun beside the requests: a longer log, pages on their way to the disk.
                std::thread::sleep(QUIET);
                let seconds = LENGTH * sizes.millis as f64 / 1000.0;
                let in_time = |rate: f64, seconds: f64| ((rate * seconds) as u64).max(FIRST);
                let (rate, _) = some(FIRST)?;
                let (rate, _) = some(in_time(rate, seconds / 10.0))?;
                let requests = in_time(rate, seconds);
                let (rate, cpu) = some(requests)?;
                (requests, rate, cpu)
            }
            Load::Ycsb { reads } => {
                let folder = self.ycsb.as_deref().ok_or("YCSB is not built")?;
                // A record takes YCSB ten times as long as a request of the other loads.
                let records = (sizes.keys / 10).max(1000);
                let part = |tenths: u32| (f64::from(tenths) / 10.0).to_string();
                let workload = [
                    ("recordcount", records.to_string()),
                    ("readproportion", part(reads)),
                    ("updateproportion", part(10 - reads)),
                    ("insertproportion", "0".into()),
                    ("requestdistribution", "zipfian".into()),
                    ("fieldlength", "100".into()),
                    ("writeallfields", "true".into()),
                ];
                ycsb::client(folder, running.socket(), "-load", records, &workload)?;
                let before = running.cpu_ns()?;
                let said = ycsb::client(folder, running.socket(), "-t", records, &workload)?;
                let cpu = running.cpu_ns()?.saturating_sub(before);
                let rate = ycsb::rate(&said).ok_or("YCSB said no throughput")?;
                (records, rate, cpu)
            }
        };
        running.stop()?;
        Ok(json!({"rate": rate, "cpu_ns": cpu as f64 / requests as f64, "requests": requests}))
    }

    /// Measures all loads in some places: `rounds` has the servers take turns.
    pub fn measure(
        &self,
        media: &[(&'static str, PathBuf)],
        sizes: &Sizes,
        rounds: Rounds<'_>,
    ) -> Vec<Outcome> {
        let loads = LOADS
            .into_iter()
            .filter(|load| self.ycsb.is_some() || !matches!(load, Load::Ycsb { .. }));
        let cases =
            loads.flat_map(|load| media.iter().map(move |(medium, place)| (load, *medium, place)));
        let outcomes = cases.map(|(load, medium, place)| {
            let label = format!("{}, {medium}", load.name());
            let series = rounds(&Self::servers(), &label, &mut |server| {
                self.run(load, server, place, sizes)
            });
            Outcome { load, medium, series }
        });
        outcomes.collect()
    }
}

/// Requests in a second of `redis-benchmark`.
fn benchmark(
    socket: &Path,
    load: &str,
    [clients, pipeline]: [u32; 2],
    requests: u64,
    keys: u64,
) -> Result<f64, String> {
    let mut command = Command::new("redis-benchmark");
    command.arg("-s").arg(socket).args(["--csv", "-d", VALUE, "-t", load]);
    for (name, number) in
        [("-c", u64::from(clients)), ("-P", pipeline.into()), ("-n", requests), ("-r", keys)]
    {
        command.args([name, &number.to_string()]);
    }
    Contender::system().prepare(&mut command);
    let output =
        output(&mut command).map_err(|why| format!("redis-benchmark cannot be started: {why}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("redis-benchmark ended with {}: {}", output.status, said.trim()));
    }
    rate(&said).ok_or_else(|| format!("redis-benchmark said: {}", said.trim()))
}

/// One load on all servers.
pub struct Outcome {
    load: Load,
    /// Where files lay.
    pub medium: &'static str,
    /// One per server.
    pub series: Vec<Series>,
}

impl Outcome {
    fn of(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.contender.name == name)
    }

    /// What tables call the load.
    pub fn name(&self) -> String {
        self.load.name()
    }

    fn title(&self) -> String {
        format!("{}, {}", self.name(), self.medium)
    }

    /// Target D1 on a disk: Redis that syncs its log for each write, and one that has no log; in memory the latter, of a server that is the same. Target D3: reads.
    pub fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        let judged = [STATE, UNMODIFIED].map(|ours| {
            let Load::Plain { command, clients, pipeline } = self.load else { return None };
            let (target, other, most) = match (command, clients, pipeline) {
                ("get", ..) if ours == UNMODIFIED => ("D3", VOLATILE, 1.02),
                ("get", ..) => return None,
                _ if self.medium != DISK && ours == UNMODIFIED => ("D1", VOLATILE, 1.0 / 0.9),
                _ if self.medium != DISK => return None,
                (_, 1, 1) => ("D1", ALWAYS, 1.0 / 1.7),
                (_, 8, _) => ("D1", ALWAYS, 1.0 / 2.0),
                _ => ("D1", VOLATILE, 1.0 / 0.8),
            };
            let words = [ours, &self.title(), other].map(|words| words.replace('\n', " "));
            let what = format!("{}, time of {}: {}", words[0], words[1], words[2]);
            judge_times((target, what), self.of(ours)?, self.of(other)?, most)
        });
        judged.into_iter().flatten()
    }

    /// What did not work.
    pub fn failed(&self) -> impl Iterator<Item = String> {
        let failed =
            self.series.iter().filter_map(|s| Some((&s.contender.name, s.failed.as_ref()?)));
        failed.map(|(who, why)| format!("{}, {}: {why}", who.replace('\n', " "), self.title()))
    }

    /// Whether a server of ours does not work.
    pub fn is_broken(&self) -> bool {
        [STATE, UNMODIFIED].iter().any(|ours| self.of(ours).is_some_and(|s| s.failed.is_some()))
    }

    /// Everything as JSON.
    pub fn data(&self) -> Value {
        let servers = self.series.iter().map(|series| {
            let of = |key| Summary::of(&series.values(key));
            json!({
                "server": series.contender.name.replace('\n', " "),
                "rate": of("rate"),
                "cpu_ns": of("cpu_ns"),
                "failed": series.failed,
            })
        });
        json!({"load": self.load.name(), "medium": self.medium, "servers": servers.collect::<Vec<_>>()})
    }
}

/// A table of each medium: requests in a second, and the server's time for one.
pub fn tables(outcomes: &[Outcome]) -> Vec<Plain> {
    let mut media: Vec<&str> = outcomes.iter().map(|outcome| outcome.medium).collect();
    media.sort_unstable();
    media.dedup();
    let names: Vec<String> = Programs::servers().into_iter().map(|server| server.name).collect();
    let table = |medium: &str| {
        let mut header =
            vec![format!("clients × pipeline, 1 kB:\nrequests/s, CPU of one, {medium}")];
        header.extend(names.iter().cloned());
        let ratios = [STATE, UNMODIFIED].map(|ours| [ALWAYS, VOLATILE].map(|other| (ours, other)));
        let ratios =
            ratios.into_iter().flatten().filter(|(ours, _)| names.iter().any(|n| n == ours));
        let ratios: Vec<_> = ratios.collect();
        header.extend(ratios.iter().map(|(ours, other)| {
            let last = |name: &str| name.rsplit('\n').next().unwrap_or_default().to_owned();
            format!("{}\n× {}", last(ours), last(other))
        }));
        let rows = outcomes.iter().filter(|outcome| outcome.medium == medium).map(|outcome| {
            let of = |name: &str, key| middle(outcome.of(name)?, key);
            let mut cells = vec![outcome.load.name()];
            cells.extend(names.iter().map(|name| {
                let both = of(name, "rate").zip(of(name, "cpu_ns"));
                both.map_or(table::NOTHING.into(), |(rate, cpu)| {
                    format!("{}\n{}", per_second(rate), time(cpu))
                })
            }));
            cells.extend(ratios.iter().map(|(ours, other)| {
                let ratio = of(ours, "rate").zip(of(other, "rate"));
                ratio.map_or(table::NOTHING.into(), |(ours, other)| {
                    format!("{}×", digits(ours / other))
                })
            }));
            (false, cells)
        });
        Plain { header, rows: rows.collect() }
    };
    media.into_iter().map(table).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_held_against_redis_on_a_disk() {
        let outcome = |load: usize, medium, rates: &[(&str, f64)]| {
            let series = rates.iter().map(|(server, rate)| Series {
                contender: Contender { name: (*server).into(), ..Contender::system() },
                samples: vec![json!({"rate": rate, "cpu_ns": 1e4})],
                failed: None,
            });
            Outcome { load: LOADS[load], medium, series: series.collect() }
        };
        let rates = [(STATE, 180.0), (ALWAYS, 100.0), (VOLATILE, 230.0)];
        let text = tables(&[outcome(2, DISK, &rates)])[0].text();
        assert!(text.contains("SET, 8 × 16") && text.contains("1.80×"), "{text}");
        let all = |load, medium| outcome(load, medium, &rates).verdicts().collect::<Vec<_>>();
        let met = |load| all(load, DISK).first().map(|verdict| verdict.met);
        assert_eq!([met(0), met(1), met(3), met(4)], [Some(true), Some(false), Some(false), None]);
        assert!(all(0, "tmpfs").is_empty());
        // Redis itself is held against itself in memory, and its reads everywhere.
        let rates = [(UNMODIFIED, 95.0), (ALWAYS, 40.0), (VOLATILE, 100.0)];
        let met = |load, medium| {
            let outcome = outcome(load, medium, &rates);
            outcome.verdicts().map(|verdict| verdict.met).collect::<Vec<_>>()
        };
        let found = [met(0, "tmpfs"), met(1, DISK), met(4, DISK), met(3, DISK)];
        assert_eq!(found, [vec![true], vec![true], vec![false], vec![true]]);
    }
}
