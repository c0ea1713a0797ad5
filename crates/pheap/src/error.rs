//! What can go wrong, by name.

use core::fmt;

use spandrel_pmem::Failed;

use crate::layout::LEAST_BYTES;
use crate::roots::RootName;

/// Why something could not be done. The heap is as it was before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused; its error's number.
    System(i32),
    /// The file is no heap.
    NotAHeap,
    /// The file is a heap whose creation was cut off: it holds nothing.
    Unfinished,
    /// The heap is of another version of the format.
    Version(u64),
    /// The heap needs features that this version does not know, as bits.
    Features(u64),
    /// The heap was made to lie on something that this version does not know, as its number.
    Medium(u64),
    /// The heap was made for another layout of the user's types than the one that was given.
    Layout {
        /// The heap's.
        heap: u64,
        /// The given one.
        given: u64,
    },
    /// The heap is damaged: where in the file, and what is wrong there.
    Damaged {
        /// Offset in the file.
        at: u64,
        /// What it means.
        what: &'static str,
    },
    /// The log beside the file is that of another heap: what the heap's own had would be lost.
    ForeignLog,
    /// The file is shorter than the heap.
    Truncated {
        /// Bytes that it has.
        has: u64,
        /// Bytes that the heap had; 704 KiB if so little is left that nobody knows.
        needs: u64,
    },
    /// The heap has a fixed base, and something else lies there.
    BaseTaken(u64),
    /// Somebody else has the heap open.
    Locked,
    /// Somebody else has the heap open, was asked for a copy, and has not come to a checkpoint in the time.
    NoCheckpoint,
    /// The heap was not closed, and was to be opened without recovery.
    NeedsRecovery,
    /// No room: the limit of the heap, of the medium or of the address space is reached.
    Full,
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
    /// What is to be freed, resized or made a root is no object of this heap: the address, or the offset.
    Foreign(usize),
    /// What is to be freed is free already: its address.
    DoubleFree(usize),
    /// The process is a child of the one that opened the heap.
    Forked,
    /// The collection of that root has a handle already, which has to be dropped first.
    HandleLives(RootName),
    /// A transaction of another thread has changed the collection and has not ended.
    InTransaction,
    /// The calling thread is inside an operation of a collection or a transaction of the heap, in which no checkpoint can begin.
    InOperation,
    /// So many heaps are open in this process already.
    TooManyHeaps(usize),
}

impl From<Failed> for Error {
    fn from(Failed(number): Failed) -> Self {
        match number {
            libc::EWOULDBLOCK => Self::Locked,
            libc::ETIMEDOUT => Self::NoCheckpoint,
            libc::ENOSPC | libc::ENOMEM | libc::EDQUOT | libc::EFBIG => Self::Full,
            number => Self::System(number),
        }
    }
}

impl Error {
    /// The number for `errno` that C callers get.
    pub fn errno(self) -> i32 {
        match self {
            Self::System(number) => number,
            Self::NotAHeap
            | Self::Unfinished
            | Self::Size(_)
            | Self::RootIndex(_)
            | Self::RootName => libc::EINVAL,
            Self::Version(_) | Self::Features(_) | Self::Medium(_) => libc::ENOTSUP,
            Self::Layout { .. } | Self::RootType { .. } => libc::EPROTOTYPE,
            Self::Damaged { .. } | Self::Truncated { .. } | Self::ForeignLog => libc::EBADMSG,
            Self::BaseTaken(_) => libc::EEXIST,
            Self::Locked => libc::EWOULDBLOCK,
            Self::NoCheckpoint => libc::ETIMEDOUT,
            Self::NeedsRecovery => libc::EUCLEAN,
            Self::Full => libc::ENOMEM,
            Self::RootsFull => libc::ENOSPC,
            Self::Foreign(_) | Self::DoubleFree(_) => libc::EFAULT,
            Self::Forked => libc::EPERM,
            Self::HandleLives(_) | Self::InTransaction => libc::EBUSY,
            Self::InOperation => libc::EDEADLK,
            Self::TooManyHeaps(_) => libc::EMFILE,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::System(number) => write!(f, "the system refused (error {number})"),
            Self::NotAHeap => f.write_str("it is no heap"),
            Self::Unfinished => f.write_str(
                "its creation was cut off: it holds nothing; remove it and create it anew",
            ),
            Self::Version(version) => write!(
                f,
                "it has version {version} of the format; this program knows {}",
                crate::superblock::VERSION
            ),
            Self::Features(bits) => {
                write!(f, "it needs features ({bits:#x}) that this program does not know")
            }
            Self::Medium(number) => {
                write!(f, "it was made for a medium ({number}) that this program does not know")
            }
            Self::Layout { heap, given } => {
                write!(f, "it was made for types with the layout {heap:#018x}, not {given:#018x}")
            }
            Self::Damaged { at, what } => write!(f, "it is damaged at offset {at:#x}: {what}"),
            Self::ForeignLog => f.write_str("the log beside it is that of another heap"),
            Self::Truncated { has, needs } => {
                let whose = if needs == LEAST_BYTES as u64 { "any heap has" } else { "it had" };
                write!(f, "it is cut off: {has} bytes, of {needs} that {whose}")
            }
            Self::BaseTaken(base) => {
                write!(f, "it belongs at the address {base:#x}, and something else lies there")
            }
            Self::Locked => f.write_str("somebody else has it open"),
            Self::NoCheckpoint => {
                f.write_str("somebody else has it open, and came to no checkpoint in the time")
            }
            Self::NeedsRecovery => f.write_str("it was not closed: it has to be recovered first"),
            Self::Full => f.write_str(
                "there is no room: the heap's limit, the disk or the address space is full",
            ),
            Self::Size(bytes) => write!(f, "no object has {bytes} bytes or that alignment"),
            Self::RootIndex(index) => write!(f, "there is no root {index}: they are 0 to 511"),
            Self::RootName => {
                f.write_str("the name of a root has 1 to 40 bytes, none of them zero")
            }
            Self::RootsFull => f.write_str("all 512 roots are in use"),
            Self::RootType { heap, given } => {
                write!(f, "the root has a type with the layout {heap:#018x}, not {given:#018x}")
            }
            Self::Foreign(at) => write!(f, "{at:#x} is no object of this heap"),
            Self::DoubleFree(at) => write!(f, "{at:#x} is free already"),
            Self::Forked => f.write_str("it was opened by the parent of this process"),
            Self::HandleLives(name) => write!(
                f,
                "the collection \"{}\" has a handle already: share that one, under a lock if threads change it",
                name.text()
            ),
            Self::InTransaction => f.write_str(
                "a transaction of another thread has changed the collection and has not ended: \
                 a collection under a lock stays locked until then",
            ),
            Self::InOperation => f.write_str(
                "a checkpoint cannot begin inside a transaction or an operation of the same thread",
            ),
            Self::TooManyHeaps(most) => write!(f, "{most} heaps are open already"),
        }
    }
}

impl core::error::Error for Error {}
