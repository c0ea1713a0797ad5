//! `spandrel heap dump`: all that can be reached, as JSON, of which `load` makes the heap again.

use super::args::DumpArgs;
use super::failed::failed;
use super::progress::Progress;
use super::{bytes_of, copied, log_of, roots, words};
use crate::failure::Failure;
use crate::files::{self, not_written};
use serde_json::json;
use spandrel_pheap::{Error, Heap, Identity, Media, Object, Record};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write, stdout};
use std::path::Path;

/// The format of what is written. Format 1 did not have what objects hold.
pub const FORMAT: u64 = 2;
/// What is written in one go.
const BUFFER_BYTES: usize = 64 << 10;

/// What went wrong: with the heap, or with what is written.
enum Trouble {
    Heap(Error),
    Output(io::Error),
}

impl From<Error> for Trouble {
    fn from(why: Error) -> Self {
        Self::Heap(why)
    }
}

impl From<io::Error> for Trouble {
    fn from(why: io::Error) -> Self {
        Self::Output(why)
    }
}

/// Writes a heap as JSON.
pub fn run(args: &DumpArgs) -> Result<u8, Failure> {
    let path = &args.file;
    // Neither the heap nor its log is written over.
    files::check(&[("--out", args.out.as_deref())], &[path.clone(), log_of(path)])?;
    let progress = Progress::bar("writing", bytes_of(path));
    let medium = copied(path, &args.wait)?;
    // To open a heap changes what it says of itself.
    let said = Identity::read(&medium)
        .and_then(|identity| Ok(words::record(&identity, &Record::read(&medium)?)));
    let said = said.map_err(|why| failed(path, why))?;
    let (heap, _) = Heap::open(medium, 0, None).map_err(|why| failed(path, why))?;
    let head = json!({
        "format": FORMAT, "heap": path.display().to_string(), "record": said,
        "roots": roots::all(&heap),
    });
    let head = head.to_string();
    let to = args.out.as_deref();
    let mut sink = Sink { to, head: &head, is_outline: args.outline, writer: None };
    match write(&heap, &progress, &mut sink) {
        Ok(()) => Ok(0),
        Err(Trouble::Heap(why)) => Err(failed(path, why)),
        Err(Trouble::Output(why)) => Err(unwritten(args.out.as_deref(), &why)),
    }
}

fn unwritten(out: Option<&Path>, why: &io::Error) -> Failure {
    match out {
        Some(out) => not_written(out, why),
        None if why.kind() == ErrorKind::BrokenPipe => Failure::unread(),
        None => Failure::new(format!("standard output: {why}")),
    }
}

/// Where the dump is written. A file that is there stays as it is until the first object is written, so that a damaged heap leaves it.
struct Sink<'a> {
    to: Option<&'a Path>,
    /// An object; the list of what can be reached becomes its last member.
    head: &'a str,
    /// What objects hold is left out.
    is_outline: bool,
    writer: Option<BufWriter<Box<dyn Write>>>,
}

impl Sink<'_> {
    /// Begins the list.
    fn begin(&mut self) -> io::Result<()> {
        let out: Box<dyn Write> = match self.to {
            None => Box::new(stdout()),
            Some(path) => Box::new(File::create(path)?),
        };
        let out = self.writer.insert(BufWriter::with_capacity(BUFFER_BYTES, out));
        write!(out, "{},\"objects\":[", self.head.strip_suffix('}').unwrap_or(self.head))
    }

    /// Writes an item of the list.
    fn item(&mut self, heap: &Heap<Media>, object: Object) -> io::Result<()> {
        let comma = if self.writer.is_some() { "," } else { "" };
        if self.writer.is_none() {
            self.begin()?;
        }
        let Some(out) = &mut self.writer else { return Ok(()) };
        let Object { at, bytes } = object;
        write!(out, "{comma}\n{{\"at\":{at},\"bytes\":{bytes},\"pointers\":[")?;
        let (mut outcome, mut comma) = (Ok(()), "");
        heap.each_pointer(object, &mut |place, to| {
            if outcome.is_ok() {
                outcome = write!(out, "{comma}[{place},{}]", to.at);
                comma = ",";
            }
        });
        outcome?;
        write!(out, "]")?;
        if !self.is_outline {
            write!(out, ",\"data\":\"")?;
            write_held(out, heap, object)?;
            write!(out, "\"")?;
        }
        write!(out, "}}")
    }

    /// Ends the list.
    fn end(&mut self) -> io::Result<()> {
        if self.writer.is_none() {
            self.begin()?;
        }
        let Some(out) = &mut self.writer else { return Ok(()) };
        writeln!(out, "\n]}}")?;
        out.flush()
    }
}

/// Writes what an object holds as hex digits, without the zeroes at its end.
fn write_held(out: &mut impl Write, heap: &Heap<Media>, object: Object) -> io::Result<()> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let base = heap.base().as_ptr().cast_const();
    // SAFETY: an object lies within the heap, which is a copy that no other code has.
    let held = unsafe { std::slice::from_raw_parts(base.add(object.at), object.bytes) };
    let len = held.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    for byte in held.iter().take(len) {
        out.write_all(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])?;
    }
    Ok(())
}

/// Writes object by object: a heap may be larger than memory.
fn write(heap: &Heap<Media>, progress: &Progress, sink: &mut Sink<'_>) -> Result<(), Trouble> {
    let mut outcome = Ok(());
    heap.each_object(&[], &mut |object| {
        if outcome.is_ok() {
            outcome = sink.item(heap, object);
            progress.at(object.at as u64);
        }
    })?;
    outcome?;
    Ok(sink.end()?)
}
