//! What may be asked of `spandrel heap`.

use clap::{Parser, Subcommand, ValueEnum};
use spandrel_pheap::Choice;
use std::path::PathBuf;
use std::time::Duration;

/// Make, look at, mend and copy recoverable heaps: files whose objects outlive the process.
///
/// What only looks works on a copy in memory: the file stays as it is. Of a heap that a process has open the last
/// checkpoint is shown if it has a log (FILE.wal); if it has none, a copy is requested of the process, which admits it at its
/// next checkpoint (see --wait). The types of a program's objects are not known here: each
/// word that may be a pointer is taken for one.
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

/// How long a process is waited for.
#[derive(Parser, Debug)]
pub struct WaitArgs {
    /// How long a process that has the heap open without a log is waited for to come to a checkpoint; 0: not at all
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

    /// How large it is in the beginning, 704KiB at least; it grows as it needs
    #[arg(long, value_name = "SIZE", default_value = "64MiB", allow_negative_numbers = true)]
    pub size: String,

    /// It has an address of its own, at which it is opened ever after: addresses may be stored in it
    #[arg(long)]
    pub fixed: bool,

    /// What it lies on, from now on
    #[arg(long, value_name = "MEDIUM", default_value = "auto")]
    pub medium: MediumArg,
}

/// What a heap may lie on, as users type it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MediumArg {
    /// Mapped on persistent memory and in tmpfs, else logged
    Auto,
    /// Stores are the file's: they survive the process, and a power failure on persistent memory only
    Mapped,
    /// The file changes from checkpoint to checkpoint, with a log beside it: FILE.wal
    Logged,
}

impl MediumArg {
    /// The same, as the heap has it.
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

/// Look whether a heap is sound: exit code 0 if it is, 1 if it is damaged, 2 if that cannot be seen.
///
/// Objects that nothing leads to are no damage, and noted only: `gc` frees them.
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

/// Mend a damaged heap: what its sums tell is put right as it was, the rest is set aside or cleared.
///
/// Where headers or mark bits are lost the heap is left to be recovered by the program that has its types.
/// Without --write nothing is changed, and said what would be. Exit code 0 if the heap is sound in the end,
/// 1 if it is not (without --write: if there is something to mend).
#[derive(Parser, Debug)]
pub struct RepairArgs {
    /// The heap, which no other process may have open
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Mend the file, not a copy of it in memory
    #[arg(long)]
    pub write: bool,

    /// Keep no FILE.before-repair
    #[arg(long, requires = "write")]
    pub no_backup: bool,

    /// Take the heap as its file has it, without a log that is missing, damaged or of another state: with --write the log is set aside as
    /// FILE.bad. What only the log has is given up, and the file may have a part of a checkpoint
    #[arg(long)]
    pub forget_log: bool,

    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Free what cannot be reached from a heap's roots, after recovering it if it was not closed.
#[derive(Parser, Debug)]
pub struct GcArgs {
    /// The heap, which no other process may have open
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// List a heap's roots: number, name, offset and bytes of the object, layout of its type.
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
/// The copy needs no log. It appears whole or not at all, and is its owner's alone. A process may have the heap open: with
/// a log it does not notice; without one (on tmpfs, for example) it is asked, and stands still at its next checkpoint
/// until all is read into memory. The copy is of one moment but for objects that a thread stores to directly
/// just then, which are in it word by word; it always recovers.
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

/// Write a heap's record, roots and all objects that can be reached as JSON, of which 'load' makes the heap again.
///
/// A root has the number, the name, the layout of its type, and the offset of the object that it leads to. An object is {"at": OFFSET,
/// "bytes": BYTES, "pointers": [[WHERE, TO], …], "data": HEX}: where in it something looks like a pointer, the offset of the object that it
/// leads to, and what it holds, without the zeroes at its end.
#[derive(Parser, Debug)]
pub struct DumpArgs {
    /// The heap
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Where it goes [default: standard output]
    #[arg(long, value_name = "FILE.json")]
    pub out: Option<PathBuf>,

    /// Leave out what objects hold: nothing can be loaded from that
    #[arg(long)]
    pub outline: bool,

    #[command(flatten)]
    pub wait: WaitArgs,
}

/// Make a heap of what 'dump' wrote of one: the same objects at the same offsets, the same roots, names and types.
///
/// It is a new heap with a UUID of its own, closed, without what nothing led to. It appears whole or not at all.
#[derive(Parser, Debug)]
pub struct LoadArgs {
    /// The file to make, which must not be there yet
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// What 'dump' wrote [default: standard input]
    #[arg(long, value_name = "FILE.json")]
    pub from: Option<PathBuf>,
}

/// Give the free blocks at the end of a heap back to the disk, after recovering it if it was not closed.
///
/// Objects stay where they are: one at the end keeps all before it. 'gc' before it frees what cannot be reached. A failure at any time
/// leaves the heap whole.
#[derive(Parser, Debug)]
pub struct ShrinkArgs {
    /// The heap, which no other process may have open
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}
