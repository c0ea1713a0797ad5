//! How a durable state is opened.

use std::fmt;
use std::path::PathBuf;

use spandrel_durable::notes::How;
use spandrel_durable::store::Settings;

use super::{CaptureSizes, Error, verified};

/// How a durable state is made and opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub(super) settings: Settings,
    pub(super) clients: Option<usize>,
    stores: Stores,
    /// Of a plain state.
    has_allocator: bool,
}

/// How the stores of a plain state's commands are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Stores {
    /// The code of a command is translated as it runs, and its translation notes each store. Reads, and all that is no command, are native. Translations take 16 MiB at most.
    ///
    /// What other threads store for a command is found at the end of its batch, if the command has begun, woken or awaited them by a system call, and a second or more later if
    /// not (`docs/durable.md`). A command that does what cannot be translated ends the program with a line that names it.
    #[default]
    Translated,
    /// The kernel names the written pages, and they are compared with a copy of the state, which takes its memory twice. A batch costs 20 µs and more, the longer the larger the
    /// state is.
    Pages,
    /// Both: a line on the standard error tells of the first place that a batch has changed and not noted, by whatever thread; it is durable all the same. A batch takes as long as with pages. For tests.
    Verified,
}

impl Options {
    /// The defaults: a state of 1 MiB that may grow to 64 GiB, a log of 64 MiB, 256 threads at a time.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of the log. A log of another length is made anew when the state is opened. For a command that changes more than the log holds it becomes longer.
    ///
    /// By default a new one has 64 MiB, and becomes longer on a disk where commands fill half of it within two seconds: four times as long, up to four times the
    /// state and 256 MiB, if the file system has four times that room.
    pub fn log_size(mut self, bytes: u64) -> Self {
        self.settings.log = Some(bytes);
        self
    }

    /// The most bytes that the state may have: address space that is reserved for it.
    pub fn limit(mut self, bytes: usize) -> Self {
        self.settings.limit = bytes;
        self
    }

    /// A number for the layout of the program's types. A state that was made with another number, or with none, is refused; 0: any.
    pub fn layout(mut self, layout: u64) -> Self {
        self.settings.layout = layout;
        self
    }

    /// Bytes of the blocks in which stores are noted: 16, 32, 64 or 128; 32 by default.
    pub fn block_size(mut self, bytes: usize) -> Self {
        self.settings.capture.block_bytes = bytes;
        self
    }

    /// How the stores of a [plain state](super::Plain)'s commands are found. Of no effect for other states, whose collections note their stores.
    pub fn stores(mut self, stores: Stores) -> Self {
        self.stores = stores;
        self
    }

    /// Those of a plain state.
    pub(super) fn of_plain(mut self) -> Self {
        self.has_allocator = true;
        self.settings.how = match self.stores {
            _ if verified::is_asked() => How::Verified,
            Stores::Translated => How::Translated,
            Stores::Verified => How::Verified,
            Stores::Pages => How::DirtyPages,
        };
        self
    }

    /// The same, of a state whose program is written in another language: its commands run by [`BatchNotes::run`](spandrel_durable::notes::BatchNotes::run).
    #[doc(hidden)]
    pub fn commands(mut self, how: How) -> Self {
        let is_verified = how.is_translated() && verified::is_asked();
        self.settings.how = if is_verified { How::Verified } else { how };
        self
    }

    /// Whether the program has said how long the log is.
    pub(super) fn says_log(&self) -> bool {
        self.settings.log.is_some()
    }

    /// How stores are noted, for measurements: the usual sizes are the best of those that were measured.
    #[doc(hidden)]
    pub fn capture(mut self, sizes: CaptureSizes) -> Self {
        self.settings.capture = sizes;
        self
    }

    /// Whether the state is a plain one.
    pub(super) fn is_plain(&self) -> bool {
        self.settings.how != How::Notes
    }

    /// Whether the program's allocator is this library's, as it is of a plain state in Rust.
    pub(super) fn has_allocator(&self) -> bool {
        self.has_allocator
    }

    /// Threads that run commands at a time; others wait. At most 1024.
    pub fn clients(mut self, threads: usize) -> Self {
        self.clients = Some(threads);
        self
    }
}

/// Why a durable state could not be opened or copied, with its directory or that of the copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenError {
    pub(super) directory: PathBuf,
    /// The reason.
    pub why: Error,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.directory.display(), self.why)
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.why)
    }
}
