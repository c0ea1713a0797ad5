//! Five elements pushed and five read, as in section 6.2 of the paper, on many lists.

use super::load::{benchmark_csv, mean_latency_ns};
use super::server::Server;
use serde_json::{Map, Value};
use spandrel_measure::contender::Contender;
use spandrel_measure::counters::{Counters, Target};
use spandrel_measure::malloc_time::MallocTime;
use spandrel_measure::reserve::Reserve;

/// Requests of each kind.
const REQUESTS: usize = 40_000;
const QUICK_REQUESTS: usize = 20_000;
/// Lists that these are spread over.
const LISTS: &str = "20000";
/// Bytes of an element.
const ELEMENT: usize = 200;
/// More than the server grows by.
const RESERVE_BYTES: u64 = 256 << 20;

/// One run on a fresh server.
pub fn run(contender: &Contender, quick: bool) -> Result<Value, String> {
    let requests = if quick { QUICK_REQUESTS } else { REQUESTS };
    let _beyond = Reserve::hold();
    let reserve = Reserve::of(RESERVE_BYTES);
    let server = Server::start(contender)?;
    let counters = Counters::of(Target::Process(server.pid()));
    let malloc = MallocTime::of(Target::Process(server.pid()), contender);
    let element = "x".repeat(ELEMENT);
    let mut push = vec!["LPUSH", "list:__rand_int__"];
    push.extend([element.as_str(); 5]);
    drop(reserve);
    let before = server.cpu_ns()?;
    let mut latency_ns = 0.0;
    for words in [&push[..], &["LRANGE", "list:__rand_int__", "0", "4"]] {
        let count = requests.to_string();
        let options = ["-n", count.as_str(), "-r", LISTS];
        let csv = benchmark_csv(server.socket(), &options, words)?;
        latency_ns += mean_latency_ns(&csv)
            .ok_or_else(|| format!("redis-benchmark said: {}", csv.trim()))?
            / 2.0;
    }
    let cpu_ns = server.cpu_ns()?.saturating_sub(before);
    let mut result = Map::new();
    counters.record(&mut result);
    if let Some(malloc) = malloc {
        malloc.record(server.pid(), &mut result);
    }
    let memory = server.memory().ok_or("redis-server is gone")?;
    let per_second = 2.0 * requests as f64 * 1e9 / cpu_ns.max(1) as f64;
    result.insert("requests_per_cpu_second".into(), per_second.into());
    result.insert("latency_ns".into(), latency_ns.into());
    result.insert("rss".into(), memory.resident.into());
    let coverage = memory.huge as f64 / memory.anonymous.max(1) as f64;
    result.insert("coverage".into(), coverage.into());
    result.insert("minor_faults".into(), server.minor_faults().into());
    server.stop()?;
    Ok(result.into())
}
