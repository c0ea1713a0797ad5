//! The errors of a heap: names, reasons in words, and ways out.

use core::fmt;

use spandrel_pmem::Failed;

use crate::layout::LEAST_BYTES;
use crate::roots::RootName;
use crate::superblock::TIE;
use crate::system;

/// The error of an operation, which has changed nothing.
///
/// It prints the reason and, behind a semicolon, the way out, if there is one. [`Error::reason`] and [`Error::way_out`] return each alone.
/// [`OpenError`](crate::OpenError) has the path of the file as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// An error of the kernel, with its number.
    System(i32),
    /// The file is no heap.
    NotAHeap,
    /// The creation of the heap was cut off: the file has no objects.
    Unfinished,
    /// The heap is of another version of the format.
    Version(u64),
    /// The heap needs features that this version does not know, as bits.
    Features(u64),
    /// The heap was made for a medium that this version does not know, as its number.
    Medium(u64),
    /// The heap was made for another layout of the user's types than the given one.
    Layout {
        /// The heap's.
        heap: u64,
        /// The given one.
        given: u64,
    },
    /// The heap is damaged.
    Damaged {
        /// Offset in the file.
        at: u64,
        /// The damaged structure.
        what: &'static str,
    },
    /// The log beside the file belongs to another heap.
    ForeignLog,
    /// The log beside the file is of another state of the heap: of a copy, of an older one or of one that went on elsewhere.
    StaleLog,
    /// The heap was not closed, and its log is missing or empty: the file may have a part of a checkpoint.
    MissingLog,
    /// The log is damaged: checkpoints that were durable are missing in it.
    DamagedLog,
    /// The two pages that tie the heap to its log are damaged: nothing says which state the file is in.
    /// [`Options::forget_log`](crate::Options::forget_log) writes new ones.
    DamagedTie,
    /// The file of a heap that was not closed is shorter than it was.
    CutOff,
    /// A file that has the log's name is no log of a heap. The file stays as it is.
    NotALog,
    /// Another file has the path of the open heap, or the heap's file has no name any more: nothing more becomes durable.
    Replaced,
    /// A file that has the name of the heap's sums (`FILE.sum`) is none of this heap. The file stays as it is.
    ForeignSums,
    /// A mapped heap has no sums ([`Options::sums`](crate::Options::sums)).
    MappedSums,
    /// The file system copies on write, and the caller demands a mapped heap: a full disk would end the program by a signal.
    CopyOnWrite,
    /// The file is shorter than the heap.
    Truncated {
        /// Bytes of the file.
        has: u64,
        /// Bytes of the heap; 704 KiB where the file is too short to tell them.
        needs: u64,
    },
    /// Something else is mapped at the fixed base of the heap.
    BaseTaken(u64),
    /// The range of addresses for fixed heaps has no free part of this number of bytes, the limit of the new heap.
    WindowFull(usize),
    /// The heap is open already, in another process or in this one.
    Locked,
    /// The process that has the heap open made no checkpoint in the time that the copy waits for one.
    NoCheckpoint,
    /// The heap was not closed, and was opened without recovery.
    NeedsRecovery,
    /// The limit of the heap is reached ([`Options::limit`](crate::Options::limit)).
    Full,
    /// The disk or the user's quota is full (`ENOSPC`, `EDQUOT`).
    DiskFull,
    /// The file would exceed a limit: one of the process (`ulimit -f`), or one of the file system (`EFBIG`).
    FileSize,
    /// There is no memory, or no address space (`ENOMEM`; `ulimit -v`).
    NoMemory,
    /// The heap was opened to be read only.
    ReadOnly,
    /// More bytes than any heap has, or an alignment that is no power of two or more than 64 KiB.
    Size(usize),
    /// There are 512 roots, from 0 on.
    RootIndex(usize),
    /// The name of a root has between 1 and 40 bytes and none that is zero.
    RootName,
    /// All 512 roots are in use.
    RootsFull,
    /// The root has another type, as hashes.
    RootType {
        /// The root's.
        heap: u64,
        /// The given one.
        given: u64,
    },
    /// No object of this heap has this address, offset or pointer.
    Foreign(usize),
    /// The object with this address is free already.
    DoubleFree(usize),
    /// The process is a child of the one that opened the heap.
    Forked,
    /// The collection of the root has a handle already. The program drops that handle first.
    HandleLives(RootName),
    /// A transaction that has not ended has changed the collection, and is another thread's; or it has changed the collection's root.
    InTransaction,
    /// The calling thread is inside an operation of a collection or a transaction of the heap, in which no checkpoint can begin.
    InOperation,
    /// The process has the largest number of open heaps.
    TooManyHeaps(usize),
    /// The name of the file leaves no room for that of the log beside it.
    NameTooLong {
        /// Bytes of the name.
        bytes: usize,
        /// The most that the file system allows.
        most: usize,
    },
    /// The path leaves no room for that of the log.
    PathTooLong {
        /// Bytes of the path.
        bytes: usize,
        /// The most that the kernel allows.
        most: usize,
    },
    /// The file system cannot hold a heap: its name.
    FileSystem(&'static str),
}

/// The file system that cannot hold a heap.
pub(crate) const HUGE_PAGES: &str = "huge pages (hugetlbfs)";

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::FOREIGN_LOG => return Self::ForeignLog,
            Failed::STALE_LOG => return Self::StaleLog,
            Failed::MISSING_LOG => return Self::MissingLog,
            Failed::DAMAGED_LOG => return Self::DamagedLog,
            Failed::NOT_A_LOG => return Self::NotALog,
            Failed::DAMAGED_TIE => return Self::DamagedTie,
            Failed::CUT_OFF => return Self::CutOff,
            Failed::FOREIGN_SUMS => return Self::ForeignSums,
            Failed::MAPPED_SUMS => return Self::MappedSums,
            Failed::COPY_ON_WRITE => return Self::CopyOnWrite,
            Failed::REPLACED => return Self::Replaced,
            Failed::HUGE_PAGES => return Self::FileSystem(HUGE_PAGES),
            _ => {}
        }
        match failed.0 {
            libc::EWOULDBLOCK => Self::Locked,
            libc::ETIMEDOUT => Self::NoCheckpoint,
            libc::ENOSPC | libc::EDQUOT => Self::DiskFull,
            libc::EFBIG => Self::FileSize,
            libc::ENOMEM => Self::NoMemory,
            number => Self::System(number),
        }
    }
}

impl Error {
    /// Whether the heap, the disk, the file or memory is full.
    pub fn is_full(self) -> bool {
        matches!(self, Self::Full | Self::DiskFull | Self::FileSize | Self::NoMemory)
    }

    /// The number for `errno` of C callers.
    pub fn errno(self) -> i32 {
        match self {
            Self::System(number) => number,
            Self::NotAHeap
            | Self::Unfinished
            | Self::Size(_)
            | Self::RootIndex(_)
            | Self::RootName => libc::EINVAL,
            Self::Version(_) | Self::Features(_) | Self::Medium(_) | Self::FileSystem(_) => {
                libc::ENOTSUP
            }
            Self::Layout { .. } | Self::RootType { .. } => libc::EPROTOTYPE,
            Self::Damaged { .. }
            | Self::Truncated { .. }
            | Self::ForeignLog
            | Self::StaleLog
            | Self::MissingLog
            | Self::DamagedLog
            | Self::DamagedTie
            | Self::CutOff
            | Self::NotALog
            | Self::ForeignSums => libc::EBADMSG,
            Self::Replaced => libc::ESTALE,
            Self::MappedSums => libc::ENOTSUP,
            Self::CopyOnWrite => libc::EOPNOTSUPP,
            Self::BaseTaken(_) | Self::WindowFull(_) => libc::EADDRINUSE,
            Self::Locked => libc::EWOULDBLOCK,
            Self::NoCheckpoint => libc::ETIMEDOUT,
            Self::NeedsRecovery => libc::EUCLEAN,
            Self::Full | Self::NoMemory => libc::ENOMEM,
            Self::DiskFull | Self::RootsFull => libc::ENOSPC,
            Self::FileSize => libc::EFBIG,
            Self::ReadOnly => libc::EROFS,
            Self::Foreign(_) | Self::DoubleFree(_) => libc::EFAULT,
            Self::Forked => libc::EPERM,
            Self::HandleLives(_) | Self::InTransaction => libc::EBUSY,
            Self::InOperation => libc::EDEADLK,
            Self::TooManyHeaps(_) => libc::EMFILE,
            Self::NameTooLong { .. } | Self::PathTooLong { .. } => libc::ENAMETOOLONG,
        }
    }

    /// The reason, without the way out.
    pub fn reason(self) -> Reason {
        Reason(self)
    }

    /// The next step of the user; `None`: it follows from the reason.
    pub fn way_out(self) -> Option<&'static str> {
        Some(match self {
            Self::System(number) => return system::way_out(number),
            Self::NotAHeap => "name a heap, or another file for a new one",
            Self::Unfinished => "remove it and create it anew",
            Self::Version(_) | Self::Features(_) | Self::Medium(_) => {
                "use the version of Spandrel that made it"
            }
            Self::Layout { .. } | Self::RootType { .. } => {
                "open it with the types that it was made with"
            }
            Self::Damaged { .. } => "'spandrel heap check' lists what is damaged",
            Self::ForeignLog => "move it away, and put the heap's own log there if it has one",
            Self::StaleLog => {
                "put the file back beside it that it belongs to, or move it away if that one is gone"
            }
            Self::MissingLog => {
                "put it back, or go on with what the file has: 'spandrel heap repair --forget-log'"
            }
            Self::DamagedLog => {
                "take a backup, or go on with what the file has: 'spandrel heap repair --forget-log'"
            }
            Self::DamagedTie => {
                "take a backup, or go on with what the file has: 'spandrel heap repair --forget-log', or the option forget_log"
            }
            Self::NotALog => "move it away, or name it otherwise",
            Self::Replaced => "move the heap's file back to its path",
            Self::ForeignSums => "move it away, or name it otherwise",
            Self::MappedSums => "make or open it with a log (Choice::Logged), or without sums",
            Self::CopyOnWrite => "leave the choice of the medium to the heap, or take a log",
            Self::Truncated { .. } | Self::CutOff => "only a copy of the heap has what is missing",
            Self::BaseTaken(_) => {
                "open it with a smaller limit, before what lies there, or in another process"
            }
            Self::WindowFull(_) => "close other fixed heaps, or make it with a smaller limit",
            Self::Locked => "close it there first",
            Self::NoCheckpoint => "have it call checkpoint now and then, wait longer, or close it",
            Self::NeedsRecovery => "open it with recovery, or collect it first",
            Self::Full => "free objects, or open it with a larger limit",
            Self::DiskFull => "make room on the disk",
            Self::FileSize => "have 'ulimit -f' allow more, or use a file system for larger files",
            Self::NoMemory => {
                "have 'ulimit -v' and the container allow more, or open it with a smaller limit"
            }
            Self::ReadOnly => "open it for writing",
            Self::RootsFull => "remove a root",
            Self::Forked => "open a heap of its own in the child",
            Self::HandleLives(_) => "share the handle, under a lock where threads change it",
            Self::InTransaction => "keep a collection that is under a lock locked until then",
            Self::InOperation => "make it when the transaction has ended",
            Self::TooManyHeaps(_) => "close one first",
            Self::NameTooLong { .. } => "take a shorter name",
            Self::PathTooLong { .. } => "take a path from a directory nearer to the file",
            Self::FileSystem(_) => "make it on tmpfs, DAX or a disk",
            Self::Size(_)
            | Self::RootIndex(_)
            | Self::RootName
            | Self::Foreign(_)
            | Self::DoubleFree(_) => return None,
        })
    }
}

/// The reason of an error in words; see [`Error::reason`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reason(Error);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Error::System(number) => system::write(f, number),
            Error::NotAHeap => f.write_str("it is no heap"),
            Error::Unfinished => f.write_str("its creation was cut off: it holds nothing"),
            Error::Version(version) => write!(
                f,
                "it has version {version} of the format; this program knows {}",
                crate::superblock::VERSION
            ),
            Error::Features(bits) => {
                write!(f, "it needs features ({bits:#x}) that this program does not know")
            }
            Error::Medium(number) => {
                write!(f, "it was made for a medium ({number}) that this program does not know")
            }
            Error::Layout { heap, given } => {
                write!(f, "it was made for types with the layout {heap:#018x}, not {given:#018x}")
            }
            Error::Damaged { at, what } => write!(f, "it is damaged at offset {at:#x}: {what}"),
            Error::ForeignLog => f.write_str("it is the log of another heap"),
            Error::StaleLog => {
                f.write_str("it is the log of another state of the heap, and not of what the file is")
            }
            Error::MissingLog => f.write_str(
                "it is missing or empty, and the heap was not closed: the file may have a part of a checkpoint",
            ),
            Error::DamagedLog => {
                f.write_str("it is damaged: checkpoints that were durable are missing in it")
            }
            Error::DamagedTie => {
                write!(f, "it is damaged at offset {TIE:#x}: the lines that tie the heap to its log")
            }
            Error::CutOff => {
                f.write_str("it is cut off: it had more bytes in the state that it says it is in")
            }
            Error::NotALog => f.write_str("it has the name of the heap's log, and is none"),
            Error::Replaced => f.write_str(
                "another file has its path, or none: what is stored now would be lost with the process",
            ),
            Error::ForeignSums => {
                f.write_str("it has the name of the file with the heap's sums, and is none of this heap")
            }
            Error::MappedSums => f.write_str(
                "it is mapped: its stores pass no moment at which a sum could be computed",
            ),
            Error::CopyOnWrite => f.write_str(
                "its file system copies what is written: mapped, a full disk would end the program by a signal",
            ),
            Error::Truncated { has, needs } => {
                let whose = if needs == LEAST_BYTES as u64 { "any heap has" } else { "it had" };
                write!(f, "it is cut off: {has} bytes, of {needs} that {whose}")
            }
            Error::BaseTaken(base) => {
                write!(f, "it belongs at the address {base:#x}, and something else lies there (also a heap or state that was closed in this process, if a handle or an `Arc` still leads to it)")
            }
            Error::WindowFull(bytes) => {
                write!(f, "no {bytes} bytes in a row are free among the addresses for fixed heaps")
            }
            Error::Locked => f.write_str("it is open already, in this process or another"),
            Error::NoCheckpoint => f.write_str(
                "the process that has it open was asked for a copy, and came to no checkpoint",
            ),
            Error::NeedsRecovery => f.write_str("it was not closed: it has to be recovered first"),
            Error::Full => f.write_str("the heap has reached its limit"),
            Error::DiskFull => f.write_str("the disk or the user's quota is full"),
            Error::FileSize => f.write_str("the file would exceed its size limit"),
            Error::NoMemory => f.write_str("there is no memory or address space for it"),
            Error::ReadOnly => f.write_str("it was opened to be read only"),
            Error::Size(bytes) => write!(f, "no object has {bytes} bytes, or the alignment that was asked for: a power of two of at most 65536 here"),
            Error::RootIndex(index) => write!(f, "there is no root {index}: they are 0 to 511"),
            Error::RootName => {
                f.write_str("no root has that name, or it is none: a name has 1 to 40 bytes of UTF-8, none of them zero")
            }
            Error::RootsFull => f.write_str("all 512 roots are in use"),
            Error::RootType { heap, given } => {
                write!(f, "the root has a type with the layout {heap:#018x}, not {given:#018x}")
            }
            Error::Foreign(at) => write!(f, "{at:#x} is no object of this heap"),
            Error::DoubleFree(at) => write!(f, "{at:#x} is free already"),
            Error::Forked => f.write_str("it was opened by the parent of this process"),
            Error::HandleLives(name) => {
                write!(f, "the collection \"{}\" has a handle already", name.text())
            }
            Error::InTransaction => f.write_str(
                "a transaction that has not ended has changed the collection or its root",
            ),
            Error::InOperation => f.write_str(
                "a checkpoint cannot begin inside a transaction or an operation of the same thread",
            ),
            Error::TooManyHeaps(most) => {
                write!(f, "{most} heaps are open in this process, and more cannot be")
            }
            Error::NameTooLong { bytes, most } => write!(
                f,
                "its name has {bytes} bytes; {most} at most leave room for the name of its log"
            ),
            Error::PathTooLong { bytes, most } => write!(
                f,
                "its path has {bytes} bytes; {most} at most leave room for the path of its log"
            ),
            Error::FileSystem(name) => {
                write!(f, "it lies on {name}, where a file cannot be a heap")
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason().fmt(f)?;
        self.way_out().map_or(Ok(()), |way| write!(f, "; {way}"))
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn what_is_full_is_told_apart_with_its_own_way_out() {
        for (number, error, errno, parts) in [
            (libc::ENOSPC, Error::DiskFull, libc::ENOSPC, ["disk", "make room"]),
            (libc::EDQUOT, Error::DiskFull, libc::ENOSPC, ["quota", "make room"]),
            (libc::EFBIG, Error::FileSize, libc::EFBIG, ["file", "ulimit -f"]),
            (libc::ENOMEM, Error::NoMemory, libc::ENOMEM, ["address space", "ulimit -v"]),
        ] {
            let made = Error::from(Failed(number));
            assert_eq!((made, made.errno(), made.is_full()), (error, errno, true));
            for part in parts {
                assert!(made.to_string().contains(part), "{made}");
            }
        }
        assert!(Error::Full.is_full() && Error::Full.to_string().contains("limit"));
        assert!(!Error::Locked.is_full());
    }

    #[test]
    fn the_systems_numbers_are_in_words_with_the_number() {
        let text = |number| Error::System(number).reason().to_string();
        assert_eq!(text(libc::ENOENT), "No such file or directory (os error 2)");
        assert_eq!(text(libc::EACCES), "Permission denied (os error 13)");
        assert!(text(9999).ends_with("(os error 9999)"), "{}", text(9999));
        let full = Error::System(libc::EMFILE).to_string();
        assert!(full.starts_with("Too many open files (os error 24); "), "{full}");
        assert!(full.contains("ulimit -n"), "{full}");
    }
}
