//! One child process whose life is ours: it gets our signals, we get its end.
//!
//! Signals are blocked and read from a descriptor, so that one loop waits for
//! everything: a signal, the child's end, the library's answer. No handler runs.

use super::sampler::Sampler;
use super::watch::Watch;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, pthread_sigmask, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::unistd::Pid;
use spandrel_console::Failure;
use spandrel_console::shutdown::{self, is_ignored};
use spandrel_report::Sample;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Signals that ask a program for something, and so are meant for the child.
const FORWARDED: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
];

/// What accompanies a program while it runs.
#[derive(Default)]
pub struct Companions {
    /// Says on standard error when the library is missed.
    pub watch: Option<Watch>,
    /// Whether the program's memory is looked at.
    pub is_sampled: bool,
}

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit code, or 128 and the signal that ended it.
    pub code: u8,
    /// Its process id.
    pub pid: u32,
    /// What was seen of its memory, if a report wants it.
    pub samples: Vec<Sample>,
    /// From its start to its end.
    pub elapsed: Duration,
    /// The signal that was to end the run, if one came while the program lived.
    pub interrupted: Option<Signal>,
    /// The signal that ended the program.
    pub signal: Option<Signal>,
}

impl Ended {
    /// Whether a user or a supervisor wanted an end. Programs take SIGHUP and SIGQUIT for other things too.
    pub fn was_interrupted(&self) -> bool {
        matches!(self.interrupted, Some(Signal::SIGINT | Signal::SIGTERM))
    }

    /// Ends the command by the signal that was meant to end it and has ended the program: shells that run a list
    /// of commands look whether a command has ended so. Returns where there was no such signal.
    pub fn pass_on(&self) {
        if let Some(signal) = self.interrupted.filter(|signal| Some(*signal) == self.signal) {
            shutdown::die(signal);
        }
    }
}

/// Starts the command and waits for its end.
pub fn spawn_and_wait(mut command: Command, with: Companions) -> Result<Ended, Failure> {
    let Companions { mut watch, is_sampled } = with;
    let ours = signals();
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&ours), Some(&mut before))
        .map_err(|why| Failure::new(format!("signals cannot be blocked: {why}")))?;
    // Where it is ignored children vanish without a status.
    let ends_are_ignored = is_ignored(Signal::SIGCHLD);
    if ends_are_ignored {
        // SAFETY: the default disposition runs no code.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }
            .map_err(|why| Failure::new(format!("children cannot be waited for: {why}")))?;
    }
    // This command's handlers are not the program's, not even before it is executed: a signal would be lost.
    let caught: Vec<Signal> = shutdown::caught().collect();
    // SAFETY: between fork and exec, calls that POSIX allows in signal handlers.
    unsafe {
        command.pre_exec(move || {
            for of in &caught {
                signal(*of, SigHandler::SigDfl)?;
            }
            if ends_are_ignored {
                signal(Signal::SIGCHLD, SigHandler::SigIgn)?;
            }
            pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
            Ok(())
        });
    }
    let start = Instant::now();
    let spawned = shutdown::spawn(&mut command);
    let child = spawned.map_err(|why| not_started(command.get_program(), &why))?;
    let pid = child.id();
    let listener = SignalFd::with_flags(&ours, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .map_err(|why| Failure::new(format!("signals cannot be read: {why}")))?;
    if let Some(watch) = &mut watch {
        watch.started();
    }
    let sampler = is_sampled.then(|| Sampler::start(pid, start));
    let mut interrupted = None;
    let status = attend(child, &listener, &mut watch, &mut interrupted);
    let elapsed = start.elapsed();
    // What came for a child that has just ended. From here on signals are for this command again.
    while let Ok(Some(info)) = listener.read_signal() {
        interrupted = ending(&info).or(interrupted);
    }
    let unblocked = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    let samples = sampler.map(Sampler::finish).unwrap_or_default();
    let status = unblocked.and(status);
    let status =
        status.map_err(|why| Failure::new(format!("cannot wait for the program: {why}")))?;
    if let Some(watch) = watch {
        watch.at_end();
    }
    let signal = status.signal().and_then(|signal| Signal::try_from(signal).ok());
    Ok(Ended { code: code(status), pid, samples, elapsed, interrupted, signal })
}

/// The signals to forward, and the one that tells of the child. What is ignored
/// now (`nohup`, a background job) shall stay ignored.
fn signals() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    for signal in FORWARDED {
        if !is_ignored(signal) {
            set.add(signal);
        }
    }
    set
}

/// Serves signals and the handshake until the child ends.
fn attend(
    mut child: Child,
    listener: &SignalFd,
    watch: &mut Option<Watch>,
    interrupted: &mut Option<Signal>,
) -> nix::Result<ExitStatus> {
    let pid = Pid::from_raw(child.id() as i32);
    loop {
        if let Some(status) = child.try_wait().map_err(|_| Errno::ECHILD)? {
            return Ok(status);
        }
        if watch.as_mut().is_some_and(|watch| watch.is_over(pid)) {
            *watch = None;
        }
        wait(listener, watch.as_ref())?;
        while let Some(info) = listener.read_signal()? {
            *interrupted = ending(&info).or(*interrupted);
            forward(&info, pid);
        }
    }
}

/// Waits for something to happen.
fn wait(listener: &SignalFd, watch: Option<&Watch>) -> nix::Result<()> {
    let mut fds = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    let mut timeout = PollTimeout::NONE;
    if let Some(watch) = watch {
        fds.push(PollFd::new(watch.as_fd(), PollFlags::POLLIN));
        timeout = PollTimeout::try_from(watch.time_left()).unwrap_or(PollTimeout::MAX);
    }
    match poll(&mut fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(why) => Err(why),
    }
}

/// The signal, if it is one that ends commands.
fn ending(info: &siginfo) -> Option<Signal> {
    let signal = Signal::try_from(info.ssi_signo as i32).ok();
    signal.filter(|signal| shutdown::ENDING.contains(signal))
}

/// Passes a signal on, unless the terminal sent it: then the child, which is in
/// our process group, has it already, and twice may mean something else.
fn forward(info: &siginfo, child: Pid) {
    let from_the_kernel = info.ssi_code > 0;
    let signal = Signal::try_from(info.ssi_signo as i32);
    if let Ok(signal) = signal
        && signal != Signal::SIGCHLD
        && !from_the_kernel
    {
        // A child that has just ended is no error.
        let _ = kill(child, signal);
    }
}

/// As shells have it: 127 if there is no such program, 126 if it cannot be run.
fn not_started(program: &OsStr, why: &std::io::Error) -> Failure {
    let mut message = format!("'{}' cannot be started: {why}", program.to_string_lossy());
    if why.kind() == std::io::ErrorKind::NotFound && Path::new(program).exists() {
        // The kernel says the same of a script whose first line names nothing.
        message += " (the file is there, but not its interpreter, which it names itself)";
    }
    match why.kind() {
        std::io::ErrorKind::NotFound => Failure::not_found(message),
        _ => Failure::not_executable(message),
    }
}

fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        (None, None) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_as_shells_have_them() {
        assert_eq!(code(ExitStatus::from_raw(0)), 0);
        assert_eq!(code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(code(ExitStatus::from_raw(libc::SIGKILL)), 137);
        let missing = std::io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(not_started("x".as_ref(), &missing).code, 127);
        let format = std::io::Error::from_raw_os_error(libc::ENOEXEC);
        assert_eq!(not_started("x".as_ref(), &format).code, 126);
    }
}
