//! Preliminary files are removed when a signal ends the command.

use nix::sys::signal::{SigHandler, SigSet, Signal, raise, signal};
use std::path::PathBuf;
use std::thread;

/// Signals by which users and supervisors end a command.
const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Attempts to remove a directory: another thread may make a file in it meanwhile.
const TRIES: usize = 100;

/// From now on such a signal removes a file, or a directory and what is in it, and then ends the command. A signal that is ignored
/// (`nohup`) stays ignored. Threads that were started before must not exist: the signal would end the command there.
pub fn removes(path: PathBuf) {
    let mut set = SigSet::empty();
    ENDING.into_iter().filter(|signal| !is_ignored(*signal)).for_each(|signal| set.add(signal));
    if set.thread_block().is_err() {
        return;
    }
    let wait = move || {
        let Ok(by) = set.wait() else { return };
        for _ in 0..TRIES {
            let _ = match path.is_dir() {
                true => std::fs::remove_dir_all(&path),
                false => std::fs::remove_file(&path),
            };
            if path.symlink_metadata().is_err() {
                break;
            }
        }
        // SAFETY: the default action is no function.
        let _ = unsafe { signal(by, SigHandler::SigDfl) };
        let _ = set.thread_unblock();
        let _ = raise(by);
    };
    if thread::Builder::new().name("signals".into()).spawn(wait).is_err() {
        let _ = set.thread_unblock();
    }
}

fn is_ignored(signal: Signal) -> bool {
    // SAFETY: numbers and null pointers.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes to `now`, and changes nothing.
    let read = unsafe { libc::sigaction(signal as i32, std::ptr::null(), &raw mut now) };
    read == 0 && now.sa_sigaction == libc::SIG_IGN
}
