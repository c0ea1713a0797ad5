//! The start: configuration from the environment, and fork order.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use core::{fmt, ptr};

use spandrel_backends::{Backend, Sys, guarded, register_atfork};

use spandrel_os::message::say;
use spandrel_os::modules::Module;
use spandrel_os::vm::{self, HugePages};
use spandrel_os::{budget, degrade, env, rseq, usage};
use spandrel_pages::AllocatorId;
use spandrel_policy::{
    Experiment, ExperimentError, Limit, Mode, ReleaseRate, parse_mode, profile, variables,
};
use spandrel_recorder::{self as recorder, Kinds, Recording};
use spandrel_sync::{Lock, Once, background, libc_is_single_threaded, turns};

use crate::elsewhere::is_elsewhere;
use crate::{available, modes, monitor, observed, sites, tuner, youth};

/// Among the variables with contents: see [`take_small_pages`].
#[unsafe(link_section = ".data")]
static STARTED: Once = Once::new();
/// A profile is read into here; untouched pages cost nothing.
static PROFILE: Lock<[u8; profile::MAX_BYTES]> = Lock::new([0; profile::MAX_BYTES]);

/// What is learnt while the program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tuner {
    On,
    Off,
    /// For tests.
    Restless,
}

/// What the environment asks for.
#[derive(Clone, Copy, Debug)]
struct Configuration {
    /// The mode to start in.
    mode: Mode,
    /// Count requests from the beginning.
    count: bool,
    /// Follow reallocations to their callers, while requests are counted.
    sites: bool,
    /// Report degraded system calls.
    verbose: bool,
    /// Mebibytes that may go back to the kernel in a second.
    release_rate: Option<u32>,
    /// One in this many requests is guarded.
    guard: Option<u32>,
    /// A thread may do work beside the program.
    background: bool,
    /// What serves the program best may be learnt while it runs.
    tuner: Tuner,
    /// It was learnt on other machines, and is where learning begins here.
    prior: Option<Mode>,
    /// What our own allocators may hold.
    limit: Limit,
    /// What is to be recorded.
    recording: Option<Recording<'static>>,
}

impl Configuration {
    /// Whether the first requests may be glibc's: the mode is the default, and requests are not observed.
    fn lets_be_young(&self) -> bool {
        let bound = self.guard.is_some() || self.limit != Limit::default();
        self.mode == Mode::Auto && !observed::is_on() && !bound && Sys::is_there()
    }
}

/// Starts the handler as the environment says, once. False only when called
/// from within the start itself, or so early that there is no environment yet:
/// such requests are glibc's.
#[inline]
pub(crate) fn start_from_environment() -> bool {
    STARTED.is_done() || start_first()
}

#[cold]
fn start_first() -> bool {
    if !env::is_there() {
        return false;
    }
    take_small_pages();
    STARTED.run(|| start_with(&from_environment()))
}

/// Has the variables of the library that are zero at first on small pages: where the kernel has huge pages wherever one fits,
/// the first of them that is used would take 2 MiB in every process. To be called before any is read or written to, as a huge
/// page of zeros becomes a huge page. Does nothing where this code is part of a program, whose variables are not ours.
pub fn take_small_pages() {
    // SAFETY: it reads what the kernel has told the process.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    let own = Module::around(take_small_pages as *const () as usize);
    if let Some(library) = own.filter(|own| !own.addresses().contains(&headers)) {
        library.take_small_pages();
    }
}

/// Starts the handler unless it has started; see the environment's documentation.
pub fn start() -> bool {
    start_from_environment()
}

/// As [`start`], and the process is no longer young: for callers that change or count what
/// requests get.
pub(crate) fn start_in_full() {
    start_from_environment();
    youth::end();
}

fn start_with(configuration: &Configuration) {
    degrade::set_verbose(configuration.verbose);
    if configuration.count {
        crate::stats::count_requests(true);
    }
    if configuration.sites {
        sites::begin();
    }
    if let Some(rate) = configuration.release_rate {
        spandrel_backends::set_release_rate(rate);
    }
    if let Some(one_in) = configuration.guard {
        guarded::guard_one_in(one_in);
    }
    let records = configuration.recording.as_ref().is_some_and(recorder::start);
    if records || is_elsewhere() {
        observed::apply();
    }
    budget::set(configuration.limit.hard, configuration.limit.soft);
    // Whatever the mode: what no other allocator has room for is glibc's.
    Sys::start();
    spandrel_backends::look_for_limits();
    rseq::start();
    background::begin();
    if !configuration.background {
        background::forbid();
    }
    match configuration.tuner {
        Tuner::Off => {}
        // What may be learnt is that glibc's allocator is better.
        Tuner::On if !Sys::is_there() => {}
        Tuner::On => tuner::allow(),
        Tuner::Restless => tuner::be_restless(),
    }
    if let Some(prior) = &configuration.prior {
        tuner::begin_with(prior);
    }
    if configuration.lets_be_young() {
        youth::begin();
    } else {
        spandrel_backends::start_cpu_caches();
        // The pool is empty: the first mode always fits.
        let _ = modes::set_parsed(&configuration.mode);
    }
    say_what_is_without_effect(configuration);
    register_fork_order();
}

/// Names what is set for allocators that nothing is asked of in the mode to start in.
fn say_what_is_without_effect(configuration: &Configuration) {
    let Configuration { mode, limit, guard, .. } = configuration;
    let has_native = mode.has(AllocatorId::Native);
    if !Sys::is_there() && mode.has(AllocatorId::Sys) {
        say(format_args!(
            "mode {mode}: libc is linked into this program without its allocator; what that would serve \
             gets pages of its own"
        ));
    }
    if *limit != Limit::default() && !has_native && !mode.has(AllocatorId::Mmap) {
        say(format_args!(
            "SPANDREL_LIMIT: without effect in mode {mode}: it limits our own allocators, which \
             serve in auto, native and mmap"
        ));
    }
    if guard.is_some_and(|one_in| one_in > 0) && !has_native {
        say(format_args!(
            "SPANDREL_GUARD: without effect in mode {mode}: it guards objects of the native \
             allocator, which serves in auto and native"
        ));
    }
}

fn from_environment() -> Configuration {
    say_unknown_variables();
    let set = |name: &CStr| env::get(name).is_some_and(|v| !v.is_empty() && v != b"0");
    let (profile, prior) = match profile_mode() {
        Some((mode, false)) if mode != Mode::Auto => (Some(Mode::Auto), Some(mode)),
        Some((mode, _)) => (Some(mode), None),
        None => (None, None),
    };
    let is_set = |name: &CStr| env::get(name).is_some_and(|value| !value.is_empty());
    // The paper's variable counts only where ours are not set, rightly or wrongly.
    let ours = is_set(c"SPANDREL_MODE") || is_set(c"SPANDREL_PROFILE");
    let papers = if ours { None } else { mode_of(c"BRUG_ALLOC") };
    let named = mode_of(c"SPANDREL_MODE");
    let variant = variant();
    let prior = prior.filter(|_| named.is_none() && variant.is_none());
    let mode = variant.or(named).or(profile).or(papers).unwrap_or(Mode::Auto);
    Configuration {
        mode,
        count: set(c"SPANDREL_STATS"),
        sites: set(c"SPANDREL_SITES"),
        verbose: set(c"SPANDREL_VERBOSE"),
        release_rate: release_rate(),
        guard: number(c"SPANDREL_GUARD", "N: one in N requests is guarded; or 0"),
        background: number(c"SPANDREL_BACKGROUND", "1, or 0 for no thread") != Some(0),
        tuner: tuner_setting(),
        prior,
        limit: limit(),
        recording: recording(),
    }
}

/// Names variables among ours that nothing reads: a typing error would be without effect, and without a word.
fn say_unknown_variables() {
    env::each_name(|name| {
        let unknown = core::str::from_utf8(name).ok().and_then(variables::unknown);
        if let Some(unknown) = unknown {
            say(format_args!("{unknown}"));
        }
    });
}

/// In which group of an experiment the process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Group {
    None = 0,
    Control = 1,
    Variant = 2,
}

static GROUP: AtomicU8 = AtomicU8::new(Group::None as u8);

/// The experiment that the process takes part in, and its group in it: `control` or `variant`.
pub(crate) fn experiment() -> Option<(&'static str, &'static str)> {
    let group = match GROUP.load(Relaxed) {
        1 => "control",
        2 => "variant",
        _ => return None,
    };
    Some((asked_experiment()?.ok()?.name, group))
}

fn asked_experiment() -> Option<Result<Experiment<'static>, ExperimentError<'static>>> {
    let value = env::get(c"SPANDREL_EXPERIMENT").filter(|value| !value.is_empty())?;
    Some(Experiment::parse(core::str::from_utf8(value).unwrap_or("?")))
}

/// The variant's mode, if there is an experiment and this process runs on its variant.
fn variant() -> Option<Mode> {
    let experiment = match asked_experiment()? {
        Ok(experiment) => experiment,
        Err(why) => {
            say(format_args!("SPANDREL_EXPERIMENT: {why}; there is no experiment"));
            return None;
        }
    };
    let mode = match experiment.mode.map(|text| (text, parse_mode(text))) {
        None => None,
        Some((text, Ok(mode))) if mode.check(text, available()).is_ok() => Some(mode),
        Some((text, _)) => {
            say(format_args!(
                "SPANDREL_EXPERIMENT: '{text}' is no mode of this library; there is no experiment"
            ));
            return None;
        }
    };
    // What stays when a host is renamed; containers may have none.
    let (mut id, mut name) = ([0; 64], [0; 256]);
    let id = env::read_file(c"/etc/machine-id", &mut id).unwrap_or_default().trim_ascii();
    let host = if id.is_empty() { usage::host(&mut name) } else { id };
    let is_variant = experiment.is_variant(host, env::program());
    GROUP.store(if is_variant { Group::Variant } else { Group::Control } as u8, Relaxed);
    mode.filter(|_| is_variant)
}

/// A variable that holds a number.
fn number(name: &CStr, wanted: &str) -> Option<u32> {
    let value = env::get(name).filter(|value| !value.is_empty())?;
    let text = core::str::from_utf8(value).unwrap_or("?");
    let number = text.parse().ok();
    if number.is_none() {
        let name = name.to_str().unwrap_or("?");
        say(format_args!("{name}: '{text}' is not a number ({wanted}); using the default"));
    }
    number
}

/// What is said of learning.
fn tuner_setting() -> Tuner {
    match env::get(c"SPANDREL_TUNER").unwrap_or_default() {
        b"" | b"1" => Tuner::On,
        b"0" => Tuner::Off,
        b"restless" => Tuner::Restless,
        other => {
            let text = core::str::from_utf8(other).unwrap_or("?");
            say(format_args!("SPANDREL_TUNER: '{text}' is not 1 or 0; nothing is learnt"));
            Tuner::Off
        }
    }
}

/// The rate that is set, in mebibytes per second, if it is one.
fn release_rate() -> Option<u32> {
    let value = env::get(c"SPANDREL_RELEASE_RATE").filter(|value| !value.is_empty())?;
    match ReleaseRate::parse(core::str::from_utf8(value).unwrap_or("?")) {
        Ok(rate) => Some(rate.mib_per_s),
        Err(why) => {
            say(format_args!("SPANDREL_RELEASE_RATE: {why}; using the default"));
            None
        }
    }
}

/// The limit that is set, if it is one.
fn limit() -> Limit {
    let value = env::get(c"SPANDREL_LIMIT").unwrap_or_default();
    let parsed =
        core::str::from_utf8(value).map_or(Err(None), |text| Limit::parse(text).map_err(Some));
    parsed.unwrap_or_else(|why| {
        match why {
            Some(why) => say(format_args!("SPANDREL_LIMIT: {why}; running without a limit")),
            None => say(format_args!("SPANDREL_LIMIT: not UTF-8 text; running without a limit")),
        }
        Limit::default()
    })
}

/// What the environment wants to have recorded, if that can be understood.
fn recording() -> Option<Recording<'static>> {
    let pattern = env::get(c"SPANDREL_TRACE").filter(|path| !path.is_empty())?;
    let text = |name| core::str::from_utf8(env::get(name).unwrap_or_default()).unwrap_or("?");
    let (of, limit) = (text(c"SPANDREL_TRACE_OF"), text(c"SPANDREL_TRACE_LIMIT"));
    let limit = match limit {
        "" => Ok(Recording::LIMIT_BYTES),
        text => Recording::parse_limit(text),
    };
    match (Kinds::parse(of), limit) {
        (Some(kinds), Ok(limit)) => Some(Recording { pattern, kinds, limit }),
        (None, _) => {
            say(format_args!(
                "SPANDREL_TRACE_OF: '{of}' is not requests, spans or all; nothing is recorded"
            ));
            None
        }
        (_, Err(why)) => {
            say(format_args!("SPANDREL_TRACE_LIMIT: {why}; nothing is recorded"));
            None
        }
    }
}

fn mode_of(name: &CStr) -> Option<Mode> {
    let value = env::get(name).filter(|value| !value.is_empty())?;
    let refuse = |why: fmt::Arguments<'_>| {
        let name = name.to_str().unwrap_or("?");
        say(format_args!("{name}: {why}; using the default"));
    };
    let Ok(text) = core::str::from_utf8(value) else {
        refuse(format_args!("the value is not UTF-8 text"));
        return None;
    };
    match parse_mode(text).and_then(|mode| mode.check(text, available()).map(|()| mode)) {
        Ok(mode) => Some(mode),
        Err(error) => {
            refuse(format_args!("{error}"));
            None
        }
    }
}

/// The mode of the profile that is set, and whether it was learnt on machines of this one's kind.
fn profile_mode() -> Option<(Mode, bool)> {
    let path = env::get(c"SPANDREL_PROFILE").filter(|path| !path.is_empty())?;
    let shown = core::str::from_utf8(path).unwrap_or("?");
    let refuse = |why: fmt::Arguments<'_>| {
        say(format_args!("SPANDREL_PROFILE: {shown}: {why}; running without it"));
        None
    };
    // SAFETY: the value lies in the environment block, which is NUL-terminated.
    let path = unsafe { CStr::from_ptr(path.as_ptr().cast()) };
    let mut buffer = PROFILE.lock();
    let bytes = match env::read_file(path, &mut *buffer) {
        Ok(bytes) => bytes,
        Err(errno) => return refuse(format_args!("cannot be read (errno {errno})")),
    };
    match profile::parse(bytes) {
        Ok(profile) => match profile.mode.check("profile", available()) {
            Ok(()) => Some((profile.mode, is_of_this_machine(&profile))),
            Err(error) => refuse(format_args!("{error}")),
        },
        Err(error) => refuse(format_args!("{error}")),
    }
}

fn is_of_this_machine(profile: &profile::Profile<'_>) -> bool {
    if profile.mode == Mode::Auto || !profile.names_machines() {
        // Does not matter; and to say what processor it is takes some kernels 10 ms.
        return true;
    }
    let mut buffer = [0; 1024];
    let huge_pages = match vm::huge_pages() {
        HugePages::Never => "never",
        HugePages::Advised => "madvise",
        HugePages::Always => "always",
    };
    profile.is_of(usage::processor_model(&mut buffer), huge_pages)
}

static FORK_ORDER: Once = Once::new();

/// Registers one set of fork handlers for all rooms, before all others:
/// prepare handlers run in reverse order, so that others' may still allocate,
/// and their child handlers find every lock free. See `capi`'s `fork`.
pub fn register_fork_order() {
    if FORK_ORDER.is_done() {
        return;
    }
    FORK_ORDER.run(|| {
        // By its own name: `pthread_atfork` is a stub that calls it, and a
        // preloaded library may stand in between.
        match register_atfork() {
            // SAFETY: the handlers live as long as the code; a null module
            // handle means that they are never unregistered.
            Some(register) => unsafe {
                register(Some(prepare), Some(parent), Some(child), ptr::null_mut());
            },
            None => say(format_args!("no __register_atfork in libc: do not fork with threads")),
        }
    });
}

/// Whether this fork has taken the locks. Written while they are held, or while
/// there is one thread.
static LOCKED: AtomicBool = AtomicBool::new(false);

extern "C" fn prepare() {
    if libc_is_single_threaded() {
        // No other thread can be inside, except the thread beside the program. A lock that is held is this thread's own: a
        // signal handler forks in the middle of a request, which goes on in
        // parent and child when the handler returns.
        LOCKED.store(false, Relaxed);
        // While it is young it has nothing of ours that a child could share.
        if !youth::is_now() {
            spandrel_backends::note_fork();
        }
        turns::pause();
        return;
    }
    background::prepare_fork();
    // A thread that is just ending it does not exist in the child.
    youth::end();
    monitor::fork_prepare();
    tuner::fork_prepare();
    modes::fork_lock().acquire();
    spandrel_backends::fork_prepare();
    LOCKED.store(true, Relaxed);
}

extern "C" fn parent() {
    if !LOCKED.load(Relaxed) {
        return turns::go_on();
    }
    // SAFETY: called by `fork` only; `prepare` took the locks on this thread.
    unsafe {
        spandrel_backends::fork_done(false);
        modes::fork_lock().release();
        tuner::fork_done();
        monitor::fork_done();
    }
}

extern "C" fn child() {
    turns::go_on();
    background::begin();
    if youth::fork_child() {
        // Nothing has been started that could have counted: a page that is written to here is copied in each child.
        return;
    }
    spandrel_backends::fork_forget();
    crate::stats::forget();
    if LOCKED.load(Relaxed) {
        // SAFETY: as above; the child's only thread is the one that forked.
        unsafe {
            spandrel_backends::fork_done(true);
            modes::fork_lock().release();
            tuner::fork_done();
            monitor::fork_done();
        }
    }
    tuner::forget_usage();
    spandrel_backends::watch_main_thread();
}
