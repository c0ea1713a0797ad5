//! A durable state between its recovery and its first command.

use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spandrel_durable::directory::{Directory, Paths};
use spandrel_durable::live;
use spandrel_durable::store::{self, Files, Loaded};
use spandrel_os::signals::Blocked;
use spandrel_pmem::tie::Ties;
use spandrel_redolog::Ring;

use super::options::{OpenError, Options};
use super::{Arena, Durable, Error, Report};

/// A state that was recovered, and whose first batch has begun: what the calling thread changes in its arena is durable when [`Opening::finish`] has
/// returned, all of it or nothing. Dropping it leaves the state as it was.
pub struct Opening {
    pub(super) directory: Directory,
    pub(super) files: Files,
    pub(super) ring: Ring,
    pub(super) ties: Ties,
    pub(super) arena: Arc<Arena>,
    pub(super) report: Report,
    pub(super) paths: Paths,
    pub(super) options: Options,
    /// How long it took.
    pub(super) took: Duration,
    path: PathBuf,
    /// The first batch is the calling thread's.
    not_send: PhantomData<*const ()>,
}

/// Threads that read a state at most: more do not read faster from one disk.
const READERS: usize = 8;

/// Runs `work` in a thread for each processor.
fn crew(work: &(dyn Fn() + Sync)) {
    let count = std::thread::available_parallelism().map_or(1, usize::from).min(READERS);
    std::thread::scope(|scope| {
        let blocked = Blocked::all();
        for _ in 1..count {
            // A thread that cannot be had leaves its part to the others.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        drop(blocked);
        work();
    });
}

impl Opening {
    /// Recovers the state of a directory, which is made if there is none; the first half of [`Durable::open`].
    ///
    /// # Errors
    /// As there.
    pub fn begin(directory: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let path = directory.as_ref().to_path_buf();
        Self::load(&path, options).map_err(|why| OpenError { directory: path, why })
    }

    fn load(path: &Path, options: Options) -> Result<Self, Error> {
        let (settings, begun) = (options.settings, Instant::now());
        let paths = Paths::new(path.as_os_str().as_bytes())?;
        let directory = Directory::open(paths.directory.as_c(), true)?;
        let paths = directory.paths(paths)?;
        live::forget(paths.figures.as_c());
        let created = !store::has_state(&paths)?;
        if created {
            // Empty: what `init` makes is the first batch.
            let heap = store::make_heap(&settings)?;
            heap.seal()?;
            store::publish(&paths, &heap, &settings)?;
            heap.abandon();
        }
        let loaded = store::load(&paths, directory, &settings, &crew)?;
        let Loaded { directory, files, ring, ties, heap, opened, replayed, .. } = loaded;
        let was_closed = created || opened.was_clean && replayed == 0;
        let report = Report { created, was_closed, replayed };
        let (arena, path) = (Arc::new(heap), path.to_path_buf());
        let (took, not_send) = (begun.elapsed(), PhantomData);
        Ok(Self {
            directory,
            files,
            ring,
            ties,
            arena,
            report,
            paths,
            options,
            took,
            path,
            not_send,
        })
    }

    /// The heap that the state lies in.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// What recovery has found.
    pub fn report(&self) -> Report {
        self.report
    }

    /// Opens the state for commands; the second half of [`Durable::open`].
    ///
    /// # Errors
    /// As there.
    pub fn finish<S: Send + Sync>(
        self,
        init: impl FnOnce(&Arc<Arena>) -> Result<S, crate::heap::Error>,
    ) -> Result<Durable<S>, OpenError> {
        let directory = self.path.clone();
        Durable::start(self, init).map_err(|why| OpenError { directory, why })
    }
}
