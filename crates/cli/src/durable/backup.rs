//! `spandrel durable backup` and `restore`: a program's data in a file of its own format, which any build of it reads.
//!
//! The program itself writes and reads the file, beside the one that serves: in a directory of its own, with a copy of the state or with a new one. It listens at a socket there.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spandrel_adapter::{Dump, Exchange};
use spandrel_console::shutdown::{self, Kind, Scratch};
use spandrel_console::{Failure, files, say};
use spandrel_durable::store::has_state;
use tempfile::TempDir;

use super::{copy, paths_of, program::Durable, refused};
use crate::heap::{directory_of, image::rename};
use crate::progress::Progress;

/// What stands in the adapter's arguments for the directory.
const DIRECTORY: &[u8] = b"{directory}";
/// Rights of a backup: its owner's, as of a state.
const MODE: u32 = 0o600;
/// Time between two looks at a program that starts or ends.
const LOOKS: Duration = Duration::from_millis(10);
/// How long a program may take to end when it is told to.
const PATIENCE: Duration = Duration::from_secs(60);
/// Lines and bytes of what a program has said that are shown.
const SHOWN_LINES: usize = 5;
const SHOWN_BYTES: usize = 1 << 20;

#[derive(Args, Debug)]
pub struct BackupArgs {
    /// The directory of the state.
    directory: PathBuf,
    /// The file of the program's data. `backup` makes it: no file has its name yet.
    file: PathBuf,
    /// The adapter: a file, or the name of one of `spandrel durable adapters`. Without it the one that is for a program of that name.
    #[arg(long, value_name = "ADAPTER")]
    adapter: Option<OsString>,
    /// The program, and what it is called with.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Has the program write its data to a file. A program that has the state open goes on.
pub fn backup(args: &BackupArgs) -> Result<u8, Failure> {
    let BackupArgs { directory, file, .. } = args;
    refuse_existing(file)?;
    let program = Durable::find(&args.program, args.adapter.as_deref())?;
    let dump = dump_of(&program)?;
    let place = place_beside(file)?;
    let state = place.path().join("state");
    copy::make(directory, &state)?;
    let mut beside = Beside::start(&program, dump, &state, &place)?;
    let _progress = Progress::spinner("writing", u64::MAX);
    beside.tell(&dump.save)?;
    beside.end()?;
    let written = place.path().join(&dump.file);
    let moved = File::open(&written).and_then(|written| {
        written.set_permissions(Permissions::from_mode(MODE))?;
        written.sync_all()
    });
    moved.and_then(|()| rename(&written, file)).map_err(|why| files::not_written(file, &why))?;
    say::out(format!("{}: the data of {}", file.display(), directory.display()))?;
    Ok(0)
}

/// Makes a state of a file that the program reads.
pub fn restore(args: &BackupArgs) -> Result<u8, Failure> {
    let BackupArgs { directory, file, .. } = args;
    let paths = paths_of(directory)?;
    if directory.exists() && has_state(&paths).map_err(|why| refused(directory, why))? {
        return Err(Failure::refused(format!(
            "{}: the directory has a state; name a directory that has none",
            directory.display()
        )));
    }
    refuse_full(directory)?;
    let program = Durable::find(&args.program, args.adapter.as_deref())?;
    let dump = dump_of(&program)?;
    let unread = |why: io::Error| Failure::refused(format!("{}: {why}", file.display()));
    let read = file.canonicalize().map_err(unread)?;
    if !File::open(&read).and_then(|read| read.metadata()).map_err(unread)?.is_file() {
        return Err(unread(io::Error::other("it is no regular file")));
    }
    let place = place_beside(directory)?;
    let linked = std::os::unix::fs::symlink(read, place.path().join(&dump.file));
    linked.map_err(|why| files::not_written(directory, &why))?;
    let state = place.path().join("state");
    let _progress = Progress::spinner("reading", u64::MAX);
    let has_read =
        Beside::start(&program, dump, &state, &place).and_then(|mut beside| beside.end());
    has_read.map_err(|why| {
        Failure::refused(format!("{}: no state is made of it: {}", file.display(), why.message))
    })?;
    // In the place of an empty directory, or of none. What the program has read is durable before it serves.
    let moved = std::fs::rename(&state, directory);
    moved
        .and_then(|()| File::open(directory_of(directory))?.sync_all())
        .map_err(|why| files::not_written(directory, &why))?;
    say::out(format!("{}: the data of {}", directory.display(), file.display()))?;
    Ok(0)
}

fn refuse_existing(file: &Path) -> Result<(), Failure> {
    match file.symlink_metadata() {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(why) => Err(files::not_written(file, &why)),
        Ok(_) => Err(Failure::refused(format!(
            "{}: it is there already; name another file, or remove it",
            file.display()
        ))),
    }
}

/// Refuses what the new state cannot get the name of: all but an empty directory, and nothing.
fn refuse_full(directory: &Path) -> Result<(), Failure> {
    let is_empty = match directory.symlink_metadata() {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(found) if found.is_dir() => directory.read_dir().map(|mut all| all.next().is_none()),
        found => found.map(|_| false),
    };
    match is_empty {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::refused(format!(
            "{}: it is there, and no empty directory; name another one, or remove it",
            directory.display()
        ))),
        Err(why) => Err(Failure::refused(format!("{}: {why}", directory.display()))),
    }
}

fn dump_of(program: &Durable) -> Result<&Dump, Failure> {
    program.adapter.dump.as_ref().ok_or_else(|| {
        Failure::refused(format!(
            "adapter '{}': it does not say how the program writes its data to a file and reads it; add a table [dump] (docs/adapters.md)",
            program.adapter.program.name
        ))
    })
}

/// A directory beside a file or a directory, so that what is made there can get that name.
fn place_beside(path: &Path) -> Result<Scratch<TempDir>, Failure> {
    let made = Scratch::directory_in(Kind::Backup, directory_of(path));
    made.map_err(|why| files::not_written(path, &why))
}

/// Whether a program says that it is busy.
fn is_busy(answer: &[u8], exchange: &Exchange) -> bool {
    exchange.busy.as_ref().is_some_and(|busy| answer.starts_with(busy.as_bytes()))
}

/// Whether enough of an answer has come: its beginning, or the whole line of a program that is busy.
fn is_whole(answer: &[u8], exchange: &Exchange) -> bool {
    let beginning = exchange.busy.iter().chain([&exchange.answer]).map(String::len).max();
    let is_line = answer.ends_with(b"\n");
    is_line || answer.len() >= beginning.unwrap_or(0) && !is_busy(answer, exchange)
}

/// The program in a directory of its own. Dropping it kills it.
struct Beside {
    child: Child,
    output: PathBuf,
    stream: Option<UnixStream>,
}

impl Beside {
    /// Starts the program with a state, and waits until it serves.
    fn start(
        program: &Durable,
        dump: &Dump,
        state: &Path,
        place: &Scratch<TempDir>,
    ) -> Result<Self, Failure> {
        let fail = |why: io::Error| Failure::new(format!("'{}': {why}", program.name()));
        let here = place.path().canonicalize().map_err(fail)?;
        let known = dump.more.iter().filter(|more| program.imports(&more.imports));
        let words = dump.arguments.iter().chain(known.flat_map(|more| &more.arguments));
        let more: Vec<_> = words.map(|word| with_directory(word, &here)).collect();
        let output = here.join("output");
        let said = File::create(&output).map_err(fail)?;
        let mut command = program.command(state, &more)?;
        command.stdin(Stdio::null()).stdout(said.try_clone().map_err(fail)?).stderr(said);
        let child = shutdown::spawn(shutdown::dies_with_us(&mut command)).map_err(fail)?;
        let mut beside = Self { child, output, stream: None };
        // By the directory's descriptor: the path of a socket has 107 bytes at most.
        let here = File::open(&here).map_err(fail)?;
        let socket = format!("/proc/self/fd/{}/{}", here.as_raw_fd(), dump.socket);
        loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break beside.stream = Some(stream),
                Err(_) => beside.check_running()?,
            }
            std::thread::sleep(LOOKS);
        }
        beside.tell(&dump.ready)?;
        Ok(beside)
    }

    /// Sends something, and waits for the answer, for as long as the program is busy.
    fn tell(&mut self, exchange: &Exchange) -> Result<(), Failure> {
        let mut answer = Vec::new();
        let told = self.stream().and_then(|stream| {
            loop {
                answer.clear();
                stream.write_all(exchange.send.as_bytes())?;
                while !is_whole(&answer, exchange) {
                    let mut part = [0; 512];
                    match stream.read(&mut part)? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        len => answer.extend_from_slice(part.get(..len).unwrap_or(&[])),
                    }
                }
                if !is_busy(&answer, exchange) {
                    return Ok(());
                }
                std::thread::sleep(LOOKS);
            }
        });
        if answer.starts_with(exchange.answer.as_bytes()) {
            return Ok(());
        }
        let sent = exchange.send.trim();
        match told {
            Ok(()) => {
                let answer = String::from_utf8_lossy(&answer);
                Err(self.failed(&format!("it answers {sent} by {:?}", answer.trim())))
            }
            Err(why) => {
                // The reason for the end of the stream is what it has said at last.
                let _ = self.wait(PATIENCE);
                Err(self.failed(&format!("it does not answer {sent} ({why})")))
            }
        }
    }

    fn stream(&mut self) -> io::Result<&mut UnixStream> {
        self.stream.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Has the program end in good order.
    fn end(&mut self) -> Result<(), Failure> {
        let pid = Pid::from_raw(self.child.id() as i32);
        kill(pid, Signal::SIGTERM).map_err(|why| self.failed(&why.to_string()))?;
        match self.wait(PATIENCE) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.failed(&status.to_string())),
            None => Err(self.failed("it does not end")),
        }
    }

    fn wait(&mut self, time: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(LOOKS);
        }
        None
    }

    fn check_running(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.failed(&format!("it has ended ({status})"))),
            Err(why) => Err(self.failed(&why.to_string())),
        }
    }

    /// With the last lines of what the program has said.
    fn failed(&self, why: &str) -> Failure {
        let said = files::read(&self.output, SHOWN_BYTES).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<_> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines.get(lines.len().saturating_sub(SHOWN_LINES)..).unwrap_or(&[]);
        Failure::new(format!("the program beside: {why}\n{}", last.join("\n")))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An argument of the adapter with the directory in it.
fn with_directory(word: &str, directory: &Path) -> OsString {
    let (mut bytes, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(at) = rest.windows(DIRECTORY.len()).position(|part| part == DIRECTORY) {
        bytes.extend_from_slice(rest.get(..at).unwrap_or(&[]));
        bytes.extend_from_slice(directory.as_os_str().as_bytes());
        rest = rest.get(at + DIRECTORY.len()..).unwrap_or(&[]);
    }
    bytes.extend_from_slice(rest);
    OsString::from_vec(bytes)
}
