//! Why a durable state cannot be opened, changed or kept.

use core::fmt;

use spandrel_pmem::Failed;
use spandrel_redolog::ring;

#[cfg(doc)]
use crate::control::Control;
use crate::control::FAULT;
use crate::front::Refused;

/// See the head of this file. Each is displayed with the reason and the way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The system refused: the error's number.
    System(i32),
    /// The path is too long, or has a zero byte.
    Path,
    /// The directory is a symbolic link, or no directory.
    NotADirectory,
    /// The directory or one of its files belongs to another user, whose number this is.
    NotOwned(u32),
    /// Other users may write to the directory or one of its files: the mode.
    Shared(u32),
    /// Another process has the state open, or this one has.
    Locked,
    /// The directory has a state or a log already.
    Occupied,
    /// There is a log, and no state that it belongs to.
    MissingState,
    /// The directory has no state.
    NoState,
    /// The state needs its log, and there is none.
    MissingLog,
    /// The log continues another state: a copy, or one that was put back.
    StaleLog,
    /// The log is another state's.
    ForeignLog,
    /// The log is damaged: batches that were durable are missing.
    DamagedLog,
    /// The log is no log.
    NotALog,
    /// The log is of another version of its format: the last byte of its first word.
    LogVersion(u8),
    /// The file `state` is a link, a directory or the like.
    NotAState,
    /// The state does not say which batch it is at.
    DamagedState,
    /// The file `state` is shorter than it was.
    CutState,
    /// The heap that the state lies in refuses.
    Heap(spandrel_pheap::Error),
    /// A batch could not be undone. Nothing is accepted any more.
    Panicked,
    /// A command that was undone had opened a collection: its handle leads to nothing. Nothing is accepted any more.
    Undone,
    /// A command changes more than the longest log holds. It was undone.
    TooLong,
    /// A command changes more than the log holds, which cannot become longer: the error's number. It was undone.
    NoLongerLog(i32),
    /// The disk refused what brings the log into the state, and the log is full: the error's number. What was refused is not there.
    Full(i32),
    /// A fault of this library has ended the thread that brings the log into the state, and the log is full, or the state was to be closed or copied. What was refused is not there.
    Fault,
    /// The disk refused to make a batch durable. It may be there or not; nothing is accepted any more.
    Poisoned(i32),
    /// A thread stored to the state outside of a write. Nothing is accepted any more.
    Stray,
    /// No block has that number of bytes.
    BlockSize(usize),
    /// The directory has the state of a program whose types are others: the number that it was made with, and that given.
    Layout {
        /// The number in the state.
        state: u64,
        /// The number that was given.
        given: u64,
    },
    /// The process is the child of a fork of the one that has opened the state.
    Forked,
    /// The state has values of ordinary types, and the program's allocator does not allocate in states.
    Allocator,
    /// The state is a plain one, and the kernel draws the addresses of the program.
    Addresses,
    /// The state is a plain one, of another build of the program.
    OtherBuild,
    /// The state is a plain one of this build, loaded at other addresses.
    Moved,
    /// The state is a plain one of another type.
    OtherType,
    /// The state is a plain one, and the code of its commands cannot be translated.
    NoTranslation,
}

/// Behind a number that says that a descriptor is not the one that was opened.
const CLOSED: &str = "; the program has closed the descriptor, which is the state's: have it close none but its own, or close all before it opens a state";

impl Error {
    /// Of a log that does not reach the state's file any more: the number that [`Control::failure`] has.
    pub fn of_follower(why: i32) -> Self {
        if why == FAULT { Self::Fault } else { Self::Full(why) }
    }

    /// The number of [`Failed`], in the words of this type.
    pub fn of(why: Failed) -> Self {
        match why {
            Failed::FOREIGN_LOG => Self::ForeignLog,
            Failed::STALE_LOG => Self::StaleLog,
            Failed::MISSING_LOG => Self::MissingLog,
            Failed::DAMAGED_LOG => Self::DamagedLog,
            Failed::NOT_A_LOG => Self::NotALog,
            Failed::DAMAGED_TIE => Self::DamagedState,
            Failed::CUT_OFF => Self::CutState,
            why => why.version_of_log().map_or(Self::System(why.0), Self::LogVersion),
        }
    }
}

impl Error {
    /// The number of `errno` that says the same to a C program.
    pub fn errno(self) -> i32 {
        match self {
            Self::System(why) | Self::Full(why) | Self::Poisoned(why) => why,
            Self::Path => libc::ENAMETOOLONG,
            Self::NotAState | Self::BlockSize(_) => libc::EINVAL,
            Self::NoState => libc::ENOENT,
            Self::NotADirectory => libc::ENOTDIR,
            Self::NotOwned(_) | Self::Shared(_) => libc::EACCES,
            Self::Locked => libc::EWOULDBLOCK,
            Self::Occupied => libc::EEXIST,
            Self::MissingState
            | Self::MissingLog
            | Self::StaleLog
            | Self::ForeignLog
            | Self::DamagedLog
            | Self::NotALog
            | Self::DamagedState
            | Self::CutState => libc::EBADMSG,
            Self::Heap(why) => why.errno(),
            Self::Panicked | Self::Undone | Self::Stray | Self::Fault => libc::EUCLEAN,
            Self::TooLong | Self::NoLongerLog(_) => libc::EMSGSIZE,
            Self::Layout { .. } | Self::OtherBuild | Self::Moved | Self::OtherType => {
                libc::EPROTOTYPE
            }
            Self::LogVersion(_) | Self::Allocator | Self::Addresses | Self::NoTranslation => {
                libc::ENOTSUP
            }
            Self::Forked => libc::EPERM,
        }
    }
}

impl From<Failed> for Error {
    fn from(why: Failed) -> Self {
        Self::of(why)
    }
}

impl From<spandrel_pheap::Error> for Error {
    fn from(why: spandrel_pheap::Error) -> Self {
        match why {
            spandrel_pheap::Error::Layout { heap, given } => Self::Layout { state: heap, given },
            why => Self::Heap(why),
        }
    }
}

impl From<Refused> for Error {
    fn from(why: Refused) -> Self {
        match why {
            Refused::TooLong => Self::TooLong,
            Refused::Full(why) => Self::of_follower(why),
            Refused::Poisoned(why) => Self::Poisoned(why.0),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |why: &i32| Number(*why);
        match self {
            Self::System(why) => {
                number(why).fmt(f)?;
                f.write_str(match *why {
                    libc::ENOMEM => {
                        "; have 'ulimit -v', or the container, allow more memory, or give the state a smaller limit (of states whose commands are translated a process has room for some thirty)"
                    }
                    libc::ENOSPC | libc::EDQUOT => {
                        "; make room on the disk, or ask for a shorter log"
                    }
                    libc::EAGAIN => "; have 'ulimit -u', or the container, allow more threads",
                    libc::ENOENT => {
                        "; give a path that is there (for a new state the directory above it), and have /proc mounted"
                    }
                    libc::EADDRINUSE => {
                        "; another process serves at that path, or a file of another kind lies there: give another path"
                    }
                    libc::EBADF | libc::ESTALE => CLOSED,
                    libc::EFBIG => {
                        "; have 'ulimit -f', or the file system, allow longer files, or ask for a shorter log"
                    }
                    _ => "",
                })
            }
            Self::Path => f.write_str("the path is too long or has a zero byte; use a shorter one"),
            Self::NotADirectory => {
                f.write_str("no directory, or a symbolic link; give the directory itself")
            }
            Self::NotOwned(user) => write!(
                f,
                "the directory or a file in it belongs to user {user}; give one of your own"
            ),
            Self::Shared(mode) => write!(
                f,
                "other users may write to the directory or a file in it (mode {mode:o}); take their right away: `chmod 700` of the directory, `chmod 600` of the files"
            ),
            Self::Locked => f.write_str("a process has the state open; close it there first"),
            Self::Occupied => f.write_str(
                "the directory has a state or a log already; give another one",
            ),
            Self::MissingState => f.write_str(
                "there is a log and no state; put the file `state` back, or remove the log to begin anew",
            ),
            Self::NoState => f.write_str("the directory has no state; give that of one"),
            Self::MissingLog => f.write_str(
                "the state needs its log, which is missing; put the file `log` back",
            ),
            Self::StaleLog => f.write_str(
                "the log continues another state; put the state back that it belongs to, or the log of this one (if a heap command has changed the closed state, remove the log)",
            ),
            Self::ForeignLog => f.write_str("the log belongs to another state; put the right one back"),
            Self::DamagedLog => f.write_str(
                "the log is damaged, and batches that were durable are missing; restore a copy of both files",
            ),
            Self::LogVersion(version) => write!(
                f,
                "the log has version {} of the format, and this program knows {}; use the version of Spandrel that made it",
                version.escape_ascii(),
                ring::VERSION.escape_ascii()
            ),
            Self::NotALog => f.write_str("the file `log` is no log; put the right one back"),
            Self::NotAState => f.write_str(
                "the file `state` is a link, a directory or the like; put the file itself there, or give another directory",
            ),
            Self::DamagedState => f.write_str(
                "the state does not say which batch it is at; restore a copy of both files",
            ),
            Self::CutState => f.write_str(
                "the file `state` was cut off: it is shorter than it was at the batch that it says it is at; restore a copy of both files",
            ),
            Self::Heap(why) => why.fmt(f),
            Self::Panicked => f.write_str(
                "a batch could not be undone, and nothing more is accepted: every command that has returned is durable, and later ones are not there; open the state again",
            ),
            Self::Undone => f.write_str(
                "a command that was undone had opened a collection, and nothing more is accepted: every command that has returned is durable, and later ones are not there; open collections when the state is opened, and open it again",
            ),
            Self::TooLong => f.write_str(
                "the command changes more than the longest log holds, and was undone; change less at once",
            ),
            Self::NoLongerLog(why) => write!(
                f,
                "the command changes more than the log holds, which cannot become longer ({}), and was undone; change less at once, or make room",
                number(why)
            ),
            Self::Full(why) => write!(
                f,
                "the disk refused what brings the log into the state ({}), and a full log takes no more: every command that has returned is durable, and what was refused is not there; open the state again when the disk is well and has room{}",
                number(why),
                if matches!(*why, libc::EBADF | libc::ESTALE) { CLOSED } else { "" }
            ),
            Self::Fault => f.write_str(
                "a fault of this library has ended the thread that brings the log into the state, and a full log takes no more: every command that has returned is durable, and what was refused is not there; open the state again",
            ),
            Self::Poisoned(why) => write!(
                f,
                "the disk refused a batch ({}), and nothing more is accepted: every command that has returned is durable, those of this batch are there or not, and later ones are not; open the state again when the disk is well{}",
                number(why),
                if matches!(*why, libc::EBADF | libc::ESTALE) { CLOSED } else { "" }
            ),
            Self::Stray => f.write_str(
                "the state was changed outside of a write, and nothing more is accepted: every command that has returned is durable, and later ones are not there; open the state again",
            ),
            Self::Layout { state, given } => write!(
                f,
                "the state was made with layout {state}, and the program has {given}; use the program that made it, or move the contents: `spandrel heap dump DIRECTORY/state --out state.json` writes each object, and the layout in the record, and `spandrel heap load OTHER/state --from state.json` makes a state of what you make of that"
            ),
            Self::BlockSize(bytes) => write!(
                f,
                "stores are noted in blocks of 16, 32, 64 or 128 bytes, and not of {bytes}; take one of these, or leave it at 32"
            ),
            Self::Forked => f.write_str(
                "the process is the child of a fork; open the state in the process that uses it",
            ),
            Self::Allocator => f.write_str(
                "a state of ordinary types needs the allocator `spandrel::durable::Allocator`; make it the program's `#[global_allocator]`",
            ),
            Self::Addresses => f.write_str(
                "the kernel draws the addresses of the program, and values of the state point into it; call `spandrel::durable::fix_addresses()` (in C `spandrel_durable_fix_addresses()`) first in `main`, start it by `setarch -R`, or link it for fixed addresses",
            ),
            Self::OtherBuild => f.write_str(
                "the state was made by another build of the program, and its values point into that one; open it with that build, and have the program write out what the state has, as no tool translates such values",
            ),
            Self::Moved => f.write_str(
                "the program was at other addresses when it made the state; start it in the same way (`spandrel::durable::fix_addresses()`, in C `spandrel_durable_fix_addresses()`, or `setarch -R`)",
            ),
            Self::OtherType => f.write_str(
                "the state is of another type; open it as the type that it was made with",
            ),
            Self::NoTranslation => f.write_str(
                "the code of the state's commands cannot be translated, as the system forbids memory with code, or the processor has no BMI2, keeps a stack of return addresses (CET), or leaves out bits of addresses (LAM); allow executable mappings of memfd files (SELinux: execmem; sysctl vm.memfd_noexec), or have the stores of the state found in another way (`Stores::Pages` in Rust, `SPANDREL_DURABLE_STORES_PAGES` in C)",
            ),
        }
    }
}

impl core::error::Error for Error {}

/// An error's number in words.
struct Number(i32);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FAULT => f.write_str("a fault of this library has ended the thread of the log"),
            why => spandrel_pheap::Error::System(why).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn an_error_that_ends_writing_says_what_is_durable_and_the_way_out() {
        let not_there = "what was refused is not there";
        let later = "later ones are not there";
        let of_batch = "those of this batch are there or not, and later ones are not";
        for (why, rest, errno) in [
            (Refused::Poisoned(Failed(libc::EIO)).into(), of_batch, libc::EIO),
            (Refused::Full(libc::ENOSPC).into(), not_there, libc::ENOSPC),
            (Refused::Full(FAULT).into(), not_there, libc::EUCLEAN),
            (Error::Stray, later, libc::EUCLEAN),
            (Error::Panicked, later, libc::EUCLEAN),
            (Error::Undone, later, libc::EUCLEAN),
        ] {
            let text = why.to_string();
            for part in ["every command that has returned is durable", rest, "open "] {
                assert!(text.contains(part), "{part}: {text}");
            }
            assert_eq!(why.errno(), errno);
        }
        // The reason is the disk's, or none of it.
        let text = Error::Poisoned(libc::EIO).to_string();
        assert!(text.contains("(Input/output error"), "{text}");
        let text = Error::of_follower(FAULT).to_string();
        assert!(text.contains("a fault of this library") && !text.contains("permitted"), "{text}");
        assert!(Error::NoLongerLog(FAULT).to_string().contains("(a fault of this library"));
    }
}
