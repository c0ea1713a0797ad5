//! What the files of a state say, without a change to them.

use spandrel_os::image::{Access, Image};
use spandrel_pheap::replicated::{Replica as State, TIE_AT};
use spandrel_pmem::disk::{Disk, LogOf, Which};
use spandrel_pmem::tie::{Found, Ties};
use spandrel_pmem::{Buffer, Failed};
use spandrel_redolog::{BUFFER_BYTES, Point, Reader, Ring, Shape};

use crate::directory::Paths;
use crate::error::Error;

/// See the head of this file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inspection {
    /// The number that the state is known by.
    pub identity: u64,
    /// Where it lies in memory.
    pub base: u64,
    /// Bytes of the state.
    pub bytes: u64,
    /// The most bytes that it has with any of the batches that only the log has.
    pub most_bytes: u64,
    /// The length of the log, and where records begin; `None`: there is no log, and the state needs none.
    pub log: Option<Shape>,
    /// The state has all batches, and says so.
    pub is_complete: bool,
    /// The batch that the state is at.
    pub settled: Point,
    /// The last durable batch.
    pub last: Point,
    /// Batches that only the log has, and their bytes there.
    pub pending: u64,
    /// See `pending`.
    pub pending_bytes: u64,
    /// Runs of bytes in these, and the bytes.
    pub runs: u64,
    /// See `runs`.
    pub run_bytes: u64,
    /// When the last of them was written, in nanoseconds since 1970; 0: there is none.
    pub time: u64,
}

/// Both files, to be read.
pub(crate) struct Read {
    state: Image,
    log: Option<Image>,
}

impl Read {
    /// Opens the files of a directory; what the state says of its log, and of itself.
    ///
    /// # Errors
    /// As for opening the state.
    pub fn open(paths: &Paths) -> Result<(Self, Ties, State), Error> {
        let state = open_state(paths)?;
        let log = match Image::open(paths.log.as_c(), Access::Read) {
            Ok(log) => Some(log),
            Err(libc::ENOENT) => None,
            Err(libc::ELOOP | libc::EINVAL | libc::EISDIR) => return Err(Error::NotALog),
            Err(why) => return Err(Error::System(why)),
        };
        let of = State::of(&state)?;
        let disk = Self { state, log };
        let Found::Ties(ties) = Ties::read(&disk, TIE_AT, of.identity)? else {
            return Err(Error::DamagedState);
        };
        if ties.is_cut(of.bytes as u64) {
            return Err(Error::CutState);
        }
        Ok((disk, ties, of))
    }

    /// The state's file.
    pub fn state(&self) -> &Image {
        &self.state
    }

    /// Whether there is a log.
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }
}

impl Disk for Read {
    fn read(&self, which: Which, at: u64, into: &mut [u8]) -> Result<usize, Failed> {
        match which {
            Which::Image => self.state.read_at(into, at).map_err(Failed),
            _ => self.log.as_ref().map_or(Ok(0), |log| log.read_at(into, at).map_err(Failed)),
        }
    }

    fn write(&self, _: Which, _: u64, _: &[u8]) -> Result<(), Failed> {
        Err(Failed(libc::EROFS))
    }

    fn allow(&self, _: Which, _: u64) -> Result<(), Failed> {
        Ok(())
    }

    fn sync(&self, _: Which) -> Result<(), Failed> {
        Ok(())
    }

    fn bytes(&self, which: Which) -> Result<u64, Failed> {
        match which {
            Which::Image => self.state.bytes().map_err(Failed),
            _ => self.log.as_ref().map_or(Ok(0), |log| log.bytes().map_err(Failed)),
        }
    }
}

/// What a state says of itself that never changes, and its length now, also while a process has it open.
///
/// # Errors
/// As for opening the state.
pub fn identify(paths: &Paths) -> Result<State, Error> {
    Ok(State::of(&open_state(paths)?)?)
}

/// Why there is no file `state`.
pub(crate) fn no_state(paths: &Paths) -> Error {
    match Image::open(paths.log.as_c(), Access::Read) {
        Err(libc::ENOENT) => Error::NoState,
        _ => Error::MissingState,
    }
}

fn open_state(paths: &Paths) -> Result<Image, Error> {
    Image::open(paths.state.as_c(), Access::Read).map_err(|why| match why {
        libc::ENOENT => no_state(paths),
        libc::ELOOP | libc::EINVAL | libc::EISDIR | libc::ENXIO => Error::NotAState,
        why => Error::System(why),
    })
}

/// Reads the files of a directory that no process has open, and verifies each record that the state lacks.
///
/// # Errors
/// As for opening the state.
pub fn inspect(paths: &Paths) -> Result<Inspection, Error> {
    let (disk, ties, State { identity, base, bytes }) = Read::open(paths)?;
    let tie = ties.newest();
    let mut found = Inspection {
        identity,
        base: base as u64,
        bytes: bytes as u64,
        most_bytes: bytes as u64,
        log: None,
        is_complete: tie.is_complete,
        settled: tie.point,
        last: tie.point,
        pending: 0,
        pending_bytes: 0,
        runs: 0,
        run_bytes: 0,
        time: 0,
    };
    if !disk.has_log() {
        return if tie.is_complete { Ok(found) } else { Err(Error::MissingLog) };
    }
    let mut buffer = Buffer::new(BUFFER_BYTES)?;
    let log = LogOf(&disk);
    let ring = Ring::open(&log, identity, (tie.point, tie.is_complete), buffer.bytes())?;
    let mut reader = Reader::new(&ring, tie.point);
    while reader.at() < ring.end() {
        let (mut runs, mut bytes) = (0, 0);
        let mut next = None;
        let header = reader.next(
            &log,
            buffer.bytes(),
            |_| Ok(()),
            |at, part| {
                // A long run comes in parts.
                runs += u64::from(next != Some(at));
                next = Some(at + part.len() as u64);
                bytes += part.len() as u64;
                Ok(())
            },
        )?;
        found.pending += 1;
        (found.runs, found.run_bytes) = (found.runs + runs, found.run_bytes + bytes);
        (found.last, found.time) = (header.point, header.time);
        found.most_bytes = found.most_bytes.max(header.image_bytes);
    }
    found.pending_bytes = ring.end() - ring.first();
    found.log = Some(ring.shape());
    Ok(found)
}
