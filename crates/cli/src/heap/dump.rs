//! `spandrel heap dump`: all that can be reached, as JSON, of which `load` makes the heap again.

use super::args::DumpArgs;
use super::failed::{failed, is_durable};
use super::output::Output;
use super::{bytes_of, copied, log_of, roots, words};
use crate::progress::Progress;
use serde_json::json;
use spandrel_console::files::{self, not_written};
use spandrel_console::{Failure, say};
use spandrel_pheap::{Error, Heap, Identity, Media, Object, Record};
use spandrel_report::numbers::{bytes as bytes_text, counted};
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
    let to = args.out.as_deref().filter(|out| !files::is_output(out));
    // Neither the heap nor its log is written over.
    files::check(&[("--out", to)], &[path.clone(), log_of(path)])?;
    let output = to.map(Output::begin).transpose().map_err(|why| unwritten(to, &why))?;
    let progress = Progress::bar("writing", bytes_of(path));
    let medium = copied(path, &args.wait)?;
    // To open a heap changes what it says of itself.
    let said = Identity::read(&medium)
        .and_then(|identity| Ok(words::record(&identity, &Record::read(&medium)?)));
    let said = said.map_err(|why| failed(path, why))?;
    let (heap, _) = Heap::open(medium, 0, None).map_err(|why| failed(path, why))?;
    if is_durable(path) {
        heap.take_as_replica();
    }
    refuse_set_aside(args, &heap)?;
    let head = json!({
        "format": FORMAT, "heap": path.display().to_string(), "record": said,
        "roots": roots::all(&heap),
    });
    let head = head.to_string();
    let out = output.map_or(Out::Standard, Out::File);
    let out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let mut sink = Sink { out, head: &head, is_outline: args.outline, has_begun: false, shown: 0 };
    let written = write(&heap, &progress, &mut sink);
    let shown = sink.shown;
    match written.and_then(|()| Ok(sink.finish()?)) {
        Ok(()) => {
            if is_durable(path) {
                tell_left_out(path, &heap, shown);
            }
            Ok(0)
        }
        Err(Trouble::Heap(why)) => Err(failed(path, why)),
        Err(Trouble::Output(why)) => Err(unwritten(to, &why)),
    }
}

/// Refuses to dump a heap without all that is in it: where the length of objects is not known, their contents are not either.
fn refuse_set_aside(args: &DumpArgs, heap: &Heap<Media>) -> Result<(), Failure> {
    let path = &args.file;
    let aside = heap.blocks_aside().map_err(|why| failed(path, why))?;
    if aside == 0 || args.outline {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "{}: a repair has set {} aside, in which the lengths of objects are not known; 'spandrel heap copy' takes all of the heap, \
         --outline lists its objects without their contents",
        path.display(),
        counted(aside, "block", "blocks"),
    )))
}

/// Says what of a durable state is allocated and not in a dump: no collection would free it, so that the program may use it.
fn tell_left_out(path: &Path, heap: &Heap<Media>, shown: usize) {
    let allocated = heap.allocated_bytes().unwrap_or(shown);
    let left_out = allocated.saturating_sub(shown);
    if left_out > 0 {
        say::err(format_args!(
            "{}: {} of allocated objects are not in the dump: no address that stands at a multiple of 8 leads there from a root; \
             'spandrel durable copy' takes all of the state",
            path.display(),
            bytes_text(left_out as f64)
        ));
    }
}

fn unwritten(out: Option<&Path>, why: &io::Error) -> Failure {
    match out {
        Some(out) => not_written(out, why),
        None if why.kind() == ErrorKind::BrokenPipe => Failure::unread(),
        None => Failure::refused(format!("standard output: {why}")),
    }
}

/// Where bytes go.
enum Out {
    Standard,
    File(Output),
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Standard => stdout().write(bytes),
            Self::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard => stdout().flush(),
            Self::File(file) => file.flush(),
        }
    }
}

/// The dump that is written. Nothing is written before the first object was found, so that of a damaged heap there is no part.
struct Sink<'a> {
    out: BufWriter<Out>,
    /// An object; the list of what can be reached becomes its last member.
    head: &'a str,
    /// What objects hold is left out.
    is_outline: bool,
    has_begun: bool,
    /// Bytes of the objects that were written.
    shown: usize,
}

impl Sink<'_> {
    /// Begins the list.
    fn begin(&mut self) -> io::Result<()> {
        self.has_begun = true;
        let head = self.head.strip_suffix('}').unwrap_or(self.head);
        write!(self.out, "{head},\"objects\":[")
    }

    /// Writes an item of the list.
    fn item(&mut self, heap: &Heap<Media>, object: Object) -> io::Result<()> {
        let comma = if self.has_begun { "," } else { "" };
        if !self.has_begun {
            self.begin()?;
        }
        let out = &mut self.out;
        let Object { at, bytes } = object;
        self.shown += bytes;
        write!(out, "{comma}\n{{\"at\":{at},\"bytes\":")?;
        match bytes {
            0 => write!(out, "null")?,
            known => write!(out, "{known}")?,
        }
        write!(out, ",\"pointers\":[")?;
        let (mut outcome, mut comma) = (Ok(()), "");
        heap.each_pointer(object, &mut |place, to| {
            if outcome.is_ok() {
                outcome = write!(out, "{comma}[{place},{}]", to.at);
                comma = ",";
            }
        });
        outcome?;
        write!(out, "]")?;
        // What was freed and is still named: `load` must not take it for an object that is missing.
        let (mut outcome, mut comma, mut end) = (Ok(()), ",\"stale\":[", "");
        heap.each_stale(object, &mut |to| {
            if outcome.is_ok() {
                outcome = write!(out, "{comma}{}", to.at);
                (comma, end) = (",", "]");
            }
        });
        outcome?;
        write!(out, "{end}")?;
        if !self.is_outline {
            write!(out, ",\"data\":\"")?;
            write_held(out, heap, object)?;
            write!(out, "\"")?;
        }
        write!(out, "}}")
    }

    /// Ends the list.
    fn end(&mut self) -> io::Result<()> {
        if !self.has_begun {
            self.begin()?;
        }
        writeln!(self.out, "\n]}}")
    }

    /// Writes what is left. A file gets its name.
    fn finish(self) -> io::Result<()> {
        let mut out = self.out.into_inner()?;
        out.flush()?;
        match out {
            Out::Standard => Ok(()),
            Out::File(file) => file.finish(),
        }
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
