//! `spandrel durable copy`: of files that no process has open, or by the process that has the state open, which goes on.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::fd::{FromRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use spandrel_console::{Failure, say};
use spandrel_durable::Error;
use spandrel_durable::copy::copy;
use spandrel_durable::directory::{Directory, Paths};
use spandrel_durable::live::Figures;
use spandrel_durable::requests::{Answer, COPY, connect};

use super::{paths_of, refused, size};
use crate::progress::Progress;

/// How long a process may take for its next answer: it gives one each tenth of a second while it copies, and none while the disk takes the end of it.
const PATIENCE: Duration = Duration::from_secs(600);

/// After this time without an answer the user is told.
const SOON: Duration = Duration::from_secs(3);

/// How long a process may take to open the state.
const OPENING: Duration = Duration::from_secs(10);

#[derive(Args, Debug)]
pub struct CopyArgs {
    /// The directory of the state.
    directory: PathBuf,
    /// The directory of the copy, which is made if it is missing.
    copy: PathBuf,
}

/// Copies a state to a directory that has none.
pub fn run(args: &CopyArgs) -> Result<u8, Failure> {
    make(&args.directory, &args.copy)?;
    say::out(format!("{}: a copy of {}", args.copy.display(), args.directory.display()))?;
    Ok(0)
}

/// Copies a state, whether a process has it open or not.
pub fn make(directory: &Path, to: &Path) -> Result<(), Failure> {
    let from = paths_of(directory)?;
    let progress = Progress::bar("copying", size(&directory.join("state")));
    match Directory::read(from.directory.as_c()) {
        Ok(_lock) => {
            let made = copy(&from, paths_of(to)?, &mut progress.watcher());
            made.map_err(|why| refused(directory, why))?.map_err(|why| refused(to, why))
        }
        Err(Error::Locked) => {
            let was_there = to.symlink_metadata().is_ok();
            let asked = ask(&from, directory, to, &progress);
            if asked.is_err() && !was_there {
                remove_left(&from, to);
            }
            asked
        }
        Err(why) => Err(refused(directory, why)),
    }
}

/// Removes the directory without a file that a process has left which was killed in the midst of a copy. It may take a moment to end.
fn remove_left(from: &Paths, to: &Path) {
    for _ in 0..100 {
        if !to.is_dir() {
            return;
        }
        if Directory::read(from.directory.as_c()).is_ok() {
            let _ = std::fs::remove_dir(to);
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The socket of the process that has the state open. One that is opening it has none yet, or that of a process before it, and no figures either: it is waited for. `None`: no process has it open any more.
fn connected(from: &Paths) -> Result<Option<RawFd>, Error> {
    let begun = Instant::now();
    loop {
        let refused = match connect(from) {
            Ok(stream) => return Ok(Some(stream)),
            Err(why) => why,
        };
        if Directory::read(from.directory.as_c()).is_ok() {
            return Ok(None);
        }
        let is_open = Figures::read(from.figures.as_c()).is_some_and(|figures| !figures.is_closed);
        if is_open || begun.elapsed() >= OPENING {
            return Err(refused);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asks the process that has the state open.
fn ask(from: &Paths, directory: &Path, to: &Path, progress: &Progress) -> Result<(), Failure> {
    let at_from = |why: &str| Failure::refused(format!("{}: {why}", directory.display()));
    let at_to = |why: &str| Failure::refused(format!("{}: {why}", to.display()));
    let stream = connected(from).map_err(|why| {
        at_from(&format!(
            "a process has the state open, and takes no requests ({why}): its disk may have failed or be full, see what the process has said; end it, and copy the state then"
        ))
    })?;
    let Some(stream) = stream else { return make(directory, to) };
    let path = std::path::absolute(to).map_err(|why| at_to(&why.to_string()))?;
    // SAFETY: the stream belongs to the caller.
    let mut stream = unsafe { UnixStream::from_raw_fd(stream) };
    let request = [COPY, b"\0", path.as_os_str().as_bytes(), b"\0"].concat();
    let lost = |why: std::io::Error| {
        at_from(&format!(
            "the process that has the state open does not answer ({why}): where it goes on, the copy may still come; see what is there, and name another directory for a copy"
        ))
    };
    stream.set_read_timeout(Some(SOON)).map_err(lost)?;
    stream.write_all(&request).map_err(lost)?;
    let watch = progress.watcher();
    let (mut stream, mut is_told) = (BufReader::new(stream), false);
    loop {
        let mut line = String::new();
        while !line.ends_with('\n') {
            match stream.read_line(&mut line) {
                Ok(0) => break,
                Ok(_) => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock && !is_told => {
                    is_told = true;
                    say::err(format_args!(
                        "{}: the process that has the state open has not answered for {} seconds: it may be stopped, or its disk be busy; the wait goes on for {} minutes",
                        directory.display(),
                        SOON.as_secs(),
                        PATIENCE.as_secs() / 60
                    ));
                    stream.get_ref().set_read_timeout(Some(PATIENCE)).map_err(lost)?;
                }
                Err(why) => return Err(lost(why)),
            }
        }
        match Answer::parse(line.trim_end_matches('\n')) {
            _ if line.is_empty() => break,
            Some(Answer::At(done, all)) => watch(done, all),
            Some(Answer::Done) => return Ok(()),
            Some(Answer::Refused(why)) => return Err(at_to(why)),
            None => {
                return Err(at_from(&format!(
                    "the process answers {line:?}: another version has the state open"
                )));
            }
        }
    }
    Err(at_from("the process that had the state open has ended: there is no copy"))
}
