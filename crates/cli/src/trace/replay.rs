//! `spandrel trace replay`: a recording's requests made again on every allocator.

use super::args::ReplayArgs;
use super::{damaged, read};
use spandrel_console::Failure;
use spandrel_console::files;
use spandrel_harness::Asked;
use spandrel_harness::replay::{Script, measure, prepare};
use spandrel_trace::{Objects, Request};

/// Makes them again.
pub fn run(args: &ReplayArgs) -> Result<u8, Failure> {
    let trace = read(&args.trace)?;
    let path = args.trace.display();
    if !trace.header.kinds.requests {
        return Err(Failure::refused(format!(
            "{path}: requests were not recorded; 'spandrel sim {path}' replays spans"
        )));
    }
    files::check(&[("--json", args.json.as_deref())], std::slice::from_ref(&args.trace))?;
    let ready = prepare(&Asked {
        runs: Some(args.runs),
        json: args.json.clone(),
        peers: args.peers.clone(),
        modes: args.modes.clone(),
        library: args.lib.clone(),
        ..Asked::default()
    })?;
    let mut script = Script::new()?;
    for step in Objects::new(&trace) {
        match step.map_err(|why| damaged(&args.trace, &why))?.request {
            Request::Allocate { id, size, align_log2, zeroed } => {
                script.allocate(id, size, align_log2, zeroed)?;
            }
            Request::Free { id, .. } => script.free(id)?,
            Request::Resize { id, size, .. } => script.resize(id, size)?,
        }
    }
    if script.is_empty() {
        return Err(Failure::refused(format!("{path}: there are no requests in it")));
    }
    measure(ready, script, &format!("the requests of {}", trace.header.program))
}
