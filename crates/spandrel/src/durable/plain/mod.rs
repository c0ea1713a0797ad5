//! States of ordinary types, whose own code notes nothing.

mod allocator;
mod begun;
mod program;
mod variables;

use std::any::type_name;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::mem::needs_drop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::prelude::v1::*;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use spandrel_durable::live::Counts;
use spandrel_durable::oracle::Verdict;
use spandrel_os::clock;

pub use allocator::Allocator;
pub use program::{fix_addresses, start_again};

pub(super) use allocator::Known;

use super::command::Payload;
use super::{Arena, Client, Durable, Error, Escaped, OpenError, Opening, Options, Report};
use allocator::Scope;
use program::Program;

/// Runs `body` so that what it allocates lies outside of the state, within a command of a [plain state](Plain): for what the program makes once and keeps, such
/// as a `LazyLock`. Outside of commands it changes nothing.
pub fn outside<T>(body: impl FnOnce() -> T) -> T {
    let _scope = Scope::leave();
    body()
}

/// A durable state of ordinary types: `HashMap`, `BTreeMap`, `Vec`, `String`, `Box`, structs and enums of them, types of other crates.
///
/// What commands that write allocate lies in the state. Their machine code is translated as it runs, and notes what it stores (`docs/durable.md` has figures). Commands that do what
/// cannot be translated have another way: the pages that the kernel names as written are compared with a copy ([`Stores`](super::Stores)).
///
/// ```no_run
/// use std::collections::HashMap;
/// use spandrel::durable::{Allocator, Options, Plain, fix_addresses};
///
/// #[global_allocator]
/// static ALLOC: Allocator = Allocator::new();
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     fix_addresses()?; // first of all: it may start the program again
///     let db = Plain::open("visits", Options::new(), HashMap::<String, u64>::new)?;
///     let visits = db.write(|visits| {
///         let number = visits.entry("you".to_string()).or_default();
///         *number += 1;
///         *number
///     })?;
///     println!("{visits}");
///     Ok(())
/// }
/// ```
///
/// # What a state needs
/// - The program's allocator is [`Allocator`], and the program is always at the same addresses: [`fix_addresses`].
/// - The build of the program is the one that made the state: values point into it. Before an upgrade the old build writes out what the state has.
/// - All that the state leads to was allocated by its own commands that write. What a command takes out of a lock or a cell that it has captured, or moves there, breaks that.
///   So does a command that reads and changes what is behind a lock of the state, and a thread that a command starts. An `Arc` of the state that leaves a command is dropped
///   before the state is closed.
/// - A pool of threads or a channel is called within [`outside`]: it allocates as it is used.
/// - What a command makes for the whole program (a `LazyLock`, a variable of the thread, a logger's buffer) is made before, or by [`outside`].
/// - Maps have a hasher that is the same in each process, as the standard library's is, and `hashbrown`'s default is not.
/// - A panic's payload is a text.
/// - No value of it depends on the process: no file, no thread, no time since the start.
///
/// The rest is as for [`Durable`].
pub struct Plain<S: 'static> {
    db: Durable<Root<S>>,
}

/// What a plain state has beside its memory.
#[derive(Debug)]
pub(super) struct Part {
    known: Known,
    /// Commands have returned what may be an owner of a part of the state: it may store there at any time.
    has_left: AtomicBool,
    /// When the batch has begun, of [`clock::coarse_ms`].
    begun_ms: AtomicU64,
}

impl Part {
    /// Of an open state.
    pub fn new(arena: &Arena) -> Self {
        let (has_left, begun_ms) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { known: Known::new(arena), has_left, begun_ms }
    }

    /// A command that has seen the state returns.
    pub fn note_left(&self) {
        if !self.has_left.load(Relaxed) {
            self.has_left.store(true, Relaxed);
        }
    }

    /// Whether an owner of a part of the state may be elsewhere.
    pub fn has_left(&self) -> bool {
        self.has_left.load(Relaxed)
    }

    /// Frees what waits for a batch, which begins.
    ///
    /// # Safety
    /// The calling thread runs the batch of the state.
    pub unsafe fn begin_batch(&self, arena: &Arena) {
        self.begun_ms.store(clock::coarse_ms(), Relaxed);
        // SAFETY: passed on from the caller.
        unsafe { self.known.begin_batch(arena) };
    }

    /// The batch is about to be undone: threads that its commands have begun end first.
    pub fn await_threads(&self) {
        begun::await_end(self.begun_ms.load(Relaxed));
    }

    /// A batch was undone, or the state is about to be closed.
    pub fn look_at_variables(&self, arena: &Arena, is_closed: bool) {
        variables::look(arena, is_closed);
    }

    /// A batch has ended.
    pub fn end_batch(&self, is_undone: bool) {
        self.known.end_batch(is_undone);
    }

    /// The thread runs a batch: `body` is code of the program that is no command.
    ///
    /// # Safety
    /// The calling thread runs the batch of the state.
    pub unsafe fn in_batch<T>(arena: &Arena, body: impl FnOnce() -> T) -> T {
        // SAFETY: passed on from the caller.
        unsafe {
            let _scope = Scope::of_batch(arena);
            arena.medium().notes().run(body)
        }
    }
}

/// What a plain state begins with, in the arena.
#[repr(C)]
struct Head<S> {
    program: Program,
    /// Of the type's name, size and alignment.
    type_number: u64,
    state: S,
}

/// The root that leads to it.
const ROOT: &str = "spandrel.plain";

/// The state, as its durable memory has it.
struct Root<S> {
    arena: Arc<Arena>,
    head: NonNull<Head<S>>,
}

// SAFETY: a reference to the state is made from one to this value, and shared or exclusive as that is: `S` answers for it.
unsafe impl<S: Send> Send for Root<S> {}
// SAFETY: as above.
unsafe impl<S: Sync> Sync for Root<S> {}

impl<S: 'static> Root<S> {
    /// Opens what the arena has, or makes it. The calling thread runs the first batch.
    fn open(arena: &Arc<Arena>, init: impl Fn() -> S) -> Result<Self, Error> {
        let program = Program::current()?;
        let type_number = {
            let mut hasher = DefaultHasher::new();
            (type_name::<S>(), size_of::<S>(), align_of::<S>()).hash(&mut hasher);
            hasher.finish()
        };
        if let Some(index) = arena.find_root(ROOT)?
            && let Some(head) = arena.get_root(index)?
        {
            let head = head.cast::<Head<S>>();
            // SAFETY: the root leads to a head, whose first fields are the same for all types.
            let (its, its_type) = unsafe {
                let at = head.as_ptr();
                ((&raw const (*at).program).read(), (&raw const (*at).type_number).read())
            };
            return match () {
                () if its.build != program.build => Err(Error::OtherBuild),
                () if its.at != program.at => Err(Error::Moved),
                () if its_type != type_number => Err(Error::OtherType),
                () => Ok(Self { arena: Arc::clone(arena), head }),
            };
        }
        let place = arena.alloc_aligned(size_of::<Head<S>>(), align_of::<Head<S>>())?;
        let head = place.cast::<Head<S>>();
        let make = || {
            // SAFETY: the calling thread runs the first batch; the arena outlives the scope. The head is a new object of that size and alignment.
            unsafe {
                let _scope = Scope::enter(arena);
                allocator::begin_command();
                head.write(Head { program, type_number, state: init() });
            }
        };
        // SAFETY: as above.
        unsafe { arena.medium().notes().run(|| catch_unwind(AssertUnwindSafe(make))) }
            .unwrap_or_else(|payload| resume_unwind(payload));
        let index = arena.named_root_of(ROOT, 0)?;
        arena.set_root(index, Some(place))?;
        Ok(Self { arena: Arc::clone(arena), head })
    }

    fn state(&self) -> &S {
        // SAFETY: the head lies in the arena as long as the state is open, and changes by `state_mut` alone.
        unsafe { &self.head.as_ref().state }
    }

    fn state_mut(&mut self) -> &mut S {
        // SAFETY: as above; the reference is exclusive as that to this value is.
        unsafe { &mut self.head.as_mut().state }
    }

    /// Runs a command of a batch. What it returns is copied out of the state.
    fn run<R: Clone>(&mut self, command: impl Fn(&mut S) -> R) -> R {
        let arena = Arc::clone(&self.arena);
        // SAFETY: the calling thread runs the batch, and the arena outlives the scope.
        let _scope = unsafe { Scope::enter(&arena) };
        allocator::begin_command();
        // The result's own code may store to the state as well: its `Clone` and its destructor.
        let command = AssertUnwindSafe(|| {
            let result = command(self.state_mut());
            outside(|| result.clone())
        });
        // SAFETY: as above.
        match unsafe { arena.medium().notes().run(|| catch_unwind(command)) } {
            // SAFETY: as above.
            Ok(_) if unsafe { allocator::has_objects_of_a_panic(&arena) } => {
                outside(|| std::panic::panic_any(CAUGHT))
            }
            Ok(result) => result,
            Err(payload) => resume_unwind(outside(|| text_of(payload))),
        }
    }
}

/// A command that catches a panic, and whose state leads to what was allocated meanwhile.
const CAUGHT: &str = "a command has caught a panic of its own, and keeps in the state what was allocated while it unwound, which lies outside: it is undone; what is to be kept is allocated after the panic was caught";

/// What a panic carries, outside of the state: the command is undone, and what it has allocated with it.
fn text_of(payload: Payload) -> Payload {
    let text: Payload = match payload.downcast_ref::<String>() {
        Some(text) => Box::new(text.clone()),
        None => match payload.downcast_ref::<&'static str>() {
            Some(text) => Box::new(*text),
            None => Box::new("a command has panicked with a value that is no text"),
        },
    };
    // It may own objects of the state, which are undone without it.
    std::mem::forget(payload);
    text
}

impl<S: Send + Sync + 'static> Plain<S> {
    /// Opens the state of a directory, as [`Durable::open`] does. Where there is none, `init` makes it.
    ///
    /// # Errors
    /// Those of [`Durable::open`]; [`Error::Allocator`], [`Error::Addresses`], [`Error::OtherBuild`], [`Error::Moved`], [`Error::OtherType`], [`Error::NoTranslation`]. Nothing was changed.
    ///
    /// # Panics
    /// `init` panics. The next opening calls it again.
    pub fn open(
        directory: impl AsRef<Path>,
        options: Options,
        init: impl Fn() -> S,
    ) -> Result<Self, OpenError> {
        let directory = directory.as_ref();
        let refused = |why| OpenError { directory: directory.to_path_buf(), why };
        if !allocator::is_the_programs() {
            return Err(refused(Error::Allocator));
        }
        if !program::has_fixed_addresses() {
            return Err(refused(Error::Addresses));
        }
        // Made once for the program, and not in a state by the first command that writes a line.
        drop((std::io::stdout(), std::io::stdin(), std::thread::current()));
        let opening = Opening::begin(directory, options.of_plain())?;
        let (memory, native) = (opening.arena().medium(), allocator::functions());
        if memory.notes().how().is_translated() {
            // SAFETY: this thread runs the first batch; the arena lies behind an `Arc`.
            let translated = unsafe { memory.notes().translate(memory.reserved(), &native) };
            translated.map_err(refused)?;
        }
        let root = Root::open(opening.arena(), init).map_err(refused)?;
        Ok(Self { db: opening.finish(|_| Ok(root))? })
    }

    /// See [`Durable::report`].
    pub fn report(&self) -> Report {
        self.db.report()
    }

    /// See [`Durable::client`].
    ///
    /// # Panics
    /// As there.
    pub fn client(&self) -> PlainClient<'_, S> {
        PlainClient { client: self.db.client() }
    }

    /// Runs a command that reads the state; see [`Durable::read`]. What it allocates is the program's.
    ///
    /// # Panics
    /// As there.
    pub fn read<R>(&self, command: impl FnOnce(&S) -> R) -> R {
        self.db.note_left();
        self.db.read(|root| command(root.state()))
    }

    /// Runs a command that may change the state, and returns when its effects survive; see [`Durable::write`]. What it allocates lies in the state, but for a copy of its
    /// result.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there. The command's panic goes on with its text.
    pub fn write<R: Clone + Send>(&self, command: impl Fn(&mut S) -> R + Sync) -> Result<R, Error> {
        if needs_drop::<R>() {
            self.db.note_left();
        }
        self.db.write(|root| root.run(&command))
    }

    /// See [`Durable::figures`].
    pub fn figures(&self) -> Counts {
        self.db.figures()
    }

    /// See [`Durable::state_syncs`].
    pub fn state_syncs(&self) -> u64 {
        self.db.state_syncs()
    }

    /// What a comparison has found about the notes of translated commands ([`Stores::Verified`](super::Stores)).
    #[doc(hidden)]
    pub fn verdict(&self) -> Option<Verdict> {
        self.db.verdict()
    }

    /// See [`Durable::medium`].
    pub fn medium(&self) -> &'static str {
        self.db.medium()
    }

    /// See [`Durable::escaped`].
    pub fn escaped(&self) -> Option<Escaped> {
        self.db.escaped()
    }

    /// See [`Durable::copy`]. The copy is a plain state of the same build.
    ///
    /// # Errors
    /// As there.
    pub fn copy(&self, to: impl AsRef<Path>) -> Result<(), OpenError> {
        self.db.copy(to)
    }

    /// See [`Durable::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(self) -> Result<(), Error> {
        // The state is not dropped: its memory is the file's.
        self.db.close()
    }
}

impl<S> fmt::Debug for Plain<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain").finish_non_exhaustive()
    }
}

/// A thread's place at a plain state; see [`Durable::client`].
pub struct PlainClient<'d, S: 'static> {
    client: Client<'d, Root<S>>,
}

impl<S: Send + Sync + 'static> PlainClient<'_, S> {
    /// As [`Plain::read`].
    ///
    /// # Panics
    /// As there.
    pub fn read<R>(&mut self, command: impl FnOnce(&S) -> R) -> R {
        self.client.note_left();
        self.client.read(|root| command(root.state()))
    }

    /// As [`Plain::write`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn write<R: Clone + Send>(
        &mut self,
        command: impl Fn(&mut S) -> R + Sync,
    ) -> Result<R, Error> {
        if needs_drop::<R>() {
            self.client.note_left();
        }
        self.client.write(|root| root.run(&command))
    }
}

impl<S> fmt::Debug for PlainClient<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainClient").finish_non_exhaustive()
    }
}
