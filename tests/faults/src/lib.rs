//! System calls that change files: counted, and failed on purpose.
//!
//! A filter of the kernel (seccomp) reports each of these calls to the thread that supervises, which has no filter. It answers for the kernel: the call goes on, or has an
//! error, or writes a part only. A filter is its thread's own, and that of the threads and processes which the thread starts. So other tests run beside it, and a program
//! needs no change.

mod behalf;
mod calls;

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use libc::c_int;

/// What happens to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing is done, and the error is reported.
    Error(c_int),
    /// All is done, and an error is reported: what a disk does whose answer is lost. What opens or maps a file has the error alone.
    Late(c_int),
    /// A write takes half of its bytes. Other calls go on.
    Short,
}

/// The calls from `first` on, up to `last`, have that fault.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of the first such call, from 1 on.
    pub first: u64,
    /// That of the last one.
    pub last: u64,
    /// What they have.
    pub fault: Fault,
    /// What all later calls have.
    pub then: Option<Fault>,
}

impl Plan {
    /// One call fails.
    pub fn once(at: u64, fault: Fault) -> Self {
        Self { first: at, last: at, fault, then: None }
    }

    /// All calls fail from one on.
    pub fn from(at: u64, fault: Fault) -> Self {
        Self { last: u64::MAX, ..Self::once(at, fault) }
    }

    fn fault_of(&self, number: u64) -> Option<Fault> {
        match number {
            _ if number < self.first => None,
            _ if number <= self.last => Some(self.fault),
            _ => self.then,
        }
    }
}

/// What was seen of the calls.
#[derive(Clone, Default, Debug)]
pub struct Calls {
    /// All of them.
    pub count: u64,
    /// Those that had a fault, in words.
    pub faults: Vec<String>,
    /// The names of all, in order.
    pub names: Vec<&'static str>,
    /// The threads that made them, by the numbers of the kernel.
    pub threads: Vec<u32>,
}

/// Whose calls count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Those of the thread, and of all that it starts.
    All,
    /// Those of other processes.
    Programs,
}

/// A scenario that takes longer hangs. A program that hangs is ended sooner by what runs it.
const PATIENCE: Duration = Duration::from_secs(240);

/// Runs `work` in a thread of its own whose calls are counted, and fail as planned. Ends when all threads have ended that it has started. `what` is said if it hangs.
pub fn supervise<T: Send>(
    plan: Option<Plan>,
    what: &str,
    work: impl FnOnce() -> T + Send,
) -> (T, Calls) {
    supervised(Whose::All, plan, what, work)
}

/// The same for programs that `work` runs to their end: its own calls do not count.
pub fn supervise_programs<T: Send>(
    plan: Option<Plan>,
    what: &str,
    work: impl FnOnce() -> T + Send,
) -> (T, Calls) {
    supervised(Whose::Programs, plan, what, work)
}

fn supervised<T: Send>(
    whose: Whose,
    plan: Option<Plan>,
    what: &str,
    work: impl FnOnce() -> T + Send,
) -> (T, Calls) {
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            sender.send(install()).expect("the thread that supervises");
            work()
        });
        let calls = answer(receiver.recv().expect("a filter"), whose, plan, what);
        match worker.join() {
            Ok(done) => (done, calls),
            Err(_) => panic!("{what}: the program panics; {:?}", calls.faults),
        }
    })
}

/// Has the calling thread's calls be reported. Returns where.
fn install() -> OwnedFd {
    let mut program = calls::filter();
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).expect("a short filter"),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program lives until the call returns; the descriptor is new.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let listener = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        );
        assert!(listener >= 0, "no filter: {}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(listener as RawFd)
    }
}

fn answer(listener: OwnedFd, whose: Whose, plan: Option<Plan>, what: &str) -> Calls {
    use std::os::fd::AsRawFd;
    let (mut calls, begun) = (Calls::default(), Instant::now());
    loop {
        let mut wait = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut wait, 1, 1000) };
        if wait.revents & libc::POLLIN != 0 {
            one(listener.as_raw_fd(), whose, plan, &mut calls);
        } else if wait.revents & libc::POLLHUP != 0 {
            return calls;
        } else if begun.elapsed() > PATIENCE {
            // The threads that hang cannot be ended.
            eprintln!("{what}: hangs after {} calls; {:?}", calls.count, calls.faults);
            std::process::abort();
        }
    }
}

/// Answers one call.
fn one(listener: RawFd, whose: Whose, plan: Option<Plan>, calls: &mut Calls) {
    let Some(call) = calls::Call::receive(listener) else { return };
    let mut reply = call.goes_on();
    let counts = whose == Whose::All || !call.is_own();
    if let Some(name) = call.counted().filter(|_| counts) {
        calls.count += 1;
        calls.names.push(name);
        calls.threads.push(call.thread());
        let fault = plan.and_then(|plan| plan.fault_of(calls.count));
        if let Some((value, error)) = fault.and_then(|fault| behalf::outcome(fault, &call)) {
            (reply.flags, reply.val, reply.error) = (0, value, -error);
            calls.faults.push(format!("call {} ({name}): {fault:?}", calls.count));
        }
    }
    calls::Call::reply(listener, &mut reply);
}
