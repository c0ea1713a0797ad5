//! The batch that the thread of commands has open: from the first command until something is sent, or waited for.

use std::cell::UnsafeCell;
use std::collections::HashSet;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use capi_durable::current::{self, Kind};
use capi_durable::handle::{SpandrelDurable, State};
use spandrel::durable::{Arena, Client, OpenBatch};
use spandrel_os::message::say;
use spandrel_sync::thread_slot;

use crate::hooks::{self, Hook};
use crate::roots::Roots;
use crate::values::Arguments;
use crate::{end, escapes, memory};

/// What the thread of commands has.
struct Own {
    handle: *const SpandrelDurable,
    arena: *const Arena,
    /// Leaked: as long as the process.
    client: *mut Client<'static, State>,
    batch: Option<OpenBatch<'static, State>>,
    roots: Roots,
    /// Those that are to have something of the batch.
    clients: HashSet<usize>,
    /// The one of them that was noted last; most replies of a batch follow one another.
    last: usize,
    /// It was said that the log is not brought into the state's file.
    has_told: bool,
}

struct Place(UnsafeCell<Option<Own>>);

// SAFETY: only the thread of commands uses what lies there, once it has put it there.
unsafe impl Sync for Place {}

static PLACE: Place = Place(UnsafeCell::new(None));
/// The thread of commands, by the address of its slot; 0: the point was not reached.
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// See [`counted_before`].
static COUNTED: AtomicUsize = AtomicUsize::new(0);

fn me() -> usize {
    ptr::from_ref(thread_slot()) as usize
}

/// The calling thread, which has opened the state, runs commands from now on.
pub fn begin(handle: *const SpandrelDurable, client: Client<'static, State>, roots: Roots) {
    // SAFETY: an open handle.
    let arena = unsafe { (*handle).arena() };
    let client = Box::into_raw(Box::new(client));
    // SAFETY: no other thread looks there before the thread is known.
    unsafe {
        *PLACE.0.get() = Some(Own {
            handle,
            arena,
            client,
            batch: None,
            roots,
            clients: HashSet::new(),
            last: 0,
            has_told: false,
        })
    };
    THREAD.store(me(), Release);
}

/// Whether the state is open, in the process that has opened it.
pub fn is_open() -> bool {
    arena().is_some_and(|arena| !arena.is_forked())
}

/// What the thread of commands has, for that thread.
fn own<'a>() -> Option<&'a mut Own> {
    if THREAD.load(Relaxed) != me() {
        return None;
    }
    // SAFETY: this thread's own, and each caller lets go of it before it runs code of the program.
    unsafe { (*PLACE.0.get()).as_mut() }
}

/// Runs a function as a command, `function` or the part of the program that it is: what it returns. `None`: it is none here, before the point and in a child.
///
/// # Safety
/// The function may be called with these arguments.
#[inline(never)]
pub unsafe fn command(hook: &Hook, function: usize, arguments: &Arguments) -> Option<usize> {
    if !is_open() {
        return None;
    }
    let Some(own) = own() else {
        end(format_args!(
            "{}: a thread has called it that is not the one which runs commands: its stores would be lost. The adapter has no rule for that",
            hook.name
        ))
    };
    let batch = own.batch();
    batch.note_command();
    let (handle, arena) = (own.handle, own.arena);
    // SAFETY: the handle and the arena live as long as the process; the thread runs no command, and its batch.
    unsafe { Some(run(handle, arena, function, arguments)) }
}

/// Runs a function as a command of the batch that the calling thread has begun.
///
/// # Safety
/// So it is; the function may be called with these arguments.
pub unsafe fn run(
    handle: *const SpandrelDurable,
    arena: *const Arena,
    original: usize,
    arguments: &Arguments,
) -> usize {
    // SAFETY: promised by the caller.
    unsafe {
        let _running = current::begin(handle, arena, Kind::Write);
        (*arena).medium().notes().run(|| hooks::body(original, arguments))
    }
}

impl Own {
    #[cold]
    #[inline(never)]
    fn begin(&mut self, is_at_rest: bool) {
        // SAFETY: the client is this thread's alone, and the batch before has ended.
        match unsafe { (*self.client).begin_batch(is_at_rest) } {
            Ok(batch) => {
                memory::free_queued(batch.arena());
                self.batch = Some(batch);
                self.tell_of_stall();
            }
            Err(why) => {
                end(format_args!("no change of the state can be made durable any more: {why}"))
            }
        }
    }

    /// Tells once that the log does not reach the state's file any more: the program's operator has time until the log is full.
    fn tell_of_stall(&mut self) {
        // SAFETY: the client is this thread's alone.
        let why = unsafe { (*self.client).stalled() }.filter(|_| !self.has_told);
        if let Some(why) = why {
            self.has_told = true;
            say(format_args!("{why}. The program goes on until the log is full"));
        }
    }

    fn batch(&mut self) -> &mut OpenBatch<'static, State> {
        if self.batch.is_none() {
            // Native code may be in the middle of what it stores by the way, and undo it.
            self.begin(false);
        }
        match &mut self.batch {
            Some(batch) => batch,
            None => end("a batch has begun and is not there"),
        }
    }
}

/// Commits the batch, if the calling thread has one open and runs no command.
#[inline]
pub fn commit() {
    if THREAD.load(Relaxed) == me() && !current::is_inside() && is_open() {
        commit_open();
    }
}

/// The program is about to wait for requests: what its native code has stored, and no batch has noted, becomes durable as well.
pub fn rest() {
    commit();
    if THREAD.load(Relaxed) != me() || current::is_inside() || !is_open() {
        return;
    }
    // SAFETY: the client is this thread's alone.
    let own = own().filter(|own| unsafe { (*own.client).has_doubts() });
    if let Some(own) = own {
        own.begin(true);
        commit_open();
    }
}

/// The program is about to read from a descriptor, or to accept there: where that may wait, the same as in [`rest`].
pub fn before_reading(descriptor: c_int) {
    if THREAD.load(Relaxed) != me() || current::is_inside() || !is_open() {
        return;
    }
    let waits = || {
        // SAFETY: no preconditions.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        flags >= 0 && flags & libc::O_NONBLOCK == 0
    };
    // An event loop reads from many clients in one batch: none of its descriptors waits.
    // SAFETY: the client is this thread's alone.
    let has_some = |own: &mut Own| own.batch.is_some() || unsafe { (*own.client).has_doubts() };
    if own().is_some_and(has_some) && waits() {
        rest();
    }
}

#[inline(never)]
fn commit_open() {
    let Some(own) = own() else { return };
    let Some(batch) = own.batch.take() else { return };
    own.clients.clear();
    own.last = 0;
    memory::free_queued(batch.arena());
    // SAFETY: the thread runs the batch, and no command.
    unsafe { own.roots.keep(batch.arena()) };
    if let Err(why) = batch.commit(&mut escapes::look) {
        end(format_args!(
            "a batch cannot be made durable: {why}. Nothing of it was acknowledged; the process ends, and the next one finds the state of the batch before"
        ));
    }
}

/// The thread serves clients in the middle of a command: they see nothing of the batch.
static IS_SERVING: AtomicBool = AtomicBool::new(false);

/// Clients are served in the middle of a command until this is dropped.
pub struct Serving(());

impl Serving {
    pub fn begin() -> Self {
        IS_SERVING.store(true, Relaxed);
        Self(())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        IS_SERVING.store(false, Relaxed);
    }
}

/// A client is to have something: of the batch, if the calling thread has one open, and is not in the middle of a command that serves others.
pub fn note_client(client: usize) {
    if IS_SERVING.load(Relaxed) {
        return;
    }
    let own = own().filter(|own| own.batch.is_some());
    if let Some(own) = own.filter(|own| own.last != client) {
        own.clients.insert(client);
        own.last = client;
    }
}

/// A client begins: what was to be had by another one at that address is not its own.
pub fn forget_client(client: usize) {
    if let Some(own) = own() {
        own.clients.remove(&client);
        own.last = 0;
    }
}

/// Whether a client is to have something of the batch that the thread has open, in the middle of a command of it. Complexity: O(1).
pub fn holds(client: usize) -> bool {
    IS_SERVING.load(Relaxed) && is_open() && own().is_some_and(|own| own.clients.contains(&client))
}

/// The arena, if the calling thread has a batch open, in which it may be changed.
pub fn in_batch<'a>() -> Option<&'a Arena> {
    let own = own().filter(|own| own.batch.is_some() && is_open())?;
    // SAFETY: the arena lives as long as the process.
    Some(unsafe { &*own.arena })
}

/// The arena, to be looked at.
pub fn arena<'a>() -> Option<&'a Arena> {
    if THREAD.load(Acquire) == 0 {
        return None;
    }
    // SAFETY: it was put there before the thread was known, and does not change.
    unsafe { (*PLACE.0.get()).as_ref().map(|own| &*own.arena) }
}

/// Bytes of the objects that the state had when this process began, to be added to what the program counts.
pub fn counted_before() -> usize {
    COUNTED.load(Relaxed)
}

/// See [`counted_before`].
pub fn set_counted(bytes: usize) {
    COUNTED.store(bytes, Relaxed);
}
