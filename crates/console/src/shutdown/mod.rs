//! The end of the command by a signal.
//!
//! Users and supervisors end a command by a signal at any moment. Then the descendants of the command end too, temporary
//! files are removed, and the command ends by the same signal, so that its caller sees how it ended.
//!
//! Signals are caught, not blocked: a child that executes a program starts with default actions and an empty
//! mask, whatever the command waits for. The handler only wakes a thread, which does the work.
//!
//! Invariant: [`steady`] is held while a child is started and while a temporary file is made, for no longer than that takes. The thread
//! takes the same lock for good before its first step. So no child and no file appears after the thread has looked. It takes
//! [`printing`] as well, so that nothing is printed about children that it has ended.

mod descendants;
mod scratch;

pub use scratch::{Kind, MEMORY, Scratch};

use crate::terminal;
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, Signal, raise, signal};
use signal_hook::iterator::Signals;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Signals that end a command.
pub const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

static STEADY: Mutex<()> = Mutex::new(());
static PRINTING: Mutex<()> = Mutex::new(());
/// How long the end waits for a line that is being printed.
const MOMENT: Duration = Duration::from_millis(100);

/// Held, no signal ends the command. Where a signal is just ending it, the call does not return.
pub fn steady() -> MutexGuard<'static, ()> {
    STEADY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held while a line is printed. A reader that does not read keeps it for long: the end waits for it for a moment only.
pub fn printing() -> MutexGuard<'static, ()> {
    PRINTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to catch the signals. One that is ignored (`nohup`, a job in the background) stays ignored. Where a limit leaves no
/// room for a thread, signals end the command as they end others.
pub fn listen() {
    let caught: Vec<i32> = caught().map(|signal| signal as i32).collect();
    // The thread inherits the mask: a signal that the main thread blocks, to read it from a descriptor, must not be
    // delivered to this thread.
    let Ok(before) = SigSet::thread_get_mask() else { return };
    if caught.is_empty() || SigSet::all().thread_block().is_err() {
        return;
    }
    let (ready, is_ready) = sync_channel(1);
    let wait = move || {
        let signals = Signals::new(caught);
        let _ = ready.send(());
        let Ok(mut signals) = signals else { return };
        if let Some(by) = signals.forever().next() {
            end(by, &mut signals);
        }
    };
    if thread::Builder::new().name("signals".into()).spawn(wait).is_ok() {
        let _ = is_ready.recv();
    }
    let _ = before.thread_set_mask();
}

/// The signals that [`listen`] catches. A child starts with their default actions.
pub fn caught() -> impl Iterator<Item = Signal> {
    ENDING.into_iter().filter(|signal| !is_ignored(*signal))
}

/// Whether the process ignores a signal.
pub fn is_ignored(signal: Signal) -> bool {
    // SAFETY: an all-zero `sigaction` is a valid value.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only asks; `now` is a valid place for the answer.
    let asked = unsafe { libc::sigaction(signal as i32, std::ptr::null(), &raw mut now) };
    asked == 0 && now.sa_sigaction == libc::SIG_IGN
}

/// Ends the command by a signal, after its descendants and its temporary files.
fn end(by: i32, signals: &mut Signals) {
    let _steady = steady();
    let begun = Instant::now();
    let _printing = loop {
        match PRINTING.try_lock() {
            Err(TryLockError::WouldBlock) if begun.elapsed() < MOMENT => thread::yield_now(),
            other => break other.ok(),
        }
    };
    descendants::end(|| signals.pending().next().is_some());
    scratch::remove_all();
    terminal::clear_bars();
    descendants::collect();
    if let Ok(by) = Signal::try_from(by) {
        die(by);
    }
}

/// Ends the command by a signal at once.
pub fn die(by: Signal) {
    // SIGQUIT would leave a core of this command, which has no fault.
    let _ = prctl::set_dumpable(false);
    // SAFETY: the default action is no function.
    let _ = unsafe { signal(by, SigHandler::SigDfl) };
    let mut set = SigSet::empty();
    set.add(by);
    let _ = raise(by);
    let _ = set.thread_unblock();
}

/// Starts a child.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let _steady = steady();
    command.spawn()
}

/// Has the kernel kill a child where this command ends without its own doing (`kill -9`). For servers, which would
/// run for good; a child that is measured starts without the detour of `fork` that this takes.
pub fn dies_with_us(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec, a system call.
    unsafe { command.pre_exec(|| Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)) }
}

/// Starts a child without input, and waits for its end and its output.
pub fn output(command: &mut Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(command)?.wait_with_output()
}
