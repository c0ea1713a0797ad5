//! A command on its way to the thread that runs its batch.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::prelude::v1::*;

/// What a command's panic carries.
pub(super) type Payload = Box<dyn Any + Send>;

/// A command that waits in its caller's frame: how it is run on a state, behind one pointer.
pub(super) struct Request<S> {
    run: unsafe fn(*mut Request<S>, &mut S) -> bool,
    discard: unsafe fn(*mut Request<S>),
    /// It has panicked, or its result says that it is not to be.
    is_undone: bool,
}

/// A command, and its outcome.
#[repr(C)]
pub(super) struct Command<'f, S, F, R> {
    /// First: a pointer to the command is one to it.
    request: Request<S>,
    work: &'f F,
    /// Whether a command with this result is to be.
    is_kept: fn(&R) -> bool,
    outcome: Option<Result<R, Payload>>,
}

impl<'f, S, F: Fn(&mut S) -> R, R> Command<'f, S, F, R> {
    pub fn new(work: &'f F, is_kept: fn(&R) -> bool) -> Self {
        let request = Request { run: Self::run, discard: Self::discard, is_undone: false };
        Self { request, work, is_kept, outcome: None }
    }

    /// What [`super::Durable::write`] hands over.
    pub fn pointer(&mut self) -> *mut () {
        (&raw mut *self).cast()
    }

    pub fn outcome(self) -> Option<Result<R, Payload>> {
        self.outcome
    }

    /// # Safety
    /// The pointer is that of a command, which no other thread uses.
    unsafe fn run(request: *mut Request<S>, state: &mut S) -> bool {
        // SAFETY: the request is the first field of a command, whose type this function was made for.
        let command = unsafe { &mut *request.cast::<Self>() };
        let outcome = catch_unwind(AssertUnwindSafe(|| (command.work)(state)));
        let is_well = outcome.as_ref().is_ok_and(command.is_kept);
        command.request.is_undone = !is_well;
        command.outcome = Some(outcome);
        is_well
    }

    /// # Safety
    /// As for [`Command::run`].
    unsafe fn discard(request: *mut Request<S>) {
        // SAFETY: as above.
        let command = unsafe { &mut *request.cast::<Self>() };
        if !command.request.is_undone {
            let outcome = command.outcome.take();
            // Its destructor is the program's code too, and no command.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(outcome)));
            dropped.unwrap_or_else(std::mem::forget);
        }
    }
}

/// Runs the command that a pointer leads to, once more if it ran before and was undone ([`discard`] came between). False: it is to be undone.
///
/// # Safety
/// The pointer is one of [`Command::pointer`], of a command on a state of this type that waits; no other thread uses the command.
pub(super) unsafe fn run<S>(request: *mut (), state: &mut S) -> bool {
    let request = request.cast::<Request<S>>();
    // SAFETY: promised by the caller.
    unsafe { ((*request).run)(request, state) }
}

/// Drops the result of a command that is about to be undone, and not for its own sake: it may own a part of the state, which is as the command has left it.
///
/// # Safety
/// As for [`run`].
pub(super) unsafe fn discard<S>(request: *mut ()) {
    let request = request.cast::<Request<S>>();
    // SAFETY: promised by the caller.
    unsafe { ((*request).discard)(request) }
}

/// Has a command run again that was refused, or whose result was to be: drops the result.
///
/// # Safety
/// As for [`run`].
pub(super) unsafe fn begin_again<S>(request: *mut ()) {
    // SAFETY: promised by the caller.
    unsafe {
        (*request.cast::<Request<S>>()).is_undone = false;
        discard::<S>(request);
    }
}

/// Whether the command that a pointer leads to is not to run again.
///
/// # Safety
/// As for [`run`].
pub(super) unsafe fn is_undone<S>(request: *mut ()) -> bool {
    // SAFETY: promised by the caller.
    unsafe { (*request.cast::<Request<S>>()).is_undone }
}
