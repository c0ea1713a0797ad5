//! The arguments of `spandrel heap`.

use clap::{Parser, Subcommand, ValueEnum};
use spandrel_pheap::Choice;
use std::path::PathBuf;
use std::time::Duration;

/// Make, look at, mend and copy recoverable heaps: files whose objects outlive the process.
///
/// 'info', 'check', 'roots', 'copy' and 'dump' work on a copy in memory: the file stays as it is. A process may have the heap open.
/// If the heap has a log (FILE.wal), the copy is its last checkpoint. If it has none, the process allows the copy at its next
/// checkpoint (see --wait). The command does not know the types of a program's objects: each word that may be a pointer is taken
/// for one.
#[derive(Parser, Debug)]
pub struct HeapArgs {
    #[command(subcommand)]
    pub task: HeapTask,
}

#[derive(Subcommand, Debug)]
pub enum HeapTask {
    Create(CreateArgs),
    Info(InfoArgs),
    Check(CheckArgs),
    Repair(RepairArgs),
    Gc(GcArgs),
    Roots(RootsArgs),
    Copy(CopyArgs),
    Dump(DumpArgs),
    Load(LoadArgs),
    Shrink(ShrinkArgs),
}

/// The time that a command waits for a process.
#[derive(Parser, Debug)]
pub struct WaitArgs {
    /// The longest wait for the next checkpoint of a process that has the heap open without a log; 0: no wait
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "10",
        value_parser = seconds,
        allow_negative_numbers = true
    )]
    pub wait: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|number| Duration::try_from_secs_f64(number).ok());
    seconds.ok_or_else(|| "name seconds such as 10 or 0.5".into())
}

/// Make a heap in a new file.
#[derive(Parser, Debug)]
pub struct CreateArgs {
    /// The file, which must not be there yet
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The size of the new heap, 704KiB at least; the heap grows when it is full
    #[arg(long, value_name = "SIZE", default_value = "64MiB", allow_negative_numbers = true)]
    pub size: String,

    /// Give the heap an address of its own, at which it is always mapped: addresses may be stored in it
    #[arg(long)]
    pub fixed: bool,

    /// The medium of the heap, which the file remembers
    #[arg(long, value_name = "MEDIUM", default_value = "auto")]
    pub medium: MediumArg,

    /// Keep a sum of each page in FILE.sum, so that 'check' finds damage of what programs store; for logged heaps
    #[arg(long)]
    pub sums: bool,
}

/// The medium of a heap, as users type it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MediumArg {
    /// Mapped on persistent memory and in tmpfs, else logged
    Auto,
    /// The file itself is mapped: stores survive the process, and a power failure on persistent memory only
    Mapped,
    /// The file changes at checkpoints only, with a log beside it (FILE.wal): checkpoints survive a power failure
    Logged,
}

impl MediumArg {
    /// The medium, as the library names it.
    pub fn choice(self) -> Choice {
        match self {
            Self::Auto => Choice::Auto,
            Self::Mapped => Choice::Mapped,
            Self::Logged => Choice::Logged,
        }
    }
}

/// Show what a heap is, and what it holds.
#[derive(Parser, Debug)]
pub struct InfoArgs {
    /// The heap
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Check whether a heap is sound: exit code 0 if it is, 1 if it is damaged, 2 if the check is not possible.
///
/// Objects that nothing leads to are no damage; the check only counts them, and 'gc' frees them.
#[derive(Parser, Debug)]
pub struct CheckArgs {
    /// The heap
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Mend a damaged heap: what its checksums determine is restored exactly, the rest is set aside or cleared.
///
/// Where headers or mark bits are lost the heap is recovered when it is opened next, best by the program that has its types. Without
/// --write the command only says what it would do. Exit code 0 if the heap is sound in the end, 1 if it is not (without --write: if
/// there is something to mend).
#[derive(Parser, Debug)]
pub struct RepairArgs {
    /// The heap, which no other process may have open
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Mend the file; without this a copy in memory is mended
    #[arg(long)]
    pub write: bool,

    /// Write no copy of the damaged heap to FILE.before-repair
    #[arg(long, requires = "write")]
    pub no_backup: bool,

    /// Use the heap as the file has it if its log is missing, damaged or of another state; with --write the log is renamed to FILE.bad,
    /// after FILE was copied to FILE.before-repair.
    /// Checkpoints that only the log has are given up, and the file may have a part of a checkpoint
    #[arg(long)]
    pub forget_log: bool,

    /// Take what pages hold for right that are not what their sums (FILE.sum) say: the sums are computed again
    #[arg(long, requires = "write")]
    pub accept_sums: bool,

    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Free what cannot be reached from a heap's roots; a heap that was not closed is recovered first.
///
/// The command does not know the types of the program's objects. Open a heap that was not closed with its program first: that recovers it
/// with its types, where this command keeps each object that some word of another one looks like a pointer to.
#[derive(Parser, Debug)]
pub struct GcArgs {
    /// The heap, which no other process may have open
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// List a heap's roots: number, name, offset and size of the object, layout of its type.
#[derive(Parser, Debug)]
pub struct RootsArgs {
    /// The heap
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Copy a heap to a new file, as it was when it was closed or at the last checkpoint.
///
/// The copy needs no log. It appears whole or not at all, and only its owner may read it. A process may have the heap open. If the
/// heap has a log, the process does not notice the copy. If it has none (on tmpfs, for example), the process stands still at its next
/// checkpoint until the copy is in memory. The copy is of one moment, except for objects that a thread stores to during the copy,
/// whose words are old or new; it can always be recovered.
#[derive(Parser, Debug)]
pub struct CopyArgs {
    /// The heap
    #[arg(value_name = "FROM")]
    pub from: PathBuf,

    /// The file to write, which must not be there yet
    #[arg(value_name = "TO")]
    pub to: PathBuf,

    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Write a heap's record, its roots and all objects that can be reached as JSON, of which 'load' makes the heap again.
///
/// A root has its number, its name, the layout of its type, and the offset of its object. An object is {"at": OFFSET, "bytes": BYTES,
/// "pointers": [[WHERE, TO], …], "data": HEX}. WHERE is the place in the object of a word that looks like a pointer, TO the offset of
/// the object that it leads to, HEX the contents without the zeroes at their end. "stale": [TO, …] names objects that were freed, and that
/// words of the object still lead to. A heap of which a repair has set blocks aside is
/// refused without --outline, as the lengths of the objects there are not known: 'copy' takes all of it. An outline has each such block
/// once, with "bytes": null.
#[derive(Parser, Debug)]
pub struct DumpArgs {
    /// The heap
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The file to write, which appears whole or not at all [default: -, standard output]
    #[arg(long, value_name = "FILE.json")]
    pub out: Option<PathBuf>,

    /// Leave out the contents of objects: 'load' cannot read such a dump
    #[arg(long)]
    pub outline: bool,

    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Make a heap of a dump: the same objects at the same offsets, the same roots, names and types.
///
/// The new heap has a UUID of its own, is closed, and has no objects that nothing leads to. It appears whole or not at all. Until then it
/// lies in a directory .spandrel-heap-….tmp beside FILE. SIGKILL leaves it behind, for the next command that writes there to remove.
#[derive(Parser, Debug)]
pub struct LoadArgs {
    /// The file to make, which must not be there yet
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The file that 'dump' wrote [default: -, standard input]
    #[arg(long, value_name = "FILE.json")]
    pub from: Option<PathBuf>,
}

/// Release the free blocks at the end of a heap to the disk; a heap that was not closed is recovered first.
///
/// Objects stay where they are: blocks before the last object stay in the file. Objects that cannot be reached stay as well; 'gc' frees
/// them. The command does not know the types of the program's objects: open a heap that was not closed with its program first, which
/// recovers it with its types. A failure at any time leaves the heap whole.
#[derive(Parser, Debug)]
pub struct ShrinkArgs {
    /// The heap, which no other process may have open
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}
