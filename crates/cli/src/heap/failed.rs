//! Why a heap could not be opened, copied or mended: the input, the reason, the way out.

use super::holder;
use super::shell::command;
use spandrel_console::Failure;
use spandrel_pheap::{Error, OpenError};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Why a heap could not be used.
pub fn failed(path: &Path, why: Error) -> Failure {
    Failure::refused(format!("{}: {}", meant(path, why), text(path, why)))
}

/// The file that an error is about: the heap's, or its log.
fn meant(path: &Path, why: Error) -> String {
    let error = OpenError::new(path.as_os_str().as_bytes(), why);
    let meant = Path::new(OsStr::from_bytes(error.path()));
    if error.path().is_empty() { path.display() } else { meant.display() }.to_string()
}

/// Why a heap could not be copied into memory.
pub fn copy_failed(path: &Path, why: Error) -> Failure {
    let reason = match why {
        Error::Locked => format!(
            "{} has it open, and it has no log, of which a copy could be made at once; close it there first, or take --wait 10 with \
             the right to write to the file: the process allows a copy at its next checkpoint",
            holder::of(path)
        ),
        Error::NoCheckpoint => format!(
            "{} has it open, and came to no checkpoint in the time; have it call checkpoint (Heap::checkpoint, \
             spandrel_heap_checkpoint) regularly, take a longer --wait SECONDS, or close it there first",
            holder::of(path)
        ),
        why => return failed(path, why),
    };
    Failure::refused(format!("{}: {reason}", path.display()))
}

/// Whether the error is damage of the heap: exit code 1, not 2.
pub fn is_damage(why: &Error) -> bool {
    matches!(
        why,
        Error::Damaged { .. } | Error::DamagedTie | Error::CutOff | Error::Truncated { .. }
    )
}

/// Whether a file is the state of a durable directory: its log lies beside it under another name.
pub fn is_durable(path: &Path) -> bool {
    let mut magic = [0; 8];
    let log = path.with_file_name("log");
    path.file_name().is_some_and(|name| name == "state")
        && std::fs::File::open(log).and_then(|mut log| log.read_exact(&mut magic)).is_ok()
        && magic == *b"SPNDRNG1"
}

/// Refuses the state of a durable directory: what changes it beside its log is not durable there, and its objects may be reached in ways that no collection
/// follows.
pub fn refuse_durable(path: &Path) -> Result<(), Failure> {
    if !is_durable(path) {
        return Ok(());
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Err(Failure::refused(format!(
        "{}: it is the state of a durable directory, and all that is allocated there stays until the program frees it; \
         'spandrel durable compact {}' releases what is free",
        path.display(),
        directory.unwrap_or(Path::new(".")).display()
    )))
}

/// The reason and the way out.
pub fn text(path: &Path, why: Error) -> String {
    let way = match why {
        Error::System(libc::ENOENT) => {
            return "there is no such file; name a heap, which 'spandrel heap create' makes".into();
        }
        Error::System(libc::ELOOP) => {
            return "it is a symbolic link, and heaps are not opened through links; name the file itself"
                .into();
        }
        Error::System(libc::EINVAL | libc::EISDIR | libc::ENXIO) => {
            return "it is no file that holds bytes; name a heap, which 'spandrel heap create' makes"
                .into();
        }
        Error::Locked => return format!("{} has it open; close it there first", holder::of(path)),
        Error::NoCheckpoint => {
            return format!(
                "{} has it open, and came to no checkpoint in the time; close it there first",
                holder::of(path)
            );
        }
        Error::System(_) if why.way_out().is_none() => {
            Some("name a file that can be read, and written where it is to change".into())
        }
        Error::MissingLog if is_durable(path) => Some(format!(
            "it is the state of a durable directory, which has the log: 'spandrel durable recover {}' first",
            path.parent().unwrap_or(Path::new(".")).display()
        )),
        Error::MissingLog | Error::DamagedLog => Some(format!(
            "put it back if there is one, or use the heap as the file has it: {}",
            command("repair --forget-log", path)
        )),
        Error::NotAHeap => Some("name one, which 'spandrel heap create' makes".into()),
        Error::Damaged { .. } | Error::DamagedTie => Some(format!(
            "{} says what is damaged, {} mends it with the least loss",
            command("check", path),
            command("repair", path)
        )),
        Error::Truncated { .. } | Error::CutOff => {
            Some("use a copy of the heap: only that has what is missing".into())
        }
        Error::BaseTaken(_) => {
            Some("run the command again: each process has other addresses in use".into())
        }
        Error::Full => Some("free objects in the program that uses it".into()),
        Error::NoMemory => Some("close other programs, or have 'ulimit -v' allow more".into()),
        _ => None,
    };
    match way {
        Some(way) => format!("{}; {way}", why.reason()),
        None => why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_the_input_and_a_way_out() {
        let damaged = Error::Damaged { at: 64, what: "the header of a block" };
        for why in [
            Error::System(libc::ENOENT),
            Error::System(libc::ELOOP),
            Error::System(libc::EACCES),
            Error::ForeignLog,
            Error::StaleLog,
            Error::MissingLog,
            Error::DamagedLog,
            Error::NotALog,
            Error::CopyOnWrite,
            Error::System(libc::EEXIST),
            Error::System(libc::EMFILE),
            Error::System(libc::EROFS),
            Error::DiskFull,
            Error::FileSize,
            Error::NoMemory,
            Error::WindowFull(1 << 40),
            Error::TooManyHeaps(64),
            Error::NameTooLong { bytes: 252, most: 251 },
            Error::PathTooLong { bytes: 4096, most: 4091 },
            Error::FileSystem("huge pages (hugetlbfs)"),
            Error::NotAHeap,
            Error::Unfinished,
            Error::Version(9),
            Error::Medium(9),
            damaged,
            Error::Truncated { has: 1, needs: 2 },
            Error::BaseTaken(1 << 44),
            Error::Locked,
            Error::NoCheckpoint,
            Error::Full,
        ] {
            for failure in [failed(Path::new("a.heap"), why), copy_failed(Path::new("a.heap"), why)]
            {
                assert_eq!(failure.code, 2);
                let message = failure.message;
                let of_log = matches!(
                    why,
                    Error::ForeignLog
                        | Error::StaleLog
                        | Error::MissingLog
                        | Error::DamagedLog
                        | Error::NotALog
                );
                let begin = if of_log { "a.heap.wal: " } else { "a.heap: " };
                assert!(message.starts_with(begin) && message.contains("; "), "{message}");
            }
        }
        assert!(is_damage(&damaged) && !is_damage(&Error::NotAHeap));
    }
}
