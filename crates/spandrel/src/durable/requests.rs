//! A request of another process, read and answered.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::prelude::v1::*;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use spandrel_durable::Error;
use spandrel_durable::copy::{Copy, Whole};
use spandrel_durable::directory::Paths;
use spandrel_durable::requests::{Answer, path_of_copy};
use spandrel_os::cpath::PATH_BYTES;

use super::copies::Copies;

/// How long a request may take to arrive, and an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two lines about a copy that is being made.
const TELLS: Duration = Duration::from_millis(100);
/// How long a copy is asked for again where the log is being replaced, or the state closed.
const REPLACED: Duration = Duration::from_secs(10);
/// Longest request.
const MOST_BYTES: usize = PATH_BYTES + 16;

/// Reads a request, makes a copy, and tells how far it is. A process that takes no answers has no copy.
pub(super) fn answer(stream: &mut UnixStream, copies: &Copies) {
    let patience = Some(PATIENCE);
    if stream.set_read_timeout(patience).and(stream.set_write_timeout(patience)).is_err() {
        return;
    }
    let request = read(stream);
    let made = match request.as_deref().and_then(path_of_copy) {
        Some(path) => make(path, copies, stream),
        None => Err(String::from("the request is not one for a copy")),
    };
    let text = match &made {
        Ok(()) => Answer::Done.to_string(),
        Err(why) => Answer::Refused(why).to_string(),
    };
    let _ = stream.write_all(text.as_bytes());
}

/// A request: what arrives up to the second zero byte.
fn read(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let (mut request, begun) = (Vec::new(), Instant::now());
    while request.iter().filter(|byte| **byte == 0).count() < 2 {
        let mut part = [0; 1024];
        let len = stream.read(&mut part).ok().filter(|len| *len > 0)?;
        request.extend_from_slice(part.get(..len)?);
        if request.len() > MOST_BYTES || begun.elapsed() > PATIENCE {
            return None;
        }
    }
    Some(request)
}

fn make(path: &[u8], copies: &Copies, stream: &mut UnixStream) -> Result<(), String> {
    let begun = Instant::now();
    let words = |why: Error| why.to_string();
    loop {
        let copy = Paths::new(path).and_then(Copy::begin).map_err(words)?;
        match wait(copy, copies, stream)? {
            Some(whole) => return whole.publish().map_err(words),
            None if begun.elapsed() < REPLACED => std::thread::sleep(TELLS),
            None => {
                return Err(String::from(
                    "the process has closed the state, or cannot write to it any more",
                ));
            }
        }
    }
}

/// `None`: no thread makes copies now.
fn wait(copy: Copy, copies: &Copies, stream: &mut UnixStream) -> Result<Option<Whole>, String> {
    let wanted = copies.ask(copy);
    loop {
        match wanted.wait_for(TELLS) {
            Ok(whole) => return Ok(Some(whole)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let (done, all) = (&wanted.progress.done, &wanted.progress.all);
        let line = Answer::At(done.load(Relaxed), all.load(Relaxed)).to_string();
        stream.write_all(line.as_bytes()).map_err(|why| why.to_string())?;
    }
}
