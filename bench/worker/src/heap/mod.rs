//! Programs of the Makalu paper's evaluation (section 13), each compiled for every allocator that is measured.

mod apps;
mod checkpoint;
mod life;
mod malloc;
mod pmemobj;
mod queue;
mod resur;
mod sections;
mod small;
mod spandrel;

pub use apps::{barnes, cholesky, queens};
pub use checkpoint::checkpoint;
pub use life::{blocks, open};
pub use resur::resur;
pub use small::{larson, pair, prodcon, sh6bench, threadtest};

use crate::args::Args;
use crate::suites::Report;
use sections::Section;
use std::ptr::NonNull;

/// Who is measured.
pub trait Allocator: Sync {
    /// Somebody who changes objects all or nothing.
    type Section<'a>: Section
    where
        Self: 'a;

    /// Allocates. Without memory the process ends: there is nothing to be measured then.
    fn alloc(&self, bytes: usize) -> NonNull<u8>;

    /// Frees an object.
    ///
    /// # Safety
    /// It was allocated here, and nobody uses it.
    unsafe fn free(&self, object: NonNull<u8>);

    /// One for the calling thread.
    fn section(&self) -> Result<Self::Section<'_>, String>;

    /// Adds what it has waited for, if it can tell.
    fn record(&self, _: &mut Report) {}
}

/// A program that is compiled for every allocator.
trait Program {
    fn run<A: Allocator>(&self, allocator: &A, report: Report) -> Result<Report, String>;
}

/// Runs a program on the allocator that `--with` names, in files in `--directory`.
fn run_on(
    mut args: Args,
    program: impl FnOnce(&mut Args) -> Result<Box<dyn AnyProgram>, String>,
) -> Result<Report, String> {
    let with = args.text("with", "malloc").to_string();
    let directory = args.text("directory", "/dev/shm").to_string();
    let program = program(&mut args)?;
    let report = args.begin()?;
    match with.as_str() {
        "malloc" => program.on_malloc(report),
        "spandrel" => {
            let heap = spandrel::OnHeap::create(&directory)?;
            let mut report = program.on_heap(&heap, report)?;
            heap.record(&mut report);
            Ok(report)
        }
        "pmemobj" => program.on_pool(&pmemobj::Pool::create(&directory)?, report),
        _ => Err(format!("--with {with}: there are malloc, spandrel, pmemobj")),
    }
}

/// The programs by themselves: a generic function has no address.
trait AnyProgram {
    fn on_malloc(&self, report: Report) -> Result<Report, String>;
    fn on_heap(&self, heap: &spandrel::OnHeap, report: Report) -> Result<Report, String>;
    fn on_pool(&self, pool: &pmemobj::Pool, report: Report) -> Result<Report, String>;
}

impl<P: Program> AnyProgram for P {
    fn on_malloc(&self, report: Report) -> Result<Report, String> {
        self.run(&malloc::Malloc, report)
    }

    fn on_heap(&self, heap: &spandrel::OnHeap, report: Report) -> Result<Report, String> {
        self.run(heap, report)
    }

    fn on_pool(&self, pool: &pmemobj::Pool, report: Report) -> Result<Report, String> {
        self.run(pool, report)
    }
}

/// A file of this process that nobody else has.
fn file(directory: &str, what: &str) -> String {
    format!("{directory}/spandrel-bench-{}.{what}", std::process::id())
}
