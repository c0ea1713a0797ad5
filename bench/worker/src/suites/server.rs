//! A small document server in Rust under load: documents are put, read, changed and listed as JSON
//! over Unix sockets, a thread for each connection; the oldest give way to new ones. In the middle
//! half of them are dropped at once. The clients are a process of their own, on the system's
//! allocator, whose time is not the server's.

use super::Report;
use crate::args::Args;
use crate::meter::{self, Meter};
use crate::random::Random;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::ops::Bound;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::RwLock;
use std::time::Instant;

const CLIENTS: usize = 4;
/// Documents that a listing has.
const LISTED: usize = 20;
/// Fields of a document, at most.
const FIELDS: usize = 24;

/// What is stored.
#[derive(Default)]
struct Store {
    documents: BTreeMap<String, Value>,
    /// Keys in the order in which they came.
    ages: VecDeque<String>,
}

impl Store {
    fn put(&mut self, key: &str, document: Value, most: usize) {
        if self.documents.insert(key.into(), document).is_none() {
            self.ages.push_back(key.into());
        }
        while self.documents.len() > most
            && let Some(oldest) = self.ages.pop_front()
        {
            self.documents.remove(&oldest);
        }
    }
}

/// The server: starts its clients, serves them to their end, and tells what that took.
pub fn serve(mut args: Args) -> Result<Report, String> {
    let requests = args.count("requests", 50_000)?;
    let documents = args.count("documents", 30_000)?.max(2);
    let mut report = args.begin()?;
    let failed = |why: std::io::Error| format!("the server: {why}");
    let path = std::env::temp_dir().join(format!("spandrel-server-{}", std::process::id()));
    let listener = UnixListener::bind(&path).map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    let mut clients = Command::new(program);
    clients.args(["server-clients", "--requests", &(requests / CLIENTS).to_string()]);
    clients.args(["--documents", &documents.to_string()]).arg("--socket").arg(&path);
    for (name, _) in std::env::vars_os() {
        if name == "LD_PRELOAD" || name.as_encoded_bytes().starts_with(b"SPANDREL_") {
            clients.env_remove(name);
        }
    }
    let clients = clients.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let store = RwLock::new(Store::default());
    let meter = Meter::start();
    let served = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..CLIENTS {
            let (stream, _) = listener.accept().map_err(failed)?;
            let store = &store;
            threads.push(scope.spawn(move || attend(stream, store, documents)));
        }
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome.map_err(failed),
            Err(_) => Err("a thread of the server ended".into()),
        })
    });
    let cost = meter.stop();
    let memory = meter::memory();
    let output = clients.wait_with_output().map_err(failed);
    // What is left of it harms nobody.
    let _ = std::fs::remove_file(&path);
    served?;
    let said: Map<String, Value> = serde_json::from_slice(&output?.stdout)
        .map_err(|why| format!("the clients' output is not JSON: {why}"))?;
    cost.record(&mut report);
    report.insert("requests".into(), requests.into());
    report.insert("latency_ns".into(), said.get("latency_ns").cloned().unwrap_or_default());
    report.insert(
        "requests_per_cpu_second".into(),
        (requests as f64 * 1e9 / cost.cpu_ns as f64).into(),
    );
    report.insert("rss".into(), memory.resident.into());
    report.insert("coverage".into(), memory.coverage().into());
    Ok(report)
}

/// Serves one connection to its end.
fn attend(stream: UnixStream, store: &RwLock<Store>, most: usize) -> std::io::Result<()> {
    let mut answers = BufWriter::new(stream.try_clone()?);
    for line in BufReader::new(stream).lines() {
        let request: Value = serde_json::from_str(&line?).map_err(std::io::Error::other)?;
        let answer = answer(request, store, most);
        serde_json::to_writer(&mut answers, &answer)?;
        answers.write_all(b"\n")?;
        answers.flush()?;
    }
    Ok(())
}

fn answer(mut request: Value, store: &RwLock<Store>, most: usize) -> Value {
    let key = request["key"].as_str().unwrap_or_default().to_string();
    match request["do"].as_str() {
        Some("put") => {
            let document = request["document"].take();
            store.write().expect("no holder panics").put(&key, document, most);
            json!({"done": true})
        }
        Some("get") => {
            let store = store.read().expect("no holder panics");
            store.documents.get(&key).cloned().unwrap_or_default()
        }
        Some("change") => {
            let mut store = store.write().expect("no holder panics");
            match store.documents.get_mut(&key).and_then(Value::as_object_mut) {
                Some(document) => {
                    document.insert("changed".into(), request["document"].take());
                    json!({"done": true})
                }
                None => json!({"done": false}),
            }
        }
        Some("list") => {
            let store = store.read().expect("no holder panics");
            let range = (Bound::Included(key), Bound::Unbounded);
            store
                .documents
                .range(range)
                .take(LISTED)
                .map(|(_, document)| document.clone())
                .collect()
        }
        Some("halve") => {
            let mut store = store.write().expect("no holder panics");
            for _ in 0..store.ages.len() / 2 {
                if let Some(oldest) = store.ages.pop_front() {
                    store.documents.remove(&oldest);
                }
            }
            json!({"done": true})
        }
        _ => json!({"error": "what is to be done?"}),
    }
}

/// The clients, each with a connection.
pub fn clients(mut args: Args) -> Result<Report, String> {
    let path = args.text("socket", "").to_string();
    let requests = args.count("requests", 1)?;
    let documents = args.count("documents", 1)?;
    let mut report = args.begin()?;
    let outcomes: Vec<std::io::Result<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let path = &path;
                scope.spawn(move || ask(path, client, requests, documents))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no client panics")).collect()
    });
    let mut nanoseconds = 0;
    for outcome in outcomes {
        nanoseconds += outcome.map_err(|why| format!("a client: {why}"))?;
    }
    let all = (requests * CLIENTS).max(1) as f64;
    report.insert("latency_ns".into(), (nanoseconds as f64 / all).into());
    Ok(report)
}

/// One client's requests; how long it waited for answers.
fn ask(path: &str, client: usize, requests: usize, documents: usize) -> std::io::Result<u64> {
    let stream = UnixStream::connect(path)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut out = BufWriter::new(stream);
    let mut random = Random::new(client as u64 + 1);
    let (mut nanoseconds, mut answer) = (0, String::new());
    for turn in 0..requests {
        let key = format!("{client}/{:08}", random.below(2 * documents / CLIENTS));
        let request = match random.below(10) {
            _ if client == 0 && turn == requests / 2 => json!({"do": "halve"}),
            0..4 => json!({"do": "put", "key": key, "document": document(&mut random)}),
            4..8 => json!({"do": "get", "key": key}),
            8 => json!({"do": "change", "key": key, "document": document(&mut random)}),
            _ => json!({"do": "list", "key": key}),
        };
        let start = Instant::now();
        serde_json::to_writer(&mut out, &request)?;
        out.write_all(b"\n")?;
        out.flush()?;
        answer.clear();
        if answers.read_line(&mut answer)? == 0 {
            return Err(std::io::Error::other("the server went away"));
        }
        nanoseconds += start.elapsed().as_nanos() as u64;
        if answer.contains("error") {
            return Err(std::io::Error::other(format!("the server answered {}", answer.trim())));
        }
    }
    Ok(nanoseconds)
}

fn document(random: &mut Random) -> Value {
    let mut fields = Map::new();
    for field in 0..1 + random.below(FIELDS) {
        let value = match random.below(3) {
            0 => json!(random.next()),
            1 => json!("word ".repeat(1 + random.below(40))),
            _ => json!((0..random.below(12)).collect::<Vec<_>>()),
        };
        fields.insert(format!("field {field}"), value);
    }
    Value::Object(fields)
}
